"""What several rooms' tests need: a tiny model of random weights that our own server can serve, and a way to take
times on a machine that has other work."""

from __future__ import annotations

import importlib.util
import json
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, not whether the code is right. The same examples every time,
# so that what passed once passes again; `HYPOTHESIS_RANDOM=1 scripts/test` looks for others.
settings.register_profile(
    "deepdraft",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not os.environ.get("HYPOTHESIS_RANDOM"),
)
settings.load_profile("deepdraft")

# One thread of arithmetic a process, set before torch loads: tests, servers and clients share the cores, and threads
# that spin while they wait for each other make a busy machine ten times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SERVE_MODULES = ("torch", "starlette", "uvicorn", "safetensors", "tokenizers", "prometheus_client")
NUM_SPECIAL_TOKENS, NUM_BYTE_TOKENS = 4, 256
VOCAB_SIZE, HIDDEN, NUM_LAYERS, NUM_QO_HEADS, NUM_KV_HEADS, HEAD_DIM, MLP = 1024, 64, 2, 4, 2, 16, 128
MAX_POSITIONS = 32_768

Measured = TypeVar("Measured")


class LeastDisturbed(Protocol):
    """The fixture `least_disturbed`."""

    def __call__(
        self,
        measure: Callable[[], Measured],
        error: Callable[[Measured], float],
        enough: float,
        num_attempts: int = 5,
    ) -> Measured: ...


@pytest.fixture(scope="session")
def least_disturbed() -> LeastDisturbed:
    """least_disturbed(measure, error, enough): the attempt that comes nearest to a known truth, the first that is
    within `enough` of it.

    A machine that takes the CPU away makes times longer, now and then; a fault of ours does so every time. What must
    hold on any machine is asserted inside `measure`.
    """

    def nearest(
        measure: Callable[[], Measured],
        error: Callable[[Measured], float],
        enough: float,
        num_attempts: int = 5,
    ) -> Measured:
        best = measure()
        for _ in range(num_attempts - 1):
            if error(best) <= enough:
                break
            best = min(best, measure(), key=error)
        return best

    return nearest


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random llama of 0.2M parameters, a byte-level tokenizer and a chat template. Skips where the
    inference stack is not installed."""
    missing = [name for name in SERVE_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the inference stack is not installed: {', '.join(missing)} is missing")
    folder = tmp_path_factory.mktemp("models") / "tiny-random"
    folder.mkdir()
    _write_config(folder)
    _write_weights(folder)
    _write_tokenizer(folder)
    return folder


def _write_config(folder: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": NUM_QO_HEADS,
        "num_key_value_heads": NUM_KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))


def _write_weights(folder: Path) -> None:
    import numpy
    from safetensors.numpy import save_file

    random = numpy.random.default_rng(7)
    shapes = {
        "model.embed_tokens.weight": (VOCAB_SIZE, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB_SIZE, HIDDEN),
    }
    for layer in range(NUM_LAYERS):
        start = f"model.layers.{layer}"
        shapes |= {
            f"{start}.input_layernorm.weight": (HIDDEN,),
            f"{start}.post_attention_layernorm.weight": (HIDDEN,),
            f"{start}.self_attn.q_proj.weight": (NUM_QO_HEADS * HEAD_DIM, HIDDEN),
            f"{start}.self_attn.k_proj.weight": (NUM_KV_HEADS * HEAD_DIM, HIDDEN),
            f"{start}.self_attn.v_proj.weight": (NUM_KV_HEADS * HEAD_DIM, HIDDEN),
            f"{start}.self_attn.o_proj.weight": (HIDDEN, NUM_QO_HEADS * HEAD_DIM),
            f"{start}.mlp.gate_proj.weight": (MLP, HIDDEN),
            f"{start}.mlp.up_proj.weight": (MLP, HIDDEN),
            f"{start}.mlp.down_proj.weight": (HIDDEN, MLP),
        }
    weights = {
        name: numpy.ones(shape, numpy.float32)
        if name.endswith("norm.weight")
        else (random.standard_normal(shape) * 0.05).astype(numpy.float32)
        for name, shape in shapes.items()
    }
    # Never an end of text nor half a character: every answer has the asked length, and text with every token.
    weights["lm_head.weight"][: NUM_SPECIAL_TOKENS + NUM_BYTE_TOKENS] = 0
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = [Path(module.__file__ or "").read_text() for module in (json, textwrap, importlib.util)]
    tokenizer.train_from_iterator(sources * 3, trainer)
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    tokenizer.save(str(folder / "tokenizer.json"))
    template = (
        "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    facts = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|begin|>",
        "eos_token": "<|end|>",
        "model_max_length": MAX_POSITIONS,
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
