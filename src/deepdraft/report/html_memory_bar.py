"""One device's memory as a stacked bar in SVG, without script: segments with their names and sizes above, the prefill
spike below what is free, and a line where the device ends."""

from __future__ import annotations

from deepdraft.report.markup import Markup, element
from deepdraft.report.memory_view import MemoryGroup, MemoryView

_GIB = 2**30
_WIDTH, _LEFT, _TOP, _HEIGHT = 1000, 10, 66, 64
_SPIKE_TOP, _SPIKE_HEIGHT = 144, 24
_ROOM = _WIDTH - 2 * _LEFT
_LABEL_ROWS = (58, 38, 18)
_CHAR_WIDTH = 9.5
"""A little more than a character of the labels takes."""


def memory_bar(view: MemoryView) -> Markup:
    """The picture. Where more is taken than the device has, the line of its end stands inside."""
    drawn = [group for group in view.groups if group.kind != "spike" and group.num_bytes > 0]
    spike_bytes = sum(group.num_bytes for group in view.groups if group.kind == "spike")
    used_bytes = sum(group.num_bytes for group in drawn if group.kind != "free")
    scale = _ROOM / max(used_bytes + spike_bytes, view.device_bytes, 1)
    pieces: list[str] = []
    row_ends = [0.0] * len(_LABEL_ROWS)
    x = float(_LEFT)
    for group in drawn:
        width = group.num_bytes * scale
        shape = "free" if group.kind == "free" else f"part colour-{view.groups.index(group) % 8}"
        pieces.append(_rect(x, _TOP, width, _HEIGHT, shape))
        pieces += _label(group, x + width / 2, row_ends)
        x += width
    if spike_bytes > 0:
        spike_x = _LEFT + used_bytes * scale
        words = f"prefill spike {gib(spike_bytes)} GiB"
        pieces.append(_rect(spike_x, _SPIKE_TOP, spike_bytes * scale, _SPIKE_HEIGHT, "spike"))
        pieces.append(element("text", words, x=round(spike_x - 8, 1), y=_SPIKE_TOP + 18, class_="end"))
    edge = round(_LEFT + view.device_bytes * scale, 1)
    bottom = _SPIKE_TOP + _SPIKE_HEIGHT + 6
    pieces.append(element("line", x1=edge, x2=edge, y1=_TOP - 4, y2=bottom, class_="edge"))
    return element(
        "svg",
        element("title", f"Memory of one device, {gib(view.device_bytes)} GiB", id="bar-title"),
        element("desc", _in_words(view), id="bar-words"),
        *pieces,
        viewBox=f"0 0 {_WIDTH} {bottom + 4}",
        role="img",
        aria_labelledby="bar-title bar-words",
    )


def _label(group: MemoryGroup, middle: float, row_ends: list[float]) -> list[str]:
    """Name and size in the lowest row where the label before leaves room, with a line down from higher rows."""
    words = f"{group.label} {gib(group.num_bytes)} GiB"
    half = _CHAR_WIDTH * len(words) / 2
    at = min(max(middle, _LEFT + half), _WIDTH - half)
    row = next((place for place, end in enumerate(row_ends) if end <= at - half), len(row_ends) - 1)
    row_ends[row] = at + half
    y = _LABEL_ROWS[row]
    found: list[str] = [element("text", words, x=round(at, 1), y=y)]
    if row:
        x = round(middle, 1)
        found.insert(0, element("line", x1=x, x2=x, y1=y + 4, y2=_TOP, class_="leader"))
    return found


def _rect(x: float, y: float, width: float, height: float, class_: str) -> Markup:
    return element("rect", x=round(x, 1), y=y, width=round(max(width, 1.5), 1), height=height, class_=class_)


def _in_words(view: MemoryView) -> str:
    parts = ", ".join(f"{group.label} {gib(group.num_bytes)} GiB" for group in view.groups)
    return f"{parts}. The table below has every entry."


def gib(num_bytes: float) -> str:
    """72.40, without the unit."""
    return f"{num_bytes / _GIB:.2f}"
