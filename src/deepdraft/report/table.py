"""The results table as plain text, at most 80 columns wide, without colour.

A figure in doubt carries a mark, and each mark has a footnote that names the guard and its evidence. Points that gave
no figures are listed with their reasons, never left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from deepdraft.metrics import Point, points_of
from deepdraft.records import Capabilities, Run, Source
from deepdraft.report.doubt import UNVERIFIED_MARK, VIOLATED_MARK, PointDoubts, point_doubts
from deepdraft.report.number import NOTHING, ms_text, percent_text, rate_text
from deepdraft.units import seconds_text, tokens_text

_BY_METHOD = {
    "streaming": "TTFT: request sent -> first token (answer, reasoning or tool call). "
    "prefill: uncached prompt tokens / TTFT. "
    "ms/token: (last - first token arrival) / tokens after the first arrival; decode: its inverse. ",
    "two-point": "Two requests a sample, for 1 and for 1 + M tokens. TTFT: sent -> the first one's token. "
    "prefill: uncached prompt tokens / TTFT. "
    "ms/token: (last token of the second - token of the first) / M; decode: its inverse. ",
}
_BY_SOURCE = (
    "Figures as their source gives them, under our names; where it prints only one of decode tok/s and ms/token, or "
    "of TTFT and prefill tok/s, the other is computed. ms/token is not ms/step. n: values behind a figure."
)
_BY_ALL = (
    "tok/step: tokens a decode step commits. ms/step: one decode or verify step, which is not ms/token. "
    "accept: tokens a verify step commits, bonus included. Each figure: median of n requests, one vote each. "
    "spread: (largest - smallest) / median over the n, of TTFT or ms/token, whichever is larger."
)


@dataclass(frozen=True, slots=True)
class _Row:
    point: Point
    doubts: PointDoubts


@dataclass(frozen=True, slots=True)
class _Column:
    head: tuple[str, str]
    width: int
    text: Callable[[Point], str]
    figure: str | None = None
    """Whose doubts mark the cell; None for what carries no mark."""

    def lines(self, rows: list[_Row]) -> list[str]:
        """Both lines of the head, then a cell a row, flush right; a figure's last place is kept for its mark."""
        lines = [text.rjust(self.width) for text in self.head]
        for row in rows:
            mark = (row.doubts.mark(self.figure) or " ") if self.figure is not None else ""
            text = self.text(row.point)
            lines.append((text + (" " if text == NOTHING and mark else mark)).rjust(self.width))
        return lines


def _figure_column(name: str, head: tuple[str, str], width: int, *, is_time: bool = False) -> _Column:
    write = ms_text if is_time else rate_text
    return _Column(head, width, lambda point: write(_median(point, name)), name)


_CONTEXT = _Column(("", "ctx "), 6, lambda point: tokens_text(point.context_len), "context_len")
_CONCURRENCY = _Column(("", "c"), 3, lambda point: str(point.concurrency))
_COLUMNS = (
    _Column(("", "TTFT "), 8, lambda point: _seconds(point, "ttft_s"), "ttft_s"),
    _figure_column("prefill_tok_s", ("prefill", "tok/s "), 7),
    _figure_column("decode_tok_s", ("decode", "tok/s "), 7),
    _figure_column("tpot_s", ("ms/ ", "token "), 7, is_time=True),
    _figure_column("tokens_per_step", ("tok/ ", "step "), 6),
    _figure_column("step_s", ("ms/ ", "step "), 7, is_time=True),
    _figure_column("acceptance_len", ("", "accept"), 6),
    _Column(("", "spread"), 6, lambda point: percent_text(spread_frac(point))),
    _Column(("", "n"), 3, lambda point: str(point.num_samples)),
)


def results_table(run: Run, width: int = 80) -> str:
    """The table, its footnotes and its definitions; lines are wrapped at `width` (the table itself needs 79)."""
    points = points_of(run)
    rows = [_Row(point, point_doubts(run, point, points)) for point in points]
    measured = [row for row in rows if row.point.num_samples]
    parts = [_heading(run, rows, width)]
    if measured:
        parts.append(_table(measured))
    parts += [
        _footnotes(measured, width),
        _sources(measured, width),
        _loads(run, measured, width),
        _needles(rows, width),
        _missing(run, rows, width),
        _remarks(run, rows, width),
    ]
    if measured:
        parts.append(_wrapped(_definitions(run), width))
    return "\n\n".join(part for part in parts if part) + "\n"


