"""What a running sweep holds open: the connection to the server, what is known of it, and the results file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from deepdraft.adapters.adapter import Adapter
from deepdraft.bench.progress import Progress
from deepdraft.bench.prompt import Prompt, PromptMaker
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


@dataclass
class Recorder:
    """Writes each line to the disk and keeps it in memory, so that nothing measured is lost to a full disk."""

    header: Header
    writer: ResultsWriter
    lines: list[Line] = field(default_factory=list)
    num_unsaved: int = 0

    def keep(self, *lines: Line) -> None:
        """Append the lines. Raises ResultsError when they can't be written; they stay in memory all the same."""
        self.lines.extend(lines)
        self.num_unsaved += len(lines)
        self.writer.append(*lines)
        self.num_unsaved -= len(lines)

    def run(self) -> Run:
        """Everything recorded so far, earlier parts of a resumed file included."""
        return Run(
            header=self.header,
            measurements=_of(Measurement, self.lines),
            trials=_of(Trial, self.lines),
            refusals=_of(Refusal, self.lines),
            notes=_of(Note, self.lines),
            ends=_of(End, self.lines),
        )


def _of(kind: type[T], lines: Sequence[object]) -> tuple[T, ...]:
    return tuple(line for line in lines if isinstance(line, kind))


@dataclass
class Session:
    """One sweep in progress. `started_at` is the monotonic time that the results file counts from."""

    spec: SweepSpec
    client: Client
    adapter: Adapter
    maker: PromptMaker
    recorder: Recorder
    progress: Progress
    started_at: float
    seen_ttft: list[tuple[int, float]] = field(default_factory=list)
    """(context length, seconds) of what was measured, for the time limits."""
    output_tokenizer: tuple[str, TextTokenizer] | None = None
    """Who counts generated text where the server does not: a name, and a function."""
    kept_prompts: dict[tuple[int, int], Prompt] = field(default_factory=dict)
    """(context length, request index) -> the prompt that is sent again and again when the cache is to be kept."""

    def now_s(self) -> float:
        """Seconds since the sweep began."""
        return time.monotonic() - self.started_at

    def note_once(self, topic: str, message: str) -> None:
        """Note something that holds for many requests; the file says it once."""
        if not any(isinstance(line, Note) and line.message == message for line in self.recorder.lines):
            self.note(topic, message)

    def note(self, topic: str, message: str) -> None:
        """Record something a reader should know, and say it."""
        self.recorder.keep(Note(at_s=self.now_s(), topic=topic, message=message))
        self.progress.say(f"{topic}: {message}")
