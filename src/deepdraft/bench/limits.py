"""How long a request may stay silent. Limits grow with the context, since a long prefill is not a fault.

Before anything was measured the limits assume a very slow server; after that they follow what this server showed,
with a wide margin. There is no limit on a request as a whole unless the user sets one.
"""

from __future__ import annotations

from deepdraft.records import Limits

_FIRST_TOKEN_FLOOR_S = 120.0
_SLOWEST_PREFILL_S_PER_TOKEN = 0.02
_STALL_FLOOR_S = 60.0
_SLOWEST_STEP_S_PER_TOKEN = 0.001
_MARGIN = 10.0
LOADING_LIMIT_S = 900.0
"""A server that says it is loading will be there: large models take minutes."""


def first_token_limit_s(
    limits: Limits, context_len: int, num_ahead: int, seen: tuple[tuple[int, float], ...] = ()
) -> float:
    """Seconds to wait for the first token of a prompt of this length.

    num_ahead: requests that may be served before this one. seen: (context length, TTFT in seconds) pairs measured on
    this server; the largest, grown with the square of the length and a factor of ten, can only lengthen the limit.
    """
    if limits.first_token_s is not None:
        return limits.first_token_s
    limit = _FIRST_TOKEN_FLOOR_S + context_len * _SLOWEST_PREFILL_S_PER_TOKEN
    for seen_len, seen_s in seen:
        growth = max(1.0, context_len / max(seen_len, 1)) ** 2
        limit = max(limit, _MARGIN * growth * seen_s)
    return limit * (1 + num_ahead)


def stall_limit_s(limits: Limits, context_len: int, num_others: int) -> float:
    """Seconds to wait between two tokens; a neighbour's prefill may stall a stream.

    num_others: requests that may be in flight beside this one.
    """
    if limits.stall_s is not None:
        return limits.stall_s
    one = _STALL_FLOOR_S + context_len * _SLOWEST_STEP_S_PER_TOKEN
    return one + num_others * context_len * _SLOWEST_PREFILL_S_PER_TOKEN


def loading_limit_s(limits: Limits) -> float:
    """Seconds to wait for a server that says it is loading its model: minutes, unless the user set a wait."""
    is_set = limits.server_wait_s != Limits().server_wait_s
    return limits.server_wait_s if is_set else LOADING_LIMIT_S
