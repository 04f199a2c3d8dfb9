"""A sweep gives back the physics of the server it measured: prefill a, b, c, step d, e, and the acceptance length.

Twice: against the truth log (least squares over what the server itself wrote, so that the noise that was asked for
plays no part), and without noise against the physics as stated. Each fit takes the repeat of every point in which the
machine of the test was least late. So that this hides no fault of ours, the median error over all requests is held as
well.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from lawful import (
    DIALECTS,
    LONGEST,
    METHODS,
    NOISES,
    PHYSICS,
    Timed,
    calmest_steps,
    calmest_ttfts,
    lawful,
    timed,
)

from deepdraft.simulate.spec import DialectName

pytestmark = pytest.mark.alone

CLIENT_S = 0.0015
"""How far the median TTFT of ours may be from the server's: half of what the client claims for one stream."""
PREFILL_FRAC = 0.05
STEP_FRAC = 0.03
STEP_FLOOR_S = {"streaming": 5e-5, "two-point": 1.5e-4}
"""The two-point method divides the errors of two requests by the steps of one, about 17."""
CUT_SHORT_FRAC = 0.02

STATED_PREFILL = (PHYSICS.prefill_a_s, PHYSICS.prefill_b_s * LONGEST, PHYSICS.prefill_c_s * LONGEST**2)
STATED_STEP = (PHYSICS.step_d_s, PHYSICS.step_e_s * LONGEST)


def samples_of(dialect: DialectName, method: str, noise_frac: float) -> list[Timed]:
    """All samples of the sweep, which must be whole."""
    made = lawful(dialect, method, noise_frac)
    assert made.problem is None
    assert all(point.num_failed == 0 and not point.refused_pairs for point in made.points)
    return [one for point in made.points for one in timed(made, point)]


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
        for method in METHODS
        for noise_frac in NOISES
        for dialect in DIALECTS
    ],
)


@every_sweep
def test_the_law_of_the_server_is_found(dialect, method, noise_frac):
    made = lawful(dialect, method, noise_frac)
    calm = calmest_ttfts(made)
    ours = prefill_law(calm, [one.sample.figures["ttft_s"] for one in calm])
    assert_near(ours, prefill_law(calm, [one.true_ttft_s for one in calm]), PREFILL_FRAC, CLIENT_S)
    calm = calmest_steps(made)
    ours = step_law(calm, [one.sample.figures["step_s"] for one in calm])
    assert_near(ours, step_law(calm, [one.true_step_s for one in calm]), STEP_FRAC, STEP_FLOOR_S[method])


@every_sweep
def test_over_all_requests_the_client_is_right(dialect, method, noise_frac):
    samples = samples_of(dialect, method, noise_frac)
    assert abs(statistics.median(one.ttft_error_s for one in samples)) <= CLIENT_S
    steps = [one for one in samples if one.is_step_told or one.is_step_calm]
    assert abs(statistics.median(one.step_error_frac for one in steps)) <= STEP_FRAC


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_noise_it_is_the_law_that_was_stated(dialect, method):
    made = lawful(dialect, method, 0.0)
    calm = calmest_ttfts(made)
    ours = prefill_law(calm, [one.sample.figures["ttft_s"] for one in calm])
    assert_near(ours, STATED_PREFILL, PREFILL_FRAC, CLIENT_S)
    calm = calmest_steps(made)
    ours = step_law(calm, [one.sample.figures["step_s"] for one in calm])
    assert_near(ours, STATED_STEP, STEP_FRAC, STEP_FLOOR_S[method])


@every_sweep
def test_the_acceptance_length_is_found(dialect, method, noise_frac):
    samples = samples_of(dialect, method, noise_frac)
    if dialect == "openai":  # it tells nothing: bursts of arrivals and the length of texts must do
        samples = [one for one in samples if one.is_step_calm]
        assert not any("acceptance_len" in one.sample.figures for one in samples)
    frac = 1e-6 if dialect != "openai" else 0.12
    for one in samples:
        assert one.sample.figures["tokens_per_step"] == pytest.approx(one.true_tokens_per_step, rel=frac)
        if dialect != "openai":
            assert one.sample.figures["acceptance_len"] == pytest.approx(one.true_tokens_per_step, rel=frac)
    # By the distribution: within what so few draws allow, and what the limit takes off the last step of a request.
    probs, mean = PHYSICS.committed_len_probs, PHYSICS.mean_committed_len
    deviation = sum(prob * (length - mean) ** 2 for length, prob in enumerate(probs, start=1)) ** 0.5
    num_steps = sum(len(one.besides[-1].truth.steps) for one in samples)
    ours = statistics.harmonic_mean([one.sample.figures["tokens_per_step"] for one in samples])
    assert abs(ours - mean) <= 3 * deviation / num_steps**0.5 + CUT_SHORT_FRAC * mean
