"""DeepSeek-V4's layers as engines lay their caches out: how many keep which rows, and how wide.

Every layer keeps a window of recent rows. Most also compress: a row for every 4 tokens, with an index to choose
among them, or one for every 128. A compressor holds the tokens of the group that is still open. How many bytes a row
and how many tokens a compressor takes is each engine's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from deepdraft.cost.kv_family import Compressed, Family, Index, Recurrent
from deepdraft.errors import UsageError

Ratio = Literal[4, 128]


@dataclass(frozen=True, slots=True, kw_only=True)
class V4Layers:
    """Counts and widths in numbers."""

    num_layers: int
    """All of them: each has a window."""
    num_4: int
    num_128: int
    dim: int
    """Of a row."""
    rope_dim: int
    """Of it, the part that carries the position."""
    index_dim: int
    window: int

    def num_of(self, ratio: Ratio) -> int:
        """Layers with a row for so many tokens."""
        return self.num_4 if ratio == 4 else self.num_128

    def state_dim(self, ratio: Ratio) -> int:
        """Numbers that one token takes in a compressor: keys and scores; twice for 4, whose groups overlap."""
        return (4 if ratio == 4 else 2) * self.dim

    @property
    def index_state_dim(self) -> int:
        """The same in the compressor of an index, of ratio 4."""
        return 4 * self.index_dim


def v4_layers(families: Iterable[Family]) -> V4Layers | None:
    """Of a model whose rows are compressed; None for every other."""
    families = tuple(families)
    rows = [each for each in families if isinstance(each, Compressed)]
    windows = [each for each in rows if each.window is not None]
    if not windows:
        return None
    by_stride = {each.stride: each.num_layers for each in rows if each.window is None}
    return V4Layers(
        num_layers=sum(each.num_layers for each in windows),
        num_4=by_stride.get(4, 0),
        num_128=by_stride.get(128, 0),
        dim=windows[0].dim,
        rope_dim=windows[0].qk_rope_head_dim,
        index_dim=max((each.dim for each in families if isinstance(each, Index)), default=0),
        window=windows[0].window or 0,
    )


def v4_families(ratios: Sequence[int], *, dim: int, rope_dim: int, index_dim: int, window: int) -> tuple[Family, ...]:
    """The families of layers with these ratios, 0 for a window alone. A compressor's state is counted as a ring of 8
    (ratio 4) or 128 tokens in float32, the least that any engine keeps.

    Raises UsageError for another ratio (DeepSeek-V4.1).
    """
    unknown = set(ratios) - {0, 4, 128}
    if unknown:
        raise UsageError(f"the model's config has compress_ratios not known here: {sorted(unknown)}")
    num_4, num_128 = ratios.count(4), ratios.count(128)
    families: list[Family] = [Compressed(num_layers=len(ratios), dim=dim, qk_rope_head_dim=rope_dim, window=window)]
    if num_4:
        families += [
            Compressed(num_layers=num_4, dim=dim, qk_rope_head_dim=rope_dim, stride=4),
            Index(num_layers=num_4, dim=index_dim, stride=4),
            Recurrent(
                num_layers=num_4, num_heads=1, state_elements=8 * 4 * (dim + index_dim), conv_elements=0, stride=4
            ),
        ]
    if num_128:
        families += [
            Compressed(num_layers=num_128, dim=dim, qk_rope_head_dim=rope_dim, stride=128),
            Recurrent(num_layers=num_128, num_heads=1, state_elements=128 * 2 * dim, conv_elements=0, stride=128),
        ]
    return tuple(families)
