"""Draft trees from logits: ours beside the published builder, a plain heap and torch.topk alone.

    benchmarks/tree/setup.sh ~/ddtree
    python -m benchmarks.tree --ddtree ~/ddtree [--budget 16,32,64,128,256,512] [--size kimi embedded] [--repeats 5]

The cases of `deepdraft bench tree`, and one more: the tree with its mask and its children by token, which is what the
published builder returns. Without --ddtree that one is left out. Everything takes turns; a figure is the median over
the repeats, a ratio that of one repeat's own. Prints Markdown and whether the aim for building is met.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import torch

from benchmarks.peers.machine import machine
from deepdraft.errors import DeepdraftError
from deepdraft.infer.components.tree import SIZES, TreeSettings, tree_cases
from deepdraft.infer.components.turns import DEFAULT_CELL_S, Timing, Watch
from deepdraft.metrics.component import peer_ratios, seconds_of, shares_frac
from deepdraft.records.component import ComponentCase
from deepdraft.units import token_counts

from .published import published_builder

AIM_BUDGET, AIM_S = 64, 0.3e-3
HEAD = ("logits", "budget", "nodes", "all ms", "of reading", "topk / all", "plain / all", "build ms", "plain / build")


def main() -> int:
    """Print the table. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tree", description="Draft trees beside their peers.")
    parser.add_argument("--ddtree", type=Path, help="the folder that setup.sh filled")
    parser.add_argument("--budget", default="16,32,64,128,256,512")
    parser.add_argument("--size", nargs="+", choices=sorted(SIZES), default=["kimi", "embedded"])
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    try:
        builder = None if asked.ddtree is None else published_builder(asked.ddtree)
        settings = TreeSettings(
            sizes=tuple(asked.size),
            budgets=token_counts(asked.budget),
            timing=Timing(num_repeats=asked.repeats, cell_s=DEFAULT_CELL_S),
        )
        cases = list(tree_cases(settings, Watch(report=_say), published=builder))
    except DeepdraftError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
    print(f"{machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    for line in (*table(cases), "", *aim(cases)):
        print(line)
    return 0


def table(cases: Sequence[ComponentCase]) -> Iterator[str]:
    """A row for each size and budget."""
    has_published = any("published" in peer_ratios(case) for case in cases)
    yield _row(*HEAD, *(("with mask ms", "published / that") if has_published else ()))
    yield _row("---", *("--:" for _ in range(len(HEAD) - 1 + 2 * has_published)))
    by_row: dict[tuple[int, int, int], dict[str, ComponentCase]] = {}
    for case in cases:
        facts = case.facts
        key = facts["draft_len"], facts["vocab_size"], facts["tree_budget"]
        by_row.setdefault(key, {})[case.name.rsplit(", ", 1)[1]] = case
    for (draft_len, vocab_size, budget), found in by_row.items():
        whole, build = found["whole"], found["build"]
        cells = [f"{draft_len} x {vocab_size:,}", str(budget), str(whole.facts["num_nodes"]), _ms(whole)]
        cells += [f"{median(shares_frac(whole)):.3f}", _ratio(whole, "topk alone"), _ratio(whole, "plain")]
        cells += [_ms(build), _ratio(build, "plain")]
        masked = found.get("with mask")
        yield _row(*cells, *([] if masked is None else [_ms(masked), _ratio(masked, "published")]))


def aim(cases: Sequence[ComponentCase]) -> Iterator[str]:
    """Whether building at the aim's budget is fast enough, a line for each size."""
    for case in cases:
        if case.name.endswith(", build") and case.facts["tree_budget"] == AIM_BUDGET:
            found = seconds_of(case).median
            verdict = "met" if found <= AIM_S else "missed"
            yield f"- {case.name} without top-k: {found * 1e3:.3f} ms, aim {AIM_S * 1e3:g} ms: {verdict}."


def _ms(case: ComponentCase) -> str:
    found = seconds_of(case)
    return f"{found.median * 1e3:.3g} ({found.low * 1e3:.3g}-{found.high * 1e3:.3g})"


def _ratio(case: ComponentCase, peer: str) -> str:
    ratios = peer_ratios(case)[peer]
    return f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
