"""Sweeps of our own server: of a tiny random model, and of the model that ships with the package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import deepdraft
from deepdraft.embedded import DeepdraftSpec, EmbeddedServer, running
from deepdraft.errors import ServerError
from deepdraft.metrics import STEP_PARTS, output_tokens, points_of, prompt_tokens
from deepdraft.records import Run, SweepSpec
from deepdraft.records.file import read_run

LIMIT_S = 150
EMBEDDED_MODEL = Path(deepdraft.__file__).parent / "infer" / "embedded_model" / "config.json"
IDS = "completions"
"""The route that takes token ids: no words need to be counted first."""
JUDGED_BY_COUNTS = ("cold_prefix", "prompt_len", "truncation", "early_stop", "background_load", "bundled_tokens")
"""Guards that no other work on the machine can disturb."""


class TestTinyModel:
    """In this process, on a server that every test shares."""

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tiny_model: Path) -> Iterator[EmbeddedServer]:
        with running(DeepdraftSpec(model=str(tiny_model), context_len=1_100, num_slots=2, num_threads=1)) as one:
            yield one

    @pytest.fixture(scope="class")
    @classmethod
    def clean(cls, server: EmbeddedServer, judged: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
        spec = SweepSpec(url="embedded", context_lens=(256, 1000), decode_len=16, num_repeats=2, endpoint=IDS)
        return judged.swept(server.url, tmp_path_factory.mktemp("clean") / "run.jsonl", spec)

    def test_prompts_and_answers_are_as_long_as_asked_by_the_servers_own_count(self, clean: Run, judged: Any) -> None:
        assert len(judged.measured(clean)) == 4
        for each in judged.measured(clean):
            assert each.failure is None
            assert prompt_tokens(each.trace) == each.prompt.asked_len
            assert output_tokens(each.trace) == each.max_tokens == 16

    def test_nothing_was_cached_and_that_is_verified(self, clean: Run, judged: Any) -> None:
        assert [each.trace.usage.cached_tokens for each in judged.measured(clean)] == [0] * 4
        for name in JUDGED_BY_COUNTS:
            assert set(judged.states(clean, name)) == {"verified"}, name

    def test_every_trial_was_preceded_by_a_flush_that_was_done(self, clean: Run) -> None:
        assert len(clean.trials) == 5  # with the warm-up
        for trial in clean.trials:
            assert any(step.means == "flush" and step.is_done for step in trial.cold_steps)

    def test_the_guard_speaks_when_the_cache_is_left_on_and_the_prompt_repeated(
        self, server: EmbeddedServer, judged: Any, tmp_path: Path
    ) -> None:
        spec = SweepSpec(url="embedded", context_lens=(256,), decode_len=8, endpoint=IDS, keep_cache=True)
        run = judged.swept(server.url, tmp_path / "run.jsonl", spec)
        assert judged.states(run, "cold_prefix") == ["violated"]

    @pytest.mark.parametrize("endpoint", ["chat", "completions"])
    def test_two_point_pairs_are_taken(
        self, server: EmbeddedServer, judged: Any, tmp_path: Path, endpoint: str
    ) -> None:
        spec = SweepSpec(
            url="embedded",
            context_lens=(256,),
            method="two-point",
            decode_len=200,  # longer than the machine may hold up the first of a pair
            endpoint=endpoint,
            num_repeats=2,
        )
        run = judged.swept(server.url, tmp_path / "run.jsonl", spec)
        (point,) = points_of(run)
        assert point.refused_pairs == ()
        assert judged.states(run, "cold_prefix") == ["verified"]

    def test_two_at_once(self, server: EmbeddedServer, judged: Any, tmp_path: Path) -> None:
        spec = SweepSpec(url="embedded", context_lens=(500,), decode_len=64, concurrencies=(2,), endpoint=IDS)
        run = judged.swept(server.url, tmp_path / "run.jsonl", spec)
        (point,) = points_of(run)
        assert point.num_failed == 0
        assert len(judged.measured(run)) == 6

    def test_a_point_beyond_the_limit_is_refused_before_it_is_sent(
        self, server: EmbeddedServer, judged: Any, tmp_path: Path
    ) -> None:
        spec = SweepSpec(url="embedded", context_lens=(256, 1300), decode_len=8, num_repeats=1, endpoint=IDS)
        run = judged.swept(server.url, tmp_path / "run.jsonl", spec)
        (refusal,) = run.refusals
        assert refusal.context_len == 1300
        assert "context limit of 1,280" in refusal.reason


class TestDrafting:
    """A tiny random model whose server drafts by prompt lookup: what a sweep records is what the server counted."""

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tiny_model: Path) -> Iterator[EmbeddedServer]:
        flags = ("--drafter", "ngram", "--speculation", "always", "--tree-budget", "6")
        spec = DeepdraftSpec(model=str(tiny_model), context_len=600, num_slots=2, num_threads=1, flags=flags)
        with running(spec) as one:
            yield one

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, server: EmbeddedServer, judged: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
        spec = SweepSpec(
            url="embedded", context_lens=(256, 500), decode_len=48, num_repeats=2, endpoint=IDS, text="repeat"
        )
        return judged.swept(server.url, tmp_path_factory.mktemp("drafting") / "run.jsonl", spec)

    def test_every_answer_tells_its_own_drafting(self, run: Run, judged: Any) -> None:
        assert run.header.capabilities.speculation == "yes"
        assert run.header.capabilities.speculation_method == "ngram"
        assert run.header.capabilities.reports_acceptance == "yes"
        for each in judged.measured(run):
            told = each.acceptance
            assert told.source == "usage.speculation of the answer" and told.doubt is None
            assert sum(told.accepted_len_histogram) == told.num_steps
            assert sum(told.decisions.rounds_by_reason.values()) == told.num_steps
            assert told.is_simulated is False
            assert told.parts is not None and told.parts.verify_s > 0
            assert told.num_draft_tokens >= told.num_accepted_tokens
        assert set(judged.states(run, "simulated_acceptance")) == {"verified"}

    def test_a_trial_and_its_request_were_counted_alike(self, run: Run) -> None:
        by_trial = {each.trial_id: each.acceptance for each in run.measurements}
        counted = [trial for trial in run.trials if trial.acceptance is not None]
        assert counted  # the random model repeats itself, so something is drafted
        for trial in counted:
            told, around = by_trial[trial.trial_id], trial.acceptance
            assert (told.num_steps, told.num_draft_tokens, told.num_accepted_tokens) == (
                around.num_steps,
                around.num_draft_tokens,
                around.num_accepted_tokens,
            )

    def test_the_points_carry_the_parts_of_a_step(self, run: Run) -> None:
        for point in points_of(run):
            parts_s = sum(point.summary(f"step_{name}_s").median for name in STEP_PARTS)
            assert 0 < parts_s < 1.2 * point.summary("step_s").high

    def test_two_at_once_are_told_apart(self, server: EmbeddedServer, judged: Any, tmp_path: Path) -> None:
        spec = SweepSpec(url="embedded", context_lens=(256,), decode_len=32, concurrencies=(2,), endpoint=IDS)
        run = judged.swept(server.url, tmp_path / "run.jsonl", spec)
        for trial in run.trials:
            told = [each.acceptance for each in run.measurements if each.trial_id == trial.trial_id]
            around = trial.acceptance
            assert sum(each.num_draft_tokens for each in told) == (around.num_draft_tokens if around else 0)
            assert sum(each.num_accepted_tokens for each in told) == (around.num_accepted_tokens if around else 0)


def test_a_model_that_is_not_there_is_said_in_one_line(tiny_model: Path) -> None:
    spec = DeepdraftSpec(model="/no/such/model")
    with pytest.raises(ServerError, match="no model at /no/such/model") as caught, running(spec):
        pytest.fail("it never ran")
    assert "\n" not in caught.value.message and caught.value.hint


Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.timeout(LIMIT_S * 2)
@pytest.mark.skipif(not EMBEDDED_MODEL.is_file(), reason="the embedded model is not in this tree")
@pytest.mark.usefixtures("tiny_model")  # skips where the inference stack is not installed
class TestCommand:
    """`deepdraft sweep --embedded`, as people type it."""

    @pytest.fixture(scope="class")
    @classmethod
    def deepdraft(cls) -> Command:
        def run(*words: object) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "deepdraft", *map(str, words)]
            return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)

        return run

    @pytest.fixture(scope="class")
    @classmethod
    def path(cls, deepdraft: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The results of a short sweep."""
        path = tmp_path_factory.mktemp("embedded") / "run.jsonl"
        lens = ("--context-len", "512,1k", "--decode-len", "16", "--repeats", "2", "--warmups", "1")
        done = deepdraft("sweep", "--embedded", *lens, "--endpoint", IDS, "--out", path)
        assert done.returncode == 0, done.stderr
        assert "deepdraft serve with the embedded model" in done.stderr
        assert done.stdout.startswith("deepdraft ")
        return path

    def test_a_short_sweep_from_end_to_end(self, path: Path, judged: Any) -> None:
        run = read_run(path)
        assert run.is_complete
        assert (run.header.spec.url, run.header.capabilities.engine) == ("embedded", "deepdraft")
        assert [(each.prompt.asked_len, each.failure) for each in judged.measured(run)] == [
            (512, None),
            (1000, None),
            (1000, None),
            (512, None),
        ]
        assert {prompt_tokens(each.trace) for each in judged.measured(run)} == {512, 1000}
        for name in JUDGED_BY_COUNTS:
            assert set(judged.states(run, name)) == {"verified"}, name

    def test_the_server_was_set_up_for_the_longest_request(self, path: Path) -> None:
        found = read_run(path).header.capabilities
        assert (found.max_context_len, found.kv_pool_tokens) == (1_024, 1_024)

    def test_a_sweep_that_was_cut_off_goes_on(self, path: Path, deepdraft: Command, tmp_path: Path) -> None:
        """Killed after its second measurement, with half a line written."""
        lines = path.read_text().splitlines(keepends=True)
        trials = [index for index, line in enumerate(lines) if json.loads(line)["kind"] == "trial"]
        cut = tmp_path / "cut.jsonl"
        cut.write_text("".join(lines[: trials[1] + 1]) + lines[trials[1] + 1][:40])
        done = deepdraft("sweep", "--resume", cut, "--quiet", "--json")
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        assert [(point["context_len"], point["num_failed"]) for point in facts["points"]] == [(512, 0), (1000, 0)]
        run = read_run(cut)
        assert run.is_complete
        assert len({each.trial_id for each in run.measurements if not each.is_warmup}) == 4

    def test_drafting_is_compared_in_turns(self, deepdraft: Command, tmp_path: Path, judged: Any) -> None:
        """Three servers at once, each with its own flags, measured A B C C B A."""
        servers = ("embedded", "embedded --drafter ngram", "embedded --drafter ngram --simulate-acceptance-len 3")
        what = ("--context-len", "256", "--decode-len", "16", "--repeats", "2", "--endpoint", IDS)
        done = deepdraft("compare", "--run", *servers, *what, "--out", tmp_path / "draft")
        assert done.returncode == 0, done.stderr
        runs = [read_run(tmp_path / f"draft-{name}.jsonl") for name in "abc"]
        assert [run.header.spec.embedded_flags for run in runs] == [
            (),
            ("--drafter", "ngram"),
            ("--drafter", "ngram", "--simulate-acceptance-len", "3"),
        ]
        assert [run.header.capabilities.speculation for run in runs] == ["no", "yes", "yes"]
        states = [judged.states(run, "simulated_acceptance") for run in runs]
        assert states == [["verified"], ["verified"], ["violated"]]
        for number in (1, 2):
            assert f"draft-{'abc'[number]}.jsonl (deepdraft" in done.stdout
        assert re.search(r"cannot tell .*ms/token.* at 256: in doubt:.*simulated_acceptance in B", done.stdout, re.S)
        assert [len(judged.measured(run)) for run in runs] == [2, 2, 2]

    def test_another_engine_does_not_go_on_with_it(self, path: Path, deepdraft: Command, tmp_path: Path) -> None:
        cut = tmp_path / "cut.jsonl"
        lines = [line for line in path.read_text().splitlines(keepends=True) if json.loads(line)["kind"] != "end"]
        cut.write_text("".join(lines[:-3]))
        done = deepdraft("sweep", "--resume", cut, "--embedded", "llamacpp", "--quiet")
        if "not installed" in done.stderr:
            pytest.skip("the embedded llama.cpp is not installed")
        assert done.returncode == 2
        assert "was measured on deepdraft with embedded" in done.stderr
