"""/v1/completions over HTTP: prompts in every form, answers whole and streamed, logprobs, stops, errors."""

from __future__ import annotations

import math

import pytest

RECITED = "Schöne 漢字🚀"
NUM_BYTES = len(RECITED.encode())


def test_an_answer_in_one_piece(reciter) -> None:
    reply = reciter.complete("x", max_tokens=NUM_BYTES)
    assert reply.status == 200
    answer = reply.json
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-") and answer["id"].removeprefix("cmpl-") == reply.headers["x-request-id"]
    assert answer["model"] == "reciter"
    assert answer["choices"] == [{"index": 0, "text": RECITED, "logprobs": None, "finish_reason": "length"}]
    assert answer["usage"] == {
        "prompt_tokens": 1,
        "completion_tokens": NUM_BYTES,
        "total_tokens": 1 + NUM_BYTES,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_the_default_is_sixteen_tokens(reciter) -> None:
    assert reciter.complete("x").json["usage"]["completion_tokens"] == 16


def test_a_stream_has_whole_characters_and_one_event_a_token(reciter) -> None:
    reply = reciter.complete("x", max_tokens=NUM_BYTES, stream=True)
    assert reply.status == 200
    assert reply.headers["cache-control"] == "no-cache"
    *events, done = reply.events
    assert done == "[DONE]"
    *pieces, finish = [event["choices"][0] for event in events]
    assert [piece["text"] for piece in pieces if piece["text"]] == list(RECITED)
    assert len(pieces) == NUM_BYTES  # one a step, also where a character is not complete yet
    assert all(piece["finish_reason"] is None for piece in pieces)
    assert finish == {"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}
    assert {event["id"] for event in events} == {events[0]["id"]}
    assert all("usage" not in event for event in events)


def test_a_character_cut_by_max_tokens_becomes_a_replacement(reciter) -> None:
    reply = reciter.complete("x", max_tokens=4, stream=True)
    assert "".join(event["choices"][0]["text"] for event in reply.events[:-1]) == "Sch\ufffd"


def test_usage_comes_when_asked(reciter) -> None:
    reply = reciter.complete("x", max_tokens=3, stream=True, stream_options={"include_usage": True})
    *events, usage, done = reply.events
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert usage["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0
    assert all("usage" not in event for event in events)


def test_usage_can_come_with_every_event(reciter) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    reply = reciter.complete("x", max_tokens=3, stream=True, stream_options=options)
    counts = [event["usage"]["completion_tokens"] for event in reply.events[:-1]]
    assert counts == [1, 2, 3, 3, 3]


def test_token_ids_in_and_out(reciter) -> None:
    reply = reciter.complete([120], max_tokens=4, return_token_ids=True)
    choice = reply.json["choices"][0]
    assert choice["token_ids"] == list(RECITED.encode()[:4])
    streamed = reciter.complete([120], max_tokens=4, return_token_ids=True, stream=True).events[:-2]
    assert [event["choices"][0]["token_ids"] for event in streamed] == [[byte] for byte in RECITED.encode()[:4]]


def test_several_prompts_and_choices(reciter) -> None:
    answer = reciter.complete(["x", "."], n=2, max_tokens=2, ignore_eos=False).json
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in answer["choices"]] == ["Sc", "Sc", "!", "!"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "length", "stop", "stop"]
    assert answer["usage"]["prompt_tokens"] == 2  # a prompt counts once, whatever n is
    lists = reciter.complete([[120], [46]], max_tokens=2, ignore_eos=False).json
    assert [choice["text"] for choice in lists["choices"]] == ["Sc", "!"]


def test_choices_of_one_stream_are_told_apart(reciter) -> None:
    reply = reciter.complete(["x", "."], max_tokens=3, ignore_eos=False, stream=True)
    texts = {0: "", 1: ""}
    reasons = {}
    for event in reply.events[:-1]:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["text"]
        if choice["finish_reason"]:
            reasons[choice["index"]] = choice["finish_reason"]
    assert texts == {0: "Sch", 1: "!"}
    assert reasons == {0: "length", 1: "stop"}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("prompt", ["üx", list("üx".encode())], ids=["text", "ids"])
def test_echo_puts_the_prompt_first(reciter, prompt, is_stream) -> None:
    reply = reciter.complete(prompt, max_tokens=2, echo=True, stream=is_stream)
    if is_stream:
        text = "".join(event["choices"][0]["text"] for event in reply.events[:-1])
    else:
        text = reply.json["choices"][0]["text"]
    assert text == "üxSc"


def test_logprobs_of_chosen_tokens(reciter) -> None:
    choice = reciter.complete("x", max_tokens=3, logprobs=2).json["choices"][0]
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["S", "c", "h"]
    assert logprobs["text_offset"] == [0, 1, 2]
    assert all(-0.01 < value <= 0 for value in logprobs["token_logprobs"])
    for token, chosen, top in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert len(top) == 2
        assert math.isclose(top[token], chosen, abs_tol=1e-6)


def test_logprobs_in_a_stream_go_on_counting(reciter) -> None:
    reply = reciter.complete("x", max_tokens=3, logprobs=0, stream=True)
    offsets = [event["choices"][0]["logprobs"]["text_offset"] for event in reply.events[:-2]]
    assert offsets == [[0], [1], [2]]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "expected"), [("漢", "Schöne "), (["zzz", "ne 漢"], "Schö"), ("🚀S", RECITED[:-1]), ("ö", "Sch")]
)
def test_stop_strings(reciter, stop, expected, is_stream) -> None:
    reply = reciter.complete("x", max_tokens=60, stop=stop, stream=is_stream)
    if is_stream:
        choices = [event["choices"][0] for event in reply.events[:-1]]
        text, reason = "".join(choice["text"] for choice in choices), choices[-1]["finish_reason"]
    else:
        text, reason = reply.json["choices"][0]["text"], reply.json["choices"][0]["finish_reason"]
    assert (text, reason) == (expected, "stop")


