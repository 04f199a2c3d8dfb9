"""A drafter's shape where nothing is said: small beside its target, so that drafts are cheap."""

from __future__ import annotations

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.shape import DrafterShape
from deepdraft.infer.drafter_training.target import Target

MAX_TAPPED = 5
_SMALL_HIDDEN = 1024


def drafter_shape(
    target: Target,
    *,
    mask_token_id: int | None = None,
    target_layers: tuple[int, ...] | None = None,
    **changes: int,
) -> DrafterShape:
    """The target's hidden size and vocabulary, its layers spread evenly, heads of 32 or 128, a third of them for keys
    and values. `changes` replace fields. Raises UsageError for layers or a mask token that the target doesn't have,
    and a block without a mask."""
    config = target.model.config
    hidden, vocab = config.hidden_size, config.vocab_size
    head_dim = 32 if hidden < _SMALL_HIDDEN else 128
    num_heads = max(1, hidden // head_dim)
    layers = target_layers if target_layers is not None else default_target_layers(config.num_layers)
    if not all(0 <= layer < config.num_layers for layer in layers):
        raise UsageError(f"the target has no such layers: {layers}", hint=f"it has 0 to {config.num_layers - 1}")
    mask = mask_token_id if mask_token_id is not None else target.mask_token_id()
    if not 0 <= mask < vocab:
        raise UsageError(f"mask token {mask} is not in a vocabulary of {vocab}")
    if changes.get("block_size", 2) < 2:
        raise UsageError("a block holds the bonus token and at least one mask", hint="--block-size 2 or more")
    fields = {
        "intermediate_size": 64 * round(hidden * 8 / 3 / 64) or 64,
        "num_heads": num_heads,
        "num_kv_heads": _largest_divisor(num_heads, max(1, num_heads // 3)),
        "head_dim": head_dim,
        **changes,
    }
    return DrafterShape(
        hidden_size=hidden,
        vocab_size=vocab,
        mask_token_id=mask,
        target_layers=tuple(layers),
        num_target_layers=config.num_layers,
        max_positions=target.max_context_len,
        norm_eps=config.rms_norm_eps,
        **fields,
    )


def default_target_layers(num_layers: int) -> tuple[int, ...]:
    """Of a deep target five layers from the second to the third-to-last, as DFlash has it; of a shallow one all but
    the last (at most five, from the top): a prompt's tokens need not be computed through a last layer that isn't
    tapped, a sixth of the prefill of a target of six layers."""
    if num_layers <= MAX_TAPPED + 3:
        last = max(1, num_layers - 1)
        return tuple(range(max(0, last - MAX_TAPPED), last))
    step = (num_layers - 4) / (MAX_TAPPED - 1)
    return tuple(round(1 + index * step) for index in range(MAX_TAPPED))


def _largest_divisor(number: int, limit: int) -> int:
    return max(divisor for divisor in range(1, limit + 1) if number % divisor == 0)
