"""HTML built from elements, so that text from a results file can't become markup: every child that is not Markup
itself is escaped, every attribute is quoted and escaped.

Left out on purpose: URLs. No text of a file is ever made a link, and no attribute that takes a URL or a script is
used for it.
"""

from __future__ import annotations

import html
import re

_VOID = frozenset({"meta", "link", "br"})
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def visible(text: str) -> str:
    """The text with what can't be seen (control characters, overrides of the writing direction, half characters)
    shown as U+FFFD, so that a name can't look like another one."""
    return _UNSEEN.sub("\ufffd", text)


def escaped(text: str) -> Markup:
    """Plain text as HTML; HTML stays as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(visible(text), quote=True))


def foreign(text: str) -> Markup:
    """Text of a results file: escaped, and set apart from the writing direction around it."""
    return element("bdi", text)


def joined(*parts: str) -> Markup:
    """Several pieces one after the other."""
    return Markup("".join(escaped(part) for part in parts))


def element(tag: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element. `class_`, `for_`: a trailing underscore goes; others turn to hyphens (`data_value`). An attribute
    that is None is left out; "" stands alone (`hidden`)."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{joined(*children)}</{tag}>")
