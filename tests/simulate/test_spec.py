from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.errors import UsageError
from deepdraft.simulate.spec import Confounds, Fault, Physics, SimulateSpec, Surface, spec_from_json, spec_json


def test_json_round_trip() -> None:
    spec = SimulateSpec(
        dialect="sglang",
        physics=Physics(committed_len_probs=(0.2, 0.3, 0.5), kv_pool_tokens=101_134),
        confounds=Confounds(prefix_cache=True, ping_interval_s=0.5),
        faults=(Fault(kind="cut", at=(3, 7)), Fault(kind="status", every=4, status=429, retry_after_s=1)),
        surface=Surface(api_key="secret", base_path="/prefix"),
    )
    assert spec_from_json(spec_json(spec)) == spec


def test_fields_left_out_take_their_defaults() -> None:
    assert spec_from_json('{"physics": {"step_d_s": 0.02}}') == SimulateSpec(physics=Physics(step_d_s=0.02))


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"fisics": {}}, "spec.fisics"),
        ({"physics": {"step": 1}}, "spec.physics.step"),
        ({"faults": [{"kind": "cut"}, {"kind": "cut", "after": 3}]}, "spec.faults[1].after"),
    ],
)
def test_unknown_fields_are_refused_with_their_path(content: object, path: str) -> None:
    with pytest.raises(UsageError, match=path.replace("[", r"\[").replace("]", r"\]")):
        spec_from_json(json.dumps(content))


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"port": "x"}', '{"dialect": "tgi"}', '{"physics": {"step_d_s": -1}}']
)
def test_what_is_no_spec_is_refused(content: str) -> None:
    with pytest.raises(UsageError):
        spec_from_json(content)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Physics(committed_len_probs=(0.5, 0.4)),
        lambda: Physics(committed_len_probs=()),
        lambda: Physics(committed_len_pattern=(0,)),
        lambda: Physics(prefill_b_s=float("nan")),
        lambda: Physics(max_running=0),
        lambda: Confounds(coalesce_events=0),
        lambda: Confounds(eos_at=0),
        lambda: Confounds(ping_interval_s=0),
        lambda: Confounds(drift_frac=-1),
        lambda: Fault(kind="cut", every=0),
        lambda: Fault(kind="cut", at=(0,)),
        lambda: Fault(kind="cut", scope="all"),
        lambda: Fault(kind="status", status=200),
        lambda: Surface(base_path="prefix"),
        lambda: Surface(keyfile="key.pem"),
    ],
)
def test_values_that_cant_be_are_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]


@given(st.integers(1, 500), st.sets(st.integers(1, 60), max_size=5), st.none() | st.integers(1, 20))
def test_faults_strike_where_they_say(ordinal: int, at: set[int], every: int | None) -> None:
    fault = Fault(kind="cut", at=tuple(sorted(at)), every=every)
    is_named = ordinal in at
    is_nth = every is not None and ordinal % every == 0
    is_always = not at and every is None
    assert fault.strikes(ordinal) == (is_named or is_nth or is_always)


def test_derived_figures() -> None:
    assert Physics().mean_committed_len == 1
    assert not Physics().is_speculative
    speculative = Physics(committed_len_probs=(0.2, 0.3, 0.5))
    assert speculative.mean_committed_len == pytest.approx(2.3)
    assert speculative.max_committed_len == 3
    assert Physics(committed_len_pattern=(1, 4, 2, 5)).mean_committed_len == 3
    assert Physics(max_context_len=200_000, kv_pool_tokens=101_134).hard_limit_len == 101_134
