"""What may be lost by finding out: a small share of decoding time, saved up by each request for itself.

A probe costs what its step takes longer than the best that is known, per token. Each request saves `PROBE_COST_FRAC`
of the time that it decodes, and may probe when it has what a probe is expected to cost; what the probe then did cost
is taken off, and what it won is put back. So all probes together cost no more than that share, up to one probe that
came dearer than expected; where little is lost (near break-even, or at a cheap drafter) they are frequent, where much
is they are rare; and one that went well may be followed by the next at once.

What a request leaves, savings or debt, is the next one's of about as much context: short requests together afford
what none of them could, and what was found out at their cost isn't found out again by each.
"""

from __future__ import annotations

from dataclasses import dataclass

PROBE_COST_FRAC = 0.005
"""Of decoding time, for probes that are verified."""
WATCH_COST_FRAC = 0.005
"""And for drafts that are only watched: 1 % in all."""
_MAX_SAVED_PROBES = 2.0
"""Savings beyond so many probes are dropped: hours without one are no reason for an hour of them."""


class Purse:
    """Of all requests of an engine."""

    def __init__(self, cost_frac: float = PROBE_COST_FRAC) -> None:
        """`cost_frac`: of decoding time, what may be lost."""
        self._cost_frac = cost_frac
        self._accounts: dict[str, _Account] = {}
        self._left_s: dict[int, float] = {}
        """By the class of context: what ended requests left."""

    @property
    def num_requests(self) -> int:
        """Requests with an account."""
        return len(self._accounts)

    def credit_s(self, request_id: str, context_len: int) -> float:
        """Seconds that the request may lose; below zero: it lost more than it had."""
        return self._account(request_id, context_len).credit_s

    def can_afford(self, request_id: str, context_len: int, loss_s: float) -> bool:
        """Whether it has saved what a probe is expected to cost; from then on it saves for that."""
        account = self._account(request_id, context_len)
        account.aim_s = max(0.0, loss_s)
        return account.credit_s >= loss_s

    def earn(self, request_id: str, context_len: int, decode_s: float) -> None:
        """The request decoded for so long."""
        account = self._account(request_id, context_len)
        account.context_len = context_len
        self._put(account, self._cost_frac * decode_s)

    def spend(self, request_id: str, context_len: int, loss_s: float) -> None:
        """A probe lost so much; below zero it won that."""
        self._put(self._account(request_id, context_len), -loss_s)

    def close(self, request_id: str) -> None:
        """The request ended."""
        account = self._accounts.pop(request_id, None)
        if account is not None:
            octave = account.context_len.bit_length()
            self._left_s[octave] = self._left_s.get(octave, 0.0) + account.credit_s

    def _account(self, request_id: str, context_len: int) -> _Account:
        if request_id not in self._accounts:
            left_s = self._left_s.pop(context_len.bit_length(), 0.0)
            self._accounts[request_id] = _Account(left_s, context_len)
        return self._accounts[request_id]

    @staticmethod
    def _put(account: _Account, seconds: float) -> None:
        most_s = max(account.credit_s, _MAX_SAVED_PROBES * account.aim_s) if account.aim_s is not None else None
        account.credit_s += seconds
        if most_s is not None and seconds > 0:
            account.credit_s = min(account.credit_s, most_s)


@dataclass(slots=True)
class _Account:
    credit_s: float
    context_len: int
    aim_s: float | None = None
    """What the probe that it saves for is expected to cost."""
