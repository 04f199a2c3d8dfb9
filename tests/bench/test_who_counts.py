"""Which of a server's answers count tokens."""

from __future__ import annotations

import asyncio
import json

import pytest

from deepdraft.bench.prompt import MAX_TRIED_LEN
from deepdraft.bench.who_counts import _max_probe_len, output_tokenizer, prompt_maker
from deepdraft.errors import UsageError
from deepdraft.records import SweepSpec
from deepdraft.simulate.spec import Surface


def counted(open_session, url, **fields) -> tuple[str, str, int, bool]:
    """Who counted, how, how many tokens a prompt of 300 had on the server, and whether it was sent as ids."""

    async def main():
        async with open_session(url, **fields) as session:
            calibration = await session.maker.calibrate()
            prompt = await session.maker.make(300)
            asked = prompt.text if prompt.text is not None else list(prompt.ids)
            trace = await session.adapter.probed(asked)
            return calibration.count_source, calibration.method, trace.usage.prompt_tokens, prompt.ids is not None

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("server", "fields", "source", "is_ids"),
    [
        ({"dialect": "vllm"}, {}, "server tokenize endpoint", False),
        ({"dialect": "vllm"}, {"endpoint": "completions"}, "token ids", True),
        ({"dialect": "vllm"}, {"prompt_form": "ids"}, "token ids", True),
        ({"dialect": "vllm"}, {"endpoint": "completions", "prompt_form": "text"}, "server tokenize endpoint", False),
        ({"dialect": "sglang"}, {}, None, False),
        ({"dialect": "llamacpp"}, {}, None, False),
        ({"dialect": "openai", "surface": Surface(tokenize=False)}, {}, "usage probes", False),
        ({"dialect": "vllm", "surface": Surface(tokenize=False)}, {"endpoint": "completions"}, "usage probes", False),
    ],
)
def test_the_best_there_is(open_session, plain, simulated, server, fields, source, is_ids) -> None:
    url = plain.url if server == {"dialect": "vllm"} else simulated(**server).url
    who, _, actual_len, was_ids = counted(open_session, url, **fields)
    assert actual_len == 300
    assert was_ids is is_ids
    if source is not None:
        assert who == source


def test_a_tokenizer_that_the_user_names_goes_first(open_session, plain, tmp_path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[UNK]": 0, **{f"w{index}": index for index in range(1, 50)}}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(made.to_str())))

    async def main() -> None:
        async with open_session(plain.url) as session:
            spec = SweepSpec(url=plain.url, tokenizer=str(path))
            source, count = await output_tokenizer(spec, session.adapter)
            assert source == "local tokenizer"
            assert await count("w1 w2 w3") == 3

    asyncio.run(main())


def test_generated_text_is_counted_by_the_server_where_it_can(open_session, plain, simulated) -> None:
    async def main() -> None:
        async with open_session(plain.url) as session:
            source, count = await output_tokenizer(session.spec, session.adapter)
            assert source == "server tokenize endpoint"
            assert await count("three little words") > 0
        mute = simulated(dialect="openai", surface=Surface(tokenize=False))
        async with open_session(mute.url, file="mute.jsonl") as session:
            assert await output_tokenizer(session.spec, session.adapter) is None

    asyncio.run(main())


def test_ids_that_can_not_be_had(open_session, simulated) -> None:
    server = simulated(surface=Surface(tokenize=False))

    async def main() -> None:
        async with open_session(server.url) as session:
            with pytest.raises(UsageError, match="can't take prompts of token ids") as caught:
                await prompt_maker(SweepSpec(url=server.url, prompt_form="ids"), session.adapter)
            assert caught.value.hint == "use --prompt-form text"

    asyncio.run(main())


def test_probes_are_no_longer_than_the_server_takes(open_session, simulated, physics) -> None:
    async def main() -> None:
        small = simulated(physics=physics(max_context_len=2_000, kv_pool_tokens=1_500))
        async with open_session(small.url) as session:
            assert _max_probe_len(session.adapter) == 1_499
        async with open_session(simulated().url, file="large.jsonl") as session:
            assert _max_probe_len(session.adapter) == MAX_TRIED_LEN

    asyncio.run(main())
