"""Acceptance of a drafter, as counted without an engine, as runs of reported points: `show`, `report` and `explain`
read them. A run is one form of draft, chain or tree of a budget; its points are context lengths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deepdraft.importers.imported import Imported, run_of
from deepdraft.records import Acceptance, Reported, ReportedFigure, Run
from deepdraft.version import VERSION

if TYPE_CHECKING:
    from deepdraft.infer.drafter_training.evaluation import EvaluatedPoint

TOOL = "deepdraft train-drafter"
_UNKNOWNS = ("speed: drafts were compared with known outputs, no engine ran them",)


def acceptance_runs(
    points: Sequence[EvaluatedPoint], *, target_name: str, folder: Path, command_line: tuple[str, ...]
) -> dict[str, Run]:
    """The run of each form of draft, by a name for its file; the drafter's folder is named without its path."""
    budgets = sorted({point.budget for point in points})
    return {
        f"tree_{budget}" if budget else "chain": _run(
            [point for point in points if point.budget == budget], target_name, folder, command_line
        )
        for budget in budgets
    }


def _run(points: Sequence[EvaluatedPoint], target_name: str, folder: Path, command_line: tuple[str, ...]) -> Run:
    budget, draft_len = points[0].budget, points[0].acceptance.draft_len
    imported = Imported(
        tool=TOOL,
        version=VERSION,
        lines=tuple(_line(point) for point in points),
        engine="deepdraft",
        engine_version=VERSION,
        model=target_name,
        speculation="yes",
        speculation_method=f"dflash {_form(points[0])}",
        settings={"drafter": folder.name, "tree_budget": budget or draft_len, "is_chain": budget == 0},
        text="evaluation text",
        unknowns=_UNKNOWNS,
    )
    return run_of(imported, path=folder.name, sha256=None, command_line=command_line)


def _line(point: EvaluatedPoint) -> Reported:
    found = point.acceptance
    num_rounds = len(found.accepted_lens)
    depths = range(1, found.draft_len + 1)
    histogram = tuple(sum(n == depth for n in found.accepted_lens) for depth in range(found.draft_len + 1))
    return Reported(
        context_len=point.context_len,
        decode_len=round(point.num_output_tokens / point.num_outputs),
        figures={"acceptance_len": ReportedFigure(values=(found.acceptance_len,), num_samples=num_rounds)},
        acceptance=Acceptance(
            source="drafts compared with what the target wrote",
            num_steps=num_rounds,
            num_draft_tokens=num_rounds * (point.budget or found.draft_len),
            num_accepted_tokens=sum(found.accepted_lens),
            accepted_at_depth=tuple(sum(n >= depth for n in found.accepted_lens) for depth in depths),
            accepted_len_histogram=histogram,
        ),
        workload=_form(point),
        is_cold=True,
        remarks=(f"{point.num_outputs} outputs at temperature {point.temperature:g}, {num_rounds} rounds",),
    )


def _form(point: EvaluatedPoint) -> str:
    """As the server names what it verifies: a tree's nodes are no depth, so `explain` must know one from a chain."""
    return f"chain of {point.acceptance.draft_len}" if point.budget == 0 else f"tree of {point.budget}"
