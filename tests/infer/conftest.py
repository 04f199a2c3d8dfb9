"""Tiny models with random weights, written to folders as Hugging Face has them, and engines over them.

The vocabulary is the 256 bytes and a few special tokens, so text is what the ids say. The output matrix is scaled up:
logits far apart keep rounding differences between batch shapes from ever deciding a token.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.drafters.drafter import Drafter
from deepdraft.infer.engine import Engine
from deepdraft.infer.models.load import load_model
from deepdraft.infer.models.model import Model
from deepdraft.infer.request import Output, Request, SamplingParams
from deepdraft.infer.settings import EngineSettings, SpeculationSettings
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

# For oracle_drafter here and drafting_case there.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "drafters")]

VOCAB_SIZE = 264
EOS = 256
HIDDEN = 32
LAYERS = 2
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "eos_token_id": EOS,
    "bos_token_id": 257,
    "dtype": "float32",
}
DEEPSEEK: dict[str, Any] = {
    **{name: value for name, value in LLAMA.items() if name not in ("head_dim", "mlp_bias")},
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_key_value_heads": 4,
    "q_lora_rank": None,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
}


@dataclass(frozen=True)
class TinyModel:
    """A model and what it was loaded from."""

    folder: Path
    model: Model
    tokenizer: Tokenizer

    def engine(
        self, *, drafter: Drafter | None = None, speculation: SpeculationSettings | None = None, **values: Any
    ) -> Engine:
        """An engine whose laws are checked after every step."""
        defaults = {
            "max_context_len": 256,
            "kv_pool_tokens": 512,
            "page_size": 4,
            "chunk_len": 16,
            "is_checked": True,
        }
        settings = EngineSettings(**{**defaults, **values})
        return Engine(self.model, self.tokenizer, settings, drafter, speculation)


@dataclass
class Answer:
    """All that came for one request."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[Any] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)

    @property
    def last(self) -> Output:
        """The last output."""
        return self.outputs[-1]

    def add(self, output: Output) -> None:
        """Put the next output behind the others; none may follow the last."""
        if self.outputs:
            assert self.last.finish_reason is None
            assert output.num_output_tokens == self.last.num_output_tokens + len(output.token_ids)
        self.outputs.append(output)
        self.token_ids += output.token_ids
        self.text += output.text
        self.logprobs += output.logprobs


Collect = Callable[..., dict[str, Answer]]
MakeRequest = Callable[..., Request]


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """Grouped-query attention, float32."""
    return _tiny(tmp_path_factory.mktemp("tiny-llama"), LLAMA, _llama_attention)


@pytest.fixture(scope="session")
def tiny_deepseek(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """Latent attention, a dense layer and one of experts, float32."""
    return _tiny(tmp_path_factory.mktemp("tiny-deepseek"), DEEPSEEK, _latent_attention)


@pytest.fixture(scope="session", params=["llama", "deepseek"])
def tiny(request: pytest.FixtureRequest) -> TinyModel:
    """Each of the two."""
    model: TinyModel = request.getfixturevalue(f"tiny_{request.param}")
    return model


@pytest.fixture(scope="session")
def make_request() -> MakeRequest:
    """make_request("a", [1, 2, 3], max_tokens=5): greedy, EOS ignored, where nothing else is said."""

    def make(request_id: str, prompt: Sequence[int], **params: Any) -> Request:
        values = {"max_tokens": 8, "temperature": 0.0, "ignore_eos": True, **params}
        return Request(request_id=request_id, prompt_token_ids=tuple(prompt), sampling=SamplingParams(**values))

    return make


@pytest.fixture(scope="session")
def collect() -> Collect:
    """collect(engine, requests): submit them all, step to the end, and put each one's outputs together."""

    def run(engine: Engine, requests: Iterable[Request] = ()) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        for request in requests:
            engine.submit(request)
            answers[request.request_id] = Answer()
        while engine.has_work:
            for output in engine.step():
                answers.setdefault(output.request_id, Answer()).add(output)
        return answers

    return run


@pytest.fixture
def known(tiny: TinyModel, collect: Collect, make_request: MakeRequest) -> Callable[..., list[int]]:
    """known(prompt, max_tokens=8): prompt and plain output, as an oracle wants to know them."""

    def run(prompt: Sequence[int], **params: Any) -> list[int]:
        return [*prompt, *collect(tiny.engine(), [make_request("a", prompt, **params)])["a"].token_ids]

    return run


def _tiny(folder: Path, config: dict[str, Any], attention: Callable[[], dict[str, tuple[int, ...]]]) -> TinyModel:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>", "bos_token": "<bos>"}))
    _byte_tokenizer().save(str(folder / "tokenizer.json"))
    save_file(_weights(config, attention), folder / "model.safetensors", metadata={"format": "pt"})
    checkpoint = open_checkpoint(folder)
    return TinyModel(folder, load_model(checkpoint), checkpoint.tokenizer())


def _byte_tokenizer() -> tokenizers.Tokenizer:
    """Token id = byte, by the alphabet of byte-level BPE; then the special tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    vocabulary = {characters[byte]: byte for byte in range(256)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in ("<eos>", "<bos>")])
    return backend


def _weights(config: dict[str, Any], attention: Callable[[], dict[str, tuple[int, ...]]]) -> dict[str, torch.Tensor]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB_SIZE, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB_SIZE, HIDDEN),
    }
    for layer in range(LAYERS):
        has_experts = "first_k_dense_replace" in config and layer >= config["first_k_dense_replace"]
        feed_forward = _experts(config) if has_experts else _mlp("", config["intermediate_size"])
        norms = {"input_layernorm.weight": (HIDDEN,), "post_attention_layernorm.weight": (HIDDEN,)}
        parts = {
            **norms,
            **{f"self_attn.{name}": shape for name, shape in attention().items()},
            **{f"mlp.{name}": shape for name, shape in feed_forward.items()},
        }
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in parts.items()}
    generator = torch.Generator().manual_seed(len(shapes))
    return {name: _random(name, shape, generator) for name, shape in shapes.items()}


def _random(name: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    noise = torch.randn(shape, generator=generator)
    if "norm" in name:
        return 1 + noise / 10
    if len(shape) == 1:
        return noise / 10
    if name == "model.embed_tokens.weight":
        return noise
    return noise * (2.0 if name == "lm_head.weight" else 1.5) / shape[-1] ** 0.5


def _llama_attention() -> dict[str, tuple[int, ...]]:
    return {
        "q_proj.weight": (32, HIDDEN),
        "k_proj.weight": (16, HIDDEN),
        "v_proj.weight": (16, HIDDEN),
        "o_proj.weight": (HIDDEN, 32),
    }


def _latent_attention() -> dict[str, tuple[int, ...]]:
    return {
        "q_proj.weight": (4 * 12, HIDDEN),
        "kv_a_proj_with_mqa.weight": (16 + 4, HIDDEN),
        "kv_a_layernorm.weight": (16,),
        "kv_b_proj.weight": (4 * 16, 16),
        "o_proj.weight": (HIDDEN, 4 * 8),
    }


def _experts(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    num_experts, width = config["n_routed_experts"], config["moe_intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "gate.weight": (num_experts, HIDDEN),
        "gate.e_score_correction_bias": (num_experts,),
        **_mlp("shared_experts.", width),
    }
    for expert in range(num_experts):
        shapes |= _mlp(f"experts.{expert}.", width)
    return shapes


def _mlp(prefix: str, width: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{prefix}gate_proj.weight": (width, HIDDEN),
        f"{prefix}up_proj.weight": (width, HIDDEN),
        f"{prefix}down_proj.weight": (HIDDEN, width),
    }