def test_stop_token_ids_and_min_tokens(reciter) -> None:
    stopped = reciter.complete("x", max_tokens=30, stop_token_ids=[ord("n")]).json["choices"][0]
    assert stopped["finish_reason"] == "stop"
    assert stopped["text"].startswith("Schö")
    answer = reciter.complete(".", max_tokens=30, ignore_eos=False, min_tokens=12).json
    assert answer["usage"]["completion_tokens"] >= 12


def test_eos_ends_an_answer(reciter) -> None:
    choice = reciter.complete(".", max_tokens=30, ignore_eos=False).json["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("!", "stop")


def test_a_seed_gives_the_same_again_and_choices_differ(random_server) -> None:
    def texts(seed: int) -> list[str]:
        answer = random_server.complete("abc", max_tokens=12, temperature=1.5, seed=seed, n=3).json
        return [choice["text"] for choice in answer["choices"]]

    assert texts(7) == texts(7)
    assert texts(7) != texts(8)
    assert len(set(texts(7))) == 3


def test_a_cached_prefix_is_counted(random_server) -> None:
    prompt = "the quick brown fox jumps over it"
    first = random_server.complete(prompt, max_tokens=1).json
    second = random_server.complete(prompt, max_tokens=1).json
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 32  # whole pages of 4, but for the last token
    assert second["choices"][0]["text"] == first["choices"][0]["text"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": 7}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [[1, "a"]]}, "prompt[0][1]"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [9999]}, "prompt"),
        ({"prompt": [10**400]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": -5}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 10**30}, "max_tokens"),
        ({"prompt": "a", "max_tokens": int("9" * 4000)}, "max_tokens"),
        ({"prompt": "a", "max_tokens": "5"}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 1.5}, "max_tokens"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 4, "min_tokens": 5}, "min_tokens"),
        ({"prompt": "a", "min_tokens": -1}, "min_tokens"),
        ({"prompt": "a", "temperature": -0.1}, "temperature"),
        ({"prompt": "a", "temperature": 2.5}, "temperature"),
        ({"prompt": "a", "temperature": "hot"}, "temperature"),
        ({"prompt": "a", "top_p": 0}, "top_p"),
        ({"prompt": "a", "top_p": 1.5}, "top_p"),
        ({"prompt": "a", "top_k": -2}, "top_k"),
        ({"prompt": "a", "seed": 2**63}, "seed"),
        ({"prompt": "a", "n": 0}, "n"),
        ({"prompt": "a", "n": 100_000}, "n"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "logprobs": 99}, "logprobs"),
        ({"prompt": "a", "logprobs": 1, "echo": True}, "echo"),
        ({"prompt": "a", "stop": ""}, "stop"),
        ({"prompt": "a", "stop": ["a"] * 17}, "stop"),
        ({"prompt": "a", "stop": 5}, "stop"),
        ({"prompt": "a", "stop_token_ids": [99_999]}, "stop_token_ids"),
        ({"prompt": "a", "stream": "yes"}, "stream"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt": "a", "logit_bias": {"5": 1}}, "logit_bias"),
        ({"prompt": "a", "presence_penalty": 2.5}, "presence_penalty"),
        ({"prompt": "a", "frequency_penalty": -2.5}, "frequency_penalty"),
        ({"prompt": "a", "frequency_penalty": "much"}, "frequency_penalty"),
        ({"prompt": "a", "repetition_penalty": 0}, "repetition_penalty"),
        ({"prompt": "a", "repetition_penalty": -1}, "repetition_penalty"),
        ({"prompt": "a", "repeat_penalty": 1.1}, "repeat_penalty"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "guided_json": {}}, "guided_json"),
        ({"prompt": "a", "cache_salt": "x"}, "cache_salt"),
    ],
)
def test_what_is_refused_names_its_field(reciter, fields, param) -> None:
    reply = reciter.post("/v1/completions", fields)
    assert reply.status == 400
    assert reply.error["type"] == "invalid_request_error"
    assert reply.error["param"] == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": Infinity}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "\xff"}',
        b'{"prompt": "a", "user": "\xff"}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"prompt": "a", "x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
)
def test_bodies_that_are_no_request(reciter, body) -> None:
    reply = reciter.post("/v1/completions", body)
    assert reply.status == 400
    assert reply.error["type"] == "invalid_request_error"


