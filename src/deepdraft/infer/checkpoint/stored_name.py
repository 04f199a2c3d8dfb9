"""Tensor names as stored, to the names the models ask for; what a text model has no use for is set aside.

A Kimi K2.x folder has its language model under a prefix, beside a vision tower, and DeepSeek-V3's has layers beyond
num_hidden_layers that predict several tokens at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# As published, and as transformers 5 writes them back.
_PREFIXES = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_OTHER_PARTS = re.compile(r"(model\.)?(vision_\w+|visual|mm_projector|multi_modal_projector)\.")


class StoredNames:
    """`places`: asked name -> (stored name, shard)."""

    def __init__(self, stored: Iterable[tuple[str, str]], *, num_layers: int) -> None:
        self.places: dict[str, tuple[str, str]] = {}
        self._num_layers = num_layers
        self._num_vision = self._num_multi_token = 0
        for stored_name, shard in stored:
            self._take(stored_name, shard)

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each part of the files that was set aside."""
        notes = []
        if self._num_vision:
            notes.append(f"text only: {self._num_vision} tensors of the vision part are not loaded")
        if self._num_multi_token:
            notes.append(
                f"num_nextn_predict_layers: {self._num_multi_token} tensors for multi-token prediction are not loaded"
            )
        return tuple(notes)

    def _take(self, stored_name: str, shard: str) -> None:
        if _OTHER_PARTS.match(stored_name):
            self._num_vision += 1
            return
        prefix = next((prefix for prefix in _PREFIXES if stored_name.startswith(prefix)), None)
        name = stored_name if prefix is None else _PREFIXES[prefix] + stored_name.removeprefix(prefix)
        layer = _LAYER.match(name)
        if name.startswith("mtp.") or (layer and int(layer[1]) >= self._num_layers):
            self._num_multi_token += 1
            return
        self.places[name] = (stored_name, shard)
