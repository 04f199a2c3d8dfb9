"""The page in a real headless Chromium: it renders, is silent, asks nobody anything, and no file can script it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess

import pytest
from report_builder import HOSTILE, all_views, hostile, reference, sweep, two

from deepdraft.report import results_object
from deepdraft.report.html import html_page
from deepdraft.report.number import ms_text
from deepdraft.report.subject import Subject
from deepdraft.report.view import Views

webdriver = pytest.importorskip("selenium.webdriver", reason="the browser is driven by selenium")
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")
if CHROMIUM is None or DRIVER is None:
    pytest.skip("no Chromium with its chromedriver here", allow_module_level=True)

CANVAS = "return [...document.querySelectorAll('canvas')].map((one) => one.toDataURL())"
WIDTH = "return [document.documentElement.scrollWidth, window.innerWidth]"


class Browser:
    """One Chromium, and what it said since it was last asked."""

    def __init__(self):
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in ("--headless=new", "--disable-gpu", "--disable-background-networking", "--no-first-run"):
            options.add_argument(flag)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")  # Chromium refuses its sandbox to root
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.driver.set_page_load_timeout(60)
        self.driver.set_script_timeout(30)
        self.cdp(
            "Page.addScriptToEvaluateOnNewDocument", source="window.hacked = () => { window.wasHacked = true; };"
        )

    def cdp(self, command, **arguments):
        return self.driver.execute_cdp_cmd(command, arguments)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def show(self, path, *, width=1100, theme="light", media=""):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.cdp("Emulation.setEmulatedMedia", features=features, media=media)
        is_phone = width < 500
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=is_phone)
        self.requests()
        self.console()
        self.driver.get(path.as_uri())
        return self

    def settle(self):
        """Wait until what a resize or a change of theme set off has been drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def console(self):
        return [line["message"] for line in self.driver.get_log("browser")]

    def requests(self):
        """Every URL asked for."""
        events = [json.loads(line["message"])["message"] for line in self.driver.get_log("performance")]
        return [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector)


@pytest.fixture(scope="module")
def browser():
    started = Browser()
    yield started
    started.driver.quit()


def received(listener):
    """Every byte that anybody sends to it, until a second has passed without a new connection."""
    sent = b""
    while True:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            return sent
        with connection:
            connection.settimeout(1.0)
            with contextlib.suppress(TimeoutError):
                sent += connection.recv(4096)


