"""Text of a results file as LaTeX that prints it and does nothing else."""

from __future__ import annotations

from deepdraft.report.markup import visible

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_\allowbreak{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "/": r"/\allowbreak{}",
    "-": "-{}",
    "–": "--",
    "—": "---",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "±": r"$\pm$",
    "·": r"\textperiodcentered{}",
    "µ": r"\textmu{}",
    "²": r"$^2$",
    "³": r"$^3$",
    "→": r"$\to$",
    "…": r"\dots{}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": r"\textquoteright{}",
    "\u00a0": "~",
}
_LETTERS = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ")


def latex_escaped(text: str) -> str:
    """One paragraph: line breaks become spaces."""
    return "".join(_character(character) for character in " ".join(visible(text).split()))


def _character(character: str) -> str:
    known = _SPECIAL.get(character)
    if known is not None:
        return known
    if character.isascii() or character in _LETTERS:
        return character
    return rf"\texttt{{[U+{ord(character):04X}]}}"
