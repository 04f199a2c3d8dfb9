"""Figures that only a server's log tells: acceptance per interval or request, and cached tokens per prefill.

Works on text; `log_text` reads the part of a file that was written between two looks. Lines of other engines, other
versions and half-written lines are passed over. Spellings: docs/reference/servers.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from deepdraft.records import Acceptance, ServerReading

_READ_LIMIT_BYTES = 8_000_000
"""Read at most this much of what was added, its end first."""
_HISTORY_BYTES = 262_144
"""How far to look back for a sign that a log tells of cached tokens at all."""

_SOURCE = "server log"
"""The log as a reading's source."""

_SGLANG_DECODE = re.compile(r"Decode batch(?: \[\d+\])?, #running-req: (\d+)")
# "block accept len" and "cap len" are other figures of some drafters.
_SGLANG_ACCEPT_LEN = re.compile(r"(?<!block )accept len: (\d+(?:\.\d+)?)")
_SGLANG_PREFILL = re.compile(r"Prefill batch(?: \[\d+\])?, .*?#new-token: (\d+), #cached-token: (\d+)")
_SPEC_METRICS = "SpecDecoding metrics:"
_MEAN_LENGTH = re.compile(r"Mean acceptance length: (\d+(?:\.\d+)?)")
_DRAFTED = re.compile(r"\bDrafted: (\d+)")
_LLAMACPP = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*\d+(?:\.\d+)?\s*\(\s*(\d+) accepted\s*/\s*(\d+) generated\)"
    r"(?:,\s*mean len\s*=\s*(\d+(?:\.\d+)?))?"
)


def log_text(path: Path, start_bytes: int, end_bytes: int) -> str:
    """What was written to the log between two positions; "" when it can't be read or was rotated."""
    return _log_bytes(path, start_bytes, end_bytes).decode("utf-8", "replace")


