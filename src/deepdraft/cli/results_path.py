"""Where results go, and whether what is there is gone on with: --out and --resume, of `sweep` and `compare --run`."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepdraft.errors import UsageError


def add_resume_flag(group: Any, metavar: str, text: str) -> None:
    """Add --resume: a name, or nothing where --out names it. metavar: FILE or PREFIX."""
    group.add_argument("--resume", nargs="?", const=True, metavar=metavar, help=text)


def results_path(
    namespace: argparse.Namespace,
    *,
    usage: str,
    metavar: str,
    default_suffix: str,
    is_begun: Callable[[Path], bool] = os.path.lexists,
) -> tuple[Path, bool]:
    """The file (or the prefix of files) that was named, and whether it is to be continued.

    usage, metavar: for hints: `deepdraft sweep URL ...`, FILE. default_suffix: ends the name where none was given.
    is_begun: whether there is anything to go on with. Raises UsageError for flags that contradict each other.
    """
    if isinstance(namespace.resume, str):
        if "://" in namespace.resume:
            raise UsageError(
                f"--resume takes {_KINDS[metavar]}", hint=f"write: deepdraft {usage} ... --resume {metavar}"
            )
        if namespace.out is not None and namespace.out != Path(namespace.resume):
            raise UsageError("--out and --resume name different files", hint=f"--resume {metavar} alone is enough")
        return Path(namespace.resume), True
    if namespace.resume:
        if namespace.out is None:
            raise UsageError("--resume needs a file", hint=f"write --resume {metavar}, or --out {metavar} --resume")
        if not is_begun(namespace.out):
            print(f"{namespace.out} does not exist yet: starting it", file=sys.stderr)
            return namespace.out, False
        return namespace.out, True
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return namespace.out or Path(f"deepdraft-{stamp}{default_suffix}"), False


_KINDS = {"FILE": "a results file", "PREFIX": "what the results files' names begin with"}
