"""A sweep gives back the physics of the server it measured: prefill a, b, c, step d, e, and the acceptance length.

Two comparisons. With the truth log: the same least squares over what the server itself wrote, so that neither a busy
machine nor the noise that was asked for plays a part; the tolerance is the client's. With the physics as stated,
where the server kept to its schedule.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from truth_run import Beside, Swept, quiet, server_spec, sweep, sweep_spec

from deepdraft.metrics import Point
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
"""How far a TTFT of ours may be from the server's: half of what the client claims for one stream."""
COEFFICIENT_FRAC = 0.05
CURVE_FRAC = 0.03
STEP_FRAC = 0.03


@dataclass(frozen=True)
class Law:
    """Coefficients in seconds at the longest context: a, b n, c n^2; d, e n."""

    prefill: tuple[float, float, float]
    step: tuple[float, float]


STATED = Law(
    prefill=(PHYSICS.prefill_a_s, PHYSICS.prefill_b_s * LONGEST, PHYSICS.prefill_c_s * LONGEST**2),
    step=(PHYSICS.step_d_s, PHYSICS.step_e_s * LONGEST),
)


@functools.cache
def swept_once(dialect: DialectName, method: str, noise_frac: float) -> Swept:
    """One sweep for all the tests that look at it; again when the machine was too busy for a fair one."""
    physics = Physics(
        **{name: getattr(PHYSICS, name) for name in ("prefill_a_s", "prefill_b_s", "prefill_c_s")},
        step_d_s=PHYSICS.step_d_s,
        step_e_s=PHYSICS.step_e_s,
        committed_len_probs=PHYSICS.committed_len_probs,
        noise_frac=noise_frac,
    )
    simulated = server_spec(dialect, physics, template_len=7)
    num_repeats = 3 if method == "streaming" else 2
    spec = sweep_spec(*CONTEXT_LENS, method=method, decode_len=DECODE_LEN, num_repeats=num_repeats)
    return quiet(lambda: sweep(simulated, spec), _is_fair)


def _is_fair(made: Swept) -> bool:
    """Whether the machine let both sides keep their times at most requests."""
    late_s = [max(beside.server_late_s, beside.client_late_s) for beside in made.besides]
    return statistics.quantiles(late_s, n=10)[7] < 0.002


def fitted(context_lens: Sequence[float], values_s: Sequence[float], degree: int) -> tuple[float, ...]:
    """Least squares; coefficients scaled to the longest context."""
    powers = np.vander(np.array(context_lens) / LONGEST, degree + 1, increasing=True)
    return tuple(np.linalg.lstsq(powers, np.array(values_s), rcond=None)[0])


def measured_law(made: Swept) -> Law:
    """From the sweep's own figures."""
    lens = [uncached_len(made, point) for point in made.points]
    middles = [point.context_len + DECODE_LEN / 2 for point in made.points]
    prefill = fitted(lens, [figure(point, "ttft_s") for point in made.points], 2)
    step = fitted(middles, [figure(point, "step_s") for point in made.points], 1)
    return Law(prefill=prefill, step=step)  # type: ignore[arg-type]


def true_law(made: Swept) -> Law:
    """From the server's log, read as the method reads its own stamps."""
    lens = [uncached_len(made, point) for point in made.points]
    middles = [point.context_len + DECODE_LEN / 2 for point in made.points]
    prefill = fitted(lens, [true_median(made, point, true_ttft_s) for point in made.points], 2)
    step = fitted(middles, [true_median(made, point, true_step_s) for point in made.points], 1)
    return Law(prefill=prefill, step=step)  # type: ignore[arg-type]


def figure(point: Point, name: str) -> float:
    brief = point.summary(name)
    assert brief is not None, f"{name} is missing at {point.context_len}"
    return brief.median


def uncached_len(made: Swept, point: Point) -> int:
    """Actual uncached prompt tokens, which must be what was asked."""
    (length,) = {(beside.truth.prompt_len or 0) - (beside.truth.cached_len or 0) for beside in made.besides_of(point)}
    assert length == point.context_len == point.asked_context_len
    return length


def true_median(made: Swept, point: Point, value: Callable[[Sequence[Beside]], float]) -> float:
    by_trial: dict[str, list[Beside]] = {}
    for beside in made.besides_of(point):
        by_trial.setdefault(beside.measured.trial_id, []).append(beside)
    return statistics.median(value(besides) for besides in by_trial.values())


def true_ttft_s(besides: Sequence[Beside]) -> float:
    """Receipt to first write; with two points: of the first request."""
    truth = besides[0].truth
    return truth.writes[0].time_s - truth.received_s


def true_step_s(besides: Sequence[Beside]) -> float:
    """First write to last, over the steps; with two points: what the second request took longer, over its steps."""
    truth = besides[-1].truth
    began_s = truth.writes[0].time_s if len(besides) == 1 else truth.received_s + true_ttft_s(besides)
    return (truth.writes[-1].time_s - began_s) / len(truth.steps)


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
    made = swept_once(dialect, method, noise_frac)
    assert made.problem is None
    assert all(not point.refused_pairs and not point.failures for point in made.points)
    ours, true = measured_law(made), true_law(made)
    for point in made.points:
        its_ttft_s = true_median(made, point, true_ttft_s)
        assert abs(figure(point, "ttft_s") - its_ttft_s) <= CLIENT_S + 0.01 * its_ttft_s
        assert figure(point, "step_s") == pytest.approx(true_median(made, point, true_step_s), rel=STEP_FRAC, abs=1e-4)
    assert_near(ours.prefill, true.prefill, COEFFICIENT_FRAC, CLIENT_S)
    assert_near(ours.step, true.step, COEFFICIENT_FRAC, 1e-4)


@pytest.mark.parametrize("method", ["streaming", "two-point"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_noise_it_is_the_law_that_was_stated(dialect, method):
    made = swept_once(dialect, method, 0.0)
    ours = measured_law(made)
    slipped = [true - stated for true, stated in zip(true_law(made).prefill, STATED.prefill, strict=True)]
    expected = [stated + slip for stated, slip in zip(STATED.prefill, slipped, strict=True)]
    assert_near(ours.prefill, expected, COEFFICIENT_FRAC, CLIENT_S)
    assert_near(ours.step, STATED.step, COEFFICIENT_FRAC, 1e-4)


@every_sweep
def test_the_acceptance_length_is_found(dialect, method, noise_frac):
    made = swept_once(dialect, method, noise_frac)
    samples = {id(sample.request): sample for point in made.points for sample in point.samples}
    num_tokens = num_steps = 0.0
    for beside in made.besides:
        sample = samples.get(id(beside.measured))
        if sample is None:  # the first of a pair
            continue
        steps = beside.truth.steps
        per_step = sum(step.committed_len for step in steps) / len(steps)
        if dialect == "openai":  # tells nothing: bursts of arrivals must do
            assert "acceptance_len" not in sample.figures
        else:
            assert sample.figures["acceptance_len"] == pytest.approx(per_step, rel=1e-6)
            assert sample.figures["tokens_per_step"] == pytest.approx(per_step, rel=1e-6)
        num_tokens += (beside.truth.output_len or 0) - 1
        num_steps += ((beside.truth.output_len or 0) - 1) / sample.figures["tokens_per_step"]
    # The last step of a request is cut short by its limit, which takes about 2 % off.
    assert num_tokens / num_steps == pytest.approx(PHYSICS.mean_committed_len, rel=0.06)
