"""What is done so that a request finds nothing cached, and what is said of it."""

from __future__ import annotations

import asyncio

from deepdraft.bench.cold import cache_salt, flush, standing_steps
from deepdraft.simulate.spec import Confounds, Surface


def test_sglang_is_flushed(open_session, simulated) -> None:
    server = simulated(dialect="sglang", confounds=Confounds(prefix_cache=True))

    async def main() -> None:
        async with open_session(server.url) as session:
            (step,) = await flush(session.adapter)
            assert (step.means, step.is_done) == ("flush", True)
            assert "HTTP 200" in step.evidence

    asyncio.run(main())


def test_a_flush_that_is_not_allowed_is_not_done(open_session, simulated) -> None:
    server = simulated(dialect="sglang", surface=Surface(admin_key="right"))

    async def main() -> None:
        async with open_session(server.url) as session:
            (step,) = await flush(session.adapter)
            assert step.is_done is False
            assert "--admin-key" in step.evidence

    asyncio.run(main())


def test_vllm_takes_a_salt_and_offers_no_flush_outside_of_its_dev_mode(open_session, plain) -> None:
    async def main() -> None:
        async with open_session(plain.url) as session:
            assert await flush(session.adapter) == ()
            salts = {cache_salt(session.adapter) for _ in range(20)}
            assert None not in salts
            assert len(salts) == 20
            steps = standing_steps(session.adapter, "some words of its own")
            assert [(step.means, step.is_done) for step in steps] == [("unique_head", True), ("cache_salt", True)]

    asyncio.run(main())


def test_llamacpp_is_told_not_to_use_its_cache(open_session, simulated) -> None:
    server = simulated(dialect="llamacpp")

    async def main() -> None:
        async with open_session(server.url) as session:
            assert cache_salt(session.adapter) is None
            steps = standing_steps(session.adapter, "some words")
            assert [step.means for step in steps] == ["unique_head", "cache_prompt"]

    asyncio.run(main())


def test_a_plain_server_has_only_the_head(open_session, simulated) -> None:
    server = simulated(dialect="openai")

    async def main() -> None:
        async with open_session(server.url) as session:
            assert await flush(session.adapter) == ()
            assert cache_salt(session.adapter) is None
            (step,) = standing_steps(session.adapter, None)
            assert (step.means, step.is_done) == ("unique_head", False)
            assert "the prompt repeats" in step.evidence

    asyncio.run(main())
