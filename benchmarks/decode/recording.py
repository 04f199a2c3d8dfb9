"""The long text's keys and values, computed once, kept in files, and put into the pool of each engine.

A prefix of 185k tokens takes minutes to compute, and engines with different speculation have pools of their own. So
one engine computes it and `RecordingModel` keeps its rows; the others have a `ReplayingModel`, which copies the rows
where a chunk of that prefix is to be computed and computes everything else. What the drafter takes in of the target
(taps) is kept for the last ZONE_LEN tokens of each context alone, which is all that a drafter with a window sees;
elsewhere it is given zeros. An interrupted recording goes on where it stopped.

Shape letters: L layers, N tokens of the text, D columns of a latent row, Z tokens kept for drafters, H hidden size.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.batch import Batch
from deepdraft.infer.config import MlaShape, ModelConfig
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.models.model import Forwarded, Model

ZONE_LEN = 1024


class PrefixRecording:
    """Rows of the first tokens of one text. Raises UsageError where the folder holds another model's or text's, or
    the model's attention is not latent."""

    def __init__(
        self, folder: Path, config: ModelConfig, weights_digest: str, token_ids: Sequence[int], ends: Sequence[int]
    ) -> None:
        """`ends`: tokens of the text in each context."""
        if not isinstance(config.attention, MlaShape):
            raise UsageError("only prefixes of models with latent attention can be recorded")
        row_dim = config.attention.kv_lora_rank + config.attention.qk_rope_head_dim
        self.token_ids = torch.tensor(token_ids)
        self.layers = tuple(range(config.num_layers))
        self._ends = tuple(sorted(ends))
        self._zones = [(max(0, end - ZONE_LEN), end) for end in self._ends]
        num_kept = sum(stop - start for start, stop in self._zones)
        self._meta_path = folder / "prefix.json"
        words = f"{weights_digest} {list(token_ids)} {self._zones}"
        self._key = hashlib.sha256(words.encode()).hexdigest()
        self.num_held = self._held()
        shape = (config.num_layers, len(token_ids), row_dim)
        self._rows = _file_tensor(folder / "prefix_rows.f32", shape)
        """[L, N, D]"""
        self._taps = _file_tensor(folder / "prefix_taps.f32", (num_kept, config.num_layers * config.hidden_size))
        """[Z, L * H]"""
        self._hidden_size = config.hidden_size

    def starts_with(self, batch: Batch, limit: int) -> tuple[int, int] | None:
        """First and last + 1 position of the part of a batch that is this text and ends before `limit`; None: the
        batch is something else. Only the first request is looked at."""
        start = int(batch.positions[0])
        stop = min(start + len(batch.token_ids), limit)
        if (
            len(batch.plan.query_lens) != 1
            or start >= stop
            or int(batch.positions[-1]) - start >= len(batch.positions)
        ):
            return None
        is_text = torch.equal(batch.token_ids[: stop - start].cpu(), self.token_ids[start:stop])
        return (start, stop) if is_text else None

    def keep(self, pool: PagePool, batch: Batch, span: tuple[int, int], taps: Tensor | None) -> None:
        """Store what a pass over the text's tokens `span` wrote, and say so on the disk."""
        start, stop = span
        for layer in self.layers:
            self._rows[layer, start:stop] = pool.layer(layer).keys[batch.slots[: stop - start], 0]
        for place, first, last in self._kept(span):
            assert taps is not None
            self._taps[place : place + last - first] = taps[first - start : last - start]
        self.num_held = stop
        fresh = self._meta_path.with_suffix(".new")
        fresh.write_text(json.dumps({"key": self._key, "num_held": stop}))
        fresh.replace(self._meta_path)

    def put(self, pool: PagePool, batch: Batch, span: tuple[int, int], tapped_layers: Sequence[int]) -> Tensor | None:
        """Write the rows of `span` to the batch's slots; returns its taps [T, K * H], None where none are wanted."""
        start, stop = span
        for layer in self.layers:
            pool.write(layer, batch.slots, self._rows[layer, start:stop, None], None)
        if not tapped_layers:
            return None
        taps = torch.zeros(stop - start, len(self.layers) * self._hidden_size)
        for place, first, last in self._kept(span):
            taps[first - start : last - start] = self._taps[place : place + last - first]
        by_layer = taps.view(stop - start, len(self.layers), self._hidden_size)
        return by_layer[:, list(tapped_layers)].flatten(1)

    def is_tapped(self, start: int, stop: int) -> bool:
        """Whether a drafter may see one of these tokens."""
        return any(start < last and first < stop for first, last in self._zones)

    def _kept(self, span: tuple[int, int]) -> list[tuple[int, int, int]]:
        """(row among the kept ones, first token, last token + 1) of the parts of a span that are in a zone."""
        found, place = [], 0
        for zone_start, zone_stop in self._zones:
            first, last = max(zone_start, span[0]), min(zone_stop, span[1])
            if first < last:
                found.append((place + first - zone_start, first, last))
            place += zone_stop - zone_start
        return found

    def _held(self) -> int:
        if not self._meta_path.is_file():
            return 0
        meta = json.loads(self._meta_path.read_text())
        if meta["key"] != self._key:
            raise UsageError(
                f"{self._meta_path} is of another model, text or list of lengths", hint="remove it, or name a folder"
            )
        return int(meta["num_held"])


