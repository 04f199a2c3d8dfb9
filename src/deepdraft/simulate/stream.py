"""One streamed answer: which events go out, when, and in which order.

The engine says when tokens exist, the dialect what an event looks like, the wire how its bytes go out; the faults
that strike inside a stream are here as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import groupby
from typing import Any

from deepdraft.simulate.clock import sleep_until
from deepdraft.simulate.dialects.openai import OpenAiDialect
from deepdraft.simulate.engine import Engine, Generation, Token
from deepdraft.simulate.http import Reply
from deepdraft.simulate.spec import Fault
from deepdraft.simulate.wire import Wire

_PING_TEXT = b"ping"


class StreamBroken(Exception):
    """The stream ends here, by a fault."""


class Streamer:
    """Streams one generation."""

    def __init__(
        self,
        *,
        dialect: OpenAiDialect,
        engine: Engine,
        generation: Generation,
        reply: Reply,
        fault: Fault | None,
        die: Callable[[Fault], None],
    ) -> None:
        self._dialect = dialect
        self._engine = engine
        self._generation = generation
        self._reply = reply
        self._fault = fault
        self._die = die
        self._confounds = dialect.confounds
        self._shape = generation.ask.shape
        self._wire = Wire(reply, self._confounds, generation.truth, f"wire:{generation.truth.ordinal}")
        self._num_sent = 0
        self._pending: list[Token] = []
        role = self._confounds.role_chunk
        self._role = dialect.default_role_chunk if role == "dialect" else role
        if self._shape != "chat":
            self._role = "none"
        events_per = self._confounds.events_per
        self._is_per_token = (dialect.default_events_per if events_per == "dialect" else events_per) == "token"

    async def run(self) -> None:
        """Send the whole stream."""
        generation = self._generation
        self._reply.start_stream(200, self._dialect.stream_headers(generation))
        generation.truth.status = 200
        async with self._pings():
            try:
                if self._role == "early":
                    await sleep_until(generation.truth.received_s + self._confounds.role_delay_s)
                    await self._wire.event(self._dialect.role_event(generation))
                    await self._wire.flush()
                async with self._engine.admitted(generation):
                    await self._before_first_token()
                    await self._tokens()
                await self._ending()
            except StreamBroken:
                return
        generation.truth.end_s = time.monotonic()
        self._reply.end_stream()

    # --- before the first token

    async def _before_first_token(self) -> None:
        """Events that carry no token, spread over the prefill."""
        generation, dialect = self._generation, self._dialect
        num_progress = self._confounds.progress_events
        if generation.ask.wants_progress:
            num_progress = max(2, num_progress)
        done_fracs = [index / max(1, num_progress - 1) for index in range(num_progress)]
        quiet = [(done_frac, self._progress(done_frac)) for done_frac in done_fracs]
        contents: list[str | None] = [None] * self._confounds.null_events
        contents += [""] * self._confounds.empty_events
        for position, content in enumerate(contents, start=1):
            event = dialect.empty_event(generation, content)
            quiet.append((position / (len(contents) + 1), partial(_constant, event)))
        for frac, make in sorted(quiet, key=lambda entry: entry[0]):
            elapsed_s = generation.prefill_time_s * frac
            await sleep_until(generation.prefill_start_s + elapsed_s)
            await self._wire.event(make(elapsed_s))
            await self._wire.flush()

    def _progress(self, done_frac: float) -> Callable[[float], dict[str, Any]]:
        generation = self._generation
        uncached = generation.prompt_len - generation.cached_len
        processed = generation.cached_len + round(done_frac * uncached)
        return lambda elapsed_s: self._dialect.progress_event(generation, processed, elapsed_s)

    # --- tokens

    async def _tokens(self) -> None:
        if self._fault is not None and self._fault.kind == "empty_stream":
            await sleep_until(self._generation.prefill_due_s)
            return
        if self._fault is not None and self._breaks_at() == 0:
            await sleep_until(self._generation.prefill_due_s)
            await self._break()
        async with contextlib.aclosing(self._engine.commits(self._generation)) as commits:
            async for made in commits:
                self._pending += made
                if len(self._pending) >= self._confounds.stream_interval or self._generation.is_finished:
                    await self._send_pending()

    def _breaks_at(self) -> int | None:
        """How many tokens go out before the fault; None: it doesn't strike in the stream."""
        if self._fault is None or self._fault.kind not in ("stall_stream", "cut", "error_in_stream", "die"):
            return None
        return min(self._fault.after_tokens, len(self._generation.output) - 1)

    async def _send_pending(self) -> None:
        if self._num_sent == 0 and self._role == "with_first_token":
            await self._wire.event(self._dialect.role_event(self._generation))
        pending, self._pending = self._pending, []
        breaks_at = self._breaks_at()
        is_broken = breaks_at is not None and self._num_sent + len(pending) >= breaks_at
        if breaks_at is not None and is_broken:
            pending = pending[: breaks_at - self._num_sent]
        for tokens in self._groups(pending):
            await self._send(tokens)
        if is_broken:
            await self._break()

    def _groups(self, tokens: list[Token]) -> list[list[Token]]:
        if self._is_per_token:
            return [[token] for token in tokens]
        return [list(group) for _, group in groupby(tokens, key=lambda token: token.kind)]

    async def _send(self, tokens: list[Token]) -> None:
        generation = self._generation
        num_text = sum(1 for token in tokens if token.text)
        is_end = self._num_sent + len(tokens) == len(generation.output)
        rides = is_end and self._shape in self._dialect.finish_rides_on_text
        if num_text or rides:
            finish_reason = self._dialect.finish_reason(generation) if rides else None
            event = self._dialect.text_event(generation, tokens, self._num_sent, finish_reason)
            await self._wire.event(event, kinds=(tokens[0].kind,), num_tokens=num_text)
        self._num_sent += len(tokens)

    async def _break(self) -> None:
        assert self._fault is not None
        await self._wire.flush()
        if self._fault.kind == "stall_stream":
            await asyncio.get_running_loop().create_future()
        if self._fault.kind == "cut":
            self._reply.cut()
        if self._fault.kind == "error_in_stream":
            await self._wire.event(self._dialect.stream_error(self._fault.message))
            if self._dialect.sends_done(self._shape):
                await self._wire.done()
            await self._wire.flush()
            self._reply.end_stream()
        if self._fault.kind == "die":
            self._die(self._fault)
        raise StreamBroken

    # --- after the last token

    async def _ending(self) -> None:
        generation, dialect, wire = self._generation, self._dialect, self._wire
        is_empty = self._fault is not None and self._fault.kind == "empty_stream"
        placement = self._confounds.usage_placement
        if placement == "dialect":
            placement = dialect.usage_placement(self._shape)
        when = self._confounds.usage_when
        if when == "dialect":
            when = dialect.usage_when(self._shape)
        has_usage = placement != "absent" and (when == "always" or generation.ask.wants_usage)
        usage = dialect.usage(generation, 0 if is_empty else len(generation.output)) if has_usage else None
        rides = self._shape in dialect.finish_rides_on_text and self._num_sent > 0
        if self._confounds.trailing_pause_s and placement == "finish_chunk":
            await self._pause()
        if not is_empty and not rides:
            await wire.event(dialect.finish_event(generation, usage if placement == "finish_chunk" else None))
        if self._confounds.trailing_pause_s and placement != "finish_chunk":
            await self._pause()
        if not is_empty:
            for event in dialect.before_usage_events(generation):
                await wire.event(event)
            if usage is not None and (placement == "own_chunk" or rides):
                await wire.event(dialect.usage_event(generation, usage))
        done = self._confounds.done
        if done == "sent" or (done == "dialect" and dialect.sends_done(self._shape)):
            await wire.done()
        await wire.flush()

    async def _pause(self) -> None:
        await self._wire.flush()
        await asyncio.sleep(self._confounds.trailing_pause_s)

    # --- pings

    @contextlib.asynccontextmanager
    async def _pings(self) -> AsyncIterator[None]:
        """Comments during the silences of the block."""
        interval_s = self._confounds.ping_interval_s
        if interval_s is None:
            yield
            return
        task = asyncio.get_running_loop().create_task(self._ping(interval_s))
        try:
            yield
        finally:
            task.cancel()

    async def _ping(self, interval_s: float) -> None:
        while True:
            due_s = self._wire.last_write_s + interval_s
            await sleep_until(due_s)
            if time.monotonic() - self._wire.last_write_s >= interval_s:
                await self._wire.comment(_PING_TEXT)


def _constant(event: dict[str, Any], elapsed_s: float) -> dict[str, Any]:
    return event
