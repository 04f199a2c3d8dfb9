import re
from pathlib import Path

from deepdraft.metrics import FIGURE_KINDS, FIGURE_NAMES
from deepdraft.metrics.figure import PERCENTILE_FIGURES, TRIAL_FIGURES

FIGURES_PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "figures.md"


def test_names_are_unique_and_end_in_their_unit():
    assert len(set(FIGURE_NAMES)) == len(FIGURE_NAMES)
    for kind in FIGURE_KINDS:
        if kind.unit in ("s", "s/token"):
            assert kind.name.endswith("_s") and not kind.name.endswith("_tok_s")
        if kind.unit == "tok/s":
            assert kind.name.endswith("_tok_s")


def test_subsets_are_subsets():
    assert set(PERCENTILE_FIGURES) <= set(FIGURE_NAMES)
    assert set(FIGURE_NAMES) >= TRIAL_FIGURES


def test_the_page_of_definitions_defines_every_figure():
    defined = set(re.findall(r"^\| `(\w+)` \|", FIGURES_PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(FIGURE_NAMES) <= defined
