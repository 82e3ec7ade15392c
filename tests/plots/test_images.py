"""Pictures against stored ones; ``python -m tests.plots.cases`` renews these."""

import re

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.testing.compare import compare_images
from PIL import Image

from assay import plots
from tests.browser import unavailable
from tests.plots.cases import BASELINES, CASES, figure_of, save

# The root mean square difference of colours from 0 to 255. It is zero for the same version of
# matplotlib, and at least 0.7 where a line, band, bar or word of any of the cases is missing.
TOLERANCE = 0.5


def version(text):
    return re.search(r"(\d+\.\d+)", text)[1]


def difference(figure, case, folder):
    """How a picture differs from the one stored; None if it does not."""
    picture = folder / f"{case}.png"
    save(figure, picture)
    return compare_images(BASELINES / f"{case}.png", picture, TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_a_picture_is_the_one_stored(case, tmp_path):
    stored = version(Image.open(BASELINES / f"{case}.png").text["Software"])
    if stored != version(mpl.__version__):
        unavailable(f"stored pictures were made by matplotlib {stored}: see constraints.txt")
    assert difference(figure_of(CASES[case]()), case, tmp_path) is None


def test_every_plot_has_a_picture():
    for name in plots.__all__:
        assert any(case == name or case.startswith(f"{name}_") for case in CASES)
    assert {path.stem for path in BASELINES.glob("*.png")} == set(CASES)
    assert max(path.stat().st_size for path in BASELINES.glob("*.png")) < 45_000


@pytest.mark.parametrize(
    ("case", "kind", "count"),
    [
        ("pp", "lines", 2),
        ("pp", "collections", 2),
        ("sweep", "lines", 2),
        ("sweep", "collections", 3),
        ("levels", "lines", 3),
    ],
)
def test_a_missing_part_is_found(case, kind, count, tmp_path):
    for i in range(count):
        # Drawn anew, since the layout moves when a figure is saved twice.
        ax = CASES[case]()
        assert len(getattr(ax, kind)) == count
        getattr(ax, kind)[i].set_visible(False)
        assert "RMS" in difference(ax.figure, case, tmp_path)


def test_a_wrong_word_is_found(tmp_path):
    ax = CASES["pp"]()
    ax.set_xlabel("probability of class 1 (q)")
    assert "RMS" in difference(ax.figure, "pp", tmp_path)


def test_a_line_at_a_wrong_value_is_found(tmp_path):
    ax = CASES["null_histogram"]()
    line = ax.get_lines()[0]
    line.set_xdata(line.get_xdata()[0] * np.array([1.1, 1.1]))
    assert "RMS" in difference(ax.figure, "null_histogram", tmp_path)
