"""Drafter folders with random weights, and a target and a drafter over one pool whose unwritten rows are NaN."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from deepdraft.infer.batch import Batch
from deepdraft.infer.drafters.dflash import DflashDrafter
from deepdraft.infer.drafters.drafter import DraftRequest
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.infer.kv.layout import KvLayout, kv_layout
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.models.decoder import Decoder

VOCAB_SIZE = 120
HIDDEN_SIZE = 48
TARGET_LAYERS = 5
MASK = 119
NUM_SLOTS = 360
DRAFTER: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "vocab_size": VOCAB_SIZE,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "block_size": 6,
    "num_target_layers": TARGET_LAYERS,
    "dtype": "float32",
    "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [3, 0, 2]},
}


@dataclass(frozen=True)
class DrafterFolder:
    """A drafter on disk and what is in it."""

    path: Path
    config: dict[str, Any]
    tensors: dict[str, Tensor]


def write_drafter(
    path: Path, *, without: Sequence[str] = (), extra: dict[str, Tensor] | None = None, **changes: Any
) -> DrafterFolder:
    """A drafter with these fields changed, in a folder that is made; a `dflash_config` joins the usual one."""
    nested = {**DRAFTER["dflash_config"], **changes.pop("dflash_config", {})}
    config = {**DRAFTER, **changes, "dflash_config": {name: v for name, v in nested.items() if v is not None}}
    config = {name: value for name, value in config.items() if value is not None}
    num_taps = len(config["dflash_config"].get("target_layer_ids", range(config["num_hidden_layers"])))
    tensors = {**random_tensors(config, num_taps), **(extra or {})}
    tensors = {name: tensor for name, tensor in tensors.items() if name not in without}
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return DrafterFolder(path, config, tensors)


def random_tensors(config: dict[str, Any], num_taps: int) -> dict[str, Tensor]:
    """Weights that make every part count: norms that aren't 1, logits of several units."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    q_rows, kv_rows = (config[name] * config["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, num_taps * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    projections = {"q_proj": (q_rows, hidden), "k_proj": (kv_rows, hidden), "v_proj": (kv_rows, hidden)}
    projections["o_proj"] = (hidden, q_rows)
    for layer in range(config["num_hidden_layers"]):
        name = f"layers.{layer}"
        for part, shape in projections.items():
            shapes[f"{name}.self_attn.{part}.weight"] = shape
            if config.get("attention_bias"):
                shapes[f"{name}.self_attn.{part}.bias"] = shape[:1]
        shapes[f"{name}.self_attn.q_norm.weight"] = shapes[f"{name}.self_attn.k_norm.weight"] = (config["head_dim"],)
        shapes[f"{name}.input_layernorm.weight"] = shapes[f"{name}.post_attention_layernorm.weight"] = (hidden,)
        shapes[f"{name}.mlp.gate_proj.weight"] = shapes[f"{name}.mlp.up_proj.weight"] = (inner, hidden)
        shapes[f"{name}.mlp.down_proj.weight"] = (hidden, inner)
    generator = torch.Generator().manual_seed(5)
    return {name: _random(name, shape, generator) for name, shape in shapes.items()}


