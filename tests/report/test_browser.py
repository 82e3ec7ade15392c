"""The report in a real browser."""

import base64
import json
import time

import numpy as np
import pytest

from assay.report import write
from assay.report.map import Map
from tests.browser import OWN, Page, browser, keep, screenshots

from .conftest import LABELS, READ

__all__ = ["browser", "screenshots"]

SECTIONS = ["verdict", "where", "observation", "overall", "classifier", "made"]
OTHERS = ("places", "sbc", "coverage", "tarp", "reliability", "roc")
LOCAL_SCHEMES = ("file://", "data:", "blob:", "about:", "chrome")


@pytest.fixture(scope="module")
def files(check, bare, scored, linked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for name, part in (("whole", check), ("bare", bare), ("scored", scored), ("linked", linked)):
        write(part, folder / f"{name}.html")
    return folder


@pytest.fixture
def opened(browser, files):
    return Page(browser, files / "whole.html")


def test_everything_is_drawn_without_an_error(opened):
    for key in (*OWN, *OTHERS):
        assert opened.run("!!document.querySelector('#plot-' + arguments[0] + ' svg')", key), key
    for name in SECTIONS:
        assert opened.find(f"#{name}").is_displayed()
        assert opened.find(f"#heading-{name}").is_displayed()
    assert opened.errors() == []


def test_nothing_is_asked_of_a_network(opened):
    opened.find("#next").click()
    opened.find("#theme").click()
    urls = opened.requests()
    assert urls[0].startswith("file://")
    assert [u for u in urls if not u.startswith(LOCAL_SCHEMES)] == []
    assert [u for u in urls if u.startswith("file://")] == urls[:1]


def test_names_are_shown_as_text(opened):
    from selenium.common.exceptions import NoAlertPresentException

    with pytest.raises(NoAlertPresentException):
        _ = opened.driver.switch_to.alert
    for _ in range(3):
        opened.find("#next").click()
        for name in READ:
            assert name in opened.text
    for label in LABELS:
        assert label in opened.text
    assert opened.run("document.querySelectorAll('script').length") == 3
    assert opened.run("document.querySelectorAll('main b, main img, .plot a').length") == 0


def test_figures_show_names_as_text(opened):
    """Whatever Plotly reads as tags or entities is read back as it was written."""
    script = "[...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    ticks = opened.run(script, "#plot-bias .ytick text")
    assert set(ticks) == {"<script>al…ript>", *READ[1:]}
    titles = opened.run(script, "#plot-pairs .g-xtitle, #plot-pairs [class^=g-x] text")
    assert "θ" in "".join(titles)
    assert 'a & "b"' in "".join(titles)
    entries = opened.run(script, ".key span")
    assert set(READ) <= set(entries)
    labels = "".join(opened.run(script, "#plot-places .textpoint text"))
    assert "<b>x</b>" in labels


def test_the_select_box_changes_the_figures(opened):
    before, heading = opened.drawn, opened.heading
    assert LABELS[0] in heading
    from selenium.webdriver.support.ui import Select

    Select(opened.find("#chosen")).select_by_index(1)
    assert LABELS[1] in opened.heading
    after = opened.drawn
    assert all(after[key] != before[key] for key in OWN)
    assert LABELS[1] in opened.run("document.getElementById('said').textContent")
    assert opened.find("#observation-1").is_displayed()
    assert not opened.find("#observation-0").is_displayed()
    assert "p = " in opened.find("#plot-null").get_attribute("aria-label")
    assert opened.run("window.location.hash") == "#observation-1"


def test_of_what_lies_outside_nothing_is_drawn(opened):
    from selenium.webdriver.support.ui import Select

    Select(opened.find("#chosen")).select_by_index(2)
    assert opened.find("#observation-2").is_displayed()
    assert not any(opened.find(f"#plot-{key}").is_displayed() for key in OWN)
    Select(opened.find("#chosen")).select_by_index(0)
    assert all(opened.find(f"#plot-{key}").is_displayed() for key in OWN)


def test_buttons_and_keys_change_the_figures(opened):
    from selenium.webdriver.common.keys import Keys

    opened.find("#next").click()
    assert LABELS[1] in opened.heading
    one = opened.drawn
    opened.find("body").send_keys(Keys.ARROW_RIGHT)
    assert LABELS[2] in opened.heading
    assert not opened.find("#plot-bias").is_displayed()
    opened.find("body").send_keys(Keys.ARROW_RIGHT)
    assert LABELS[0] in opened.heading
    opened.find("body").send_keys(Keys.ARROW_LEFT)
    assert LABELS[2] in opened.heading
    opened.find("#previous").click()
    assert opened.drawn == one


def test_the_table_of_verdicts_chooses_by_keyboard(opened):
    from selenium.webdriver.common.keys import Keys

    opened.find("a[data-observation='1']").send_keys(Keys.ENTER)
    assert LABELS[1] in opened.heading
    assert opened.run("document.activeElement.closest('article').id") == "observation-1"
    current = opened.run("document.querySelectorAll('tr[aria-current]').length")
    assert current == 1


def place_of(page, row):
    """Where an observation is on the screen."""
    page.run("document.getElementById('plot-places').scrollIntoView({block: 'center'})")
    return page.run(
        """(() => {
          const plot = document.getElementById("plot-places"), full = plot._fullLayout;
          const trace = plot.data.find((t) => (t.customdata || []).includes(arguments[0]));
          const at = trace.customdata.indexOf(arguments[0]);
          const box = plot.getBoundingClientRect();
          const x = box.left + full.xaxis._offset + full.xaxis.l2p(trace.x[at]);
          const y = box.top + full.yaxis._offset + full.yaxis.l2p(trace.y[at]);
          return [Math.round(x), Math.round(y)];
        })()""",
        row,
    )


def move_to(page, x, y):
    from selenium.webdriver.common.action_chains import ActionChains

    chain = ActionChains(page.driver, duration=50)
    chain.w3c_actions.pointer_action.move_to_location(x - 3, y)
    chain.w3c_actions.pointer_action.move_to_location(x, y)
    return chain


def test_hovering_shows_values(opened, check):
    move_to(opened, *place_of(opened, 1)).perform()
    opened.wait("document.querySelectorAll('#plot-places .hoverlayer .hovertext').length > 0")
    said = opened.run("document.querySelector('#plot-places .hoverlayer').textContent")
    assert LABELS[1] in said
    assert check.verdicts[1] in said
    assert "p-value: " in said
    assert "detectable shift: " in said


def test_clicking_the_map_chooses(opened):
    before = opened.drawn
    assert LABELS[0] in opened.heading
    move_to(opened, *place_of(opened, 1)).click().perform()
    opened.wait("document.getElementById('chosen').value === '1'")
    assert LABELS[1] in opened.heading
    assert opened.drawn["pp"] != before["pp"]


def test_the_axes_of_the_map_can_be_chosen(opened, check):
    from selenium.webdriver.support.ui import Select

    Select(opened.find("#axis-x")).select_by_visible_text("x[1]")
    Select(opened.find("#axis-y")).select_by_visible_text("p-value")
    full = "document.getElementById('plot-places')._fullLayout"
    assert opened.run(f"{full}.xaxis.title.text") == "x[1]"
    assert opened.run(f"{full}.shapes[0].y0") == pytest.approx(check.alpha)
    assert opened.run(f"{full}.yaxis.type") == "log"
    low, high = opened.run(f"{full}.yaxis.range")
    assert low < np.log10(check.pvalue.min()) < 0 < high


NEAR = "document.getElementById('plot-places').data.find(t => t.name === arguments[0])"


def test_what_is_near_changes_with_the_observation(opened, check):
    plain = Map(check).plain
    for which, count in ((0, 60), (1, 60), (2, 0)):
        opened.run("void document.querySelectorAll('tr[data-row]')[arguments[0]].click()", which)
        shown = opened.run(f"{NEAR}.x", "near the selected observation")
        low, high = plain["ends"][0]
        rows = plain["near"][which]
        assert len(rows) == count
        assert shown == [min(high, max(low, plain["columns"][0][row])) for row in rows]
        words = opened.find("#plot-places").get_attribute("aria-label")
        assert f"Of 300 simulations, {count} are near the selected observation." in words


def test_an_arrow_points_to_what_lies_farther_out(opened, check):
    arrows = opened.run(NEAR, "farther out")
    assert len(arrows["text"]) >= 1
    (square,) = opened.run(f"{NEAR}.hovertext", "outside")
    assert "farther out: " in square


def texts(page, selector):
    return page.run(
        "[...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )


def test_intervals_from_near_x_o_to_x_o(browser, files, linked):
    """Bars are the intervals of the effects, the first of them at x_o."""
    page, effects = Page(browser, files / "linked.html"), linked.effects[0]
    assert texts(page, "#plot-bias-shares .xtick text") == ["x_o", "5 %", "10 %", "20 %"]
    drawn = page.run("document.getElementById('plot-bias-shares').data")
    for j, trace in zip(effects.worst, drawn, strict=True):
        low = np.subtract(trace["y"], trace["error_y"]["arrayminus"])
        assert low[0] == pytest.approx(effects.bias.at_lower[j], abs=2e-3)
        assert low[1:] == pytest.approx(effects.sizes.bias[1, :, j], abs=2e-3)
    words = page.find("#plot-bias-shares").get_attribute("aria-label")
    assert words.count("at x_o, extrapolated") == 4


def test_a_wrong_correlation_is_marked_and_named(browser, files):
    page = Page(browser, files / "linked.html")
    cells, marks = page.run("document.getElementById('plot-correlation').data")
    assert len(cells["z"]) == len(cells["z"][0]) == 3
    assert sorted([*marks["x"], *marks["y"]]) == ["b &lt; c", "e"]
    assert set(texts(page, "#plot-correlation .ytick text")) >= {"a", "d"}
    label = page.find("#plot-correlation").get_attribute("aria-label")
    assert "of 4 of 4 parameters. Beyond noise: b < c and e: 0." in label
    assert "the correlation of b < c and e is 0." in page.find("#observation-0").text


def test_dark_and_light(opened, screenshots):
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "document.getElementById('plot-pp')._fullLayout.font.color"
    light = opened.run(paper), opened.run(ink)
    keep(opened, screenshots / "light.png")
    opened.find("#theme").click()
    dark = opened.run(paper), opened.run(ink)
    keep(opened, screenshots / "dark.png")
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    opened.find("#theme").click()
    assert (opened.run(paper), opened.run(ink)) == light


def test_the_system_says_dark(browser, files):
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        page = Page(browser, files / "whole.html")
        assert page.run("document.documentElement.dataset.theme") == "dark"
        assert page.find("#theme").text == "Light"
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def luminance(colour):
    """The relative luminance of WCAG 2.1."""
    parts = [int(c) / 255 for c in colour[4:-1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_has_contrast_in_both_schemes(opened):
    for _ in range(2):
        paper = opened.run("getComputedStyle(document.body).backgroundColor")
        for selector in ("p", ".note", "figcaption", "nav a", ".badge", "th", "caption", ".key"):
            ink = opened.run(
                "getComputedStyle(document.querySelector(arguments[0])).color", selector
            )
            assert contrast(ink, paper) >= 4.5, selector
        for verdict in set(
            opened.run(
                "[...document.querySelectorAll('.badge svg')].map(e => getComputedStyle(e).color)"
            )
        ):
            assert contrast(verdict, paper) >= 3
        opened.find("#theme").click()


def test_a_narrow_window_does_not_scroll_sideways(browser, files, screenshots):
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page = Page(browser, files / "whole.html")
        assert page.run("document.documentElement.scrollWidth") <= 390
        keep(page, screenshots / "narrow.png")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_it_prints_in_light_colours(opened, screenshots):
    opened.find("#theme").click()
    options = {"printBackground": True, "preferCSSPageSize": True}
    pdf = base64.b64decode(opened.driver.execute_cdp_cmd("Page.printToPDF", options)["data"])
    (screenshots / "print.pdf").write_bytes(pdf)
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    # What printing changed is as it was.
    opened.wait("document.documentElement.dataset.theme === 'dark'")
    opened.run("void window.dispatchEvent(new Event('beforeprint'))")
    assert opened.run("document.documentElement.dataset.theme") == "light"
    assert opened.run("document.getElementById('plot-pp')._fullLayout.width") == 330
    opened.run("void window.dispatchEvent(new Event('afterprint'))")
    assert opened.run("document.documentElement.dataset.theme") == "dark"


def test_paper_holds_every_observation(opened):
    count = "[...document.querySelectorAll(arguments[0])].filter(e => !e.hidden).length"
    for event, articles, figures, folded in (
        ("beforeprint", 3, 3, False),
        ("afterprint", 1, 0, True),
    ):
        opened.run("void window.dispatchEvent(new Event(arguments[0]))", event)
        assert opened.run(count, "article") == articles
        # The chosen one has all its figures, the second a few, and the third lies outside.
        assert opened.run(count, "figure.printed .main-svg:first-of-type") == figures
        assert opened.run("!!document.querySelector('details:not([open])')") == folded


def test_figures_and_numbers_can_be_taken_along(opened, tmp_path):
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    opened.driver.execute_cdp_cmd("Page.setDownloadBehavior", where)
    buttons = ("#save-csv", "#save-json", "button[data-of='bias'][data-format='svg']")
    for button in buttons:
        opened.run("document.querySelector(arguments[0]).click()", button)
    deadline = time.monotonic() + 20
    while len(done := [p for p in tmp_path.iterdir() if p.suffix != ".crdownload"]) < 3:
        assert time.monotonic() < deadline, done
        time.sleep(0.1)
    table = (tmp_path / "check.csv").read_text(encoding="utf-8").splitlines()
    assert len(table) == 4
    assert table[0].startswith("observation,verdict,p,")
    record = json.loads((tmp_path / "check.json").read_text(encoding="utf-8"))
    assert [one["label"] for one in record["observations"]] == list(LABELS)
    assert next(tmp_path.glob("bias-*.svg")).read_text(encoding="utf-8").startswith("<svg")


KEYS = ("null", "bias", "width", "power")
SIZES = ("bias-shares", "width-shares", "correlation")


@pytest.mark.parametrize(("name", "keys"), [("bare", ("near", *SIZES, *KEYS)), ("scored", KEYS)])
def test_missing_parts_leave_no_errors(browser, files, name, keys):
    page = Page(browser, files / f"{name}.html")
    assert page.errors() == []
    assert {key for key, drawn in page.drawn.items() if drawn} == set(keys)
    for section in SECTIONS:
        assert page.find(f"#{section}").is_displayed()
    assert "Not shown: " in page.text


def test_an_address_can_name_an_observation(browser, files):
    browser.get("about:blank")
    browser.get((files / "whole.html").as_uri() + "#observation-1")
    page = Page.__new__(Page)
    page.driver = browser
    page.wait("document.documentElement.dataset.ready === 'true'")
    assert LABELS[1] in page.heading


def test_verdicts_are_there_without_scripts(browser, files):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get((files / "whole.html").as_uri())
        text = browser.find_element("css selector", "main").text
        assert all(label in text for label in LABELS)
        box = "return document.querySelector('.warning').getBoundingClientRect().height"
        assert browser.execute_script(box) > 20
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
