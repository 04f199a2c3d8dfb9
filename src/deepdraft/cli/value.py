"""Values of flags that several commands read: whole numbers and token counts, refused in argparse's way."""

from __future__ import annotations

import argparse

from deepdraft.errors import UsageError
from deepdraft.units import token_count


def tokens(text: str) -> int:
    """`4096`, `32k`. Raises argparse.ArgumentTypeError, as all of these do."""
    try:
        return token_count(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(error.message) from None


def whole(text: str, low: int, high: int | None = None) -> int:
    """A number without sign or fraction between the bounds."""
    if not text.isdecimal() or int(text) < low or (high is not None and int(text) > high):
        bounds = f"from {low} to {high}" if high is not None else f"of {low} or more"
        raise argparse.ArgumentTypeError(f"not a whole number {bounds}: {text!r}")
    return int(text)


def count(text: str) -> int:
    """1 or more."""
    return whole(text, 1)


def count_or_none(text: str) -> int:
    """0 or more."""
    return whole(text, 0)
