"""Names that would steer a terminal, and many parameters and observations, which fold."""

import time
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import assay
from assay import plots
from assay._core import CONTROL

from ..conftest import Gaussian
from .wide import lengthened, widened

# Colours, a cleared screen, a bell, a return, a title, text that runs backwards, half a letter.
NASTY = [
    *("\x1b[31mred", "\x1b[2J", "bell\a", "over\rwritten", "\x1b]0;title\x07", "\x9b1m"),
    *("\u202eevil", "\u2066a\u2069", "\ud800", "\x00nothing", "a\u2028b", "del\x7f"),
]


@pytest.fixture(scope="module")
def check():
    narrow = Gaussian(width=0.7, m=4)
    draws = narrow.draws(torch.zeros(2, 4), 100)
    suite = assay.Suite.quick(null=19)
    return assay.check(narrow.calibration(200, k=8), x_o=draws, suite=suite)


@pytest.mark.parametrize("name", NASTY, ids=repr)
def test_no_control_character_is_printed(check, tmp_path, name):
    names, labels = (name, "b", "c", "d"), (f"at {name}", "there")
    sbc, found = (replace(part, names=names) for part in (check.sbc, check.effects))
    named = replace(check, names=names, labels=labels, sbc=sbc, effects=found)
    for text in (
        repr(named),
        named.text(),
        named.verdict,
        named.summary(),
        repr(sbc),
        repr(found),
    ):
        assert not CONTROL.search(text)
    assert not CONTROL.search(named._repr_html_())
    assay.save(named, tmp_path / "check.npz")
    again = assay.load(tmp_path / "check.npz")
    assert again.names == named.names
    assert "\ufffd" in again.names[0]


def test_nor_written_into_a_page(check, tmp_path):
    labels = tuple(f"{i} {name}" for i, name in enumerate(NASTY[:2]))
    replace(check, labels=labels).report(tmp_path / "r.html", title=NASTY[0])
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert not CONTROL.search(text.replace("\t", ""))


def test_names_are_cleaned_when_they_are_given():
    calibration = Gaussian().calibration(100, k=8)
    draws = Gaussian().draws([[0.0, 0.0]], 50)
    suite = assay.Suite.quick(null=19)
    found = assay.check(calibration, x_o=draws, names=["\x1b[1m", "b"], labels=["\a"], suite=suite)
    assert (found.names, found.labels) == (("\ufffd[1m", "b"), ("\ufffd",))


@pytest.mark.parametrize("name", NASTY, ids=repr)
def test_they_are_drawn(check, name):
    """Without a letter that the font lacks, which would be a warning."""
    ax = plots.effects(replace(check.effects[0], names=(name, "b", "c", "d")))[0]
    assert not CONTROL.search(ax.get_yticklabels()[0].get_text())
    ax.figure.canvas.draw()
    plt.close("all")


@pytest.fixture(scope="module")
def wide(check):
    return widened(check, 1000)


class TestManyParameters:
    """Each within seconds, and no longer than a page."""

    @pytest.fixture(autouse=True)
    def _in_time(self):
        start = time.process_time()
        yield
        plt.close("all")
        assert time.process_time() - start < 10

    def test_text(self, wide):
        for text in (wide.text(), repr(wide), repr(wide.effects), repr(wide.effects[0])):
            assert len(text) < 10_000
        assert len(wide._repr_html_()) < 100_000
        assert len(wide.effects[0].to_frame()) == 5 * 1000 + 3 + 1000

    def test_the_report(self, wide, tmp_path):
        wide.report(tmp_path / "r.html")
        assert (tmp_path / "r.html").stat().st_size < 10e6

    def test_saved(self, wide, tmp_path):
        assay.save(wide, tmp_path / "wide.npz")
        again = assay.load(tmp_path / "wide.npz")
        np.testing.assert_array_equal(again.effects.worst, wide.effects.worst)

    @pytest.mark.parametrize("name", ["effects", "correlations", "shares", "near"])
    def test_pictures_of_effects(self, wide, name):
        getattr(plots, name)(wide.effects[0])
        plt.gcf().canvas.draw()

    def test_a_summary(self, wide):
        figure = plots.summary(wide)
        assert figure.get_figheight() < 15

    @pytest.mark.parametrize("name", ["recovery", "contraction"])
    def test_panels(self, name):
        assert len(getattr(plots, name)(Gaussian(m=1000).calibration(20, k=8))) == 24

    def test_pairs(self):
        """Drawn in the parameters that the classifier looks at."""
        theta = np.random.default_rng(0).normal(size=(100, 1000))
        d = 1 / (1 + np.exp(-theta[:, 700]))
        parts = {"probabilities": d, "null_probabilities": None, "draws": theta, "theta": theta}
        test = assay.lc2st(Gaussian().calibration(50), assay.Ridge(), assay.Exchange(9))
        found = replace(test(Gaussian().draws([0.0, 0.0], 100)), **parts)
        grid = plots.pairs(found, marks=theta[0])
        assert grid.shape == (12, 12)
        assert "theta[700]" in [ax.get_xlabel().replace("\n", "") for ax in grid[-1]]


def test_many_observations(check, tmp_path):
    many, start = lengthened(check, 100), time.process_time()
    assert len(repr(many)) < 10_000
    assert len(many._repr_html_()) < 100_000
    assert len(many.to_frame()) == 100
    many.report(tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size < 10e6
    for figure in (
        plots.trust_map(many.trust),
        plots.pvalues(many.local),
        plots.sweep(many.local, values=np.arange(100)),
    ):
        figure.figure.canvas.draw()
    plt.close("all")
    assert time.process_time() - start < 20
