"""The page as a document: what is in it, without a browser."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from report_builder import HOSTILE, all_views, hostile, reference, sweep, two

from deepdraft.metrics import FIGURE_NAMES
from deepdraft.report import results_object
from deepdraft.report.html import html_page
from deepdraft.report.markup import visible
from deepdraft.report.subject import Subject
from deepdraft.report.view import Views

_VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Every element with its attributes and the text inside it."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs)
        element = {"tag": tag, "attrs": dict(attrs), "text": ""}
        self.elements.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **attrs):
        wanted = {name.replace("_", "-"): value for name, value in attrs.items()}
        return [
            one
            for one in self.elements
            if one["tag"] == tag and all(one["attrs"].get(name) == value for name, value in wanted.items())
        ]


@pytest.fixture(scope="module")
def full() -> Page:
    return Page(html_page(two(), all_views()))


def test_every_section_is_there(full):
    ids = [one["attrs"]["id"] for one in full.all("section")]
    assert ids == ["findings", "sweep", "charts", "comparison", "guards", "environment", "definitions"]
    for one in full.all("section"):
        assert one["attrs"]["aria-labelledby"] in {heading["attrs"].get("id") for heading in full.all("h2")}


def test_without_anything_handed_in_nothing_is_missing_or_empty():
    page = Page(html_page([Subject(name="plain", run=sweep())], Views()))
    ids = [one["attrs"]["id"] for one in page.all("section")]
    assert ids == ["sweep", "charts", "guards", "environment", "definitions"]
    assert "No rule found" not in "".join(one["text"] for one in page.all("main"))


def test_a_diagnosis_without_findings_says_so():
    page = Page(html_page([Subject(name="plain", run=sweep())], Views(is_explained=True)))
    (found,) = page.all("section", id="findings")
    assert "No rule found anything" in found["text"]


def test_a_run_without_figures_has_a_page():
    page = Page(html_page([Subject(name="none", run=sweep(lens=()))], Views()))
    assert "No point gave figures." in page.all("section", id="sweep")[0]["text"]
    assert not page.all("figure")


@pytest.mark.parametrize("subject", [reference(), Subject(name="drafter", run=sweep(is_drafting=True))])
def test_the_numbers_are_the_files(subject):
    """Every figure of the sweep's table against the JSON of the same file, to the last bit."""
    page = Page(html_page([subject], Views()))
    points = [point for point in results_object(subject.run)["points"] if any(point[name] for name in FIGURE_NAMES)]
    shown = {}
    for cell in page.elements:
        name = cell["attrs"].get("data-figure")
        if name:
            shown.setdefault(name, []).append(cell["attrs"].get("data-value"))
    for name, values in shown.items():
        expected = [
            point[name] if name == "context_len" else point[name] and point[name]["median"] for point in points
        ]
        assert [None if value is None else float(value) for value in values] == expected
    assert {"context_len", "ttft_s", "tpot_s", "decode_tok_s", "prefill_tok_s", "acceptance_len"} <= set(shown)


def test_the_policy_allows_its_own_script_and_style_and_nothing_else(full):
    policy = full.all("meta", http_equiv="Content-Security-Policy")[0]["attrs"]["content"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for name, element in (("script-src", full.all("script")[-1]), ("style-src", full.all("style")[0])):
        digest = base64.b64encode(hashlib.sha256(element["text"].encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'" and rules["base-uri"] == "'none'" and rules["form-action"] == "'none'"
    assert "unsafe" not in policy


def test_the_policy_comes_before_anything_it_governs(full):
    names = [one["tag"] for one in full.elements]
    place = full.elements.index(full.all("meta", http_equiv="Content-Security-Policy")[0])
    assert "script" not in names[:place] and "style" not in names[:place]


def test_nothing_points_outside(full):
    for one in full.elements:
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            assert one["attrs"].get(name, "#") in ("#", "#report", "data:,")
    assert "@import" not in full.all("style")[0]["text"] and "url(" not in full.all("style")[0]["text"]
    script = full.all("script")[-1]["text"]
    for call in (
        "fetch(",
        "XMLHttpRequest",
        "WebSocket",
        "importScripts",
        "innerHTML",
        "insertAdjacentHTML",
        "eval(",
    ):
        assert call not in script


def test_each_chart_has_a_label_and_a_table(full):
    figures = full.all("figure")
    assert len(figures) == 6
    plots = [one for one in full.all("div") if one["attrs"].get("class") == "plot"]
    assert len(plots) == 6
    assert all("Arrow keys" in one["attrs"]["aria-label"] and one["attrs"]["tabindex"] == "0" for one in plots)
    for figure in figures:
        assert figure["attrs"]["aria-labelledby"] in {one["attrs"].get("id") for one in full.all("h3")}
        assert "Table of these figures" in figure["text"]
    captions = {one["text"] for one in full.all("caption")}
    assert "Time to first token: TTFT" in captions
    assert all(one["attrs"].get("scope") in ("row", "col") for one in full.all("th"))


def test_findings_carry_evidence_remedy_and_causes(full):
    (section,) = full.all("section", id="findings")
    for said in (
        "D104",
        "warning",
        "What to do",
        "Evidence (1)",
        "Possible cause",
        "It predicts",
        "decides",
        "severe",
    ):
        assert said in section["text"]


def test_guards_say_their_state_in_words(full):
    states = [one for one in full.all("td") if "data-state" in one["attrs"]]
    assert {one["attrs"]["data-state"] for one in states} >= {"verified", "not_verifiable"}
    for one in states:
        assert one["attrs"]["data-state"].replace("_", " ") in one["text"]


def test_the_same_file_gives_the_same_page():
    assert html_page(two(), all_views()) == html_page(two(), all_views())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_makes_no_element_and_no_attribute(text):
    def skeleton(word):
        page = Page(html_page([hostile(word), hostile(word)], all_views(word)))
        scripts = [one["text"] for one in page.all("script") if one["attrs"].get("type") != "application/json"]
        names = [(one["tag"], sorted(one["attrs"])) for one in page.elements]
        return page, scripts, names

    page, scripts, names = skeleton(text)
    _, plain_scripts, plain_names = skeleton("words")
    assert names == plain_names and scripts == plain_scripts
    assert visible(text).strip() in page.all("body")[0]["text"]
    data = page.all("script", type="application/json")[0]["text"]
    assert not re.search(r"[<>&\u2028\u2029]", data)
    assert any(visible(text) in one["name"] for chart in json.loads(data) for one in chart["series"])


def test_no_attribute_of_the_page_runs_anything(full):
    for one in full.elements:
        assert not any(name.startswith("on") or name == "style" for name in one["attrs"])


def test_the_licence_of_what_is_bundled_comes_along():
    from importlib.resources import files

    vendor = files("deepdraft.report") / "page" / "vendor"
    assert "MIT" in vendor.joinpath("LICENSE.uplot").read_text()
    assert re.match(r"uPlot \d+\.\d+\.\d+, MIT", vendor.joinpath("VERSION").read_text())
