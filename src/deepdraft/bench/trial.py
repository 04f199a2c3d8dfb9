"""Runs one trial: prompts made, caches emptied, counters read, requests sent and watched, counters read again."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from deepdraft.bench import needle
from deepdraft.bench.arrival import schedule_s
from deepdraft.bench.cold import flush, standing_steps
from deepdraft.bench.health import wait_for_server
from deepdraft.bench.plan import PlannedTrial, decode_len, num_trial_requests
from deepdraft.bench.prompt import Prompt
from deepdraft.bench.request import Ask, connected, encoded, is_transient, measured, unsent
from deepdraft.bench.session import Session
from deepdraft.errors import ServerError
from deepdraft.metrics import output_tokens, prompt_tokens, ttft_s
from deepdraft.records import ColdStep, Measurement, ServerReading, Trial
from deepdraft.transport.exchange import Exchange
from deepdraft.transport.lag import LagProbe

_TICK_S = 0.25
_FIRST_SAMPLE_S = 3.0
_SAMPLE_S = 10.0
_SETTLE_S = 1.5
"""How long the server's counters are given to catch up with the answer it already sent."""
_SETTLE_STEP_S = 0.05
_RETRY_WAIT_S = 1.0
_MAX_RETRY_WAIT_S = 60.0
_OPEN_AHEAD_S = 0.2


async def run_trial(session: Session, planned: PlannedTrial) -> Trial:
    """Run the trial and record each request as it ends, and the trial at its end.

    Raises ServerLost when the server went away and did not come back in time, ResultsError when a line can't be
    written; the trial then has no line and is run again on resume.
    """
    return await _TrialRun(session, planned).run()


