"""The way in: what `--drafter` says to a `Drafter`."""

from __future__ import annotations

from pathlib import Path

import torch

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.config_json import config_object
from deepdraft.infer.drafters.dflash import DflashDrafter
from deepdraft.infer.drafters.dflash_config import DflashConfig, dflash_config
from deepdraft.infer.drafters.dflash_model import load_dflash
from deepdraft.infer.drafters.draft_window import DraftWindow
from deepdraft.infer.drafters.drafter import Drafter
from deepdraft.infer.drafters.ngram import NgramDrafter, NgramSettings
from deepdraft.infer.models.model import Model


def open_drafter(
    spec: str | Path,
    target: Model,
    *,
    draft_len: int | None = None,
    draft_window: int | None = None,
    draft_sink: int | None = None,
    dtype: torch.dtype | None = None,
) -> Drafter | None:
    """The drafter called "none" (None), "ngram", "embedded" (the one that ships with the package, for the embedded
    model), or in the DFlash folder at this path.

    `draft_len`: tokens drafted (None: all a DFlash drafter was trained for, `NgramSettings`' default). `draft_window`
    and `draft_sink`, in tokens, as in `DraftWindow` (None: what the drafter's config advises); `dtype` of its weights
    (None: the target's). Raises UsageError where there is no drafter, where its files are broken, where it is not for
    this target, or where an option doesn't go with it.
    """
    if spec in ("none", "ngram"):
        if draft_window is not None or draft_sink is not None:
            raise UsageError(f"a draft window or sink with the drafter {spec}", hint="they go with a DFlash drafter")
        if spec == "none":
            return None
        return NgramDrafter(NgramSettings() if draft_len is None else NgramSettings(draft_len=draft_len))
    folder = embedded_drafter_path() if spec == "embedded" else Path(spec)
    if not folder.is_dir():
        raise UsageError(
            f"no drafter at {folder}: no such folder", hint="--drafter is none, ngram, embedded or a DFlash folder"
        )
    config = dflash_config(config_object(folder), target.config)
    return DflashDrafter(
        load_dflash(folder, config, target, dtype=dtype),
        target,
        window=_window(config, draft_window, draft_sink or 0),
        block_size=None if draft_len is None else draft_len + 1,
    )


def embedded_drafter_path() -> Path:
    """The folder of the embedded model's drafter. Raises UsageError where the installed package lacks it."""
    path = Path(__file__).parent.parent / "embedded_drafter"
    if not (path / "config.json").is_file():
        raise UsageError(
            f"the embedded drafter is missing from this installation: no config.json in {path}",
            hint="install deepdraft again from a complete wheel, or take another drafter (--drafter ngram)",
        )
    return path


def _window(config: DflashConfig, window_len: int | None, sink_len: int) -> DraftWindow:
    """What was asked for, else what the config advises; never more than the layers were trained to see."""
    asked = config.draft_window_size if window_len is None else window_len
    if config.sliding_window is not None:
        asked = config.sliding_window if asked is None else min(asked, config.sliding_window)
    return DraftWindow(asked, sink_len)
