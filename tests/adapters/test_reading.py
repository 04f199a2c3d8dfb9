"""Exchanges over a real socket: the trace, and every way in which a request fails (C10 to C15, C40 to C46)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from deepdraft.adapters.reading import carries_output, event_texts, trace_in_slices, trace_of
from deepdraft.errors import RequestFailed
from deepdraft.records import Failure, RequestTrace, Usage
from deepdraft.transport.exchange import TimeLimits


def measured(tools: Any, answer: Any, limits: TimeLimits | None = None) -> tuple[RequestTrace, Failure | None]:
    async def work() -> tuple[RequestTrace, Failure | None]:
        async with tools.small_server({("POST", "/v1/chat/completions"): answer}) as (_, client):
            async with await client.open() as connection:
                exchange = connection.stream(
                    "/v1/chat/completions", b"{}", limits=limits or TimeLimits(), is_output=carries_output
                )
                error = None
                try:
                    await exchange.wait_end()
                except RequestFailed as failed:
                    error = failed
            whole = trace_of(exchange, connect_s=connection.connect_s, error=error)
            assert whole == await trace_in_slices(exchange, connect_s=connection.connect_s, error=error)
            return whole

    result: tuple[RequestTrace, Failure | None] = tools.run(work())
    return result


def stream(tools: Any, *pieces: bytes | float, **more: Any) -> Any:
    return tools.Answer(pieces=pieces, **more)


RECORDED = [
    ("llama.cpp-2026-10/chat_stream.sse", "stop", 8, "Hi, welcome to my chat!"),
    ("sglang-0.5.23/chat_stream.sse", "length", 8, " afforded" * 8),
    ("vllm-0.32.0/chat_stream.sse", "stop", 8, "Hello, welcome to my world!"),
    ("transformers-5.24.0/chat_stream.sse", "length", 8, "Hi, welcome to my blog!"),
]


@pytest.mark.parametrize(("name", "finish_reason", "tokens", "text"), RECORDED)
def test_recorded_streams_are_complete(
    tools: Any, recorded: Any, name: str, finish_reason: str, tokens: int, text: str
) -> None:  # C46: the one of transformers ends without [DONE]
    trace, failure = measured(tools, stream(tools, recorded.stream(name)))
    assert failure is None
    assert trace.http_status == 200
    assert trace.usage is not None
    assert trace.usage.completion_tokens == tokens
    assert trace.output_text == text
    assert trace.finish_reason == finish_reason
    assert trace.saw_done == (not name.startswith("transformers"))
    assert trace.connect_s is not None
    assert trace.end_s is not None
    assert trace.first_byte_s is not None
    assert 0 < trace.first_byte_s <= sum(trace.events.gaps_us) / 1e6 <= trace.end_s + 1e-6


def test_the_engines_own_figures_are_kept(tools: Any, recorded: Any) -> None:
    trace, _ = measured(tools, stream(tools, recorded.stream("llama.cpp-2026-10/spec_synthr.sse")))
    assert trace.server_fields["timings"]["draft_n_accepted"] == 40
    assert trace.usage == Usage(prompt_tokens=982, completion_tokens=64, cached_tokens=0)


def test_four_stamps_of_a_late_first_token(tools: Any) -> None:  # C10, C13
    chunk = tools.chat_chunk
    role = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]}
    pieces = (
        tools.sse(role, done=False),
        0.05,
        tools.sse(chunk(""), done=False),
        0.05,
        tools.sse({"choices": [{"index": 0, "delta": {"reasoning": "hm"}}]}, done=False),
        0.05,
        tools.sse(chunk("Dog"), chunk(None, "stop")),
    )
    trace, failure = measured(tools, stream(tools, *pieces))
    assert failure is None
    assert trace.events.kinds == "oortfd"
    gaps = trace.events.gaps_us
    assert all(gap > 40_000 for gap in (gaps[1], gaps[2], gaps[3]))
    assert gaps[4] == gaps[5] == 0  # the same read


def test_an_error_in_a_started_stream(tools: Any, recorded: Any) -> None:  # C40
    trace, failure = measured(tools, stream(tools, recorded.stream("vllm-0.32.0/stream_engine_died.sse")))
    assert failure == Failure(
        name="ErrorInStream",
        message="EngineCore encountered an issue. See stack trace (above) for the root cause.",
        http_status=200,
    )
    assert trace.saw_done
    assert trace.server_fields["error"]["code"] == 500


def test_a_prompt_too_long_for_the_native_route_fails_under_http_200(tools: Any, recorded: Any) -> None:  # C40
    trace, failure = measured(tools, stream(tools, recorded.stream("sglang-0.5.23/generate_stream_over_long.sse")))
    assert failure == Failure(
        name="ErrorInStream",
        message="The input (40000 tokens) is longer than the model's context length (32768 tokens).",
        http_status=200,
    )
    assert (trace.events.kinds, trace.usage) == ("ed", None)


@pytest.mark.parametrize(
    "error", [{"object": "error", "message": "boom", "code": 500}, {"error": "boom"}, {"error": {"message": "boom"}}]
)
def test_tokens_before_an_error_are_kept(tools: Any, error: Any) -> None:  # C40
    body = tools.sse(tools.chat_chunk("a"), tools.chat_chunk("b"), error)
    trace, failure = measured(tools, stream(tools, body))
    assert failure is not None
    assert (failure.name, failure.message) == ("ErrorInStream", "boom")
    assert trace.events.kinds == "tted"
    assert trace.output_text == "ab"


def test_a_stream_that_ends_early(tools: Any) -> None:  # C41
    body = tools.sse(*(tools.chat_chunk("a") for _ in range(3)), done=False)
    trace, failure = measured(tools, stream(tools, body, is_cut=True))
    assert failure is not None
    assert failure.name == "StreamEndedEarly"
    assert "after 3 events with text" in failure.message
    assert "the server closed the connection" in failure.message
    assert trace.events.kinds == "ttt"


def test_a_stream_that_ends_in_order_but_early(tools: Any) -> None:  # C41
    chunks = [
        {
            "choices": [{"index": 0, "delta": {"content": "ab"}}],
            "usage": {"completion_tokens": 2, "prompt_tokens": 1},
        },
        {"choices": [{"index": 0, "delta": {"content": "c"}}], "usage": {"completion_tokens": 3, "prompt_tokens": 1}},
    ]
    _, failure = measured(tools, stream(tools, tools.sse(*chunks, done=False)))
    assert failure is not None
    assert failure.name == "StreamEndedEarly"
    assert failure.message.endswith("with neither [DONE] nor a finish_reason, after 3 tokens")


def test_closing_after_a_finish_reason_is_fine(tools: Any) -> None:  # C46
    body = tools.sse(tools.chat_chunk("a"), tools.chat_chunk(None, "length"), done=False)
    trace, failure = measured(tools, stream(tools, body, is_cut=True))
    assert failure is None
    assert (trace.finish_reason, trace.saw_done) == ("length", False)


def test_a_last_event_without_its_blank_line_counts(tools: Any) -> None:
    body = tools.sse(tools.chat_chunk("a"), done=False) + b"data: [DONE]\n"
    trace, failure = measured(tools, stream(tools, body))
    assert failure is None
    assert trace.events.kinds == "td"


def test_half_an_event_does_not_count(tools: Any) -> None:
    body = tools.sse(tools.chat_chunk("a"), done=False) + b'data: {"choices":[{"finish_rea'
    _, failure = measured(tools, stream(tools, body, is_cut=True))
    assert failure is not None
    assert failure.name == "StreamEndedEarly"


def test_a_proper_stream_without_a_token(tools: Any, recorded: Any) -> None:
    _, failure = measured(tools, stream(tools, recorded.stream("transformers-5.24.0/chat_stream_timed.sse")))
    assert failure is not None
    assert failure.name == "EmptyStream"
    assert "finish_reason stop, usage counts 1" in failure.message


@pytest.mark.parametrize("finish", ["abort", "error", {"type": "abort", "message": "out of memory"}])
def test_a_finish_reason_that_is_a_failure(tools: Any, finish: Any) -> None:
    body = tools.sse({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": finish}]})
    trace, failure = measured(tools, stream(tools, body))
    assert failure is not None
    assert failure.name == "ErrorInStream"
    assert ("out of memory" in failure.message) == isinstance(finish, dict)
    assert trace.events.kinds == "td"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, {"error": {"message": "too long", "code": 400}}, "HTTP 400: too long"),
        (400, {"object": "error", "message": "too long"}, "HTTP 400: too long"),
        (401, {"error": "Unauthorized"}, "HTTP 401: Unauthorized"),
        (413, "", "HTTP 413: Request Entity Too Large"),
        (422, {"detail": [{"loc": ["body", "x"], "msg": "Extra inputs are not permitted"}]}, "HTTP 422: x: Extra"),
        (431, "Header too long", "HTTP 431: Header too long"),
        (502, "<html><head><title>502 Bad Gateway</title></head></html>", "an HTML page titled '502 Bad Gateway'"),
    ],
)
def test_the_servers_own_words(tools: Any, status: int, body: Any, words: str) -> None:  # C45
    trace, failure = measured(tools, tools.Answer(status, body))
    assert failure is not None
    assert (failure.name, failure.http_status) == ("HttpStatus", status)
    assert words in failure.message
    assert trace.http_status == status


def test_retry_after_is_said(tools: Any) -> None:  # C45
    answer = tools.Answer(429, {"error": {"message": "slow down"}}, headers={"Retry-After": "7"})
    _, failure = measured(tools, answer)
    assert failure is not None
    assert failure.message == "HTTP 429: slow down (retry after 7 s)"
    assert failure.retry_after_s == 7


def test_a_whole_answer_where_a_stream_was_asked_for(tools: Any, recorded: Any) -> None:
    _, failure = measured(tools, tools.Answer(200, recorded.json("vllm-0.32.0/chat_nonstream.json")))
    assert failure is not None
    assert "ignored `stream: true`" in failure.message


def test_an_error_with_status_200(tools: Any) -> None:
    _, failure = measured(tools, tools.Answer(200, {"error": {"message": "boom"}}))
    assert failure is not None
    assert (failure.name, failure.message) == ("ErrorInStream", "boom")


def test_an_html_page_with_status_200(tools: Any) -> None:
    _, failure = measured(tools, tools.Answer(200, "<html><title>Login</title></html>", "text/html"))
    assert failure is not None
    assert (failure.name, failure.message) == ("NotAnApi", "the server answered with an HTML page titled 'Login'")


def test_a_page_of_text_is_no_stream(tools: Any) -> None:
    _, failure = measured(tools, tools.Answer(200, "Ollama is running", "text/plain"))
    assert failure is not None
    assert failure.name == "NotAnApi"
    assert "Ollama is running" in failure.message


def test_no_answer_at_all_is_one_failed_request(tools: Any) -> None:  # C44
    async def silent(_: Any) -> Any:
        await asyncio.sleep(30)

    _, failure = measured(tools, silent, TimeLimits(first_event_limit_s=0.1))
    assert failure is not None
    assert failure.name == "Stalled"
    assert failure.http_status is None


def test_a_stall_keeps_what_was_seen(tools: Any) -> None:
    answer = stream(tools, tools.sse(tools.chat_chunk("a"), done=False), 30.0)
    trace, failure = measured(tools, answer, TimeLimits(stall_limit_s=0.1))
    assert failure is not None
    assert failure.name == "Stalled"
    assert "after 1 event with text" in failure.message
    assert trace.events.kinds == "t"


def test_a_stall_after_the_finish_reason_is_complete(tools: Any) -> None:
    answer = stream(tools, tools.sse(tools.chat_chunk("a"), tools.chat_chunk(None, "stop"), done=False), 30.0)
    trace, failure = measured(tools, answer, TimeLimits(stall_limit_s=0.1))
    assert failure is None
    assert trace.finish_reason == "stop"


def test_a_connection_that_closes_before_any_answer(tools: Any) -> None:
    async def gone(_: Any) -> Any:
        raise ConnectionError

    _, failure = measured(tools, gone)
    assert failure is not None
    assert failure.name == "Unreachable"


def test_every_way_to_cut_a_stream(tools: Any) -> None:  # C42
    event = json.dumps(tools.chat_chunk("né"), ensure_ascii=False).encode()
    body = b": ping\r\n\r\ndata:" + event + b"\r\n\r\ndata: " + event + b"\n\ndata: [DONE]\n\n"
    cut = body.index("é".encode()) + 1
    trace, failure = measured(tools, stream(tools, body[:cut], 0.02, body[cut:]))
    assert failure is None
    assert trace.events.kinds == "kttd"
    assert trace.output_text == "néné"


def test_where_prefill_ends() -> None:
    assert not carries_output(b'{"choices":[{"delta":{"role":"assistant","content":""}}]}')
    assert not carries_output(b'{"choices":[{"text":""}],"prompt_progress":{"total":9}}')
    assert carries_output(b'{"choices":[{"delta":{"reasoning":"a"}}]}')
    assert not carries_output(b"[DONE]")


def test_texts_of_an_exchange(tools: Any) -> None:
    async def work() -> list[str]:
        answer = stream(tools, b": ping\n\n" + tools.sse(tools.chat_chunk("a"), tools.chat_chunk(""), "x"))
        async with (
            tools.small_server({("POST", "/x"): answer}) as (_, client),
            await client.open() as connection,
        ):
            exchange = connection.stream("/x", b"{}")
            await exchange.wait_end()
        return event_texts(exchange)

    assert tools.run(work()) == ["a"]
