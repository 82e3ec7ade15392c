"""Names that would steer a terminal, and many parameters and observations, which fold."""

import time
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest

import assay
from assay import plots
from assay._support.inputs import CONTROL

from ..checks import VERDICTS, made
from ..conftest import Gaussian
from ..plots import cases

# Colours, a cleared screen, a bell, a return, a title, text that runs backwards, half a letter.
NASTY = [
    *("\x1b[31mred", "\x1b[2J", "bell\a", "over\rwritten", "\x1b]0;title\x07", "\x9b1m"),
    *("\u202eevil", "\u2066a\u2069", "\ud800", "\x00nothing", "a\u2028b", "del\x7f"),
]


def named(name):
    """A check of which a parameter, an observation and a remark have this name."""
    names, labels = (name, "b", "c", "d"), (f"at {name}", "there")
    found = made(("rejected", "passed"), 4, names, labels=labels)
    parts = {part: replace(getattr(found, part), names=names) for part in ("sbc", "coverage")}
    return replace(found, **parts)


@pytest.mark.parametrize("name", NASTY, ids=repr)
def test_no_control_character_is_printed(tmp_path, name):
    found = named(name)
    for text in (
        *(repr(found), found.text(), found.headline(), found.next_step(), found.reason(0)),
        *(row.sentence for row in found.bounds.rows[0]),
        *(repr(found.sbc), repr(found.coverage), found.sbc.sentence),
    ):
        assert not CONTROL.search(text)
    assert "\ufffd" in found.text()
    assert not CONTROL.search(found._repr_html_())
    assert not CONTROL.search(str(found.record))
    assay.save(found, tmp_path / "check.npz")
    again = assay.load(tmp_path / "check.npz")
    assert again.names == found.names
    assert "\ufffd" in again.names[0]


def test_nor_written_into_a_page(tmp_path):
    labels = tuple(f"{i} {name}" for i, name in enumerate(NASTY))
    found = made(("rejected",) * len(NASTY), len(NASTY), NASTY, labels=labels)
    found.report(tmp_path / "r.html", title=NASTY[0])
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert not CONTROL.search(text.replace("\t", ""))


def test_names_are_cleaned_when_they_are_given():
    words = {"names": ["\x1b[1m", "b"], "labels": ["\a"]}
    calibration, draws = Gaussian().calibration(100, k=8), Gaussian().draws([[0.0, 0.0]], 50)
    found = assay.check(calibration, x_o=draws, nulls=19, classifier=None, **words)
    assert (found.names, found.labels) == (("\ufffd[1m", "b"), ("\ufffd",))
    assert found.bounds.names == found.names


@pytest.mark.parametrize("name", NASTY, ids=repr)
def test_they_are_drawn(name):
    """Without a letter that the font lacks, which would be a warning."""
    figure = plots.summary(named(name))
    figure.canvas.draw()
    words = [figure.get_suptitle()]
    for ax in figure.findobj(plt.Axes):
        words += [label.get_text() for label in ax.get_yticklabels()] + [ax.get_xlabel()]
    assert "b" in words
    assert not CONTROL.search("".join(words).replace("\n", ""))
    plt.close("all")


@pytest.fixture(scope="module")
def wide():
    """A thousand parameters, of which no correlations are taken."""
    found = made(("rejected", "passed"), 1000)
    nothing = np.full((2, 1000, 1000), np.nan)
    table = {**found.bounds.table, "correlation": cases.interval(nothing, 0.1)}
    parts = {"sbc": cases.sbc(1000), "coverage": cases.covered(1000)}
    return replace(found, bounds=replace(found.bounds, table=table), **parts)


class TestManyParameters:
    """Each within seconds, and no longer than a page."""

    @pytest.fixture(autouse=True)
    def _in_time(self):
        start = time.process_time()
        yield
        plt.close("all")
        assert time.process_time() - start < 10

    def test_text(self, wide):
        for text in (wide.text(), repr(wide), repr(wide.coverage)):
            assert len(text) < 10_000
        assert len(wide._repr_html_()) < 100_000
        assert len(wide.coverage._repr_html_()) < 100_000
        # Nine numbers of each parameter, of them two slopes, and three of regions.
        assert len(wide.bounds.rows[0]) == 9 * 1000 + 3

    def test_a_frame(self, wide):
        frame = wide.to_frame()  # a list of dicts where pandas is not installed
        rows = frame if isinstance(frame, list) else frame.to_dict("records")
        assert [len(row) for row in rows] == [5 + 6 * 1000] * 2

    def test_the_report(self, wide, tmp_path):
        wide.report(tmp_path / "r.html")
        assert (tmp_path / "r.html").stat().st_size < 10e6

    def test_saved(self, wide, tmp_path):
        assay.save(wide, tmp_path / "wide.npz")
        again = assay.load(tmp_path / "wide.npz")
        np.testing.assert_array_equal(again.bounds.bias_upper, wide.bounds.bias_upper)

    @pytest.mark.parametrize("name", ["forest", "near", "correlations"])
    def test_pictures_of_bounds(self, wide, name):
        getattr(plots, name)(wide.bounds)
        assert plt.gcf().get_figheight() < 15
        plt.gcf().canvas.draw()

    @pytest.mark.parametrize("name", ["rank_difference", "rank_histogram"])
    def test_pictures_of_ranks(self, wide, name):
        getattr(plots, name)(wide.sbc)
        assert plt.gcf().get_figheight() < 15
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
        grid = plots.pairs(replace(cases.local(), **parts), marks=theta[0])
        assert grid.shape == (12, 12)
        assert "theta[700]" in [ax.get_xlabel().replace("\n", "") for ax in grid[-1]]


def test_many_observations(tmp_path):
    many = made(tuple(VERDICTS) * 20, 3, classifier=True)
    start = time.process_time()
    assert len(repr(many)) < 10_000
    assert len(many._repr_html_()) < 100_000
    assert len(many.to_frame()) == len(many) == 100
    many.report(tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size < 10e6
    for ax in (
        plots.surroundings(many),
        plots.pvalues(many.test),
        plots.sweep(many.test, values=np.arange(100)),
    ):
        ax.figure.canvas.draw()
    plt.close("all")
    assert time.process_time() - start < 20
