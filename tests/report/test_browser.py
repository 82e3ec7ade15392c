"""The report in Chromium."""

import base64
import json
import os
import subprocess
import sys
import time

import pytest

from assay.report import write
from tests.browser import OTHERS, OWN, Page, browser, keep, screenshots
from tests.checks import made

from .conftest import LABELS, READ, WORDS

__all__ = ["browser", "screenshots"]

FIRST = WORDS.index("rejected")
OUTSIDE = WORDS.index("outside")
VERDICTS = ("rejected", "passed", "inconclusive", "outside")


@pytest.fixture(scope="module")
def files(check, bare, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    thirty = made((VERDICTS * 8)[:30], 3, classifier=True)
    reports = {"whole": check, "bare": bare, "thirty": thirty}
    reports |= {word: made((word,), 3, classifier=True) for word in VERDICTS}
    for name, found in reports.items():
        write(found, folder / f"{name}.html")
    return folder


@pytest.fixture
def opened(browser, files):
    return Page(browser, files / "whole.html")


@pytest.fixture
def narrow(browser):
    """A window as wide as a telephone."""
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield browser
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def visible(page):
    """The figures that can be seen."""
    return {key for key in (*OWN, *OTHERS) if page.find(f"#plot-{key}").is_displayed()}


def texts(page, selector):
    return page.run(
        "[...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )


def test_all_figures_appear_without_an_error(opened):
    opened.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    opened.wait("!!document.querySelector('#plot-null svg')")
    for key in (*OWN, *OTHERS):
        assert opened.run("!!document.querySelector('#plot-' + arguments[0] + ' svg')", key), key
    assert visible(opened) == {*OWN, *OTHERS}
    assert opened.errors() == []


def test_nothing_is_asked_of_a_network(opened):
    opened.find("#next").click()
    opened.find("#theme").click()
    assert opened.network_requests() == []


@pytest.mark.parametrize("word", VERDICTS)
def test_every_verdict(browser, files, screenshots, word):
    page = Page(browser, files / f"{word}.html")
    assert page.heading.split() == [word, "x_o"]
    own = set() if word == "outside" else set(OWN) - {"null"}
    assert visible(page) == own | set(OTHERS)
    assert page.find("#picture").is_displayed() == (word != "outside")
    assert "Next:" in page.text
    assert page.errors() == []
    keep(page, screenshots / f"{word}.png")


def test_missing_parts_leave_no_errors(browser, files):
    page = Page(browser, files / "bare.html")
    assert page.errors() == []
    assert {key for key, figure in page.figures.items() if figure} == {"forest", "near"}


class TestNames:
    def test_they_are_text(self, opened):
        from selenium.common.exceptions import NoAlertPresentException

        with pytest.raises(NoAlertPresentException):
            _ = opened.driver.switch_to.alert
        for name in (*READ, *LABELS):
            assert name in opened.run("document.querySelector('main').textContent")
        assert opened.run("document.querySelectorAll('script').length") == 3
        assert opened.run("document.querySelectorAll('main img, .plot a, h2 b').length") == 0

    def test_so_they_are_in_figures(self, opened):
        """Whatever Plotly reads as tags or entities is read back as it was written."""
        assert set(texts(opened, "#plot-forest .ytick text")) == {"<script>al…ript>", *READ[1:]}
        titles = "".join(texts(opened, "#plot-pairs .g-xtitle, #plot-pairs [class^=g-x] text"))
        assert "θ" in titles
        assert 'a & "b"' in titles
        assert set(READ) <= set(texts(opened, ".key span"))
        assert LABELS[0] in "".join(texts(opened, "#plot-places .textpoint text"))


class TestChoosing:
    """One observation is selected at a time; the most urgent first."""

    def test_buttons_and_keys(self, opened, check):
        from selenium.webdriver.common.keys import Keys

        order = check.urgency
        before = opened.figures
        assert LABELS[order[0]] in opened.heading
        opened.find("#next").click()
        assert LABELS[order[1]] in opened.heading
        assert all(opened.figures[key] != before[key] for key in ("forest", "near"))
        opened.find("body").send_keys(Keys.ARROW_RIGHT)
        assert LABELS[order[2]] in opened.heading
        assert opened.run("window.location.hash") == f"#observation-{order[2]}"
        # Nothing is drawn of what is outside.
        assert order[2] == OUTSIDE
        assert visible(opened) == set(OTHERS)
        opened.find("body").send_keys(Keys.ARROW_LEFT)
        opened.find("#previous").click()
        assert opened.figures == before
        opened.find("#previous").click()
        assert LABELS[order[-1]] in opened.heading
        assert LABELS[order[-1]] in opened.run(
            "document.getElementById('announcement').textContent"
        )

    def test_the_list(self, opened):
        from selenium.webdriver.common.keys import Keys

        opened.find("a[href='#observation-1']").send_keys(Keys.ENTER)
        assert LABELS[1] in opened.heading
        assert opened.run("document.activeElement.closest('article').id") == "observation-1"
        current = (
            "[...document.querySelectorAll('tr[aria-current]')].map(e => e.dataset.observation)"
        )
        assert opened.run(current) == ["1"]

    def test_the_list_is_sorted(self, opened, check):
        rows = "[...document.querySelectorAll('#table tbody tr')].map(e => +e.dataset.observation)"
        assert opened.run(rows) == check.urgency
        for column, expected in (
            (0, sorted(range(5), key=lambda i: LABELS[i])),
            (1, check.urgency),
        ):
            button = opened.find(f"button[data-column='{column}']")
            button.click()
            assert opened.run(rows) == expected
            button.click()
            assert opened.run(rows) == expected[::-1]

    def test_an_address(self, browser, files):
        browser.get("about:blank")
        browser.get(f"{(files / 'whole.html').as_uri()}#observation-1")
        page = Page.__new__(Page)
        page.driver = browser
        page.wait("document.documentElement.dataset.ready === 'true'")
        assert LABELS[1] in page.heading

    def test_the_map(self, opened):
        from selenium.webdriver.common.action_chains import ActionChains

        opened.run("document.getElementById('plot-places').scrollIntoView({block: 'center'})")
        x, y = opened.run(
            """(() => {
              const plot = document.getElementById("plot-places"), full = plot._fullLayout;
              const trace = plot.data.find((t) => (t.customdata || []).includes(arguments[0]));
              const at = trace.customdata.indexOf(arguments[0]);
              const box = plot.getBoundingClientRect();
              const x = box.left + full.xaxis._offset + full.xaxis.l2p(trace.x[at]);
              const y = box.top + full.yaxis._offset + full.yaxis.l2p(trace.y[at]);
              return [Math.round(x), Math.round(y)];
            })()""",
            0,
        )
        chain = ActionChains(opened.driver, duration=50)
        chain.w3c_actions.pointer_action.move_to_location(x - 3, y)
        chain.w3c_actions.pointer_action.move_to_location(x, y)
        chain.perform()
        opened.wait("document.querySelectorAll('#plot-places .hoverlayer .hovertext').length > 0")
        chain.click().perform()
        opened.wait("!document.getElementById('observation-0').hidden")
        assert LABELS[0] in opened.heading


def test_thirty_observations(browser, files, screenshots):
    page = Page(browser, files / "thirty.html")
    assert page.run("document.querySelectorAll('#table tbody tr').length") == 30
    # The list does not push the answer off the screen.
    assert page.find("#answer h2").is_displayed()
    box = page.run("document.querySelector('.list').getBoundingClientRect().height")
    assert box <= 400
    assert page.run("document.querySelector('#answer').getBoundingClientRect().top") < 700
    assert page.errors() == []
    keep(page, screenshots / "thirty.png")


def luminance(colour):
    """The relative luminance of WCAG 2.1."""
    parts = [int(c) / 255 for c in colour[4:-1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


class TestColours:
    PAPER = "getComputedStyle(document.body).backgroundColor"
    INK = "document.getElementById('plot-pp')._fullLayout.font.color"

    def test_dark_and_light(self, opened, screenshots):
        light = opened.run(self.PAPER), opened.run(self.INK)
        opened.find("#theme").click()
        dark = opened.run(self.PAPER), opened.run(self.INK)
        keep(opened, screenshots / "dark.png")
        assert light[0] != dark[0]
        assert light[1] != dark[1]
        opened.find("#theme").click()
        assert (opened.run(self.PAPER), opened.run(self.INK)) == light

    def test_the_system_says_dark(self, browser, files):
        media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        try:
            page = Page(browser, files / "whole.html")
            assert page.run("document.documentElement.dataset.theme") == "dark"
            assert page.find("#theme").text == "Light"
        finally:
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def test_text_has_contrast_in_both(self, opened):
        color = "getComputedStyle(document.querySelector(arguments[0])).color"
        badges = "[...document.querySelectorAll('.badge svg')].map(e => getComputedStyle(e).color)"
        for _ in range(2):
            paper = opened.run(self.PAPER)
            for selector in ("p", ".note", "figcaption", "a", ".badge", "th", "caption", ".key"):
                assert contrast(opened.run(color, selector), paper) >= 4.5, selector
            assert all(contrast(ink, paper) >= 3 for ink in set(opened.run(badges)))
            opened.find("#theme").click()


class TestNarrow:
    @pytest.mark.parametrize("name", ["whole", "rejected", "outside", "thirty"])
    def test_it_does_not_scroll_sideways(self, narrow, files, screenshots, name):
        page = Page(narrow, files / f"{name}.html")
        assert page.run("document.documentElement.scrollWidth") <= 390
        keep(page, screenshots / f"{name}-narrow.png")

    def test_titles_of_axes_have_room(self, narrow, files):
        page = Page(narrow, files / "rejected.html")
        for key in ("forest", "near"):
            boxes = page.run(
                "[...document.querySelectorAll(`#plot-${arguments[0]} [class*='title'] text`)]"
                ".map(e => e.getBoundingClientRect()).filter(b => b.width)"
                ".map(b => [b.left, b.top, b.right, b.bottom])",
                key,
            )
            assert len(boxes) >= 3
            for i, (left, top, right, bottom) in enumerate(boxes):
                assert left >= 0
                assert right <= 390
                for other in boxes[:i]:
                    apart = (
                        other[2] <= left or right <= other[0],
                        other[3] <= top or bottom <= other[1],
                    )
                    assert any(apart), (key, boxes)


class TestPaper:
    def test_it_prints_in_light_colours(self, opened, screenshots):
        opened.find("#theme").click()
        options = {"printBackground": True, "preferCSSPageSize": True}
        pdf = base64.b64decode(opened.driver.execute_cdp_cmd("Page.printToPDF", options)["data"])
        (screenshots / "print.pdf").write_bytes(pdf)
        assert pdf.startswith(b"%PDF")
        assert len(pdf) > 50_000
        # What printing changed is as it was.
        opened.wait("document.documentElement.dataset.theme === 'dark'")

    def test_it_holds_every_observation(self, opened):
        count = "[...document.querySelectorAll(arguments[0])].filter(e => !e.hidden).length"
        # The selected one has all its figures, the others two, and one is outside.
        for event, visible_articles, figures in (("beforeprint", 5, 6), ("afterprint", 1, 0)):
            opened.run("void window.dispatchEvent(new Event(arguments[0]))", event)
            assert opened.run(count, "article") == visible_articles
            assert opened.run(count, "figure.printed .main-svg:first-of-type") == figures


def test_figures_and_numbers_can_be_taken_along(opened, tmp_path, check):
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    opened.driver.execute_cdp_cmd("Page.setDownloadBehavior", where)
    for button in ("#save-csv", "#save-json", "button[data-of='forest'][data-format='svg']"):
        opened.run("document.querySelector(arguments[0]).click()", button)
    deadline = time.monotonic() + 20
    while len(done := [p for p in tmp_path.iterdir() if p.suffix != ".crdownload"]) < 3:
        assert time.monotonic() < deadline, done
        time.sleep(0.1)
    head, *table = (tmp_path / "check.csv").read_text(encoding="utf-8").splitlines()
    assert head == "observation,verdict,kind,parameters,value,lower,upper"
    rows = [one["rows"] for one in check.record["observations"]]
    assert len(table) == sum(map(len, rows))
    assert rows[OUTSIDE] == []
    record = json.loads((tmp_path / "check.json").read_text(encoding="utf-8"))
    assert [one["label"] for one in record["observations"]] == list(LABELS)
    (figure,) = tmp_path.glob("forest-*.svg")
    assert figure.read_text(encoding="utf-8").startswith("<svg")


def test_without_scripts_there_are_the_answers(browser, files):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get((files / "whole.html").as_uri())
        text = browser.find_element("css selector", "main").text
        assert all(label in text for label in LABELS)
        box = "return document.querySelector('.warning').getBoundingClientRect().height"
        assert browser.execute_script(box) > 20
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize(("ci", "outcome"), [("1", "failed"), ("", "skipped")])
def test_a_missing_browser(tmp_path, ci, outcome):
    """It is a failure in continuous integration, and a skip elsewhere."""
    (tmp_path / "test_it.py").write_text(
        "from tests.browser import browser\n\n\ndef test_it(browser):\n    pass\n"
    )
    environment = {**os.environ, "CI": ci, "PATH": str(tmp_path), "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", tmp_path / "test_it.py"],
        env=environment,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "no chromium and no chromedriver" in done.stdout
    assert ("1 skipped" in done.stdout) == (outcome == "skipped")
    assert ("1 error" in done.stdout) == (outcome == "failed")
