"""Sends the requests of one trial: together, on a schedule, or in pairs; tries again, and records every attempt.

Recording does not hold up the streams beside it. What the requests ask is `trial`'s business, one request is
`request`'s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from deepdraft.bench.arrival import rate, schedule_s
from deepdraft.bench.health import wait_for_server
from deepdraft.bench.plan import PlannedTrial, num_trial_requests
from deepdraft.bench.prompt import Prompt
from deepdraft.bench.request import Ask, Role, connected, encoded, is_transient, measured, unsent
from deepdraft.bench.session import Session
from deepdraft.errors import RequestFailed, ResultsError, ServerError
from deepdraft.records import Failure, Line, Measurement
from deepdraft.transport.exchange import Exchange

_RETRY_WAIT_S = 1.0
_MAX_RETRY_WAIT_S = 60.0
_OPEN_AHEAD_S = 0.2


class Sender:
    """Sends for one trial. `results` grows as requests end; `active` are those under way."""

    def __init__(self, session: Session, planned: PlannedTrial, flush: Callable[[], Awaitable[None]]) -> None:
        """`flush` empties the server's cache between the two requests of a pair that is alone."""
        self.session = session
        self.planned = planned
        self.active: list[Exchange] = []
        self.results: list[Measurement] = []
        self.held: Measurement | None = None
        """Measured and not yet recorded: the counters read after it belong into its record."""
        self.sent_prompts: dict[tuple[int, str, int], Prompt] = {}
        """(request index, role, attempt) -> what was sent."""
        self._flush = flush
        self._has_lines = asyncio.Event()
        self._is_over = False

    @property
    def num_requests(self) -> int:
        """Requests of the trial; a pair counts as one."""
        return num_trial_requests(self.session.spec, self.planned.concurrency)

    @property
    def is_alone(self) -> bool:
        """One request, or the two of a pair one after the other."""
        return self.num_requests == 1

    def encoded(self, prompt: Prompt, index: int, role: Role, max_tokens: int) -> Ask:
        """The request of this trial for a prompt."""
        is_open_loop = rate(self.session.spec.arrival) is not None
        return encoded(
            self.session,
            prompt,
            trial_id=self.planned.trial_id,
            request_index=index,
            role=role,
            is_warmup=self.planned.is_warmup,
            max_tokens=max_tokens,
            num_others=(self.num_requests if is_open_loop else self.planned.concurrency) - 1,
        )

    async def send(self, asks: Sequence[Ask]) -> None:
        """Send all of them and wait for their ends; failures are recorded.

        Raises ServerLost when the server went away and did not come back in time, ResultsError when a line can't be
        written: the requests still in flight are then given up.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._record())
                await self._send_as_asked(asks)
                self._is_over = True
                self._has_lines.set()
        except BaseExceptionGroup as faults:
            raise _first(faults) from None

    async def check_server(self, failure: Failure) -> None:
        """After a failure that may mean the server is gone: wait for it, so that the next request is not lost too.

        Raises ServerLost when it does not come back in time.
        """
        status = failure.http_status
        if status is None or not 400 <= status < 500:
            await wait_for_server(self.session)

    def keep_held(self) -> None:
        """Record what was measured before the trial was cut short; a full disk keeps it in memory."""
        if self.held is not None:
            with suppress(ResultsError):
                self.session.recorder.keep(self.held)

    # --- the three orders

    async def _send_as_asked(self, asks: Sequence[Ask]) -> None:
        spec = self.session.spec
        if spec.method == "two-point":
            await self._send_pairs(asks)
            return
        planned = self.planned
        seed = hash((spec.seed, planned.context_len, planned.concurrency, planned.repeat_index))
        times_s = schedule_s(spec.arrival, len(asks), seed)
        if times_s is None:
            await self._send_closed(asks)
        else:
            await self._send_open(asks, times_s)

    async def _send_closed(self, asks: Sequence[Ask]) -> None:
        """Keep `concurrency` requests in flight; the first ones start together, on connections opened before."""
        waiting = list(asks)[::-1]
        num_workers = min(self.planned.concurrency, len(asks))
        gate = _Gate(num_workers)

        async def worker() -> None:
            is_first = True
            while waiting:
                await self._send_one(waiting.pop(), wait=gate.passed if is_first else None)
                is_first = False

        await _gathered([worker() for _ in range(num_workers)])

    async def _send_open(self, asks: Sequence[Ask], times_s: Sequence[float]) -> None:
        """Send each request when the schedule says, whatever became of the others."""
        origin_at = time.monotonic() + _OPEN_AHEAD_S * 2

        async def one(ask: Ask, due_at: float) -> None:
            await asyncio.sleep(max(0.0, due_at - _OPEN_AHEAD_S - time.monotonic()))

            async def until_due() -> None:
                await asyncio.sleep(max(0.0, due_at - time.monotonic()))

            await self._send_one(ask, wait=until_due, scheduled_at_s=due_at - self.session.started_at)

        await _gathered([one(ask, origin_at + at_s) for ask, at_s in zip(asks, times_s, strict=True)])

    async def _send_pairs(self, asks: Sequence[Ask]) -> None:
        """The two requests of a pair one after the other, each on an emptied cache; pairs side by side."""
        pairs = list(zip(asks[::2], asks[1::2], strict=True))[::-1]

        async def worker() -> None:
            while pairs:
                first, second = pairs.pop()
                await self._send_one(first)
                if self.is_alone:
                    await self._flush()
                await self._send_one(second)

        await _gathered([worker() for _ in range(min(self.planned.concurrency, len(pairs)))])

    # --- one request

    async def _send_one(
        self, ask: Ask, *, wait: Callable[[], Awaitable[None]] | None = None, scheduled_at_s: float | None = None
    ) -> None:
        """Send a request, and again when it failed for a passing reason; every attempt is recorded."""
        num_retries = self.session.spec.limits.num_retries
        for attempt in range(num_retries + 1):
            result = await self._attempt(ask, attempt, wait, scheduled_at_s)
            wait = None
            self._keep(result)
            if result.failure is None:
                return
            if attempt == num_retries or not is_transient(result):
                break
            await self._before_retry(result.failure)
            try:
                prompt = ask.prompt if ask.is_repeat else await self.session.maker.same_body(ask.prompt)
            except (ServerError, RequestFailed) as error:
                self.session.note("retry", f"{_name(result)} is not sent again: {error.message}")
                break
            ask = self.encoded(prompt, ask.request_index, ask.role, ask.max_tokens)
        assert result.failure is not None
        await self.check_server(result.failure)

    async def _attempt(
        self, ask: Ask, attempt: int, wait: Callable[[], Awaitable[None]] | None, scheduled_at_s: float | None
    ) -> Measurement:
        self.sent_prompts[ask.request_index, ask.role, attempt] = ask.prompt
        connection, error = None, None
        try:
            connection = await connected(self.session)
        except ServerError as caught:
            error = caught
        if wait is not None:
            await wait()
        if connection is None:
            assert error is not None
            return unsent(self.session, ask, error, attempt, scheduled_at_s)
        return await measured(
            self.session, ask, connection, attempt=attempt, scheduled_at_s=scheduled_at_s, active=self.active
        )

    async def _before_retry(self, failure: Failure) -> None:
        wait_s = failure.retry_after_s or _RETRY_WAIT_S
        if wait_s > _MAX_RETRY_WAIT_S:
            self.session.note("retry", f"the server asks to wait {wait_s:.0f} s; waiting {_MAX_RETRY_WAIT_S:.0f} s")
        await asyncio.sleep(min(wait_s, _MAX_RETRY_WAIT_S))
        await wait_for_server(self.session)

    # --- recording

    def _keep(self, result: Measurement) -> None:
        self.results.append(result)
        session = self.session
        if result.failure is not None:
            words = f"{_name(result)}: {result.failure.name}, {result.failure.message}"
            self._take(result, session.said("failure", words))
        elif self.is_alone and result.role == "single":
            self.held = result
        else:
            self._take(replace(result, acceptance=session.adapter.acceptance(result.trace, is_alone=False)))

    def _take(self, *lines: Line) -> None:
        self.session.recorder.take(*lines)
        self._has_lines.set()

    async def _record(self) -> None:
        """Write lines as they come, until all is sent and written."""
        recorder = self.session.recorder
        while not (self._is_over and recorder.num_unsaved == 0):
            await self._has_lines.wait()
            self._has_lines.clear()
            await recorder.save()


def _name(result: Measurement) -> str:
    attempt = f", attempt {result.attempt + 1}" if result.attempt else ""
    return f"{result.trial_id} request {result.request_index}{attempt}"


class _Gate:
    """Opens when all have come: requests that are to start together do so after the last connection stands."""

    def __init__(self, num_expected: int) -> None:
        self._missing = num_expected
        self._open = asyncio.Event()

    async def passed(self) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._open.set()
        await self._open.wait()


async def _gathered(work: Sequence[Awaitable[None]]) -> None:
    """Run all of it; the first fault ends the others and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(_run(each))
    except BaseExceptionGroup as faults:
        raise _first(faults) from None


def _first(faults: BaseExceptionGroup[BaseException]) -> BaseException:
    fault: BaseException = faults
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


async def _run(work: Awaitable[None]) -> None:
    await work
