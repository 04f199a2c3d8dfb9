"""What a running sweep holds open: the connection to the server, what is known of it, and the results file."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from deepdraft.adapters.adapter import Adapter
from deepdraft.bench.progress import Progress
from deepdraft.bench.prompt import Prompt, PromptMaker
from deepdraft.bench.secret import Secrets
from deepdraft.bench.who_counts import TextTokenizer
from deepdraft.records import (
    End,
    Header,
    Line,
    Measurement,
    Note,
    Refusal,
    Run,
    SweepSpec,
    Trial,
)
from deepdraft.records.file import ResultsWriter
from deepdraft.transport.client import Client

T = TypeVar("T")


class Recorder:
    """Writes each line to the disk and keeps it in memory, so that nothing measured is lost to a full disk.

    Lines go to the disk in the order they were kept; one that could not be written is tried again before the next.
    """

    def __init__(
        self,
        header: Header,
        writer: ResultsWriter,
        *,
        started_at: float,
        hidden: Secrets,
        earlier: Run | None = None,
        repair: str | None = None,
    ) -> None:
        """started_at: the monotonic time the file counts from. hidden: what no line may hold. earlier: what a resumed
        file holds already. repair: what was repaired when it was opened."""
        self.header = header
        self.started_at = started_at
        self.repair = repair
        self._writer = writer
        self._hidden = hidden
        self._lines: list[Line] = []
        self._damage: tuple[str, ...] = ()
        if earlier is not None:
            self._lines += [
                *earlier.measurements,
                *earlier.trials,
                *earlier.refusals,
                *earlier.notes,
                *earlier.ends,
            ]
            self._damage = earlier.damage
        self._unsaved: list[Line] = []
        self._saving = threading.Lock()

    @property
    def num_unsaved(self) -> int:
        """Lines that are in memory and not in the file."""
        return len(self._unsaved)

    def now_s(self) -> float:
        """Seconds since the sweep began."""
        return time.monotonic() - self.started_at

    def keep(self, *lines: Line) -> None:
        """Append the lines. Raises ResultsError when they can't be written; they stay in memory all the same."""
        self.take(*lines)
        self._save()

    def take(self, *lines: Line) -> None:
        """Keep the lines in memory for now: `save`, or the next `keep`, writes them."""
        clean = [self._hidden.hidden_in(line) for line in lines]
        self._lines.extend(clean)
        self._unsaved.extend(clean)

    async def save(self) -> None:
        """Write what was taken, without holding up the event loop: a slow disk must not delay the stamps of running
        streams. Raises as `keep` does; when it is cancelled, the lines may still be unsaved."""
        await asyncio.to_thread(self._save)

    def close(self) -> None:
        """Close the file."""
        with self._saving:
            self._writer.close()

    def run(self) -> Run:
        """Everything recorded so far, earlier parts of a resumed file included."""
        return Run(
            header=self.header,
            measurements=_of(Measurement, self._lines),
            trials=_of(Trial, self._lines),
            refusals=_of(Refusal, self._lines),
            notes=_of(Note, self._lines),
            ends=_of(End, self._lines),
            damage=self._damage,
        )

    def _save(self) -> None:
        with self._saving:
            waiting = tuple(self._unsaved)
            if waiting:
                self._writer.append(*waiting)
                del self._unsaved[: len(waiting)]


def _of(kind: type[T], lines: Sequence[object]) -> tuple[T, ...]:
    return tuple(line for line in lines if isinstance(line, kind))


@dataclass
class Session:
    """One sweep in progress."""

    spec: SweepSpec
    client: Client
    adapter: Adapter
    maker: PromptMaker
    recorder: Recorder
    progress: Progress
    seen_ttft: dict[int, float] = field(default_factory=dict)
    """Context length -> the longest TTFT measured at it, in seconds; for the time limits."""
    output_tokenizer: tuple[str, TextTokenizer] | None = None
    """Who counts generated text where the server does not: a name, and a function."""
    kept_prompts: dict[tuple[int, int], Prompt] = field(default_factory=dict)
    """(context length, request index) -> the prompt that is sent again and again when the cache is to be kept."""
    waiting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while one request waits for a server that went away; the others wait with it."""

    @property
    def started_at(self) -> float:
        """The monotonic time that the results file counts from."""
        return self.recorder.started_at

    def now_s(self) -> float:
        """Seconds since the sweep began."""
        return self.recorder.now_s()

    def note_once(self, topic: str, message: str) -> None:
        """Note something that holds for many requests; the file says it once."""
        if all(note.message != message for note in self.recorder.run().notes):
            self.note(topic, message)

    def note(self, topic: str, message: str) -> None:
        """Record something a reader should know, and say it."""
        self.recorder.keep(self.said(topic, message))

    def said(self, topic: str, message: str) -> Note:
        """Say something, and return the note of it that is still to be kept."""
        self.progress.say(f"{topic}: {message}")
        return Note(at_s=self.now_s(), topic=topic, message=message)
