"""Findings as plain text of at most 80 columns, without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence

from deepdraft.diagnosis.attribution import Attribution
from deepdraft.diagnosis.explain import Explanation
from deepdraft.diagnosis.finding import Evidence, Finding, Hypothesis, Severity
from deepdraft.diagnosis.number import bytes_s, flops, plain
from deepdraft.units import seconds_text, tokens_text

WIDTH = 80
_HEADINGS: tuple[tuple[Severity, str], ...] = (
    ("error", "Can't be true"),
    ("warning", "Costs or misleads"),
    ("info", "Worth knowing"),
    ("unknown", "Can't be told from these data"),
)
_MAX_STEPS = 5
_IN_WORDS: Mapping[str, Callable[[float], str]] = {"B/s": bytes_s, "FLOP/s": flops, "s": seconds_text}
_TOKEN_NOTE = (
    "(a token: tokens a step are not known; with more than one each part is smaller, and what is not known larger)"
)


def explanations_text(explanations: Sequence[Explanation]) -> str:
    """All of it; each run under its name where there are several."""
    return "\n".join(_explanation_text(each, is_named=len(explanations) > 1) for each in explanations)


def _explanation_text(explanation: Explanation, *, is_named: bool) -> str:
    lines = [f"=== {explanation.name}", ""] if is_named else []
    if not explanation.findings:
        nothing = "nothing stands out" if explanation.num_points else "there are no points to explain"
        lines += [f"No findings: {nothing}.", ""]
    for severity, heading in _HEADINGS:
        findings = [each for each in explanation.findings if each.severity == severity]
        if findings:
            lines += [heading, "-" * len(heading)]
            for finding in findings:
                lines += [*_finding_lines(finding), ""]
    lines += _attribution_lines(explanation.attributions)
    lines += _next_steps(explanation.findings)
    return "\n".join(lines)


def _finding_lines(finding: Finding) -> list[str]:
    lines = [f"{finding.code} {finding.name}", *_wrapped(finding.summary, "  ")]
    for evidence in finding.evidence:
        lines += _wrapped(f"- {_evidence_text(evidence)}", "  ", "    ")
    if finding.remedy:
        label = "would tell" if finding.severity == "unknown" else "do"
        lines += _wrapped(f"{label}: {finding.remedy}", "  ", "    ")
    for hypothesis in finding.hypotheses:
        lines += _hypothesis_lines(hypothesis)
    return lines


def _evidence_text(evidence: Evidence) -> str:
    return f"{evidence.name}: {_value_text(evidence)}" + (f" ({evidence.source})" if evidence.source else "")


def _value_text(evidence: Evidence) -> str:
    value, unit = evidence.value, evidence.unit
    if isinstance(value, str):
        return f"{value} {unit}".rstrip()
    if unit in _IN_WORDS:
        return _IN_WORDS[unit](value)
    shown = f"{value:,.0f}" if value >= 1000 and value == int(value) else plain(value, 4)
    return f"{shown} {unit}".rstrip()


def _hypothesis_lines(hypothesis: Hypothesis) -> list[str]:
    lines = _wrapped(f"? {hypothesis.name} (support: {hypothesis.support}): {hypothesis.why}", "  ", "    ")
    if hypothesis.support == "against":
        return lines
    lines += _wrapped(f"predicts: {hypothesis.prediction}", "    ", "      ")
    return lines + _wrapped(f"decide: {hypothesis.experiment}", "    ", "      ")


def _attribution_lines(attributions: Iterable[Attribution]) -> list[str]:
    rows = list(attributions)
    if not rows:
        return []
    heading = "Where the time goes (ms; floors of what is known, and the rest)"
    lines = [heading, "-" * len(heading)]
    for row in rows:
        parts = " + ".join(f"{part.name} {plain(part.seconds * 1e3, 3)}" for part in row.parts)
        lines += _wrapped(f"{tokens_text(row.context_len)}: {_sum_text(row, parts)}", "  ", "    ")
    if any(row.per == "token" for row in rows):
        lines += _wrapped(_TOKEN_NOTE, "  ")
    return [*lines, ""]


def _sum_text(row: Attribution, parts: str) -> str:
    if row.measured_s is None or row.residual_s is None:
        return f"{parts} (over an answer; the whole is not told)"
    return f"{plain(row.measured_s * 1e3, 3)} a {row.per} = {parts} + not known {plain(row.residual_s * 1e3, 3)}"


def _next_steps(findings: Sequence[Finding]) -> list[str]:
    """The experiments and remedies that decide or win most, in that order."""
    worthy = [each for each in findings if each.remedy and each.severity in ("error", "warning")]
    worthy.sort(key=lambda each: -each.worth)
    steps: list[str] = []
    for finding in worthy:
        best = next((each for each in finding.hypotheses if each.support in ("strong", "some")), None)
        step = best.experiment if best is not None else finding.remedy
        if step not in steps:
            steps.append(step)
    steps = steps[:_MAX_STEPS]
    if not steps:
        return []
    heading = "Next steps, in order of worth"
    lines = [heading, "-" * len(heading)]
    for place, step in enumerate(steps, start=1):
        lines += _wrapped(f"{place}. {step}", "  ", "     ")
    return [*lines, ""]


def _wrapped(text: str, first: str, later: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if later is None else later,
        break_on_hyphens=False,
    )
