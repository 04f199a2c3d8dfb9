import pytest
from trace_builder import repeats, steady

from deepdraft.guards import point_evidence, text_label
from deepdraft.metrics import points_of


def label(speculation, **prompt):
    run = repeats(steady(8), speculation=speculation, prompt=prompt)
    (point,) = points_of(run)
    return text_label(point_evidence(run, point))


def test_natural_text_needs_no_warning():
    one = label("yes", text_kind="code")
    assert (one.kinds, one.nature, one.warning, one.doubts) == (("code",), None, None, ())


@pytest.mark.parametrize(("mark", "nature"), [("is_repetitive", "repetitive"), ("is_random", "random")])
def test_unnatural_text_is_labelled_and_flagged_with_a_drafter(mark, nature):  # C55
    flagged = label("yes", text_kind="repeat", **{mark: True})
    assert flagged.nature == nature
    assert flagged.warning.startswith(f"{nature} text") and "is active" in flagged.warning
    assert {"tpot_s", "acceptance_len"} <= set(flagged.doubts)
    assert "may be active" in label("unknown", **{mark: True}).warning
    plain = label("no", **{mark: True})
    assert (plain.nature, plain.warning) == (nature, None)
