"""The page's findings: what the data show, on which figures it rests, what to do, and what may be behind it."""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.report.html_part import section, table
from deepdraft.report.markup import Markup, element, foreign, joined
from deepdraft.report.subject import Subject
from deepdraft.report.view import FindingView, HypothesisView, Views

_WORDS = {"error": "contradiction", "warning": "warning", "info": "property", "unknown": "open question"}
"""Severities as a reader needs them; a severity that is not listed is printed as it is."""


def findings_section(subjects: Sequence[Subject], views: Views) -> Markup | str:
    """Nothing at all where no diagnosis was made."""
    if not views.findings:
        if not views.is_explained:
            return ""
        return section("findings", "Findings", element("p", "No rule found anything to say about these results."))
    return section("findings", "Findings", *(_finding(subjects, finding) for finding in views.findings))


def _finding(subjects: Sequence[Subject], finding: FindingView) -> Markup:
    known = finding.severity if finding.severity in _WORDS else "info"
    name = ""
    if finding.run_index is not None and len(subjects) > 1:
        name = joined(" · ", foreign(subjects[finding.run_index].name))
    return element(
        "article",
        element(
            "h3",
            element("span", _WORDS.get(finding.severity, finding.severity), class_="severity"),
            " ",
            foreign(finding.name.replace("_", " ")),
            element("span", " ", foreign(finding.code), name, class_="code"),
        ),
        element("p", foreign(finding.summary)),
        element("p", element("strong", "What to do: "), foreign(finding.remedy)) if finding.remedy else "",
        _evidence(finding),
        *(_hypothesis(one) for one in finding.hypotheses),
        class_=f"finding {known}",
    )


def _evidence(finding: FindingView) -> Markup | str:
    if not finding.evidence:
        return ""
    rows = [[foreign(one.name), foreign(one.value), foreign(one.source)] for one in finding.evidence]
    return element(
        "details",
        element("summary", f"Evidence ({len(rows)})"),
        table(f"Evidence for {finding.code}", ["figure", "value", "from"], rows),
    )


def _hypothesis(one: HypothesisView) -> Markup:
    parts = (("Why", one.why), ("It predicts", one.prediction), ("The experiment that decides", one.experiment))
    said = [(label, text) for label, text in parts if text]
    return element(
        "details",
        element("summary", "Possible cause: ", foreign(one.name), f" (support: {one.support})"),
        element("dl", *(joined(element("dt", label), element("dd", foreign(text))) for label, text in said)),
    )
