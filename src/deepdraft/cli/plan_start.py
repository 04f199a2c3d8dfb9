"""What one start of a server tells a plan: read from its log, or asked of the server itself."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepdraft.cli.connection import Access, access
from deepdraft.errors import DeepdraftError, UsageError
from deepdraft.planner.calibrate import calibration_of_start, settings_of
from deepdraft.planner.flag import ENGINE_TITLES

if TYPE_CHECKING:
    from deepdraft.planner.calibration import Calibration
    from deepdraft.records import Capabilities

_GIB = 2**30
_LOGS = ("sglang-log", "vllm-log", "llamacpp-log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start, by the engine's own names and ours."""

    source: str
    engine: str
    version: str | None
    stated: Mapping[str, Any]
    """Settings by the engine's names."""
    memory: Mapping[str, int]
    """Bytes by the names of `Calibration`."""
    kv_pool_tokens: int | None
    max_context_len: int | None = None
    num_slots: int | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    """What a plan is checked against."""

    def calibration(self, told: Mapping[str, Any], stated_by_user: Mapping[str, Any]) -> Calibration:
        """The calibration. `told`: the user's flags, for settings that the start does not state, its fraction
        excepted; `stated_by_user`: what they say of that start itself.

        Raises UsageError where it tells too little.
        """
        fraction = ("mem_fraction_static", "gpu_memory_utilization")
        others = {name: value for name, value in told.items() if name not in fraction}
        settings = settings_of(self.engine, {**self.stated, **stated_by_user}, others)
        return calibration_of_start(
            self.engine,
            source=self.source,
            settings=settings,
            memory=self.memory,
            kv_pool_tokens=self.kv_pool_tokens,
        )


def start_of_log(path: Path) -> Start:
    """The last start in a server's log. Raises ResultsError for a file that can't be read, UsageError for one that is
    no server's log or has no line of a start."""
    from deepdraft.importers.document import read_document
    from deepdraft.importers.formats import FORMATS

    document = read_document(path)
    form = next((FORMATS[name] for name in _LOGS if FORMATS[name].recognises(document)), None)
    if form is None:
        raise UsageError(
            f"{path} is no log of SGLang, vLLM or llama.cpp: it has none of the lines of a start",
            hint="give what the server printed from its start on, standard error included",
        )
    found = form.read(document)
    memory = found.settings.get("memory", {})
    if not memory and found.kv_pool_tokens is None:
        raise UsageError(
            f"{path} tells nothing of memory: it does not reach back to the server's start",
            hint="the lines are printed while weights load and the KV pool is made",
        )
    stated = {name: value for name, value in found.settings.items() if name != "memory"}
    return Start(
        source=path.name,
        engine=found.engine,
        version=found.engine_version,
        stated=_with_limits(found.engine, stated, found.max_context_len, found.num_slots),
        memory=memory,
        kv_pool_tokens=found.kv_pool_tokens,
        max_context_len=found.max_context_len,
        num_slots=found.num_slots,
    )


def start_of_server(url: str, namespace: argparse.Namespace) -> Start:
    """What a running server states. Raises ServerError where none answers, UsageError for an engine without plans."""
    from deepdraft.bench.secret import Secrets

    entry = access(namespace)
    hidden = Secrets(entry.headers, entry.admin_headers)
    try:
        found = hidden.hidden_in(asyncio.run(_capabilities(url, entry)))
    except DeepdraftError as error:
        error.message = hidden.hidden(error.message)
        raise
    if found.engine not in ENGINE_TITLES:
        raise UsageError(
            f"{url} is {found.engine}: plans are made for {', '.join(ENGINE_TITLES.values())}",
        )
    return start_of_capabilities(url, found)


def start_of_capabilities(source: str, found: Capabilities) -> Start:
    """The same from what an adapter found."""
    stated, memory = _STATED[found.engine](found.settings)
    return Start(
        source=source,
        engine=found.engine,
        version=found.version,
        stated=_with_limits(found.engine, stated, found.max_context_len, found.num_slots),
        memory=memory,
        kv_pool_tokens=found.kv_pool_tokens,
        max_context_len=found.max_context_len,
        num_slots=found.num_slots,
        figures={
            "kv_pool_tokens": found.kv_pool_tokens,
            "max_context_len": found.max_context_len,
            "num_slots": found.num_slots,
            "weight_bytes": memory.get("weight_bytes"),
        },
    )


async def _capabilities(url: str, entry: Access) -> Capabilities:
    from deepdraft.adapters.detect import detect
    from deepdraft.transport.client import Client
    from deepdraft.transport.endpoint import endpoint

    async with Client(endpoint(url), tls=entry.tls, headers=entry.headers) as client:
        adapter = await detect(client, admin_headers=entry.admin_headers)
        return adapter.capabilities


def _with_limits(
    engine: str, stated: Mapping[str, Any], max_context_len: int | None, num_slots: int | None
) -> dict[str, Any]:
    """With the limits in effect where the settings leave them to the engine."""
    names = {
        "sglang": {"context_length": max_context_len, "max_running_requests": num_slots},
        "vllm": {"max_model_len": max_context_len, "max_num_seqs": num_slots},
        "llamacpp": {"parallel": num_slots},
    }[engine]
    known = {name: value for name, value in names.items() if value is not None}
    return {**known, **{name: value for name, value in stated.items() if value is not None}}


def _sglang_stated(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """`memory_usage` is in GiB, called GB, to two digits."""
    usage = settings.get("memory_usage")
    memory: dict[str, int] = {}
    if isinstance(usage, Mapping):
        graphs = usage.get("graph")
        amounts = {
            "weight_bytes": usage.get("weight"),
            "available_before_weights_bytes": usage.get("startup_available"),
            "graph_bytes": sum(graphs.values()) if isinstance(graphs, Mapping) else graphs,
        }
        memory = {
            name: round(value * _GIB) for name, value in amounts.items() if isinstance(value, int | float) and value
        }
    return dict(settings), memory


def _vllm_stated(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """The labels of the metrics page, and the configuration where the server is in developer mode."""
    labels, config = settings.get("cache_config"), settings.get("vllm_config")
    stated: dict[str, Any] = dict(labels) if isinstance(labels, Mapping) else {}
    if "cache_dtype" in stated:
        stated["kv_cache_dtype"] = stated["cache_dtype"]
    parts = config if isinstance(config, Mapping) else {}
    for part, names in _VLLM_PARTS.items():
        inner = parts.get(part)
        if isinstance(inner, Mapping):
            stated |= {name: inner[name] for name in names if name in inner}
    return stated, {}


def _llamacpp_stated(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """It states the context of a slot only."""
    return {}, {}


_VLLM_PARTS = {
    "model_config": ("max_model_len", "enforce_eager"),
    "scheduler_config": ("max_num_seqs", "max_num_batched_tokens"),
    "parallel_config": ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"),
    "cache_config": ("gpu_memory_utilization", "block_size"),
}
_STATED = {"sglang": _sglang_stated, "vllm": _vllm_stated, "llamacpp": _llamacpp_stated}
