"""vLLM's groups where a block holds pages of several sizes side by side (layouts with the block outermost).

Layers that need the same tokens make a bucket. A bucket with equally many layers of every page size is a repeating
pattern, and is split into groups of as many repeats as pad least over all such buckets. Every group takes a whole
block of the pool, which is as wide as the widest.

Source: vLLM 0.32.0, v1/core/kv_cache_utils.py (_get_packed_kv_cache_groups, _approximate_gcd,
_get_kv_cache_bytes_per_block). Left out: recurrent states and ring buffers, which it packs too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepdraft.planner.vllm_blocks import BlockGroup, BlockLayout, LayerSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Layers that need the same tokens."""

    block_len: int
    window: int | None
    """None: all tokens."""
    num_layers: Mapping[int, int]
    """By the bytes of their page."""

    @property
    def repeats(self) -> int:
        """Of the pattern, or the layers of the commonest page."""
        return max(self.num_layers.values())

    @property
    def is_balanced(self) -> bool:
        """Whether it is a repeating pattern: one layer of each page."""
        return len(set(self.num_layers.values())) == 1

    def widest_bytes(self, num_groups: int) -> int:
        """Of the largest of so many groups."""
        return sum(-(-count // num_groups) * page for page, count in self.num_layers.items())

    def layer_set(self, num_groups: int) -> LayerSet:
        """The layers of the largest of so many groups, by their widest page."""
        return LayerSet(
            kind="full" if self.window is None else "window",
            num_layers=sum(-(-count // num_groups) for count in self.num_layers.values()),
            page_bytes=max(self.num_layers),
            block_len=self.block_len,
            window=self.window,
            is_latent=True,
        )


def packed_layout(buckets: Sequence[Bucket], *, block_len: int, in_flight_len: int, num_draft: int) -> BlockLayout:
    """The layout of these layers. `block_len`: tokens of a block of full attention."""
    num_groups = [_num_groups(each, buckets) for each in buckets]
    block_bytes = max(each.widest_bytes(count) for each, count in zip(buckets, num_groups, strict=True))
    groups = tuple(
        BlockGroup(layers=each.layer_set(count), block_bytes=block_bytes)
        for each, count in zip(buckets, num_groups, strict=True)
        for _ in range(count)
    )
    return BlockLayout(groups=groups, block_len=block_len, in_flight_len=in_flight_len, num_draft=num_draft)


def _num_groups(bucket: Bucket, buckets: Sequence[Bucket]) -> int:
    repeats = _repeats_per_group(buckets)
    if repeats is not None:
        return -(-bucket.repeats // repeats) if bucket.is_balanced else 1
    if bucket.window is None:
        return 1
    # With no pattern to follow, windows are cut to fit the block that the others need.
    anchor_bytes = max(each.widest_bytes(1 if each.window is None else _count(each)) for each in buckets)
    return -(-_count(bucket) // max(anchor_bytes // max(bucket.num_layers), 1))


def _count(bucket: Bucket) -> int:
    return sum(bucket.num_layers.values())


def _repeats_per_group(buckets: Sequence[Bucket]) -> int | None:
    """The number of repeats that pads least, at least those of the largest pattern of several pages; the larger of
    two that pad alike. None where there is no such pattern."""
    fewest = max((each.repeats for each in buckets if each.is_balanced and len(each.num_layers) > 1), default=0)
    if not fewest:
        return None
    counts = [each.repeats for each in buckets if each.is_balanced]
    return min(range(fewest, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))
