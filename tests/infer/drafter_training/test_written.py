"""What the target writes, and its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.prompts import Prompt, Prompts
from deepdraft.infer.drafter_training.target import Target
from deepdraft.infer.drafter_training.written import (
    Written,
    answers,
    append_written,
    own_continuation,
    read_written,
    temperature_of,
)


@pytest.fixture
def prompts(documents: list[list[int]]) -> list[Prompt]:
    drawn = Prompts(documents, seed=2, max_short_len=80)
    return [drawn.short(number, continuation_len=9) for number in range(6)]


def _written(target: Target, prompts: list[Prompt], at_once: int = 64) -> dict[int, Written]:
    found = answers(target.model, target.tokenizer, prompts, max_tokens=10, max_running_requests=at_once)
    return {one.number: one for one in found}


def test_an_answer_depends_on_its_prompt_and_number_alone(target: Target, prompts: list[Prompt]) -> None:
    together = _written(target, prompts)
    assert sorted(together) == [0, 1, 2, 3, 4, 5]
    assert _written(target, prompts, at_once=2) == together
    assert _written(target, [prompts[3]]) == {3: together[3]}


def test_three_of_four_answers_are_greedy(target: Target, prompts: list[Prompt]) -> None:
    assert [temperature_of(number) for number in range(4)] == [0.0, 0.0, 0.0, 0.7]
    assert [one.temperature for _, one in sorted(_written(target, prompts).items())] == [0, 0, 0, 0.7, 0, 0]


def test_answers_after_one_long_text_are_those_of_each_prompt_alone(
    target: Target, documents: list[list[int]]
) -> None:
    drawn = Prompts(documents, seed=2, max_short_len=20)
    text, prompts = drawn.long_text(0), drawn.long(0, first_number=50, continuation_len=0)[:5]
    shared = answers(target.model, target.tokenizer, prompts, max_tokens=10, shared_text=text)
    found = {one.number: one for one in shared}
    assert sorted(found) == [50, 51, 52, 53, 54]
    assert found[52] == _written(target, [prompts[2]])[52]


def test_no_prompt_no_answer(target: Target) -> None:
    assert _written(target, []) == {}


def test_the_texts_own_continuation_is_taken_as_it_is(prompts: list[Prompt]) -> None:
    own = own_continuation(prompts[0])
    assert (own.prompt, own.output, own.temperature) == (prompts[0].token_ids, prompts[0].continuation, None)


def test_a_file_gives_back_what_was_added_by_number(tmp_path: Path) -> None:
    file = tmp_path / "written.jsonl"
    lines = [Written(3, (1, 2), 0.0, (4,)), Written(1, (5,), None, (6, 7))]
    append_written(lines[:1], file)
    append_written(lines[1:], file)
    assert read_written(file) == [lines[1], lines[0]]


def test_no_file_is_no_answers(tmp_path: Path) -> None:
    assert read_written(tmp_path / "none") == []


def test_a_torn_last_line_is_passed_over_and_other_damage_is_named(tmp_path: Path) -> None:
    file = tmp_path / "written.jsonl"
    append_written([Written(0, (1,), 0.0, (2,))], file)
    whole = file.read_text()
    file.write_text(whole + whole[:20])
    assert [one.number for one in read_written(file)] == [0]
    file.write_text(whole + whole[:20] + "\n" + whole)
    with pytest.raises(UsageError, match="line 2"):
        read_written(file)
