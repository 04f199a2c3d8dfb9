"""The card says what was measured: front matter, sizes, losses, samples as they came."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from training.embedded.card import MAX_NEW_TOKENS, TextSize
from training.embedded.card_text import card
from training.embedded.recipe import HELD_OUT_MODULES, Recipe

LOSS = {
    "nats_per_token": 2.5,
    "num_tokens": 1000,
    "bits_per_byte": 1.25,
    "bigram_nats_per_token": 5.0,
    "bigram_bits_per_byte": 2.125,
    "xz_bits_per_byte": 2.25,
    "xz_after_training_bits_per_byte": 1.75,
}
MEASURED: dict[str, Any] = {
    "python": "3.11.7",
    "recipe": asdict(Recipe(total_tokens=8_192_000)),
    "training": {"elapsed_s": 600.0, "last_loss": 2.125, "held_out": []},
    "sizes": {
        "training code": asdict(TextSize(2, 4000, 1_000_000)),
        "training chats": asdict(TextSize(3, 400, 24_000)),
        "held-out code": asdict(TextSize(1, 40, 9)),
    },
    "weights": {"num_params": 6_359_424, "num_active_params": 2_489_344, "file_bytes": 12_756_208},
    "losses": {"code": LOSS, "prose": LOSS},
    "by_position": [
        {"from": 0, "to": 4096, "nats_per_token": 2.25, "short_nats_per_token": 2.5, "num_tokens": 4096},
        {"from": 4096, "to": 32_768, "nats_per_token": 2.75, "short_nats_per_token": 2.5, "num_tokens": 28_672},
    ],
    "functions": {
        "num_functions": 4,
        "max_new_tokens": MAX_NEW_TOKENS,
        "answers_ended_frac": 0.75,
        "answers_python_frac": 0.5,
        "bodies_python_frac": 0.25,
    },
    "samples": [{"prompt": "<|begin|># a.py\n", "text": "x = `1`\n```", "is_ended": False}],
    "load": [{"max_over_mean": 1.5, "min_over_mean": 0.5}, {"max_over_mean": 1.75, "min_over_mean": 0.75}],
}


def test_front_matter_comes_first() -> None:
    lines = card(MEASURED).splitlines()
    assert lines[:2] == ["---", "license: apache-2.0"]
    assert "---" in lines[2:]
    assert "- code" in lines


@pytest.mark.parametrize(
    "said",
    [
        "6,359,424 (2,489,344 used for a token)",
        "12,756,208 bytes",
        "2,000 steps of 4,096 tokens, 8.2M in all",
        "(8.0 passes over the text)",
        "10 minutes on one core",
        "| **this model** | 2.500 | 1.250 |",
        "| 4,096 to 32,768 | 2.750 | 2.500 | 28,672 |",
        "helps up to position 4,096 and hurts beyond; past 32,768",
        "at most 1.75",
        "at least 0.50",
        "<|begin|># a.py\n⟦x = `1`\n```⟧",
        "the whole answer parses | 50% |",
    ],
)
def test_every_number_is_said(said: str) -> None:
    assert said in " ".join(card(MEASURED).split(" "))


def test_every_held_out_module_is_named() -> None:
    assert all(f"`{name}`" in card(MEASURED) for name in HELD_OUT_MODULES)
