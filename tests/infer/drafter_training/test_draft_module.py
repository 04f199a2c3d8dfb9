"""The training module against a plain computation of one block, and what a block may see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file
from torch import Tensor

from deepdraft.infer.drafter_training.blocks import Blocks
from deepdraft.infer.drafter_training.draft_module import DraftModule, initialised
from deepdraft.infer.drafter_training.export import read_drafter, write_drafter
from deepdraft.infer.drafter_training.shape import DrafterShape
from deepdraft.infer.drafter_training.target import Target
from deepdraft.infer.drafter_training.training import Training, draft_hidden


@pytest.fixture
def module(shape: DrafterShape) -> DraftModule:
    """No weight is left at a value that would hide a fault."""
    module = initialised(shape, seed=2)
    draw = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for param in module.parameters():
            noise = torch.randn(param.shape, generator=draw)
            param.copy_(noise * param.shape[-1] ** -0.5 if param.ndim == 2 else 1 + 0.2 * noise)
    return module


def test_equals_a_plain_computation_of_the_exported_weights(
    module: DraftModule, blocks: Blocks, target: Target, tmp_path: Path
) -> None:
    write_drafter(module, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    hidden = draft_hidden(read_drafter(tmp_path), blocks, target.embedding)
    for row in range(hidden.shape[0]):
        for index in range(hidden.shape[1]):
            expected = _plain_block(weights, module.shape, blocks, row, index, target.embedding)
            torch.testing.assert_close(hidden[row, index].double(), expected, atol=2e-5, rtol=1e-4)


def _plain_block(
    weights: dict[str, Tensor], shape: DrafterShape, blocks: Blocks, row: int, index: int, embedding: Tensor
) -> Tensor:
    """One block in float64, head by head, as the format's description says: [B, H]."""
    take = {name: tensor.double() for name, tensor in weights.items()}
    anchor = int(blocks.block_positions[row, index, 0] - blocks.context_positions[row, 0])
    seen = range(max(0, anchor - shape.draft_window), anchor)
    features = _norm(blocks.taps[row, list(seen)].double() @ take["fc.weight"].T, take["hidden_norm.weight"])
    start = int(blocks.context_positions[row, 0])
    positions = [*(start + place for place in seen), *(start + anchor + i for i in range(shape.block_size))]
    ids = [int(blocks.bonus_ids[row, index])] + [shape.mask_token_id] * (shape.block_size - 1)
    x = embedding[ids].double()
    for layer in range(shape.num_layers):
        at = {name.split(f"layers.{layer}.")[1]: w for name, w in take.items() if name.startswith(f"layers.{layer}.")}
        normed = _norm(x, at["input_layernorm.weight"])
        source = torch.cat([features, normed])
        heads = []
        for head in range(shape.num_heads):
            kv = head // (shape.num_heads // shape.num_kv_heads)
            of = slice(head * shape.head_dim, (head + 1) * shape.head_dim)
            of_kv = slice(kv * shape.head_dim, (kv + 1) * shape.head_dim)
            q = _norm(normed @ at["self_attn.q_proj.weight"][of].T, at["self_attn.q_norm.weight"])
            k = _norm(source @ at["self_attn.k_proj.weight"][of_kv].T, at["self_attn.k_norm.weight"])
            v = source @ at["self_attn.v_proj.weight"][of_kv].T
            q = _rope(q, positions[len(seen) :], shape.rope_theta)
            k = _rope(k, positions, shape.rope_theta)
            heads.append(torch.softmax(q @ k.T / shape.head_dim**0.5, -1) @ v)
        x = x + torch.cat(heads, -1) @ at["self_attn.o_proj.weight"].T
        normed = _norm(x, at["post_attention_layernorm.weight"])
        inner = F.silu(normed @ at["mlp.gate_proj.weight"].T) * (normed @ at["mlp.up_proj.weight"].T)
        x = x + inner @ at["mlp.down_proj.weight"].T
    return _norm(x, take["norm.weight"])


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def _rope(x: Tensor, positions: list[int], theta: float) -> Tensor:
    half = x.shape[-1] // 2
    out = torch.empty_like(x)
    for row, position in enumerate(positions):
        for i in range(half):
            angle = torch.tensor(position * theta ** (-2 * i / x.shape[-1]), dtype=torch.float64)
            a, b = x[row, i], x[row, half + i]
            out[row, i] = a * angle.cos() - b * angle.sin()
            out[row, half + i] = b * angle.cos() + a * angle.sin()
    return out


