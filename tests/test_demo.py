import numpy as np
import pytest
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.demo import demo


@pytest.fixture(scope="module")
def found():
    return demo(epochs=20, simulations=40_000)


def test_it_tells_bad_from_good(found):
    for by_name in found.results.values():
        assert by_name["bad"].pvalue == 0.005
        assert by_name["bad"].statistic > 2 * by_name["good"].statistic
    assert found.lost["good"] == 0
    assert found.lost["bad"] == pytest.approx(0.5, abs=0.05)


def test_it_leaves_its_files(found, tmp_path):
    files = found.save(tmp_path)
    assert all(path.stat().st_size > 0 for path in files)
    again = assay.load(tmp_path / "latents-bad.npz")
    np.testing.assert_array_equal(again.null, found.results["latents"]["bad"].null)
    assert "p-value" in (tmp_path / "table.txt").read_text()


def test_the_command_line(found, tmp_path, monkeypatch):
    monkeypatch.setattr("assay.demo.demo", lambda seed: found)
    shown = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "a" / "b")])
    assert shown.exit_code == 0
    assert str(tmp_path / "a" / "b" / "pp.png") in shown.stdout


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    shown = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file")])
    assert shown.exit_code == 2
    assert "--out: expected a folder" in shown.stderr


def test_help_and_version():
    assert "demo" in CliRunner().invoke(app, ["--help"]).stdout
    assert CliRunner().invoke(app, ["--version"]).stdout.strip() == assay.__version__
