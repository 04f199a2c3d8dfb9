"""How far rounds that were expected to pay fell short of that.

Who picks what looks best picks what was overrated: noise in a cost or an acceptance makes a round look as if it paid.
Medians moreover leave out the slow tail of a wide pass. So what such rounds took and gave in sum is held against what
was expected of them; by as much as they fell short, the next has to look better. A request leans on what rounds of
its context fell short by, which is where it begins; its own first rounds say nothing to others, for what they fall
short by is what was not known of it yet.
"""

from __future__ import annotations

NUM_FIRST_ROUNDS = 8
_MEMORY_FRAC = 0.98
"""What each round leaves of those before it: about fifty count."""
_TRUST_ROUNDS = 40.0
"""Rounds that weigh as much as what others say, or as the assumption that expectations are right."""
_FORGIVING_FRAC = 0.998
"""What each step without such rounds leaves: what was overrated once may be no more."""


class Optimism:
    """Of the requests of an engine."""

    def __init__(self) -> None:
        self._requests: dict[str, _Shortfall] = {}
        self._contexts: dict[int, _Shortfall] = {}

    @property
    def num_requests(self) -> int:
        """Requests that anything is remembered of."""
        return len(self._requests)

    def margin_frac(self, request_id: str, context_len: int) -> float:
        """0, or the share by which expectations of the request's rounds were too high."""
        context, own = self._contexts.get(context_len.bit_length()), self._requests.get(request_id)
        found = context.leaning_on(0.0) if context else 0.0
        return own.leaning_on(found) if own else found

    def observe(self, request_id: str, context_len: int, *, tokens_frac: float, seconds_frac: float) -> None:
        """A round that was to pay: its tokens and its step's seconds over the expected ones."""
        own = self._requests.setdefault(request_id, _Shortfall())
        own.observe(tokens_frac, seconds_frac)
        if own.num_rounds > NUM_FIRST_ROUNDS:
            self._contexts.setdefault(context_len.bit_length(), _Shortfall()).observe(tokens_frac, seconds_frac)

    def forgive(self, request_id: str, context_len: int) -> None:
        """A step of the request without one."""
        for known in (self._requests.get(request_id), self._contexts.get(context_len.bit_length())):
            if known is not None:
                known.forgive()

    def forget(self, request_id: str) -> None:
        """The request ended; what its context's rounds fell short by stays."""
        self._requests.pop(request_id, None)


class _Shortfall:
    """Decayed sums, relative to what was expected of each round."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0
        self.num_rounds = 0

    def leaning_on(self, others_frac: float) -> float:
        tokens, seconds = self._tokens + _TRUST_ROUNDS, self._seconds + _TRUST_ROUNDS * (1 + others_frac)
        return max(0.0, seconds / tokens - 1)

    def observe(self, tokens_frac: float, seconds_frac: float) -> None:
        self._tokens = _MEMORY_FRAC * self._tokens + tokens_frac
        self._seconds = _MEMORY_FRAC * self._seconds + seconds_frac
        self.num_rounds += 1

    def forgive(self) -> None:
        self._tokens *= _FORGIVING_FRAC
        self._seconds *= _FORGIVING_FRAC
