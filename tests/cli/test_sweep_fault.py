"""Requests that fail and servers that die: counted, kept, said; and the sweep goes on as far as it can."""

from __future__ import annotations

from pathlib import Path

from deepdraft.simulate.spec import Confounds, Fault

LONG = 700
"""Prompts of at least so many tokens are measured ones: what calibrates them is shorter."""


def fault(kind: str, **settings) -> Fault:
    """A fault that looks at measured requests only."""
    return Fault(kind=kind, min_prompt_len=LONG, **settings)


def swept(run, url, *flags):
    return run("sweep", url, "--decode-len", "8", "--warmups", "0", "--out", "out.jsonl", *flags)


def counted(path: Path, recorded, measured):
    """(point, repeat) of each trial whose requests count, and how often each request stands among the figures."""
    points = measured(path)
    return {key: sorted(sample.repeat_index for sample in point.samples) for key, point in points.items()}


def test_a_server_that_dies_at_point_3(deepdraft, simulated, port, tmp_path, recorded, measured) -> None:
    out = tmp_path / "out.jsonl"
    flags = ("--context-len", "800,900,1000", "--repeats", "2", "--wait-server", "0.5")
    server = simulated(port=port, faults=(fault("die", at=(3,), die_by="exit"),))
    ran = swept(deepdraft, server.url, *flags)
    assert ran.code == 4
    message, hint = ran.said
    assert message.startswith("the server was lost: ")
    assert message.endswith("at 1,000 tokens, repeat 1")
    assert hint == "what was measured is kept; go on with --resume out.jsonl"
    assert " 800 " in ran.out and " 900 " in ran.out  # the table
    assert "Not complete (server_lost)" in ran.out
    run = recorded(out)
    assert [trial.trial_id for trial in run.trials] == ["len800-c1-r0", "len900-c1-r0"]
    assert run.ends[-1].outcome == "server_lost"
    (failed,) = (result for result in run.measurements if result.failure is not None)
    assert failed.trial_id == "len1000-c1-r0"  # the failure itself is kept too

    simulated(port=port)
    ran = deepdraft("sweep", "--resume", "out.jsonl")
    assert ran.code == 0, ran.err
    assert counted(out, recorded, measured) == {(length, 1): [0, 1] for length in (800, 900, 1000)}
    assert recorded(out).is_complete
    assert measured(out)[1000, 1].num_failed == 0
    assert measured(out)[1000, 1].num_superseded == 1
    assert "1 requests of cut-short trials were measured again and count only once" in " ".join(ran.out.split())


def test_a_server_that_restarts_is_waited_for(deepdraft, simulated, recorded, tmp_path, measured) -> None:
    server = simulated(faults=(fault("die", at=(2,), restart_after_s=0.4, after_tokens=3),))
    ran = swept(deepdraft, server.url, "--context-len", "800,900", "--repeats", "2", "--wait-server", "20")
    assert ran.code == 1  # done; the request that died with the server is a failure of its point
    assert "wait: the server is not well: can't reach" in ran.err
    assert "wait: the server is back after" in ran.err
    run = recorded(tmp_path / "out.jsonl")
    assert run.is_complete
    assert [note.topic for note in run.notes].count("wait") == 2
    point = measured(tmp_path / "out.jsonl")[900, 1]
    assert (point.num_ok, point.num_failed) == (1, 1)
    assert "Failed (900): 1 of 2 requests: StreamEndedEarly" in " ".join(ran.out.split())


def test_a_server_that_restarts_and_loads_is_waited_for_longer(called, simulated) -> None:
    server = simulated(
        dialect="llamacpp",
        confounds=Confounds(loading_s=0.6),
        faults=(fault("die", at=(1,), restart_after_s=0.1, after_tokens=3),),
    )
    ran = swept(called, server.url, "--context-len", "800", "--repeats", "2")
    assert ran.code == 1
    assert "Loading model" in ran.err
    assert "waiting up to 15 min" in ran.err
    assert "the server is back" in ran.err


def test_a_stream_that_ends_without_finish(called, simulated, measured, tmp_path) -> None:
    server = simulated(faults=(fault("cut", at=(2,), after_tokens=3),))
    ran = swept(called, server.url, "--context-len", "800")
    assert ran.code == 1
    point = measured(tmp_path / "out.jsonl")[800, 1]
    assert (point.num_ok, point.num_failed, len(point.samples)) == (2, 1, 2)
    (failed,) = point.failures
    assert failed.failure.name == "StreamEndedEarly"
    assert failed.trace.usage is None or failed.trace.usage.completion_tokens == 3
    assert "after 3 tokens" in failed.failure.message


