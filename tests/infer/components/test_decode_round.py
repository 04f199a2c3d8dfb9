"""Rounds of the embedded model: three modes of one prompt, the plain step as peer, the prefix from the cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import pytest

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.components.decode_round import RoundSettings, round_cases
from deepdraft.infer.components.round_floor import plain_bytes
from deepdraft.infer.components.turns import Timing, Watch
from deepdraft.metrics.component import parts_s, per_round, seconds_of
from deepdraft.records.component import ComponentCase

TEXT = "def depth(water):\n    return water.depth\n\n"


def cases_of(settings: RoundSettings, watch: Watch | None = None) -> Iterator[ComponentCase]:
    return round_cases(settings, repeat(TEXT), watch or Watch())


def test_three_modes_of_one_prompt(brief: Timing) -> None:
    told: list[str] = []
    settings = RoundSettings(context_lens=(96,), decode_len=12, tree_budget=8, timing=brief)
    plain, chain, tree = cases_of(settings, Watch(report=told.append))
    assert [case.name for case in (plain, chain, tree)] == ["96, plain", "96, chain", "96, tree"]
    assert told == ["96: prefix, plain", "96: prefix, chain", "96: prefix, tree", "96: rounds"]
    assert per_round(plain, "tokens") == 1.0
    assert per_round(plain, "rows") == 1.0
    for drafted in (chain, tree):
        rows = per_round(drafted, "rows")
        assert rows is not None and 2 <= rows <= 9
        assert all(set(found.peers_s) == {"plain"} for found in drafted.repeats)
        assert drafted.work["copy"] > plain.work["copy"]
        assert drafted.note is None  # the tokens are plain decoding's
        parts = parts_s(drafted)
        assert set(parts) == {"draft", "build", "verify", "compact", "other"}
        assert max(part.median for part in parts.values()) < seconds_of(drafted).high


def test_plain_runs_in_any_case(brief: Timing) -> None:
    settings = RoundSettings(context_lens=(64,), modes=("chain",), decode_len=8, timing=brief)
    assert [case.name for case in cases_of(settings)] == ["64, plain", "64, chain"]


def test_the_floor_grows_by_the_bytes_of_a_token() -> None:
    folder = embedded_model_path()
    assert plain_bytes(folder, 1000) - plain_bytes(folder, 0) == 1000 * 6 * 80 * 4
    assert 5e6 < plain_bytes(folder, 0) < 25e6  # 6.4 million parameters, of whose experts a token reads an eighth


def test_a_stop_ends_the_request_under_way(brief: Timing) -> None:
    told: list[str] = []
    settings = RoundSettings(context_lens=(64,), decode_len=8, timing=brief)
    watch = Watch(report=told.append, is_asked_to_stop=lambda: len(told) >= 2)
    assert list(cases_of(settings, watch)) == []
    assert told == ["64: prefix, plain", "64: prefix, chain"]


def test_what_can_not_be_is_refused(brief: Timing) -> None:
    with pytest.raises(UsageError, match="no round"):
        RoundSettings(decode_len=1, timing=brief)
    with pytest.raises(UsageError, match="the model is made for"):
        cases_of(RoundSettings(context_lens=(10_000_000,), timing=brief))
    with pytest.raises(UsageError, match="96 are wanted"):
        round_cases(RoundSettings(context_lens=(96,), timing=brief), ["too short"], Watch())
