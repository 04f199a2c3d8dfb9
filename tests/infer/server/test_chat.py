"""/v1/chat/completions over HTTP."""

from __future__ import annotations

import pytest

RECITED = "Schöne 漢字🚀"
NUM_BYTES = len(RECITED.encode())


def test_an_answer_in_one_piece(reciter) -> None:
    reply = reciter.chat("hello", max_tokens=NUM_BYTES)
    assert reply.status == 200
    answer = reply.json
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": RECITED, "refusal": None}
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["prompt_tokens"] == len("user:hello;>")


def test_a_stream_begins_with_the_role(reciter) -> None:
    reply = reciter.chat("hello", max_tokens=3, stream=True, stream_options={"include_usage": True})
    *events, usage, done = reply.events
    assert done == "[DONE]"
    assert all(event["object"] == "chat.completion.chunk" for event in events)
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "S"}, {"content": "c"}, {"content": "h"}, {}]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, None, None, None, "length"]
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == len("user:hello;>") + 3


def test_the_answer_may_fill_the_context(reciter) -> None:
    answer = reciter.chat("hello").json
    assert answer["usage"]["total_tokens"] == 256
    assert answer["choices"][0]["finish_reason"] == "length"


def test_both_names_of_the_output_limit(reciter) -> None:
    assert reciter.chat("a", max_completion_tokens=2, max_tokens=5).json["usage"]["completion_tokens"] == 2
    refused = reciter.chat("a", max_completion_tokens=-2)
    assert (refused.status, refused.error["param"]) == (400, "max_completion_tokens")


def test_content_in_parts(reciter) -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    assert reciter.chat(parts, max_tokens=1).json["usage"]["prompt_tokens"] == len("user:ab\nc;>")
    refused = reciter.chat([{"type": "image_url", "image_url": {"url": "data:,"}}], max_tokens=1)
    assert refused.status == 400
    assert refused.error["param"] == "messages"
    assert "image_url" in refused.error["message"]


def test_messages_of_other_roles(reciter) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u", "name": "someone"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "t", "tool_call_id": "1"},
    ]
    reply = reciter.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
    assert reply.status == 200
    assert reply.json["usage"]["prompt_tokens"] == len("system:s;user:u;assistant:;tool:t;>")
    call["function"]["arguments"] = "{"
    assert reciter.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1}).status == 400


def test_tools_are_shown_to_the_model_but_never_called(reciter) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    shown = reciter.chat("a", tools=tools, tool_choice="none", max_tokens=1)
    assert shown.json["usage"]["prompt_tokens"] == len("[1]user:a;>")
    for fields in ({"tools": tools}, {"tools": tools, "tool_choice": "auto"}, {"tool_choice": "required"}):
        refused = reciter.chat("a", max_tokens=1, **fields)
        assert refused.status == 400
        assert refused.error["param"] in ("tools", "tool_choice")
    assert reciter.chat("a", tools=[], tool_choice="auto", max_tokens=1).status == 200


def test_logprobs(reciter) -> None:
    content = reciter.chat("a", max_tokens=5, logprobs=True, top_logprobs=2).json["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in content] == [[byte] for byte in RECITED.encode()[:5]]
    assert content[0]["token"] == "S"
    assert content[3]["token"] == "\ufffd"  # half a character: its bytes tell
    assert all(len(entry["top_logprobs"]) == 2 for entry in content)
    assert content[0]["top_logprobs"][0]["token"] == "S"
    streamed = reciter.chat("a", max_tokens=2, logprobs=True, stream=True).events[1:-2]
    assert [event["choices"][0]["logprobs"]["content"][0]["token"] for event in streamed] == ["S", "c"]
    assert reciter.chat("a", top_logprobs=2).error["param"] == "top_logprobs"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({}, "messages"),
        ({"messages": [{"content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "bad", "content": "a"}]}, "messages"),
        (
            {"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}},
            "response_format",
        ),
        ({"messages": [{"role": "user", "content": "a"}], "chat_template": "{{ 1 }}"}, "chat_template"),
        (
            {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"tools": 1}},
            "chat_template_kwargs",
        ),
        ({"messages": [{"role": "user", "content": "a"}], "max_tokens": 900}, "messages"),
    ],
)
def test_what_is_refused_names_its_field(reciter, fields, param) -> None:
    reply = reciter.post("/v1/chat/completions", fields)
    assert reply.status == 400
    assert reply.error["param"] == param


def test_a_response_format_of_text_is_what_there_is(reciter) -> None:
    assert reciter.chat("a", response_format={"type": "text"}, max_tokens=1).status == 200


def test_a_model_without_a_template(random_server) -> None:
    reply = random_server.chat("a")
    assert reply.status == 400
    assert "chat template" in reply.error["message"]
