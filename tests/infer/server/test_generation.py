"""Outputs on their way to an answer: none lost, none twice, failures last."""

from __future__ import annotations

import asyncio

import pytest

from deepdraft.infer.errors import ContextTooLong, ShuttingDown
from deepdraft.infer.request import Output
from deepdraft.infer.server.generation import Generation


def output(number: int) -> Output:
    return Output(
        request_id="a",
        token_ids=(number,),
        text="",
        logprobs=(),
        finish_reason=None,
        num_prompt_tokens=1,
        num_cached_tokens=0,
        num_output_tokens=number,
    )


def test_outputs_pile_up_and_are_taken_once() -> None:
    async def run() -> None:
        generation = Generation(1)
        generation.deliver(output(1))
        generation.deliver(output(2))
        assert await generation.outputs() == [output(1), output(2)]
        waiting = asyncio.ensure_future(generation.outputs())
        await asyncio.sleep(0)
        assert not waiting.done()
        generation.deliver(output(3))
        assert await waiting == [output(3)]

    asyncio.run(run())


def test_a_wait_that_was_given_up_loses_nothing() -> None:
    async def run() -> None:
        generation = Generation(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await generation.outputs()
        generation.deliver(output(1))
        assert await generation.outputs() == [output(1)]

    asyncio.run(run())


def test_a_failure_comes_after_what_came_before_it() -> None:
    async def run() -> None:
        generation = Generation(1)
        generation.deliver(output(1))
        generation.fail(ShuttingDown())
        generation.fail(ContextTooLong(num_prompt_tokens=1, max_tokens=1, max_context_len=1))
        assert await generation.outputs() == [output(1)]
        for _ in range(2):
            with pytest.raises(ShuttingDown):
                await generation.outputs()

    asyncio.run(run())


def test_accepted_waits_for_all_and_raises_the_first_refusal() -> None:
    async def run() -> None:
        generation = Generation(2)
        waiting = asyncio.ensure_future(generation.accepted())
        generation.accept()
        await asyncio.sleep(0)
        assert not waiting.done()
        generation.accept()
        await waiting
        refused = Generation(2)
        refused.accept()
        refused.fail(ContextTooLong(num_prompt_tokens=5, max_tokens=1, max_context_len=4))
        with pytest.raises(ContextTooLong):
            await refused.accepted()

    asyncio.run(run())
