"""A sweep gives back the physics of the server it measured: prefill a, b, c, step d, e, and the acceptance length.

Twice: against the truth log (least squares over what the server itself wrote, so that the noise that was asked for
plays no part), and without noise against the physics as stated. Requests in which the machine of the test was late
take no part in the fits. So that this hides no fault of ours, the median error over all requests is held as well.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from truth_run import Beside, Swept, quiet, server_spec, sweep, sweep_spec

from deepdraft.metrics import Point, Sample
from deepdraft.metrics.speculation import STEP_FROM_TOKENS
from deepdraft.simulate.spec import DialectName, Physics

DIALECTS: tuple[DialectName, ...] = ("sglang", "vllm", "llamacpp", "openai")
CONTEXT_LENS = (256, 1024, 2048, 4096, 6144, 8192)
LONGEST = CONTEXT_LENS[-1]
DECODE_LEN = 48
PHYSICS = Physics(
    prefill_a_s=0.03,
    prefill_b_s=0.04 / LONGEST,
    prefill_c_s=0.05 / LONGEST**2,
    step_d_s=0.003,
    step_e_s=0.002 / LONGEST,
    committed_len_probs=(0.2, 0.3, 0.5),
)
"""At the longest context: 30 ms + 40 ms + 50 ms of prefill, 3 ms + 2 ms a step, 2.3 tokens a step."""

CLIENT_S = 0.0015
"""How far the median TTFT of ours may be from the server's: half of what the client claims for one stream."""
CALM_S = 0.0015
"""Half a step: what is less late than this was undisturbed."""
PREFILL_FRAC = 0.05
STEP_FRAC = 0.03
STEP_FLOOR_S = 5e-5
ACCEPTANCE_FRAC = 0.06

