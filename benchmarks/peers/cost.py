"""Part `cost`: CPU per streamed event, fixed cost, wall time, and TTFT of a burst, all clients round by round.

CPU per event is marginal: a long run minus a short one, divided by the events between them. It is counted from the
moment the server had the first request, so that imports, tokenizers and prompts don't enter (their noise alone would
hide the events), once to the last token and once to the client's end: some parse, count and judge after the streams.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from deepdraft.simulate.process import RunningServer, running
from deepdraft.simulate.spec import Physics, SimulateSpec

from .client import Client, Task
from .trial import Trial, empty_folder, measured

CONTEXT_LEN = 256
SHORT_LEN = 64


@dataclass(frozen=True, kw_only=True)
class Load:
    """Streams that start together, one request each, one token an event."""

    num_streams: int
    step_s: float
    long_len: int
    """Output tokens of the long run."""

    @property
    def events_s(self) -> float:
        """Events a second while all streams run."""
        return self.num_streams / self.step_s


LOADS = (
    Load(num_streams=1, step_s=0.002, long_len=1024),
    Load(num_streams=8, step_s=0.005, long_len=512),
    Load(num_streams=32, step_s=0.010, long_len=320),
)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A short and a long run of one client under one load."""

    short: Trial
    long: Trial

    @property
    def in_streams_us(self) -> float:
        """CPU time an event, while the streams run."""
        return (self.long.cpu_in_streams_s - self.short.cpu_in_streams_s) / self._num_events * 1e6

    @property
    def to_end_us(self) -> float:
        """CPU time an event, what is done with it after the streams included."""
        return (self.long.cpu_to_end_s - self.short.cpu_to_end_s) / self._num_events * 1e6

    @property
    def _num_events(self) -> int:
        return self.long.num_events - self.short.num_events

    @property
    def fixed_cpu_s(self) -> float:
        """All CPU of the short run."""
        return self.short.run.cpu_s

    @property
    def beyond_streams_s(self) -> float:
        """Wall time of the long run that was not spent in the streams: start-up, prompts, report."""
        return self.long.run.wall_s - self.long.streams_s

    @property
    def ttft_error_ms(self) -> float | None:
        """Reported minus true TTFT in the long run, medians over the streams."""
        if self.long.reported is None or self.long.reported.ttft is None or self.long.ttft is None:
            return None
        return (self.long.reported.ttft.median_s - self.long.ttft.median_s) * 1e3

    @property
    def tpot_error_frac(self) -> float | None:
        """(Reported - true) / true TPOT in the long run, means over the streams."""
        if self.long.reported is None or self.long.reported.tpot is None or self.long.tpot is None:
            return None
        return self.long.reported.tpot.mean_s / self.long.tpot.mean_s - 1


Costs = Mapping[str, Mapping[int, Sequence[Pair]]]
"""By client's name, by number of streams: a pair for each round."""


def costs(clients: Sequence[Client], num_rounds: int) -> Costs:
    """Run everything. Raises NothingSent when a client can't do the task at all."""
    pairs: dict[str, dict[int, list[Pair]]] = {
        client.name: {load.num_streams: [] for load in LOADS} for client in clients
    }
    with ExitStack() as stack:
        servers = {load: stack.enter_context(running(_spec(load))) for load in LOADS}
        for round_index in range(num_rounds):
            for load in LOADS:
                # In turn, and the other way round every second time: what the machine does meanwhile hits all alike.
                for client in _in_turn(clients, round_index):
                    pair = _pair(client, servers[load], load)
                    pairs[client.name][load.num_streams].append(pair)
                    print(
                        f"round {round_index + 1} of {num_rounds}, {load.num_streams} streams, {client.name}: "
                        f"{pair.in_streams_us:.0f} us an event in the streams, {pair.to_end_us:.0f} to the end",
                        file=sys.stderr,
                    )
    return pairs


def _in_turn(clients: Sequence[Client], round_index: int) -> Iterator[Client]:
    return reversed(clients) if round_index % 2 else iter(clients)


def _spec(load: Load) -> SimulateSpec:
    return SimulateSpec(physics=Physics(prefill_a_s=0.05, step_d_s=load.step_s))


def _pair(client: Client, server: RunningServer, load: Load) -> Pair:
    trials = []
    for decode_len in (SHORT_LEN, load.long_len):
        with empty_folder() as folder:
            task = Task(
                url=server.url,
                context_len=CONTEXT_LEN,
                decode_len=decode_len,
                concurrency=load.num_streams,
                num_requests=load.num_streams,
                folder=folder,
            )
            trials.append(measured(client, server, task))
    return Pair(short=trials[0], long=trials[1])
