"""Numbers as tables print them, with how far off their last digit leaves them: `3.1 min` is 186 s, give or take 3 s.

Only printed text has such a bound. A number from a machine's file is taken as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from deepdraft.errors import ResultsError

_NUMBER = r"(-?\d[\d,_]*(?:\.\d+)?)"
_PRINTED = re.compile(rf"^\s*(~|about )?\s*{_NUMBER}\s*(?:(?:±|\+/-)\s*(\d+(?:\.\d+)?))?\s*([a-zA-Z/%]*)\s*$")
_SECONDS = {"s": "1", "sec": "1", "ms": "0.001", "us": "0.000001", "min": "60", "h": "3600"}
_COUNTS = {"": 1, "k": 1_000, "ki": 1_024, "m": 1_000_000, "mi": 1_048_576}


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A printed number in our unit."""

    value: float
    half_width: float | None
    """Half of what the last printed digit stands for, or what the text states after ±; None for `~` without ±."""


def printed(text: str, name: str) -> Printed:
    """Read a figure's text; `name` is our name for it and decides the unit: `_s` takes s, ms, us, min, h.

    `±` overrides the rounding that the digits imply; `~` means that it is not known. Raises ResultsError for anything
    else than one number, and for a time without its unit.
    """
    match = _PRINTED.match(text)
    if match is None:
        raise ResultsError(
            f"{name}: not a number as a table prints one: {text!r}", hint="for example 118.6 or 3.1 min"
        )
    about, number, stated, unit = match.groups()
    factor = _factor(unit, name, text)
    digits = number.replace(",", "").replace("_", "")
    half_width = Decimal(stated) if stated else Decimal("0.5").scaleb(-len(digits.partition(".")[2]))
    is_known = not about or bool(stated)
    return Printed(value=float(Decimal(digits) * factor), half_width=float(half_width * factor) if is_known else None)


def printed_len(text: str | int, name: str) -> int:
    """Read a length in tokens: 1400, `1.4k`, `82,845`. Raises ResultsError for anything else."""
    if isinstance(text, int) and not isinstance(text, bool):
        return _length(float(text), name, str(text))
    if not isinstance(text, str):
        raise ResultsError(f"{name}: not a number of tokens: {text!r}", hint="for example 1400 or 1.4k")
    match = _PRINTED.match(text)
    if match is None or match[3] or match[4].lower() not in _COUNTS:
        raise ResultsError(f"{name}: not a number of tokens: {text!r}", hint="for example 1400 or 1.4k")
    return _length(float(match[2].replace(",", "").replace("_", "")) * _COUNTS[match[4].lower()], name, text)


def _length(value: float, name: str, text: str) -> int:
    if value < 1 or abs(value - round(value)) > 1e-6:
        raise ResultsError(f"{name}: not a whole, positive number of tokens: {text}")
    return round(value)


def _factor(unit: str, name: str, text: str) -> Decimal:
    if not name.endswith("_s") or name.endswith("tok_s"):
        if unit in ("", "tok/s", "t/s", "tokens"):
            return Decimal(1)
        raise ResultsError(f"{name}: unit {unit!r} does not fit: {text!r}")
    if unit not in _SECONDS:
        raise ResultsError(f"{name}: a time needs its unit (s, ms, us, min, h): {text!r}")
    return Decimal(_SECONDS[unit])
