"""Every ready pattern and fault can be asked for, and does what its name says as far as one request tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deepdraft.simulate.patterns import FAULTS, PATTERNS
from deepdraft.simulate.truth import tpot_s

# A needle of the physics all patterns share: 5 ms a token.
TPOT_S = 0.005


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(serve: Any, name: str) -> None:
    spec = PATTERNS[name]
    served = serve(spec)
    answered = served.chat(" a" * 100, max_tokens=33, ignore_eos=True)
    (truth,) = served.truths()
    assert answered.status == 200 and answered.is_complete and truth.fault is None
    assert truth.writes
    if spec.confounds.output_cap or spec.confounds.eos_at:
        assert truth.output_len == 20
    else:
        assert truth.output_len == 33
    if truth.writes[0].num_tokens < truth.writes[-1].num_tokens:
        slowdown = spec.confounds.background_slowdown if spec.confounds.background_requests else 1.0
        if name != "mixed_events":  # its steps end unevenly
            assert tpot_s(truth) == pytest.approx(TPOT_S * slowdown, rel=0.25)


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"no_answer", "stalled_stream"}))
def test_every_third_request_fails(serve: Any, name: str) -> None:
    spec = FAULTS[name]
    quick = replace(spec, physics=replace(spec.physics, prefill_a_s=0.005, step_d_s=0.001))
    served = serve(quick)
    answers = [served.chat(max_tokens=32) for _ in range(3)]
    is_good = [
        answered.status == 200 and answered.is_complete and answered.finish_reasons == ["length"]
        for answered in answers
        if "text/event-stream" in answered.headers.get("content-type", "")
    ]
    assert is_good[:2] == [True, True] and is_good[2:] in ([], [False])
    assert [bool(truth.fault) for truth in served.truths()] == [False, False, True]
