"""What `plan` was asked, read from its command line and from the start that was measured."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deepdraft.cli.plan_flags import given_fields, settings_with
from deepdraft.cli.plan_start import Start, start_of_log, start_of_server
from deepdraft.cost.device import Device, device
from deepdraft.errors import UsageError
from deepdraft.planner.calibrate import calibration_of_pools, price_doubt
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.engines import plan_for
from deepdraft.planner.gguf import open_gguf
from deepdraft.planner.launch import algorithm_of
from deepdraft.planner.open_model import open_model
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import EngineSettings
from deepdraft.planner.shape import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be planned."""

    model: Model
    engine: str
    version: str | None
    device: Device | None
    settings: EngineSettings
    calibration: Calibration | None

    def plan(self, settings: EngineSettings) -> Plan:
        """The plan of other settings."""
        plan = plan_for(self.engine, self.version, self.model, self.device, settings, self.calibration)
        doubt = None if self.calibration is None else price_doubt(plan, self.calibration)
        return plan if doubt is None else replace(plan, notes=(doubt, *plan.notes))


def measured_start(namespace: argparse.Namespace) -> Start | None:
    """The start that --server-log or --server names; None where neither is given. Raises UsageError for several
    sources, and as reading them does."""
    sources = [word for word in ("server_log", "server", "pool") if getattr(namespace, word)]
    if len(sources) > 1:
        words = " and ".join(f"--{word.replace('_', '-')}" for word in sources)
        raise UsageError(f"one measured start, not several: {words}")
    if namespace.server_log is not None:
        return start_of_log(namespace.server_log)
    return start_of_server(namespace.server, namespace) if namespace.server is not None else None


def asked_of(namespace: argparse.Namespace, start: Start | None) -> Asked:
    """Model, device, settings and calibration: those of the start, with the user's flags over them. Raises UsageError
    for what does not go together."""
    engine = _engine(namespace, start)
    given = given_fields(namespace, engine)
    model = _model(namespace)
    given |= _speculation(namespace, engine, model, given, start)
    calibration = _calibration(namespace, engine, given, start)
    base = calibration.settings if calibration is not None else None
    version = namespace.engine_version or (start.version if start is not None and engine != "llamacpp" else None)
    named = device(namespace.device) if namespace.device is not None else None
    if named is None and engine != "llamacpp":
        raise UsageError("which device?", hint="--device 'RTX PRO 6000', or --device memory=80GiB,bandwidth=3.3TB/s")
    return Asked(
        model=model,
        engine=engine,
        version=version,
        device=named,
        settings=settings_with(engine, given, base),
        calibration=calibration,
    )


def _engine(namespace: argparse.Namespace, start: Start | None) -> str:
    if start is not None and namespace.engine not in (None, start.engine):
        raise UsageError(f"{start.source} is of {start.engine}, --engine says {namespace.engine}")
    engine: str | None = start.engine if start is not None else namespace.engine
    if engine is None:
        raise UsageError("which engine?", hint="--engine sglang, vllm or llamacpp")
    return engine


def _model(namespace: argparse.Namespace) -> Model:
    if namespace.model.endswith(".gguf"):
        if namespace.drafter is not None:
            raise UsageError("a drafter beside a .gguf file can't be planned yet", hint="leave --drafter out")
        return open_gguf(Path(namespace.model))
    return open_model(namespace.model, drafter=namespace.drafter, weight_bytes=namespace.weight_bytes)


def _speculation(
    namespace: argparse.Namespace, engine: str, model: Model, given: Mapping[str, Any], start: Start | None
) -> dict[str, Any]:
    """A drafter that is named is meant to draft."""
    if model.drafter is None or engine == "llamacpp":
        return {}
    if engine == "sglang":
        return (
            {} if given.get("speculative_algorithm") else {"speculative_algorithm": algorithm_of(model.drafter.kind)}
        )
    if given.get("num_speculative_tokens") or (start is not None and start.stated.get("num_speculative_tokens")):
        return {}
    raise UsageError(
        f"how many tokens does {namespace.drafter} draft at once?", hint="for example --num-speculative-tokens 7"
    )


def _calibration(
    namespace: argparse.Namespace, engine: str, given: Mapping[str, Any], start: Start | None
) -> Calibration | None:
    if start is not None:
        return start.calibration(given, dict(namespace.started_with))
    if not namespace.pool:
        return None
    return calibration_of_pools(namespace.pool, settings_with(engine, given))
