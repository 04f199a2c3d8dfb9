"""One trial from its prompts to its line in the file."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from deepdraft.bench.plan import PlannedTrial, PointRefused
from deepdraft.bench.trial import run_trial
from deepdraft.errors import ServerLost
from deepdraft.records import Limits
from deepdraft.records.file import read_run
from deepdraft.simulate.spec import Confounds, Fault, Surface

PLANNED = PlannedTrial(trial_id="len800-c1-r0", context_len=800, concurrency=1, repeat_index=0)
LONG = 700


def test_a_trial_and_its_request_are_written_together(open_session, simulated, physics, tmp_path) -> None:
    server = simulated(dialect="sglang", physics=physics(committed_len_pattern=(1, 3), step_d_s=0.003))

    async def main() -> None:
        async with open_session(server.url, decode_len=41) as session:
            trial, (result,) = await run_trial(session, PLANNED)
            run = read_run(tmp_path / "run.jsonl")
            assert run.trials == (trial,)
            assert run.measurements == (result,)
            assert trial.started_at_s <= result.started_at_s <= trial.ended_at_s
            assert [step.means for step in trial.cold_steps] == ["unique_head", "cache_salt", "flush"]
            assert all(step.is_done for step in trial.cold_steps)
            # The counters caught up with what was generated, and tell of it alone.
            made = trial.after.counters["generation_tokens"] - trial.before.counters["generation_tokens"]
            assert made == 41
            assert trial.num_probe_requests == 0
            assert result.acceptance is not None
            assert result.acceptance.num_accepted_tokens == 20
            assert trial.loop_lag_max_s is not None
            assert trial.client_cpu_s > 0
            assert session.seen_ttft.keys() == {800}

    asyncio.run(main())


def test_a_trial_at_concurrency(open_session, plain, tmp_path) -> None:
    async def main() -> None:
        async with open_session(plain.url, num_requests=5) as session:
            trial, results = await run_trial(session, replace(PLANNED, concurrency=2))
            run = read_run(tmp_path / "run.jsonl")
            assert sorted(each.request_index for each in run.measurements) == list(range(5))
            assert len(results) == 5
            assert run.trials == (trial,)
            assert len({each.prompt.head for each in results}) == 5

    asyncio.run(main())


def test_bodies_differ_between_repeats_and_are_the_same_for_the_same_repeat(open_session, plain) -> None:
    async def texts(file: str) -> list[str]:
        async with open_session(plain.url, file=file) as session:
            from deepdraft.bench.trial import _TrialRun

            found = []
            for repeat_index in (0, 1):
                run = _TrialRun(session, replace(PLANNED, repeat_index=repeat_index))
                (ask,) = await run._asks()
                found.append(ask.prompt.text.removeprefix(ask.prompt.head))
            return found

    one, other = asyncio.run(texts("a.jsonl")), asyncio.run(texts("b.jsonl"))
    assert one == other
    assert one[0] != one[1]


def test_keeping_the_cache_sends_the_same_prompt_again(open_session, simulated) -> None:
    server = simulated(confounds=Confounds(prefix_cache=True))

    async def main() -> None:
        async with open_session(server.url, keep_cache=True) as session:
            for repeat_index in (0, 1):
                trial, (result,) = await run_trial(session, replace(PLANNED, repeat_index=repeat_index))
                assert result.prompt.head is None
                assert trial.cold_steps[0].is_done is False

    asyncio.run(main())
    assert [truth.cached_len for truth in server.truths() if truth.prompt_len == 800] == [0, 799]


def test_a_failed_attempt_before_it_leaves_counters_that_tell_of_both(open_session, simulated, physics) -> None:
    server = simulated(
        dialect="sglang",
        physics=physics(committed_len_pattern=(2,)),
        faults=(Fault(kind="status", status=500, min_prompt_len=LONG, at=(1,)),),
    )

    async def main() -> None:
        async with open_session(server.url) as session:
            _, results = await run_trial(session, PLANNED)
            assert [each.failure is None for each in results] == [False, True]

    asyncio.run(main())


def test_a_point_that_no_prompt_fits(open_session, plain, tmp_path) -> None:
    async def main() -> None:
        async with open_session(plain.url) as session:
            with pytest.raises(PointRefused, match="a prompt of 5 tokens is too short"):
                await run_trial(session, replace(PLANNED, context_len=5))

    asyncio.run(main())
    run = read_run(tmp_path / "run.jsonl")
    assert (run.measurements, run.trials) == ((), ())


@pytest.mark.parametrize(("status", "num_attempts"), [(400, 1), (500, 2)])
def test_prompts_that_the_server_will_not_count(open_session, simulated, tmp_path, status, num_attempts) -> None:
    # Only usage counts here, and the probe of a long prompt is refused.
    server = simulated(
        dialect="transformers",
        confounds=Confounds(retokenise=True, template_len=5),
        surface=Surface(tokenize=False),
        faults=(Fault(kind="status", status=status, min_prompt_len=LONG, message="out of memory"),),
    )

    async def main() -> None:
        async with open_session(server.url, limits=Limits(num_retries=1)) as session:
            session.maker.make = lambda *words, **settings: session.adapter.probed("word " * 900)
            trial, results = await run_trial(session, PLANNED)
            assert [each.attempt for each in results] == list(range(num_attempts))
            assert trial.before is None

    asyncio.run(main())
    run = read_run(tmp_path / "run.jsonl")
    assert [each.failure.http_status for each in run.measurements] == [status] * num_attempts
    assert "counting the prompt failed: HTTP" in run.measurements[0].failure.message
    assert "out of memory" in run.measurements[0].failure.message
    assert len(run.trials) == 1


def test_a_server_that_is_lost_leaves_no_trial(open_session, simulated, tmp_path) -> None:
    server = simulated(faults=(Fault(kind="die", min_prompt_len=LONG),))

    async def main() -> None:
        async with open_session(server.url, limits=Limits(server_wait_s=0.1)) as session:
            with pytest.raises(ServerLost):
                await run_trial(session, PLANNED)

    asyncio.run(main())
    run = read_run(tmp_path / "run.jsonl")
    assert run.trials == ()
    (failed,) = run.measurements
    assert failed.failure.name == "StreamEndedEarly"


def test_a_good_request_is_kept_when_its_trial_is_cut_short(open_session, plain, tmp_path, monkeypatch) -> None:
    async def main() -> None:
        async with open_session(plain.url) as session:
            ended = asyncio.Event()

            async def reading_for_ever(self, before):
                ended.set()
                await asyncio.sleep(60)

            monkeypatch.setattr("deepdraft.bench.trial._TrialRun._reading_after", reading_for_ever)
            task = asyncio.create_task(run_trial(session, PLANNED))
            await ended.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    run = read_run(tmp_path / "run.jsonl")
    assert run.trials == ()
    assert [each.failure for each in run.measurements] == [None]


def test_load_is_looked_at_during_long_prefills_and_progress_says_that_it_waits(
    open_session, simulated, physics, monkeypatch, talk
) -> None:
    monkeypatch.setattr("deepdraft.bench.trial._FIRST_SAMPLE_S", 0.1)
    monkeypatch.setattr("deepdraft.bench.trial._SAMPLE_S", 0.2)
    monkeypatch.setattr("deepdraft.bench.trial._TICK_S", 0.05)
    server = simulated(
        confounds=Confounds(background_requests=2),
        faults=(Fault(kind="late", min_prompt_len=LONG, delay_s=1.2),),
    )

    async def main() -> None:
        async with open_session(server.url) as session:
            session.progress.plain_tick_s = 0.2
            session.progress.begin("800 tokens, repeat 1", None)
            trial, (result,) = await run_trial(session, PLANNED)
            assert result.failure is None
            assert len(trial.during) >= 2
            assert {reading.num_running for reading in trial.during} == {3}

    asyncio.run(main())
    assert re.search("800 tokens, repeat 1: waiting for the first token, [01] s", talk.getvalue())


def test_counters_of_a_restarted_server_are_not_waited_for(open_session, simulated) -> None:
    server = simulated(faults=(Fault(kind="die", min_prompt_len=LONG, restart_after_s=0.1),))

    async def main() -> None:
        async with open_session(server.url) as session:
            began_s = session.now_s()
            trial, (result,) = await run_trial(session, PLANNED)
            assert result.failure is not None
            assert trial.after.counters["generation_tokens"] < trial.before.counters["generation_tokens"]
            assert session.now_s() - began_s < 5

    asyncio.run(main())
