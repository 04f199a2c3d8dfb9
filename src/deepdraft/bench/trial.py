"""Runs one trial: prompts made, caches emptied, counters read, requests sent and watched, counters read again."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from deepdraft.bench import needle
from deepdraft.bench.cold import flush, standing_steps
from deepdraft.bench.plan import PlannedTrial, PointRefused, decode_len
from deepdraft.bench.prompt import Prompt
from deepdraft.bench.request import Ask, is_transient
from deepdraft.bench.sending import Sender
from deepdraft.bench.session import Session
from deepdraft.errors import HttpStatus, RequestFailed, ServerError, UsageError
from deepdraft.metrics import output_tokens, prompt_tokens, ttft_s
from deepdraft.records import (
    ColdStep,
    Failure,
    Measurement,
    PromptFacts,
    RequestTrace,
    ServerReading,
    Trial,
)
from deepdraft.transport.lag import LagProbe

_TICK_S = 0.25
_FIRST_SAMPLE_S = 3.0
_SAMPLE_S = 10.0
_SETTLE_S = 1.5
"""How long the server's counters are given to catch up with the answer it already sent."""
_SETTLE_STEPS_S = (0.01, 0.2)
"""First and longest pause between two looks at them."""


async def run_trial(session: Session, planned: PlannedTrial) -> tuple[Trial, tuple[Measurement, ...]]:
    """Run the trial and record each request as it ends, and the trial at its end. Returns both.

    Raises ServerLost when the server went away and did not come back in time, ResultsError when a line can't be
    written; the trial then has no line and is run again on resume. Raises PointRefused when no prompt of this
    length can be made.
    """
    run = _TrialRun(session, planned)
    trial = await run.run()
    return trial, tuple(run.sender.results)


