"""The orders in which a trial's requests are sent, and what happens when one of them fails."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from deepdraft.bench.plan import PlannedTrial
from deepdraft.bench.sending import Sender
from deepdraft.errors import DiskFull, ServerLost
from deepdraft.records import Limits
from deepdraft.records.file import read_run
from deepdraft.simulate.spec import Fault

LONG = 700


def planned(concurrency: int = 1, repeat_index: int = 0) -> PlannedTrial:
    return PlannedTrial(
        trial_id=f"len800-c{concurrency}-r{repeat_index}",
        context_len=800,
        concurrency=concurrency,
        repeat_index=repeat_index,
    )


async def sent(session, trial: PlannedTrial, role="single") -> Sender:
    num_flushes = 0

    async def flush() -> None:
        nonlocal num_flushes
        num_flushes += 1

    sender = Sender(session, trial, flush)
    prompts = [await session.maker.make(800) for _ in range(sender.num_requests)]
    await sender.send([sender.encoded(prompt, index, role, 8) for index, prompt in enumerate(prompts)])
    return sender


def truths(server):
    found = [truth for truth in server.truths(reset=True) if truth.prompt_len == 800]
    return sorted(found, key=lambda truth: truth.received_s)


def test_closed_loop(open_session, simulated, physics, tmp_path) -> None:
    server = simulated(physics=physics(prefill_b_s=4e-4))

    async def main() -> None:
        async with open_session(server.url, num_requests=7) as session:
            sender = await sent(session, planned(3))
            assert [result.failure for result in sender.results] == [None] * 7
            assert sorted(result.request_index for result in sender.results) == list(range(7))
            # Each is on the disk before its trial is over.
            assert len(read_run(tmp_path / "run.jsonl").measurements) == 7

    asyncio.run(main())
    found = truths(server)
    assert max(truth.num_running_before for truth in found) == 2
    assert found[2].received_s < min(truth.end_s for truth in found)


def test_one_alone_is_held_until_the_counters_were_read(open_session, plain, tmp_path) -> None:
    async def main() -> None:
        async with open_session(plain.url) as session:
            sender = await sent(session, planned())
            assert sender.held is sender.results[0]
            assert read_run(tmp_path / "run.jsonl").measurements == ()
            sender.keep_held()  # what a trial does that is cut short
            assert len(read_run(tmp_path / "run.jsonl").measurements) == 1

    asyncio.run(main())


def test_open_loop_sends_when_due_whatever_is_in_flight(open_session, simulated, physics) -> None:
    server = simulated(physics=physics(prefill_b_s=1e-3))

    async def main() -> None:
        async with open_session(server.url, num_requests=6, arrival="constant:50") as session:
            sender = await sent(session, planned())
            results = sorted(sender.results, key=lambda result: result.request_index)
            due_s = [result.scheduled_at_s for result in results]
            assert [later - earlier for earlier, later in pairwise(due_s)] == pytest.approx([0.02] * 5)
            assert all(result.started_at_s >= result.scheduled_at_s for result in results)

    asyncio.run(main())
    assert max(truth.num_running_before for truth in truths(server)) == 5


def test_limits_know_how_many_may_be_in_flight(open_session, plain) -> None:
    async def main() -> None:
        for arrival, concurrency, expected in (("closed", 3, 2), ("poisson:5", 1, 9)):
            async with open_session(plain.url, file=arrival, num_requests=10, arrival=arrival) as session:
                sender = Sender(session, planned(concurrency), flush=lambda: asyncio.sleep(0))
                prompt = await session.maker.make(800)
                assert sender.encoded(prompt, 0, "single", 8).num_others == expected

    asyncio.run(main())


def test_every_attempt_is_kept_and_later_ones_have_heads_of_their_own(
    open_session, simulated, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("deepdraft.bench.sending._RETRY_WAIT_S", 0.05)
    server = simulated(faults=(Fault(kind="status", status=500, min_prompt_len=LONG, at=(1, 2)),))

    async def main() -> None:
        async with open_session(server.url, limits=Limits(num_retries=2)) as session:
            sender = await sent(session, planned())
            assert [result.attempt for result in sender.results] == [0, 1, 2]
            assert [result.failure is None for result in sender.results] == [False, False, True]
            assert len({result.prompt.head for result in sender.results}) == 3
            assert len({result.prompt.sha256 for result in sender.results}) == 3

    asyncio.run(main())
    run = read_run(tmp_path / "run.jsonl")
    assert [result.attempt for result in run.measurements] == [0, 1]  # the good one waits for its counters
    assert [note.topic for note in run.notes] == ["failure", "failure"]


def test_retry_after_is_obeyed(open_session, simulated) -> None:
    fault = Fault(kind="status", status=429, retry_after_s=1, min_prompt_len=LONG, at=(1,))
    server = simulated(faults=(fault,))

    async def main() -> None:
        async with open_session(server.url) as session:
            first, second = (await sent(session, planned())).results
            assert second.started_at_s - first.started_at_s >= 1.0

    asyncio.run(main())


def test_retry_after_has_an_end(open_session, simulated, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("deepdraft.bench.sending._MAX_RETRY_WAIT_S", 0.2)
    fault = Fault(kind="status", status=429, retry_after_s=3600, min_prompt_len=LONG, at=(1,))
    server = simulated(faults=(fault,))

    async def main() -> None:
        async with open_session(server.url) as session:
            first, second = (await sent(session, planned())).results
            assert second.failure is None
            assert second.started_at_s - first.started_at_s < 30

    asyncio.run(main())
    assert any("asks to wait 3600 s" in note.message for note in read_run(tmp_path / "run.jsonl").notes)


def test_a_server_that_is_gone_ends_all_of_them(open_session, simulated) -> None:
    server = simulated(faults=(Fault(kind="die", min_prompt_len=LONG, at=(2,)),))

    async def main() -> None:
        limits = Limits(server_wait_s=0.2)
        async with open_session(server.url, num_requests=8, limits=limits) as session:
            with pytest.raises(ServerLost):
                await sent(session, planned(2))
            failures = [result.failure for result in session.recorder.run().measurements if result.failure]
            assert failures  # the failure itself is kept

    asyncio.run(main())


def test_a_full_disk_ends_all_of_them(open_session, simulated, physics) -> None:
    server = simulated(physics=physics(prefill_b_s=5e-5))

    async def main() -> None:
        async with open_session(server.url, num_requests=100) as session:

            class FullWriter:
                def append(self, *lines: object) -> None:
                    raise DiskFull("no room")

                def close(self) -> None:
                    pass

            session.recorder._writer.close()
            session.recorder._writer = FullWriter()
            with pytest.raises(DiskFull):
                await sent(session, planned(2))
            assert 1 <= len(session.recorder.run().measurements) < 10

    asyncio.run(main())


def test_pairs_run_one_after_the_other(open_session, plain) -> None:
    async def main() -> None:
        flushed = []

        async def flush() -> None:
            flushed.append(1)

        async with open_session(plain.url, method="two-point") as session:
            sender = Sender(session, planned(), flush)
            prompt = await session.maker.make(800)
            other = await session.maker.same_body(prompt)
            await sender.send([sender.encoded(prompt, 0, "first", 1), sender.encoded(other, 0, "second", 9)])
            first, second = sender.results
            assert [first.role, second.role] == ["first", "second"]
            assert second.started_at_s >= first.started_at_s + first.trace.end_s
            assert flushed == [1]
            assert first.prompt.head != second.prompt.head

    asyncio.run(main())