def test_neutral_and_unknown_fields_pass(reciter) -> None:
    neutral = {
        "logit_bias": {},
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1,
        "suffix": None,
        "top_k": -1,
        "best_of": 1,
        "user": "someone",
        "metadata": {"a": 1},
        "an_unknown_field": [1, 2],
    }
    assert reciter.complete("x", max_tokens=2, **neutral).json["choices"][0]["text"] == "Sc"


def test_penalties_are_obeyed(reciter) -> None:
    fields = {"max_tokens": 30, "temperature": 0, "return_token_ids": True}
    plain, penalised = (
        reciter.complete("x", **fields, **penalties).json["choices"][0]["token_ids"]
        for penalties in ({}, {"repetition_penalty": 1e6, "presence_penalty": 2, "frequency_penalty": 2.0})
    )
    assert len(set(plain)) < len(plain)  # it recites again and again
    assert len(set(penalised)) == len(penalised)


def test_too_long_for_the_context_and_for_the_pool(reciter, serving, reciter_folder) -> None:
    reply = reciter.complete("x" * 250, max_tokens=7)
    assert reply.status == 400
    assert reply.error["code"] == "context_length_exceeded"
    assert "maximum context length is 256 tokens" in reply.error["message"]
    assert "257" in reply.error["message"]
    streamed = reciter.complete("x" * 250, max_tokens=7, stream=True)  # no stream begins that can't go on
    assert (streamed.status, streamed.error["code"]) == (400, "context_length_exceeded")
    with serving(reciter_folder, kv_pool_tokens=64) as server:
        reply = server.complete("x" * 60, max_tokens=10)
        assert reply.status == 400
        assert reply.error["code"] == "kv_pool_exceeded"
        assert "64" in reply.error["message"] and "256" in reply.error["message"]
        assert server.complete("x", max_tokens=2).json["choices"][0]["text"] == "Sc"


def test_another_models_name(reciter) -> None:
    reply = reciter.complete("x", model="gpt-4")
    assert reply.status == 404
    assert reply.error["code"] == "model_not_found"
    assert reciter.complete("x", model="other-name").json["model"] == "reciter"
