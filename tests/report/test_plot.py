import xml.etree.ElementTree as ET

import pytest
from report_builder import HOSTILE, all_views, hostile, two

pytest.importorskip("matplotlib", reason="pictures need the extra `report`")

from deepdraft.report.charts import charts_of
from deepdraft.report.plot import plot_bytes

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def charts():
    return charts_of(two(), all_views())


def test_each_form_is_what_it_says(charts):
    assert plot_bytes(charts[:1], "png", "title").startswith(b"\x89PNG\r\n")
    assert plot_bytes(charts[:1], "pdf", "title").startswith(b"%PDF-")
    assert ET.fromstring(plot_bytes(charts[:1], "svg", "title")).tag == f"{SVG}svg"


def test_every_chart_has_its_own_axes(charts):
    root = ET.fromstring(plot_bytes(charts, "svg", "title"))
    axes = [one for one in root.iter(f"{SVG}g") if one.get("id", "").startswith("axes_")]
    assert len(axes) == len(charts) == 6


def test_the_same_charts_give_the_same_svg(charts):
    assert plot_bytes(charts, "svg", "title") == plot_bytes(charts, "svg", "title")


def test_no_chart_is_refused():
    with pytest.raises(ValueError, match="no chart"):
        plot_bytes((), "svg", "title")


@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
@pytest.mark.filterwarnings("ignore:.*constrained_layout not applied.*")
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_drawn_and_nothing_more(text):
    subjects = [hostile(text), hostile(text)]
    root = ET.fromstring(plot_bytes(charts_of(subjects, all_views(text))[:2], "svg", text))
    assert not [one for one in root.iter() if one.tag in (f"{SVG}script", f"{SVG}image", f"{SVG}a")]
    assert not [name for one in root.iter() for name in one.attrib if name.startswith("on")]


def test_the_global_settings_are_left_as_they_were(charts):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    plot_bytes(charts[:1], "svg", "title")
    assert dict(mpl.rcParams) == before
