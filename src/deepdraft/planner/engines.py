"""Engines that can be planned for, and the function of each version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deepdraft.cost.device import Device
from deepdraft.errors import UsageError
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.llamacpp import plan_llamacpp
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import EngineSettings
from deepdraft.planner.sglang_0_5_12 import plan_sglang_0_5_12
from deepdraft.planner.sglang_0_5_23 import plan_sglang_0_5_23
from deepdraft.planner.shape import Model
from deepdraft.planner.vllm import plan_vllm

PlanFunction = Callable[[Model, Any, Any, Calibration | None], Plan]


@dataclass(frozen=True, slots=True)
class EngineVersion:
    """One version's function, which also stands for every version between it and the next one."""

    version: str
    plan: PlanFunction


ENGINES: Mapping[str, tuple[EngineVersion, ...]] = {
    "llamacpp": (EngineVersion("2026.10", plan_llamacpp),),
    "sglang": (EngineVersion("0.5.12", plan_sglang_0_5_12), EngineVersion("0.5.23", plan_sglang_0_5_23)),
    "vllm": (EngineVersion("0.20", plan_vllm),),
}
"""Versions from old to new."""


def plan_for(
    engine: str,
    version: str | None,
    model: Model,
    device: Device | None,
    settings: EngineSettings,
    calibration: Calibration | None = None,
) -> Plan:
    """The plan by that engine's function of that version: the newest that is not newer, the oldest for all before it.
    None: the newest. Raises UsageError for an engine or a version that can't be read, and as the function does."""
    return engine_version(engine, version).plan(model, device, settings, calibration)


def engine_version(engine: str, version: str | None) -> EngineVersion:
    """The entry that stands for that version. Raises UsageError as `plan_for` does."""
    versions = ENGINES.get(engine)
    if versions is None:
        raise UsageError(f"no plans for engine {engine!r}", hint=f"one of: {', '.join(sorted(ENGINES))}")
    if version is None:
        return versions[-1]
    wanted = _numbers(version)
    fitting = [each for each in versions if _numbers(each.version) <= wanted]
    return fitting[-1] if fitting else versions[0]


def _numbers(version: str) -> tuple[int, ...]:
    """0.5.12.post1 is 0.5.12."""
    numbers = []
    for part in version.strip().removeprefix("v").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    if not numbers:
        raise UsageError(f"not a version: {version!r}", hint="for example 0.5.12")
    return tuple(numbers)
