"""Servers that keep to a stated law, swept once for all tests that look at them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from truth_run import Beside, Swept, quiet, server_spec, sweep, sweep_spec

from deepdraft.metrics import Point, Sample
from deepdraft.metrics.speculation import STEP_FROM_TOKENS
from deepdraft.simulate.spec import DialectName, Physics

DIALECTS: tuple[DialectName, ...] = ("sglang", "vllm", "llamacpp", "openai")
METHODS = ("streaming", "two-point")
NOISES = (0.0, 0.02)
CONTEXT_LENS = (256, 2048, 4096, 6144, 8192)
NOISY_LENS = (256, 2048, 5120, 8192)
LONGEST = CONTEXT_LENS[-1]
DECODE_LEN = 40
PHYSICS = Physics(
    prefill_a_s=0.025,
    prefill_b_s=0.03 / LONGEST,
    prefill_c_s=0.04 / LONGEST**2,
    step_d_s=0.003,
    step_e_s=0.002 / LONGEST,
    committed_len_probs=(0.2, 0.3, 0.5),
)
"""At the longest context: 25 ms + 30 ms + 40 ms of prefill, 3 ms + 2 ms a step, 2.3 tokens a step."""

CALM_S = 0.0015
"""Half a step: what is less late than this was undisturbed. On a quiet machine it is about 0.7 ms."""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One sample beside the truth: of one request, or of the two of a pair."""

    sample: Sample
    uncached_len: int
    besides: tuple[Beside, ...]

    @property
    def ttft_late_s(self) -> float:
        return self.besides[0].first_late_s

    @property
    def step_late_s(self) -> float:
        """How far the span that is divided into steps is off."""
        last = self.besides[-1]
        if len(self.besides) > 1 and self.is_step_told:
            return self.ttft_late_s + last.first_late_s + last.span_late_s
        return last.span_late_s

    @property
    def is_ttft_calm(self) -> bool:
        return self.ttft_late_s < CALM_S

    @property
    def is_step_calm(self) -> bool:
        """Whether the span was undisturbed; where bursts of arrivals must tell the steps, everything in it: they run
        together when one is late by three quarters of a step."""
        is_even = self.is_step_told or self.besides[-1].late_s < 0.5 * self.true_step_s
        return is_even and self.step_late_s < CALM_S * len(self.besides)

    @property
    def is_step_told(self) -> bool:
        """Whether the server tells its steps; else bursts of arrivals do."""
        return self.sample.sources["step_s"] == STEP_FROM_TOKENS

    @property
    def true_ttft_s(self) -> float:
        """Receipt to first write; of a pair, of its first request."""
        truth = self.besides[0].truth
        return truth.writes[0].time_s - truth.received_s

    @property
    def true_step_s(self) -> float:
        """First write to last write / steps; of a pair, what the second request took longer / its steps."""
        truth = self.besides[-1].truth
        is_pair = len(self.besides) > 1 and self.is_step_told  # bursts are those of one request
        began_s = truth.received_s + self.true_ttft_s if is_pair else truth.writes[0].time_s
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
def lawful(dialect: DialectName, method: str, noise_frac: float) -> Swept:
    """A sweep of a server with a drafter; again when the machine disturbed all repeats of too many points."""
    simulated = server_spec(dialect, replace(PHYSICS, noise_frac=noise_frac), template_len=7)
    spec = sweep_spec(
        *(NOISY_LENS if noise_frac else CONTEXT_LENS),
        method=method,
        decode_len=DECODE_LEN,
        num_repeats=3 if method == "streaming" and not noise_frac else 2,
    )
    return quiet(lambda: sweep(simulated, spec), _is_calm_enough)


def _is_calm_enough(made: Swept) -> bool:
    """Whether enough is left for a parabola and a line: nearly all TTFTs with both ends, and steps far apart."""
    ttft_lens = {one.uncached_len for one in calmest_ttfts(made)}
    step_lens = {one.uncached_len for one in calmest_steps(made)}
    has_ends = {CONTEXT_LENS[0], LONGEST} <= ttft_lens
    is_wide = bool(step_lens) and max(step_lens) - min(step_lens) >= LONGEST / 2
    return len(ttft_lens) >= len(made.points) - 1 and has_ends and is_wide


def calmest_ttfts(made: Swept) -> list[Timed]:
    """Of each point the sample whose TTFT the machine disturbed least, where it is calm."""
    least = [min(timed(made, point), key=lambda one: one.ttft_late_s) for point in made.points]
    return [one for one in least if one.is_ttft_calm]


def calmest_steps(made: Swept) -> list[Timed]:
    """Of each point the sample whose steps the machine disturbed least, where they are calm."""
    calm = [[one for one in timed(made, point) if one.is_step_calm] for point in made.points]
    return [min(each, key=lambda one: one.step_late_s) for each in calm if each]


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
