"""Finds out, before the first prompt, who can count, what a prompt costs besides its text, and how to hit a count.

It asks the server with short prompts and settles on one way of fitting. It makes no prompt to be measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

from deepdraft.bench import english
from deepdraft.bench.counting import Counter, IdRoute, UsageCounter
from deepdraft.bench.fitting.blocks import BlockBank, BlockFitter
from deepdraft.bench.fitting.closed_loop import ClosedLoopFitter
from deepdraft.bench.fitting.counted import CountedFitter
from deepdraft.bench.fitting.frame import Ask, Count, Fitter, Frame, num_chars, take
from deepdraft.bench.fitting.ids import IdFitter
from deepdraft.bench.fitting.words import FixedLens, WordFitter
from deepdraft.bench.head import HEAD_WORDS, STARTERS, distinct_heads
from deepdraft.bench.lexicon import COSTLY, FREE, Lexicon, learn
from deepdraft.bench.text import TextSource
from deepdraft.errors import HttpStatus, UsageError

_SAMPLE_CHARS = 6_000
_PROBED_SAMPLE_CHARS = 800
_FEWEST_HEAD_WORDS = 16
_EQUAL_WORD_CHARS = 4
_CHECK_LEN = 256
_REFUSALS = (400, 404, 405, 415, 422, 500, 501)
"""What servers answer to a prompt of a form they don't take; any other status is no answer to that."""


@dataclass(frozen=True, slots=True)
class Means:
    """What there is to count with, and what prompts look like."""

    source: TextSource
    frame: Frame
    seed: int
    head_seed: int
    probe: UsageCounter | None
    """The server's usage."""
    counter: Counter | None
    """A cheap counter."""
    id_route: IdRoute | None
    max_probe_len: int
    """No probe is longer than about this many tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was found out before the first prompt."""

    count_source: str
    method: str
    """How prompts are made to fit, in a few words."""
    overhead_len: int | None
    """Tokens the server adds to the text (chat template, BOS). All prompts share the leading ones, so a prefix cache
    may rightly report up to this many cached tokens. None: the server never said a count, or counts no words."""
    min_len: int
    """The shortest prompt without a needle, in tokens."""
    num_head_words: int
    """So many prompts differ from all others in their first word; later ones within the first two."""
    num_probes: int
    """Requests it took."""
    num_probed_tokens: int
    """Prompt tokens of these requests."""
    mismatch_frac: float | None
    """How far the cheap counter is from the server's count on the same text, as a share of it; None: not compared."""
    notes: tuple[str, ...]
    """What a reader of the figures should know, one sentence each."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What a prompt maker works with."""

    fitter: Fitter
    next_head: Callable[[], str]
    calibration: Calibration


@dataclass(frozen=True, slots=True)
class _Way:
    """One way of counting that works here."""

    fitter: Fitter
    next_head: Callable[[], str]
    count_source: str
    overhead_len: int | None
    num_head_words: int