class _TrialRun:
    def __init__(self, session: Session, planned: PlannedTrial) -> None:
        self.session = session
        self.planned = planned
        self.sender = Sender(session, planned, self._flush)
        self.cold_steps: list[ColdStep] = []
        self.during: list[ServerReading] = []

    async def run(self) -> Trial:
        try:
            return await self._run()
        finally:
            self.sender.keep_held()

    async def _run(self) -> Trial:
        session, sender = self.session, self.sender
        began_s = session.now_s()
        asks = await self._asks_or_failures()
        if asks is None:
            trial = self._trial(began_s)
            session.recorder.keep(trial)
            return trial
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
                    await sender.send(asks)
                finally:
                    for watcher in watchers:
                        watcher.cancel()
                    await asyncio.gather(*watchers, return_exceptions=True)
                cpu_s = time.process_time() - cpu_before_s
                lag = lag_probe.lag(began_at, time.monotonic())
        after = await self._reading_after(before)
        held, sender.held = sender.held, None
        if held is not None:
            held = sender.results[-1] = self._with_acceptance(held, before, after)
        trial = replace(
            self._trial(started_at_s),
            before=before,
            after=after,
            during=tuple(self.during),
            acceptance=session.adapter.acceptance_between(before, after),
            num_probe_requests=session.adapter.num_probe_requests - num_probes,
            loop_lag_max_s=lag.max_s,
            loop_lag_p99_s=lag.p99_s,
            client_cpu_s=cpu_s,
        )
        session.recorder.keep(*([held] if held is not None else []), trial)
        await self._learn()
        return trial

    def _trial(self, started_at_s: float) -> Trial:
        planned = self.planned
        return Trial(
            trial_id=planned.trial_id,
            context_len=planned.context_len,
            concurrency=planned.concurrency,
            repeat_index=planned.repeat_index,
            is_warmup=planned.is_warmup,
            started_at_s=started_at_s,
            ended_at_s=self.session.now_s(),
            cold_steps=tuple(self.cold_steps),
        )

    # --- before

    async def _asks_or_failures(self) -> list[Ask] | None:
        """The requests to send; None when their prompts can't be made since the server won't count: each of them is
        then recorded as failed."""
        session, sender = self.session, self.sender
        for attempt in range(session.spec.limits.num_retries + 1):
            try:
                return await self._asks()
            except UsageError as error:
                raise PointRefused(error.message) from None
            except (ServerError, RequestFailed) as error:
                failure = Failure(
                    name=type(error).__name__,
                    message=f"counting the prompt failed: {error.message}",
                    http_status=error.status if isinstance(error, HttpStatus) else None,
                )
            failed = [self._unmade(index, failure, attempt) for index in range(sender.num_requests)]
            sender.results += failed
            session.recorder.keep(*failed, session.said("failure", f"{self.planned.trial_id}: {failure.message}"))
            await sender.check_server(failure)
            if not is_transient(failed[0]):
                break
        return None

    def _unmade(self, index: int, failure: Failure, attempt: int) -> Measurement:
        """The record of a request whose prompt could not be made."""
        spec, planned = self.session.spec, self.planned
        return Measurement(
            trial_id=planned.trial_id,
            request_index=index,
            attempt=attempt,
            is_warmup=planned.is_warmup,
            started_at_s=self.session.now_s(),
            max_tokens=decode_len(spec, planned.context_len),
            prompt=PromptFacts(asked_len=planned.context_len, text_kind=spec.text),
            trace=RequestTrace(),
            failure=failure,
        )

    async def _asks(self) -> list[Ask]:
        spec, sender = self.session.spec, self.sender
        output_len = decode_len(spec, self.planned.context_len)
        asks: list[Ask] = []
        for index in range(sender.num_requests):
            prompt = await self._prompt(index)
            for note in prompt.notes:
                self.session.note_once("prompt", note)
            if spec.method == "two-point":
                other = prompt if spec.keep_cache else await self.session.maker.same_body(prompt)
                asks.append(sender.encoded(prompt, index, "first", 1))
                asks.append(sender.encoded(other, index, "second", 1 + output_len))
            else:
                asks.append(sender.encoded(prompt, index, "single", output_len))
        return asks

    async def _prompt(self, index: int) -> Prompt:
        session, planned = self.session, self.planned
        spec = session.spec
        # Bodies are numbered, so that a resumed sweep goes on with texts that were not sent before.
        body_index = planned.repeat_index * self.sender.num_requests + index
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

    async def _flush(self) -> None:
        if not self.session.spec.keep_cache:
            self.cold_steps += await flush(self.session.adapter)

    # --- while it runs

    async def _tick(self) -> None:
        while True:
            self.session.progress.tick(self._state())
            await asyncio.sleep(_TICK_S)

    def _state(self) -> str:
        active = self.sender.active
        if not active:
            return "preparing"
        streaming = [exchange for exchange in active if exchange.first_output_at is not None]
        num_waiting = len(active) - len(streaming)
        num_events = sum(len(exchange.events) for exchange in streaming)
        if len(active) == 1:
            return f"streaming, {num_events} events" if streaming else "waiting for the first token"
        parts = [f"{num_waiting} waiting for the first token"] if num_waiting else []
        parts += [f"{len(streaming)} streaming, {num_events} events"] if streaming else []
        return ", ".join(parts)

    async def _sample(self) -> None:
        """Look at the server's load now and then during long prefills, never while tokens arrive: reading a metrics
        page takes the client milliseconds, which would spoil their stamps."""
        await asyncio.sleep(_FIRST_SAMPLE_S)
        while True:
            is_streaming = any(exchange.first_output_at is not None for exchange in self.sender.active)
            if self.sender.active and not is_streaming:
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
        generated = [output_tokens(result.trace) for result in self.sender.results if result.failure is None]
        expected = sum(value for value in generated if value is not None)
        deadline, step_s = time.monotonic() + _SETTLE_S, _SETTLE_STEPS_S[0]
        while time.monotonic() < deadline and not _has_caught_up(before, after, expected):
            await asyncio.sleep(step_s)
            step_s = min(2 * step_s, _SETTLE_STEPS_S[1])
            latest = await session.adapter.reading(session.now_s())
            after = latest or after
        return after

    def _with_acceptance(
        self, result: Measurement, before: ServerReading | None, after: ServerReading | None
    ) -> Measurement:
        is_alone = len(self.sender.results) == 1  # a failed attempt before it may have generated too
        found = self.session.adapter.acceptance(result.trace, before, after, is_alone=is_alone)
        return replace(result, acceptance=found)

    async def _learn(self) -> None:
        """Let later prompts and limits profit from what was seen."""
        session, sender = self.session, self.sender
        for result in sender.results:
            if result.failure is not None:
                continue
            counted, seen_s = prompt_tokens(result.trace), ttft_s(result.trace)
            if counted is not None:
                prompt = sender.sent_prompts[result.request_index, result.role, result.attempt]
                with suppress(ServerError, RequestFailed):  # then the next prompt is made without this count
                    await session.maker.feedback(prompt, counted)
            if seen_s is not None:
                before_s = session.seen_ttft.get(self.planned.context_len, 0.0)
                session.seen_ttft[self.planned.context_len] = max(seen_s, before_s)


def _has_caught_up(before: ServerReading, after: ServerReading, expected_tokens: int) -> bool:
    if after.num_running or after.num_waiting:
        return False
    made, made_before = after.counters.get("generation_tokens"), before.counters.get("generation_tokens", 0.0)
    if made is None or made < made_before:
        return True  # it does not count them, or was restarted and will never get there
    # Some engines count the token that prefill samples apart, so one missing a request is no lag.
    return made - made_before >= expected_tokens


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collection takes milliseconds in the middle of the stamps; there is time for it between trials."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
