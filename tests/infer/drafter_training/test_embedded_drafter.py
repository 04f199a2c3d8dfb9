"""The drafter that ships with the package, on text that neither it nor its target has learned."""

from __future__ import annotations

import graphlib
import heapq
import sched
from pathlib import Path

from deepdraft.infer.drafter_training.acceptance import CHAIN, acceptances
from deepdraft.infer.drafter_training.export import read_drafter
from deepdraft.infer.drafter_training.features import FeatureReader
from deepdraft.infer.drafter_training.prompts import Prompt
from deepdraft.infer.drafter_training.target import EMBEDDED, load_target
from deepdraft.infer.drafter_training.written import answers
from deepdraft.infer.drafters.open import embedded_drafter_path


def test_it_accepts_about_what_its_card_says() -> None:
    """Far below the card's figures, which are of more text; far above a drafter with a fault in its features."""
    target, module = load_target(EMBEDDED), read_drafter(embedded_drafter_path())
    prompts = []
    for number, library in enumerate((graphlib, heapq, sched)):
        token_ids = target.tokenizer.encode(Path(library.__file__).read_text(), add_special=False)
        prompts.append(Prompt(number, tuple(token_ids[100:400]), ()))
    reader = FeatureReader(target.model, module.shape.target_layers, 400)
    written = answers(target.model, target.tokenizer, prompts, max_tokens=80, temperature=lambda _: 0.0)
    samples = [reader.sample(one.prompt, one.output, 300) for one in written]
    found = acceptances(module, samples, embedding=target.embedding, output=target.output, budgets=(CHAIN, 32))
    assert found[CHAIN].acceptance_len > 2.0
    assert found[32].acceptance_len > 2.8
