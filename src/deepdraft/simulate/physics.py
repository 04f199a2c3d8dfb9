"""The durations and committed lengths that follow from a `Physics`: pure functions and one seeded draw a request."""

from __future__ import annotations

import random
from dataclasses import dataclass

from deepdraft.simulate.spec import Physics


def prefill_s(physics: Physics, *, num_uncached: int, num_cached: int = 0) -> float:
    """Seconds to prefill `num_uncached` prompt tokens behind `num_cached` cached ones, without noise."""
    total = num_cached + num_uncached
    attended = float(total) * total - float(num_cached) * num_cached
    return physics.prefill_a_s + physics.prefill_b_s * num_uncached + physics.prefill_c_s * attended


def step_s(physics: Physics, *, context_len: int, num_running: int = 1) -> float:
    """Seconds of one decode or verify step, without noise."""
    slowdown = 1.0 + physics.interference * (num_running - 1)
    return (physics.step_d_s + physics.step_e_s * context_len) * slowdown


@dataclass(frozen=True, slots=True)
class Draw:
    """What one step yields: `draft_len` tokens drafted, `accepted_len` of them right, `committed_len` appended."""

    draft_len: int
    accepted_len: int
    committed_len: int


class Chance:
    """The random part of one request, seeded by the physics' seed and the request's ordinal."""

    def __init__(self, physics: Physics, ordinal: int) -> None:
        self._physics = physics
        self._random = random.Random(f"{physics.seed}:{ordinal}")
        self._lens = range(1, len(physics.committed_len_probs) + 1)
        self._num_steps = 0

    def noise(self) -> float:
        """A factor on one duration, 1.0 without noise."""
        frac = self._physics.noise_frac
        if frac == 0:
            return 1.0
        return max(0.05, 1.0 + frac * max(-3.0, min(3.0, self._random.gauss(0.0, 1.0))))

    def draw(self, num_left: int, *, accepted_past_end: bool = False) -> Draw:
        """The next step, with `num_left` >= 1 tokens still to make.

        The draft is as long as ever even when less is left, but no more is accepted than can be committed, so that
        committed_len is accepted_len + 1 always. With `accepted_past_end` only the committed length is cut.
        """
        physics = self._physics
        if physics.committed_len_pattern:
            drawn = physics.committed_len_pattern[self._num_steps % len(physics.committed_len_pattern)]
        elif len(self._lens) == 1:
            drawn = 1
        else:
            drawn = self._random.choices(self._lens, physics.committed_len_probs)[0]
        self._num_steps += 1
        committed_len = min(drawn, num_left)
        accepted_len = (drawn if accepted_past_end else committed_len) - 1
        return Draw(physics.max_committed_len - 1, accepted_len, committed_len)
