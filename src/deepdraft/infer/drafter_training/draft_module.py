"""A DFlash drafter as a differentiable module: many blocks of one sequence are drafted together for training.

Architecture and weight names are the published ones (DFlash, arXiv 2602.06036, and its checkpoints): context features
`hidden_norm(fc(taps))` give every layer keys and values by its own k_proj and v_proj; a block of [bonus, mask, ...]
embeddings attends to them and to itself, in both directions. Leaves out embedding and output matrix, which are the
target's and stay as they are.

Shape letters: S sequences, C context tokens, A anchors (blocks of a sequence), B block size, K tapped layers, H
hidden size, V vocabulary, Hq query heads, Hk key/value heads, G = Hq / Hk, D head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from deepdraft.infer.drafter_training.shape import DrafterShape


class DraftModule(nn.Module):
    """The trainable weights of a drafter; `state_dict` has the published names."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        hidden = shape.hidden_size
        self.fc = nn.Linear(len(shape.target_layers) * hidden, hidden, bias=False)
        self.hidden_norm = Norm(hidden, shape.norm_eps)
        self.layers = nn.ModuleList([DraftLayer(shape) for _ in range(shape.num_layers)])
        self.norm = Norm(hidden, shape.norm_eps)

    def forward(
        self,
        taps: Tensor,
        context_positions: Tensor,
        block_embeddings: Tensor,
        block_positions: Tensor,
        visible: Tensor,
    ) -> Tensor:
        """Hidden states of all block rows after the final norm, [S, A, B, H].

        taps [S, C, K * H]; context_positions int64 [S, C]; block_embeddings [S, A, B, H]; block_positions int64
        [S, A, B]; visible bool [S, A, C]: which context tokens a block sees. A block always sees all of itself.
        """
        num_sequences, num_anchors, block_size, hidden = block_embeddings.shape
        is_mixed = torch.is_autocast_enabled("cpu")
        context = self.hidden_norm(self.fc(taps if is_mixed else taps.to(self.fc.weight.dtype)))
        turns = _turns(torch.cat([context_positions, block_positions.flatten(1)], dim=1), self.shape)
        bias = torch.zeros(visible.shape, dtype=context.dtype).masked_fill_(~visible, float("-inf"))
        x = block_embeddings.reshape(num_sequences, num_anchors * block_size, hidden)
        for layer in self.layers:
            x = layer(x, context, turns, bias)
        rows: Tensor = self.norm(x)
        return rows.view(num_sequences, num_anchors, block_size, hidden)


class DraftLayer(nn.Module):
    """A pre-norm layer of the form of Qwen3, whose keys and values are joined by those of the context."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden_size, shape.norm_eps)
        self.self_attn = DraftAttention(shape)
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.norm_eps)
        self.mlp = DraftMlp(shape)

    def forward(self, x: Tensor, context: Tensor, turns: tuple[Tensor, Tensor], bias: Tensor) -> Tensor:
        """x [S, A * B, H], context [S, C, H] -> [S, A * B, H]."""
        x = x + self.self_attn(self.input_layernorm(x), context, turns, bias)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class DraftAttention(nn.Module):
    """Grouped-query attention of blocks to their context and to themselves."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self._num_heads, self._num_kv_heads, self._head_dim = shape.num_heads, shape.num_kv_heads, shape.head_dim
        hidden, kv_width = shape.hidden_size, shape.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(hidden, shape.num_heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_width, bias=False)
        self.v_proj = nn.Linear(hidden, kv_width, bias=False)
        self.o_proj = nn.Linear(shape.num_heads * shape.head_dim, hidden, bias=False)
        self.q_norm = Norm(shape.head_dim, shape.norm_eps)
        self.k_norm = Norm(shape.head_dim, shape.norm_eps)

    def forward(self, x: Tensor, context: Tensor, turns: tuple[Tensor, Tensor], bias: Tensor) -> Tensor:
        """x [S, A * B, H], context [S, C, H], bias [S, A, C] (0 or -inf) -> [S, A * B, H]."""
        context_len = context.shape[1]
        source = torch.cat([context.to(x.dtype), x], dim=1)
        keys = self.k_norm(self.k_proj(source).unflatten(-1, (self._num_kv_heads, -1)))
        values = self.v_proj(source).unflatten(-1, (self._num_kv_heads, -1))
        queries = self.q_norm(self.q_proj(x).unflatten(-1, (self._num_heads, -1))) * self._head_dim**-0.5
        block_turns = (turns[0][:, context_len:], turns[1][:, context_len:])
        out = block_attention(
            _rotated(queries, block_turns).to(x.dtype), _rotated(keys, turns).to(x.dtype), values, bias
        )
        result: Tensor = self.o_proj(out.flatten(2))
        return result


