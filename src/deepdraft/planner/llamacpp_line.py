"""One cache of llama.cpp as its log prints it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CacheKind = Literal["full", "window", "compressed", "index", "state"]
_PAD = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamacppCache:
    """One line of the log: `size = ... (num_cells cells, num_layers layers, n/num_streams seqs), K ..., V ...`."""

    kind: CacheKind
    num_cells: int
    """Of one stream."""
    num_streams: int
    num_layers: int
    key_bytes: int
    """Of all layers and streams; of states the convolutions' part, R."""
    value_bytes: int
    """0 where values are part of the keys; of states the states themselves, S."""

    @property
    def num_bytes(self) -> int:
        """Keys and values."""
        return self.key_bytes + self.value_bytes


def padded(num_tokens: int) -> int:
    """To whole 256s."""
    return -(-num_tokens // _PAD) * _PAD
