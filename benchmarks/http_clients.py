"""What an HTTP client costs per streamed event, and how late its stamps are: the figures behind
`docs/decisions/0002-http-client.md`.

One loopback server in a process of its own writes pre-encoded events on a schedule and notes when it wrote
each. Each candidate runs in a process of its own and does the same work per event: stamp the read, our event
reader, JSON decode, keep the stamp. Nothing else of Deepdraft is in it, except in the row `deepdraft`.

    python benchmarks/http_clients.py [--rounds 5] [--only NAME ...] [--json FILE]

Candidates that are not installed are left out, and said so. Figures of one row:
- CPU per event: process CPU of a long leg minus a short one, divided by the events between them, so that
  connections, requests and imports cancel. Both legs run in one process, after a warm-up leg.
- stamp error: the client's stamp of an event minus the server's stamp just before its write.
- TTFT error: (client's first stamp - client's send) - (server's first write - server's receipt of the request).
- import: CPU of `python -c "import ..."` minus that of `python -c ""`.
All clocks are time.monotonic on one machine. Leaves out TLS, HTTP/2, and the largest rate a client keeps up.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import importlib
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

SOURCE = Path(__file__).resolve().parents[1] / "src"
HOST = "127.0.0.1"
TTFT_S = 0.05
WARM_UP_EVENTS = 20
SHORT_EVENTS = 20
LONG_EVENTS = {1: 420, 8: 220, 32: 170}  # by number of streams: a long leg lasts 2 to 4 s at 10 ms
BODY = b'{"prompt":"' + b"deep water " * 1500 + b'"}'

EVENT = (
    b'data: {"id":"chatcmpl-8d9cca6ccd47fcac","object":"chat.completion.chunk","created":1795964577,'
    b'"model":"smollm2","choices":[{"index":0,"delta":{"content":" depth"},"logprobs":null,'
    b'"finish_reason":null,"token_ids":null}]}\n\n'
)
LAST = b"data: [DONE]\n\n"


# --- the server: events on schedule, its own stamps kept --------------------------------------------------


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


@dataclass
class ServedStream:
    received_at: float
    writes_at: list[float] = field(default_factory=list)


class StreamServer(asyncio.Protocol):
    """`POST /stream?id=&events=&interval_ms=` streams; `GET /stamps` gives and forgets the stamps."""

    served: dict[str, ServedStream]

    def __init__(self, served: dict[str, ServedStream]) -> None:
        self.served = served
        self.received = b""
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        at = time.monotonic()
        self.received += data
        head, blank, rest = self.received.partition(b"\r\n\r\n")
        if not blank:
            return
        lowered = head.lower()
        size = int(lowered.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        if len(rest) < size:
            return
        self.received = b""
        url = urlsplit(head.split(b" ", 2)[1].decode())
        if url.path == "/stream":
            asked = {key: values[0] for key, values in parse_qs(url.query).items()}
            stream = self.served[asked["id"]] = ServedStream(at)
            self.start(stream, int(asked["events"]), float(asked["interval_ms"]) / 1e3)
            return
        answer = b"ready"
        if url.path == "/stamps":
            answer = json.dumps({key: vars(stream) for key, stream in self.served.items()}).encode()
            self.served.clear()
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))

    def start(self, stream: ServedStream, num_events: int, interval_s: float) -> None:
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        event, first_due = chunk(EVENT), self.loop.time() + TTFT_S

        def write_next() -> None:
            num_written = len(stream.writes_at)
            stream.writes_at.append(time.monotonic())
            if num_written == num_events:
                self.transport.write(chunk(LAST) + b"0\r\n\r\n")
                return
            self.transport.write(event)
            self.loop.call_at(first_due + (num_written + 1) * interval_s, write_next)

        self.loop.call_at(first_due, write_next)


async def serve() -> None:
    served: dict[str, ServedStream] = {}
    server = await asyncio.get_running_loop().create_server(lambda: StreamServer(served), HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- the candidates: each streams one request and hands every read to its sink ----------------------------


class Sink:
    """The work per event that every candidate shares."""

    def __init__(self, path: str) -> None:
        from deepdraft.transport.sse import EventReader

        self.path = path
        self.sent_at = 0.0
        self.stamps: list[float] = []
        self.feed = EventReader().feed
        self.decode: Callable[[bytes], object] = importlib.import_module("msgspec").json.Decoder().decode

    def take(self, at: float, body: bytes) -> None:
        for event in self.feed(body):
            if event.data != b"[DONE]":
                self.decode(event.data)
            self.stamps.append(at)

    def request(self) -> bytes:
        return b"POST %s HTTP/1.1\r\nhost: %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
            self.path.encode(),
            HOST.encode(),
            len(BODY),
            BODY,
        )


HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}
Leg = Callable[[list[Sink]], Awaitable[None]]


@asynccontextmanager
async def streams_leg(port: int) -> AsyncIterator[Leg]:
    """The floor as most people would write it: asyncio streams and a chunked decoder of ten lines."""

    async def one(sink: Sink, ready: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        await ready.wait()
        sink.sent_at = time.monotonic()
        writer.write(sink.request())
        await reader.readuntil(b"\r\n\r\n")
        pending = b""
        while True:
            pending += await reader.read(65536)
            at = time.monotonic()
            while True:
                size_text, line_end, rest = pending.partition(b"\r\n")
                size = int(size_text, 16) if line_end else -1
                if size < 0 or len(rest) < size + 2:
                    break
                if size == 0:
                    writer.close()
                    return
                sink.take(at, rest[:size])
                pending = rest[size + 2 :]

    yield in_burst(one)


def in_burst(one: Callable[[Sink, asyncio.Event], Awaitable[None]]) -> Leg:
    """Open every connection first, then let all requests go at once."""

    async def leg(sinks: list[Sink]) -> None:
        ready = asyncio.Event()
        tasks = [asyncio.ensure_future(one(sink, ready)) for sink in sinks]
        await asyncio.sleep(0.1)
        ready.set()
        await asyncio.gather(*tasks)

    return leg


class HttptoolsStream(asyncio.Protocol):
    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.at = 0.0
        self.done = asyncio.get_running_loop().create_future()
        self.feed = importlib.import_module("httptools").HttpResponseParser(self).feed_data

    def data_received(self, data: bytes | memoryview) -> None:
        self.at = time.monotonic()
        self.feed(data)

    def on_body(self, body: bytes) -> None:
        self.sink.take(self.at, body)

    def on_message_complete(self) -> None:
        self.done.set_result(None)


class BufferedStream(asyncio.BufferedProtocol):
    """The same with the read buffer of the loop's own choosing replaced by one that is kept."""

    def __init__(self, sink: Sink) -> None:
        self.plain = HttptoolsStream(sink)
        self.done = self.plain.done
        self.view = memoryview(bytearray(65536))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        self.plain.data_received(self.view[:nbytes])


