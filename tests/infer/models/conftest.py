"""Pairs of models on the same random weights: transformers' and ours; and a way to run ours over a paged pool."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from deepdraft.infer.batch import Batch
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.infer.kv.layout import kv_layout
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.models.decoder import Decoder
from deepdraft.infer.models.load import load_model
from deepdraft.infer.models.model import Forwarded

transformers = pytest.importorskip("transformers")

DEEPSEEK_V3: dict[str, Any] = {
    "vocab_size": 120,
    "hidden_size": 48,
    "intermediate_size": 64,
    "moe_intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 20,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "max_position_embeddings": 4096,
    "num_mtp_layers": 0,
    "rms_norm_eps": 1e-5,
}
LLAMA: dict[str, Any] = {
    "vocab_size": 120,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}
FORMS = {
    "deepseek_v3": (transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM, DEEPSEEK_V3),
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, LLAMA),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, LLAMA),
}
ROW_LIMIT = 600
"""Slots of a run's pool"""


@dataclass
class Pair:
    """transformers' model and the folder it was saved to."""

    theirs: nn.Module
    folder: Path

    @cached_property
    def ours(self) -> Decoder:
        """float32."""
        return self.load(torch.float32)

    def load(self, dtype: torch.dtype | None) -> Decoder:
        model = load_model(open_checkpoint(self.folder), dtype=dtype)
        assert isinstance(model, Decoder)
        return model

    @torch.no_grad()
    def logits(self, token_ids: Sequence[int], *, first_position: int = 0) -> Tensor:
        """transformers' float32 logits [T, V] of one sequence in one pass."""
        positions = torch.arange(first_position, first_position + len(token_ids))
        return self.theirs(torch.tensor([token_ids]), position_ids=positions[None]).logits[0]

    @torch.no_grad()
    def hidden_states(self, token_ids: Sequence[int]) -> tuple[Tensor, ...]:
        """transformers' hidden states: the embedding's, then each layer's (the last one's after the final norm)."""
        states = self.theirs(torch.tensor([token_ids]), output_hidden_states=True).hidden_states
        return tuple(state[0] for state in states)

    @torch.no_grad()
    def logits_float64(self, token_ids: Sequence[int]) -> Tensor:
        """The same in float64, but for the angles of the rotary embedding: they are float32 everywhere."""
        module = sys.modules[type(self.theirs).__module__]
        wide = type(self.theirs)(self.theirs.config).eval()
        wide.load_state_dict(self.theirs.state_dict())
        wide.double()
        with float32_taken_for_float64(module):
            return wide(torch.tensor([token_ids])).logits[0]


class _WideTorch(ModuleType):
    """torch, but float32 is float64: transformers' models name float32 where they want more than bfloat16."""

    def __getattr__(self, name: str) -> Any:
        return torch.float64 if name == "float32" else getattr(torch, name)


@contextmanager
def float32_taken_for_float64(module: ModuleType) -> Iterator[None]:
    narrow = module.torch
    module.torch = _WideTorch("torch")
    try:
        yield
    finally:
        module.torch = narrow


@dataclass
class Sequenced:
    """One request of a run: its pages and the tokens that have been run."""

    pages: list[int]
    num_tokens: int = 0


@dataclass
class Part:
    """What one request brings to a pass: its next tokens, or a tree's nodes with their depths (from 0) and mask."""

    request: str
    token_ids: Sequence[int]
    depths: Sequence[int] | None = None
    tail_mask: Tensor | None = None


