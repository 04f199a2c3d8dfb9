"""The target's features of given tokens: one forward pass over whole sequences, tapped."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deepdraft.cost.kv import num_pages
from deepdraft.infer.batch import Batch
from deepdraft.infer.drafter_training.sample import Sample
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.infer.kv.layout import kv_layout
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.models.model import Model

PAGE_SIZE = 64
CHUNK_LEN = 4096


class FeatureReader:
    """Runs the target over sequences, one after another, and returns its taps."""

    def __init__(
        self, target: Model, target_layers: tuple[int, ...], max_len: int, *, chunk_len: int = CHUNK_LEN
    ) -> None:
        """max_len: tokens of the longest sequence. chunk_len: tokens of one forward pass at most."""
        self._target = target
        self._target_layers = target_layers
        self._chunk_len = chunk_len
        device = torch.device("cpu")
        layout = kv_layout(target.config, page_size=PAGE_SIZE, dtype=torch.float32)
        self._table = PageTable(PAGE_SIZE, list(range(num_pages(max_len, PAGE_SIZE))))
        self._pool = PagePool(layout, len(self._table.pages), device)
        self._attention: AttentionBackend = attention_backend(None, device)

    def taps(self, token_ids: Sequence[int], first: int = 0, *, num_kept: int = 0) -> Tensor:
        """bfloat16 [len(token_ids) - first, K * H]: the features of the tokens from `first` on. The first `num_kept`
        tokens are those of the call before, and are not computed again; `first` is no less."""
        num_tokens = len(token_ids)
        parts = []
        for start in range(num_kept, num_tokens, self._chunk_len):
            stop = min(start + self._chunk_len, num_tokens)
            taps = self._target.forward(
                self._batch(token_ids, start, stop),
                self._pool,
                self._attention,
                tapped_layers=self._target_layers,
            ).taps
            assert taps is not None
            if stop > first:
                parts.append(taps[max(0, first - start) :].to(torch.bfloat16))
        return torch.cat(parts).clone()

    def sample(self, prompt: Sequence[int], output: Sequence[int], kept_prompt: int) -> Sample:
        """The sample of an output after its prompt, with the last `kept_prompt` tokens of the prompt."""
        start = max(0, len(prompt) - kept_prompt)
        token_ids = [*prompt, *output]
        taps = self.taps(token_ids, start)
        return Sample(start, len(prompt) - start, torch.tensor(token_ids[start:]), taps, is_long=False)

    def samples_of_text(
        self, text: Sequence[int], outputs: Sequence[tuple[int, Sequence[int]]], kept_prompt: int
    ) -> list[Sample]:
        """The samples of outputs that were written after beginnings of one text: (length of the prompt, output), the
        longest prompt first. The text is computed once: an output overwrites only what no shorter prompt needs."""
        of_text = self.taps(text)
        samples = []
        for prompt_len, output in outputs:
            start = max(0, prompt_len - kept_prompt)
            of_output = self.taps([*text[:prompt_len], *output], prompt_len, num_kept=prompt_len)
            token_ids = torch.tensor([*text[start:prompt_len], *output])
            taps = torch.cat([of_text[start:prompt_len], of_output])
            samples.append(Sample(start, prompt_len - start, token_ids, taps, is_long=True))
        return samples

    def _batch(self, token_ids: Sequence[int], start: int, stop: int) -> Batch:
        plan = AttentionPlan.of(
            page_size=PAGE_SIZE, query_lens=[stop - start], kv_lens=[stop], pages=[self._table.pages]
        )
        return Batch(
            token_ids=torch.tensor(token_ids[start:stop]),
            positions=torch.arange(start, stop),
            slots=self._table.slots(start, stop),
            plan=plan,
            logit_rows=torch.tensor([stop - start - 1]),
        )
