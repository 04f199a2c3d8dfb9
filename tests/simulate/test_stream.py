"""Each confound can be seen in the events or bytes of a stream; none can when it is off."""

from __future__ import annotations

import re
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from deepdraft.simulate.spec import Confounds, Fault, Physics, SimulateSpec
from deepdraft.simulate.tokenizer import Tokenizer
from deepdraft.simulate.truth import RequestTruth

QUICK = Physics(prefill_a_s=0.02, step_d_s=0.002)


def streamed(serve: Any, *, physics: Physics = QUICK, dialect: str = "openai", **switches: Any) -> Any:
    """A server with these confounds."""
    return serve(SimulateSpec(dialect=dialect, physics=physics, confounds=Confounds(**switches)))  # type: ignore[arg-type]


def one(served: Any, **fields: Any) -> tuple[Any, RequestTruth]:
    """One chat request and its truth."""
    answered = served.chat(**fields)
    return answered, served.truths()[-1]


def deltas(answered: Any) -> list[dict[str, Any]]:
    """Of all chat chunks."""
    return [choice["delta"] for event in answered.events for choice in event["choices"]]


def with_key(answered: Any, key: str) -> list[Any]:
    return [delta[key] for delta in deltas(answered) if delta.get(key)]


# --- without confounds


def test_a_plain_stream(serve: Any) -> None:
    answered, truth = one(streamed(serve), max_tokens=10)
    assert answered.payloads[-1] == "[DONE]"
    assert [delta.get("role") for delta in deltas(answered)] == ["assistant", *[None] * 11]
    assert len(with_key(answered, "content")) == 10
    assert answered.finish_reasons == ["length"]
    assert answered.usages == [
        {
            "prompt_tokens": 2,
            "completion_tokens": 10,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
    ]
    assert len(Tokenizer().encode(answered.output)) == 10
    assert [write.num_tokens for write in truth.writes] == list(range(1, 11))
    assert b"\r" not in answered.body and ": ping" not in answered.text


def test_usage_only_when_asked(serve: Any) -> None:
    served = streamed(serve)
    assert served.chat(stream_options={}).usages == []
    assert len(served.chat().usages) == 1


def test_not_streamed(serve: Any) -> None:
    served = streamed(serve)
    chat, text = served.chat(stream=False).json, served.complete(stream=False).json
    assert chat["usage"]["completion_tokens"] == text["usage"]["completion_tokens"] == 8
    assert len(Tokenizer().encode(chat["choices"][0]["message"]["content"])) == 8
    assert len(Tokenizer().encode(text["choices"][0]["text"])) == 8
    truth = served.truths()[0]
    assert not truth.is_stream and [write.num_tokens for write in truth.writes] == [8]


def test_token_ids_as_prompt(serve: Any) -> None:
    served = streamed(serve)
    text = "The quick brown fox jumps"
    by_ids = served.complete(Tokenizer().encode(text))
    assert by_ids.usages[0]["prompt_tokens"] == served.complete(text).usages[0]["prompt_tokens"] == 5


# --- before the first token


@pytest.mark.parametrize(
    ("role_chunk", "is_there", "is_early"),
    [("early", True, True), ("with_first_token", True, False), ("none", False, False)],
)
def test_role_chunk(serve: Any, role_chunk: str, is_there: bool, is_early: bool) -> None:
    served = streamed(serve, physics=Physics(prefill_a_s=0.3), role_chunk=role_chunk)
    # read the socket itself: only there the early chunk can be seen to be early
    address = urlsplit(served.url)
    body = b'{"messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":2}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.create_connection((address.hostname, address.port), timeout=10) as client:
        client.sendall(head + body)
        received, role_s = b"", 0.0
        while b"[DONE]" not in received:
            received += client.recv(65536)
            if not role_s and b'"role"' in received:
                role_s = time.monotonic()
    assert (b'"role":"assistant"' in received) == is_there
    (truth,) = served.truths()
    if is_there:
        assert (role_s < truth.prefill_end_s) == is_early


def test_null_and_empty_events(serve: Any) -> None:
    answered, truth = one(streamed(serve, null_events=2, empty_events=3, role_chunk="none"))
    contents = [delta["content"] for delta in deltas(answered) if "content" in delta]
    assert contents[:5] == [None, None, "", "", ""]
    assert all(contents[5:])
    assert truth.writes[0].num_tokens == 1


def test_progress_events(serve: Any) -> None:
    answered, _ = one(streamed(serve, progress_events=3), content=" a" * 100)
    progress = [event["prompt_progress"] for event in answered.events if "prompt_progress" in event]
    assert [entry["processed"] for entry in progress] == [0, 50, 100]
    assert {entry["total"] for entry in progress} == {100}


def test_pings(serve: Any) -> None:
    served = streamed(serve, physics=Physics(prefill_a_s=0.25, step_d_s=0.002), ping_interval_s=0.05)
    answered, _ = one(served)
    num_pings = answered.text.count(": ping\n")
    assert 2 <= num_pings <= 5
    assert answered.text.rindex(": ping") < answered.text.index("content")


# --- what kind of token


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_first(serve: Any, key: str) -> None:
    answered, truth = one(streamed(serve, reasoning_len=6, reasoning_key=key), max_tokens=10)
    assert len(with_key(answered, key)) == 6
    assert len(with_key(answered, "content")) == 4
    assert [write.kinds for write in truth.writes] == [("reasoning",)] * 6 + [("content",)] * 4
    assert answered.usages[0]["completion_tokens"] == 10
    assert answered.usages[0]["completion_tokens_details"] == {"reasoning_tokens": 6}


def test_a_step_with_both_kinds_is_two_events(serve: Any) -> None:
    physics = Physics(prefill_a_s=0.01, step_d_s=0.01, committed_len_pattern=(4,))
    answered, _ = one(streamed(serve, physics=physics, reasoning_len=3), max_tokens=9)
    sizes = [len(Tokenizer().encode(text)) for text in with_key(answered, "reasoning_content")]
    assert sizes == [1, 2]
    assert [len(Tokenizer().encode(text)) for text in with_key(answered, "content")] == [2, 4]


def test_only_reasoning(serve: Any) -> None:
    answered, truth = one(streamed(serve, only_reasoning=True))
    assert len(with_key(answered, "reasoning_content")) == 8
    assert with_key(answered, "content") == []
    assert {write.kinds for write in truth.writes} == {("reasoning",)}


def test_reasoning_is_for_chat_only(serve: Any) -> None:
    answered = streamed(serve, reasoning_len=4).complete()
    assert len(Tokenizer().encode(answered.output)) == 8


def test_tool_calls(serve: Any) -> None:
    answered, truth = one(streamed(serve, tool_calls=True, eos_at=9), max_tokens=20)
    calls = [calls[0] for calls in with_key(answered, "tool_calls")]
    assert calls[0]["function"]["name"] == "answer"
    assert all("name" not in call["function"] for call in calls[1:])
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert len(Tokenizer().encode(arguments)) == 8
    assert {write.kinds for write in truth.writes} == {("tool",)}
    assert answered.finish_reasons == ["tool_calls"]


def test_words_that_retokenise(serve: Any) -> None:
    answered, _ = one(streamed(serve, retokenise=True))
    assert answered.usages[0]["completion_tokens"] == 8
    assert len(Tokenizer().encode(answered.output)) == 24


def test_non_ascii(serve: Any) -> None:
    answered, _ = one(streamed(serve, non_ascii=True), max_tokens=30)
    assert len(answered.body) > len(answered.text)
    assert len(Tokenizer().encode(answered.output)) == 30


# --- tokens an event


def event_sizes(answered: Any) -> list[int]:
    return [len(Tokenizer().encode(text)) for text in with_key(answered, "content")]


FOUR = Physics(prefill_a_s=0.02, step_d_s=0.008, committed_len_pattern=(4,))


@pytest.mark.parametrize(
    ("physics", "switches", "sizes"),
    [
        (FOUR, {}, [1, 4, 4, 4, 4]),
        (FOUR, {"first_event_len": 5}, [5, 4, 4, 4]),
        (FOUR, {"events_per": "token"}, [1] * 17),
        (Physics(prefill_a_s=0.02, step_d_s=0.004, committed_len_pattern=(1, 4, 2, 5)), {}, [1, 1, 4, 2, 5, 1, 3]),
        (QUICK, {"stream_interval": 5}, [5, 5, 5, 2]),
    ],
)
def test_tokens_an_event(serve: Any, physics: Physics, switches: dict[str, Any], sizes: list[int]) -> None:
    answered, truth = one(streamed(serve, physics=physics, **switches), max_tokens=17)
    assert event_sizes(answered) == sizes
    ends = [write.num_tokens for write in truth.writes]
    assert ends[-1] == 17 and len(ends) == len(sizes)


def test_the_tokens_of_a_step_come_in_a_burst(serve: Any) -> None:
    physics = Physics(prefill_a_s=0.02, step_d_s=0.03, committed_len_pattern=(4,))
    _, truth = one(streamed(serve, physics=physics, events_per="token"), max_tokens=13)
    gaps = [late.time_s - early.time_s for early, late in zip(truth.writes, truth.writes[1:], strict=False)]
    pauses = [gap for gap in gaps if gap > 0.015]
    assert len(pauses) == 3
    assert sorted(gaps)[len(gaps) // 2] < 0.005


@pytest.mark.parametrize("dialect", ["sglang", "vllm"])
def test_continuous_usage_counts_the_tokens_of_each_event(serve: Any, dialect: str) -> None:
    served = streamed(serve, physics=FOUR, dialect=dialect)
    options = {"include_usage": True, "continuous_usage_stats": True}
    answered = served.chat(max_tokens=9, stream_options=options)
    counts = [usage["completion_tokens"] for usage in answered.usages]
    assert [count for count in counts if count][:3] == [1, 5, 9]
    plain = served.chat(max_tokens=9)
    assert len(plain.usages) == 1


def test_token_ids_of_each_event(serve: Any) -> None:
    served = streamed(serve, physics=FOUR, token_ids="yes")
    answered = served.complete("a b c", max_tokens=9, return_token_ids=True)
    ids = [choice["token_ids"] for event in answered.events for choice in event["choices"] if "token_ids" in choice]
    assert [len(each) for each in ids] == [1, 4, 4]
    assert [token_id for each in ids for token_id in each] == Tokenizer().encode(answered.output)


# --- after the last token


@pytest.mark.parametrize("placement", ["own_chunk", "finish_chunk", "absent"])
def test_usage_placement(serve: Any, placement: str) -> None:
    answered, _ = one(streamed(serve, usage_placement=placement, usage_when="always"), stream_options={})
    holders = [event for event in answered.events if event.get("usage")]
    if placement == "absent":
        assert holders == []
        return
    (holder,) = holders
    assert bool(holder["choices"]) == (placement == "finish_chunk")


def test_trailing_pause(serve: Any) -> None:
    _, truth = one(streamed(serve, trailing_pause_s=0.2))
    assert truth.end_s is not None
    assert truth.end_s - truth.writes[-1].time_s >= 0.2


def test_no_done(serve: Any) -> None:
    answered, _ = one(streamed(serve, done="missing"))
    assert "[DONE]" not in answered.text
    assert answered.is_complete and answered.finish_reasons == ["length"]


# --- bytes


@pytest.mark.parametrize(("line_end", "characters"), [("crlf", "\r\n"), ("cr", "\r"), ("lf", "\n")])
def test_line_ends(serve: Any, line_end: str, characters: str) -> None:
    answered, _ = one(streamed(serve, line_end=line_end, ping_interval_s=0.005))
    assert set(re.findall(r"\r\n|\r|\n", answered.text)) == {characters}
    assert len(with_key(answered, "content")) == 8


def test_no_space_after_data(serve: Any) -> None:
    answered, _ = one(streamed(serve, no_data_space=True))
    assert "data: " not in answered.text
    assert len(with_key(answered, "content")) == 8


def raw_stream(served: Any, content: str = "x", max_tokens: int = 8) -> list[bytes]:
    """The answer's bytes by socket read, head included."""
    address = urlsplit(served.url)
    body = f'{{"prompt":"{content}","stream":true,"max_tokens":{max_tokens}}}'.encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket.create_connection((address.hostname, address.port), timeout=10) as client:
        client.sendall(head + body)
        return list(iter(lambda: client.recv(65536), b""))


def chunks(reads: list[bytes]) -> list[bytes]:
    """The chunks of a chunked body."""
    _, _, rest = b"".join(reads).partition(b"\r\n\r\n")
    found = []
    while rest:
        length_text, _, rest = rest.partition(b"\r\n")
        length = int(length_text, 16)
        found.append(rest[:length])
        assert rest[length : length + 2] == b"\r\n"
        rest = rest[length + 2 :]
    assert found[-1] == b""
    return found[:-1]


def test_split_writes(serve: Any) -> None:
    reads = raw_stream(streamed(serve, split_writes=True, non_ascii=True), max_tokens=16)
    parts = chunks(reads)
    assert sum(not part.endswith(b"\n\n") for part in parts) > 10
    assert any(part[0] & 0xC0 == 0x80 for part in parts), "no character was cut"
    assert len(reads) > 20, "the pieces were not sent apart"
    text = b"".join(parts).decode()
    assert text.count("data: ") == 18  # 16 tokens, finish, [DONE]


def test_coalesced_events(serve: Any) -> None:
    served = streamed(serve, coalesce_events=8)
    parts = chunks(raw_stream(served, max_tokens=20))
    assert [part.count(b"data: ") for part in parts] == [8, 8, 6]
    (truth,) = served.truths()
    assert [(write.num_tokens, write.num_events) for write in truth.writes] == [(8, 8), (16, 8), (20, 4)]


def test_one_chunk_an_event_without_confounds(serve: Any) -> None:
    assert all(part.count(b"data: ") == 1 for part in chunks(raw_stream(streamed(serve))))


# --- lengths


def test_eos(serve: Any) -> None:
    served = streamed(serve, eos_at=5)
    ended = served.chat(max_tokens=20)
    assert ended.finish_reasons == ["stop"] and ended.usages[0]["completion_tokens"] == 5
    assert len(Tokenizer().encode(ended.output)) == 4  # the fifth is the end-of-sequence token
    asked = served.chat(max_tokens=20, ignore_eos=True)
    assert asked.finish_reasons == ["length"] and asked.usages[0]["completion_tokens"] == 20
    least = served.chat(max_tokens=20, min_tokens=12)
    assert least.usages[0]["completion_tokens"] == 12


def test_eos_that_ignores_ignore_eos(serve: Any) -> None:
    answered, _ = one(streamed(serve, eos_at=5, eos_beats_ignore_eos=True), max_tokens=20, ignore_eos=True)
    assert answered.finish_reasons == ["stop"] and answered.usages[0]["completion_tokens"] == 5


def test_output_cap(serve: Any) -> None:
    answered, _ = one(streamed(serve, output_cap=5), max_tokens=20, ignore_eos=True)
    assert answered.finish_reasons == ["length"] and answered.usages[0]["completion_tokens"] == 5


def test_silent_truncation(serve: Any) -> None:
    served = streamed(serve, truncate_prompt_to=64)
    answered, truth = one(served, content=" a" * 100)
    assert answered.usages[0]["prompt_tokens"] == truth.prompt_len == 64


def test_truncation_loses_the_needle(serve: Any) -> None:
    prompt = "The secret word is Dog." + " a" * 100 + " What is the secret word?"
    assert streamed(serve).chat(prompt).output == " Dog."
    assert streamed(serve, truncate_prompt_to=64).chat(prompt).output != " Dog."


def test_needle_by_token_ids(serve: Any) -> None:
    served = streamed(serve, dialect="vllm")
    prompt = "The secret word is Dog." + " a" * 100 + " What is the secret word?"
    ids = served.send("POST", "/tokenize", {"prompt": prompt}).json["tokens"]
    assert served.complete(ids, max_tokens=8).output == " Dog."


@pytest.mark.parametrize("template_len", [0, 7, 211])
def test_chat_template(serve: Any, template_len: int) -> None:
    served = streamed(serve, template_len=template_len)
    assert served.chat("one two three").usages[0]["prompt_tokens"] == 3 + template_len
    assert served.complete("one two three").usages[0]["prompt_tokens"] == 3


def test_wrong_usage(serve: Any) -> None:
    answered, truth = one(streamed(serve, usage_prompt_offset=-1), content="one two three")
    assert answered.usages[0]["prompt_tokens"] == 2 and truth.prompt_len == 3


@pytest.mark.parametrize(("policy", "status"), [("ignored", 200), ("422", 422), ("400", 400)])
def test_unknown_fields(serve: Any, policy: str, status: int) -> None:
    served = streamed(serve, unknown_fields=policy)
    refused = served.chat(ignore_eos=True)
    assert refused.status == status
    if status != 200:
        assert "ignore_eos" in refused.text
    assert served.chat().status == 200


# --- prefix cache


@pytest.mark.parametrize(
    ("report", "shown"), [("usage", 99), ("zero", 0), ("counters", None), ("nothing", None), ("dialect", 99)]
)
def test_reported_cached_tokens(serve: Any, report: str, shown: int | None) -> None:
    served = streamed(serve, prefix_cache=True, cached_tokens_report=report)
    for _ in range(2):
        answered = served.complete(" a" * 100, max_tokens=2)
    details = answered.usages[0].get("prompt_tokens_details")
    assert (details and details["cached_tokens"]) == shown
    assert [truth.cached_len for truth in served.truths()] == [0, 99]


@pytest.mark.parametrize(("page_size", "cached"), [(1, 99), (16, 96), (64, 64), (128, 0)])
def test_prefix_cache_granularity(serve: Any, page_size: int, cached: int) -> None:
    served = streamed(serve, physics=Physics(prefill_a_s=0.005, page_size=page_size), prefix_cache=True)
    for _ in range(2):
        served.complete(" a" * 100, max_tokens=2)
    assert [truth.cached_len for truth in served.truths()] == [0, cached]


def test_text_at_the_end_does_not_defeat_the_cache_but_at_the_start_it_does(serve: Any) -> None:
    served = streamed(serve, prefix_cache=True)
    served.complete(" a" * 100, max_tokens=2)
    served.complete(" a" * 99 + " z", max_tokens=2)
    served.complete(" z" + " a" * 99, max_tokens=2)
    assert [truth.cached_len for truth in served.truths()] == [0, 99, 0]


def test_the_template_is_a_shared_prefix(serve: Any) -> None:
    served = streamed(serve, prefix_cache=True, template_len=211)
    served.chat("first words", max_tokens=2)
    served.chat("second words", max_tokens=2)
    assert [truth.cached_len for truth in served.truths()] == [0, 208]


def test_cache_capacity(serve: Any) -> None:
    served = streamed(serve, prefix_cache=True, prefix_cache_capacity=150)
    for word in (" a", " b", " a"):
        served.complete(word * 100, max_tokens=2)
    assert [truth.cached_len for truth in served.truths()] == [0, 0, 0]


def test_off_nothing_is_cached(serve: Any) -> None:
    served = streamed(serve)
    for _ in range(2):
        served.complete(" a" * 100, max_tokens=2)
    assert [truth.cached_len for truth in served.truths()] == [0, 0]


# --- faults


def faulty(serve: Any, kind: str, **settings: Any) -> Any:
    fault = Fault(kind=kind, every=2, **settings)  # type: ignore[arg-type]
    return serve(SimulateSpec(physics=QUICK, faults=(fault,)))


def test_every_second_request_is_cut(serve: Any) -> None:
    served = faulty(serve, "cut", after_tokens=3)
    answers = [served.chat() for _ in range(4)]
    assert [answered.is_complete for answered in answers] == [True, False, True, False]
    cut = answers[1]
    assert cut.status == 200 and cut.finish_reasons == [] and "[DONE]" not in cut.text
    assert len(Tokenizer().encode(cut.output)) == 3
    truth = served.truths()[1]
    assert truth.fault == "cut" and truth.writes[-1].num_tokens == 3


@pytest.mark.parametrize("after_tokens", [0, 3])
def test_error_in_stream(serve: Any, after_tokens: int) -> None:
    served = faulty(serve, "error_in_stream", after_tokens=after_tokens, message="out of memory")
    served.chat()
    broken = served.chat()
    assert broken.status == 200 and broken.is_complete
    assert broken.events[-1]["error"]["message"] == "out of memory"
    assert len(Tokenizer().encode(broken.output)) == after_tokens
    assert broken.finish_reasons == []


def test_empty_stream(serve: Any) -> None:
    served = faulty(serve, "empty_stream")
    served.chat()
    empty = served.chat()
    assert empty.status == 200 and empty.is_complete
    assert empty.payloads == ["[DONE]"]


def test_stalls_never_end(serve: Any) -> None:
    for kind, is_begun in (("stall", False), ("stall_stream", True)):
        served = faulty(serve, kind, after_tokens=2)
        served.chat()
        connection = served.connect()
        connection.timeout = 0.4
        connection.request("POST", "/v1/completions", '{"prompt":"x","stream":true,"max_tokens":8}')
        with pytest.raises(TimeoutError):
            response = connection.getresponse()
            assert is_begun
            response.read()
        connection.close()


def test_late_first_token(serve: Any) -> None:
    served = faulty(serve, "late", delay_s=0.3)
    for _ in range(6):
        served.chat()
    waits_s = [truth.writes[0].time_s - truth.received_s for truth in served.truths()]
    assert min(waits_s[::2]) < 0.2  # of three: the machine may be late as well
    assert min(waits_s[1::2]) >= 0.32


@pytest.mark.parametrize(
    ("body", "is_shape"),
    [
        ("dialect", lambda answered: answered.json["error"]["message"] == "no room"),
        ("nested", lambda answered: answered.json["error"]["message"] == "no room"),
        ("flat", lambda answered: answered.json["message"] == "no room"),
        ("string", lambda answered: answered.json == {"error": "no room"}),
        ("bare_string", lambda answered: answered.json == "no room"),
        ("detail", lambda answered: answered.json == {"detail": "no room"}),
        ("html", lambda answered: "<html>" in answered.text and "text/html" in answered.headers["content-type"]),
        ("empty", lambda answered: answered.body == b""),
    ],
)
def test_error_bodies(serve: Any, body: str, is_shape: Any) -> None:
    served = faulty(serve, "status", status=429, body=body, message="no room", retry_after_s=7)
    assert served.chat().status == 200
    refused = served.chat()
    assert refused.status == 429 and refused.headers["retry-after"] == "7"
    assert is_shape(refused)


def test_faults_can_leave_short_prompts_alone(serve: Any) -> None:
    served = serve(faults=(Fault(kind="status", at=(2,), min_prompt_len=50),))
    statuses = [served.complete(prompt, max_tokens=1).status for prompt in ("x", " a" * 50, "x", " a" * 50, "x")]
    assert statuses == [200, 200, 200, 500, 200]


def test_faults_can_strike_every_route(serve: Any) -> None:
    served = serve(faults=(Fault(kind="status", scope="all", status=502, body="html"),))
    for path in ("/v1/models", "/health", "/nowhere"):
        answered = served.get(path)
        assert answered.status == 502 and "<html>" in answered.text
    assert served.get("/_truth").status == 200


@pytest.mark.parametrize("kind", ["cut", "error_in_stream"])
def test_faults_strike_whole_answers_too(serve: Any, kind: str) -> None:
    served = faulty(serve, kind, after_tokens=2)
    assert served.chat(stream=False).status == 200
    if kind == "cut":
        with pytest.raises(ConnectionError):
            served.chat(stream=False)
    else:
        assert served.chat(stream=False).status == 500
