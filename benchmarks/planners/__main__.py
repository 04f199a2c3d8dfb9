"""Deepdraft's planner beside others: what one sequence's cache takes, for configs that differ in kind.

benchmarks/planners/setup.sh ~/planners                   # once; 1.1 GB
python -m benchmarks.planners --venvs ~/planners           # two minutes; prints Markdown
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.planners.case import CASES, CONTEXT_LEN
from benchmarks.planners.llamacpp import llamacpp_rows
from benchmarks.planners.planner import PLANNERS, Answer, asked, deepdrafts, version
from deepdraft.planner.size import size_text


def main() -> int:
    """Print the tables; 1 where Deepdraft itself is not on the truth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venvs", type=Path, help="the folder that setup.sh filled")
    parser.add_argument("--llamacpp", action="store_true", help="run llama.cpp here and compare memory (a minute)")
    arguments = parser.parse_args()
    is_right = True
    if arguments.venvs is not None:
        is_right = _print_planners(arguments.venvs)
    if arguments.llamacpp:
        print("\n".join(llamacpp_rows()))
    return 0 if is_right else 1


def _print_planners(venvs: Path) -> bool:
    present = [each for each in PLANNERS if (venvs / each / "bin" / "python").exists()]
    absent = [each for each in PLANNERS if each not in present]
    for each in absent:
        print(f"{each} is not installed: it is left out", file=sys.stderr)
    names = ["Deepdraft", *(f"{each} {version(each, venvs)}" for each in present)]
    print(f"| {CONTEXT_LEN:,} tokens | truth | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 2) + "|")
    refusals: list[str] = []
    is_right = True
    for case in CASES:
        answers = [deepdrafts(case)]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(case.config))
            for each in present:
                answers.append(asked(each, venvs, Path(folder)))
                if answers[-1].num_bytes is None:
                    refusals.append(f"- {each}, {case.name}: {answers[-1].refusal[:160]}")
        is_right = is_right and answers[0].num_bytes == case.num_bytes
        cells = " | ".join(_cell(answer, case.num_bytes) for answer in answers)
        print(f"| {case.name} | {size_text(case.num_bytes)} | {cells} |")
    print("\nTruth:\n")
    for case in CASES:
        print(f"- {case.name}: `{case.truth}` = {case.num_bytes:,} bytes: {case.words}")
    print("\nRefused:\n")
    print("\n".join(refusals))
    return is_right


def _cell(answer: Answer, truth_bytes: int) -> str:
    """Bold is off by more than 1 %."""
    if answer.num_bytes is None:
        return "refuses"
    ratio = answer.num_bytes / truth_bytes
    if abs(ratio - 1) <= 0.0001:
        return "exact"
    if abs(ratio - 1) <= 0.01:
        return f"{ratio - 1:+.2%}"
    return f"**{size_text(answer.num_bytes)}, {ratio:.2g}x**"


if __name__ == "__main__":
    sys.exit(main())