def _random(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    noise = torch.randn(shape, generator=generator)
    if "norm" in name:
        return 1 + 0.3 * noise
    return 0.3 * noise if len(shape) == 1 else noise * 1.5 * shape[-1] ** -0.5


def random_tokens(num_tokens: int, seed: int = 0) -> list[int]:
    """Token ids other than the mask."""
    return torch.randint(0, MASK, (num_tokens,), generator=torch.Generator().manual_seed(seed)).tolist()


@dataclass
class Drafting:
    """A target and its drafter over one pool; pages are dealt in a shuffled order."""

    target: Decoder
    drafter: DflashDrafter
    page_size: int = 4
    backend: str = "torch"
    requests: dict[str, PageTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        dtype = self.target.embedding.dtype
        num_pages = NUM_SLOTS // self.page_size
        layers = kv_layout(self.target.config, page_size=self.page_size, dtype=dtype).layers
        layout = KvLayout(layers + self.drafter.kv_layers, self.page_size, dtype)
        self.pool = PagePool(layout, num_pages)
        for tensor in self.rows():  # what isn't written must never be read
            tensor.fill_(torch.nan)
        pages = self.pool.allocate(num_pages)
        order = torch.randperm(num_pages, generator=torch.Generator().manual_seed(3)).tolist()
        self._dealt = iter([pages[index] for index in order])
        self.attention: AttentionBackend = attention_backend(self.backend, torch.device("cpu"))

    def rows(self) -> list[Tensor]:
        """Keys and values of each layer in turn."""
        layers = [self.pool.layer(index) for index in range(len(self.pool.layout.layers))]
        return [part for layer in layers for part in (layer.keys, layer.values)]

    def grown(self, name: str, num_tokens: int) -> PageTable:
        """A request's page table, with room for so many."""
        table = self.requests.setdefault(name, PageTable(self.page_size))
        while table.capacity < num_tokens:
            table.pages.append(next(self._dealt))
        return table

    def run(self, rows: dict[str, Sequence[int]], *, depths: Sequence[int] | None = None, mask: Any = None) -> Tensor:
        """The next tokens of several requests in one pass of the target, absorbed: the taps. Page tables' num_tokens
        move on, but for a tree (`depths`, `mask`)."""
        spans = {name: (self.grown(name, 0).num_tokens, len(token_ids)) for name, token_ids in rows.items()}
        tables = [self.grown(name, start + length) for name, (start, length) in spans.items()]
        positions = [start + depth for start, length in spans.values() for depth in (depths or range(length))]
        batch = Batch(
            token_ids=torch.tensor([token_id for token_ids in rows.values() for token_id in token_ids]),
            positions=torch.tensor(positions),
            slots=torch.cat([table.slots(s, s + n) for table, (s, n) in zip(tables, spans.values(), strict=True)]),
            plan=AttentionPlan.of(
                page_size=self.page_size,
                query_lens=[length for _, length in spans.values()],
                kv_lens=[start + length for start, length in spans.values()],
                pages=[table.pages for table in tables],
                tail_masks=[mask] * len(tables),
            ),
            logit_rows=torch.tensor([0]),
        )
        tapped = self.drafter.tapped_layers
        taps = self.target.forward(batch, self.pool, self.attention, tapped_layers=tapped).taps
        assert taps is not None
        self.drafter.absorb(batch.rows, taps, self.pool)
        if depths is None:
            for table, (start, length) in zip(tables, spans.values(), strict=True):
                table.num_tokens = start + length
        return taps

    def prefill(self, name: str, token_ids: Sequence[int], *, chunk_len: int = 1000) -> Tensor:
        """All but the last token, the bonus, in chunks: the taps."""
        context = token_ids[self.grown(name, 0).num_tokens : -1]
        chunks = [context[first : first + chunk_len] for first in range(0, len(context), chunk_len)]
        return torch.cat([self.run({name: chunk}) for chunk in chunks])

    def request(self, name: str, token_ids: Sequence[int], **values: Any) -> DraftRequest:
        """What the engine would ask the drafter for."""
        table = self.grown(name, len(token_ids) - 1 + self.drafter.scratch_len)
        defaults: dict[str, Any] = {"max_draft_len": 1000, "temperature": 0.0, "seed": 0}
        return DraftRequest(token_ids, table, **{**defaults, **values})

    def logits(self, texts: dict[str, Sequence[int]]) -> Tensor:
        """[R, B - 1, V]"""
        requests = [self.request(name, token_ids) for name, token_ids in texts.items()]
        return self.drafter.logits(requests, self.pool, self.attention, num_depths=self.drafter.draft_len)
