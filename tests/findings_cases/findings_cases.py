"""The findings cases: measured tables of public reports, as runs. One function a case.

Cases of one configuration give a Run; cases that compare give one Run a configuration, by its name. The tables stand
beside this file as they were printed (`*.toml`); F08 has requests behind it and is built here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from deepdraft.importers import import_file
from deepdraft.records import Run, ServerReading

FOLDER = Path(__file__).resolve().parent
EXAMPLE = FOLDER.parents[1] / "examples" / "reference_deployment" / "table.toml"
sys.path.insert(0, str(FOLDER.parent / "metrics"))

from trace_builder import repeats, steady  # noqa: E402

CREATED_AT = "2026-11-29T00:00:00Z"


def table(name: str) -> Run:
    """The run of one of the tables here."""
    return import_file(FOLDER / f"{name}.toml", created_at=CREATED_AT)


def f01() -> Run:
    """The reference deployment's sweep."""
    return import_file(EXAMPLE, created_at=CREATED_AT)


def f02() -> dict[str, Run]:
    """A drafter that loses at 185k and gains at short context, with no point between."""
    return {name: table(f"f02_{name}") for name in ("off", "drafts_2", "drafts_4", "drafts_8")}


def f03() -> Run:
    """Acceptance that falls with context, and a second pass that hit the prefix cache."""
    return table("f03")


def f04() -> dict[str, Run]:
    """n-gram drafts whose depth differs from prompt to prompt: looks like a cliff in context, is none."""
    return {name: table(f"f04_{name}") for name in ("spec", "off")}


def f05() -> Run:
    """A row labelled 128k whose prompt had 82,845 tokens."""
    return table("f05")


def f06() -> dict[str, Run]:
    """A tree against a chain: alike when eager, 31.6 % apart with CUDA graphs, in the same 34 steps."""
    return {name: table(f"f06_{name}") for name in ("eager_chain", "eager_tree", "graph_chain", "graph_tree")}


def f07() -> dict[str, Run]:
    """Drafts that halve the decode rate at 47.8k, with the time of verify and rebuild."""
    return {name: table(f"f07_{name}") for name in ("drafts", "off")}


def f08() -> dict[str, Run]:
    """Answers of 16 tokens on a server whose acceptance gauge moves every 40 decode steps: read once afterwards, or
    read before and after and still where it was."""
    answers = [steady(16, ttft_s=1.2, gap_s=0.05, prompt=8000) for _ in range(3)]
    run = repeats(
        *answers,
        context_len=8000,
        max_tokens=16,
        engine="sglang",
        version="0.5.23",
        speculation="yes",
        speculation_method="DFLASH",
        settings={"decode_log_interval": 40},
        spec={"context_lens": (8000,), "decode_len": 16},
    )
    after = ServerReading(at_s=9.0, source="/server_info", gauges={"spec_acceptance_len": 1.0})
    before = replace(after, at_s=0.0)
    return {
        "read_once": replace(run, trials=tuple(replace(trial, after=after) for trial in run.trials)),
        "not_moved": replace(run, trials=tuple(replace(trial, before=before, after=after) for trial in run.trials)),
    }


def f09() -> Run:
    """TTFT of 2 s at 64k, far below what the device needs for that prefill."""
    return table("f09")


def f10() -> Run:
    """1k, 2k and 4k: too near together to tell a line from a parabola."""
    return table("f10")


CASES: dict[str, Callable[[], Run | dict[str, Run]]] = {
    "F01": f01,
    "F02": f02,
    "F03": f03,
    "F04": f04,
    "F05": f05,
    "F06": f06,
    "F07": f07,
    "F08": f08,
    "F09": f09,
    "F10": f10,
}
