"""Samples on disk come back as they were."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from deepdraft.infer.drafter_training.sample import Sample
from deepdraft.infer.drafter_training.sample_file import read_samples, write_samples


def test_round_trip(samples: Sequence[Sample], tmp_path: Path) -> None:
    write_samples(samples, tmp_path / "samples.pt")
    assert [file.name for file in tmp_path.iterdir()] == ["samples.pt"]
    again = read_samples(tmp_path / "samples.pt")
    assert len(again) == len(samples)
    for one, other in zip(samples, again, strict=True):
        assert (one.start, one.num_prompt_tokens) == (other.start, other.num_prompt_tokens)
        assert torch.equal(one.token_ids, other.token_ids)
        assert torch.equal(one.taps, other.taps)
