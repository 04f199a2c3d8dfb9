"""The engine's own thread: the only one that touches the engine. Commands come in by a queue, what happened goes to
the event loop as one callback a step."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from deepdraft.infer.errors import RequestRefused
from deepdraft.infer.request import Output, Request

if TYPE_CHECKING:
    from deepdraft.infer.engine import Engine
    from deepdraft.infer.engine_stats import EngineStats
    from deepdraft.infer.step_record import StepRecord


@dataclass(frozen=True, slots=True)
class Submit:
    """Take a request."""

    request: Request


@dataclass(frozen=True, slots=True)
class Abort:
    """Let go of a request; it may have ended already."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Flush:
    """Empty the radix cache."""

    done: asyncio.Future[bool]


@dataclass(frozen=True, slots=True)
class Stop:
    """End the thread."""


Command = Submit | Abort | Flush | Stop


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step, or a command beside it, changed."""

    outputs: tuple[Output, ...]
    records: tuple[StepRecord, ...]
    stats: EngineStats
    at_s: float
    """time.monotonic() when it was over."""


class Listener(Protocol):
    """Who is told, on the event loop."""

    def on_accepted(self, request_id: str) -> None:
        """The engine took the request."""

    def on_refused(self, request_id: str, refusal: RequestRefused) -> None:
        """The engine did not take it, and goes on."""

    def on_step(self, report: StepReport) -> None:
        """A step is over."""

    def on_flushed(self, done: asyncio.Future[bool], is_flushed: bool) -> None:
        """The cache is empty, or it was in use."""

    def on_died(self, reason: str) -> None:
        """An error ended the thread."""


class EngineThread:
    """Runs an engine until told to stop. An error of the engine ends it: the listener hears of it, and Python's own
    hook prints the traceback."""

    def __init__(self, engine: Engine, listener: Listener, loop: asyncio.AbstractEventLoop) -> None:
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._engine = engine
        self._listener = listener
        self._loop = loop
        self._num_steps_told = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Begin; commands put before are kept."""
        self._thread.start()

    def join(self, limit_s: float) -> bool:
        """Wait for its end; False when the limit is over first."""
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        is_in_order = False
        try:
            self._tell_step(())
            while self._obey_all():
                if self._engine.has_work:
                    self._tell_step(self._engine.step())
            is_in_order = True
        finally:
            if not is_in_order:
                error = sys.exception()
                self._tell(self._listener.on_died, f"{type(error).__name__}: {error}")

    def _obey_all(self) -> bool:
        """Obey what is in the queue, waiting for it when there is nothing else to do. False: stop."""
        must_wait = not self._engine.has_work
        while True:
            try:
                command = self.commands.get(block=must_wait)
            except queue.Empty:
                return True
            if isinstance(command, Stop):
                return False
            self._obey(command)
            must_wait = False

    def _obey(self, command: Submit | Abort | Flush) -> None:
        if isinstance(command, Abort):
            self._engine.abort(command.request_id)
            return
        if isinstance(command, Flush):
            is_flushed = self._engine.flush_cache()
            self._tell_step(())
            self._tell(self._listener.on_flushed, command.done, is_flushed)
            return
        request_id = command.request.request_id
        try:
            self._engine.submit(command.request)
        except RequestRefused as refusal:
            self._tell(self._listener.on_refused, request_id, refusal)
        else:
            self._tell(self._listener.on_accepted, request_id)

    def _tell_step(self, outputs: tuple[Output, ...]) -> None:
        steps = self._engine.steps
        num_new = min(steps.num_steps - self._num_steps_told, len(steps))
        self._num_steps_told = steps.num_steps
        records = tuple(islice(steps, len(steps) - num_new, None)) if num_new else ()
        report = StepReport(outputs, records, self._engine.stats(), time.monotonic())
        self._tell(self._listener.on_step, report)

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(callback, *arguments)