def _definitions(run: Run) -> str:
    if run.header.source is not None:
        return _BY_SOURCE
    return _BY_METHOD.get(run.header.spec.method, _BY_METHOD["streaming"]) + _BY_ALL


def point_line(run: Run, point: Point) -> str:
    """One point in one line, for live progress: `11k: TTFT 4.31 s, prefill 2659 tok/s, ...`, marks included."""
    doubts = point_doubts(run, point)
    name = tokens_text(point.context_len)
    if any(concurrency != 1 for concurrency in (*run.header.spec.concurrencies, point.concurrency)):
        name += f" x {point.concurrency}"
    shown = [
        f"{label} {text}{unit}{doubts.mark(figure)}"
        for figure, label, text, unit in (
            ("ttft_s", "TTFT", _seconds(point, "ttft_s"), ""),
            ("prefill_tok_s", "prefill", rate_text(_median(point, "prefill_tok_s")), " tok/s"),
            ("decode_tok_s", "decode", rate_text(_median(point, "decode_tok_s")), " tok/s"),
            ("tpot_s", "", ms_text(_median(point, "tpot_s")), " ms/token"),
            ("tokens_per_step", "", rate_text(_median(point, "tokens_per_step")), " tok/step"),
            ("step_s", "", ms_text(_median(point, "step_s")), " ms/step"),
        )
        if text != NOTHING
    ]
    if not shown:
        shown = [f"no figures ({point.num_failed} failed, {len(point.refused_pairs)} pairs refused)"]
    elif point.num_failed:
        shown.append(f"{point.num_failed} failed")
    return f"{name}: " + ", ".join(part.strip() for part in shown)


def _heading(run: Run, rows: list[_Row], width: int) -> str:
    spec, server = run.header.spec, run.header.capabilities
    if run.header.source is not None:
        return _source_heading(run.header.source, server, width)
    who = " ".join(part for part in (server.engine, server.version) if part)
    identity = ", ".join(part for part in (who, server.model and f"model {server.model}", spec.url) if part)
    kinds = dict.fromkeys(kind for row in rows for kind in row.doubts.text.kinds) or {spec.text: None}
    natures = dict.fromkeys(row.doubts.text.nature for row in rows if row.doubts.text.nature)
    text = ", ".join(kinds) + (f" ({', '.join(natures)})" if natures else "")
    repeats = f"{spec.num_repeats} repeat" + ("s" if spec.num_repeats != 1 else "")
    how = f"{spec.method} method, {repeats}, text: {text}, {_drafter(server)}"
    if spec.arrival != "closed":
        how += f", open-loop arrivals ({spec.arrival})"
    if spec.keep_cache:
        how += ", cache kept on purpose"
    return _wrapped(identity, width) + "\n" + _wrapped(how, width)


def _source_heading(source: Source, server: Capabilities, width: int) -> str:
    who = " ".join(part for part in (server.engine, server.version) if part)
    identity = ", ".join(part for part in (who, server.model and f"model {server.model}") if part)
    tool = " ".join(part for part in (source.tool, source.version) if part)
    how = f"reported by {tool}" + (f" ({source.path})" if source.path else "") + f", {_drafter(server)}"
    return _wrapped(identity, width) + "\n" + _wrapped(how, width)


def _drafter(server: Capabilities) -> str:
    if server.speculation == "yes":
        return f"drafter: {server.speculation_method or 'active'}"
    return "no drafter" if server.speculation == "no" else "drafter: unknown"


def _table(rows: list[_Row]) -> str:
    has_concurrency = any(row.point.concurrency != 1 for row in rows)
    columns = (_CONTEXT, *((_CONCURRENCY,) if has_concurrency else ()), *_COLUMNS)
    lines = zip(*(column.lines(rows) for column in columns), strict=True)
    return "\n".join(" ".join(cells).rstrip() for cells in lines)


