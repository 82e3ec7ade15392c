"""Where x_o lies among simulations, and the figure of a whole check."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

import assay
from assay import plots
from assay.plots._style import CURVE, GREEN
from tests.plots.cases import VERDICTS, check, line, surroundings


def points(ax, label):
    """Where points with a label are, (n, 2)."""
    (found,) = (c for c in ax.collections if c.get_label() == label)
    return found.get_offsets().data


class TestSurroundings:
    def test_every_verdict_at_its_place(self):
        found = check(tuple(VERDICTS))
        ax = plots.surroundings(found)
        for i, word in enumerate(found.verdicts):
            np.testing.assert_allclose(points(ax, word), found.test.x[i : i + 1])
        styles = {c.get_label(): c for c in ax.collections}
        np.testing.assert_allclose(styles["passed"].get_facecolors()[0], to_rgba(GREEN))
        np.testing.assert_allclose(styles["rejected"].get_facecolors()[0], to_rgba(CURVE))
        assert len({len(styles[word].get_paths()[0].vertices) for word in VERDICTS}) == 4
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("x[0]", "x[1]")

    def test_what_is_near_and_where_q_was_tested(self):
        found = check()
        ax, around = plots.surroundings(found), found.surroundings
        near = around.near.any(0)
        np.testing.assert_allclose(points(ax, "near x_o"), around.x[near])
        np.testing.assert_allclose(points(ax, "simulated"), around.x[~near])
        rejected, others = ax.collections[2:4]
        np.testing.assert_allclose(rejected.get_offsets(), around.x[around.pvalue <= 0.05])
        np.testing.assert_allclose(others.get_offsets(), around.x[around.pvalue > 0.05])

    def test_many_entries_of_x_are_projected(self):
        found, chance = check(), np.random.default_rng(0)
        mixing = chance.normal(size=(6, 6))
        around = replace(surroundings(2, 6), x=chance.normal(size=(400, 6)) @ mixing)
        x = around.x[:2]
        ax = plots.surroundings(replace(found, surroundings=around, test=replace(found.test, x=x)))
        every = np.concatenate([around.x, x])
        table = (every - every.mean(0)) / every.std(0)
        places = [points(ax, label) for label in ("simulated", "near x_o", "rejected")]
        variance = np.linalg.eigvalsh(table.T @ table / len(table))[::-1]
        np.testing.assert_allclose(np.concatenate(places).var(0), variance[:2])
        assert ax.get_xlabel() == "first principal component of x"
        assert ax.get_ylabel() == "second principal component of x"

    def test_one_number_is_a_place_on_a_line(self):
        found = line(check())
        ax = plots.surroundings(found)
        place = points(ax, "rejected")
        np.testing.assert_allclose(place[:, 0], found.test.x[:, 0])
        assert not place[:, 1].any()
        # Simulations are spread upwards, where no number is meant.
        assert np.ptp(points(ax, "simulated")[:, 1]) > 0.9
        assert not len(ax.get_yticks())

    def test_a_check_without_simulations_around(self):
        with pytest.raises(ValueError, match="check: expected simulated observations"):
            plots.surroundings(replace(check(), surroundings=None))


def panels(figure):
    return {ax.get_xlabel().split("\n")[0]: ax for ax in figure.axes}


def test_a_summary_has_its_panels():
    found = panels(plots.summary(check()))
    assert list(found) == [
        "mean of q − true, in sd",
        "sd of q / true sd",
        "theta[0]",
        "theta[1]",
        "theta[2]",
        "statistic",
        "probability of class 1 (truth)",
    ]
    without = panels(plots.summary(check(classifier=False)))
    assert list(without) == [*list(found)[:-1], "x[0]"]


@pytest.mark.parametrize("which", range(len(VERDICTS)))
def test_numbers_are_those_of_the_observation(which):
    found = check(tuple(VERDICTS))
    figure = plots.summary(found, which)
    assert figure.get_suptitle() == f"x_o[{which}]: {found.verdicts[which]}"
    if found.verdicts[which] == "outside":
        return
    found_panels = panels(figure)
    points = found_panels["mean of q − true, in sd"].collections[1].get_offsets()
    np.testing.assert_array_equal(points[:, 0], found.bounds.bias[which])
    assert found_panels["statistic"].get_title() == f"p = {found.test.pvalue[which]:.3g}"


def test_no_picture_of_q_where_x_o_is_outside():
    figure = plots.summary(check(("outside", "passed")))
    assert list(panels(figure)) == ["x[0]"]


def test_an_observation_by_its_label():
    figures = [plots.summary(check(tuple(VERDICTS)), which) for which in (2, "x_o[2]")]
    assert len({figure.get_suptitle() for figure in figures}) == 1
    with pytest.raises(KeyError, match="expected one of"):
        plots.summary(check(), "elsewhere")
    with pytest.raises(IndexError, match="expected one of 2 rows"):
        plots.summary(check(), 2)


def test_a_check_draws_itself():
    theta, noise = torch.randn(2, 300, 1, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)

    def narrow(x, n):
        return x / 2 + 0.3 * torch.randn(n, 1, generator=generator)

    x_o = [[0.5], [0.0]]
    found = assay.check(narrow, theta, theta + noise, x_o, names=["$\\mu$"], classifier=None)
    figure = found.plot(1)
    figure.canvas.draw()
    assert figure.get_suptitle() == "x_o[1]: rejected"
    found_panels = panels(figure)
    assert found_panels["statistic"].get_title() == f"p = {found.test.pvalue[1]:.3g}"
    points = found_panels["sd of q / true sd"].collections[1].get_offsets()
    assert points[0, 0] == found.bounds.width[1, 0]
