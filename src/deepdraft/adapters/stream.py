"""Reads the events of one stream in order: the columns of an EventLog, counts, figures, how it ended.

What needs more than one event is here: cumulative text, tokens of an event by difference, usage in several places.
What it means for the request is said in `reading`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from deepdraft.adapters.event import FAILED_FINISHES, EventFacts, event_facts
from deepdraft.adapters.json_text import writable_text
from deepdraft.adapters.message import error_words
from deepdraft.records import EventLog, Usage, trace

OUTPUT_TEXT_LIMIT = 4096
"""Characters kept of the answer's text: its head."""
_LIST_LIMIT = 1024
"""Longer lists among the engine's figures (log probabilities, ids) are left out of the record."""

_CUMULATIVE_SOURCES = ("continuous usage", "meta_info", "token ids", "logprobs", "timings")


@dataclass(slots=True)
class StreamReading:
    """Reads events one by one and keeps the columns of an EventLog. Feed it every event, in order."""

    finish_reason: str | None = None
    finish_message: str | None = None
    saw_done: bool = False
    error: Any = None
    """The first error object of the stream."""
    figures: dict[str, Any] = field(default_factory=dict)
    num_token_events: int = 0
    num_other: int = 0
    """Events that could not be understood."""
    _usage: dict[str, int] = field(default_factory=dict)
    _gaps_us: list[int] = field(default_factory=list)
    _kinds: list[str] = field(default_factory=list)
    _num_chars: list[int] = field(default_factory=list)
    _running: tuple[list[int | None], ...] = field(default_factory=lambda: tuple([] for _ in _CUMULATIVE_SOURCES))
    """For each source of counts: tokens up to and including each token-carrying event, None where not stated."""
    _last_us: int = 0
    _num_ids: int = 0
    _num_logprobs: int = 0
    _text: list[str] = field(default_factory=list)
    _text_len: int = 0
    _cumulative_len: int = 0

    def add_comment(self, at_us: int) -> None:
        """A comment line. `at_us`: microseconds since sent, rounded."""
        self._note(at_us, trace.COMMENT)

    def add_event(self, at_us: int, data: bytes, event_type: str | None = None) -> str:
        """An event; returns its kind, one of the letters of `records.trace`. `at_us`: microseconds since sent,
        rounded, so that the gaps between events add up without drift."""
        facts = event_facts(data, event_type)
        num_chars = len(facts.answer) + len(facts.reasoning) + len(facts.tool_call)
        if facts.is_cumulative:
            num_chars = self._take_cumulative(facts) if facts.answer else 0
        elif facts.answer and self._text_len < OUTPUT_TEXT_LIMIT:
            self._text.append(facts.answer)
            self._text_len += len(facts.answer)
        self._note(at_us, facts.kind)
        self._take_counts(facts, num_chars)
        if facts.finish_reason:
            self.finish_reason, self.finish_message = facts.finish_reason, facts.finish_message
        if facts.usage:
            self._take_usage(facts.usage)
        if facts.figures:
            self._take_figures(facts.figures)
        if facts.kind == trace.DONE:
            self.saw_done = True
        elif facts.kind == trace.ERROR and self.error is None:
            self.error = facts.error
        elif facts.kind == trace.OTHER:
            self.num_other += 1
        return facts.kind

    def event_log(self) -> EventLog:
        """The columns. Token counts come from the first source that stated one for every token-carrying event."""
        num_tokens, source = None, None
        for name, running in zip(_CUMULATIVE_SOURCES, self._running, strict=True):
            counts = _differences(running)
            if counts:
                num_tokens, source = counts, name
                break
        return EventLog(
            gaps_us=tuple(self._gaps_us),
            kinds="".join(self._kinds),
            num_chars=tuple(self._num_chars),
            num_tokens=num_tokens,
            num_tokens_source=source,
        )

    def usage(self) -> Usage | None:
        """The server's counts, from wherever it put them; None when it gave none."""
        return Usage(**self._usage) if self._usage else None

    def output_text(self) -> str | None:
        """The answer's text, its head only when it is long; None when there was none."""
        return writable_text("".join(self._text)[:OUTPUT_TEXT_LIMIT]) or None

    def error_words(self) -> str:
        """The server's own words for the error in the stream."""
        return error_words(self.error) or "no reason given"

    def _note(self, at_us: int, kind: str) -> None:
        self._gaps_us.append(at_us - self._last_us)
        self._last_us = at_us
        self._kinds.append(kind)

    def _take_cumulative(self, facts: EventFacts) -> int:
        """Characters that are new in a text that holds everything so far."""
        num_chars = max(0, len(facts.answer) - self._cumulative_len)
        self._cumulative_len = max(self._cumulative_len, len(facts.answer))
        self._text = [facts.answer[:OUTPUT_TEXT_LIMIT]]
        self._text_len = len(self._text[0])
        if not num_chars and facts.kind == trace.TEXT:
            facts.kind = trace.FINISH if facts.finish_reason else trace.EMPTY
        return num_chars

    def _take_counts(self, facts: EventFacts, num_chars: int) -> None:
        if facts.num_token_ids is not None:
            self._num_ids = facts.num_token_ids if facts.is_cumulative else self._num_ids + facts.num_token_ids
        if facts.num_logprobs is not None:
            self._num_logprobs += facts.num_logprobs
        if facts.kind not in trace.TOKEN_KINDS:
            return
        self.num_token_events += 1
        self._num_chars.append(num_chars)
        usage, meta, ids, logprobs, timings = self._running
        usage.append(facts.usage_tokens)
        meta.append(facts.meta_tokens)
        ids.append(None if facts.num_token_ids is None else self._num_ids)
        logprobs.append(None if facts.num_logprobs is None else self._num_logprobs)
        timings.append(facts.timings_tokens)

    def _take_usage(self, usage: dict[str, Any]) -> None:
        prompt_details, output_details = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
        said = {
            "prompt_tokens": usage.get("prompt_tokens"),
            "completion_tokens": usage.get("completion_tokens"),
            "cached_tokens": prompt_details.get("cached_tokens") if type(prompt_details) is dict else None,
            "reasoning_tokens": output_details.get("reasoning_tokens")
            if type(output_details) is dict
            else usage.get("reasoning_tokens"),
        }
        for name, value in said.items():
            if type(value) is int and value >= 0:
                self._usage[name] = value

    def _take_figures(self, figures: dict[str, Any]) -> None:
        for name, figure in figures.items():
            if type(figure) is not dict:
                self.figures[name] = figure
                continue
            kept = {
                key: entry for key, entry in figure.items() if type(entry) is not list or len(entry) <= _LIST_LIMIT
            }
            if name == "sglext" and name in self.figures:  # its parts may come in chunks of their own
                self.figures[name] = {**self.figures[name], **kept}
            else:
                self.figures[name] = kept

    def finish_failed(self) -> str | None:
        """What to say when the server ended the request with a reason that is a failure; None otherwise."""
        if self.finish_reason not in FAILED_FINISHES:
            return None
        words = f": {error_words(self.finish_message)}" if self.finish_message else ""
        return f"the server ended the request with finish_reason {self.finish_reason!r}{words}"


def generated_texts(events: Iterable[tuple[bytes, str | None]]) -> list[str]:
    """The generated text of each token-carrying event (all channels), for a tokenizer to count.

    events: (data, SSE event type) in order, comments left out.
    """
    texts: list[str] = []
    seen = ""
    for data, event_type in events:
        facts = event_facts(data, event_type)
        text = facts.text
        if facts.is_cumulative:
            text, seen = facts.answer[len(seen) :], max(seen, facts.answer, key=len)
        if facts.kind in trace.TOKEN_KINDS and text:
            texts.append(text)
    return texts


def _differences(running: list[int | None]) -> tuple[int, ...] | None:
    """Tokens of each event from the running totals; None unless every one is stated, none falls, and the last is
    above 0 (a total that stays 0 beside text is a server that does not count)."""
    counts: list[int] = []
    before = 0
    for total in running:
        if total is None or total < before:
            return None
        counts.append(total - before)
        before = total
    return tuple(counts) if before else None
