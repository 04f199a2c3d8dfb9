"""One generation request from body to last byte: read, counted, perhaps struck by a fault, refused, or answered."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from deepdraft.simulate.ask import Refused, Shape
from deepdraft.simulate.dialects.answer import Answer, json_answer
from deepdraft.simulate.dialects.body import json_body
from deepdraft.simulate.dialects.openai import OpenAiDialect
from deepdraft.simulate.engine import Engine, Generation
from deepdraft.simulate.error_body import error_answer
from deepdraft.simulate.faults import FaultPlan
from deepdraft.simulate.http import HttpRequest, Reply
from deepdraft.simulate.spec import Fault
from deepdraft.simulate.stream import Streamer
from deepdraft.simulate.truth import RequestTruth, Write


class Generator:
    """Serves the generation routes of one server and keeps the truth of each request."""

    def __init__(
        self,
        *,
        dialect: OpenAiDialect,
        engine: Engine,
        faults: FaultPlan,
        die: Callable[[Fault], None],
        num_connections: Callable[[], int],
    ) -> None:
        self._dialect = dialect
        self._engine = engine
        self._faults = faults
        self._die = die
        self._num_connections = num_connections
        self._num_requests = 0
        self.truths: list[RequestTruth] = []
        """Of all requests that ended, in the order they ended."""

    async def serve(self, request: HttpRequest, path: str, shape: Shape, reply: Reply) -> None:
        """Answer one request."""
        self._num_requests += 1
        truth = RequestTruth(
            request_id=uuid.uuid4().hex,
            ordinal=self._num_requests,
            route=path,
            is_stream=False,
            received_s=request.received_s,
            num_connections=self._num_connections(),
            num_running_before=len(self._engine.running) + self._engine.num_waiting,
        )
        try:
            await self._answer(request, shape, reply, truth)
        except asyncio.CancelledError:
            truth.is_cancelled = True
            raise
        finally:
            if truth.end_s is None:
                truth.end_s = time.monotonic()
            self.truths.append(truth)

    async def _answer(self, request: HttpRequest, shape: Shape, reply: Reply, truth: RequestTruth) -> None:
        dialect = self._dialect
        try:
            ask = dialect.ask(truth.route, shape, json_body(request.body))
        except Refused as refused:
            self._faults.strike("generate")
            self._refuse(refused, shape, reply, truth)
            return
        truth.is_stream = ask.is_stream
        truth.prompt_len = len(ask.prompt_ids)
        fault = self._faults.strike("generate", prompt_len=len(ask.prompt_ids))
        truth.fault = fault.kind if fault else None
        if fault is not None and fault.kind == "stall":
            await asyncio.get_running_loop().create_future()
        if fault is not None and fault.kind == "status":
            truth.status = fault.status
            reply.send(_identified(error_answer(fault, dialect), truth))
            return
        try:
            dialect.check_limits(ask)
        except Refused as refused:
            self._refuse(refused, shape, reply, truth)
            return
        late_s = fault.delay_s if fault is not None and fault.kind == "late" else 0.0
        generation = self._engine.prepare(ask, truth, late_s=late_s)
        if ask.is_stream:
            streamer = Streamer(
                dialect=dialect,
                engine=self._engine,
                generation=generation,
                reply=reply,
                fault=fault,
                die=self._die,
            )
            await streamer.run()
            return
        await self._whole(generation, reply, fault)

    async def _whole(self, generation: Generation, reply: Reply, fault: Fault | None) -> None:
        """Answer without streaming; a fault that would break a stream breaks the answer."""
        dialect, truth = self._dialect, generation.truth
        async with (
            self._engine.admitted(generation),
            contextlib.aclosing(self._engine.commits(generation)) as commits,
        ):
            async for _ in commits:
                if fault is not None and generation.num_made > fault.after_tokens and self._broke(fault, reply):
                    return
        if fault is not None and fault.kind == "stall_stream":
            await asyncio.get_running_loop().create_future()
        if fault is not None and fault.kind == "error_in_stream":
            self._refuse(
                Refused(500, fault.message, kind="server_error", code=500), generation.ask.shape, reply, truth
            )
            return
        truth.status = 200
        has_usage = dialect.confounds.usage_placement != "absent"
        usage = dialect.usage(generation, len(generation.output)) if has_usage else None
        answer = _identified(json_answer(dialect.full_answer(generation, usage)), truth)
        kinds = tuple(dict.fromkeys(token.kind for token in generation.output))
        truth.end_s = time.monotonic()
        truth.writes.append(Write(truth.end_s, len(generation.output), kinds, 1))
        reply.send(answer)

    def _broke(self, fault: Fault, reply: Reply) -> bool:
        if fault.kind == "cut":
            reply.cut()
        elif fault.kind == "die":
            self._die(fault)
        else:
            return False
        return True

    def _refuse(self, refused: Refused, shape: Shape, reply: Reply, truth: RequestTruth) -> None:
        truth.status = refused.status
        answer = json_answer(self._dialect.error(refused, shape), refused.status)
        reply.send(_identified(answer, truth))


def _identified(answer: Answer, truth: RequestTruth) -> Answer:
    return replace(answer, headers=(*answer.headers, ("x-request-id", truth.request_id)))