STATED_PREFILL = (PHYSICS.prefill_a_s, PHYSICS.prefill_b_s * LONGEST, PHYSICS.prefill_c_s * LONGEST**2)
STATED_STEP = (PHYSICS.step_d_s, PHYSICS.step_e_s * LONGEST)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One sample beside the truth: of one request, or of the two of a pair."""

    sample: Sample
    uncached_len: int
    besides: tuple[Beside, ...]

    @property
    def is_ttft_calm(self) -> bool:
        return self.besides[0].first_late_s < CALM_S

    @property
    def is_step_calm(self) -> bool:
        """Whether the span was undisturbed; where bursts of arrivals must tell the steps, everything in it."""
        last = self.besides[-1]
        if len(self.besides) > 1 and not (self.is_ttft_calm and last.first_late_s < CALM_S):
            return False
        is_told = self.sample.sources["step_s"] == STEP_FROM_TOKENS
        return last.span_late_s < CALM_S and (is_told or last.late_s < CALM_S)

    @property
    def true_ttft_s(self) -> float:
        """Receipt to first write; of a pair, of its first request."""
        truth = self.besides[0].truth
        return truth.writes[0].time_s - truth.received_s

    @property
    def true_step_s(self) -> float:
        """First write to last write / steps; of a pair: what the second request took longer / its steps."""
        truth = self.besides[-1].truth
        began_s = truth.writes[0].time_s if len(self.besides) == 1 else truth.received_s + self.true_ttft_s
        return (truth.writes[-1].time_s - began_s) / len(truth.steps)

    @property
    def ttft_error_s(self) -> float:
        return self.sample.figures["ttft_s"] - self.true_ttft_s

    @property
    def step_error_frac(self) -> float:
        return self.sample.figures["step_s"] / self.true_step_s - 1

    @property
    def true_tokens_per_step(self) -> float:
        steps = self.besides[-1].truth.steps
        return sum(step.committed_len for step in steps) / len(steps)

    @property
    def middle_len(self) -> float:
        """The context length of the middle step."""
        steps = self.besides[-1].truth.steps
        return sum(step.context_len for step in steps) / len(steps)


@functools.cache
def samples_of(dialect: DialectName, method: str, noise_frac: float) -> tuple[Timed, ...]:
    """One sweep for all the tests that look at it; again when the machine disturbed every repeat of some point."""
    simulated = server_spec(dialect, replace(PHYSICS, noise_frac=noise_frac), template_len=7)
    spec = sweep_spec(
        *(CONTEXT_LENS if not noise_frac else CONTEXT_LENS[::2] + CONTEXT_LENS[-1:]),
        method=method,
        decode_len=DECODE_LEN,
        num_repeats=3,
    )
    made = quiet(lambda: sweep(simulated, spec), _is_calm_everywhere)
    assert made.problem is None
    assert all(point.num_failed == 0 and not point.refused_pairs for point in made.points)
    return tuple(one for point in made.points for one in timed(made, point))


def _is_calm_everywhere(made: Swept) -> bool:
    samples = [timed(made, point) for point in made.points]
    return all(any(one.is_ttft_calm for one in each) and any(one.is_step_calm for one in each) for each in samples)


def timed(made: Swept, point: Point) -> list[Timed]:
    """The samples of a point beside the truth."""
    besides = made.besides_of(point)
    found = []
    for sample in point.samples:
        own = tuple(beside for beside in besides if beside.measured.trial_id == sample.trial_id)
        (uncached_len,) = {(beside.truth.prompt_len or 0) - (beside.truth.cached_len or 0) for beside in own}
        assert uncached_len == point.context_len == point.asked_context_len
        found.append(Timed(sample=sample, uncached_len=uncached_len, besides=own))
    return found


def fitted(lens: Sequence[float], values_s: Sequence[float], degree: int) -> tuple[float, ...]:
    """Least squares; seconds at the longest context, one a power of the length."""
    powers = np.vander(np.array(lens) / LONGEST, degree + 1, increasing=True)
    return tuple(float(value) for value in np.linalg.lstsq(powers, np.array(values_s), rcond=None)[0])


def prefill_law(samples: Sequence[Timed], values_s: Sequence[float]) -> tuple[float, ...]:
    return fitted([one.uncached_len for one in samples], values_s, 2)


def step_law(samples: Sequence[Timed], values_s: Sequence[float]) -> tuple[float, ...]:
    return fitted([one.middle_len for one in samples], values_s, 1)


def assert_near(ours: Sequence[float], true: Sequence[float], frac: float, floor_s: float) -> None:
    for name, mine, its in zip("abc" if len(true) == 3 else "de", ours, true, strict=True):
        assert abs(mine - its) <= frac * its + floor_s, f"{name}: {mine * 1e3:.3f} ms, true {its * 1e3:.3f} ms"


every_sweep = pytest.mark.parametrize(
    ("dialect", "method", "noise_frac"),
    [
        pytest.param(dialect, method, noise_frac, id=f"{dialect}-{method}-noise{noise_frac:g}")
        for method in ("streaming", "two-point")
        for noise_frac in (0.0, 0.02)
        for dialect in DIALECTS
    ],
)


@every_sweep
def test_the_law_of_the_server_is_found(dialect, method, noise_frac):
    samples = samples_of(dialect, method, noise_frac)
    calm = [one for one in samples if one.is_ttft_calm]
    ours = prefill_law(calm, [one.sample.figures["ttft_s"] for one in calm])
    assert_near(ours, prefill_law(calm, [one.true_ttft_s for one in calm]), PREFILL_FRAC, CLIENT_S)
    calm = [one for one in samples if one.is_step_calm]
    ours = step_law(calm, [one.sample.figures["step_s"] for one in calm])
    assert_near(ours, step_law(calm, [one.true_step_s for one in calm]), STEP_FRAC, STEP_FLOOR_S)


@every_sweep
def test_over_all_requests_the_client_is_right(dialect, method, noise_frac):
    samples = samples_of(dialect, method, noise_frac)
    assert abs(statistics.median(one.ttft_error_s for one in samples)) <= CLIENT_S
    assert abs(statistics.median(one.step_error_frac for one in samples)) <= STEP_FRAC


@pytest.mark.parametrize("method", ["streaming", "two-point"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_noise_it_is_the_law_that_was_stated(dialect, method):
    samples = samples_of(dialect, method, 0.0)
    calm = [one for one in samples if one.is_ttft_calm]
    assert_near(
        prefill_law(calm, [one.sample.figures["ttft_s"] for one in calm]), STATED_PREFILL, PREFILL_FRAC, CLIENT_S
    )
    calm = [one for one in samples if one.is_step_calm]
    assert_near(step_law(calm, [one.sample.figures["step_s"] for one in calm]), STATED_STEP, STEP_FRAC, STEP_FLOOR_S)


@every_sweep
def test_the_acceptance_length_is_found(dialect, method, noise_frac):
    samples = [one for one in samples_of(dialect, method, noise_frac) if one.is_step_calm]
    for one in samples:
        figures = one.sample.figures
        if dialect == "openai":  # it tells nothing: bursts of arrivals and the length of texts must do
            assert "acceptance_len" not in figures
            assert figures["tokens_per_step"] == pytest.approx(one.true_tokens_per_step, rel=0.12)
        else:
            assert figures["acceptance_len"] == pytest.approx(one.true_tokens_per_step, rel=1e-6)
            assert figures["tokens_per_step"] == pytest.approx(one.true_tokens_per_step, rel=1e-6)
    ours = statistics.harmonic_mean([one.sample.figures["tokens_per_step"] for one in samples])
    # The chance in so few steps, and the last step of a request, which its limit cuts short, are in the tolerance.
    assert ours == pytest.approx(PHYSICS.mean_committed_len, rel=ACCEPTANCE_FRAC)
