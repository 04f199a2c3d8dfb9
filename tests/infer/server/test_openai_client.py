"""The openai Python client, unchanged, against a real server."""

from __future__ import annotations

import asyncio

import openai
import pytest

RECITED = "Schöne 漢字🚀"
KEY = "sk-0123456789"


@pytest.fixture(scope="module")
def server(serving, reciter_folder):
    with serving(reciter_folder, served_model_names=("reciter",), api_key=KEY, max_queued_requests=4) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as found:
        yield found


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_models(client) -> None:
    assert [model.id for model in client.models.list()] == ["reciter"]
    assert client.models.retrieve("reciter").owned_by == "deepdraft"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_chat(client) -> None:
    answer = client.chat.completions.create(
        model="reciter", messages=user("hi"), max_completion_tokens=20, temperature=0, logprobs=True, top_logprobs=1
    )
    assert answer.choices[0].message.content.startswith(RECITED)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 20
    assert answer.usage.prompt_tokens_details.cached_tokens is not None
    assert answer.choices[0].logprobs.content[0].token == "S"
    assert answer._request_id


def test_chat_stream(client) -> None:
    stream = client.chat.completions.create(
        model="reciter",
        messages=user("hi"),
        max_tokens=20,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]).startswith(RECITED)
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 20


def test_chat_stream_by_events(client) -> None:
    with client.chat.completions.stream(model="reciter", messages=user("hi"), stop="🚀", temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        assert stream.get_final_completion().choices[0].message.content == text
    assert text == RECITED[:-1]


def test_completions(client) -> None:
    answer = client.completions.create(model="reciter", prompt=["x", "."], max_tokens=3, temperature=0, logprobs=1)
    assert [choice.text for choice in answer.choices] == ["Sch", "!"]
    assert answer.choices[0].logprobs.tokens == ["S", "c", "h"]
    by_ids = client.completions.create(
        model="reciter", prompt=[120], max_tokens=3, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    assert "".join(chunk.choices[0].text for chunk in by_ids) == "Sch"


def test_an_async_client_with_many_streams(server) -> None:
    async def ask(client: openai.AsyncOpenAI) -> str:
        stream = await client.chat.completions.create(
            model="reciter", messages=user("hi"), max_tokens=18, temperature=0, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY) as client:
            return await asyncio.gather(*(ask(client) for _ in range(8)))

    assert asyncio.run(ask_all()) == [RECITED] * 8


def test_errors_become_the_clients_own(client, server) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="reciter", messages=user("hi"), max_tokens=10_000)
    assert bad.value.code == "context_length_exceeded"
    assert bad.value.type == "invalid_request_error"
    assert bad.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as penalty:
        client.chat.completions.create(model="reciter", messages=user("hi"), presence_penalty=3)
    assert penalty.value.param == "presence_penalty"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-4", messages=user("hi"))
    assert missing.value.code == "model_not_found"
    with (
        pytest.raises(openai.AuthenticationError),
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as stranger,
    ):
        stranger.models.list()


def test_a_timeout_and_a_stream_left_early_free_the_pages(client, server) -> None:
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.1).completions.create(
            model="reciter", prompt="x", max_tokens=240, extra_body={"ignore_eos": True}
        )
    stream = client.completions.create(
        model="reciter", prompt="x", max_tokens=240, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()
    server.wait_until(lambda: server.service.worker.num_open == 0)
    server.wait_until(lambda: server.service.worker.stats.num_running == 0)
    assert server.service.worker.stats.num_held_pages == 0


def test_a_full_queue_is_an_error_that_the_client_retries(serving, reciter_folder) -> None:
    with serving(reciter_folder, max_running_requests=1, max_queued_requests=0) as server:
        busy = server.send("/v1/completions", {"prompt": "x", "max_tokens": 240, "ignore_eos": True})
        server.wait_until(lambda: server.service.worker.num_open == 1)
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
            (model,) = client.models.list().data
            with pytest.raises(openai.InternalServerError) as full:
                client.completions.create(model=model.id, prompt="x")
            assert full.value.status_code == 503
            patient = client.with_options(max_retries=5)
            assert patient.completions.create(model=model.id, prompt="x", max_tokens=1).choices
        busy.close()
