"""Sessions with a server of known truth in another process, and sweeps in this one."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepdraft.adapters.detect import detect
from deepdraft.bench.progress import Progress
from deepdraft.bench.secret import Secrets
from deepdraft.bench.session import Recorder, Session
from deepdraft.bench.sweep import Outcome, sweep
from deepdraft.bench.who_counts import output_tokenizer, prompt_maker
from deepdraft.records import Header, SweepSpec
from deepdraft.records.file import ResultsWriter
from deepdraft.simulate.process import RunningServer, running
from deepdraft.simulate.spec import Physics, SimulateSpec
from deepdraft.transport.client import Client
from deepdraft.transport.endpoint import endpoint
from deepdraft.transport.tls import TlsOptions

FAST = Physics(prefill_a_s=0.004, step_d_s=0.001)

OpenSession = Callable[..., AbstractAsyncContextManager[Session]]
Sweep = Callable[..., Outcome]


@pytest.fixture(scope="session", autouse=True)
def quick_collections() -> None:
    """What was imported and collected for the tests is left out of the collections between trials."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def physics() -> Callable[..., Physics]:
    """A server whose requests take 20 ms: physics(max_running=1)."""
    return lambda **values: replace(FAST, **values)


@pytest.fixture
def simulated() -> Iterator[Callable[..., RunningServer]]:
    """Start servers of known truth that end with the test."""
    with contextlib.ExitStack() as stack:

        def begin(**parts: Any) -> RunningServer:
            return stack.enter_context(running(SimulateSpec(**{"dialect": "vllm", "physics": FAST, **parts})))

        yield begin


@pytest.fixture(scope="module")
def plain() -> Iterator[RunningServer]:
    """A server without any confound, shared by the tests of a module."""
    with running(SimulateSpec(dialect="vllm", physics=FAST)) as server:
        yield server


@pytest.fixture
def talk() -> io.StringIO:
    """What is said on standard error."""
    return io.StringIO()


@pytest.fixture
def open_session(tmp_path: Path, talk: io.StringIO) -> OpenSession:
    """A session that is ready to measure: `async with open_session(url, context_lens=(200,)) as session`."""

    @contextlib.asynccontextmanager
    async def opened(url: str, *, file: str = "run.jsonl", **fields: Any) -> AsyncIterator[Session]:
        spec = SweepSpec(**{"url": url, "context_lens": (200,), "decode_len": 8, **fields})
        async with Client(endpoint(url)) as client:
            adapter = await detect(client, endpoint=spec.endpoint, keep_cache=spec.keep_cache)
            await adapter.settle()
            maker = await prompt_maker(spec, adapter)
            await maker.calibrate()
            header = Header(
                run_id="test",
                created_at="2026-01-01T00:00:00+00:00",
                deepdraft_version="0",
                command_line=(),
                spec=spec,
                capabilities=adapter.capabilities,
            )
            path = tmp_path / file
            recorder = Recorder(
                header, ResultsWriter.create(path, header), started_at=time.monotonic(), hidden=Secrets()
            )
            try:
                yield Session(
                    spec=spec,
                    client=client,
                    adapter=adapter,
                    maker=maker,
                    recorder=recorder,
                    progress=Progress(num_trials=0, stream=talk),
                    output_tokenizer=await output_tokenizer(spec, adapter),
                )
            finally:
                recorder.close()

    return opened


@pytest.fixture
def swept(tmp_path: Path, talk: io.StringIO) -> Sweep:
    """Run a whole sweep in this process: swept(url, context_lens=(200,)); with `during`, a coroutine function that is
    given the task, and runs beside it."""

    def run(
        url: str,
        *,
        path: Path | None = None,
        is_resumed: bool = False,
        during: Callable[[asyncio.Task[Outcome]], Any] | None = None,
        stream: io.StringIO | None = None,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> Outcome:
        spec = SweepSpec(
            **{"url": url, "context_lens": (200,), "decode_len": 8, "num_warmups": 0, "num_repeats": 2, **fields}
        )

        async def main() -> Outcome:
            task = asyncio.create_task(
                sweep(
                    spec,
                    url=url,
                    path=path or tmp_path / "run.jsonl",
                    is_resumed=is_resumed,
                    headers=headers or {},
                    admin_headers={},
                    tls=TlsOptions(),
                    progress=Progress(num_trials=0, stream=stream or talk),
                    command_line=("deepdraft", "sweep"),
                )
            )
            if during is not None:
                await during(task)
            return await task

        return asyncio.run(main())

    return run