class H11Stream(asyncio.Protocol):
    def __init__(self, sink: Sink) -> None:
        self.h11 = importlib.import_module("h11")
        self.sink = sink
        self.done = asyncio.get_running_loop().create_future()
        self.connection = self.h11.Connection(our_role=self.h11.CLIENT)
        self.connection.send(
            self.h11.Request(
                method="POST", target=sink.path, headers=[("host", HOST), ("content-length", str(len(BODY)))]
            )
        )
        self.connection.send(self.h11.Data(data=BODY))
        self.connection.send(self.h11.EndOfMessage())

    def data_received(self, data: bytes) -> None:
        at = time.monotonic()
        self.connection.receive_data(data)
        while True:
            part = self.connection.next_event()
            if part is self.h11.NEED_DATA:
                return
            if isinstance(part, self.h11.Data):
                self.sink.take(at, bytes(part.data))
            elif isinstance(part, self.h11.EndOfMessage):
                self.done.set_result(None)
                return


@asynccontextmanager
async def protocol_leg(port: int, stream_class: Callable[[Sink], Any]) -> AsyncIterator[Leg]:
    async def one(sink: Sink, ready: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(lambda: stream_class(sink), HOST, port)
        payload = sink.request()
        await ready.wait()
        sink.sent_at = time.monotonic()
        transport.write(payload)
        await protocol.done
        transport.close()

    yield in_burst(one)


@asynccontextmanager
async def deepdraft_leg(port: int) -> AsyncIterator[Leg]:
    """What the product does: limits, counters and all; events are decoded after the stream, as it does."""
    transport = importlib.import_module("deepdraft.transport.client")
    client = transport.Client(transport.Endpoint("http", HOST, port))

    async def one(sink: Sink, ready: asyncio.Event) -> None:
        async with await client.open() as connection:
            await ready.wait()
            exchange = connection.stream(sink.path, BODY)
            await exchange.wait_end()
        sink.sent_at = exchange.sent_at
        for event in exchange.events:
            if event.data != b"[DONE]":
                sink.decode(event.data)
            sink.stamps.append(event.at)

    yield in_burst(one)


@asynccontextmanager
async def aiohttp_leg(port: int) -> AsyncIterator[Leg]:
    aiohttp = importlib.import_module("aiohttp")
    session = aiohttp.ClientSession(f"http://{HOST}:{port}", timeout=aiohttp.ClientTimeout(total=None))

    async def warm() -> None:
        async with session.get("/ready") as response:
            await response.read()

    async def one(sink: Sink) -> None:
        sink.sent_at = time.monotonic()
        async with session.post(sink.path, data=BODY, headers=HEADERS) as response:
            async for body in response.content.iter_any():
                sink.take(time.monotonic(), body)

    async with session:
        yield pooled(warm, one)


@asynccontextmanager
async def httpx_leg(port: int) -> AsyncIterator[Leg]:
    httpx = importlib.import_module("httpx")
    client = httpx.AsyncClient(
        base_url=f"http://{HOST}:{port}", timeout=None, limits=httpx.Limits(max_keepalive_connections=64)
    )

    async def warm() -> None:
        await client.get("/ready")

    async def one(sink: Sink) -> None:
        sink.sent_at = time.monotonic()
        async with client.stream("POST", sink.path, content=BODY, headers=HEADERS) as response:
            async for body in response.aiter_raw():
                sink.take(time.monotonic(), body)

    async with client:
        yield pooled(warm, one)


@asynccontextmanager
async def httpcore_leg(port: int) -> AsyncIterator[Leg]:
    httpcore = importlib.import_module("httpcore")
    pool = httpcore.AsyncConnectionPool(max_connections=64, max_keepalive_connections=64)
    base = f"http://{HOST}:{port}"

    async def warm() -> None:
        await pool.request("GET", base + "/ready")

    async def one(sink: Sink) -> None:
        sink.sent_at = time.monotonic()
        async with pool.stream("POST", base + sink.path, content=BODY, headers=HEADERS) as response:
            async for body in response.aiter_stream():
                sink.take(time.monotonic(), body)

    async with pool:
        yield pooled(warm, one)


def pooled(warm: Callable[[], Awaitable[None]], one: Callable[[Sink], Awaitable[None]]) -> Leg:
    """Fill the library's own pool first, so that no measured request opens a connection."""

    async def leg(sinks: list[Sink]) -> None:
        await asyncio.gather(*(warm() for _ in sinks))
        await asyncio.gather(*(one(sink) for sink in sinks))

    return leg


@asynccontextmanager
async def threads_leg(port: int) -> AsyncIterator[Leg]:
    def one(sink: Sink, barrier: threading.Barrier) -> None:
        connection = http.client.HTTPConnection(HOST, port)
        connection.connect()
        barrier.wait()
        sink.sent_at = time.monotonic()
        connection.request("POST", sink.path, BODY, HEADERS)
        response = connection.getresponse()
        while body := response.read1(65536):
            sink.take(time.monotonic(), body)
        connection.close()

    async def leg(sinks: list[Sink]) -> None:
        barrier = threading.Barrier(len(sinks))
        threads = [threading.Thread(target=one, args=(sink, barrier)) for sink in sinks]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)

    yield leg


