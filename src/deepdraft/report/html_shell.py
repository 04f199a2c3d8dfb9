"""What every page shares: one self-contained document that loads nothing.

The Content-Security-Policy lets only the page's own script and style run, by their hashes, and forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from deepdraft.report.markup import Markup, element, joined

_SCRIPTS = ("vendor/uplot.js", "draw.js", "page.js")
_STYLES = ("vendor/uplot.css", "page.css")


def html_document(title: str, *content: str, data: str, more_styles: Sequence[str] = ()) -> Markup:
    """The document. content: what stands in its body; data: the charts as `chart_json` writes them; more_styles:
    style sheets of the folder `page` besides the common ones."""
    script, style = _bundle(_SCRIPTS), _bundle((*_STYLES, *more_styles))
    body = element(
        "body",
        *content,
        element("script", Markup(data), type="application/json", id="chart-data"),
        element("script", script),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script, style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content="deepdraft"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", style),
    )
    return joined(Markup("<!DOCTYPE html>\n"), element("html", head, body, lang="en"), Markup("\n"))


def _bundle(names: Sequence[str]) -> Markup:
    page = files("deepdraft.report") / "page"
    text = "\n".join(page.joinpath(name).read_text(encoding="utf-8") for name in names)
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError("a bundled file would end its own element")
    return Markup(text)


def _policy(script: str, style: str) -> str:
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