def spread_frac(point: Point) -> float | None:
    """(largest - smallest) / median over a point's samples, of TTFT or time a token, whichever is larger; None for
    fewer than two samples."""
    spreads = [
        spread
        for name in ("ttft_s", "tpot_s")
        if (brief := point.summary(name)) is not None
        and brief.num_samples > 1
        and (spread := brief.spread_frac) is not None
    ]
    return max(spreads, default=None)


def _median(point: Point, name: str) -> float | None:
    brief = point.summary(name)
    return brief.median if brief is not None else None


def _seconds(point: Point, name: str) -> str:
    median = _median(point, name)
    return seconds_text(median) if median is not None else NOTHING


def _footnotes(rows: list[_Row], width: int) -> str:
    """Every guard that puts a printed figure in doubt, with its evidence, then the verified ones in one line."""
    lines = []
    for mark, state in ((VIOLATED_MARK, "violated"), (UNVERIFIED_MARK, "not_verifiable")):
        for name, texts in _grouped(rows, state, is_doubting=True).items():
            lines += [
                _wrapped(f"{mark} {name}{_where(points, rows)}: {text}", width, "  ")
                for text, points in texts.items()
            ]
    quiet = [
        f"{name}{_where(points, rows)}: {text}"
        for name, texts in _grouped(rows, "not_verifiable", is_doubting=False).items()
        for text, points in texts.items()
    ]
    if quiet:
        lines.append(_wrapped("Not verifiable: " + "; ".join(quiet), width, "  "))
    verified = [
        name
        for name in dict.fromkeys(guard.name for row in rows for guard in row.doubts.guards)
        if all(guard.state == "verified" for row in rows for guard in row.doubts.guards if guard.name == name)
    ]
    if verified:
        lines.append(_wrapped(f"Verified at every point: {', '.join(verified)}", width, "  "))
    return "\n".join(lines)


def _grouped(rows: list[_Row], state: str, *, is_doubting: bool) -> dict[str, dict[str, list[Point]]]:
    """Guard -> evidence -> the points it speaks of."""
    grouped: dict[str, dict[str, list[Point]]] = {}
    for row in rows:
        for guard in row.doubts.guards:
            if guard.state == state and bool(guard.doubts) == is_doubting:
                grouped.setdefault(guard.name, {}).setdefault(guard.evidence, []).append(row.point)
        warning = row.doubts.text.warning
        if warning is not None and state == "violated" and is_doubting:
            grouped.setdefault("text", {}).setdefault(warning, []).append(row.point)
    return grouped


def _where(points: list[Point], rows: list[_Row]) -> str:
    if len(points) == len(rows):
        return ""
    has_concurrency = any(row.point.concurrency != 1 for row in rows)
    return f" ({', '.join(_name(point, has_concurrency) for point in points)})"


def _name(point: Point, has_concurrency: bool) -> str:
    name = tokens_text(point.context_len)
    return f"{name} x {point.concurrency}" if has_concurrency else name


def _sources(rows: list[_Row], width: int) -> str:
    """Where the figures of speculation come from, since no two engines tell them alike."""
    by_source: dict[str, list[str]] = {}
    for name, label in (("tokens_per_step", "tok/step"), ("step_s", "ms/step"), ("acceptance_len", "accept")):
        sources = dict.fromkeys(
            source for row in rows if name in row.point.figures for source in row.point.figures[name].sources
        )
        if sources:
            by_source.setdefault(" / ".join(sources), []).append(label)
    if not by_source:
        return ""
    text = "; ".join(f"{', '.join(labels)}: {source}" for source, labels in by_source.items())
    return _wrapped(f"Sources: {text}", width, "  ")