class Calibrator:
    """Tries the ways of counting, best first: token ids, a cheap counter that agrees with the server, usage."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._notes: list[str] = []
        self._mismatch_frac: float | None = None
        self._num_id_probes = 0
        self._num_id_probed_tokens = 0

    async def calibrate(self) -> Basis:
        """Settle on a way.

        Raises UsageError when none is left; what the probes raise passes through.
        """
        means = self._means
        way = None
        if means.id_route:
            way = await self._by_ids(means.id_route)
        if way is None and means.counter:
            way = await self._by_counting(means.counter)
        if way is None and means.probe:
            way = await self._by_usage(means.probe)
        if way is None:
            raise UsageError(
                "nothing counts tokens as the server does: " + ("; ".join(self._notes) or "it reports no usage"),
                hint="--tokenizer FOLDER, with the model's own tokenizer.json",
            )
        min_len = await way.fitter.fixed_len(means.frame, None)
        calibration = Calibration(
            count_source=way.count_source,
            method=way.fitter.method,
            overhead_len=way.overhead_len,
            min_len=min_len,
            num_head_words=way.num_head_words,
            num_probes=self._num_id_probes + (means.probe.num_probes if means.probe else 0),
            num_probed_tokens=self._num_id_probed_tokens + (means.probe.num_probed_tokens if means.probe else 0),
            mismatch_frac=self._mismatch_frac,
            notes=tuple(self._notes),
        )
        return Basis(way.fitter, way.next_head, calibration)

    async def _by_ids(self, route: IdRoute) -> _Way | None:
        means = self._means

        async def num_ids(text: str) -> int:
            return len(await route.tokenize(text))

        lexicon = await learn(num_ids, (), HEAD_WORDS, FREE, cycle(STARTERS))
        head_words = _words_for_heads(lexicon)
        next_head = self._heads(head_words)
        chars_per_token = await self._chars_per_token(num_ids, lexicon)
        bare = IdFitter(route.tokenize, means.source, 0, chars_per_token, next_head)
        trial = await bare.fit(
            Ask(await bare.fixed_len(means.frame, None) + _FEWEST_HEAD_WORDS, means.seed, means.frame)
        )
        ids = trial.ids or ()
        try:
            total_len = await route.probe(ids)
        except HttpStatus as error:
            if error.status not in _REFUSALS:
                raise
            self._notes.append(f"the server refused a prompt of token ids ({error.message}); text is sent")
            return None
        self._num_id_probes += 1
        self._num_id_probed_tokens += total_len
        if total_len < len(ids):
            self._notes.append(f"the server counts {total_len} tokens for {len(ids)} ids; text is sent")
            return None
        overhead_len = total_len - len(ids)
        fitter = IdFitter(route.tokenize, means.source, overhead_len, chars_per_token, next_head)
        return _Way(fitter, next_head, "token ids", overhead_len + await fitter.num_specials(), len(head_words))

    async def _by_counting(self, counter: Counter) -> _Way | None:
        means = self._means
        lexicon = await learn(counter.count, (), HEAD_WORDS, FREE, cycle(STARTERS))
        head_words = _words_for_heads(lexicon)
        next_head = self._heads(head_words)
        offset_len = 0
        if means.probe:
            agreed_len = await self._agreed_offset_len(counter, means.probe, next_head)
            if agreed_len is None:
                return None
            offset_len = agreed_len
        elif not counter.includes_template:
            self._notes.append(
                f"the server did not say what it counts: lengths are those of the {counter.source}, without the chat "
                "template"
            )

        async def count(text: str) -> int:
            return offset_len + await counter.count(text)

        fitter = CountedFitter(
            count,
            means.source,
            filler_words=lexicon.filler_words,
            chars_per_token=await self._chars_per_token(counter.count, lexicon),
            next_head=next_head,
        )
        is_known = means.probe is not None or counter.includes_template
        overhead_len = offset_len + lexicon.overhead_len if is_known and lexicon.words else None
        return _Way(fitter, next_head, counter.source, overhead_len, len(head_words))

    async def _agreed_offset_len(
        self, counter: Counter, probe: UsageCounter, next_head: Callable[[], str]
    ) -> int | None:
        """What the server counts beyond the counter: the same for a short text and a longer one, or the counter is
        not the server's. None then."""
        sample = "".join(take(self._means.source.pieces(self._means.seed), _PROBED_SAMPLE_CHARS))
        short_text = next_head() + self._means.frame.rest("")
        long_text = next_head() + self._means.frame.rest(sample)
        offset_len = await probe.count(short_text) - await counter.count(short_text)
        server_len = await probe.count(long_text)
        expected_len = await counter.count(long_text) + offset_len
        self._mismatch_frac = (expected_len - server_len) / max(server_len, 1)
        if expected_len == server_len and offset_len >= 0:
            return offset_len
        self._notes.append(
            f"the {counter.source} counts {expected_len} tokens where the server counts {server_len}: it is not used"
        )
        return None

    async def _by_usage(self, probe: UsageCounter) -> _Way:
        means, source = self._means, self._means.source
        words = english.vocabulary() if source.pieces_of_words else ()
        lexicon = await learn(probe.count, words, HEAD_WORDS, COSTLY, cycle(STARTERS))
        head_words = _words_for_heads(lexicon)
        next_head = self._heads(head_words)
        fixed_lens = FixedLens(probe.count, next_head)
        fitter: Fitter | None = None
        has_equal_heads = head_words == lexicon.head_words
        if has_equal_heads and WordFitter.is_possible(source, lexicon):
            words_fitter = WordFitter(source, lexicon, fixed_lens, next_head)
            if await self._holds(words_fitter, probe.count):
                fitter = words_fitter
        if fitter is None and has_equal_heads:
            bank = BlockBank(probe.count, source, means.frame, fixed_lens, next_head, means.seed, means.max_probe_len)
            if await bank.adds_up():
                fitter = BlockFitter(bank, fixed_lens, lexicon.filler_words or lexicon.head_words, next_head)
        if fitter is None:
            # Nothing is known to add up, so heads are kept alike in the one way that is left: letter for letter.
            head_words = _equal_words()
            next_head = self._heads(head_words)
            fixed_lens = FixedLens(probe.count, next_head)
            fitter = ClosedLoopFitter(probe.count, source, fixed_lens, next_head, means.max_probe_len)
            self._notes.append(
                f"token counts don't add up here: prompts above {means.max_probe_len} tokens are estimates until "
                "one of that length was measured"
            )
        overhead_len = lexicon.overhead_len if lexicon.words else None
        return _Way(fitter, next_head, probe.source, overhead_len, len(head_words))

    async def _holds(self, fitter: WordFitter, count: Count) -> bool:
        """Whether a short prompt that was added up costs what it should."""
        frame = self._means.frame
        total_len = await fitter.fixed_len(frame, None) + _CHECK_LEN
        trial = await fitter.fit(Ask(total_len, self._means.seed, frame))
        return await count(f"{trial.head}{trial.rest}") == total_len

    async def _chars_per_token(self, count: Count, lexicon: Lexicon) -> float:
        sample = take(self._means.source.pieces(self._means.seed), _SAMPLE_CHARS)
        num_tokens = await count("".join(sample)) - lexicon.overhead_len
        return num_chars(sample) / max(num_tokens, 1)

    def _heads(self, words: tuple[str, ...]) -> Callable[[], str]:
        return distinct_heads(words, words, self._means.head_seed).__next__


def _words_for_heads(lexicon: Lexicon) -> tuple[str, ...]:
    return lexicon.head_words if len(lexicon.head_words) >= _FEWEST_HEAD_WORDS else _equal_words()


def _equal_words() -> tuple[str, ...]:
    return tuple(word for word in HEAD_WORDS if len(word) == _EQUAL_WORD_CHARS)
