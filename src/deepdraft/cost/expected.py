"""What NVIDIA's performance model expects of a model on a device and engine: one request at a time, no drafter.

The package is aiconfigurator-core 0.12 (Apache-2.0), the optional extra `expected`; tables of the package only,
nothing is downloaded. Against one deployment it was 8 % off in prefill; against another 24 % high in decode and 2
times in prefill.
"""

from __future__ import annotations

import importlib
import importlib.resources
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepdraft.cost.device import Device
from deepdraft.errors import UsageError

PACKAGE = "aiconfigurator_core"
_SYSTEMS = {
    "RTX PRO 6000 Blackwell": "rtx_pro_6000_server",
    "H100": "h100_sxm",
    "H200": "h200_sxm",
    "B200": "b200_sxm",
    "A100 80GB": "a100_sxm",
    "L40S": "l40s",
}
_ENGINES = {"sglang": "sglang", "vllm": "vllm", "tensorrt_llm": "trtllm"}
_KIMI_K2 = re.compile(r"kimi[ _-]?k2\.[5-9]", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTimes:
    """Of one request at one length."""

    context_len: int
    ttft_s: float
    tpot_s: float
    source: str


def expected_times(
    *, model: str, device: Device, engine: str, tp_size: int, context_lens: Sequence[int]
) -> tuple[ExpectedTimes, ...]:
    """`model`: a name the package ships (moonshotai/Kimi-K2.5); Kimi K2.6 and later stand for K2.5, whose shape they
    have.

    Raises UsageError where the package is missing or knows nothing of the model, the device or the engine.
    """
    if device.name not in _SYSTEMS:
        raise UsageError(f"no expected times for {device.name}", hint=f"known: {', '.join(_SYSTEMS)}")
    if engine not in _ENGINES:
        raise UsageError(f"no expected times for {engine}", hint=f"known: {', '.join(_ENGINES)}")
    sdk = _sdk()
    name = _shipped(model)
    backend, system = _ENGINES[engine], _SYSTEMS[device.name]
    try:
        version = sdk["perf_database"].get_latest_database_version(system, backend)
        database = sdk["perf_database"].get_database(system, backend, version)
        config = sdk["config"].ModelConfig(tp_size=tp_size, moe_tp_size=tp_size, moe_ep_size=1)
        built = sdk["models"].get_model(name, config, backend)
        factory = sdk["backends.factory"].get_backend(backend)
        runs = [
            (length, sdk["config"].RuntimeConfig(batch_size=1, isl=length, osl=2))
            for length in dict.fromkeys(context_lens)
        ]
        return tuple(
            ExpectedTimes(
                context_len=length,
                ttft_s=factory.run_static_latency_only(built, database, run, mode="static_ctx") / 1e3,
                tpot_s=factory.run_static_latency_only(built, database, run, mode="static_gen") / 1e3,
                source=f"aiconfigurator, {name}, {system}, {backend} {version}, TP {tp_size}",
            )
            for length, run in runs
        )
    except (ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise UsageError(f"no expected times for {name} on {system} with {backend}: {error}") from None


def _sdk() -> dict[str, Any]:
    try:
        return {
            part: importlib.import_module(f"{PACKAGE}.sdk.{part}")
            for part in ("config", "models", "perf_database", "backends.factory")
        }
    except ModuleNotFoundError:
        raise UsageError(
            "--expected needs aiconfigurator-core, which is not installed", hint="pip install 'deepdraft[expected]'"
        ) from None


def _shipped(model: str) -> str:
    """The name under which the package ships the model's config; a model it lacks would be downloaded, so is "
    "refused."""
    folder = importlib.resources.files(PACKAGE) / "model_configs"
    names = {
        each.name.removesuffix("_config.json").replace("--", "/")
        for each in folder.iterdir()
        if each.name.endswith("_config.json")
    }
    if _KIMI_K2.search(model):
        model = "moonshotai/Kimi-K2.5"
    fitting = sorted(
        name for name in names if name.lower() == model.lower() or name.lower().endswith("/" + model.lower())
    )
    if not fitting:
        raise UsageError(
            f"no expected times for the model {model!r}",
            hint=f"give one that is known: --expected NAME; for example {', '.join(sorted(names)[:5])}",
        )
    return fitting[0]
