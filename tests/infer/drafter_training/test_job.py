"""A whole job, in one go and in pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deepdraft.errors import Interrupted, UsageError
from deepdraft.infer.drafter_training.export import read_drafter
from deepdraft.infer.drafter_training.job import Job
from deepdraft.infer.drafter_training.job_settings import JobSettings, long_texts_for
from deepdraft.infer.drafter_training.progress import Progress
from deepdraft.infer.drafter_training.shape import DrafterShape, TrainingRecipe
from deepdraft.infer.drafter_training.target import Target
from deepdraft.infer.drafter_training.written import read_written


@pytest.fixture
def settings(shape: DrafterShape, recipe: TrainingRecipe) -> JobSettings:
    return JobSettings(
        shape=shape,
        recipe=replace(recipe, num_steps=6, long_frac=0.3, long_from_frac=0.5),
        num_answers=10,
        num_long_texts=1,
        sequence_len=148,
        output_len=20,
    )


def _stopping(after: int) -> Callable[[], bool]:
    """Says so from the call number `after` on."""
    calls: Iterator[bool] = iter([False] * after)
    return lambda: next(calls, True)


def test_a_job_in_pieces_ends_like_one_in_a_go(
    target: Target, documents: list[list[int]], settings: JobSettings, tmp_path: Path
) -> None:
    whole = Job(tmp_path / "whole", settings, target, report=lambda _: None).run(documents, is_resumed=False)
    num_stops = 0
    for attempt in range(30):
        stop = _stopping(after=30)
        job = Job(tmp_path / "pieces", settings, target, report=lambda _: None, is_asked_to_stop=stop)
        try:
            pieces = job.run(documents, is_resumed=attempt > 0)
            break
        except Interrupted as interrupted:
            assert interrupted.hint == "go on with --resume"
            num_stops += 1
    assert num_stops >= 2
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, pieces.state_dict()[name]), name
    written = [read_written(tmp_path / name / "written.jsonl") for name in ("whole", "pieces")]
    assert written[0] == written[1]


def test_a_job_leaves_a_drafter_and_tells_how_it_went(
    target: Target, documents: list[list[int]], settings: JobSettings, tmp_path: Path
) -> None:
    told: list[Progress] = []
    module = Job(tmp_path, settings, target, report=told.append).run(documents, is_resumed=False)
    read = read_drafter(tmp_path / "drafter")
    assert torch.equal(read.fc.weight, module.fc.weight.bfloat16().float())
    assert [one.part for one in told if one.num_done == one.num_all] == ["writing", "features", "training"]
    assert told[-1].loss is not None
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["part"] for line in logged] == [one.part for one in told]


def test_long_prompts_are_as_many_as_their_share(recipe: TrainingRecipe) -> None:
    recipe = replace(recipe, long_frac=0.3, long_from_frac=0.5)
    assert long_texts_for(recipe, 10) == 1
    assert long_texts_for(recipe, 3200) == 15
    assert long_texts_for(replace(recipe, long_frac=0.0), 3200) == 0


def test_without_regeneration_the_text_itself_is_learned(
    target: Target, documents: list[list[int]], settings: JobSettings, tmp_path: Path
) -> None:
    settings = replace(settings, is_regenerated=False, recipe=replace(settings.recipe, num_steps=1))
    Job(tmp_path, settings, target, report=lambda _: None).run(documents, is_resumed=False)
    written = read_written(tmp_path / "written.jsonl")
    text = {bytes(document) for document in documents}
    assert all(one.temperature is None for one in written)
    assert any(bytes([*one.prompt, *one.output]) in document for one in written[:10] for document in text)


def test_a_folder_in_use_is_refused_unless_resumed(
    target: Target, documents: list[list[int]], settings: JobSettings, tmp_path: Path
) -> None:
    job = Job(tmp_path, settings, target, report=lambda _: None, is_asked_to_stop=lambda: True)
    with pytest.raises(UsageError, match="no job to go on with"):
        job.run(documents, is_resumed=True)
    with pytest.raises(Interrupted):
        job.run(documents, is_resumed=False)
    with pytest.raises(UsageError, match="holds a job already"):
        job.run(documents, is_resumed=False)


def test_a_resumed_job_must_ask_the_same(
    target: Target, documents: list[list[int]], settings: JobSettings, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        Job(tmp_path, settings, target, report=lambda _: None, is_asked_to_stop=lambda: True).run(
            documents, is_resumed=False
        )
    changed = replace(settings, shape=replace(settings.shape, block_size=8))
    with pytest.raises(UsageError, match=r"another shape.block_size: 4, now 8"):
        Job(tmp_path, changed, target, report=lambda _: None).run(documents, is_resumed=True)
    with pytest.raises(UsageError, match="another text_sha256"):
        Job(tmp_path, settings, target, report=lambda _: None).run(documents[:2], is_resumed=True)
    longer = replace(settings, recipe=replace(settings.recipe, num_steps=7))
    Job(tmp_path, longer, target, report=lambda _: None).run(documents, is_resumed=True)


def test_a_sequence_without_room_for_a_prompt_is_refused(settings: JobSettings) -> None:
    with pytest.raises(UsageError, match="leaves no prompt"):
        replace(settings, sequence_len=100)


@pytest.mark.parametrize(
    ("num_done", "text"),
    [
        (0, "training: 0 of 100 steps"),
        (50, "training: 50 of 100 steps, 1:00 min left"),
        (100, "training: 100 of 100 steps"),
    ],
)
def test_progress_says_what_is_left(num_done: int, text: str) -> None:
    progress = Progress(part="training", num_done=num_done, num_all=100, unit="steps", elapsed_s=60.0)
    assert progress.text == text


def test_what_was_done_before_does_not_make_it_look_faster() -> None:
    progress = Progress(part="training", num_done=60, num_all=100, unit="steps", elapsed_s=10.0, num_before=50)
    assert progress.eta_s == 40.0
