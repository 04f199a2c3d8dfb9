"""Plain predictors to stand beside the model: a count model over the same tokens, and a general compressor.

Both see the same training text. Leaves out anything learned by gradient.
"""

from __future__ import annotations

import lzma
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise


class BigramModel:
    """P(token | previous) of counts with Witten-Bell smoothing, backing off to counts of single tokens.

    Witten and Bell 1991, method C: the mass of unseen successors is (kinds of successors) / (kinds + occurrences).
    """

    def __init__(self, documents: Iterable[list[int]], vocab_size: int) -> None:
        self._single: Counter[int] = Counter()
        self._pairs: dict[int, Counter[int]] = defaultdict(Counter)
        for tokens in documents:
            self._single.update(tokens)
            for previous, token in pairwise(tokens):
                self._pairs[previous][token] += 1
        self._num_tokens = self._single.total()
        self._vocab_size = vocab_size
        self._num_after = {previous: successors.total() for previous, successors in self._pairs.items()}

    def probability(self, previous: int, token: int) -> float:
        """Smoothed probability of `token` after `previous`; never zero."""
        single = (self._single[token] + 1) / (self._num_tokens + self._vocab_size)
        successors = self._pairs.get(previous)
        if successors is None:
            return single
        num_kinds, num_after = len(successors), self._num_after[previous]
        return (successors[token] + num_kinds * single) / (num_after + num_kinds)

    def nats_per_token(self, tokens: list[int]) -> float:
        """Mean loss over all tokens but the first."""
        losses = [-math.log(self.probability(previous, token)) for previous, token in pairwise(tokens)]
        return sum(losses) / len(losses)


def compressed_bits_per_byte(text: bytes, known: bytes = b"") -> float:
    """Bits a byte that xz (LZMA, its largest dictionary) adds for `text` after it has seen `known`."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    sizes_bytes = [
        len(lzma.compress(content, format=lzma.FORMAT_RAW, filters=filters)) for content in (known, known + text)
    ]
    return 8 * (sizes_bytes[1] - (sizes_bytes[0] if known else 0)) / len(text)
