"""What a run showed, as JSON and as Markdown, and whether it is good enough."""

from __future__ import annotations

from dataclasses import dataclass

from .watch import Memory

HEALTH_P99_LIMIT_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run. Pages are those after the last request ended."""

    machine: str
    date: str
    server: str
    num_clients: int
    duration_s: float
    num_completed: int
    num_disconnected: int
    num_malformed: int
    num_turned_away: int
    num_output_tokens: int
    num_preemptions: int
    num_wrong: int
    wrong: tuple[str, ...]
    """The first few, in words."""
    num_leaked_pages: int
    """Neither free nor cached, or missing, after the load; and not free after a flush."""
    health_p50_s: float
    health_p99_s: float
    health_max_s: float
    num_health_checks: int
    resident_start_bytes: float
    resident_end_bytes: float
    resident_slope_bytes_min: float
    memory_by_minute: tuple[Memory, ...]

    @property
    def is_right(self) -> bool:
        """No wrong answer and no leaked page."""
        return self.num_wrong == 0 and self.num_leaked_pages == 0

    def markdown(self) -> str:
        """A table of two columns."""
        rows = {
            "server": self.server,
            "machine": self.machine,
            "clients, minutes": f"{self.num_clients}, {self.duration_s / 60:.1f}",
            "completed and compared": f"{self.num_completed} ({self.num_output_tokens} tokens)",
            "left early, malformed, turned away": f"{self.num_disconnected}, {self.num_malformed}, "
            f"{self.num_turned_away}",
            "preemptions": str(self.num_preemptions),
            "wrong answers": str(self.num_wrong),
            "leaked pages": str(self.num_leaked_pages),
            "/health p50, p99, max": f"{self.health_p50_s * 1e3:.1f}, {self.health_p99_s * 1e3:.1f}, "
            f"{self.health_max_s * 1e3:.1f} ms of {self.num_health_checks}",
            "resident memory, start to end": f"{self.resident_start_bytes / 2**20:.0f} to "
            f"{self.resident_end_bytes / 2**20:.0f} MiB",
            "slope over the second half": f"{self.resident_slope_bytes_min / 2**20:+.2f} MiB a minute",
            "resident, minute by minute": _series([one.resident_bytes for one in self.memory_by_minute]),
            "anonymous of it": _series([one.anonymous_bytes for one in self.memory_by_minute]),
        }
        lines = [f"| {name} | {value} |" for name, value in rows.items()]
        return "\n".join([f"Mixed load, {self.date}", "", "| | |", "|---|---|", *lines, ""])


def _series(values: list[float | None] | list[float]) -> str:
    known = [value for value in values if value is not None]
    return " ".join(f"{value / 2**20:.1f}" for value in known) + " MiB" if known else "not told"


def percentile(values: list[float], frac: float) -> float:
    """By nearest rank; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(frac * len(ordered)))] if ordered else 0.0
