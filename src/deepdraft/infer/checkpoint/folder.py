"""A Hugging Face folder as a `Checkpoint`: config.json, safetensors (one file or shards with an index), tokenizer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.config_json import model_config
from deepdraft.infer.checkpoint.json_file import json_object
from deepdraft.infer.checkpoint.stored_name import StoredNames
from deepdraft.infer.config import ModelConfig
from deepdraft.infer.errors import UnsupportedModel
from deepdraft.infer.tokenizer.folder import folder_tokenizer
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_DTYPES = {"F32": ("float32", 4), "BF16": ("bfloat16", 2), "F16": ("float16", 2)}


class FolderCheckpoint:
    """See `Checkpoint`. The weights' files stay open, mapped into memory, as long as the object lives."""

    def __init__(self, folder: Path, config: ModelConfig | None = None) -> None:
        """`config` None: what config.json says; a drafter's says more, so it is read elsewhere.

        Raises UsageError or UnsupportedModel as `open_checkpoint` says."""
        self._folder = folder
        config = config or model_config(folder)
        # The library's own class has no types, hence Any.
        self._shards: dict[str, Any] = {path.name: _opened(path) for path in _paths(folder)}
        stored = {name: shard for shard, opened in self._shards.items() for name in opened.keys()}  # noqa: SIM118
        _check_index(folder, stored)
        self._names = StoredNames(stored.items(), num_layers=config.num_layers)
        self._unread = dict.fromkeys(self._names.places)
        self._num_bytes = sum(self._tensor_bytes(name) for name in self._names.places)
        self._config = self._with_stored_dtype(config)

    @property
    def name(self) -> str:
        folder = self._folder.resolve()
        if folder.parent.name == "snapshots":  # the hub's cache: models--owner--name/snapshots/commit
            return folder.parent.parent.name.removeprefix("models--").replace("--", "/")
        return folder.name

    @property
    def config(self) -> ModelConfig:
        return self._config

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    @property
    def notes(self) -> tuple[str, ...]:
        return self._names.notes

    def names(self) -> tuple[str, ...]:
        return tuple(self._names.places)

    def unread_names(self) -> tuple[str, ...]:
        return tuple(self._unread)

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        if name not in self._names.places:
            raise UsageError(f"the model in {self._folder} has no tensor {name}")
        self._unread.pop(name, None)
        stored_name, shard = self._names.places[name]
        try:
            tensor: Tensor = self._shards[shard].get_tensor(stored_name)
        except safetensors.SafetensorError as error:
            raise UsageError(f"{self._folder / shard}: {stored_name} can't be read: {error}") from error
        return tensor if dtype is None else tensor.to(dtype)

    def tokenizer(self) -> Tokenizer:
        return folder_tokenizer(self._folder, self._config.eos_token_ids)

    def _tensor_bytes(self, name: str) -> int:
        stored_name, shard = self._names.places[name]
        stored = self._shards[shard].get_slice(stored_name)
        dtype = stored.get_dtype()
        if dtype not in _DTYPES:
            raise UnsupportedModel(f"dtype of {stored_name}", dtype, reason=f"supported are {', '.join(_DTYPES)}")
        return int(math.prod(stored.get_shape())) * _DTYPES[dtype][1]

    def _with_stored_dtype(self, config: ModelConfig) -> ModelConfig:
        """The weights themselves say what they are; the config's word is only what someone wrote there."""
        place = self._names.places.get("model.embed_tokens.weight")
        if place is None:
            return config
        stored_name, shard = place
        return dataclasses.replace(config, dtype=_DTYPES[self._shards[shard].get_slice(stored_name).get_dtype()][0])


def _paths(folder: Path) -> Iterator[Path]:
    """The files that hold the weights, all there."""
    if not (folder / _INDEX).is_file():
        yield _single_path(folder)
        return
    weight_map = json_object(folder / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(v, str) for v in weight_map.values()):
        raise UsageError(f"{folder / _INDEX} has no weight_map from tensors to files")
    shards = dict.fromkeys(weight_map.values())
    outside = [shard for shard in shards if Path(shard).name != shard]
    if outside:
        raise UsageError(f"{folder / _INDEX} names a file outside its folder: {outside[0]}")
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise UsageError(
            f"{len(missing)} of {len(shards)} weight files named in {folder / _INDEX} are missing: {missing[0]}",
            hint="was the download interrupted?",
        )
    yield from (folder / shard for shard in shards)


def _check_index(folder: Path, stored: Mapping[str, str]) -> None:
    """Every tensor of the index must be where it says."""
    path = folder / _INDEX
    if not path.is_file():
        return
    wrong = [name for name, shard in json_object(path)["weight_map"].items() if stored.get(name) != shard]
    if wrong:
        raise UsageError(f"{path} names {len(wrong)} tensors that are not in their files, first {wrong[0]}")


def _single_path(folder: Path) -> Path:
    path = folder / _SINGLE
    if path.is_file():
        return path
    if any(folder.glob("*.safetensors")):
        raise UsageError(f"no weights in {folder}: neither {_SINGLE} nor {_INDEX}, which says what the others hold")
    hint = None
    if any(folder.glob("*.bin")):
        hint = "weights in .bin files are not read: load the model once with transformers and save it as safetensors"
    raise UsageError(f"no weights in {folder}: {_SINGLE} is missing", hint=hint)


def _opened(path: Path) -> Any:
    try:
        return safetensors.safe_open(path, framework="pt")
    except (safetensors.SafetensorError, OSError) as error:
        raise UsageError(f"{path} is broken: {error}", hint="was it copied or downloaded in full?") from error
