"""Charts of what is handed in: where the time goes, and two runs against each other."""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.report.chart import Axis, Chart, Crossing, Level, Series
from deepdraft.report.chart_words import CONTEXT, FIGURE_LABELS, summary_of
from deepdraft.report.subject import Subject
from deepdraft.report.view import AttributionView, ComparisonView
from deepdraft.units import tokens_text

RESIDUAL = "not explained (residual)"


def attribution_chart(subjects: Sequence[Subject], view: AttributionView) -> Chart | None:
    """The parts of the measured time at each length, stacked; None without any."""
    bars = sorted(view.bars, key=lambda bar: bar.context_len)
    if not bars:
        return None
    found: dict[str, list[tuple[float, float]]] = {}
    for bar in bars:
        for part in bar.parts:
            found.setdefault(part.name, []).append((bar.context_len, part.seconds))
    residuals = [(bar.context_len, bar.residual_s) for bar in bars if bar.residual_s is not None]
    if residuals:
        found[RESIDUAL] = residuals
    series = tuple(
        Series(
            name=name,
            role="part",
            colour_index=place,
            xs=tuple(length for length, _ in values),
            ys=tuple(seconds for _, seconds in values),
        )
        for place, (name, values) in enumerate(found.items())
    )
    y = Axis(label=f"milliseconds a {view.per}", kind="ms")
    contradicted = [tokens_text(bar.context_len) for bar in bars if bar.residual_s is not None and bar.residual_s < 0]
    notes = (f"The parts exceed what was measured at {', '.join(contradicted)}.",) if contradicted else ()
    return Chart(
        name=f"attribution-{view.run_index}-{view.per}",
        title=f"Where the time of a {view.per} goes"
        + (f": {subjects[view.run_index].name}" if len(subjects) > 1 else ""),
        summary=summary_of(f"Parts of the time of a {view.per} at each context length", series, CONTEXT, y),
        x=Axis(label=CONTEXT.label, kind="length"),
        y=y,
        series=series,
        notes=(*notes, *view.remarks),
        is_stack=True,
    )


def comparison_chart(subjects: Sequence[Subject], view: ComparisonView) -> Chart | None:
    """The ratio of two runs against context, a series a figure; None where no ratio is known."""
    least = min((verdict.concurrency for verdict in view.verdicts), default=1)
    alike = [verdict for verdict in view.verdicts if verdict.concurrency == least]  # one curve, one concurrency
    figures = list(dict.fromkeys(verdict.figure for verdict in alike if verdict.ratio is not None))
    series = []
    for place, figure in enumerate(figures):
        known = [
            (verdict.context_len, verdict.ratio)
            for verdict in sorted(alike, key=lambda verdict: verdict.context_len)
            if verdict.figure == figure and verdict.ratio is not None
        ]
        has_ends = any(ratio.low is not None and ratio.high is not None for _, ratio in known)
        series.append(
            Series(
                name=FIGURE_LABELS.get(figure, figure),
                role="points",
                colour_index=place,
                xs=tuple(length for length, _ in known),
                ys=tuple(ratio.value for _, ratio in known),
                lows=tuple(ratio.low for _, ratio in known) if has_ends else None,
                highs=tuple(ratio.high for _, ratio in known) if has_ends else None,
            )
        )
    if not series:
        return None
    before, after = subjects[view.before_index].name, subjects[view.after_index].name
    y = Axis(label=f"{after} / {before}", kind="number", is_log=True)
    return Chart(
        name=f"comparison-{view.before_index}-{view.after_index}",
        title=f"{after} against {before}",
        summary=summary_of(f"Ratio of {after} to {before} against context length", series, CONTEXT, y),
        x=CONTEXT,
        y=y,
        series=tuple(series),
        levels=(Level(y=1.0, label="no difference"),),
        crossings=tuple(
            Crossing(
                x=one.context_len,
                low=one.low,
                high=one.high,
                label=f"crossover, {FIGURE_LABELS.get(one.figure, one.figure)}: {one.text}",
            )
            for one in view.crossovers
            if one.context_len is not None
        ),
        notes=view.remarks,
    )