def test_a_block_sees_nothing_from_its_anchor_on(module: DraftModule, blocks: Blocks, target: Target) -> None:
    before = draft_hidden(module, blocks, target.embedding)
    for row in range(len(blocks.taps)):
        anchors = blocks.block_positions[row, :, 0] - blocks.context_positions[row, 0]
        for index, anchor in enumerate(anchors.tolist()):
            taps = blocks.taps.clone()
            taps[row, anchor:] = 99.0
            after = draft_hidden(module, replace(blocks, taps=taps), target.embedding)
            assert torch.equal(before[row, index], after[row, index])


def test_a_block_sees_the_window_and_no_further(module: DraftModule, blocks: Blocks, target: Target) -> None:
    before = draft_hidden(module, blocks, target.embedding)
    window = module.shape.draft_window
    anchor = int(blocks.block_positions[0, -1, 0] - blocks.context_positions[0, 0])
    assert anchor > window
    for place, is_seen in ((anchor - window - 1, False), (anchor - window, True), (anchor - 1, True)):
        taps = blocks.taps.clone()
        taps[0, place] += torch.randn(taps.shape[-1], generator=torch.Generator().manual_seed(1)) * 30
        after = draft_hidden(module, replace(blocks, taps=taps), target.embedding)
        assert torch.equal(before[0, -1], after[0, -1]) != is_seen


def test_blocks_do_not_see_each_other(module: DraftModule, blocks: Blocks, target: Target) -> None:
    before = draft_hidden(module, blocks, target.embedding)
    bonus_ids = blocks.bonus_ids.clone()
    bonus_ids[:, 1] = (bonus_ids[:, 1] + 7) % 200
    after = draft_hidden(module, replace(blocks, bonus_ids=bonus_ids), target.embedding)
    torch.testing.assert_close(before[:, [0, 2]], after[:, [0, 2]], atol=0, rtol=0)
    assert not torch.allclose(before[:, 1], after[:, 1], atol=1e-3)


def test_rows_of_a_block_see_each_other_in_both_directions(
    module: DraftModule, blocks: Blocks, target: Target
) -> None:
    """The last row sees the first and the first one the last: with other positions behind it, it changes."""
    before = draft_hidden(module, blocks, target.embedding)
    positions = blocks.block_positions.clone()
    positions[..., -1] += 3
    after = draft_hidden(module, replace(blocks, block_positions=positions), target.embedding)
    assert not torch.allclose(before[:, :, 0], after[:, :, 0], atol=1e-4)


def test_only_distances_count(module: DraftModule, blocks: Blocks, target: Target) -> None:
    shifted = replace(
        blocks, context_positions=blocks.context_positions + 4096, block_positions=blocks.block_positions + 4096
    )
    torch.testing.assert_close(
        draft_hidden(module, blocks, target.embedding),
        draft_hidden(module, shifted, target.embedding),
        atol=1e-4,
        rtol=1e-4,
    )


def test_a_fresh_layer_is_the_identity(shape: DrafterShape, blocks: Blocks, target: Target) -> None:
    fresh = initialised(shape, seed=0)
    hidden = draft_hidden(fresh, blocks, target.embedding)
    expected = F.rms_norm(target.embedding[shape.mask_token_id], (shape.hidden_size,), eps=shape.norm_eps)
    torch.testing.assert_close(hidden[0, 0, 1], expected)


def test_the_seed_decides_the_first_weights(shape: DrafterShape) -> None:
    one, same, other = (initialised(shape, seed).fc.weight for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_mixed_precision_is_near_the_exact_one(
    make_training: Callable[..., Training], trained: Training, blocks: Blocks
) -> None:
    mixed = make_training(matmul_dtype="bfloat16")
    mixed.module.load_state_dict(trained.module.state_dict())
    exact, near = trained.logits(blocks), mixed.logits(blocks).float()
    assert (exact - near).abs().mean() < 0.05 * exact.abs().mean()
