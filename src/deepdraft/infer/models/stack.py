"""The stack around the layers, alike in all forms of decoder, by Hugging Face's weight names."""

from __future__ import annotations

from collections.abc import Callable

from deepdraft.infer.config import ModelConfig
from deepdraft.infer.layers.mlp import Mlp
from deepdraft.infer.layers.rope import Rotary
from deepdraft.infer.models.decoder import Decoder, DecoderLayer
from deepdraft.infer.models.weights import Weights


def decoder(
    config: ModelConfig,
    weights: Weights,
    layer: Callable[[int, Weights], DecoderLayer],
    *,
    rotary_dim: int,
    many_queries: int | None,
) -> Decoder:
    """The stack around the layers; `layer` builds one from its index and the weights under its prefix."""
    table_shape = (config.vocab_size, config.hidden_size)
    embedding = weights.take("model.embed_tokens.weight", table_shape)
    return Decoder(
        config=config,
        embedding=embedding,
        layers=tuple(layer(index, weights.under(f"model.layers.{index}.")) for index in range(config.num_layers)),
        norm=weights.norm("model.norm.weight", config.hidden_size, config.rms_norm_eps),
        output=embedding if config.has_tied_embeddings else weights.take("lm_head.weight", table_shape),
        rotary=Rotary.of(config.rope, rotary_dim, weights.device),
        many_queries=many_queries,
    )


def mlp(weights: Weights, hidden_size: int, intermediate_size: int) -> Mlp:
    """gate_proj, up_proj and down_proj under the weights' prefix."""
    gate, up, down = "gate_proj.weight", "up_proj.weight", "down_proj.weight"
    dtype = weights.kept_dtype((gate, up, down))
    return Mlp(
        weights.joined([(gate, intermediate_size, None), (up, intermediate_size, None)], hidden_size, dtype=dtype),
        weights.take(down, (hidden_size, intermediate_size), dtype=dtype),
    )