def block_attention(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Attention of A blocks to their context and each to itself, in both directions.

    queries [S, A * B, Hq, D], scaled; keys and values [S, C + A * B, Hk, D], those of the context first; bias
    [S, A, C], added to the scores of the context -> [S, A * B, Hq, D].
    """
    num_sequences, num_rows, num_heads, head_dim = queries.shape
    num_anchors, context_len = bias.shape[1:]
    kv_heads, block_size = keys.shape[2], num_rows // num_anchors
    blocks = (num_sequences, num_anchors, block_size, kv_heads)
    # [S, Hk, A, G * B, D]: the queries of a block that share a key/value head are rows of one product.
    grouped = queries.reshape(*blocks, num_heads // kv_heads, head_dim).permute(0, 3, 1, 4, 2, 5).flatten(3, 4)
    own_keys = keys[:, context_len:].reshape(*blocks, head_dim).permute(0, 3, 1, 4, 2)
    own_values = values[:, context_len:].reshape(*blocks, head_dim).permute(0, 3, 1, 2, 4)
    to_context = grouped.flatten(2, 3) @ keys[:, :context_len].permute(0, 2, 3, 1)
    to_context = to_context.view(*grouped.shape[:4], context_len) + bias[:, None, :, None].to(to_context.dtype)
    to_block = (grouped @ own_keys).to(to_context.dtype)
    # torch._softmax keeps bfloat16 in and out (summing in float32); autocast would copy to float32 and back.
    weights = torch._softmax(torch.cat([to_context, to_block], dim=-1), -1, False)
    out = weights[..., :context_len].flatten(2, 3) @ values[:, :context_len].transpose(1, 2).to(weights.dtype)
    out = out.view(grouped.shape) + weights[..., context_len:] @ own_values.to(weights.dtype)
    out = out.view(num_sequences, kv_heads, num_anchors, num_heads // kv_heads, block_size, head_dim)
    return out.permute(0, 2, 4, 1, 3, 5).reshape(queries.shape)


class Norm(nn.RMSNorm):
    """RMS norm in float32, whatever autocast makes of its input."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> float32 [..., width]"""
        return super().forward(x.float())


class DraftMlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., H] -> [..., H]"""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def initialised(shape: DrafterShape, seed: int, final_norm: Tensor | None = None) -> DraftModule:
    """A fresh module in float32: normal weights of std 1 / sqrt(width), layers' last matrices zero, so that a layer
    starts as the identity. `final_norm` [H]: the target's, which its output matrix expects."""
    module = DraftModule(shape)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, param in module.named_parameters():
            if param.ndim < 2:
                param.fill_(1.0)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                param.zero_()
            else:
                param.normal_(0.0, param.shape[1] ** -0.5, generator=draw)
        if final_norm is not None:
            module.norm.weight.copy_(final_norm)
    return module


def _turns(positions: Tensor, shape: DrafterShape) -> tuple[Tensor, Tensor]:
    """Cosines and sines of all positions, [S, T, 1, D / 2] float32 each."""
    frequencies = shape.rope_theta ** -(torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
    angles = (positions.to(torch.float64)[..., None] * frequencies).unsqueeze(2)
    return angles.cos().to(torch.float32), angles.sin().to(torch.float32)


def _rotated(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """RoPE on halves: x [S, T, heads, D]."""
    cos, sin = turns
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
