"""A whole sweep in this process: what its outcome says, and what stands in the file."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace

import msgspec
import pytest

from deepdraft.bench.sweep import _last_s
from deepdraft.errors import Interrupted, NotAnApi, ResultsError, ServerLost, Unreachable, UsageError
from deepdraft.metrics import points_of
from deepdraft.records import Limits
from deepdraft.records.file import read_run
from deepdraft.simulate.spec import Confounds, Fault, Surface


def test_a_complete_one(swept, plain, tmp_path, talk) -> None:
    outcome = swept(plain.url, context_lens=(200, 300), num_warmups=1)
    assert outcome.problem is None
    assert outcome.num_unsaved == 0
    run = read_run(tmp_path / "run.jsonl")
    assert run == outcome.run
    assert run.is_complete
    assert run.header.capabilities.engine == "vllm"
    assert run.header.environment["packages"]["msgspec"]
    assert [trial.trial_id for trial in run.trials] == [
        "warmup-0", "len200-c1-r0", "len300-c1-r0", "len300-c1-r1", "len200-c1-r1",
    ]  # fmt: skip
    assert len({result.prompt.head for result in run.measurements}) == 5
    times = [moment for trial in run.trials for moment in (trial.started_at_s, trial.ended_at_s)]
    assert times == sorted(times)
    assert run.ends[-1].at_s >= times[-1]
    said = talk.getvalue()
    assert "vllm 0.32.0 with sim, chat endpoint\n" in said
    assert "[1/5] 200 tokens, warm-up: TTFT" in said
    assert "[5/5] 200 tokens, repeat 2: TTFT" in said


def test_lines_are_valid_by_the_schema_of_the_records(swept, plain, tmp_path) -> None:
    swept(plain.url)
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "run.jsonl").read_bytes().splitlines()]
    assert kinds[0] == "header"
    assert kinds[-1] == "end"
    assert kinds.count("trial") == kinds.count("measurement") == 2


def test_before_the_file_is_begun_a_problem_leaves_none(swept, tmp_path) -> None:
    outcome = swept("http://127.0.0.1:1")
    assert outcome.run is None
    assert isinstance(outcome.problem, Unreachable)
    outcome = swept("ftp://127.0.0.1:1")
    assert isinstance(outcome.problem, UsageError)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there(swept, plain, tmp_path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("mine")
    outcome = swept(plain.url)
    assert isinstance(outcome.problem, ResultsError)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "is a folder"), ("no/such/run.jsonl", "there is no folder"), ("x" * 300, "File name too long")],
)
def test_a_path_that_can_not_be_written(swept, tmp_path, name, words) -> None:
    outcome = swept("http://127.0.0.1:1", path=tmp_path / name)  # said before the server is even looked for
    assert isinstance(outcome.problem, ResultsError)
    assert words in outcome.problem.message


def test_cancelling_ends_it_in_order(swept, simulated, physics, tmp_path) -> None:
    server = simulated(physics=physics(prefill_b_s=1e-4))
    talk = io.StringIO()

    async def during(task: asyncio.Task) -> None:
        while "[3/" not in talk.getvalue():
            await asyncio.sleep(0.002)
        task.cancel()

    outcome = swept(server.url, num_repeats=12, during=during, stream=talk)
    assert isinstance(outcome.problem, Interrupted)
    assert outcome.problem.hint == f"go on with --resume {tmp_path / 'run.jsonl'}"
    run = read_run(tmp_path / "run.jsonl")
    assert run == outcome.run
    assert run.ends[-1].outcome == "interrupted"
    assert 3 <= len(run.trials) < 12

    outcome = swept(server.url, num_repeats=12, is_resumed=True)
    assert outcome.problem is None
    (point,) = points_of(outcome.run)
    assert sorted(sample.repeat_index for sample in point.samples) == list(range(12))
    assert outcome.run == read_run(tmp_path / "run.jsonl")


def test_cancelling_before_anything(swept, simulated, tmp_path) -> None:
    server = simulated(dialect="llamacpp", confounds=Confounds(loading_s=30))

    async def during(task: asyncio.Task) -> None:
        await asyncio.sleep(0.2)
        task.cancel()

    outcome = swept(server.url, during=during)
    assert outcome.run is None
    assert outcome.problem.message == "interrupted before anything was measured"
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_lost(swept, simulated, tmp_path) -> None:
    server = simulated(faults=(Fault(kind="die", min_prompt_len=700, at=(2,)),))
    outcome = swept(server.url, context_lens=(800,), num_repeats=4, limits=Limits(server_wait_s=0.1))
    assert isinstance(outcome.problem, ServerLost)
    assert outcome.problem.message.endswith("at 800 tokens, repeat 2")
    assert outcome.run.ends[-1].outcome == "server_lost"
    assert len(outcome.run.trials) == 1


@pytest.mark.parametrize("limits", [Limits(), Limits(server_wait_s=30.0, start_wait_s=30.0)])
def test_a_server_that_loads_is_waited_for(swept, simulated, talk, limits) -> None:
    server = simulated(dialect="llamacpp", confounds=Confounds(loading_s=0.5))
    outcome = swept(server.url, limits=limits)
    assert outcome.problem is None
    waits = [line for line in talk.getvalue().splitlines() if line.startswith("wait: ")]
    assert len(waits) == 1
    assert ("15 min" if limits == Limits() else "30 s") in waits[0]


class TestResumed:
    def test_what_the_server_is_now_is_said(self, swept, plain, simulated, physics, tmp_path) -> None:
        swept(plain.url)
        path = tmp_path / "run.jsonl"
        cut = b"".join(path.read_bytes().splitlines(keepends=True)[:-3])
        path.write_bytes(cut)
        second = simulated(physics=physics(max_context_len=99_000))
        outcome = swept(second.url, is_resumed=True)
        assert outcome.problem is None
        messages = [note.message for note in outcome.run.notes if note.topic == "resume"]
        assert messages == [
            f"resumed with Deepdraft 0.1.0, at {second.url}",
            "the server's max_context_len was 262144, now 99000",
        ]
        assert path.read_bytes().startswith(cut)

    def test_another_model_is_refused(self, swept, plain, simulated, tmp_path) -> None:
        swept(plain.url)
        before = (tmp_path / "run.jsonl").read_bytes()
        outcome = swept(simulated(surface=Surface(model="other")).url, is_resumed=True)
        assert isinstance(outcome.problem, UsageError)
        assert outcome.run is None
        assert (tmp_path / "run.jsonl").read_bytes() == before

    def test_time_never_runs_backwards(self, swept, plain, tmp_path) -> None:
        """Even when the wall clock was set back by a day in between."""
        swept(plain.url)
        path = tmp_path / "run.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        header = replace(read_run(path).header, created_at="2099-01-01T00:00:00+00:00")
        path.write_bytes(msgspec.json.encode(header) + b"\n" + b"".join(lines[1:-3]))
        last_s = _last_s(read_run(path))
        assert last_s > 0
        outcome = swept(plain.url, is_resumed=True)
        assert outcome.problem is None
        later = outcome.run.trials[-1]
        assert later.started_at_s >= last_s

    def test_damage_in_the_middle_is_still_told(self, swept, plain, tmp_path) -> None:
        swept(plain.url)
        path = tmp_path / "run.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        place = next(index for index, line in enumerate(lines) if b'"kind":"trial"' in line)
        lines[place] = b"garbage\n"
        path.write_bytes(b"".join(lines[:-1]))
        outcome = swept(plain.url, is_resumed=True)
        assert outcome.problem is None
        assert len(outcome.run.damage) == 1
        (point,) = points_of(outcome.run)
        # The trial whose line was lost is measured again; its first request is not counted twice.
        assert sorted(sample.repeat_index for sample in point.samples) == [0, 1]
        assert point.num_superseded == 1


def test_a_web_page_is_no_api(swept, tmp_path) -> None:
    import http.server
    import threading

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html><title>Hi</title></html>")

        def log_message(self, *words: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        outcome = swept(f"http://127.0.0.1:{server.server_address[1]}", headers={"x-token": "0123456789"})
        server.shutdown()
    assert isinstance(outcome.problem, NotAnApi)
    assert list(tmp_path.iterdir()) == []
