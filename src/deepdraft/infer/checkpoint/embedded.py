"""Where the model that ships with the package lies."""

from __future__ import annotations

from pathlib import Path

from deepdraft.errors import UsageError


def embedded_model_path() -> Path:
    """The folder of the embedded model. Raises UsageError where the installed package lacks it."""
    path = Path(__file__).parent.parent / "embedded_model"
    if not (path / "config.json").is_file():
        raise UsageError(
            f"the embedded model is missing from this installation: no config.json in {path}",
            hint="install deepdraft again from a complete wheel, or name another model with --model PATH",
        )
    return path
