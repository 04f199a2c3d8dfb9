"""The parts of a prompt, and what all ways of fitting one share. No counting here.

    head | lead | body, with the fact in it | tail lead | filler words | ending

Nothing begins or ends with white space: chat templates strip it, and a stripped token is a miscounted prompt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from deepdraft.errors import UsageError

_SLOPE_SPAN_LEN = 32
"""Two counts closer than this tell too little of a slope."""

Count = Callable[[str], Awaitable[int]]
"""Text -> tokens of the whole prompt as the server counts it."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What is the same in all prompts of a kind."""

    lead: str
    """Between the head and the body."""
    tail_lead: str
    """Between the body and what follows."""
    ending: str
    """The last words; begins with a space."""

    def rest(self, body: str, filler: Sequence[str] = ()) -> str:
        """All but the head."""
        words = "".join(f" {word}" for word in filler)
        return f"{self.lead}{body}{self.tail_lead}{words}{self.ending}"


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt that is wanted."""

    total_len: int
    """Tokens as the server counts them, template included."""
    seed: int
    """Of the body."""
    frame: Frame
    fact: str | None = None
    """A piece of text to hide in the body."""
    depth_frac: float = 0.0
    """Where in the body the fact goes."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A prompt that was made. Exactly one of `rest` and `ids` is there."""

    head: str
    rest: str | None
    """The text after the head."""
    ids: tuple[int, ...] | None
    num_body_chars: int
    """Characters between lead and tail lead, the fact left out."""
    total_len: int
    """Tokens the server is expected to count."""
    is_exact: bool
    """`total_len` was counted, or follows from what was; not an estimate."""


class Fitter(Protocol):
    """One way of fitting."""

    @property
    def method(self) -> str:
        """What it does, in a few words, for people."""

    async def fit(self, ask: Ask) -> Fit:
        """Make the prompt.

        Raises UsageError when it is too short to hold head and ending; what the counter raises passes through.
        """

    async def fixed_len(self, frame: Frame, fact: str | None) -> int:
        """Tokens of a prompt without body and filler: the shortest that can be made."""

    async def same_body(self, fit: Fit, frame: Frame) -> Fit:
        """The same prompt with another head that costs the same."""


def check_room(ask: Ask, fixed_len: int) -> int:
    """Tokens left for body and filler.

    Raises UsageError naming the minimum when there are none.
    """
    room_len = ask.total_len - fixed_len
    if room_len < 0:
        raise UsageError(
            f"a prompt of {ask.total_len} tokens is too short: {fixed_len} go to the chat template, the unique head "
            "and the instruction",
            hint=f"the shortest prompt here has {fixed_len} tokens",
        )
    return room_len


CleanCut = Callable[[str, str], bool]
"""Whether two neighbouring pieces may be parted without a change of what they cost."""


def with_fact(
    pieces: Sequence[str], fact: str | None, depth_frac: float, is_clean_cut: CleanCut | None = None
) -> str:
    """The pieces joined, the fact between the two of them nearest to its depth that may be parted."""
    if fact is None:
        return "".join(pieces)
    at = fact_index(pieces, depth_frac * num_chars(pieces), is_clean_cut)
    return "".join((*pieces[:at], fact, *pieces[at:]))


def fact_index(pieces: Sequence[str], at_chars: float, is_clean_cut: CleanCut | None = None) -> int:
    """How many pieces go before a fact that should stand after `at_chars` characters."""
    ends = (0, *accumulate(map(len, pieces)))
    candidates = [
        index
        for index in range(len(ends))
        if is_clean_cut is None or index in (0, len(pieces)) or is_clean_cut(pieces[index - 1], pieces[index])
    ]
    return min(candidates, key=lambda index: abs(ends[index] - at_chars))


def num_chars(pieces: Iterable[str]) -> int:
    """Characters of all pieces."""
    return sum(map(len, pieces))


def take(pieces: Iterator[str], at_least_chars: float) -> list[str]:
    """Pieces until they hold so many characters; at least one."""
    taken = [next(pieces)]
    taken_chars = len(taken[0])
    while taken_chars < at_least_chars:
        piece = next(pieces)
        taken.append(piece)
        taken_chars += len(piece)
    return taken


class Cut:
    """A body that can be cut after any character, its fact staying where it is."""

    def __init__(self, pieces: Sequence[str], fact: str | None, fact_after_chars: float) -> None:
        self._text = "".join(pieces)
        self._fact = fact or ""
        self._fact_at = num_chars(pieces[: fact_index(pieces, fact_after_chars)]) if fact else 0

    @property
    def max_chars(self) -> int:
        """The longest cut."""
        return len(self._text)

    def body(self, length_chars: int) -> str:
        """The first characters of the text, with the fact in them."""
        at = min(self._fact_at, length_chars)
        return f"{self._text[:at]}{self._fact}{self._text[at:length_chars]}"


async def cut_to_count(
    count_at: Callable[[int], Awaitable[int]],
    want_len: int,
    start_chars: int,
    max_chars: int,
    chars_per_token: float,
    max_counts: int,
) -> tuple[int, int]:
    """Find how many characters of a text cost `want_len` tokens.

    Steps along the slope (given at first, then seen); a step that leaves the span between the nearest too short and
    too long cut seen so far goes to its middle. Returns the cut that came closest and its count, which is not always
    the one wanted.
    """
    low, high = 0, max_chars
    at = min(max(start_chars, low), high)
    best_at, best_len = at, await count_at(at)
    total_len = best_len
    for _ in range(max_counts - 1):
        if total_len == want_len:
            break
        if total_len < want_len:
            low = at + 1
        else:
            high = at - 1
        if low > high:
            break
        before_at, before_len = at, total_len
        at += round((want_len - total_len) * chars_per_token)
        if at < low:
            at = low if low == 0 else (low + high) // 2
        elif at > high:
            at = high if high == max_chars else (low + high) // 2
        total_len = await count_at(at)
        if abs(total_len - before_len) >= _SLOPE_SPAN_LEN:
            chars_per_token = (at - before_at) / (total_len - before_len)
        elif 2 * (want_len - total_len) * (want_len - before_len) > (want_len - before_len) ** 2:
            chars_per_token *= 2  # less than half the way, on tokens too few to read the slope from
        if abs(total_len - want_len) < abs(best_len - want_len):
            best_at, best_len = at, total_len
    return best_at, best_len