def test_an_error_in_the_stream_keeps_its_words(called, simulated, measured, tmp_path) -> None:
    server = simulated(faults=(fault("error_in_stream", at=(1,), message="KV pool exhausted"),))
    ran = swept(called, server.url, "--context-len", "800", "--repeats", "2")
    assert ran.code == 1
    assert "KV pool exhausted" in ran.err
    assert "Failed (800): 1 of 2 requests: ErrorInStream: KV pool exhausted" in " ".join(ran.out.split())


def test_no_answer_at_all_is_one_failed_request(called, simulated, measured, tmp_path) -> None:
    server = simulated(faults=(fault("stall", at=(2,)),))
    ran = swept(called, server.url, "--context-len", "800", "--first-token-limit", "0.4")
    assert ran.code == 1
    point = measured(tmp_path / "out.jsonl")[800, 1]
    assert (point.num_ok, point.num_failed) == (2, 1)
    (failed,) = point.failures
    assert failed.failure.name == "Stalled"
    assert "no answer within 400 ms" in failed.failure.message


def test_a_stream_that_stalls_is_one_failed_request(called, simulated, measured, tmp_path) -> None:
    server = simulated(faults=(fault("stall_stream", at=(2,), after_tokens=3),))
    ran = swept(called, server.url, "--context-len", "800", "--stall-limit", "0.4")
    assert ran.code == 1
    point = measured(tmp_path / "out.jsonl")[800, 1]
    assert (point.num_ok, point.num_failed) == (2, 1)
    assert "nothing more came for 400 ms" in point.failures[0].failure.message
    assert "3 tokens" in point.failures[0].failure.message


def test_a_late_first_token_is_no_failure(called, simulated, measured, tmp_path) -> None:
    # With a stall limit far below the silence: before the first token silence is prefill, not a stall.
    server = simulated(faults=(fault("late", at=(2,), delay_s=0.7),))
    ran = swept(called, server.url, "--context-len", "800", "--stall-limit", "0.3")
    assert ran.code == 0, ran.err
    point = measured(tmp_path / "out.jsonl")[800, 1]
    assert point.num_ok == 3
    assert max(sample.figures["ttft_s"] for sample in point.samples) > 0.7


def test_429_is_tried_again_and_stays_in_the_file(called, simulated, measured, recorded, tmp_path) -> None:
    server = simulated(faults=(fault("status", at=(2,), status=429, retry_after_s=1, message="slow down"),))
    ran = swept(called, server.url, "--context-len", "800")
    assert ran.code == 1
    out = tmp_path / "out.jsonl"
    point = measured(out)[800, 1]
    assert (point.num_ok, point.num_failed, point.num_requests) == (3, 1, 4)
    run = recorded(out)
    tries = [result for result in run.measurements if result.trial_id == "len800-c1-r1"]
    assert [result.attempt for result in tries] == [0, 1]
    assert tries[0].failure is not None
    assert (tries[0].failure.http_status, tries[0].failure.retry_after_s) == (429, 1.0)
    assert tries[1].started_at_s - tries[0].started_at_s >= 1.0
    assert tries[0].prompt.head != tries[1].prompt.head  # nothing of the refused try can be found in a cache
    truths = [truth for truth in server.truths() if (truth.prompt_len or 0) >= LONG]
    assert [truth.status for truth in truths] == [200, 429, 200, 200]


def test_no_retries(called, simulated, measured, tmp_path) -> None:
    server = simulated(faults=(fault("status", at=(2,), status=429, retry_after_s=1),))
    ran = swept(called, server.url, "--context-len", "800", "--retries", "0")
    assert ran.code == 1
    point = measured(tmp_path / "out.jsonl")[800, 1]
    assert (point.num_ok, point.num_failed, point.num_requests) == (2, 1, 3)


def test_a_refusal_for_good_is_not_tried_again(called, simulated, recorded, tmp_path) -> None:
    server = simulated(faults=(fault("status", status=413, message="too large", at=(1,)),))
    ran = swept(called, server.url, "--context-len", "800", "--repeats", "2", "--retries", "3")
    assert ran.code == 1
    assert "too large" in ran.err
    assert [result.attempt for result in recorded(tmp_path / "out.jsonl").measurements] == [0, 0]


def test_a_point_whose_prompts_the_server_will_not_count(called, simulated, recorded, measured, tmp_path) -> None:
    # A server that tells no limit and counts by usage alone: the probe of a long prompt is what it refuses.
    server = simulated(
        dialect="transformers",
        confounds=Confounds(template_len=3),
        faults=(Fault(kind="status", min_prompt_len=2000, status=400, message="this model takes 2000 tokens"),),
    )
    ran = swept(called, server.url, "--context-len", "800,4k", "--repeats", "1")
    assert ran.code == 1, ran.err
    assert "this model takes 2000 tokens" in " ".join(ran.out.split())
    points = measured(tmp_path / "out.jsonl")
    assert points[800, 1].num_ok == 1
    assert points[4000, 1].num_failed >= 1
    assert recorded(tmp_path / "out.jsonl").is_complete
