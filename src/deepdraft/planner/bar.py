"""One device's memory as a stacked bar of plain characters, with the prefill spike below the reserve it must fit in.

[x#########################################======================++.....]
                                                                  !!!
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepdraft.planner.ledger import Place
from deepdraft.planner.plan import Plan

_WIDTH = 78
FILLS: dict[str, str] = {"outside": "x", "weights": "#", "pool": "=", "slack": "+", "reserve": ".", "spike": "!"}
TITLES: dict[str, str] = {
    "outside": "outside the engine",
    "weights": "weights",
    "pool": "KV pool",
    "slack": "buffers, graphs, losses",
    "reserve": "reserve: free at rest",
    "spike": "prefill spike, from the reserve",
}
_PLACES: tuple[Place, ...] = ("outside", "weights", "pool", "slack")


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of the bar."""

    place: str
    """A key of FILLS."""
    num_bytes: int


def segments(plan: Plan) -> tuple[Segment, ...]:
    """The parts in the order in which memory is taken; they sum to the device where it is not overdrawn. Parts
    without bytes are left out."""
    parts = [Segment(place, plan.ledger.total_bytes(place)) for place in _PLACES]
    parts.append(Segment("reserve", plan.reserve_bytes))
    return tuple(part for part in parts if part.num_bytes > 0)


def bar_lines(plan: Plan, width: int = _WIDTH) -> tuple[str, ...]:
    """The bar, and the spike's line where there is one. A spike that is longer than the reserve runs past the end of
    the bar, which stands for the end of the device's memory; where memory is overdrawn before any prefill, the end
    stands inside and what does not fit behind it."""
    parts = segments(plan)
    if not parts:
        return ()
    room = width - 2
    used_bytes = sum(part.num_bytes for part in parts if part.place != "reserve")
    spike_bytes = max(plan.prefill_spike_bytes, 0)
    if plan.reserve_bytes < 0:
        fill = _filled(parts, room)
        end = max(1, min(room - 1, room * plan.device_bytes // used_bytes))
        return (f"[{fill[:end]}]{fill[end:]}",)
    total = max(used_bytes + spike_bytes, plan.device_bytes)
    fill = _filled(parts, max(len(parts), round(room * plan.device_bytes / total)))
    if not spike_bytes:
        return (f"[{fill}]",)
    at = len(fill.rstrip(FILLS["reserve"])) + 1
    cells = min(max(1, round(room * spike_bytes / total)), max(1, width - at))
    return f"[{fill}]", " " * at + FILLS["spike"] * cells


def _filled(parts: Sequence[Segment], room: int) -> str:
    widths = _shared([part.num_bytes for part in parts], room)
    return "".join(FILLS[part.place] * cells for part, cells in zip(parts, widths, strict=True))


def _shared(sizes: Sequence[int], room: int) -> list[int]:
    """The room shared out by size: every part has a cell, what is left over goes to the largest remainders."""
    total = sum(sizes)
    exact = [room * size / total for size in sizes] if total else []
    cells = [max(1, int(share)) for share in exact]
    order = sorted(range(len(sizes)), key=lambda place: exact[place] - cells[place], reverse=True)
    for place in order[: max(0, room - sum(cells))]:
        cells[place] += 1
    while sum(cells) > room and max(cells) > 1:
        cells[cells.index(max(cells))] -= 1
    return cells
