"""The way in: a path to a `Checkpoint`."""

from __future__ import annotations

from pathlib import Path

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.checkpoint import Checkpoint
from deepdraft.infer.checkpoint.folder import FolderCheckpoint
from deepdraft.infer.checkpoint.gguf_checkpoint import GgufCheckpoint

_HINT = "name a folder with config.json and safetensors files, or a .gguf file"


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a Hugging Face folder or a GGUF file. Reads the shape and the list of tensors, no weights.

    Raises UsageError where there is no model at `path` or its files are broken; UnsupportedModel, with the field that
    decided, where the stack can't run it.
    """
    path = Path(path)
    if path.is_dir():
        return FolderCheckpoint(path)
    if not path.is_file():
        raise UsageError(f"no model at {path}: no such file or folder", hint=_HINT)
    if path.suffix.lower() != ".gguf":
        raise UsageError(f"no model at {path}: neither a folder nor a .gguf file", hint=_HINT)
    return GgufCheckpoint(path)
