"""Measure a drafter of the embedded model: `python -m training.drafter.measure --drafter FOLDER --out FILE`.

Writes the acceptance on held-out text for each kind, context length and form of draft as JSON lines, and prints the
model card's table. Leaves out speed, which is `deepdraft compare`'s work.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from deepdraft.infer.drafter_training.evaluation import BUDGETS, EvaluatedPoint, evaluated
from deepdraft.infer.drafter_training.export import read_drafter
from deepdraft.infer.drafter_training.target import EMBEDDED, load_target
from training.drafter.recipe import EVALUATIONS, held_out_documents
from training.embedded.corpus import read_split, standard_library


def line_of(name: str, point: EvaluatedPoint) -> dict[str, Any]:
    """One point as plain values."""
    return {
        "name": name,
        "context_len": point.context_len,
        "temperature": point.temperature,
        "budget": point.budget,
        "num_outputs": point.num_outputs,
        "num_rounds": len(point.acceptance.accepted_lens),
        "acceptance_len": round(point.acceptance.acceptance_len, 4),
        "accepted_at_depth": [round(share, 4) for share in point.acceptance.accepted_at_depth],
    }


def table(lines: Iterable[dict[str, Any]]) -> str:
    """Acceptance lengths in Markdown: a row each text and context, a column each form of draft."""
    rows: dict[tuple[str, int], dict[int, float]] = {}
    for line in lines:
        rows.setdefault((line["name"], line["context_len"]), {})[line["budget"]] = line["acceptance_len"]
    heads = ["chain" if budget == 0 else f"tree {budget}" for budget in BUDGETS]
    text = [f"| held-out text | context | {' | '.join(heads)} |", f"|---|---:{'|---:' * len(heads)}|"]
    for (name, context_len), found in rows.items():
        cells = " | ".join(f"{found[budget]:.2f}" if budget in found else "" for budget in BUDGETS)
        text.append(f"| {name} | {context_len} | {cells} |")
    return "\n".join(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description="Measure a drafter's acceptance on held-out text.")
    parser.add_argument("--drafter", type=Path, required=True, help="folder of the drafter")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, a line a point")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    options = parser.parse_args(arguments)
    target, module = load_target(EMBEDDED, num_threads=options.threads), read_drafter(options.drafter)
    split = read_split(standard_library())
    lines = []
    for name, kind, settings in EVALUATIONS:
        documents = held_out_documents(split, kind, target.tokenizer)
        points = evaluated(module, target, documents, settings, lambda told: print(told, flush=True))
        lines += [line_of(name, point) for point in points]
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(table(lines))


if __name__ == "__main__":
    main()
