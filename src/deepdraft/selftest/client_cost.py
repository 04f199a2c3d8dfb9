"""What the measuring client costs an event: CPU seconds of this process, while a server of known truth in another one
streams. It is the `client` component of `deepdraft bench`.

The client is what `sweep` runs for a request: the connection with its limits and stamps, then the events decoded into
a trace. Ceiling: a loop that only reads sockets. Peer: plain sockets, httptools and a JSON decoder (`raw_reader`).
The CPU is that of a long answer less that of a short one, over the events between them, so that connections and
requests cancel out; what a burst of bytes brings at once costs less an event, so the load is part of the case.

Leaves out the rest of a sweep (prompts, files) and other tools' clients (`python -m benchmarks.peers`).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from deepdraft.adapters.reading import carries_output, trace_in_slices
from deepdraft.errors import DeepdraftError
from deepdraft.records.component import ComponentCase, ComponentRepeat
from deepdraft.selftest.raw_reader import Parsing, Receiving, read_streams
from deepdraft.simulate.process import running
from deepdraft.simulate.spec import Physics, SimulateSpec
from deepdraft.transport.client import Client
from deepdraft.transport.endpoint import Endpoint, endpoint

CEILING = "receive"
_PATH = "/v1/chat/completions"
_MIN_CPU_S = 1e-7


@dataclass(frozen=True, slots=True)
class Load:
    """Streams at once and the pause between two events of one."""

    num_streams: int
    interval_s: float


LOADS = (Load(1, 0.002), Load(8, 0.005), Load(32, 0.01))
"""500, 1,600 and 3,200 events a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What to run."""

    stream_counts: tuple[int, ...] = tuple(load.num_streams for load in LOADS)
    num_repeats: int = 3
    leg_s: float = 1.0
    """Of the long answer; the short one takes a tenth."""


def client_cases(
    settings: ClientSettings, *, is_asked_to_stop: Callable[[], bool], report: Callable[[str], None]
) -> Iterator[ComponentCase]:
    """Each load's case as it is measured; ends early, with the repeats that are whole, where that is asked for.

    Raises ServerError where the simulated server doesn't start.
    """
    for num_streams in settings.stream_counts:
        load = next((each for each in LOADS if each.num_streams == num_streams), Load(num_streams, 0.01))
        if is_asked_to_stop():
            return
        case = _case(load, settings, is_asked_to_stop, report)
        if case is not None:
            yield case


def _case(
    load: Load, settings: ClientSettings, is_asked_to_stop: Callable[[], bool], report: Callable[[str], None]
) -> ComponentCase | None:
    num_events = max(20, round(settings.leg_s / load.interval_s))
    name = f"{load.num_streams} streams, {load.num_streams / load.interval_s:,.0f} events/s"
    repeats: list[ComponentRepeat] = []
    spec = SimulateSpec(physics=Physics(prefill_a_s=0.02, step_d_s=load.interval_s))
    with running(spec) as server:
        at = endpoint(server.url)
        sides: dict[str, Callable[[list[bytes]], None]] = {
            "own": partial(_ours, at),
            CEILING: partial(_raw, at, Receiving),
            "httptools": partial(_raw, at, Parsing),
        }
        for side in sides.values():
            side(_bodies(load, 4))
        for index in range(settings.num_repeats):
            report(f"{name}: repeat {index + 1} of {settings.num_repeats}")
            found: dict[str, float] = {}
            for side_name in reversed(sides) if index % 2 else sides:
                if is_asked_to_stop():
                    break
                found[side_name] = _event_cpu_s(sides[side_name], load, num_events)
            if len(found) < len(sides):
                break
            repeats.append(
                ComponentRepeat(
                    seconds=found["own"],
                    rates={CEILING: 1 / found[CEILING]},
                    peers_s={"httptools": found["httptools"]},
                )
            )
    if not repeats:
        return None
    return ComponentCase(
        name=name,
        facts={"num_streams": load.num_streams, "interval_s": load.interval_s, "num_events": num_events},
        work={CEILING: 1.0},
        repeats=tuple(repeats),
        note="seconds are CPU seconds an event",
    )


def _event_cpu_s(side: Callable[[list[bytes]], None], load: Load, num_events: int) -> float:
    """Of a long leg less a short one; never 0, which a coarse clock might say."""
    num_short = max(4, num_events // 10)
    cpu_s = []
    for length in (num_short, num_events):
        bodies = _bodies(load, length)
        started_s = time.process_time()
        side(bodies)
        cpu_s.append(time.process_time() - started_s)
    return max((cpu_s[1] - cpu_s[0]) / ((num_events - num_short) * load.num_streams), _MIN_CPU_S)


def _bodies(load: Load, num_events: int) -> list[bytes]:
    asked = {
        "model": "sim",
        "messages": [{"role": "user", "content": "How deep is the water?"}],
        "max_tokens": num_events,
        "stream": True,
    }
    return [json.dumps(asked).encode()] * load.num_streams


def _raw(endpoint: Endpoint, response: Callable[[], Receiving | Parsing], bodies: list[bytes]) -> None:
    read_streams(endpoint, _PATH, bodies, response)


def _ours(endpoint: Endpoint, bodies: list[bytes]) -> None:
    asyncio.run(_stream_all(endpoint, bodies))


async def _stream_all(endpoint: Endpoint, bodies: list[bytes]) -> None:
    client = Client(endpoint)

    async def one(body: bytes) -> None:
        connection = await client.open()
        try:
            exchange = connection.stream(_PATH, body, is_output=carries_output)
            await exchange.wait_end()
            _, failure = await trace_in_slices(exchange, connect_s=connection.connect_s, error=None)
        finally:
            connection.abort()
        if failure is not None:
            raise DeepdraftError(f"the simulated server failed: {failure.message}")

    async with asyncio.TaskGroup() as tasks:
        for body in bodies:
            tasks.create_task(one(body))
