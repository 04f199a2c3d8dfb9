"""A server that goes away: waited for as long as was said, and lost after that."""

from __future__ import annotations

import asyncio
import time

import pytest

from deepdraft.bench.health import wait_for_server
from deepdraft.errors import DeepdraftError, ServerLost
from deepdraft.records import Limits
from deepdraft.simulate.spec import Confounds, Fault


def topics(session) -> list[str]:
    return [note.message for note in session.recorder.run().notes if note.topic == "wait"]


def dying(simulated, **fault):
    return simulated(faults=(Fault(kind="die", min_prompt_len=1000, **fault),))


async def die(session) -> None:
    """A long request, which the server does not survive."""
    with pytest.raises(DeepdraftError):
        await session.adapter.probed("word " * 1500, limit_s=5.0)


def test_a_server_that_is_well_is_not_waited_for(open_session, plain) -> None:
    async def main() -> None:
        async with open_session(plain.url) as session:
            await wait_for_server(session)
            assert topics(session) == []

    asyncio.run(main())


def test_it_comes_back(open_session, simulated) -> None:
    server = dying(simulated, restart_after_s=0.4)

    async def main() -> None:
        async with open_session(server.url, limits=Limits(server_wait_s=20.0)) as session:
            await die(session)
            await wait_for_server(session)
            said = topics(session)
            assert len(said) == 2
            assert "Connection refused; waiting up to 20 s" in said[0]
            assert said[1].startswith("the server is back after")

    asyncio.run(main())


def test_requests_that_wait_together_say_it_once(open_session, simulated) -> None:
    server = dying(simulated, restart_after_s=0.4)

    async def main() -> None:
        async with open_session(server.url) as session:
            await die(session)
            await asyncio.gather(*(wait_for_server(session) for _ in range(5)))
            assert len(topics(session)) == 2

    asyncio.run(main())


@pytest.mark.parametrize("wait_s", [0.0, 0.3])
def test_it_does_not_come_back(open_session, simulated, wait_s) -> None:
    server = dying(simulated)

    async def main() -> None:
        async with open_session(server.url, limits=Limits(server_wait_s=wait_s)) as session:
            await die(session)
            began = time.monotonic()
            with pytest.raises(ServerLost, match="the server was lost: can't reach") as caught:
                await wait_for_server(session)
            assert time.monotonic() - began >= wait_s
            assert ("waited 300 ms" in caught.value.message) == (wait_s > 0)

    asyncio.run(main())


def test_one_that_loads_is_waited_for_longer(open_session, simulated) -> None:
    server = simulated(
        dialect="llamacpp",
        confounds=Confounds(loading_s=0.7),
        faults=(Fault(kind="die", min_prompt_len=1000, restart_after_s=0.1),),
    )

    async def main() -> None:
        await asyncio.sleep(0.8)  # its first start takes as long
        async with open_session(server.url, limits=Limits()) as session:
            await die(session)
            await asyncio.sleep(0.3)
            await wait_for_server(session)
            said = topics(session)
            assert "Loading model" in said[0]
            assert "waiting up to 15 min" in said[0]
            assert "is back" in said[-1]

    asyncio.run(main())
