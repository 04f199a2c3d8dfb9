"""Counters: each says who counts, and none takes another's place."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from deepdraft.bench.counting import EndpointCounter, LocalTokenizer, UsageCounter
from deepdraft.errors import ErrorInStream, UsageError

tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A model's folder with a tokenizer.json that adds BOS, and would cut and pad."""
    vocab = {"<s>": 0, "[UNK]": 1, "bridge": 2, "river": 3}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made.enable_truncation(3)
    made.enable_padding(length=8)
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_local_tokenizer_counts_text_alone(model_folder: Path) -> None:
    counter = LocalTokenizer(model_folder)
    assert (counter.source, counter.is_cheap, counter.includes_template) == ("local tokenizer", True, False)
    assert asyncio.run(counter.count("bridge river bridge river bridge")) == 5
    assert asyncio.run(counter.count("")) == 0
    assert asyncio.run(LocalTokenizer(model_folder / "tokenizer.json").count("river")) == 1
    assert list(asyncio.run(counter.ids("river bridge"))) == [3, 2]


def test_the_event_loop_runs_on_while_a_long_text_is_counted(model_folder: Path) -> None:
    async def count_beside_a_ticker() -> tuple[int, int]:
        num_ticks = 0

        async def tick() -> None:
            nonlocal num_ticks
            while True:
                num_ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        num_tokens = await LocalTokenizer(model_folder).count("river " * 20_000)
        ticker.cancel()
        return num_tokens, num_ticks

    num_tokens, num_ticks = asyncio.run(count_beside_a_ticker())
    assert num_tokens == 20_000
    assert num_ticks > 1


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no tokenizer at .*tokenizer\.json") as caught:
        LocalTokenizer(tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize("content", ["", "{}", json.dumps({"version": "1.0"}), "<html>"])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match="is no tokenizer"):
        LocalTokenizer(tmp_path)


def test_a_missing_package_is_said_and_not_replaced(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match="needs the package `tokenizers`") as caught:
        LocalTokenizer(model_folder)
    assert "deepdraft[tokenizer]" in (caught.value.hint or "")


def test_usage_keeps_the_bill_and_lets_failures_pass() -> None:
    async def probe(text: str) -> int:
        if text == "bad":
            raise ErrorInStream("out of memory")
        return 7 + len(text.split())

    counter = UsageCounter(probe)
    assert (counter.source, counter.is_cheap, counter.includes_template) == ("usage probes", False, True)
    assert asyncio.run(counter.count("bridge river")) == 9
    assert asyncio.run(counter.count("bridge")) == 8
    with pytest.raises(ErrorInStream):
        asyncio.run(counter.count("bad"))
    assert (counter.num_probes, counter.num_probed_tokens) == (3, 17)


def test_an_endpoint_is_asked_as_it_is() -> None:
    async def num_tokens(text: str) -> int:
        return len(text.split())

    counter = EndpointCounter(num_tokens)
    assert asyncio.run(counter.count("one two three")) == 3
    assert (counter.source, counter.is_cheap, counter.includes_template) == ("server tokenize endpoint", True, False)