class _Around:
    """A model with another forward pass around its own."""

    def __init__(self, model: Model, recording: PrefixRecording) -> None:
        self._model = model
        self._recording = recording

    @property
    def config(self) -> ModelConfig:
        """As Model.config."""
        return self._model.config

    @property
    def embedding(self) -> Tensor:
        """As Model.embedding."""
        return self._model.embedding

    @property
    def output(self) -> Tensor:
        """As Model.output."""
        return self._model.output

    def _replayed(self, batch: Batch, pool: PagePool, tapped_layers: tuple[int, ...]) -> Forwarded | None:
        """None: the batch is not a chunk of what is held."""
        if len(batch.logit_rows):
            return None
        span = self._recording.starts_with(batch, self._recording.num_held)
        if span is None or span[1] - span[0] < len(batch.token_ids):
            return None
        taps = self._recording.put(pool, batch, span, tapped_layers)
        return Forwarded(torch.empty(0, self.config.vocab_size), taps)


class ReplayingModel(_Around):
    """A `Model` that copies what was recorded and computes the rest."""

    def forward(
        self, batch: Batch, pool: PagePool, attention: AttentionBackend, *, tapped_layers: tuple[int, ...] = ()
    ) -> Forwarded:
        """As Model.forward."""
        replayed = self._replayed(batch, pool, tapped_layers)
        return replayed or self._model.forward(batch, pool, attention, tapped_layers=tapped_layers)


class RecordingModel(_Around):
    """A `Model` that also keeps what it computes of the text; for an engine without a drafter."""

    def __init__(self, model: Model, recording: PrefixRecording, on_held: Callable[[int], None]) -> None:
        """`on_held` is told the number of tokens held after each chunk."""
        super().__init__(model, recording)
        self._on_held = on_held

    def forward(
        self, batch: Batch, pool: PagePool, attention: AttentionBackend, *, tapped_layers: tuple[int, ...] = ()
    ) -> Forwarded:
        """As Model.forward. Raises ValueError where taps are wanted."""
        if tapped_layers:
            raise ValueError("a recording engine has no drafter")
        replayed = self._replayed(batch, pool, ())
        if replayed is not None:
            return replayed
        recording = self._recording
        span = recording.starts_with(batch, len(recording.token_ids))
        wanted = recording.layers if span and recording.is_tapped(*span) else ()
        forwarded = self._model.forward(batch, pool, attention, tapped_layers=wanted)
        if span:
            recording.keep(pool, batch, span, forwarded.taps)
            self._on_held(recording.num_held)
        return Forwarded(forwarded.logits, None)


def _file_tensor(path: Path, shape: tuple[int, ...]) -> Tensor:
    """A float32 tensor whose memory is the file's; made where there is none."""
    return torch.from_file(str(path), shared=True, size=int(torch.Size(shape).numel()), dtype=torch.float32).view(
        shape
    )
