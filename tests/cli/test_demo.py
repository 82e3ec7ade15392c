from importlib import import_module

import pytest
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.cli.demo import OBSERVATIONS, demo_inputs
from tests.browser import Page, browser, keep, screenshots

__all__ = ["browser", "screenshots"]


@pytest.fixture(scope="module")
def found():
    """The demo with less training: enough to lose a mode."""
    return assay.check(**demo_inputs(epochs=6, simulations=10_000))


def test_the_lost_mode_is_found(found):
    assert found.labels == tuple(OBSERVATIONS) == ("good", "bad")
    assert found.verdicts[1] == "rejected"
    assert found.pvalue[1] < 0.01
    assert found.typical.pvalue.min() > 0.01
    assert found.settings["space"] == "latent"


def test_the_command_line(found, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("assay.check"), "check", lambda **inputs: found)
    monkeypatch.setattr("assay.cli.demo.demo_inputs", lambda seed: {"seed": seed})
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "a" / "b")])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(str(found))
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("Open file://")
    assert last.endswith("a/b/report.html")
    files = {path.name: path for path in (tmp_path / "a" / "b").iterdir()}
    assert set(files) == {"table.txt", "check.npz", "report.html"}
    assert repr(assay.load(files["check.npz"])) == repr(found)
    text = files["table.txt"].read_text(encoding="utf-8")
    assert text.startswith("Of 2 observations: ")
    assert "the flow has lost one of two modes at 'bad'" in text


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file")])
    assert done.exit_code == 2
    assert "File exists" in done.stderr


def test_its_report_in_a_browser(found, browser, screenshots, tmp_path):
    found.report(tmp_path / "report.html")
    page = Page(browser, tmp_path / "report.html")
    first, other = (found.labels[i] for i in found.urgency)
    assert page.heading.split()[-1] == first
    before = page.figures
    page.find("#next").click()
    assert page.heading.split()[-1] == other
    after = page.figures
    assert all(before[key] != after[key] for key in ("forest", "near", "pp", "pairs"))
    assert page.errors() == []
    keep(page, screenshots / "demo.png")