@dataclass(frozen=True)
class Candidate:
    modules: tuple[str, ...]
    """What it must import beside the standard library's asyncio; the import cost is of these."""
    make_leg: Callable[[int], AbstractAsyncContextManager[Leg]]
    loop: str = "asyncio"


CANDIDATES = {
    "asyncio streams, own chunk decoder": Candidate((), streams_leg),
    "Protocol + httptools": Candidate(("httptools",), lambda port: protocol_leg(port, HttptoolsStream)),
    "BufferedProtocol + httptools": Candidate(("httptools",), lambda port: protocol_leg(port, BufferedStream)),
    "Protocol + httptools on uvloop": Candidate(
        ("httptools", "uvloop"), lambda port: protocol_leg(port, HttptoolsStream), loop="uvloop"
    ),
    "Protocol + h11": Candidate(("h11",), lambda port: protocol_leg(port, H11Stream)),
    "aiohttp": Candidate(("aiohttp",), aiohttp_leg),
    "httpcore": Candidate(("httpcore",), httpcore_leg),
    "httpx": Candidate(("httpx",), httpx_leg),
    "http.client in threads": Candidate(("http.client",), threads_leg),
    "deepdraft": Candidate(("deepdraft.transport.client",), deepdraft_leg),
}


# --- one candidate, in a process of its own ---------------------------------------------------------------


