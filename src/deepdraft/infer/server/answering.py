"""Answers of the generating routes: reserve places, tokenize, hand to the engine, then answer whole or as a stream.

What the two routes differ in is their `Form`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from starlette.types import Receive, Scope, Send

from deepdraft.errors import DeepdraftError
from deepdraft.infer.request import Output, Request
from deepdraft.infer.server.event_stream import PING_S, ClientStalled, EventStream, while_connected
from deepdraft.infer.server.generation import Generation
from deepdraft.infer.server.job import Choice, Job, Json, usage
from deepdraft.infer.server.prompt import Prompt
from deepdraft.infer.server.refusal import Refused, json_response
from deepdraft.infer.server.sampling import of_choice, with_default_max_tokens
from deepdraft.infer.server.service import Service


class Answering:
    """The answer to one request; an ASGI application, as starlette's responses are."""

    def __init__(self, service: Service, job: Job, request_id: str) -> None:
        self._service = service
        self._job = job
        self._head: Json = {
            "id": job.form.id_prefix + request_id,
            "object": job.form.object_name(is_stream=job.is_stream),
            "created": int(time.time()),
            "model": service.facts.model,
        }
        self._arrived_s = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, until done or until the client is gone."""
        await while_connected(receive, self._answer(scope, receive, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = EventStream(send)
        try:
            with self._service.worker.generation(self._job.num_prompts * self._job.num_choices) as generation:
                choices = await self._submit(generation)
                if self._job.is_stream:
                    await self._stream(generation, choices, stream)
                    return
                await self._complete(generation, choices)
            await json_response(self._whole(list(choices.values())))(scope, receive, send)
        except ClientStalled:
            return  # the connection is closed, since the answer was not completed
        except DeepdraftError as error:
            refused = Refused.of(error, param=self._job.form.prompt_field)
            self._service.metrics.refused(refused.status)
            if stream.is_started:
                with contextlib.suppress(ClientStalled):
                    await stream.events([refused.content])
                    await stream.end(is_done=False)
                return
            await refused.response()(scope, receive, send)

    async def _submit(self, generation: Generation) -> dict[str, Choice]:
        """Tokenize and hand over; the choices by the engine's request ids."""
        job = self._job
        choices: dict[str, Choice] = {}
        requests = []
        for prompt in await self._service.texts.run(job.prompts):
            sampling = with_default_max_tokens(job.sampling, self._default_max_tokens(prompt))
            for number in range(job.num_choices):
                index = len(choices)
                request_id = f"{self._head['id']}-{index}"
                choices[request_id] = Choice(index=index, prompt=prompt, is_first_of_prompt=number == 0)
                requests.append(
                    Request(
                        request_id=request_id,
                        prompt_token_ids=prompt.token_ids,
                        sampling=of_choice(sampling, number),
                    )
                )
        await self._service.worker.submit(generation, requests, arrived_s=self._arrived_s)
        return choices

    def _default_max_tokens(self, prompt: Prompt) -> int:
        facts = self._service.facts
        room = min(facts.max_context_len, facts.kv_pool_tokens) - len(prompt.token_ids)
        default = self._job.default_max_tokens
        return room if default is None else min(default, room)

    async def _complete(self, generation: Generation, choices: dict[str, Choice]) -> None:
        num_open = len(choices)
        while num_open:
            for output in await generation.outputs():
                choice = choices[output.request_id]
                choice.count(output)
                choice.keep(output)
                num_open -= output.finish_reason is not None

    def _whole(self, choices: list[Choice]) -> Json:
        shaped = []
        for choice in choices:
            content = self._job.form.whole(choice)
            if self._job.wants_token_ids:
                content["token_ids"] = choice.token_ids
            shaped.append(content)
        return {**self._head, "choices": shaped, "usage": usage(choices)}

    async def _stream(self, generation: Generation, choices: dict[str, Choice], stream: EventStream) -> None:
        await stream.start()
        num_open = len(choices)
        while num_open:
            events = []
            for output in await _outputs(generation, stream):
                events += self._events(choices[output.request_id], output, choices)
                num_open -= output.finish_reason is not None
            await stream.events(events)
        if self._job.wants_usage:
            await stream.events([{**self._head, "choices": [], "usage": usage(list(choices.values()))}])
        await stream.end(is_done=True)

    def _events(self, choice: Choice, output: Output, choices: dict[str, Choice]) -> list[Json]:
        """The chunks of one output: its text, and around it the beginning and the end of its choice."""
        form = self._job.form
        opening = form.opening(choice) if not choice.num_output_tokens else None
        events = [] if opening is None else [self._chunk(opening, choices)]
        choice.count(output)
        if output.token_ids or output.text:
            piece = form.piece(choice, output)
            if self._job.wants_token_ids:
                piece["token_ids"] = output.token_ids
            events.append(self._chunk(piece, choices))
        if output.finish_reason is not None:
            events.append(self._chunk(form.closing(choice), choices))
        return events

    def _chunk(self, choice: Json, choices: dict[str, Choice]) -> Json:
        chunk = {**self._head, "choices": [choice]}
        if self._job.wants_continuous_usage:
            chunk["usage"] = usage(list(choices.values()))
        return chunk


async def _outputs(generation: Generation, stream: EventStream) -> list[Output]:
    while True:
        try:
            async with asyncio.timeout(PING_S):
                return await generation.outputs()
        except TimeoutError:
            await stream.ping()