def _loads(run: Run, rows: list[_Row], width: int) -> str:
    """Throughput and percentiles of the points that had more than one request."""
    lines = []
    for row in rows:
        point = row.point
        if point.concurrency == 1 and run.header.spec.arrival == "closed":
            continue
        parts = [
            f"{rate_text(_median(point, 'output_tok_s'))} output tok/s, "
            f"{rate_text(_median(point, 'total_tok_s'))} tok/s with prompts"
        ]
        if point.peak_concurrency is not None:
            mean = rate_text(_median(point, "mean_concurrency"))
            parts.append(f"in flight: {point.peak_concurrency} at the peak, {mean} on average")
        figure = "ttft_from_scheduled_s" if "ttft_from_scheduled_s" in point.percentiles else "ttft_s"
        label = "TTFT" if figure == "ttft_s" else "TTFT from schedule"
        known = [f"median {_seconds(point, figure)}"] + [
            f"p{100 * one.p:g} {seconds_text(one.value)}"
            for one in point.percentiles.get(figure, ())
            if one.value is not None and one.p != 0.5
        ]
        if len(known) == 1:
            known.append(f"no higher percentile from {point.num_samples} samples")
        parts.append(f"{label}: {', '.join(known)}")
        is_open = run.header.spec.arrival != "closed"
        name = f"{_name(point, False)}, {run.header.spec.arrival}" if is_open else _name(point, True)
        lines.append(_wrapped(f"{name}: {'; '.join(parts)}", width, "  "))
    return "\n".join(lines)


def _needles(rows: list[_Row], width: int) -> str:
    texts = [
        f"{row.point.num_needles_found} of {row.point.num_needles} at {tokens_text(row.point.context_len)}"
        for row in rows
        if row.point.num_needles
    ]
    return _wrapped(f"Needle found: {', '.join(texts)}", width, "  ") if texts else ""


def _missing(run: Run, rows: list[_Row], width: int) -> str:
    """What gave no figures: failed requests, refused pairs, refused points."""
    lines = []
    for row in rows:
        point = row.point
        reasons: dict[str, int] = {}
        for failure in point.failures:
            if failure.failure is not None:
                reason = f"{failure.failure.name}: {failure.failure.message}"
                reasons[reason] = reasons.get(reason, 0) + 1
        name = _name(point, any(other.point.concurrency != 1 for other in rows))
        for reason, num in reasons.items():
            lines.append(_wrapped(f"Failed ({name}): {num} of {point.num_requests} requests: {reason}", width, "  "))
        refused: dict[str, int] = {}
        for pair in point.refused_pairs:
            refused[pair.reason] = refused.get(pair.reason, 0) + 1
        for reason, num in refused.items():
            lines.append(_wrapped(f"Pairs refused ({name}): {num}: {reason}", width, "  "))
    for refusal in run.refusals:
        where = tokens_text(refusal.context_len) + (f" x {refusal.concurrency}" if refusal.concurrency != 1 else "")
        lines.append(_wrapped(f"Not sent ({where}): {refusal.reason}", width, "  "))
    return "\n".join(lines)


def _remarks(run: Run, rows: list[_Row], width: int) -> str:
    lines = [] if any(row.point.num_samples for row in rows) else ["No point gave figures."]
    lines += [f"Damaged file: {text}" for text in run.damage]
    if run.header.source is not None:
        lines += [f"The source can't tell: {text}" for text in run.header.source.unknowns]
        lines += [f"Mind: {text}" for text in run.header.source.traps]
    for row in rows:
        doubts = dict.fromkeys(doubt for figure in row.point.figures.values() for doubt in figure.doubts)
        lines += [f"In doubt ({tokens_text(row.point.context_len)}): {doubt}" for doubt in doubts]
    lines += [f"Server: {doubt}" for doubt in run.header.capabilities.doubts]
    if not run.is_complete:
        if run.ends:
            end = run.ends[-1]
            lines.append(f"Not complete ({end.outcome})" + (f": {end.message}" if end.message else ""))
        else:
            lines.append("Not complete: the file has no end line")
    num_superseded = sum(row.point.num_superseded for row in rows)
    if num_superseded:
        lines.append(f"{num_superseded} requests of cut-short trials were measured again and count only once")
    return "\n".join(_wrapped(line, width, "  ") for line in lines)


def _wrapped(text: str, width: int, indent: str = "") -> str:
    return "\n".join(
        textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )
