"""The LaTeX document: escaping for certain, compiling where there is a LaTeX."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_builder import HOSTILE, all_views, hostile, reference, two

from deepdraft.report.latex import latex_text
from deepdraft.report.latex_escape import latex_escaped
from deepdraft.report.view import Views


def why_no_latex() -> str | None:
    if shutil.which("pdflatex") is None:
        return "no pdflatex here"
    for name in ("booktabs.sty", "pgfplots.sty", "longtable.sty", "geometry.sty"):
        found = subprocess.run(["kpsewhich", name], capture_output=True, text=True, check=False)
        if not found.stdout.strip():
            return f"pdflatex is here, its {name} is not"
    return None


_KNOWN = (
    "textbackslash|textasciicircum|textasciitilde|textless|textgreater|textbar|textquotedbl|textquotesingle|"
    "textasciigrave|textperiodcentered|textmu|textquoteright|allowbreak|times|geq|leq|pm|to|dots"
)
needs_latex = pytest.mark.skipif(why_no_latex() is not None, reason=why_no_latex() or "")


def compiled(text, folder):
    """The PDF's text, after as many passes as longtable wants."""
    (folder / "report.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "report.tex"]
    for _ in range(2):
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
        assert ran.returncode == 0, ran.stdout[-2000:]
    log = (folder / "report.log").read_text(errors="replace")
    assert "Missing character" not in log
    assert (folder / "report.pdf").read_bytes().startswith(b"%PDF-")
    if shutil.which("pdftotext") is None:
        return None
    return subprocess.run(["pdftotext", "report.pdf", "-"], cwd=folder, capture_output=True, text=True).stdout


@given(st.text())
def test_no_command_is_left_in_escaped_text(text):
    shown = latex_escaped(text)
    assert "\n" not in shown and shown.isprintable()
    rest = re.sub(rf"\\({_KNOWN})(\{{\}}|(?=\$))|\\texttt\{{\[U\+[0-9A-F]+\]\}}|\\[{{}}$&#%_]", "", shown)
    assert "\\" not in rest and not set(rest) & set("#%&_~^") - {"~", "^"}


def test_tables_and_figures_are_those_of_the_report():
    text = latex_text(two(), all_views())
    assert text.count(r"\begin{longtable}") == text.count(r"\toprule") == 2 + 1
    assert text.count(r"\begin{tikzpicture}") == 6
    assert r"\addlegendentry{plain, fitted law}" in text
    assert text.count("ybar stacked") == 1


@needs_latex
def test_the_reference_deployment_compiles(tmp_path):
    said = compiled(latex_text([reference()], Views()), tmp_path)
    if said is not None:
        assert "Kimi K2.6 (INT4 weights)" in said
        assert "118.6" in said and "6.4 min" in said


@needs_latex
def test_everything_handed_in_compiles(tmp_path):
    said = compiled(latex_text(two(), all_views()), tmp_path)
    if said is not None:
        assert "D104 decode grows words" in " ".join(said.split())


@needs_latex
def test_hostile_text_compiles_and_is_printed(tmp_path):
    """All of it at once, everywhere: each alone would take a minute."""
    text = " ".join(HOSTILE)
    said = compiled(latex_text([hostile(text), hostile("words")], all_views(text)), tmp_path)
    if said is not None:
        assert "root:" not in said
        assert "\\input{/etc/passwd}" in " ".join(said.split()).replace("- ", "-")
