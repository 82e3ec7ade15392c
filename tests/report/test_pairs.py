import numpy as np
import pytest

from assay.report.at_observation import ObservationFigures
from assay.report.words import rounded


@pytest.fixture(scope="module")
def plot(check):
    return ObservationFigures(check).pair_plot


def test_panels_share_columns(plot, check):
    figure = plot.figure(0)
    dots = [t for t in figure.data if t["mode"] == "markers"]
    assert [(t["x"], t["y"]) for t in dots] == [(0, 1), (0, 2), (1, 2)]
    assert {t["marker"]["color"] for t in dots} == {3}
    assert figure.columns[0] == rounded(check.classifier.theta[0, plot.shown, 0])
    assert figure.columns[3] == rounded(check.classifier.probabilities[0, plot.shown], 3)


def test_the_scale_is_symmetric_and_the_same_everywhere(plot, check):
    scales = [plot.figure(i).layout["coloraxis"] for i in range(3)]
    assert scales[0] == scales[1] == scales[2]
    assert scales[0]["cmin"] + scales[0]["cmax"] == pytest.approx(1)
    far = np.abs(check.classifier.probabilities - 0.5).max()
    assert far <= plot.colour_range < far + 0.05 + 1e-9


def test_marginals_are_densities(plot):
    lines = [t for t in plot.figure(0).data if t["mode"] == "lines"]
    assert len(lines) == 6
    for t in lines:
        mass = np.diff(t["x"]) @ np.array(t["y"][:-1])
        assert mass == pytest.approx(1, abs=0.01)


def test_panels_do_not_overlap(plot):
    layout = plot.figure(0).layout
    boxes = [
        (*layout[f"xaxis{end}"]["domain"], *layout[f"yaxis{end}"]["domain"])
        for end in ("", "4", "5", "7", "8", "9")
    ]
    for i, (left, right, low, high) in enumerate(boxes):
        assert 0 <= left < right <= 1
        assert 0 <= low < high <= 1
        for other in boxes[:i]:
            apart = left >= other[1] or other[0] >= right or low >= other[3] or other[2] >= high
            assert apart
