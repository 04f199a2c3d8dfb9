"""The event loop's side of the engine: who may come in, which output belongs to which answer, and how it ends.

Everything here runs on the event loop, so counts need no lock. `generation` is the one way in: whatever is unfinished
when its block is left, by an error or because the client went away, is aborted at once and its pages are free again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepdraft.infer.errors import InvalidRequest, QueueFull, RequestRefused, ShuttingDown
from deepdraft.infer.request import Output, Request
from deepdraft.infer.server.engine_thread import Abort, EngineThread, Flush, StepReport, Stop, Submit
from deepdraft.infer.server.generation import Generation
from deepdraft.infer.server.metrics import Metrics, RequestTimes
from deepdraft.infer.server.refusal import EngineDied

if TYPE_CHECKING:
    from deepdraft.infer.engine import Engine
    from deepdraft.infer.engine_stats import EngineStats

_RETRY_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Open:
    """A request that the engine has."""

    generation: Generation
    times: RequestTimes


class EngineWorker:
    """Requests in, outputs out."""

    def __init__(
        self, engine: Engine, metrics: Metrics, *, max_running_requests: int, max_queued_requests: int
    ) -> None:
        """At most max_running_requests + max_queued_requests are open at once."""
        self._engine = engine
        self._metrics = metrics
        self._max_queued = max_queued_requests
        self._max_open = max_running_requests + max_queued_requests
        self._num_places = 0
        self._open: dict[str, _Open] = {}
        self._flushes: set[asyncio.Future[bool]] = set()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._thread: EngineThread | None = None
        self.died = asyncio.Event()
        self.failure: EngineDied | None = None
        """Why the engine is gone; None while it is there."""
        self.is_draining = False
        self._is_over = False
        self.stats: EngineStats | None = None
        """As of the last step."""

    def start(self) -> None:
        """Start the engine's thread; must be called on the event loop."""
        self._thread = EngineThread(self._engine, self, asyncio.get_running_loop())
        self._thread.start()

    @property
    def num_open(self) -> int:
        """Requests that hold a place, those still being tokenized included."""
        return self._num_places

    @contextlib.contextmanager
    def generation(self, num_requests: int) -> Iterator[Generation]:
        """Reserve places for the requests of one answer.

        Raises EngineDied, ShuttingDown, QueueFull; InvalidRequest for more than there will ever be places.
        """
        self._check_room(num_requests)
        found = Generation(num_requests)
        self._num_places += num_requests
        self._is_idle.clear()
        try:
            yield found
        finally:
            for request_id in found.open_ids:
                del self._open[request_id]
                self._put(Abort(request_id))
            if found.open_ids:
                self._metrics.aborted(len(found.open_ids))
            found.open_ids.clear()
            self._free_places(found, found.num_places)

    async def submit(self, generation: Generation, requests: Sequence[Request], *, arrived_s: float) -> None:
        """Hand requests to the engine and wait until it has taken them. Raises RequestRefused or EngineDied.

        arrived_s: time.monotonic() when their HTTP request came.
        """
        if self.failure is not None:
            raise self.failure
        if self._is_over:
            raise ShuttingDown
        for request in requests:
            generation.open_ids.add(request.request_id)
            self._open[request.request_id] = _Open(generation, RequestTimes(arrived_s))
            self._put(Submit(request))
        await generation.accepted()

    async def flush(self) -> bool:
        """Empty the radix cache; False while requests are open. Raises EngineDied."""
        if self.failure is not None:
            raise self.failure
        if self._num_places:
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._flushes.add(done)
        done.add_done_callback(self._flushes.discard)
        self._put(Flush(done))
        return await done

    async def drain(self, limit_s: float) -> bool:
        """Take nothing more, and wait for what is open. False when the limit was over first; then the rest is told
        that the server shuts down, and dropped."""
        self.is_draining = True
        try:
            async with asyncio.timeout(limit_s):
                await self._is_idle.wait()
        except TimeoutError:
            self._is_over = True
            for entry in list(self._open.values()):
                entry.generation.fail(ShuttingDown())
            return False
        return True

    def stop(self, limit_s: float) -> bool:
        """End the engine's thread; False when it is in a step that does not end within the limit."""
        if self._thread is None:
            return True
        self._put(Stop())
        return self._thread.join(limit_s)

    # --- what the engine's thread tells

    def on_accepted(self, request_id: str) -> None:
        """The engine took the request."""
        if request_id in self._open:
            self._open[request_id].generation.accept()

    def on_refused(self, request_id: str, refusal: RequestRefused) -> None:
        """The engine did not take it."""
        if request_id in self._open:
            generation = self._open[request_id].generation
            self._close(request_id)
            generation.fail(refusal)

    def on_step(self, report: StepReport) -> None:
        """Hand out what the step brought. Metrics first, so that a client that has its answer finds it counted."""
        self.stats = report.stats
        self._metrics.step(report)
        for output in report.outputs:
            entry = self._open.get(output.request_id)
            if entry is not None:
                self._hand_out(entry, output, report.at_s)

    def on_flushed(self, done: asyncio.Future[bool], is_flushed: bool) -> None:
        """The cache is empty, or it was in use."""
        if not done.done():
            done.set_result(is_flushed)

    def on_died(self, reason: str) -> None:
        """Tell everyone who waits."""
        self.failure = EngineDied(f"the engine died: {reason}")
        _log.error("the engine died: %s", reason)
        for entry in list(self._open.values()):
            entry.generation.fail(self.failure)
        for done in list(self._flushes):
            done.set_exception(self.failure)
        self.died.set()

    # --- inside

    def _check_room(self, num_requests: int) -> None:
        if self.failure is not None:
            raise self.failure
        if self.is_draining:
            raise ShuttingDown
        if num_requests > self._max_open:
            raise InvalidRequest("n", f"{num_requests} choices asked for at once, the limit is {self._max_open}")
        if self._num_places + num_requests > self._max_open:
            num_waiting = max(0, self._num_places - (self._max_open - self._max_queued))
            raise QueueFull(
                num_waiting=num_waiting, max_waiting_requests=self._max_queued, retry_after_s=self._retry_after_s()
            )

    def _retry_after_s(self) -> float:
        """As long as a request took lately: then one place is likely free."""
        return max(_RETRY_S, min(60.0, self._metrics.recent_request_s))

    def _hand_out(self, entry: _Open, output: Output, at_s: float) -> None:
        self._metrics.output(entry.times, output, at_s)
        entry.generation.deliver(output)
        if output.finish_reason is not None:
            self._close(output.request_id)

    def _close(self, request_id: str) -> None:
        generation = self._open.pop(request_id).generation
        generation.open_ids.discard(request_id)
        self._free_places(generation, 1)

    def _free_places(self, generation: Generation, count: int) -> None:
        generation.num_places -= count
        self._num_places -= count
        if not self._num_places:
            self._is_idle.set()

    def _put(self, command: Submit | Abort | Flush | Stop) -> None:
        if self._thread is None:
            raise RuntimeError("the engine's thread was not started")
        self._thread.commands.put(command)