@dataclass
class Run:
    """Our model over a pool whose pages are dealt in a shuffled order."""

    model: Decoder
    page_size: int = 4
    backend: str = "torch"
    seed: int = 0
    tapped_layers: tuple[int, ...] = ()
    first_position: int = 0
    requests: dict[str, Sequenced] = field(default_factory=dict)

    def __post_init__(self) -> None:
        dtype = self.model.embedding.dtype
        num_pages = -(-ROW_LIMIT // self.page_size)
        self.pool = PagePool(kv_layout(self.model.config, page_size=self.page_size, dtype=dtype), num_pages)
        for layer_index in range(self.model.config.num_layers):  # what isn't written must never be read
            self.pool.layer(layer_index).keys.fill_(float("nan"))
            self.pool.layer(layer_index).values.fill_(float("nan"))
        pages = self.pool.allocate(num_pages)
        order = torch.randperm(num_pages, generator=torch.Generator().manual_seed(self.seed)).tolist()
        self._dealt = iter([pages[index] for index in order])
        self.attention: AttentionBackend = attention_backend(self.backend, torch.device("cpu"))

    def forward(self, parts: Sequence[Part], logit_rows: Sequence[int] | None = None) -> Forwarded:
        """One pass; logits of all rows where no rows are named."""
        token_ids, positions, slots = [], [], []
        plans: list[tuple[int, int, list[int], Tensor | None]] = []
        for part in parts:
            at = self.requests.setdefault(part.request, Sequenced([]))
            start, stop = at.num_tokens, at.num_tokens + len(part.token_ids)
            while len(at.pages) * self.page_size < stop:
                at.pages.append(next(self._dealt))
            token_ids += part.token_ids
            positions += [
                self.first_position + start + depth for depth in (part.depths or range(len(part.token_ids)))
            ]
            slots += [at.pages[p // self.page_size] * self.page_size + p % self.page_size for p in range(start, stop)]
            plans.append((len(part.token_ids), stop, at.pages, part.tail_mask))
            at.num_tokens = stop
        plan = AttentionPlan.of(
            page_size=self.page_size,
            query_lens=[query_len for query_len, *_ in plans],
            kv_lens=[kv_len for _, kv_len, *_ in plans],
            pages=[pages for _, _, pages, _ in plans],
            tail_masks=[mask for *_, mask in plans],
        )
        rows = torch.tensor(range(len(token_ids)) if logit_rows is None else logit_rows, dtype=torch.int64)
        batch = Batch(torch.tensor(token_ids), torch.tensor(positions), torch.tensor(slots), plan, rows)
        return self.model.forward(batch, self.pool, self.attention, tapped_layers=self.tapped_layers)

    def logits(self, request: str, token_ids: Sequence[int], *, chunk_len: int | None = None) -> Tensor:
        """Logits of these tokens [T, V], run in chunks."""
        step = chunk_len or len(token_ids)
        chunks = [token_ids[first : first + step] for first in range(0, len(token_ids), step)]
        return torch.cat([self.forward([Part(request, chunk)]).logits for chunk in chunks])


def _random_weights(model: nn.Module) -> None:
    """Weights that make every part count: norms that aren't 1, biases that aren't 0, logits of several units."""
    generator = torch.Generator().manual_seed(17)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("inv_freq"):
                continue
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
            is_norm = "norm" in name
            scale = 0.2 if is_norm or tensor.dim() < 2 else 1.5 * tensor.shape[-1] ** -0.5
            tensor.copy_(noise * scale + (1.0 if is_norm else 0.0))


@pytest.fixture(scope="session")
def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Pair]:
    """The pair of a form with these changes to its small config; made once."""
    made: dict[str, Pair] = {}

    def make(form: str, **changes: Any) -> Pair:
        key = f"{form} {sorted(changes.items())}"
        if key not in made:
            config_class, model_class, fields = FORMS[form]
            config = config_class(**{**fields, **changes})
            config._attn_implementation = config._experts_implementation = "eager"  # the plain code, any dtype
            theirs = model_class(config).eval()
            _random_weights(theirs)
            theirs.tie_weights()
            folder = tmp_path_factory.mktemp("models") / form
            theirs.save_pretrained(folder)
            made[key] = Pair(theirs, folder)
        return made[key]

    return make


@pytest.fixture(scope="session")
def run_of() -> type[Run]:
    return Run


@pytest.fixture(scope="session")
def part_of() -> type[Part]:
    return Part


@pytest.fixture(scope="session")
def tokens() -> Callable[..., list[int]]:
    """Random token ids of the small models' vocabulary."""

    def draw(num_tokens: int, seed: int = 0) -> list[int]:
        return torch.randint(0, 120, (num_tokens,), generator=torch.Generator().manual_seed(seed)).tolist()

    return draw
