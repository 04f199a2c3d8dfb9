"""From flags to a spec: every value that can't be used, and every pair of flags that contradict each other."""

from __future__ import annotations

import argparse
import dataclasses

import pytest

from deepdraft.cli.main import parser
from deepdraft.cli.sweep_spec import asked_spec, resumed_spec
from deepdraft.embedded import DeepdraftSpec
from deepdraft.errors import UsageError
from deepdraft.records import Capabilities, Header, Limits, SweepSpec
from deepdraft.units import token_counts

URL = "http://127.0.0.1:1"


def flags(*words: str) -> argparse.Namespace:
    return parser().parse_args(["sweep", *words])


def asked(*words: str) -> SweepSpec:
    return asked_spec(flags(URL, "--context-len", "1k", *words))


def test_what_is_not_said_is_the_spec_s_own_default() -> None:
    assert asked() == SweepSpec(url=URL, context_lens=(1000,))


def test_every_flag_reaches_the_spec() -> None:
    words = """
        --context-len 1k-8k*2,10k --decode-len 5 --repeats 2 --concurrency 1,2,2 --requests 9 --arrival poisson:2.5
        --text code --prompt-form ids --needle --warmups 0 --seed -3 --temperature 0.5 --tokenizer t.json --keep-cache
        --device H100 --engine vllm --model m --endpoint completions --server-log s.log --extra-body {"top_k":1}
        --first-token-limit 1 --stall-limit 2 --request-limit 3 --wait-server 4 --retries 5
    """
    spec = asked_spec(flags(URL, *words.split()))
    assert spec == SweepSpec(
        url=URL,
        engine="vllm",
        endpoint="completions",
        model="m",
        context_lens=(1000, 2000, 4000, 8000, 10000),
        decode_len=5,
        num_repeats=2,
        concurrencies=(1, 2),
        num_requests=9,
        arrival="poisson:2.5",
        text="code",
        prompt_form="ids",
        needle_depth=0.5,
        num_warmups=0,
        seed=-3,
        temperature=0.5,
        tokenizer="t.json",
        server_log="s.log",
        device="H100",
        extra_body={"top_k": 1},
        keep_cache=True,
        limits=Limits(first_token_s=1, stall_s=2, request_s=3, server_wait_s=4, start_wait_s=4, num_retries=5),
    )


def test_embedded_has_lengths_of_its_own() -> None:
    spec = asked_spec(flags("--embedded"))
    assert (spec.url, spec.context_lens) == ("embedded", token_counts(DeepdraftSpec.default_context_lens))
    assert asked_spec(flags("--embedded", "--context-len", "300")).context_lens == (300,)


def test_llamacpp_is_embedded_too() -> None:
    spec = asked_spec(flags("--embedded", "llamacpp"))
    assert (spec.url, spec.context_lens) == ("embedded llamacpp", (512, 1000, 2000, 4000))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give the server's URL, or --embedded"),
        ((URL,), "nothing to measure"),
        ((URL, "--embedded"), "not both"),
        ((URL, "--embedded", "llamacpp"), "not both"),
        (("--embedded", URL), "not both"),
        (("--embedded", "mlx"), "no embedded engine 'mlx'"),
    ],
)
def test_what_to_measure_must_be_said(words, message) -> None:
    with pytest.raises(UsageError, match=message):
        asked_spec(flags(*words))


@pytest.mark.parametrize(
    ("lens", "message"),
    [
        ("", "no context length given"),
        (",", "no context length given"),
        ("0", "positive"),
        ("-5", "a range needs a step"),
        ("1.5", "whole"),
        ("many", "not a number of tokens: 'many'"),
        ("1k,two", "not a number of tokens: 'two'"),
        ("1k-4k", "a range needs a step"),
        ("4k-1k*2", "ends below its start"),
        ("1k-4k*1", "must be above 1"),
        ("1k-4k*x", "must be above 1"),
        ("1k-4k+0", "positive"),
    ],
)
def test_lists_of_context_lengths(lens, message) -> None:
    with pytest.raises(UsageError, match=message):
        asked_spec(flags(URL, f"--context-len={lens}"))


@pytest.mark.parametrize("concurrency", ["0", "-1", "two", "1,,2", "1.5", "1k"])
def test_lists_of_concurrencies(concurrency) -> None:
    with pytest.raises(UsageError, match="--concurrency: not a number of requests"):
        asked(f"--concurrency={concurrency}")


@pytest.mark.parametrize("arrival", ["open", "poisson", "poisson:", "poisson:0", "constant:-1", "poisson:inf", "x:1"])
def test_arrivals(arrival) -> None:
    with pytest.raises(UsageError, match="not an arrival"):
        asked("--arrival", arrival, "--requests", "5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("poetry", "not a kind of text"),
        ("file:nowhere.txt", "can't read nowhere.txt"),
        ("file:", "no path after file:"),
    ],
)
def test_texts(text, message) -> None:
    with pytest.raises(UsageError, match=message):
        asked("--text", text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--decode-len", "0"), "must be 1 or more"),
        (("--repeats", "0"), "must be 1 or more"),
        (("--repeats", "x"), "not a whole number: 'x'"),
        (("--warmups", "-1"), "must not be negative"),
        (("--retries=-1",), "must not be negative"),
        (("--needle", "1.5"), "must be between 0 and 1"),
        (("--needle", "nan"), "must be 0 or more"),
        (("--temperature=-1",), "must be 0 or more"),
        (("--first-token-limit", "0"), "must be above 0"),
        (("--stall-limit", "inf"), "must be 0 or more"),
        (("--request-limit", "soon"), "not a number: 'soon'"),
        (("--seed", "1.5"), "not a whole number"),
        (("--method", "three-point"), "invalid choice"),
        (("--engine", "other"), "invalid choice"),
        (("--endpoint", "other"), "invalid choice"),
        (("--prompt-form", "other"), "invalid choice"),
    ],
)
def test_values_of_flags(words, message) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        asked(*words)
    assert caught.value.hint == "deepdraft sweep --help"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--requests", "2", "--concurrency", "1,4"), "--requests 2 are fewer than --concurrency 4"),
        (("--arrival", "poisson:2"), "needs more than one request"),
        (("--arrival", "poisson:2", "--requests", "1"), "needs more than one request"),
        (("--arrival", "poisson:2", "--requests", "5", "--method", "two-point"), "streaming method"),
        (("--prompt-form", "ids", "--endpoint", "chat"), "takes no token ids"),
    ],
)
def test_contradictions(words, message) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        asked(*words)
    assert caught.value.hint


