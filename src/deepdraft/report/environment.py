"""What a run was: server, model, method, client machine, as labelled text. Only what is known is listed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepdraft.records import Run
from deepdraft.report.table import drafter_text
from deepdraft.units import tokens_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line."""

    label: str
    text: str


def facts_of(run: Run) -> tuple[Fact, ...]:
    """The run's environment."""
    header, server, spec = run.header, run.header.capabilities, run.header.spec
    said: dict[str, object] = {
        "engine": " ".join(part for part in (server.engine, server.version) if part),
        "model": server.model,
        "drafter": drafter_text(server).removeprefix("drafter: "),
        "address": spec.url,
        "device": spec.device,
        "context limit": _tokens(server.max_context_len),
        "KV pool": _tokens(server.kv_pool_tokens),
        "page size": server.page_size,
        "requests at once": server.num_slots,
        "prefix cache": server.prefix_cache if server.prefix_cache != "unknown" else None,
        "tokenizer": server.tokenizer,
        "method": spec.method,
        "text": spec.text,
        "repeats": spec.num_repeats,
        "output tokens": spec.decode_len,
        "temperature": spec.temperature,
        "measured": header.created_at,
        "deepdraft": header.deepdraft_version,
        "command": shlex.join(header.command_line),
        "run": header.run_id,
    }
    if header.source is not None:
        for label in ("method", "repeats", "temperature", "measured", "text"):
            del said[label]
        source = header.source
        said["reported by"] = " ".join(part for part in (source.tool, source.version) if part)
        said["source file"] = source.path
        said["entered"] = header.created_at
    settings = {f"server: {key}": value for key, value in _flat(server.settings).items()}
    client = {f"client: {key}": value for key, value in _flat(header.environment).items()}
    notes = {f"note: {note.topic} ({place})": note.message for place, note in enumerate(run.notes, start=1)}
    return tuple(
        Fact(label=label, text=_text(value))
        for label, value in (said | settings | client | notes).items()
        if value is not None and value != ""
    )


def _tokens(num_tokens: int | None) -> str | None:
    return f"{num_tokens:,} tokens ({tokens_text(num_tokens)})" if num_tokens is not None else None


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
