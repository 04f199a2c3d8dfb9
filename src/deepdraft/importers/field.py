"""Fields of other tools' JSON: a value that is missing, of another type or not finite is None, never an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deepdraft.records import ReportedFigure

_LARGEST = 1e20
"""Nanoseconds since 1970 are 2e18; what is larger, infinite or NaN was not measured."""


def part(container: Any, *path: str) -> dict[str, Any]:
    """The object at a path; an empty one when it is not there."""
    for name in path:
        container = container.get(name) if isinstance(container, Mapping) else None
    return container if isinstance(container, dict) else {}


def entries(container: Any, name: str) -> list[Any]:
    """The list under a name; an empty one when it is not there."""
    value = container.get(name) if isinstance(container, Mapping) else None
    return value if isinstance(value, list) else []


def text(container: Any, name: str) -> str | None:
    """The text under a name, when there is some."""
    value = container.get(name) if isinstance(container, Mapping) else None
    return value if isinstance(value, str) and value else None


def number(container: Any, name: str) -> float | None:
    """The finite number under a name."""
    return finite(container.get(name)) if isinstance(container, Mapping) else None


def positive(container: Any, name: str) -> float | None:
    """The number above zero under a name. Tools write 0 and -1 for what they do not know."""
    value = number(container, name)
    return value if value is not None and value > 0 else None


def count(container: Any, name: str, at_least: int = 0) -> int | None:
    """The whole number under a name, not below `at_least`."""
    value = number(container, name)
    return int(value) if value is not None and value == int(value) and value >= at_least else None


def finite(value: Any) -> float | None:
    """The value as a float when it is a number that something can have measured, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        return None
    return float(value)


def numbers(container: Any, name: str) -> list[float | None]:
    """The list of numbers under a name, None where an entry is none; an empty list when it is not there."""
    return [finite(value) for value in entries(container, name)]


def file_name(path: str | None) -> str | None:
    """A model's name without the folders of the machine it was read on; a hub's `owner/name` stays whole."""
    if path is None:
        return None
    is_local = path.startswith(("/", "~", "./", "../")) or "\\" in path or path.count("/") > 1
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] if is_local else path


def samples(
    values: Iterable[float | None], *, definition: str | None = None, doubt: str | None = None, factor: float = 1.0
) -> ReportedFigure | None:
    """A figure with one value a request (or a repeat); None when no value is above zero."""
    known = tuple(value * factor for value in values if value is not None and value > 0)
    return ReportedFigure(values=known, definition=definition, doubt=doubt) if known else None


def one(
    value: float | None,
    statistic: str | None,
    *,
    num_samples: int | None = None,
    definition: str | None = None,
    doubt: str | None = None,
    factor: float = 1.0,
) -> ReportedFigure | None:
    """A figure of which the tool gives one statistic; None when there is no value above zero."""
    if value is None or value <= 0:
        return None
    return ReportedFigure(
        values=(value * factor,), statistic=statistic, num_samples=num_samples, definition=definition, doubt=doubt
    )


def known(figures: Mapping[str, ReportedFigure | None]) -> dict[str, ReportedFigure]:
    """The figures that have a value."""
    return {name: figure for name, figure in figures.items() if figure is not None}


def counted(num: int, noun: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{num} {noun}" + ("" if num == 1 else "s")


def middle(values: Sequence[float | None]) -> int | None:
    """The median of what is known, as a whole number."""
    ordered = sorted(value for value in values if value is not None)
    return round(ordered[(len(ordered) - 1) // 2]) if ordered else None
