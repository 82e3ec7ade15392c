import numpy as np
import pytest

from assay.report.near import CELLS, MOST, _height, _smooth, near_figure


@pytest.fixture(scope="module")
def figure(check):
    return near_figure(check.effects[0])


def test_truths_lie_over_draws(figure, check):
    truths, drawn = check.effects.truths[0], check.effects.drawn[0]
    j = int(check.effects[0].worst[0])
    own, others = figure.data[1], figure.data[0]
    assert (own["name"], others["name"]) == ("true parameters", "draws of q")
    for trace, part in ((own, truths), (others, drawn)):
        known = part[np.isfinite(part[:, j]), j].clip(-4, 4)
        heights, _ = np.histogram(known, np.array(trace["x"]), density=True)
        assert np.allclose(trace["y"][:-1], heights, rtol=1e-3)


def test_every_name_is_once_in_the_key(figure):
    named = [trace["name"] for trace in figure.data if trace["showlegend"]]
    assert sorted(named) == ["draws of q", "true parameters"]


def test_a_panel_for_each_parameter_and_one_for_a_pair(figure, check):
    panels = [key for key in figure.layout if key.startswith("xaxis")]
    assert len(panels) == min(MOST, len(check.names)) + 1


def test_contours_hold_their_share():
    points = np.random.default_rng(0).standard_normal((200_000, 2))
    density = _smooth(points)
    for held, radius in ((0.5, 1.177), (0.9, 2.146)):
        inside = (density >= _height(density, held)).sum() * (8 / CELLS) ** 2
        assert inside == pytest.approx(np.pi * radius**2, rel=0.12)


def test_without_truths_there_is_nothing_to_show(scored):
    assert near_figure(scored.effects[0]) is None
