"""Greedy output is transformers' own, token for token, on the same float32 weights."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch


@pytest.mark.parametrize("page_size", [1, 7])
def test_greedy_output_equals_transformers(tiny: Any, collect: Any, make_request: Any, page_size: int) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tiny.folder, dtype=torch.float32)
    rng = random.Random(page_size)
    prompts = [[rng.randrange(256) for _ in range(prompt_len)] for prompt_len in (1, 2, 17, 90)]
    engine = tiny.engine(page_size=page_size, kv_pool_tokens=70 * page_size if page_size > 1 else 200, chunk_len=13)
    answers = collect(engine, [make_request(str(i), prompt, max_tokens=24) for i, prompt in enumerate(prompts)])
    for index, prompt in enumerate(prompts):
        expected = theirs.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        assert answers[str(index)].token_ids == expected[0, len(prompt) :].tolist()