async def measure(candidate: Candidate, port: int, num_streams: int, interval_ms: float) -> dict[str, Any]:
    cpu_s = []
    sinks: list[Sink] = []
    async with candidate.make_leg(port) as leg:
        for num_events in (WARM_UP_EVENTS, SHORT_EVENTS, LONG_EVENTS[num_streams]):
            sinks = [
                Sink(f"/stream?id={num_events}.{index}&events={num_events}&interval_ms={interval_ms}")
                for index in range(num_streams)
            ]
            started_s = time.process_time()
            await leg(sinks)
            cpu_s.append(time.process_time() - started_s)
    num_events = LONG_EVENTS[num_streams]
    if any(len(sink.stamps) != num_events + 1 for sink in sinks):
        raise SystemExit("events were lost")
    return {
        "cpu_us": (cpu_s[2] - cpu_s[1]) / ((num_events - SHORT_EVENTS) * num_streams) * 1e6,
        "streams": {f"{num_events}.{index}": [sink.sent_at, *sink.stamps] for index, sink in enumerate(sinks)},
    }


def run_client(name: str, port: int, num_streams: int, interval_ms: float) -> None:
    candidate = CANDIDATES[name]
    work = measure(candidate, port, num_streams, interval_ms)
    if candidate.loop == "uvloop":
        figures = importlib.import_module("uvloop").run(work)
    else:
        figures = asyncio.run(work)
    print(json.dumps(figures), flush=True)


# --- the driver -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """One run of one candidate; times in ms unless named otherwise."""

    cpu_us: float
    ttft_median: float
    ttft_worst: float
    stamp_median: float
    stamp_p99: float


def child(*arguments: str) -> list[str]:
    return [sys.executable, __file__, *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE)}


def one_sample(name: str, port: int, num_streams: int, interval_ms: float) -> Sample:
    command = child("--client", name, "--port", str(port), "--streams", str(num_streams))
    command += ["--interval-ms", str(interval_ms)]
    output = subprocess.run(command, env=environment(), check=True, stdout=subprocess.PIPE).stdout
    figures = json.loads(output)
    with urllib.request.urlopen(f"http://{HOST}:{port}/stamps") as response:
        served = json.load(response)
    ttft_ms, stamp_ms = [], []
    for key, (sent_at, *stamps) in figures["streams"].items():
        truth = served[key]
        writes_at = truth["writes_at"]
        ttft_ms.append(((stamps[0] - sent_at) - (writes_at[0] - truth["received_at"])) * 1e3)
        stamp_ms += [(at - written_at) * 1e3 for at, written_at in zip(stamps, writes_at, strict=True)]
    stamp_ms.sort()
    return Sample(
        cpu_us=figures["cpu_us"],
        ttft_median=statistics.median(ttft_ms),
        ttft_worst=max(ttft_ms),
        stamp_median=statistics.median(stamp_ms),
        stamp_p99=stamp_ms[int(len(stamp_ms) * 0.99)],
    )


