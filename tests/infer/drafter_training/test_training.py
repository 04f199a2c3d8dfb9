"""Steps, checkpoints, and that something is learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.sample import Sample
from deepdraft.infer.drafter_training.shape import TrainingRecipe
from deepdraft.infer.drafter_training.target import Target
from deepdraft.infer.drafter_training.training import Training


def test_the_loss_falls(trained_with_losses: tuple[Training, list[float]]) -> None:
    _, losses = trained_with_losses
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


@pytest.mark.parametrize("matmul_dtype", ["float32", "bfloat16"])
def test_a_resumed_run_takes_the_same_steps(
    make_training: Callable[..., Training], samples: Sequence[Sample], tmp_path: Path, matmul_dtype: str
) -> None:
    through = make_training(num_steps=4, matmul_dtype=matmul_dtype)
    losses = [through.step(samples) for _ in range(4)]

    first = make_training(num_steps=4, matmul_dtype=matmul_dtype)
    resumed_losses = [first.step(samples) for _ in range(2)]
    first.save(tmp_path / "checkpoint.pt")
    second = make_training(num_steps=4, matmul_dtype=matmul_dtype)
    second.load(tmp_path / "checkpoint.pt")
    resumed_losses += [second.step(samples) for _ in range(2)]

    assert resumed_losses == losses
    for name, tensor in through.module.state_dict().items():
        assert torch.equal(tensor, second.module.state_dict()[name]), name


def test_embedding_and_output_are_never_moved(
    make_training: Callable[..., Training], samples: Sequence[Sample], target: Target
) -> None:
    embedding, output = target.embedding.clone(), target.output.clone()
    make_training().step(samples)
    assert torch.equal(embedding, target.embedding)
    assert torch.equal(output, target.output)


def test_every_weight_is_moved(make_training: Callable[..., Training], samples: Sequence[Sample]) -> None:
    training = make_training()
    before = {name: tensor.clone() for name, tensor in training.module.state_dict().items()}
    for _ in range(3):  # the last matrices start at zero, so what is before them moves later
        training.step(samples)
    after = training.module.state_dict()
    assert [name for name in before if torch.equal(before[name], after[name])] == []


def test_a_checkpoint_of_another_shape_is_refused(
    make_training: Callable[..., Training], target: Target, tmp_path: Path
) -> None:
    training = make_training()
    training.save(tmp_path / "checkpoint.pt")
    shape = replace(training.shape, num_layers=1)
    other = Training(shape, training.recipe, embedding=target.embedding, output=target.output)
    with pytest.raises(UsageError, match="another shape"):
        other.load(tmp_path / "checkpoint.pt")


def test_a_damaged_checkpoint_is_refused(make_training: Callable[..., Training], tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"torn")
    with pytest.raises(UsageError, match="can't read the checkpoint"):
        make_training().load(tmp_path / "checkpoint.pt")


def test_the_learning_rate_rises_and_ends_near_zero() -> None:
    recipe = TrainingRecipe(num_steps=100, warmup_frac=0.1)
    factors = [recipe.lr_factor(step) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert max(factors) == pytest.approx(1.0)
    assert factors[-1] == pytest.approx(1 / 90)
    assert factors[10:] == sorted(factors[10:], reverse=True)


def test_long_samples_come_in_the_last_part(
    make_training: Callable[..., Training], samples: Sequence[Sample]
) -> None:
    marked = [replace(sample, is_long=index % 2 == 1) for index, sample in enumerate(samples)]
    training = make_training(num_steps=100, long_from_frac=0.5, long_frac=0.25, num_sequences=400)
    shares = []
    for step in (0, 49, 50, 99):
        training.num_steps_done = step
        chosen = training.drawn_samples(marked, torch.Generator().manual_seed(step))
        shares.append(sum(sample.is_long for sample in chosen) / len(chosen))
    assert shares[:2] == [0, 0]
    assert shares[2:] == [pytest.approx(0.25, abs=0.1)] * 2


def test_with_long_samples_alone_they_are_drawn_from_the_start(
    make_training: Callable[..., Training], samples: Sequence[Sample]
) -> None:
    long = [replace(sample, is_long=True) for sample in samples]
    assert len(make_training().drawn_samples(long, torch.Generator().manual_seed(0))) == 4
