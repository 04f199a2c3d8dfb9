"""Pieces that the page's sections share."""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.report.markup import Markup, element


def section(name: str, title: str, *children: str) -> Markup:
    """A section with its heading."""
    heading = f"{name}-title"
    return element("section", element("h2", title, id=heading), *children, id=name, aria_labelledby=heading)


def table(
    caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, is_hidden_caption: bool = True
) -> Markup:
    """A table in a frame of its own that scrolls where the page is too narrow. The first cell of a row is its head;
    a cell that is an element already (td, th) stays as it is."""
    written = [
        element(
            "tr",
            *(
                cell
                if isinstance(cell, Markup) and cell.startswith(("<td", "<th"))
                else element("th", cell, scope="row")
                if place == 0
                else element("td", cell)
                for place, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    head = element(
        "tr",
        *(
            text if isinstance(text, Markup) and text.startswith("<th") else element("th", text, scope="col")
            for text in heads
        ),
    )
    return element(
        "div",
        element(
            "table",
            element("caption", caption, class_="unseen" if is_hidden_caption else None),
            element("thead", head),
            element("tbody", *written),
        ),
        class_="frame",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def marked(text: str, mark: str) -> tuple[str, Markup | str]:
    """A figure's text and its mark, which is read out as a word."""
    if not mark:
        return text, ""
    word = "in doubt" if mark == "!" else "not verified"
    return text, element(
        "span",
        element("span", mark, aria_hidden="true"),
        element("span", f" ({word})", class_="unseen"),
        class_="mark violated" if mark == "!" else "mark",
        title=word,
    )


def bullets(lines: Sequence[str], class_: str = "notes") -> Markup | str:
    """A list of sentences; nothing for none."""
    return element("ul", *(element("li", line) for line in lines), class_=class_) if lines else ""


def unseen(text: str) -> Markup:
    """Text for those who listen."""
    return element("span", text, class_="unseen")