class TestResumed:
    RECORDED = SweepSpec(
        url=URL,
        context_lens=(1000, 2000),
        decode_len=8,
        extra_body={"top_k": 1},
        limits=Limits(num_retries=3, stall_s=5.0),
    )

    def resumed(self, *words: str, **fields: object) -> SweepSpec:
        header = Header(
            run_id="r",
            created_at="2026-01-01T00:00:00+00:00",
            deepdraft_version="0",
            command_line=(),
            spec=dataclasses.replace(self.RECORDED, **fields),
            capabilities=Capabilities(engine="vllm", detected_by="test", model="sim"),
        )
        return resumed_spec(flags(*words), header)

    def test_alone(self) -> None:
        assert self.resumed() == self.RECORDED

    def test_with_the_same_flags_again(self) -> None:
        same = self.resumed(
            URL, "--context-len", "1k,2k", "--decode-len", "8", "--extra-body", '{"top_k": 1}', "--repeats", "3"
        )
        assert same == self.RECORDED

    def test_the_model_that_was_found_may_be_named(self) -> None:
        assert self.resumed("--model", "sim").model in (None, "sim")
        with pytest.raises(UsageError, match="--model is other, there sim"):
            self.resumed("--model", "other")

    @pytest.mark.parametrize(
        ("words", "difference"),
        [
            (("--decode-len", "64"), "--decode-len is 64, there 8"),
            (("--concurrency", "1,2"), "--concurrency is 1,2, there 1"),
            (("--needle", "0.25"), "--needle is 0.25, there not given"),
            (("--keep-cache",), "--keep-cache is True, there False"),
            (("--extra-body", '{"top_k": 2}'), '--extra-body is {"top_k": 2}, there {"top_k": 1}'),
            (("--warmups", "0"), "--warmups is 0, there 1"),
        ],
    )
    def test_with_other_flags(self, words, difference) -> None:
        with pytest.raises(UsageError, match="other settings") as caught:
            self.resumed(*words)
        assert difference in caught.value.message

    def test_the_server_may_have_moved(self) -> None:
        assert self.resumed("http://other:2").url == "http://other:2"
        assert self.resumed("--embedded").url == "embedded"

    def test_patience_may_change_one_by_one(self) -> None:
        spec = self.resumed("--first-token-limit", "9", "--retries", "0", "--server-log", "x.log")
        assert spec.limits == Limits(first_token_s=9, stall_s=5.0, num_retries=0)
        assert spec.server_log == "x.log"

    def test_secrets_are_not_in_the_file(self) -> None:
        kept = {"top_k": 1, "nested": [{"token": "<redacted>"}]}
        with pytest.raises(UsageError, match="does not hold the secrets of --extra-body"):
            self.resumed(extra_body=kept)
        given = '{"top_k": 1, "nested": [{"token": "right"}]}'
        assert self.resumed("--extra-body", given, extra_body=kept).extra_body["nested"] == [{"token": "right"}]


def test_drafting_flags_are_the_embedded_server_s() -> None:
    spec = asked_spec(flags("--embedded", "--tree-budget", "4", "--drafter", "ngram"))
    assert (spec.url, spec.embedded_flags) == ("embedded", ("--drafter", "ngram", "--tree-budget", "4"))
    with pytest.raises(UsageError, match="--drafter is for the embedded server"):
        asked("--drafter", "ngram")
    with pytest.raises(UsageError, match="--drafter is for the embedded deepdraft, not llamacpp"):
        asked_spec(flags("--embedded", "llamacpp", "--drafter", "ngram"))


def header_of(spec: SweepSpec) -> Header:
    return Header(
        run_id="r",
        created_at="2026-01-01T00:00:00+00:00",
        deepdraft_version="0",
        command_line=(),
        spec=spec,
        capabilities=Capabilities(engine="deepdraft", detected_by="test"),
    )


def test_a_resumed_sweep_drafts_as_it_did() -> None:
    spec = asked_spec(flags("--embedded", "--drafter", "ngram"))
    assert resumed_spec(flags(), header_of(spec)).embedded_flags == ("--drafter", "ngram")
    with pytest.raises(UsageError, match="how the embedded server drafts is --drafter ngram --tree-budget 4, there"):
        resumed_spec(flags("--embedded", "--drafter", "ngram", "--tree-budget", "4"), header_of(spec))
    with pytest.raises(UsageError, match="there not said"):
        resumed_spec(flags("--embedded", "--drafter", "ngram"), header_of(asked_spec(flags("--embedded"))))
