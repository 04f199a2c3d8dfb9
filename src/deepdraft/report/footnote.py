"""What must be read beside a table, one paragraph a line: doubts and their guards, sources, failures, remarks.

Lines are not wrapped here: plain text, Markdown, LaTeX and HTML each set them their own way.
"""

from __future__ import annotations

from deepdraft.metrics import STEP_PARTS, Point
from deepdraft.records import Run
from deepdraft.report.depth import depth_rates, nodes_per_step
from deepdraft.report.doubt import UNVERIFIED_MARK, VIOLATED_MARK
from deepdraft.report.number import ms_text, rate_text
from deepdraft.report.row import Row, have_concurrency, median_of, median_seconds, point_name
from deepdraft.units import seconds_text, tokens_text


def footnotes_of(rows: list[Row]) -> list[str]:
    """Every guard that puts a printed figure in doubt, with its evidence, then the verified ones in one line."""
    lines = []
    for mark, state in ((VIOLATED_MARK, "violated"), (UNVERIFIED_MARK, "not_verifiable")):
        for name, texts in _grouped(rows, state, is_doubting=True).items():
            lines += [f"{mark} {name}{_where(points, rows)}: {text}" for text, points in texts.items()]
    quiet = [
        f"{name}{_where(points, rows)}: {text}"
        for name, texts in _grouped(rows, "not_verifiable", is_doubting=False).items()
        for text, points in texts.items()
    ]
    if quiet:
        lines.append("Not verifiable: " + "; ".join(quiet))
    verified = [
        name
        for name in dict.fromkeys(guard.name for row in rows for guard in row.doubts.guards)
        if all(guard.state == "verified" for row in rows for guard in row.doubts.guards if guard.name == name)
    ]
    if verified:
        lines.append(f"Verified at every point: {', '.join(verified)}")
    return lines


def _grouped(rows: list[Row], state: str, *, is_doubting: bool) -> dict[str, dict[str, list[Point]]]:
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


def _where(points: list[Point], rows: list[Row]) -> str:
    if len(points) == len(rows):
        return ""
    has_concurrency = have_concurrency(rows)
    return f" ({', '.join(point_name(point, has_concurrency) for point in points)})"


def sources_of(rows: list[Row]) -> list[str]:
    """Where the figures of speculation come from, since no two engines tell them alike."""
    by_source: dict[str, list[str]] = {}
    for name, label in (("tokens_per_step", "tok/step"), ("step_s", "ms/step"), ("acceptance_len", "accept")):
        sources = dict.fromkeys(
            source for row in rows if name in row.point.figures for source in row.point.figures[name].sources
        )
        if sources:
            by_source.setdefault(" / ".join(sources), []).append(label)
    if not by_source:
        return []
    text = "; ".join(f"{', '.join(labels)}: {source}" for source, labels in by_source.items())
    return [f"Sources: {text}"]


def step_parts_of(rows: list[Row]) -> list[str]:
    """What a step consists of, by the server's clock, where it tells; a line a point."""
    lines = []
    for row in rows:
        known = {name: median_of(row.point, f"step_{name}_s") for name in STEP_PARTS}
        parts = {name: seconds for name, seconds in known.items() if seconds is not None}
        if not parts:
            continue
        split = " + ".join(f"{name} {ms_text(seconds)}" for name, seconds in parts.items())
        nodes = nodes_per_step(row.point)
        drafted = "" if nodes is None else f"; {rate_text(nodes)} nodes drafted"
        rates = depth_rates(row.point)
        depths = "" if rates is None else f"; accepted at depth 1, 2, ...: {_shares(rates.rates)}"
        total = ms_text(sum(parts.values()))
        where = point_name(row.point, have_concurrency(rows))
        lines.append(f"A step by the server's clock ({where}): {total} ms = {split}{drafted}{depths}")
    return lines


def _shares(rates: tuple[float, ...]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates)


def loads_of(run: Run, rows: list[Row]) -> list[str]:
    """Throughput and percentiles of the points that had more than one request."""
    lines = []
    for row in rows:
        point = row.point
        if point.concurrency == 1 and run.header.spec.arrival == "closed":
            continue
        parts = [
            f"{rate_text(median_of(point, 'output_tok_s'))} output tok/s, "
            f"{rate_text(median_of(point, 'total_tok_s'))} tok/s with prompts"
        ]
        if point.peak_concurrency is not None:
            mean = rate_text(median_of(point, "mean_concurrency"))
            parts.append(f"in flight: {point.peak_concurrency} at the peak, {mean} on average")
        figure = "ttft_from_scheduled_s" if "ttft_from_scheduled_s" in point.percentiles else "ttft_s"
        label = "TTFT" if figure == "ttft_s" else "TTFT from schedule"
        known = [f"median {median_seconds(point, figure)}"] + [
            f"p{100 * one.p:g} {seconds_text(one.value)}"
            for one in point.percentiles.get(figure, ())
            if one.value is not None and one.p != 0.5
        ]
        if len(known) == 1:
            known.append(f"no higher percentile from {point.num_samples} samples")
        parts.append(f"{label}: {', '.join(known)}")
        is_open = run.header.spec.arrival != "closed"
        name = f"{point_name(point, False)}, {run.header.spec.arrival}" if is_open else point_name(point, True)
        lines.append(f"{name}: {'; '.join(parts)}")
    return lines


def needles_of(rows: list[Row]) -> list[str]:
    """How often the hidden fact was found."""
    texts = [
        f"{row.point.num_needles_found} of {row.point.num_needles} at {tokens_text(row.point.context_len)}"
        for row in rows
        if row.point.num_needles
    ]
    return [f"Needle found: {', '.join(texts)}"] if texts else []


def missing_of(run: Run, rows: list[Row]) -> list[str]:
    """What gave no figures: failed requests, refused pairs, refused points."""
    lines = []
    for row in rows:
        point = row.point
        reasons: dict[str, int] = {}
        for failure in point.failures:
            if failure.failure is not None:
                reason = f"{failure.failure.name}: {failure.failure.message}"
                reasons[reason] = reasons.get(reason, 0) + 1
        name = point_name(point, have_concurrency(rows))
        for reason, num in reasons.items():
            lines.append(f"Failed ({name}): {num} of {point.num_requests} requests: {reason}")
        refused: dict[str, int] = {}
        for pair in point.refused_pairs:
            refused[pair.reason] = refused.get(pair.reason, 0) + 1
        for reason, num in refused.items():
            lines.append(f"Pairs refused ({name}): {num}: {reason}")
    for refusal in run.refusals:
        where = tokens_text(refusal.context_len) + (f" x {refusal.concurrency}" if refusal.concurrency != 1 else "")
        lines.append(f"Not sent ({where}): {refusal.reason}")
    return lines


def remarks_of(run: Run, rows: list[Row]) -> list[str]:
    """What the file, its source and the server leave in doubt."""
    lines = [] if any(row.point.num_samples for row in rows) else ["No point gave figures."]
    lines += [f"Damaged file: {text}" for text in run.damage]
    if run.header.source is not None:
        lines += [f"The source can't tell: {text}" for text in run.header.source.unknowns]
        lines += [f"Mind: {text}" for text in run.header.source.traps]
    doubted: dict[str, dict[str, None]] = {}
    for row in rows:
        for doubt in (doubt for figure in row.point.figures.values() for doubt in figure.doubts):
            doubted.setdefault(doubt, {})[tokens_text(row.point.context_len)] = None
    lines += [f"In doubt ({', '.join(lens)}): {doubt}" for doubt, lens in doubted.items()]
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
    return lines
