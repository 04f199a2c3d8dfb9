"""Samples on disk: features are large (a few KB a token), so they are read through the page cache, not held.

Shape letters: N kept tokens of all samples together, K tapped layers, H hidden size, R samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from deepdraft.infer.drafter_training.sample import Sample


def write_samples(samples: Sequence[Sample], file: Path) -> None:
    """Write samples as one file, which appears as a whole."""
    content = {
        "taps": torch.cat([sample.taps for sample in samples]),  # [N, K * H]
        "token_ids": torch.cat([sample.token_ids for sample in samples]),  # [N]
        "lens": torch.tensor([len(sample.token_ids) for sample in samples]),  # [R]
        "starts": torch.tensor([sample.start for sample in samples]),
        "prompt_lens": torch.tensor([sample.num_prompt_tokens for sample in samples]),
        "is_long": torch.tensor([sample.is_long for sample in samples]),
    }
    partial = file.with_suffix(".partial")
    torch.save(content, partial)
    partial.replace(file)


def read_samples(file: Path) -> list[Sample]:
    """The samples of a file, their tensors mapped, not read."""
    content = torch.load(file, weights_only=True, mmap=True)
    lens = content["lens"].tolist()
    parts = zip(
        content["starts"].tolist(),
        content["prompt_lens"].tolist(),
        content["token_ids"].split(lens),
        content["taps"].split(lens),
        content["is_long"].tolist(),
        strict=True,
    )
    return [Sample(*part) for part in parts]
