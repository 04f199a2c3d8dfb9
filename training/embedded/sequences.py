"""Token sequences to learn from, as a pure function of stage and number: nothing to store when a run is resumed.

Every epoch concatenates all documents in a fresh order, cuts the stream into windows and visits the windows in a
fresh order, so that neighbours in a batch come from different modules. Shape letters: B sequences, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from tokenizers import Tokenizer

from training.embedded.corpus import Document
from training.embedded.recipe import BEGIN, END


def encoded(tokenizer: Tokenizer, documents: Iterable[Document]) -> list[torch.Tensor]:
    """Token ids of each document, `<|begin|>` in front and `<|end|>` behind; one int64 tensor a document."""
    begin, end = tokenizer.token_to_id(BEGIN), tokenizer.token_to_id(END)
    texts = [document.text for document in documents]
    return [torch.tensor([begin, *encoding.ids, end]) for encoding in tokenizer.encode_batch(texts)]


class Sequences:
    """Training sequences of one corpus; holds the stream of the epoch asked for last."""

    def __init__(self, documents: Sequence[torch.Tensor], seed: int) -> None:
        self._documents = documents
        self._seed = seed
        self._epoch_key: tuple[int, int, int] | None = None
        self._stream = torch.empty(0, dtype=torch.int64)
        self._order = torch.empty(0, dtype=torch.int64)
        self.num_tokens = sum(len(document) for document in documents)

    def batch(self, stage_index: int, number: int, num_sequences: int, sequence_len: int) -> torch.Tensor:
        """Batch `number` of a stage: (B, T + 1) int64, so that each position has its next token."""
        first = number * num_sequences
        rows = [self._window(stage_index, first + row, sequence_len) for row in range(num_sequences)]
        return torch.stack(rows)

    def _window(self, stage_index: int, number: int, sequence_len: int) -> torch.Tensor:
        num_windows = (self.num_tokens - 1) // sequence_len
        epoch, index = divmod(number, num_windows)
        self._enter_epoch(stage_index, epoch, sequence_len)
        start = int(self._order[index]) * sequence_len
        return self._stream[start : start + sequence_len + 1]

    def _enter_epoch(self, stage_index: int, epoch: int, sequence_len: int) -> None:
        key = (stage_index, epoch, sequence_len)
        if key == self._epoch_key:
            return
        draw = torch.Generator().manual_seed(self._seed + 1000 * stage_index + epoch)
        documents = torch.randperm(len(self._documents), generator=draw).tolist()
        self._stream = torch.cat([self._documents[index] for index in documents])
        self._order = torch.randperm((self.num_tokens - 1) // sequence_len, generator=draw)
        self._epoch_key = key
