"""Drafting seen from outside: answers are the same, their usage tells what was drafted, and /metrics sums it up."""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from deepdraft.errors import UsageError
from deepdraft.infer.control.decision import REASONS
from deepdraft.infer.request import RequestSpeculation
from deepdraft.infer.server.drafting import DraftCounts, usage_fields
from deepdraft.infer.server.load import load_service
from deepdraft.infer.server.run import introduction
from deepdraft.infer.server.settings import ServeSettings
from deepdraft.infer.step_record import Round, StepRecord

sys.path.insert(0, str(Path(__file__).parents[1] / "drafters"))
from drafting_case import write_drafter

RECITED = "Schöne 漢字🚀"
NUM_RECITED = len(RECITED.encode())
DRAFT_LEN = 8
PROMPT = RECITED * 2
"""From its end on, prompt lookup knows how the reciter goes on."""
PARTS = ("draft", "build", "verify", "compact", "other")


@pytest.fixture(scope="module")
def server(serving, reciter_folder):
    with serving(reciter_folder, served_model_names=("reciter",), drafter="ngram", speculation="always") as running:
        yield running


@pytest.fixture(scope="module")
def deciding(serving, reciter_folder):
    """Decides at each step whether to draft, as it does unless told otherwise."""
    with serving(reciter_folder, served_model_names=("reciter",), drafter="ngram") as running:
        yield running


@pytest.fixture(scope="module")
def drafter_folder(tmp_path_factory) -> Path:
    """A DFlash drafter of random weights for the random model: it is mostly wrong, and must not be noticed."""
    return write_drafter(
        tmp_path_factory.mktemp("drafters") / "random",
        hidden_size=32,
        vocab_size=264,
        num_target_layers=2,
        dflash_config={"mask_token_id": 263, "target_layer_ids": [0, 1]},
    ).path


def recited(num_tokens: int) -> str:
    """What the reciter says in so many tokens, which are bytes."""
    return (RECITED * 9).encode()[:num_tokens].decode(errors="replace")


