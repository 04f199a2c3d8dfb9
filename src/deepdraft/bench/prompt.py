"""Prompts of an exact token count, as the server counts them, each with a beginning of its own.

`PromptMaker` makes them, once `calibration` found out who can count. It knows no engine: what it needs of a server
comes as functions. The ways to hit a count are in `fitting`, the texts in `text`, the beginnings in `head`. It sends
nothing but probes, and judges no measurement.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from dataclasses import dataclass

from deepdraft.bench.calibration import Basis, Calibration, Calibrator, Means
from deepdraft.bench.counting import Counter, IdRoute, UsageCounter
from deepdraft.bench.fitting.closed_loop import ClosedLoopFitter
from deepdraft.bench.fitting.frame import Ask, Fit, Frame
from deepdraft.bench.head import HEAD_WORDS, SHORT_STARTERS, distinct_heads
from deepdraft.bench.needle import Needle
from deepdraft.bench.text import TextSource
from deepdraft.errors import UsageError
from deepdraft.records import PromptFacts

MAX_TRIED_LEN = 16_384
"""Tokens up to which a prompt is probed whole where counts don't add up: such a probe costs a full prefill."""
INSTRUCTION = "Continue this text in the same style, at great length."
"""What a prompt ends with, so that a chat model has reason to write on."""

