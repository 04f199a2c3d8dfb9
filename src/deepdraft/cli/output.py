"""Data to standard output: whole, or the reader is told.

A reader that went away (`| head`) is no fault of ours: nothing is said, and the command's exit code stays its own.
"""

from __future__ import annotations

import os
import sys

from deepdraft.errors import ResultsError


def write_out(text: str) -> None:
    """Print a text that ends with its own line end.

    Raises ResultsError when standard output can't be written to (a full disk).
    """
    if sys.stdout is None:  # closed by the shell (`>&-`)
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence_out()
    except OSError as error:
        silence_out()
        raise ResultsError(f"can't write to standard output: {error.strerror}") from None


def silence_out() -> None:
    """Let what is still in the buffer go nowhere, so that Python's own last flush has nothing to complain about."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
