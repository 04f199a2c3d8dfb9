"""/tokenize and /detokenize, in the words of vLLM and of llama.cpp."""

from __future__ import annotations

import pytest


def test_text(reciter) -> None:
    assert reciter.post("/tokenize", {"prompt": "aü"}).json == {
        "count": 3,
        "max_model_len": 256,
        "tokens": [97, 0xC3, 0xBC],
    }
    assert reciter.post("/tokenize", {"content": "ab"}).json["tokens"] == [97, 98]


def test_messages_count_as_the_chat_route_does(reciter) -> None:
    messages = [{"role": "user", "content": "hello"}]
    counted = reciter.post("/tokenize", {"messages": messages}).json
    answered = reciter.chat("hello", max_tokens=1).json
    assert counted["count"] == answered["usage"]["prompt_tokens"] == len("user:hello;>")
    without = reciter.post("/tokenize", {"messages": messages, "add_generation_prompt": False}).json
    assert without["count"] == counted["count"] - 1


def test_and_back(reciter) -> None:
    assert reciter.post("/detokenize", {"tokens": [97, 0xC3, 0xBC]}).json == {"prompt": "aü", "content": "aü"}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, None),
        ("/tokenize", {"prompt": "a", "content": "b"}, None),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"messages": [{"role": "bad", "content": ""}]}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10**30]}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [97] * 257}, "tokens"),
    ],
)
def test_what_is_refused(reciter, path, body, param) -> None:
    reply = reciter.post(path, body)
    assert reply.status == 400
    assert reply.error["param"] == param


def test_another_models_name(reciter) -> None:
    assert reciter.post("/tokenize", {"prompt": "a", "model": "gpt-4"}).status == 404