def figures(server: Any) -> dict[str, float]:
    """Every sample of /metrics that is of drafting, generation or steps, by name and labels."""
    families = text_string_to_metric_families(server.get("/metrics").body.decode())
    return {
        sample.name.removeprefix("deepdraft:") + "".join(sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("deepdraft:")
    }


def moved(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: after[name] - before.get(name, 0.0) for name in after}


def check_usage(usage: dict[str, Any]) -> None:
    """The laws of one answer's usage."""
    drafting, details = usage["speculation"], usage["completion_tokens_details"]
    histogram = drafting["accepted_len_histogram"]
    assert sum(histogram) == drafting["num_rounds"]
    accepted = sum(accepted_len * count for accepted_len, count in enumerate(histogram))
    assert details["accepted_prediction_tokens"] == accepted
    assert accepted + details["rejected_prediction_tokens"] == drafting["num_draft_tokens"]
    assert details["rejected_prediction_tokens"] >= 0
    assert not histogram or histogram[-1] > 0
    assert drafting["is_simulated"] is False
    assert all(drafting[f"{part}_s"] >= 0 for part in PARTS)
    assert sum(drafting["rounds_by_reason"].values()) == drafting["num_rounds"]


class TestUsage:
    @pytest.mark.parametrize("max_tokens", [1, 2, 3, 17, 40, 64])
    def test_laws(self, server, max_tokens) -> None:
        before = figures(server)
        answer = server.complete(PROMPT, max_tokens=max_tokens, return_token_ids=True).json
        now = moved(before, figures(server))
        usage = answer["usage"]
        check_usage(usage)
        (choice,) = answer["choices"]
        assert choice["text"] == recited(max_tokens)
        assert usage["completion_tokens"] == max_tokens == len(choice["token_ids"])
        drafting = usage["speculation"]
        num_decodes = now.get("step_seconds_countdecode", 0)
        assert drafting["num_rounds"] == now.get("step_seconds_countverify", 0)
        assert sum(drafting["plain_steps_by_reason"].values()) == num_decodes
        assert drafting["break_even_len"] is drafting["expected_len"] is None, (
            "where it always drafts nothing is weighed"
        )
        # The first token is the prefill's; a round gives its accepted drafts and one more, the last one may be cut.
        given = (
            1
            + num_decodes
            + drafting["num_rounds"]
            + usage["completion_tokens_details"]["accepted_prediction_tokens"]
        )
        assert 0 <= given - max_tokens <= DRAFT_LEN
        if max_tokens > NUM_RECITED:
            assert num_decodes + drafting["num_rounds"] < max_tokens / 2

    def test_each_choice_counts(self, server) -> None:
        before = figures(server)
        usage = server.complete(PROMPT, max_tokens=24, n=3).json["usage"]
        now = moved(before, figures(server))
        check_usage(usage)
        assert usage["completion_tokens"] == 72
        assert usage["speculation"]["num_rounds"] == now["spec_decode_num_drafts_total"]

    def test_without_a_drafter_there_is_nothing_of_it(self, reciter) -> None:
        usage = reciter.complete(PROMPT, max_tokens=4).json["usage"]
        assert usage.keys() == {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}
        assert reciter.get("/server_info").json["speculation"] is None
        assert not any("spec_decode" in name for name in figures(reciter))

    @given(
        st.lists(
            st.builds(
                RequestSpeculation,
                num_draft_tokens=st.integers(100, 1000),
                accepted_len_histogram=st.lists(st.integers(0, 3), max_size=5).map(tuple),
                verify_s=st.floats(0, 10),
                is_simulated=st.booleans(),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def test_several_requests_are_added_up(self, requests) -> None:
        fields = usage_fields(requests)
        drafting = fields["speculation"]
        for accepted_len, count in enumerate(drafting["accepted_len_histogram"]):
            assert count == sum(
                each.accepted_len_histogram[accepted_len]
                for each in requests
                if accepted_len < len(each.accepted_len_histogram)
            )
        assert sum(fields["completion_tokens_details"].values()) == drafting["num_draft_tokens"]
        assert drafting["verify_s"] == pytest.approx(sum(each.verify_s for each in requests), abs=1e-5)
        assert drafting["is_simulated"] == any(each.is_simulated for each in requests)

    def test_no_request_no_fields(self) -> None:
        assert usage_fields([]) == {}


class TestAuto:
    """What is drafted depends on the clock here: what is said of it adds up in any case."""

    def test_the_same_answers(self, deciding, server) -> None:
        for max_tokens in (1, 2, 30, 200):
            texts = [each.complete(PROMPT, max_tokens=max_tokens).json["choices"] for each in (deciding, server)]
            assert texts[0] == texts[1]

    def test_each_step_has_its_reason(self, deciding) -> None:
        before = figures(deciding)
        usages = [deciding.complete(PROMPT, max_tokens=150, n=2).json["usage"] for _ in range(3)]
        now = moved(before, figures(deciding))
        told = [usage["speculation"] for usage in usages]
        for step, field in (("round", "rounds_by_reason"), ("plain", "plain_steps_by_reason")):
            reasons = {reason for each in told for reason in each[field]}
            assert reasons <= set(REASONS)
            for reason in reasons:
                count = sum(each[field].get(reason, 0) for each in told)
                assert now[f"spec_decode_decisions_total{reason}{step}"] == count
        for usage, each in zip(usages, told, strict=True):
            check_usage(usage)
            accepted = usage["completion_tokens_details"]["accepted_prediction_tokens"]
            num_steps = each["num_rounds"] + sum(each["plain_steps_by_reason"].values())
            assert 0 <= 2 + num_steps + accepted - usage["completion_tokens"] <= 2 * DRAFT_LEN
        weighed = [each for each in told if each["break_even_len"] is not None]
        assert weighed and all(each["break_even_len"] >= 1 and each["expected_len"] >= 1 for each in weighed)

    def test_it_is_said_how_it_decides(self, deciding, server) -> None:
        for each, mode, words in ((deciding, "auto", "where it pays"), (server, "always", "at every step")):
            facts = each.get("/server_info").json
            assert facts["speculation"]["mode"] == mode
            assert f"drafter ngram (ngram), {words}: " in introduction(facts)


class TestStream:
    def stream(self, server: Any, **fields: Any) -> list[Any]:
        options = {"include_usage": True, "continuous_usage_stats": True}
        events = server.complete(PROMPT, stream=True, stream_options=options, return_token_ids=True, **fields).events
        assert events.pop() == "[DONE]"
        return events

    def test_one_event_holds_what_a_round_committed(self, server) -> None:
        *chunks, last = self.stream(server, max_tokens=50)
        pieces = [chunk for chunk in chunks if chunk["choices"][0].get("token_ids")]
        sizes = [len(piece["choices"][0]["token_ids"]) for piece in pieces]
        assert sizes[0] == 1 and max(sizes) == DRAFT_LEN + 1
        assert sum(sizes) == 50 == last["usage"]["completion_tokens"]
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        assert text == recited(50)
        histogram = last["usage"]["speculation"]["accepted_len_histogram"]
        full = [size for size in sizes[1:] if size == DRAFT_LEN + 1]
        assert histogram[DRAFT_LEN] in (len(full), len(full) + 1)  # the last one may have been cut

    def test_continuous_usage_counts_them(self, server) -> None:
        *chunks, last = self.stream(server, max_tokens=50)
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        for chunk, before, after in zip(chunks, [0, *counts], counts, strict=False):
            assert after - before == len(chunk["choices"][0].get("token_ids", ()))
            check_usage(chunk["usage"])
        rounds = [chunk["usage"]["speculation"]["num_rounds"] for chunk in chunks]
        assert rounds == sorted(rounds)
        assert chunks[-1]["usage"] == last["usage"]

    def test_a_stop_string_inside_an_accepted_path(self, server) -> None:
        *chunks, last = self.stream(server, max_tokens=60, stop="漢字")
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        assert text == "Schöne "
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        usage = last["usage"]
        check_usage(usage)
        assert usage["completion_tokens"] == len("Schöne 漢字".encode())
        drafting = usage["speculation"]
        accepted = usage["completion_tokens_details"]["accepted_prediction_tokens"]
        assert drafting["num_rounds"] + accepted > usage["completion_tokens"] - 1  # it was cut inside a path

    def test_chat_streams_likewise(self, server) -> None:
        body = {"stream": True, "max_tokens": 40, "stream_options": {"include_usage": True}}
        events = server.chat(PROMPT, **body).events
        usage = events[-2]["usage"]
        check_usage(usage)
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in events[:-2])
        assert text == recited(40)
        assert len(events) < 40 and usage["completion_tokens"] == 40


class TestMetrics:
    def test_the_counters_are_the_sum_of_all_answers(self, server) -> None:
        before = figures(server)
        bodies = [
            {"max_tokens": 5 + 7 * place, "seed": place, "temperature": 0.5 * (place % 2)} for place in range(8)
        ]
        with ThreadPoolExecutor(4) as pool:
            usages = list(
                pool.map(lambda body: server.complete(PROMPT[: 20 + body["seed"]], **body).json["usage"], bodies)
            )
        now = moved(before, figures(server))
        for usage in usages:
            check_usage(usage)
        told = [usage["speculation"] for usage in usages]
        details = [usage["completion_tokens_details"] for usage in usages]
        assert now["spec_decode_num_drafts_total"] == sum(each["num_rounds"] for each in told) > 0
        assert now["spec_decode_num_draft_tokens_total"] == sum(each["num_draft_tokens"] for each in told)
        accepted = sum(each["accepted_prediction_tokens"] for each in details)
        assert now["spec_decode_num_accepted_tokens_total"] == accepted > 0
        by_depth = [
            sum(sum(each["accepted_len_histogram"][depth + 1 :]) for each in told) for depth in range(DRAFT_LEN)
        ]
        assert [
            now.get(f"spec_decode_num_accepted_tokens_per_pos_total{depth}", 0) for depth in range(DRAFT_LEN)
        ] == by_depth
        assert now["generation_tokens_total"] == sum(usage["completion_tokens"] for usage in usages)
        assert now["request_queue_time_seconds_count"] == 8

    def test_seconds_too(self, server) -> None:
        before = figures(server)
        usages = [server.complete(PROMPT, max_tokens=30).json["usage"] for _ in range(2)]
        now = moved(before, figures(server))
        for part in PARTS:
            told = sum(usage["speculation"][f"{part}_s"] for usage in usages)
            assert now[f"spec_decode_{part}_seconds_total"] == pytest.approx(told, abs=3e-6), part
        spent = sum(now[f"spec_decode_{part}_seconds_total"] for part in PARTS)
        steps = now.get("step_seconds_sumdecode", 0.0) + now["step_seconds_sumverify"]
        assert spent == pytest.approx(steps, rel=1e-6, abs=1e-6)
        assert now["spec_decode_verify_seconds_total"] > 0

    def test_the_recent_acceptance_length(self) -> None:
        counts = DraftCounts()
        names = [family.name for family in counts.collect()]
        assert "deepdraft:spec_decode_num_drafts" in names
        assert "deepdraft:spec_decode_acceptance_len" not in names
        for accepted_len in (0, 3):
            counts.add(record(accepted_len))
        (gauge,) = [family for family in counts.collect() if family.name == "deepdraft:spec_decode_acceptance_len"]
        assert gauge.samples[0].value == 2.5

    def test_prefill_is_not_drafting(self) -> None:
        counts = DraftCounts()
        counts.add(record(kind="prefill"))
        samples = [sample for family in counts.collect() for sample in family.samples]
        assert samples and all(sample.value == 0 for sample in samples)


def record(*accepted_lens: int, kind: Any = "verify") -> StepRecord:
    rounds = tuple(
        Round(context_len=9, num_nodes=4, draft_depth=4, accepted_len=length, committed_len=length + 1)
        for length in accepted_lens
    )
    return StepRecord(
        kind=kind,
        started_s=0.0,
        seconds=1.0,
        schedule_s=0.1,
        forward_s=0.5,
        sample_s=0.1,
        commit_s=0.1,
        draft_s=0.1,
        context_lens=(9,) * len(rounds),
        num_tokens=5,
        num_committed_tokens=sum(accepted_lens) + len(rounds),
        num_first_tokens=0,
        num_preemptions=0,
        rounds=rounds,
    )


class TestDflash:
    """A drafter with layers in the pool, and nothing right to say."""

    @pytest.fixture(scope="class")
    @classmethod
    def drafting(cls, serving, random_folder, drafter_folder):
        drafting = {"speculation": "always", "tree_budget": 7, "draft_window": 8, "draft_sink": 4}
        with serving(random_folder, drafter=str(drafter_folder), **drafting) as one:
            yield one

    def test_answers_are_those_of_the_model_alone(self, drafting, random_server) -> None:
        prompts = ["a prompt", "another one, somewhat longer than a page or two", "x"]
        for fields in ({}, {"temperature": 0.9, "seed": 5}, {"stop": ["e"]}):
            body = {"max_tokens": 40, **fields}
            texts = [
                [server.complete(prompt, **body).json["choices"][0] for prompt in (*prompts, prompts[1])]
                for server in (drafting, random_server)
            ]
            assert texts[0] == texts[1]

    def test_usage(self, drafting) -> None:
        usage = drafting.complete("laws hold here as well", max_tokens=33).json["usage"]
        check_usage(usage)
        assert usage["speculation"]["num_draft_tokens"] > 7
        assert usage["speculation"]["draft_s"] > 0

    def test_server_info(self, drafting, drafter_folder) -> None:
        facts = drafting.get("/server_info").json
        stated = facts["speculation"]
        kv_bytes = stated.pop("kv_bytes_per_token")
        assert stated == {
            "method": "dflash",
            "mode": "always",
            "drafter": str(drafter_folder),
            "draft_len": 5,
            "block_size": 6,
            "tree_budget": 7,
            "tree_top_k": 8,
            "spine_first": False,
            "draft_window": 8,
            "draft_sink": 4,
            "simulate_acceptance_len": None,
        }
        assert kv_bytes == 3 * 2 * 2 * 8 * 4  # layers, keys and values, heads, head_dim, bytes
        assert facts["kv_bytes_per_token"] == kv_bytes + 2 * 2 * 2 * 8 * 4
        assert facts["kv_pool_bytes"] == facts["predicted_kv_pool_bytes"] == 512 * facts["kv_bytes_per_token"]

    def test_the_startup_lines_say_what_it_takes(self, drafting) -> None:
        text = introduction(drafting.service.facts.settings)
        assert re.search(
            r"drafter dflash \(.*\), at every step: trees of 7 nodes, 8 candidates a depth, up to 5 deep", text
        )
        assert "sees the last 8 tokens and the first 4; KV 384 of 640 bytes a token" in text
        assert "WARNING" not in text


class TestSimulated:
    @pytest.fixture(scope="class")
    @classmethod
    def simulated(cls, serving, random_folder, drafter_folder):
        with serving(random_folder, drafter=str(drafter_folder), simulate_acceptance_len=3.0) as running:
            yield running

    def test_it_is_said_in_every_place(self, simulated) -> None:
        usage = simulated.complete("made up", max_tokens=40).json["usage"]
        drafting = usage["speculation"]
        assert drafting["is_simulated"] is True
        num_tokens = drafting["num_rounds"] + usage["completion_tokens_details"]["accepted_prediction_tokens"]
        assert num_tokens / drafting["num_rounds"] == pytest.approx(3.0, abs=0.5)
        facts = simulated.get("/server_info").json
        assert facts["speculation"]["simulate_acceptance_len"] == 3.0
        assert facts["speculation"]["mode"] == "always", "unless said otherwise"
        assert "WARNING: acceptance is SIMULATED at 3 tokens a step" in introduction(facts)


def test_defragmenting_changes_no_answer(serving, reciter_folder, server) -> None:
    """Requests of different lengths at once, so that their pages interleave and lie apart."""
    with serving(reciter_folder, served_model_names=("reciter",), drafter="ngram", defragment=True) as other:
        assert other.get("/server_info").json["defragment"] is True
        answers = []
        for each in (other, server):
            with ThreadPoolExecutor(3) as pool:
                asked = [pool.submit(each.complete, PROMPT[: 10 + n], max_tokens=50 + 9 * n, n=2) for n in range(3)]
                answers.append([reply.result().json["choices"] for reply in asked])
        assert answers[0] == answers[1]
        assert other.metric("deepdraft:defragmented_pages_total") > 0
        assert other.metric("deepdraft:defragment_seconds_total") > 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"drafter": "/no/such/drafter"}, "no drafter at /no/such/drafter"),
            ({"drafter": "ngram", "draft_window": 64}, "window"),
            ({"drafter": "ngram", "simulate_acceptance_len": 50.0}, "can't be simulated"),
        ],
    )
    def test_what_can_not_be_drafted(self, random_folder, values, message) -> None:
        with pytest.raises(UsageError, match=message):
            load_service(ServeSettings(model=str(random_folder), kv_pool_tokens=512, num_threads=1, **values))

    def test_a_window_below_the_block(self, random_folder, drafter_folder) -> None:
        settings = ServeSettings(
            model=str(random_folder), kv_pool_tokens=512, num_threads=1, drafter=str(drafter_folder), draft_window=5
        )
        with pytest.raises(UsageError, match="--draft-window 5 is shorter than the drafter's block of 6"):
            load_service(settings)


def test_the_openai_client_works_unchanged(server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.completions.create(model="reciter", prompt=PROMPT, max_tokens=30, temperature=0)
        details = answer.usage.completion_tokens_details
        assert details.accepted_prediction_tokens + details.rejected_prediction_tokens > 0
        assert answer.usage.speculation["num_rounds"] >= 1  # the client keeps fields that it doesn't know
        stream = client.chat.completions.create(
            model="reciter",
            messages=[{"role": "user", "content": PROMPT}],
            max_tokens=30,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        *chunks, last = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == recited(30)
        assert last.usage.completion_tokens == 30
        assert json.loads(last.model_dump_json())["usage"]["speculation"]["is_simulated"] is False
