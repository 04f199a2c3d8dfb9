"""A config's fields with their kinds checked: a value that makes no sense is refused under its own name.

As in transformers' config classes a field that is absent has its default. `null` stands for "none" only where that
means something; elsewhere it is refused like any other wrong value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from deepdraft.infer.errors import UnsupportedModel


class Fields:
    """One JSON object of a config. `path` is put before each name in refusals (`rope_scaling.`)."""

    def __init__(self, stated: Mapping[str, Any], path: str = "") -> None:
        self.stated = stated
        self.path = path

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.stated.get(name) is not None

    def integer(self, name: str, default: int | None = None, *, minimum: int = 1) -> int:
        """A whole number, at least `minimum`; without default the field has to be there."""
        value = self.stated.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self.refused(name, value, f"it must be a whole number, {minimum} or more")
        return value

    def optional_integer(self, name: str, default: int | None = None, *, minimum: int = 1) -> int | None:
        """As `integer`, where null means none."""
        return None if self.stated.get(name, default) is None else self.integer(name, default, minimum=minimum)

    def number(self, name: str, default: float | None = None) -> float:
        """A number above 0; without default the field has to be there."""
        value = self.stated.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.refused(name, value, "it must be a number above 0")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """As `number`, where null or absence means none."""
        return self.number(name) if self.has(name) else None

    def flag(self, name: str, default: bool) -> bool:
        """True or false; null is false."""
        value = self.stated.get(name, default)
        if value is not None and not isinstance(value, bool):
            raise self.refused(name, value, "it must be true or false")
        return bool(value)

    def only(self, name: str, supported: object) -> None:
        """The field, where it is there and not null, must have the one value that this stack has code for."""
        value = self.stated.get(name)
        if value is not None and value != supported:
            raise self.refused(name, value, f"supported is {supported!r} only")

    def absent(self, name: str, reason: str) -> None:
        """The field must not be there, or be empty."""
        if self.stated.get(name):
            raise self.refused(name, self.stated[name], reason)

    def refused(self, name: str, value: object, reason: str) -> UnsupportedModel:
        """The refusal of a field, to be raised."""
        return UnsupportedModel(f"{self.path}{name}", value, reason=reason)