def written(folder, name, subjects, views):
    path = folder / f"{name}.html"
    path.write_text(html_page(subjects, views), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    text = " ".join(HOSTILE)
    return {
        "full": written(folder, "full", two(), all_views()),
        "reference": written(folder, "reference", [reference()], Views()),
        "bare": written(folder, "bare", [Subject(name="none", run=sweep(lens=()))], Views()),
        "hostile": written(folder, "hostile", [hostile(text), hostile(text)], all_views(text)),
    }


@pytest.mark.parametrize("name", ["full", "reference", "bare", "hostile"])
def test_it_renders_in_silence_and_asks_nobody(browser, pages, name):
    browser.show(pages[name]).settle()
    assert browser.console() == []
    asked = [url for url in browser.requests() if not url.startswith("data:")]
    assert asked == [pages[name].as_uri()]
    assert browser.run("return document.querySelectorAll('canvas').length") == len(browser.texts("figure.chart"))
    assert browser.run("return Boolean(window.wasHacked)") is False


def test_the_charts_are_drawn(browser, pages):
    browser.show(pages["full"]).settle()
    inks = browser.run(
        """return [...document.querySelectorAll('canvas')].map((one) => {
             const pixels = one.getContext('2d').getImageData(0, 0, one.width, one.height).data;
             const colours = new Set();
             for (let at = 0; at < pixels.length; at += 4)
               if (pixels[at + 3] === 255) colours.add(`${pixels[at]},${pixels[at + 1]},${pixels[at + 2]}`);
             return [...colours];
           })"""
    )
    blue, orange, green = "11,92,173", "194,65,12", "28,124,84"
    tpot, acceptance, attribution = inks[1], inks[2], inks[4]
    assert blue in tpot and orange in tpot
    assert orange in acceptance and blue not in acceptance  # the run without a drafter has none
    assert {blue, orange, green} <= set(attribution)


def test_the_numbers_on_the_page_are_the_files(browser, pages):
    browser.show(pages["reference"])
    points = results_object(reference().run)["points"]
    shown = browser.run(
        """return [...document.querySelectorAll('#sweep [data-figure="tpot_s"]')]
             .map((one) => [one.dataset.value ?? null, one.textContent])"""
    )
    expected = [point["tpot_s"]["median"] if point["tpot_s"] else None for point in points]
    assert [None if value is None else float(value) for value, _ in shown] == expected
    assert [text for _, text in shown] == [ms_text(value) for value in expected]


def test_hover_reads_the_nearest_point(browser, pages):
    from selenium.webdriver.common.action_chains import ActionChains

    browser.show(pages["reference"]).settle()
    over = browser.driver.find_elements("css selector", ".plot .u-over")[1]
    browser.run("arguments[0].scrollIntoView({block: 'center'})", over)
    ActionChains(browser.driver).move_to_element_with_offset(over, over.size["width"] // 2 - 12, 0).perform()
    browser.settle()
    tip = over.find_element("css selector", ".tip")
    assert tip.is_displayed()
    assert tip.text.splitlines()[0] == "context length (tokens): 185k"
    assert "1429 ms" in tip.text


def test_keys_read_every_point_in_turn(browser, pages):
    from selenium.webdriver.common.keys import Keys

    browser.show(pages["reference"]).settle()
    plot = browser.driver.find_elements("css selector", ".plot")[1]
    browser.run("arguments[0].focus()", plot)
    read = []
    for _ in range(7):  # once more than there are points: it stays at the last
        plot.send_keys(Keys.ARROW_RIGHT)
        read.append(browser.texts(".reading")[1].split(":")[0])
    assert read == ["1.4k", "11k", "32k", "64k", "128k", "185k", "185k"]
    plot.send_keys(Keys.HOME)
    assert "8.43 ms" in browser.texts(".reading")[1]
    plot.send_keys(Keys.ESCAPE)
    assert browser.texts(".reading")[1] == ""


def test_series_and_axes_switch(browser, pages):
    browser.show(pages["full"]).settle()
    before = browser.run(CANVAS)
    buttons = browser.driver.find_elements("css selector", "figure[data-chart=tpot] .toggle")
    assert [one.text for one in buttons] == [
        "plain",
        "plain, fitted law",
        "plain, device floor",
        "drafter",
        "log x",
        "log y",
    ]
    seen = [before[1]]
    for button in (buttons[0], buttons[4], buttons[5]):
        was = button.get_attribute("aria-pressed")
        browser.run("arguments[0].click()", button)
        browser.settle()
        assert {was, button.get_attribute("aria-pressed")} == {"true", "false"}
        now = browser.run(CANVAS)
        assert now[1] not in seen
        assert now[0] == before[0]  # the other charts stay
        seen.append(now[1])
    for button in (buttons[0], buttons[4], buttons[5]):
        browser.run("arguments[0].click()", button)
    browser.settle()
    assert browser.run(CANVAS)[1] == before[1]


def test_light_and_dark_by_preference_and_by_hand(browser, pages):
    paper = "return getComputedStyle(document.body).backgroundColor"
    browser.show(pages["full"], theme="dark").settle()
    dark = browser.run(CANVAS)
    assert browser.run(paper) == "rgb(20, 23, 27)"
    browser.show(pages["full"], theme="light").settle()
    light = browser.run(CANVAS)
    assert browser.run(paper) == "rgb(255, 255, 255)"
    assert all(one != other for one, other in zip(light, dark, strict=True))
    button = browser.driver.find_element("id", "theme")
    assert button.get_attribute("aria-label") == "Switch to dark colours"
    button.click()
    browser.settle()
    assert browser.run(paper) == "rgb(20, 23, 27)"
    assert browser.run(CANVAS) == dark


@pytest.mark.parametrize("name", ["full", "reference", "bare", "hostile"])
def test_a_phone_scrolls_down_and_never_sideways(browser, pages, name):
    browser.show(pages[name], width=390).settle()
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.run(WIDTH) == [390, 390]


def test_charts_follow_the_width(browser, pages):
    browser.show(pages["full"]).settle()
    browser.cdp("Emulation.setDeviceMetricsOverride", width=600, height=900, deviceScaleFactor=1, mobile=False)
    browser.settle()
    browser.settle()
    assert browser.run("return Math.max(...[...document.querySelectorAll('canvas')].map((one) => one.width))") <= 600
    assert browser.run(WIDTH)[0] <= 600


def test_print_is_light_with_every_table_and_no_buttons(browser, pages, tmp_path):
    browser.show(pages["full"], theme="dark").settle()
    browser.run(
        """window.printed = {};
           addEventListener('beforeprint', () => {
             window.printed = {theme: document.documentElement.dataset.theme,
                               closed: document.querySelectorAll('details:not([open])').length};
           })"""
    )
    browser.cdp("Emulation.setEmulatedMedia", media="print")
    assert browser.run("return getComputedStyle(document.querySelector('.controls')).display") == "none"
    assert browser.run("return getComputedStyle(document.getElementById('theme')).display") == "none"
    browser.cdp("Emulation.setEmulatedMedia", media="")
    pdf = base64.b64decode(browser.cdp("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF-")
    assert browser.run("return window.printed") == {"theme": "light", "closed": 0}
    assert browser.run("return document.documentElement.dataset.theme ?? null") is None
    if shutil.which("pdftotext") is not None:
        (tmp_path / "page.pdf").write_bytes(pdf)
        said = subprocess.run(["pdftotext", "-layout", tmp_path / "page.pdf", "-"], capture_output=True, text=True)
        assert "Acceptance by depth" in said.stdout
        assert "It predicts" in said.stdout  # of a closed part
        assert "22.8 ms" in said.stdout  # of a chart's table


def test_charts_are_named_to_those_who_listen(browser, pages):
    browser.show(pages["full"])
    tree = browser.cdp("Accessibility.getFullAXTree")["nodes"]
    named = [(one["role"]["value"], one.get("name", {}).get("value", "")) for one in tree if not one["ignored"]]
    figures = [name for role, name in named if role == "figure"]
    assert figures[:2] == ["Time to first token", "Time a token while decoding"]
    assert len([name for role, name in named if role == "group" and "Arrow keys move" in name]) == 6
    assert all(name for role, name in named if role in ("button", "table", "region", "heading"))
    tables = browser.run(
        "return [...document.querySelectorAll('figure.chart')].map((one) => one.querySelectorAll('table').length)"
    )
    assert tables == [1] * 6


def test_without_a_script_the_tables_stand_open(browser, pages):
    browser.cdp("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.show(pages["full"])
        open_tables = browser.driver.find_elements("css selector", "figure.chart > details[open] table")
        assert len(open_tables) == 6
        assert all(one.is_displayed() for one in open_tables)
        assert not browser.driver.find_element("id", "theme").is_displayed()
    finally:
        browser.cdp("Emulation.setScriptExecutionDisabled", value=False)


def test_a_hostile_file_scripts_nothing(browser, pages):
    """Neither as the page loads, nor by what a reader does with it."""
    browser.show(pages["hostile"]).settle()
    browser.run(
        """for (const one of document.querySelectorAll('details')) one.open = true;
           for (const one of document.querySelectorAll('.plot')) {
             one.focus();
             for (const key of ['Home', 'ArrowRight', 'End'])
               one.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
           }
           for (const one of document.querySelectorAll('*'))
             for (const type of ['mouseover', 'load', 'error', 'focus'])
               one.dispatchEvent(new Event(type));
           for (const one of document.querySelectorAll('button')) one.click();"""
    )
    browser.settle()
    assert browser.run("return Boolean(window.wasHacked)") is False
    assert browser.run("return document.querySelectorAll('img, svg, iframe, object, a:not(.skip)').length") == 0
    assert browser.run("return document.scripts.length") == 2
    assert browser.console() == []
    assert "<script>hacked()</script>" in browser.texts("h1, .identity")[1]


def test_should_markup_slip_in_the_policy_stops_it(browser, pages):
    """The second wall: what the first keeps out is put in by hand. Whether a request leaves is asked of a listener:
    for a frame or form that it refuses Chromium may still have opened a connection beforehand, and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(1.0)
        browser.show(pages["reference"]).settle()
        browser.run(
            """const made = document.createElement('div');
               const there = `http://127.0.0.1:${arguments[0]}/`;
               made.innerHTML = `<img src="x" onerror="hacked()"><img src="${there}"><iframe src="${there}"></iframe>`
                 + `<link rel="stylesheet" href="${there}"><form action="${there}"></form>`;
               document.body.append(made);
               const script = document.createElement('script');
               script.textContent = 'hacked()';
               document.body.append(script);
               fetch(there).catch(() => {});
               made.querySelector('form').submit();""",
            listener.getsockname()[1],
        )
        browser.settle()
        assert received(listener) == b""
    assert browser.run("return Boolean(window.wasHacked)") is False
    refused = [message for message in browser.console() if "Content Security Policy" in message]
    for rule in ("img-src", "script-src", "form-action", "style-src"):
        assert any(rule in message for message in refused), rule
