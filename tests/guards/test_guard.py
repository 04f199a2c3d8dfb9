import pytest

from deepdraft.guards.guard import range_text, share_text, worst_of


def test_the_worst_part_decides():
    assert worst_of(["verified", "not_verifiable"]) == "not_verifiable"
    assert worst_of(["verified", "violated", "not_verifiable"]) == "violated"
    with pytest.raises(ValueError):
        worst_of([])


def test_words():
    assert [share_text(part, 1000) for part in (0, 4, 960)] == ["0 %", "0.4 %", "96 %"]
    assert share_text(1, 0) == "0 %"
    assert range_text([20, 20]) == "20"
    assert range_text([1200, 20]) == "20 to 1,200"
