"""The recorder: what is kept is on the disk in order, and what the disk refuses is not lost."""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepdraft.bench.secret import Secrets
from deepdraft.bench.session import Recorder
from deepdraft.errors import DiskFull
from deepdraft.records import Capabilities, End, Header, Note, Run, SweepSpec
from deepdraft.records.file import ResultsWriter, read_run

HEADER = Header(
    run_id="r",
    created_at="2026-01-01T00:00:00+00:00",
    deepdraft_version="0",
    command_line=(),
    spec=SweepSpec(url="http://x"),
    capabilities=Capabilities(engine="vllm", detected_by="test"),
)


def note(text: str) -> Note:
    return Note(at_s=0.0, topic="test", message=text)


def messages(run: Run) -> list[str]:
    return [one.message for one in run.notes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


@pytest.fixture
def recorder(path: Path) -> Iterator[Recorder]:
    made = Recorder(HEADER, ResultsWriter.create(path, HEADER), started_at=time.monotonic(), hidden=Secrets())
    yield made
    made.close()


@pytest.fixture
def room(path: Path) -> Iterator[object]:
    """room(n): files may not grow beyond n more bytes than the results file has; room(None): they may."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def leave(num_bytes: int | None) -> None:
        limit = before[0] if num_bytes is None else path.stat().st_size + num_bytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))

    yield leave
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_each_line_is_on_the_disk_when_keep_returns(recorder, path) -> None:
    for text in ("one", "two"):
        recorder.keep(note(text))
        assert messages(read_run(path))[-1] == text
    assert messages(recorder.run()) == ["one", "two"]
    assert recorder.num_unsaved == 0


def test_lines_that_are_saved_later_stand_in_the_order_they_came(recorder, path) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for index in range(50):
                recorder.take(note(f"{index}"))
                group.create_task(recorder.save())
        recorder.keep(note("last"))

    asyncio.run(main())
    assert messages(read_run(path)) == [*map(str, range(50)), "last"]


def test_a_slow_disk_does_not_hold_up_the_loop(recorder, path) -> None:
    async def main() -> int:
        released = threading.Event()

        class SlowWriter:
            def append(self, *lines: object) -> None:
                released.wait(5.0)

            def close(self) -> None:
                pass

        recorder._writer = SlowWriter()
        recorder.take(note("slow"))
        saving = asyncio.create_task(recorder.save())
        num_turns = 0
        for _ in range(20):
            await asyncio.sleep(0.001)
            num_turns += not saving.done()
        released.set()
        await saving
        return num_turns

    assert asyncio.run(main()) == 20


def test_what_was_given_up_half_way_is_written_with_the_next(recorder, path) -> None:
    async def main() -> None:
        saving = []
        for index in range(30):
            recorder.take(note(f"{index}"))
            saving.append(asyncio.create_task(recorder.save()))
        await asyncio.sleep(0)
        for task in saving:
            task.cancel()
        await asyncio.gather(*saving, return_exceptions=True)
        recorder.keep(End(at_s=1.0, outcome="interrupted"))

    asyncio.run(main())
    run = read_run(path)
    assert run.ends
    assert messages(run) == messages(recorder.run()) == [f"{index}" for index in range(30)]
    assert recorder.num_unsaved == 0


def test_a_full_disk_loses_nothing_from_memory(recorder, path, room) -> None:
    recorder.keep(note("fits"))
    room(40)
    with pytest.raises(DiskFull):
        recorder.keep(note("does not"))
    assert messages(recorder.run()) == ["fits", "does not"]
    assert recorder.num_unsaved == 1
    assert messages(read_run(path)) == ["fits"]
    assert not read_run(path).damage
    with pytest.raises(DiskFull):  # not before what came first
        recorder.keep(note("x"))
    room(None)
    recorder.keep(note("there is room again"))
    assert messages(read_run(path)) == ["fits", "does not", "x", "there is room again"]
    assert recorder.num_unsaved == 0


def test_a_resumed_file_holds_what_it_held(path) -> None:
    earlier = Run(header=HEADER, notes=(note("before"),), damage=("line 3 can't be read",))
    recorder = Recorder(
        HEADER,
        ResultsWriter.create(path, HEADER),
        started_at=time.monotonic() - 100,
        hidden=Secrets(),
        earlier=earlier,
        repair="cut off",
    )
    recorder.keep(note("after"))
    recorder.close()
    assert messages(recorder.run()) == ["before", "after"]
    assert recorder.run().damage == earlier.damage
    assert recorder.repair == "cut off"
    assert recorder.now_s() >= 100
    assert messages(read_run(path)) == ["after"]  # what is in the file already is not written again


def test_secrets_do_not_reach_the_file(path) -> None:
    hidden = Secrets({"authorization": "Bearer abcdef123"})
    recorder = Recorder(HEADER, ResultsWriter.create(path, HEADER), started_at=time.monotonic(), hidden=hidden)
    recorder.keep(note("the server says: abcdef123 is no key"))
    recorder.close()
    assert messages(read_run(path)) == ["the server says: <redacted> is no key"]
    assert messages(recorder.run()) == ["the server says: <redacted> is no key"]


def test_notes_are_said_and_kept_and_some_only_once(open_session, plain, talk, path) -> None:
    async def main() -> None:
        async with open_session(plain.url) as session:
            session.note("test", "again")
            session.note("test", "again")
            session.note_once("test", "once")
            session.note_once("other", "once")

    asyncio.run(main())
    assert messages(read_run(path)) == ["again", "again", "once"]
    assert talk.getvalue().count("test: again\n") == 2
    assert talk.getvalue().count("once") == 1
