"""What a training job is asked to do, and whether a resumed one is asked the same."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

import numpy as np

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.prompts import PROMPTS_PER_TEXT
from deepdraft.infer.drafter_training.shape import DrafterShape, TrainingRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """Everything that decides the drafter, besides target and text."""

    shape: DrafterShape
    recipe: TrainingRecipe
    is_regenerated: bool = True
    """Answers are the target's; else the text's own continuations."""
    num_answers: int = 3000
    """To short prompts."""
    num_long_texts: int = 5
    """Each of them gives answers to `PROMPTS_PER_TEXT` long prompts."""
    sequence_len: int = 1280
    """Tokens of the longest short prompt and the answer after it."""
    output_len: int = 256
    """Tokens of an answer at most."""

    def __post_init__(self) -> None:
        """Raises UsageError for lengths that leave no prompt."""
        if self.sequence_len - self.output_len < 128:
            raise UsageError(
                f"a sequence of {self.sequence_len} tokens leaves no prompt before an answer of {self.output_len}",
                hint=f"--sequence-len must be {self.output_len + 128} or more",
            )


def long_texts_for(recipe: TrainingRecipe, num_answers: int) -> int:
    """So many that a long answer is met about as often as a short one."""
    num_long = num_answers * recipe.long_frac * (1 - recipe.long_from_frac)
    return math.ceil(num_long / PROMPTS_PER_TEXT)


def as_json(settings: JobSettings, target_name: str, documents: Sequence[Sequence[int]]) -> dict[str, object]:
    """Plain values, as they come back from a file; the text is told by its digest."""
    digest = sha256()
    for document in documents:
        digest.update(len(document).to_bytes(8, "little"))
        digest.update(np.asarray(document, dtype=np.int64).tobytes())
    stated = {"target": target_name, "text_sha256": digest.hexdigest(), **asdict(settings)}
    plain: dict[str, object] = json.loads(json.dumps(stated))
    return plain


def check_same(kept: dict[str, object], asked: dict[str, object]) -> None:
    """Raises UsageError where a resumed job asks for something else. The number of steps may change."""
    for name, value in _flat(asked).items():
        if name != "recipe.num_steps" and _flat(kept).get(name) != value:
            raise UsageError(
                f"the job was begun with another {name}: {_flat(kept).get(name)}, now {value}",
                hint="give the same flags with --resume, or name another --out",
            )


def _flat(stated: dict[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in stated.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": one for inner, one in value.items()}
        else:
            flat[name] = value
    return flat
