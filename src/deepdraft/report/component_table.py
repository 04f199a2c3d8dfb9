"""A component's results as plain text, at most 80 columns wide, without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from deepdraft.metrics.component import ceiling_name, parts_s, peer_ratios, per_round, seconds_of, shares_frac
from deepdraft.records.component import ComponentCase, ComponentRun
from deepdraft.stats import Summary, summary

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_LEGEND = (
    "time: of one run, the median over the repeats and in brackets the least and the greatest. of ceiling: the least "
    "time that the machine's own rate allows, measured in the same turn, over the time; what stays in a cache may "
    "pass 1. Below it, a peer's time over this one's: 3 takes three times as long."
)


def component_table(run: ComponentRun, width: int = 80) -> str:
    """The cases, the notes, and what was not measured."""
    parts = [component_heading(run, width)]
    if run.cases:
        parts.append("\n".join([_head(), *(component_lines(case, width) for case in run.cases)]))
    else:
        parts.append("nothing was measured")
    notes = [*dict.fromkeys(case.note for case in run.cases if case.note), *(note.message for note in run.notes)]
    parts.append("\n".join(_wrapped(f"note: {note}", width) for note in notes))
    if not run.is_complete:
        said = run.ends[-1].message if run.ends else None
        parts.append(_wrapped(f"not complete: {said or 'the run was cut short'}", width))
    if run.cases:
        parts.append(_wrapped(_LEGEND, width))
    return "\n\n".join(part for part in parts if part) + "\n"


def component_heading(run: ComponentRun, width: int = 80) -> str:
    """What was measured, with what, on what."""
    found = run.header.environment
    device = found.get("device")
    known = (
        f"{found['num_cores']} cores" if "num_cores" in found else None,
        f"{found['num_threads']} threads" if "num_threads" in found else None,
        device if device != "cpu" else None,
        f"native {found['native']}" if "native" in found else None,
        f"torch {found['torch']}" if "torch" in found else None,
        f"load {found['load_1min']}" if "load_1min" in found else None,
    )
    said = ", ".join(str(each) for each in known if each)
    return _wrapped(f"deepdraft {run.header.deepdraft_version} bench {run.header.component}: {said}", width)


def component_lines(case: ComponentCase, width: int = 80) -> str:
    """One case: time and share, below them the peers, the parts and what was counted."""
    shares = summary(shares_frac(case))
    share = "-" if shares is None else f"{_digits(shares.median)} {ceiling_name(case)}"
    lines = [f"{case.name:<37} {seconds_range(seconds_of(case)):<25} {share}".rstrip()]
    ratios = {name: summary(found) for name, found in peer_ratios(case).items()}
    peers = ", ".join(f"{name} {ratio_range(found)}" for name, found in ratios.items() if found is not None)
    if peers:
        lines.append(_wrapped(peers, width, indent="    "))
    parts = ", ".join(f"{name} {_digits(found.median * 1e3)}" for name, found in parts_s(case).items())
    if parts:
        lines.append(_wrapped(f"ms: {parts}{_counted(case)}", width, indent="    "))
    return "\n".join(lines)


def seconds_range(found: Summary) -> str:
    """12.3 ms (11.8-13.0), all in the median's unit."""
    scale, unit = next((each for each in _UNITS if found.median >= each[0] * 0.9995), _UNITS[-1])
    low, middle, high = (_digits(each / scale) for each in (found.low, found.median, found.high))
    return f"{middle} {unit} ({low}-{high})" if found.num_samples > 1 else f"{middle} {unit}"


def ratio_range(found: Summary) -> str:
    """4.20 (3.90-4.61)."""
    if found.num_samples < 2:
        return _digits(found.median)
    return f"{_digits(found.median)} ({_digits(found.low)}-{_digits(found.high)})"


def _counted(case: ComponentCase) -> str:
    tokens, rows = per_round(case, "tokens"), per_round(case, "rows")
    return "" if tokens is None or rows is None else f"; {tokens:.2f} tokens and {rows:.1f} rows a round"


def _head() -> str:
    return f"{'case':<37} {'time (low-high)':<25} of ceiling\n    peer's time / this (low-high)"


def _digits(value: float) -> str:
    """Three significant digits; no more behind the point than make sense."""
    return (
        f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}".removesuffix(".") if value >= 1e-3 else f"{value:.1g}"
    )


def _wrapped(text: str, width: int, *, indent: str = "") -> str:
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def names_of(cases: Sequence[ComponentCase]) -> tuple[str, ...]:
    """Of all peers, in the order in which they first appear."""
    return tuple(dict.fromkeys(name for case in cases for name in peer_ratios(case)))
