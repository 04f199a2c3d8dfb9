"""Prompts are windows of documents, and follow from seed and number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.prompts import (
    MIN_PROMPT_LEN,
    PROMPTS_PER_TEXT,
    Prompts,
    read_documents,
)
from deepdraft.infer.drafter_training.target import Target

DOCUMENTS = [list(range(1000, 1300)), list(range(2000, 2090)), list(range(3000, 3700))]


@given(number=st.integers(0, 10_000), seed=st.integers(0, 50))
def test_a_short_prompt_and_its_continuation_stand_in_one_document(number: int, seed: int) -> None:
    prompt = Prompts(DOCUMENTS, seed=seed, max_short_len=128).short(number, continuation_len=16)
    text = [*prompt.token_ids, *prompt.continuation]
    assert text == list(range(text[0], text[0] + len(text)))
    assert MIN_PROMPT_LEN <= len(prompt.token_ids) <= 128
    assert 1 <= len(prompt.continuation) <= 16


@given(number=st.integers(0, 10_000), num_tokens=st.integers(100, 1500))
def test_an_exact_prompt_is_filled_with_whole_documents(number: int, num_tokens: int) -> None:
    prompt = Prompts(DOCUMENTS, seed=1, max_short_len=128).exact(number, num_tokens)
    assert len(prompt.token_ids) == num_tokens
    longer = Prompts(DOCUMENTS, seed=1, max_short_len=64).exact(number, 1600)
    assert longer.token_ids[-num_tokens:] == prompt.token_ids
    _check_whole_documents(prompt.token_ids)


def _check_whole_documents(token_ids: Sequence[int]) -> None:
    """Wherever one document follows another, the first one ends and the other one begins."""
    breaks = [i for i in range(1, len(token_ids)) if token_ids[i] != token_ids[i - 1] + 1]
    firsts, lasts = {document[0] for document in DOCUMENTS}, {document[-1] for document in DOCUMENTS}
    assert all(token_ids[i] in firsts for i in breaks)
    assert all(token_ids[i - 1] in lasts for i in breaks)


def test_long_prompts_are_beginnings_of_one_text_the_longest_first() -> None:
    prompts = Prompts(DOCUMENTS, seed=1, max_short_len=100)
    text = prompts.long_text(4)
    assert len(text) == 1600
    _check_whole_documents(text)
    long = prompts.long(4, first_number=70, continuation_len=9)
    assert [prompt.number for prompt in long] == list(range(70, 70 + PROMPTS_PER_TEXT))
    lens = [len(prompt.token_ids) for prompt in long]
    assert lens == sorted(set(lens), reverse=True)
    assert min(lens) >= 200
    for prompt in long:
        stop = len(prompt.token_ids)
        assert prompt.token_ids == text[:stop]
        assert prompt.continuation == text[stop : stop + 9]


def test_a_long_text_is_no_longer_than_the_target_allows() -> None:
    prompts = Prompts(DOCUMENTS, seed=1, max_short_len=100, max_long_len=150)
    assert len(prompts.long_text(0)) == 150
    assert all(75 <= len(prompt.token_ids) < 150 for prompt in prompts.long(0, first_number=0, continuation_len=0))


def test_seed_and_number_decide() -> None:
    def drawn(seed: int) -> list[tuple[int, ...]]:
        prompts = Prompts(DOCUMENTS, seed=seed, max_short_len=128)
        return [prompts.short(number, continuation_len=0).token_ids for number in range(20)] + [prompts.long_text(0)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert len(set(drawn(1))) > 15


def test_long_documents_are_drawn_more_often() -> None:
    prompts = Prompts(DOCUMENTS, seed=3, max_short_len=128)
    firsts = [prompts.short(number, continuation_len=0).token_ids[-1] // 1000 for number in range(400)]
    assert firsts.count(3) > firsts.count(1) > firsts.count(2) > 0


def test_files_become_documents(target: Target, text_files: list[Path]) -> None:
    assert [bytes(document) for document in read_documents(text_files, target.tokenizer)] == [
        file.read_bytes() for file in text_files
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "can't read"), (b"\xff\xfe\x00", "no UTF-8"), (b"too short", "more than 64 tokens")],
)
def test_files_that_cant_be_used_are_refused(
    target: Target, tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "text"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_documents([file], target.tokenizer)


def test_a_folder_stands_for_the_files_below_it(target: Target, tmp_path: Path) -> None:
    (tmp_path / "b" / "inner").mkdir(parents=True)
    texts = {name: f"{name} " * 400 for name in ("a.txt", "b/inner/x.py", "b/z.md")}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = read_documents([tmp_path], target.tokenizer)
    assert found == [target.tokenizer.encode(text, add_special=True) for text in texts.values()]
    assert read_documents([tmp_path / "b"], target.tokenizer) == found[1:]


def test_an_empty_folder_is_said(target: Target, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no text file"):
        read_documents([tmp_path], target.tokenizer)