def import_cpu_ms(modules: tuple[str, ...]) -> float:
    """Best of five: importing is a fixed amount of work, and noise only adds to it."""
    costs = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code = "".join(f"import {module};" for module in modules)
        subprocess.run([sys.executable, "-c", code], env=environment(), check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(costs) * 1e3


def installed(names: list[str]) -> Iterator[str]:
    for name in names:
        missing = [module for module in CANDIDATES[name].modules if not importlib.util.find_spec(module)]
        if missing:
            print(f"left out: {name} ({', '.join(missing)} not installed)", file=sys.stderr)
        else:
            yield name


def drive(names: list[str], rounds: int, interval_ms: float) -> dict[str, Any]:
    names = list(installed(names))
    server = subprocess.Popen(child("--serve"), env=environment(), stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    samples: dict[str, dict[int, list[Sample]]] = {name: {c: [] for c in LONG_EVENTS} for name in names}
    try:
        port = int(server.stdout.readline())
        for round_index in range(rounds):
            # Forwards and backwards in turn, so that a drift of the machine falls on all alike.
            for name in names if round_index % 2 == 0 else reversed(names):
                for num_streams in LONG_EVENTS:
                    samples[name][num_streams].append(one_sample(name, port, num_streams, interval_ms))
            print(f"round {round_index + 1} of {rounds} done", file=sys.stderr)
    finally:
        server.terminate()
        server.wait()
    bare_ms = import_cpu_ms(())
    return {
        name: {
            "import_cpu_ms": import_cpu_ms(("asyncio", *CANDIDATES[name].modules)) - bare_ms,
            "runs": {str(c): [vars(sample) for sample in runs] for c, runs in samples[name].items()},
        }
        for name in names
    }


def table(figures: dict[str, Any]) -> Iterator[str]:
    """A Markdown table; every figure is the median over the rounds, CPU with its lowest and highest."""
    yield "| client | streams | CPU us per event (low to high) | TTFT error ms (worst) | stamp error ms (p99) |"
    yield "|---|---|---|---|---|"
    for name, row in figures.items():
        for num_streams, runs in row["runs"].items():
            cost = sorted(run["cpu_us"] for run in runs)
            middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            yield (
                f"| {name} | {num_streams} | {middle['cpu_us']:.0f} ({cost[0]:.0f} to {cost[-1]:.0f}) "
                f"| {middle['ttft_median']:.2f} ({middle['ttft_worst']:.2f}) "
                f"| {middle['stamp_median']:.2f} ({middle['stamp_p99']:.2f}) |"
            )
    yield ""
    yield "| client | import, CPU ms (asyncio included) |"
    yield "|---|---|"
    for name, row in figures.items():
        yield f"| {name} | {row['import_cpu_ms']:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--interval-ms", type=float, default=10.0, help="between events of one stream")
    parser.add_argument("--only", nargs="+", choices=CANDIDATES, default=list(CANDIDATES), metavar="NAME")
    parser.add_argument("--json", type=Path, help="write every run's figures there")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--streams", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
    elif options.client:
        run_client(options.client, options.port, options.streams, options.interval_ms)
    else:
        sys.path.insert(0, str(SOURCE))  # so that it is found whether it is installed or not
        figures = drive(options.only, options.rounds, options.interval_ms)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1))
        print("\n".join(table(figures)))


if __name__ == "__main__":
    main()
