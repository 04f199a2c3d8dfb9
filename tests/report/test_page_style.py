"""Contrast of the page's colours (WCAG 2.2, 1.4.3 and 1.4.11), read from its style sheet."""

import re
from importlib.resources import files

import pytest

CSS = (files("deepdraft.report") / "page" / "page.css").read_text()


def colours(selector):
    block = CSS.split(selector, 1)[1].split("}", 1)[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


THEMES = {"light": colours(":root {"), "dark": colours(':root[data-theme="dark"] {')}


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["ink", "faint", "accent", "bad", "warn", "good"])
def test_text_can_be_read(theme, name):
    assert contrast(THEMES[theme][name], THEMES[theme]["paper"]) >= 4.5
    assert contrast(THEMES[theme][name], THEMES[theme]["raised"]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("place", range(8))
def test_series_can_be_seen(theme, place):
    assert contrast(THEMES[theme][f"series-{place}"], THEMES[theme]["paper"]) >= 3


def test_dark_is_the_same_asked_for_or_preferred():
    preferred = colours(':root:not([data-theme="light"]) {')
    assert preferred == THEMES["dark"]
