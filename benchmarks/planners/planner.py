"""Planners under comparison: each asked in its own environment, by its own script in `ask/`; and Deepdraft's."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.planners.case import CONTEXT_LEN, Case
from deepdraft.cost.kv_dtype import kv_dtype
from deepdraft.cost.kv_family import KvFormat, sequence_kv_bytes
from deepdraft.planner.shape_config import shape_of_config

PLANNERS = (
    "aiconfigurator",
    "kvfit",
    "vramscout",
    "ridgepoint",
    "hf-mem",
    "modelinfo-cli",
    "llm-mem-planner",
)
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes of one sequence, or why there are none."""

    num_bytes: int | None
    refusal: str = ""


def deepdrafts(case: Case) -> Answer:
    """Deepdraft's own, by the same config."""
    shape = shape_of_config(case.config, case.config_name)
    form = KvFormat.of(kv_dtype("bfloat16"))
    return Answer(sequence_kv_bytes(shape.families, form, CONTEXT_LEN))


def asked(planner: str, venvs: Path, folder: Path) -> Answer:
    """What `planner` says of the config.json in `folder`."""
    script = Path(__file__).with_name("ask") / f"ask_{planner.replace('-', '_')}.py"
    done = subprocess.run(
        [str(venvs / planner / "bin" / "python"), str(script), str(folder), str(CONTEXT_LEN)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        return Answer(None, _last_line(done.stderr or done.stdout))
    return Answer(int(json.loads(done.stdout.splitlines()[-1])["num_bytes"]))


def version(planner: str, venvs: Path) -> str:
    """Of the installed package."""
    words = f"from importlib.metadata import version; print(version({planner!r}))"
    return subprocess.run(
        [str(venvs / planner / "bin" / "python"), "-c", words], capture_output=True, text=True, check=True
    ).stdout.strip()


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "no answer"
