"""The memory page: the bar is the device, every figure is in its table, and no text of a plan becomes markup."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from importlib.resources import files

import pytest
from report_builder import HOSTILE

from deepdraft.report.html_memory import frontier_charts, memory_page
from deepdraft.report.html_memory_bar import memory_bar
from deepdraft.report.memory_view import FrontierRow, MemoryGroup, MemoryPart, MemoryView

GIB = 2**30


def view(*, spike_gib: float = 4.5, reserve_gib: float = 4.2, word: str = "weights as loaded") -> MemoryView:
    part = MemoryPart(name=word, num_bytes=72 * GIB, certainty="measured", source=f"a log: {word}", error_bytes=GIB)
    return MemoryView(
        title=f"a model {word}",
        identity=f"SGLang --flag {word}",
        tone="fails",
        outcome="RUNS OUT OF MEMORY IN A PREFILL",
        summary=f"Will fail: {word}.",
        facts=(("KV pool", "218,484", "tokens"),),
        device_bytes=round((2 + 72 + 15 + 2 + reserve_gib) * GIB),
        groups=(
            MemoryGroup(label="outside", num_bytes=2 * GIB),
            MemoryGroup(label="weights", num_bytes=72 * GIB, parts=(part,)),
            MemoryGroup(label="KV pool", num_bytes=15 * GIB),
            MemoryGroup(label="buffers", num_bytes=2 * GIB),
            MemoryGroup(label="reserve", num_bytes=round(reserve_gib * GIB), kind="free"),
            MemoryGroup(label="prefill spike", num_bytes=round(spike_gib * GIB), kind="spike"),
        ),
        frontier=(
            FrontierRow(num_requests=1, context_len=200_000, bound_by="context limit"),
            FrontierRow(num_requests=2, context_len=109_242, bound_by="KV pool"),
        ),
        max_context_len=200_000,
        advice=(f"do {word}",),
        notes=(f"know {word}",),
    )


def rects(shown: MemoryView) -> dict[str, tuple[float, float]]:
    """Class -> (left, width) of the bar's rectangles."""
    root = ElementTree.fromstring(str(memory_bar(shown)))
    return {one.attrib["class"]: (float(one.attrib["x"]), float(one.attrib["width"])) for one in root.iter("rect")}


def edge(shown: MemoryView) -> float:
    root = ElementTree.fromstring(str(memory_bar(shown)))
    return next(float(one.attrib["x1"]) for one in root.iter("line") if one.attrib["class"] == "edge")


@pytest.mark.parametrize("spike_gib", [1.0, 4.5])
def test_widths_are_in_proportion(spike_gib) -> None:
    shown = view(spike_gib=spike_gib)
    found = rects(shown)
    assert found["part colour-1"][1] / found["part colour-2"][1] == pytest.approx(72 / 15, rel=0.02)
    assert found["spike"][1] / found["free"][1] == pytest.approx(spike_gib / 4.2, rel=0.05)
    assert found["spike"][0] == pytest.approx(found["free"][0], abs=0.2)
    assert (found["spike"][0] + found["spike"][1] > edge(shown) + 0.2) is (spike_gib > 4.2)


def test_nothing_leaves_the_picture() -> None:
    for spike_gib in (0.0, 3.0, 60.0):
        root = ElementTree.fromstring(str(memory_bar(view(spike_gib=spike_gib))))
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        for one in root.iter("rect"):
            assert 0 <= float(one.attrib["x"]) <= float(one.attrib["x"]) + float(one.attrib["width"]) <= width + 0.1
        for one in root.iter("text"):
            assert 0 <= float(one.attrib["x"]) <= width
            assert 0 < float(one.attrib["y"]) < height


def test_labels_do_not_lie_on_each_other() -> None:
    root = ElementTree.fromstring(str(memory_bar(view())))
    spans = [
        (float(one.attrib["y"]), float(one.attrib["x"]), 9 * len(one.text or "") / 2)
        for one in root.iter("text")
        if "class" not in one.attrib
    ]
    for place, (y, x, half) in enumerate(spans):
        for other_y, other_x, other_half in spans[place + 1 :]:
            assert y != other_y or abs(x - other_x) >= half + other_half


def test_what_does_not_fit_stands_behind_the_end_of_the_device() -> None:
    shown = view()
    overdrawn = MemoryView(
        **{
            **{name: getattr(shown, name) for name in MemoryView.__slots__},
            "device_bytes": 80 * GIB,
            "groups": (*shown.groups[:4], MemoryGroup(label="reserve", num_bytes=-11 * GIB, kind="free")),
        }
    )
    left, width = rects(overdrawn)["part colour-3"]
    assert edge(overdrawn) < left + width
    assert "free" not in rects(overdrawn)


def test_the_picture_is_named_and_told_in_words() -> None:
    root = ElementTree.fromstring(str(memory_bar(view())))
    assert root.attrib["role"] == "img"
    named = root.attrib["aria-labelledby"].split()
    told = {one.attrib["id"]: one.text or "" for one in root.iter() if "id" in one.attrib}
    assert set(named) == set(told)
    assert "weights 72.00 GiB" in told["bar-words"]
    assert "prefill spike 4.50 GiB" in told["bar-words"]


def test_the_table_has_every_figure_beside_the_picture() -> None:
    page = memory_page(view())
    table = page[page.index("<table") : page.index("</table>")]
    for words in ("outside", "weights as loaded", "72.00", "measured ± 1.00", "reserve", "prefill spike", "4.50"):
        assert words in table
    assert 'scope="row"' in table
    assert "<caption" in table


def test_the_frontier_is_a_chart_with_its_table() -> None:
    (chart,) = frontier_charts(view())
    assert chart.series[0].ys == (200_000.0, 109_242.0)
    page = memory_page(view())
    data = json.loads(re.search(r'id="chart-data">(.*?)</script>', page, re.DOTALL)[1])
    assert [one["name"] for one in data] == ["frontier"]
    assert "2 at once: 109,242 tokens each, by the KV pool" in page


def test_nothing_fits_and_there_is_no_chart() -> None:
    shown = view()
    empty = MemoryView(**{**{name: getattr(shown, name) for name in MemoryView.__slots__}, "frontier": ()})
    page = memory_page(empty)
    assert 'id="frontier"' not in page
    assert json.loads(re.search(r'id="chart-data">(.*?)</script>', page, re.DOTALL)[1]) == []


def test_the_page_loads_nothing_and_allows_only_itself() -> None:
    page = memory_page(view())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src &#x27;none&#x27;")
    body = page[page.index("<body") : page.index('id="chart-data"')]
    assert not re.search(r"\bstyle=|\bon\w+=|src=|url\(", body)
    assert re.findall(r'href="([^"]*)"', body) == ["#report"]


def test_words_of_a_plan_are_no_markup() -> None:
    plain = re.sub(r"weights as loaded", "", memory_page(view()))
    for word in HOSTILE:
        page = memory_page(view(word=word))
        assert re.findall(r"<(\w+)", page) == re.findall(r"<(\w+)", plain)


def test_colours_of_the_bar_are_those_that_can_be_seen() -> None:
    css = (files("deepdraft.report") / "page" / "memory.css").read_text()
    assert not re.search(
        r"#[0-9a-f]{3,6}\b(?!\w)(?=\s*;)", css
    )  # only the page's own, which are checked for contrast
    assert "var(--key)" in css
