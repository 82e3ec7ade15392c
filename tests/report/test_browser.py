"""The report in Chromium."""

import base64
import json
import time

import pytest

from assay.report import write
from tests.browser import OTHERS, OWN, Page, browser, keep, screenshots, unavailable
from tests.checks import made

from .conftest import LABELS, OUTSIDE, READ

__all__ = ["browser", "screenshots"]

VERDICTS = ("rejected", "passed", "inconclusive", "outside")
# The figures that are visible at first; the null is folded.
ALL = {*OTHERS, *OWN} - {"null"}
FIGURES = dict.fromkeys(("whole", "thirty", *VERDICTS), ALL)
FIGURES |= {"outside": set(OTHERS), "bare": {"forest", "near", "places"}}


@pytest.fixture(scope="module")
def files(check, bare, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    reports = {word: made((word,), 3, classifier=True) for word in VERDICTS}
    reports["thirty"] = made((VERDICTS * 8)[:30], 3, classifier=True)
    for name, found in {**reports, "whole": check, "bare": bare}.items():
        write(found, folder / f"{name}.html")
    return folder


@pytest.fixture
def opened(browser, files):
    return Page(browser, files / "whole.html")


def visible(page):
    """The figures that can be seen."""
    places = {key: page.driver.find_elements("id", f"plot-{key}") for key in (*OWN, *OTHERS)}
    return {key for key, found in places.items() if found and found[0].is_displayed()}


def texts(page, selector):
    elements = "[...document.querySelectorAll(arguments[0])]"
    return page.run(f"{elements}.map(e => e.textContent)", selector)


@pytest.mark.parametrize("name", FIGURES)
def test_every_page_has_its_figures_without_an_error(browser, files, screenshots, name):
    page = Page(browser, files / f"{name}.html")
    assert visible(page) == FIGURES[name]
    assert page.find("article:not([hidden]) h2").is_displayed()
    assert page.run("document.querySelector('#answer').getBoundingClientRect().top") < 700
    assert "Next:" in page.find("body").text
    page.find("#null-details summary").click()
    if name != "outside":
        page.wait("!!document.querySelector('#plot-null svg')")
    assert page.errors() == []
    assert page.network_requests() == []
    keep(page, screenshots / f"{name}.png")


@pytest.mark.parametrize("name", ["whole", "rejected", "outside", "thirty"])
def test_a_window_as_wide_as_a_telephone(browser, files, screenshots, name):
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    page = Page(browser, files / f"{name}.html", setDeviceMetricsOverride=size)
    assert page.run("document.documentElement.scrollWidth") <= 390
    keep(page, screenshots / f"{name}-narrow.png")
    for key in {"forest", "near"} & visible(page):
        titles = page.driver.find_elements("css selector", f"#plot-{key} [class*='title'] text")
        boxes = [title.rect for title in titles if title.rect["width"]]
        ends = [(b["x"], b["y"], b["x"] + b["width"], b["y"] + b["height"]) for b in boxes]
        assert ends
        for i, (left, top, right, bottom) in enumerate(ends):
            assert 0 <= left < right <= 390
            for x0, y0, x1, y1 in ends[:i]:
                assert x1 <= left or right <= x0 or y1 <= top or bottom <= y0, (key, ends)


def test_names_are_text_on_the_page_and_in_figures(opened):
    from selenium.common.exceptions import NoAlertPresentException

    with pytest.raises(NoAlertPresentException):
        _ = opened.driver.switch_to.alert
    assert all(name in texts(opened, "main")[0] for name in (*READ, *LABELS))
    assert len(texts(opened, "script")) == 3
    assert texts(opened, "main img, .plot a, h2 b") == []
    # Whatever Plotly reads as tags or entities is read back as it was written.
    assert set(texts(opened, "#plot-forest .ytick text")) == {"<script>al…ript>", *READ[1:]}
    titles = "".join(texts(opened, "#plot-pairs .g-xtitle, #plot-pairs [class^=g-x] text"))
    assert all(name in titles for name in READ[1:])
    assert set(READ) <= set(texts(opened, ".key span"))
    assert LABELS[0] in "".join(texts(opened, "#plot-places .textpoint text"))


class TestChoosing:
    """One observation is selected at a time; the most urgent first."""

    def test_buttons_and_keys(self, opened, check):
        from selenium.webdriver.common.keys import Keys

        order, before = check.urgency, opened.figures
        assert LABELS[order[0]] in opened.heading
        opened.find("#next").click()
        assert LABELS[order[1]] in opened.heading
        assert all(opened.figures[key] != before[key] for key in ("forest", "near"))
        opened.find("body").send_keys(Keys.ARROW_RIGHT)
        assert opened.run("window.location.hash") == f"#observation-{order[2]}"
        # Nothing is drawn of what is outside.
        assert order[2] == OUTSIDE
        assert visible(opened) == set(OTHERS)
        opened.find("body").send_keys(Keys.ARROW_LEFT)
        opened.find("#previous").click()
        assert opened.figures == before
        opened.find("#previous").click()
        assert LABELS[order[-1]] in opened.heading
        assert LABELS[order[-1]] in texts(opened, "#announcement")[0]

    def test_the_list_is_sorted_and_leads_to_each(self, opened, check, browser, files):
        from selenium.webdriver.common.keys import Keys

        rows = "[...document.querySelectorAll('#table tbody tr')].map(e => +e.dataset.observation)"
        assert opened.run(rows) == check.urgency
        for column, order in enumerate((sorted(range(5), key=LABELS.__getitem__), check.urgency)):
            for expected in (order, order[::-1]):
                opened.find(f"button[data-column='{column}']").click()
                assert opened.run(rows) == expected
        opened.find("a[href='#observation-1']").send_keys(Keys.ENTER)
        assert LABELS[1] in opened.heading
        assert opened.run("document.activeElement.closest('article').id") == "observation-1"
        assert texts(opened, "tr[aria-current] a") == [LABELS[1]]
        browser.get("about:blank")
        assert LABELS[1] in Page(browser, files / "whole.html", "#observation-1").heading


def contrast(*colours):
    """The contrast of two colours by their relative luminance, WCAG 2.1."""
    luminances = []
    for colour in colours:
        parts = [int(c) / 255 for c in colour[4:-1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)


def test_dark_and_light_have_contrast_and_the_system_chooses(opened, browser, files):
    inks = "[...document.querySelectorAll(arguments[0])].map(e => getComputedStyle(e).color)"
    schemes = []
    for _ in range(3):
        paper = opened.run("getComputedStyle(document.body).backgroundColor")
        schemes.append(
            {paper, opened.run("document.querySelector('#plot-pp')._fullLayout.font.color")}
        )
        for selector in ("p", ".note", "figcaption", "a", ".badge", "th", "caption", ".key"):
            assert contrast(opened.run(inks, selector)[0], paper) >= 4.5, selector
        assert all(contrast(ink, paper) >= 3 for ink in set(opened.run(inks, ".badge svg")))
        opened.find("#theme").click()
    light, dark, again = schemes
    assert light == again
    assert not light & dark
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page = Page(browser, files / "whole.html", setEmulatedMedia=media)
    assert page.run("document.documentElement.dataset.theme") == "dark"
    assert page.find("#theme").text == "Light"


def test_paper_has_every_observation_and_leaves_the_screen_as_it_was(opened, screenshots):
    opened.find("#theme").click()
    options = {"printBackground": True, "preferCSSPageSize": True}
    pdf = base64.b64decode(opened.driver.execute_cdp_cmd("Page.printToPDF", options)["data"])
    (screenshots / "print.pdf").write_bytes(pdf)
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    opened.wait("document.documentElement.dataset.theme === 'dark'")
    count = "[...document.querySelectorAll(arguments[0])].filter(e => !e.hidden).length"
    # The selected one has all its figures, the others two, and one is outside.
    for event, articles, figures in (("beforeprint", 5, 6), ("afterprint", 1, 0)):
        opened.run("void window.dispatchEvent(new Event(arguments[0]))", event)
        assert opened.run(count, "article") == articles
        assert opened.run(count, "figure.printed .main-svg:first-of-type") == figures


def test_figures_and_numbers_can_be_taken_along(opened, tmp_path, check):
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    opened.driver.execute_cdp_cmd("Page.setDownloadBehavior", where)
    for button in ("#save-csv", "#save-json", "button[data-of='forest'][data-format='svg']"):
        opened.run("document.querySelector(arguments[0]).click()", button)
    deadline = time.monotonic() + 60
    while len(done := [p for p in tmp_path.iterdir() if p.suffix != ".crdownload"]) < 3:
        assert time.monotonic() < deadline, done
        time.sleep(0.1)
    head, *table = (tmp_path / "check.csv").read_text(encoding="utf-8").splitlines()
    assert head == "observation,verdict,kind,parameters,value,lower,upper"
    assert len(table) == sum(len(one["rows"]) for one in check.record["observations"])
    record = json.loads((tmp_path / "check.json").read_text(encoding="utf-8"))
    assert [one["label"] for one in record["observations"]] == list(LABELS)
    (figure,) = tmp_path.glob("forest-*.svg")
    assert figure.read_text(encoding="utf-8").startswith("<svg")


def test_without_scripts_there_are_the_answers(browser, files):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get((files / "whole.html").as_uri())
    text = browser.find_element("css selector", "main").text
    assert all(label in text for label in LABELS)
    assert browser.find_element("css selector", ".warning").is_displayed()


@pytest.mark.parametrize(("ci", "outcome"), [("1", pytest.fail), ("", pytest.skip)])
def test_what_is_missing_fails_in_continuous_integration_alone(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome.Exception, match="no chromium"):
        unavailable("no chromium")
