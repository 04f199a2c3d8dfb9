"""Append chosen tokens to a sequence, one by one, and end it where its request says.

A decode step brings one token, a verify step an accepted path and its bonus token: all of them pass through here in
order, and those behind an end are dropped. What ends a request, first come first served:

    EOS (unless ignored) or one of stop_token_ids   the token counts as output, its text doesn't
    a stop string                                   the token that completes it counts, the string doesn't
    max_tokens

The first two never within min_tokens: tokens that end are not chosen there (`Sequence.blocked_token_ids`), and a stop
string has to begin afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deepdraft.infer.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What became of the tokens offered."""

    num_tokens: int
    """Appended: as many of the first as there was use for."""
    text: str
    finish_reason: str | None
    """As in Output; None: the sequence goes on."""


def commit(sequence: Sequence, token_ids: Iterable[int]) -> Committed:
    """Append `token_ids` up to the one that ends the sequence. Its KV rows are not this module's concern."""
    num_tokens = 0
    pieces: list[str] = []
    finish_reason: str | None = None
    for token_id in token_ids:
        text, finish_reason = _append(sequence, token_id)
        num_tokens += 1
        pieces.append(text)
        if finish_reason is not None:
            pieces.append(sequence.detokenizer.finish())
            break
    return Committed(num_tokens=num_tokens, text="".join(pieces), finish_reason=finish_reason)


def _append(sequence: Sequence, token_id: int) -> tuple[str, str | None]:
    params = sequence.request.sampling
    sequence.token_ids.append(token_id)
    can_stop = sequence.num_output_tokens > params.min_tokens
    if can_stop and token_id in sequence.end_token_ids:
        return "", "stop"
    text = sequence.detokenizer.push(token_id, can_stop=can_stop)
    if sequence.detokenizer.stopped:
        return text, "stop"
    return text, "length" if sequence.num_output_tokens >= params.max_tokens else None