def _log_bytes(path: Path, start_bytes: int, end_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            end = min(end_bytes, file.seek(0, 2))
            start = max(start_bytes, end - _READ_LIMIT_BYTES, 0)
            if end <= start:
                return b""
            file.seek(start)
            return file.read(end - start)
    except OSError:
        return b""


def log_size_bytes(path: Path) -> int | None:
    """The log's length now; None when it can't be read."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def sglang_acceptance(text: str) -> Acceptance | None:
    """The mean of `accept len` (bonus included) over SGLang's decode lines.

    A line comes every --decode-log-interval steps (40 unless set) and covers the steps since the line before, so the
    first one may cover steps of an earlier request, and a short request may end without any.
    """
    lens: list[float] = []
    num_running: list[int] = []
    for line in text.splitlines():
        batch = _SGLANG_DECODE.search(line)
        length = _SGLANG_ACCEPT_LEN.search(line) if batch else None
        if batch and length:
            num_running.append(int(batch[1]))
            lens.append(float(length[1]))
    if not lens:
        return None
    doubt = "each line averages the steps since the line before, the first of which may be of an earlier request"
    if max(num_running) > 1:
        doubt += f"; up to {max(num_running)} requests ran at once"
    return Acceptance(
        source=f"server log: mean of {len(lens)} `accept len` lines",
        stated_acceptance_len=sum(lens) / len(lens),
        doubt=doubt,
    )


def spec_metrics_acceptance(text: str) -> Acceptance | None:
    """The mean over the `SpecDecoding metrics` lines of vLLM and LMDeploy (same prefix, other order), bonus included.

    A line covers about ten seconds of everything the engine ran, so its counts are no request's and are not given:
    steps reckoned from them and one request's tokens would be wrong.
    """
    lines = [line for line in text.splitlines() if _SPEC_METRICS in line]
    drafted, weighted = 0, 0.0
    num_lines = 0
    for line in lines:
        mean, proposed = _MEAN_LENGTH.search(line), _DRAFTED.search(line)
        if not (mean and proposed):
            continue
        num_lines += 1
        drafted += int(proposed[1])
        weighted += float(mean[1]) * int(proposed[1])
    if not num_lines or not drafted:
        return None
    return Acceptance(
        source=f"server log: {num_lines} `SpecDecoding metrics` line{'s' if num_lines > 1 else ''}",
        stated_acceptance_len=weighted / drafted,
        doubt="a line covers an interval of the whole engine, not one request",
    )


def llamacpp_acceptance(text: str) -> Acceptance | None:
    """Sums over llama.cpp's lines, one for each request, in the newer spelling (`draft acceptance = ... mean len =`)
    and the older (`draft acceptance rate = ...`)."""
    found = _LLAMACPP.findall(text)
    if not found:
        return None
    accepted = sum(int(taken) for taken, _, _ in found)
    drafted = sum(int(proposed) for _, proposed, _ in found)
    means = [(float(mean), int(proposed)) for _, proposed, mean in found if mean]
    weight = sum(proposed for _, proposed in means)
    return Acceptance(
        source=f"server log: {len(found)} `draft acceptance` line{'s' if len(found) > 1 else ''}",
        num_draft_tokens=drafted,
        num_accepted_tokens=accepted,
        stated_acceptance_len=sum(mean * proposed for mean, proposed in means) / weight if weight else None,
        doubt=None if len(found) == 1 else f"the log tells of {len(found)} requests in this time",
    )


_OF_ENGINE: dict[str, Callable[[str], Acceptance | None]] = {
    "sglang": sglang_acceptance,
    "vllm": spec_metrics_acceptance,
    "lmdeploy": spec_metrics_acceptance,
    "llamacpp": llamacpp_acceptance,
    "ollama": llamacpp_acceptance,
}


def acceptance_between(
    engine: str, path: Path, before: ServerReading | None, after: ServerReading
) -> Acceptance | None:
    """Acceptance from what was written to the log between two readings; None when it says nothing of it."""
    start = None if before is None else before.log_position_bytes
    if start is None or after.log_position_bytes is None:
        return None
    return log_acceptance(engine, log_text(path, start, after.log_position_bytes))


def log_acceptance(engine: str, text: str) -> Acceptance | None:
    """Acceptance from a piece of the log of that engine; None when it says nothing of it."""
    of_engine = _OF_ENGINE.get(engine)
    return of_engine(text) if of_engine else None


class LogTally:
    """Running totals of what only SGLang's log counts: prompt tokens and how many of them were cached.

    Counts from where the log ends when the tally is first advanced; each call reads only what was added since.
    """

    def __init__(self, engine: str, path: Path) -> None:
        self.path = path
        self.prompt_tokens = 0.0
        self.cached_tokens: float | None = None
        """None for engines whose log does not tell, and until a line shows that this log does."""
        self._is_counted = engine == "sglang"
        self._position: int | None = None

    def added_to(self, found: ServerReading | None, at_s: float) -> ServerReading | None:
        """A reading with the log's length, and with what only the log counts; as it was when the log can't be read.

        at_s: seconds since the sweep began, for a reading that tells of the log alone.
        """
        position = log_size_bytes(self.path)
        if position is None:
            return found
        reading = ServerReading(at_s=at_s, source=_SOURCE) if found is None else found
        self.advance(position)
        if "cached_tokens" not in reading.counters and self.cached_tokens is not None:
            counted = {"prompt_tokens": self.prompt_tokens, "cached_tokens": self.cached_tokens}
            source = reading.source if reading.source == _SOURCE else f"{reading.source} and {_SOURCE}"
            reading = replace(reading, counters={**reading.counters, **counted}, source=source)
        return replace(reading, log_position_bytes=position)

    def advance(self, end_bytes: int) -> None:
        """Read on to a position. A line that is cut there is left for the next time."""
        if not self._is_counted:
            return
        if self._position is None or end_bytes < self._position:  # the first look, or the log began anew
            if log_cached_tokens(log_text(self.path, end_bytes - _HISTORY_BYTES, end_bytes)) is not None:
                self.cached_tokens = self.cached_tokens or 0.0
            self._position = end_bytes
            return
        added = _log_bytes(self.path, self._position, end_bytes)
        rest = len(added) - (added.rfind(b"\n") + 1)
        self._position = end_bytes - rest
        counted = log_cached_tokens(added[: len(added) - rest].decode("utf-8", "replace"))
        if counted is not None:
            self.prompt_tokens += counted[0]
            self.cached_tokens = (self.cached_tokens or 0.0) + counted[1]


def log_cached_tokens(text: str) -> tuple[int, int] | None:
    """(prompt tokens, of which cached) summed over the prefill lines of a piece of SGLang's log; None without such a
    line. Each chunk of a long prompt has a line; its cached tokens are on the first."""
    found = _SGLANG_PREFILL.findall(text)
    if not found:
        return None
    cached = sum(int(tokens) for _, tokens in found)
    return cached + sum(int(tokens) for tokens, _ in found), cached