# The words before the instruction are always the same, so that it costs the same after every body.
_BRIDGE = " and so on.\n\n"
_BELIEVABLE_LEN = 16
_BELIEVABLE_FRAC = 0.05
_BELIEVABLE_ESTIMATE_FRAC = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt, ready to be sent once. Exactly one of `text` and `ids` is there."""

    asked_len: int
    """Tokens that were asked for, chat template included."""
    expected_len: int
    """Tokens we expect the server to count."""
    is_exact: bool
    """The expectation was counted, or follows from counts, and is what was asked; False: an estimate."""
    count_source: str
    """Who counted: token ids, server tokenize endpoint, local tokenizer, usage probes."""
    overhead_len: int | None
    """Tokens the server adds by itself, the same for all prompts; None: not known."""
    text: str | None
    ids: tuple[int, ...] | None
    head: str
    """The leading words that no other prompt has."""
    text_kind: str
    is_repetitive: bool
    is_random: bool
    num_body_chars: int
    """Characters of the text between head and instruction."""
    sha256: str
    """Of the text in UTF-8, or of the ids as 32-bit little-endian integers."""
    needle: Needle | None = None
    notes: tuple[str, ...] = ()
    """What a reader of the figures should know, one sentence each."""

    @property
    def form(self) -> str:
        """text or ids."""
        return "text" if self.ids is None else "ids"

    @property
    def facts(self) -> PromptFacts:
        """What is recorded of the prompt."""
        return PromptFacts(
            asked_len=self.asked_len,
            expected_len=self.expected_len,
            count_source=self.count_source,
            overhead_len=self.overhead_len,
            text_kind=self.text_kind,
            is_repetitive=self.is_repetitive,
            is_random=self.is_random,
            form=self.form,
            head=self.head,
            sha256=self.sha256,
            needle=self.needle.word if self.needle else None,
        )


class PromptMaker:
    """Makes prompts for one server and one kind of text. Not to be shared between event loops."""

    def __init__(
        self,
        source: TextSource,
        *,
        seed: int,
        probe: UsageCounter | None = None,
        counter: Counter | None = None,
        id_route: IdRoute | None = None,
        head_seed: int | None = None,
        max_probe_len: int = MAX_TRIED_LEN,
    ) -> None:
        """`probe` asks the server itself; `counter` is a cheap one; `id_route` wins over both where it works.
        `seed` decides the bodies, `head_seed` the heads: fresh ones by default, so that a command run twice sends no
        prompt twice. `max_probe_len`: no probe is longer than about this many tokens.

        Raises UsageError when nothing counts.
        """
        if probe is None and counter is None and id_route is None:
            raise UsageError(
                "nothing counts tokens: the server reports no usage and has no tokenize endpoint",
                hint="--tokenizer FOLDER, with the model's own tokenizer.json",
            )
        self._source = source
        self._seed = seed
        self._means = Means(
            source=source,
            frame=self._frame(INSTRUCTION),
            seed=seed,
            head_seed=secrets.randbits(64) if head_seed is None else head_seed,
            probe=probe,
            counter=counter,
            id_route=id_route,
            max_probe_len=max_probe_len,
        )
        self._short_heads = distinct_heads(SHORT_STARTERS, HEAD_WORDS, self._means.head_seed)
        self._basis: Basis | None = None
        self._num_bodies: dict[int, int] = {}
        self._corrections_len: dict[int, int] = {}

    async def calibrate(self) -> Calibration:
        """Find out who counts and what a prompt costs besides its text; once, before the first prompt.

        Raises UsageError when no way of counting is left; errors of the probes pass through.
        """
        if self._basis is None:
            self._basis = await Calibrator(self._means).calibrate()
        return self._basis.calibration

    async def make(self, asked_len: int, *, needle: Needle | None = None, body_index: int | None = None) -> Prompt:
        """A prompt of `asked_len` tokens as the server counts them, with a head and a body of its own.

        With a needle the body hides its fact and the prompt ends with its question. `body_index` names the body, so
        that it can be made again; None takes the next one of this length.
        Raises UsageError when `asked_len` is too short for what every prompt needs; what the probes raise passes.
        """
        basis = await self._calibrated()
        if body_index is None:
            body_index = self._num_bodies.get(asked_len, 0)
            self._num_bodies[asked_len] = body_index + 1
        correction_len = self._corrections_len.get(asked_len, 0)
        fit = await basis.fitter.fit(
            Ask(
                total_len=asked_len + correction_len,
                seed=self._body_seed(asked_len, body_index),
                frame=self._frame(needle.question if needle else INSTRUCTION),
                fact=self._source.aside(needle.fact) if needle else None,
                depth_frac=needle.depth_frac if needle else 0.0,
            )
        )
        return self._prompt(basis, fit, asked_len, fit.total_len - correction_len, needle)

    async def same_body(self, prompt: Prompt) -> Prompt:
        """The prompt again with another head: what the two-point method needs, and no cache can know.

        Should the new head cost more or less, which none does where heads are made of one-token words, the expected
        length says so.
        """
        basis = await self._calibrated()
        rest = None if prompt.text is None else prompt.text[len(prompt.head) :]
        old = Fit(prompt.head, rest, prompt.ids, prompt.num_body_chars, prompt.expected_len, prompt.is_exact)
        fit = await basis.fitter.same_body(old, self._frame_of(prompt))
        return self._prompt(basis, fit, prompt.asked_len, fit.total_len, prompt.needle)

    async def feedback(self, prompt: Prompt, actual_len: int) -> bool:
        """Take in the server's own count of a prompt that was sent; later ones of this length are corrected by it.

        False: the count is too far off to be an error of ours, so nothing was learned from it. A truncated prompt is
        not a measure of prompts; the guard on the prompt's length tells of it.
        """
        basis = await self._calibrated()
        error_len = actual_len - prompt.expected_len
        believable_frac = _BELIEVABLE_FRAC if prompt.is_exact else _BELIEVABLE_ESTIMATE_FRAC
        if abs(error_len) > max(_BELIEVABLE_LEN, believable_frac * prompt.expected_len):
            return False
        if isinstance(basis.fitter, ClosedLoopFitter):
            fact = self._source.aside(prompt.needle.fact) if prompt.needle else None
            await basis.fitter.observe(self._frame_of(prompt), fact, prompt.num_body_chars, actual_len)
        else:
            before_len = self._corrections_len.get(prompt.asked_len, 0)
            self._corrections_len[prompt.asked_len] = before_len - error_len
        return True

    def short_text(self) -> str:
        """A short text with a head of its own, for requests that only ask whether the server is alive."""
        return f"{next(self._short_heads)}. Answer with one word."

    async def _calibrated(self) -> Basis:
        await self.calibrate()
        assert self._basis is not None
        return self._basis

    def _frame(self, instruction: str) -> Frame:
        return Frame(lead=self._source.lead, tail_lead=self._source.tail_lead, ending=f"{_BRIDGE}{instruction}")

    def _frame_of(self, prompt: Prompt) -> Frame:
        return self._frame(prompt.needle.question if prompt.needle else INSTRUCTION)

    def _body_seed(self, asked_len: int, body_index: int) -> int:
        key = f"{self._seed} {asked_len} {body_index}".encode()
        return int.from_bytes(hashlib.sha256(key).digest()[:8], "big")

    def _prompt(self, basis: Basis, fit: Fit, asked_len: int, expected_len: int, needle: Needle | None) -> Prompt:
        source = self._source
        text = None if fit.rest is None else fit.head + fit.rest
        raw = text.encode() if text is not None else struct.pack(f"<{len(fit.ids or ())}i", *(fit.ids or ()))
        repeats_after_chars = source.repeats_after_chars
        wraps = repeats_after_chars is not None and fit.num_body_chars > repeats_after_chars
        notes = []
        if wraps and repeats_after_chars and not source.is_repetitive:
            times = fit.num_body_chars / repeats_after_chars
            notes.append(f"{source.label} is shorter than the prompt and stands in it {times:.1f} times")
        return Prompt(
            asked_len=asked_len,
            expected_len=expected_len,
            is_exact=fit.is_exact and expected_len == asked_len,
            count_source=basis.calibration.count_source,
            overhead_len=basis.calibration.overhead_len,
            text=text,
            ids=fit.ids,
            head=fit.head,
            text_kind=source.kind,
            is_repetitive=source.is_repetitive or wraps,
            is_random=source.is_random,
            num_body_chars=fit.num_body_chars,
            sha256=hashlib.sha256(raw).hexdigest(),
            needle=needle,
            notes=tuple(notes),
        )
