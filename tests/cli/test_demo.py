import pytest
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.cli.demo import demo
from tests.browser import Page, browser, keep, screenshots

__all__ = ["browser", "screenshots"]


@pytest.fixture(scope="module")
def found():
    return demo()


def test_it_tells_bad_from_good(found):
    assert found.check.verdicts[1] == "rejected"
    assert found.check.verdicts[0] != "rejected"
    assert found.results["bad"].pvalue == 0.02
    assert found.results["bad"].statistic > 2 * found.results["good"].statistic
    assert found.lost["good"] == 0
    assert found.lost["bad"] == pytest.approx(0.5, abs=0.05)


def test_it_leaves_its_files(found, tmp_path):
    files = found.save(tmp_path)
    assert all(path.stat().st_size > 0 for path in files)
    assert repr(assay.load(tmp_path / "check.npz")) == repr(found.check)
    text = (tmp_path / "table.txt").read_text()
    assert "rejected" in text
    assert "lies where the flow was never trained" in " ".join(text.split())


def test_the_command_line(found, tmp_path, monkeypatch):
    monkeypatch.setattr("assay.cli.demo.demo", lambda seed: found)
    shown = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "a" / "b")])
    assert shown.exit_code == 0
    assert shown.stdout.strip().endswith("a/b/report.html")
    assert shown.stdout.strip().splitlines()[-1].startswith("Open file://")


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    shown = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file")])
    assert shown.exit_code == 2
    assert "File exists" in shown.stderr


def test_its_report_in_a_browser(found, browser, screenshots, tmp_path):
    found.check.report(tmp_path / "report.html")
    from selenium.webdriver.support.ui import WebDriverWait

    page = Page(browser, tmp_path / "report.html")
    assert page.heading == "The selected observation: bad"
    before = page.drawn
    page.find("#next").click()
    page.wait("document.getElementById('heading-observation').textContent.endsWith('good')")
    WebDriverWait(browser, 10).until(
        lambda _: all(before[key] != now for key, now in page.drawn.items() if now is not None)
    )
    assert page.errors() == []
    assert all(
        url.startswith(("file://", "data:", "blob:", "about:", "chrome"))
        for url in page.requests()
    )
    keep(page, screenshots / "demo.png")
