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
PAPER = "getComputedStyle(document.body).backgroundColor"
INK = "document.getElementById('plot-pp')._fullLayout.font.color"


@pytest.fixture(scope="module")
def files(check, bare, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    reports = {word: made((word,), 3, classifier=True) for word in VERDICTS}
    reports |= {"whole": check, "bare": bare}
    reports["thirty"] = made((VERDICTS * 8)[:30], 3, classifier=True)
    for name, found in reports.items():
        write(found, folder / f"{name}.html")
    return folder


@pytest.fixture
def opened(browser, files):
    return Page(browser, files / "whole.html")


@pytest.fixture
def command(browser):
    """Commands to the browser, each with what takes it back."""
    undo = []

    def run(name, undone, **options):
        undo.append(undone)
        browser.execute_cdp_cmd(name, options)

    yield run
    for name, options in undo:
        browser.execute_cdp_cmd(name, options)


def visible(page):
    """The figures that can be seen."""
    return {key for key in (*OWN, *OTHERS) if page.find(f"#plot-{key}").is_displayed()}


def texts(page, selector):
    return page.run(
        "[...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )


def test_all_figures_appear_without_an_error_or_a_network(opened):
    opened.run("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    opened.wait("!!document.querySelector('#plot-null svg')")
    for key in (*OWN, *OTHERS):
        assert opened.run("!!document.querySelector('#plot-' + arguments[0] + ' svg')", key), key
    assert visible(opened) == {*OWN, *OTHERS}
    opened.find("#theme").click()
    assert opened.errors() == []
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


def test_names_are_text_on_the_page_and_in_figures(opened):
    from selenium.common.exceptions import NoAlertPresentException

    with pytest.raises(NoAlertPresentException):
        _ = opened.driver.switch_to.alert
    for name in (*READ, *LABELS):
        assert name in opened.run("document.querySelector('main').textContent")
    assert opened.run("document.querySelectorAll('script').length") == 3
    assert opened.run("document.querySelectorAll('main img, .plot a, h2 b').length") == 0
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
        assert LABELS[order[2]] in opened.heading
        assert opened.run("window.location.hash") == f"#observation-{order[2]}"
        # Nothing is drawn of what is outside.
        assert order[2] == OUTSIDE
        assert visible(opened) == set(OTHERS)
        opened.find("body").send_keys(Keys.ARROW_LEFT)
        opened.find("#previous").click()
        assert opened.figures == before
        opened.find("#previous").click()
        last = opened.run("document.getElementById('announcement').textContent")
        assert LABELS[order[-1]] in opened.heading
        assert LABELS[order[-1]] in last

    def test_the_list_is_sorted_and_leads_to_each(self, opened, check):
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
        current = "document.querySelectorAll('tr[aria-current]')"
        assert opened.run(f"[...{current}].map(e => e.dataset.observation)") == ["1"]

    def test_an_address(self, browser, files):
        browser.get("about:blank")
        assert LABELS[1] in Page(browser, files / "whole.html", "#observation-1").heading

    def test_the_map(self, opened):
        from selenium.webdriver.common.action_chains import ActionChains

        opened.run("document.getElementById('plot-places').scrollIntoView({block: 'center'})")
        x, y = opened.run(
            """(() => {
              const plot = document.getElementById("plot-places"), full = plot._fullLayout;
              const trace = plot.data.find((t) => (t.customdata || []).includes(0));
              const at = trace.customdata.indexOf(0), box = plot.getBoundingClientRect();
              const x = box.left + full.xaxis._offset + full.xaxis.l2p(trace.x[at]);
              const y = box.top + full.yaxis._offset + full.yaxis.l2p(trace.y[at]);
              return [Math.round(x), Math.round(y)];
            })()"""
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
    assert page.run("document.querySelector('.list').getBoundingClientRect().height") <= 400
    assert page.run("document.querySelector('#answer').getBoundingClientRect().top") < 700
    assert page.errors() == []
    keep(page, screenshots / "thirty.png")


def contrast(*colours):
    """The contrast of two colours by their relative luminance, WCAG 2.1."""
    luminances = []
    for colour in colours:
        parts = [int(c) / 255 for c in colour[4:-1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)


class TestColours:
    def test_dark_and_light_with_contrast(self, opened, screenshots):
        color = "getComputedStyle(document.querySelector(arguments[0])).color"
        badges = "[...document.querySelectorAll('.badge svg')].map(e => getComputedStyle(e).color)"
        schemes = []
        for _ in range(3):
            paper = opened.run(PAPER)
            schemes.append((paper, opened.run(INK)))
            for selector in ("p", ".note", "figcaption", "a", ".badge", "th", "caption", ".key"):
                assert contrast(opened.run(color, selector), paper) >= 4.5, selector
            assert all(contrast(ink, paper) >= 3 for ink in set(opened.run(badges)))
            opened.find("#theme").click()
        keep(opened, screenshots / "dark.png")
        light, dark, again = schemes
        assert light == again
        assert not set(light) & set(dark)

    def test_the_system_says_dark(self, browser, files, command):
        name, dark = (
            "Emulation.setEmulatedMedia",
            {"name": "prefers-color-scheme", "value": "dark"},
        )
        command(name, (name, {"features": []}), features=[dark])
        page = Page(browser, files / "whole.html")
        assert page.run("document.documentElement.dataset.theme") == "dark"
        assert page.find("#theme").text == "Light"


@pytest.mark.parametrize("name", ["whole", "rejected", "outside", "thirty"])
def test_a_window_as_wide_as_a_telephone(browser, files, screenshots, command, name):
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    clear = ("Emulation.clearDeviceMetricsOverride", {})
    command("Emulation.setDeviceMetricsOverride", clear, **size)
    page = Page(browser, files / f"{name}.html")
    assert page.run("document.documentElement.scrollWidth") <= 390
    keep(page, screenshots / f"{name}-narrow.png")
    for key in ("forest", "near") if name == "rejected" else ():
        boxes = page.run(
            "[...document.querySelectorAll(`#plot-${arguments[0]} [class*='title'] text`)]"
            ".map(e => e.getBoundingClientRect()).filter(b => b.width)"
            ".map(b => [b.left, b.top, b.right, b.bottom])",
            key,
        )
        assert len(boxes) >= 3
        for i, (left, top, right, bottom) in enumerate(boxes):
            assert 0 <= left < right <= 390
            for x0, y0, x1, y1 in boxes[:i]:
                assert x1 <= left or right <= x0 or y1 <= top or bottom <= y0, (key, boxes)


def test_paper_has_light_colours_and_every_observation(opened, screenshots):
    opened.find("#theme").click()
    options = {"printBackground": True, "preferCSSPageSize": True}
    pdf = base64.b64decode(opened.driver.execute_cdp_cmd("Page.printToPDF", options)["data"])
    (screenshots / "print.pdf").write_bytes(pdf)
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    # What printing changed is as it was.
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
    deadline = time.monotonic() + 20
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


def test_without_scripts_there_are_the_answers(browser, files, command):
    name = "Emulation.setScriptExecutionDisabled"
    command(name, (name, {"value": False}), value=True)
    browser.get((files / "whole.html").as_uri())
    text = browser.find_element("css selector", "main").text
    assert all(label in text for label in LABELS)
    box = "return document.querySelector('.warning').getBoundingClientRect().height"
    assert browser.execute_script(box) > 20


@pytest.mark.parametrize(("ci", "outcome"), [("1", pytest.fail), ("", pytest.skip)])
def test_what_is_missing_fails_in_continuous_integration_alone(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome.Exception, match="no chromium"):
        unavailable("no chromium")