class _TrialRun:
    def __init__(self, session: Session, planned: PlannedTrial) -> None:
        self.session = session
        self.planned = planned
        self.active: list[Exchange] = []
        self.results: list[Measurement] = []
        self.cold_steps: list[ColdStep] = []
        self.during: list[ServerReading] = []
        self.sent_prompts: dict[tuple[int, str, int], Prompt] = {}

    async def run(self) -> Trial:
        session, planned = self.session, self.planned
        asks = await self._asks()
        head = None if session.spec.keep_cache else asks[0].prompt.head
        self.cold_steps += standing_steps(session.adapter, head)
        await self._flush()
        started_at_s = session.now_s()
        num_probes = session.adapter.num_probe_requests
        before = await session.adapter.reading(session.now_s())
        began_at, cpu_before_s = time.monotonic(), time.process_time()
        with _no_garbage_collection():
            async with LagProbe() as lag_probe:
                watchers = [asyncio.create_task(self._tick()), asyncio.create_task(self._sample())]
                try:
                    await self._send(asks)
                finally:
                    for watcher in watchers:
                        watcher.cancel()
                    await asyncio.gather(*watchers, return_exceptions=True)
                cpu_s = time.process_time() - cpu_before_s
                lag = lag_probe.lag(began_at, time.monotonic())
        after = await self._reading_after(before)
        if self._is_alone:
            self.results = [self._with_acceptance(result, before, after) for result in self.results]
        trial = Trial(
            trial_id=planned.trial_id,
            context_len=planned.context_len,
            concurrency=planned.concurrency,
            repeat_index=planned.repeat_index,
            is_warmup=planned.is_warmup,
            started_at_s=started_at_s,
            ended_at_s=session.now_s(),
            cold_steps=tuple(self.cold_steps),
            before=before,
            after=after,
            during=tuple(self.during),
            acceptance=session.adapter.acceptance_between(before, after),
            num_probe_requests=session.adapter.num_probe_requests - num_probes,
            loop_lag_max_s=lag.max_s,
            loop_lag_p99_s=lag.p99_s,
            client_cpu_s=cpu_s,
        )
        if self._is_alone:
            # One line more is worth it here: the request's record needs the counters read after it.
            session.recorder.keep(*self.results, trial)
        else:
            session.recorder.keep(trial)
        await self._learn()
        return trial

    @property
    def _is_alone(self) -> bool:
        """One request (or the two of a pair, one after the other) between the two readings."""
        return num_trial_requests(self.session.spec, self.planned.concurrency) == 1

    # --- before

    async def _asks(self) -> list[Ask]:
        session, planned = self.session, self.planned
        is_pair = session.spec.method == "two-point"
        asks: list[Ask] = []
        for index in range(num_trial_requests(session.spec, planned.concurrency)):
            prompt = await self._prompt(index)
            for note in prompt.notes:
                session.note_once("prompt", note)
            output_len = decode_len(session.spec, planned.context_len)
            if is_pair:
                other = await session.maker.same_body(prompt)
                asks.append(self._encoded(prompt, index, "first", 1))
                asks.append(self._encoded(other, index, "second", 1 + output_len))
            else:
                asks.append(self._encoded(prompt, index, "single", output_len))
        return asks

    async def _prompt(self, index: int) -> Prompt:
        session, planned = self.session, self.planned
        spec = session.spec
        # Bodies are numbered, so that a resumed sweep goes on with texts that were not sent before.
        body_index = planned.repeat_index * num_trial_requests(spec, planned.concurrency) + index
        body_index = body_index * 1_000 + planned.concurrency
        if planned.is_warmup:
            body_index = -1 - body_index
        if spec.keep_cache and not planned.is_warmup:
            key = (planned.context_len, index)
            if key not in session.kept_prompts:
                session.kept_prompts[key] = await session.maker.make(planned.context_len, body_index=index)
            return session.kept_prompts[key]
        hidden = None
        if spec.needle_depth is not None:
            hidden = needle.needle(spec.seed * 1_000 + body_index, spec.needle_depth)
        return await session.maker.make(planned.context_len, needle=hidden, body_index=body_index)

    def _encoded(self, prompt: Prompt, index: int, role: str, max_tokens: int) -> Ask:
        return encoded(
            self.session,
            prompt,
            trial_id=self.planned.trial_id,
            concurrency=self.planned.concurrency,
            request_index=index,
            role=role,  # type: ignore[arg-type]
            is_warmup=self.planned.is_warmup,
            max_tokens=max_tokens,
        )

    async def _flush(self) -> None:
        if not self.session.spec.keep_cache:
            self.cold_steps += await flush(self.session.adapter)

    # --- sending

    async def _send(self, asks: Sequence[Ask]) -> None:
        if self.session.spec.method == "two-point":
            await self._send_pairs(asks)
            return
        times_s = schedule_s(self.session.spec.arrival, len(asks), self._schedule_seed())
        if times_s is None:
            await self._send_closed(asks)
        else:
            await self._send_open(asks, times_s)

    def _schedule_seed(self) -> int:
        planned = self.planned
        return hash((self.session.spec.seed, planned.context_len, planned.concurrency, planned.repeat_index))

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
                if self._is_alone:
                    await self._flush()
                await self._send_one(second)

        await _gathered([worker() for _ in range(min(self.planned.concurrency, len(pairs)))])

    async def _send_one(
        self, ask: Ask, *, wait: Callable[[], Awaitable[None]] | None = None, scheduled_at_s: float | None = None
    ) -> None:
        """Send a request, and again when it failed for a passing reason; every attempt is recorded."""
        session = self.session
        for attempt in range(session.spec.limits.num_retries + 1):
            self.sent_prompts[ask.request_index, ask.role, attempt] = ask.prompt
            connection, error = None, None
            try:
                connection = await connected(session)
            except ServerError as caught:
                error = caught
            if wait is not None:
                await wait()
                wait = None
            if connection is None:
                assert error is not None
                result = unsent(session, ask, error, attempt, scheduled_at_s)
            else:
                result = await measured(
                    session, ask, connection, attempt=attempt, scheduled_at_s=scheduled_at_s, active=self.active
                )
            self._keep(result)
            if result.failure is None or attempt == session.spec.limits.num_retries or not is_transient(result):
                break
            await self._before_retry(result)
            prompt = ask.prompt if ask.is_repeat else await session.maker.same_body(ask.prompt)
            ask = self._encoded(prompt, ask.request_index, ask.role, ask.max_tokens)
        if result.failure is not None:
            await self._check_server(result)

    def _keep(self, result: Measurement) -> None:
        if not self._is_alone:
            result = self._with_acceptance(result, None, None)
            self.session.recorder.keep(result)
        self.results.append(result)
        if result.failure is not None:
            self.session.note("failure", f"{self._name(result)}: {result.failure.name}, {result.failure.message}")

    def _name(self, result: Measurement) -> str:
        attempt = f", attempt {result.attempt + 1}" if result.attempt else ""
        return f"{result.trial_id} request {result.request_index}{attempt}"

    async def _before_retry(self, result: Measurement) -> None:
        assert result.failure is not None
        wait_s = result.failure.retry_after_s or _RETRY_WAIT_S
        if wait_s > _MAX_RETRY_WAIT_S:
            self.session.note("retry", f"the server asks to wait {wait_s:.0f} s; waiting {_MAX_RETRY_WAIT_S:.0f} s")
        await asyncio.sleep(min(wait_s, _MAX_RETRY_WAIT_S))
        await wait_for_server(self.session)

    async def _check_server(self, result: Measurement) -> None:
        """After a failure that may mean the server is gone: wait for it, so that the next request is not lost too."""
        assert result.failure is not None
        status = result.failure.http_status
        if status is None or status >= 500:
            await wait_for_server(self.session)

    # --- while it runs

    async def _tick(self) -> None:
        while True:
            self.session.progress.tick(self._state())
            await asyncio.sleep(_TICK_S)

    def _state(self) -> str:
        streaming = [exchange for exchange in self.active if exchange.first_output_at is not None]
        waiting = len(self.active) - len(streaming)
        if not self.active:
            return "preparing"
        parts = [f"{waiting} waiting for the first token"] if len(self.active) > 1 and waiting else []
        if waiting and len(self.active) == 1:
            parts.append("waiting for the first token")
        if streaming:
            num_events = sum(len(exchange.events) for exchange in streaming)
            parts.append(
                f"{len(streaming)} streaming, {num_events} events"
                if len(self.active) > 1
                else f"streaming, {num_events} events"
            )
        return ", ".join(parts)

    async def _sample(self) -> None:
        """Look at the server's load now and then during long prefills, never while tokens arrive: reading a metrics
        page takes the client milliseconds, which would spoil their stamps."""
        await asyncio.sleep(_FIRST_SAMPLE_S)
        while True:
            is_streaming = any(exchange.first_output_at is not None for exchange in self.active)
            if self.active and not is_streaming:
                found = await self.session.adapter.reading(self.session.now_s())
                if found is not None:
                    self.during.append(found)
            await asyncio.sleep(_SAMPLE_S)

    # --- after

    async def _reading_after(self, before: ServerReading | None) -> ServerReading | None:
        """A reading once the server's counters have caught up with what it sent, or have had the time to."""
        session = self.session
        after = await session.adapter.reading(session.now_s())
        if before is None or after is None:
            return after
        generated = [output_tokens(result.trace) for result in self.results if result.failure is None]
        expected = sum(value for value in generated if value is not None)
        deadline = time.monotonic() + _SETTLE_S
        while time.monotonic() < deadline and not _has_caught_up(before, after, expected):
            await asyncio.sleep(_SETTLE_STEP_S)
            latest = await session.adapter.reading(session.now_s())
            after = latest or after
        return after

    def _with_acceptance(
        self, result: Measurement, before: ServerReading | None, after: ServerReading | None
    ) -> Measurement:
        if result.failure is not None:
            return result
        is_alone = self._is_alone and len(self.results) == 1
        found = self.session.adapter.acceptance(result.trace, before, after, is_alone=is_alone)
        return replace(result, acceptance=found)

    async def _learn(self) -> None:
        """Let later prompts and limits profit from what was seen."""
        session = self.session
        for result in self.results:
            counted = prompt_tokens(result.trace)
            prompt = self.sent_prompts.get((result.request_index, result.role, result.attempt))
            if result.failure is None and counted is not None and prompt is not None:
                await session.maker.feedback(prompt, counted)
            seen_s = ttft_s(result.trace)
            if result.failure is not None or seen_s is None:
                continue
            session.seen_ttft.append((self.planned.context_len, seen_s))


def _has_caught_up(before: ServerReading, after: ServerReading, expected_tokens: int) -> bool:
    if after.num_running or after.num_waiting:
        return False
    made = after.counters.get("generation_tokens")
    if made is None:
        return True
    # Some engines count the token that prefill samples apart, so one missing a request is no lag.
    return made - before.counters.get("generation_tokens", 0.0) >= expected_tokens


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


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collection takes milliseconds in the middle of the stamps; there is time for it between trials."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
