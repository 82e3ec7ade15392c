from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.cbook import is_math_text
from matplotlib.colors import to_rgba
from matplotlib.contour import ContourSet

from assay import plots
from assay.plots._pairs import MASS, TOO_LITTLE, TOO_MUCH
from tests.plots.cases import NAMES, local, many, reference


def host_of(grid):
    """The axes that hold the panels: those of the figure itself."""
    (host,) = grid[0, 0].figure.axes
    return host


def bar_of(grid):
    """The axes of the colour bar, which is the last."""
    return host_of(grid).child_axes[-1]


def half_range(grid):
    low, high = bar_of(grid).get_xlim()
    assert low + high == pytest.approx(1)
    return high - 0.5


def coloured(probability, half):
    return MASS((probability - 0.5 + half) / (2 * half))


def test_bars_have_the_colour_of_their_draws():
    result = local(2)
    grid = plots.pairs(result)
    half = half_range(grid)
    bars = grid[0, 0].patches
    assert sum(bar.get_height() for bar in bars) == 1000
    for bar in bars[1:-1]:
        left, right = bar.get_x(), bar.get_x() + bar.get_width()
        some = (result.theta[:, 0] >= left) & (result.theta[:, 0] < right)
        assert some.sum() == bar.get_height()
        mean = result.probabilities[some].mean()
        np.testing.assert_allclose(bar.get_facecolor(), coloured(mean, half), atol=0.02)


def test_draws_beyond_the_bins_are_counted_in_the_outermost():
    result = local(1)
    theta = result.theta.copy()
    theta[0] = 1e6
    bars = plots.pairs(replace(result, theta=theta))[0, 0].patches
    assert sum(bar.get_height() for bar in bars) == 1000
    assert max(bar.get_x() for bar in bars) < 10


def test_squares_have_the_colour_and_the_number_of_their_draws():
    result = local(2)
    grid = plots.pairs(result)
    half = half_range(grid)
    (squares,) = grid[1, 0].collections
    boxes = np.array([path.get_extents().get_points() for path in squares.get_paths()])
    middle, sides = boxes.mean(1), boxes[:, 1] - boxes[:, 0]
    size = sides.max(0)
    for at, side, colour in zip(middle, sides, squares.get_facecolors(), strict=True):
        some = (np.abs(result.theta - at) <= size / 2).all(1)
        if not (np.abs(at) < 2).all() or not some.any():
            continue
        mean = result.probabilities[some].mean()
        np.testing.assert_allclose(colour, coloured(mean, half), atol=0.03)
        assert (side / size)[0] == pytest.approx((side / size)[1])
    many_draws = np.abs(middle).max(1) < 0.5
    assert sides[many_draws].mean() > 1.5 * sides[~many_draws].mean()


def test_the_words_are_on_their_sides():
    """Probabilities of class 1 rise to the right, where q has too little mass."""
    grid = plots.pairs(local(1))
    left, right = host_of(grid).texts
    assert (left.get_text(), right.get_text()) == (TOO_MUCH, TOO_LITTLE)
    assert left.get_position()[0] < 0.5 < right.get_position()[0]
    first, *_, last = grid[0, 0].patches
    # Blue outweighs red where the probability of the truth is above 1/2.
    assert first.get_facecolor()[0] > first.get_facecolor()[2]
    assert last.get_facecolor()[2] > last.get_facecolor()[0]
    assert "class 1 (truth)" in bar_of(grid).get_title()


@pytest.mark.parametrize(("strength", "half"), [(9.0, 0.5), (0.1, 0.08), (0.02, 0.015)])
def test_one_symmetric_range_that_is_stated(strength, half):
    result = local(1, strength=strength)
    grid = plots.pairs(result)
    assert half_range(grid) == pytest.approx(half)
    far = np.abs(result.probabilities - 0.5)
    assert np.quantile(far, 0.95) <= half_range(grid) < 2 * np.quantile(far, 0.99)
    ticks = [float(t.get_text().replace("−", "-")) for t in bar_of(grid).get_xticklabels()]
    np.testing.assert_allclose(ticks, [0.5 - half_range(grid), 0.5, 0.5 + half_range(grid)])


def test_a_classifier_that_is_blind_leaves_all_grey():
    result = local(2)
    grid = plots.pairs(replace(result, probabilities=np.full(1000, 0.5)))
    assert half_range(grid) == pytest.approx(0.001)
    for bar in grid[0, 0].patches:
        np.testing.assert_allclose(bar.get_facecolor(), to_rgba("#d4d4d4"), atol=0.02)


def test_true_parameters_are_marked():
    grid = plots.pairs(local(3), marks=[0.4, -0.3, 9.0])
    for j, value in enumerate([0.4, -0.3, 9.0]):
        assert grid[j, j].get_lines()[0].get_xdata()[0] == value
        low, high = grid[j, j].get_xlim()
        assert low < value < high
    (star,) = grid[2, 1].get_lines()
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (-0.3, 9.0)
    assert grid[2, 1].get_ylim()[1] > 9
    assert host_of(grid).get_legend().get_texts()[0].get_text() == "true parameters"


def test_reference_draws_are_outlined():
    marks = reference(2)
    grid = plots.pairs(local(2), marks=marks)
    outline = grid[0, 0].patches[-1]
    heights, edges, _ = outline.get_data()
    np.testing.assert_allclose(heights, np.histogram(marks[:, 0], edges)[0])
    (contours,) = (c for c in grid[1, 0].collections if isinstance(c, ContourSet))
    outer, inner = contours.get_paths()
    shares = [path.contains_points(marks).mean() for path in (outer, inner)]
    np.testing.assert_allclose(shares, [0.9, 0.5], atol=0.04)


def test_few_reference_draws_are_dots():
    marks = reference(2, 30)
    (dots,) = plots.pairs(local(2), marks=marks)[1, 0].get_lines()
    np.testing.assert_allclose(dots.get_xydata(), marks)


def test_references_far_from_q():
    grid = plots.pairs(local(2), marks=1e5 + reference(2))
    assert grid[0, 0].get_xlim()[1] > 1e5
    grid[0, 0].figure.canvas.draw()


def test_names_are_typeset_or_plain():
    grid = plots.pairs(local(3), names=NAMES)
    labels = [grid[-1, j].get_xlabel() for j in range(3)]
    texts = [label.replace("\n", "").replace("\\$", "$").strip() for label in labels]
    assert texts == [name.replace(" ", " ") for name in NAMES]
    assert [bool(is_math_text(label)) for label in labels] == [True, False, False]
    assert grid[1, 0].get_ylabel() == labels[1]
    grid[0, 0].figure.canvas.draw()


def test_latents_are_called_latents():
    latent = replace(local(2), theta=None)
    assert plots.pairs(latent)[-1, 0].get_xlabel() == "latent[0]"
    assert plots.pairs(local(2))[-1, 1].get_xlabel() == "theta[1]"


def test_panels_below_the_diagonal():
    grid = plots.pairs(local(3))
    assert grid.shape == (3, 3)
    assert [grid[i, j] is None for i in range(3) for j in range(3)] == [
        *(False, True, True),
        *(False, False, True),
        *(False, False, False),
    ]
    assert grid[0, 0].figure.get_figwidth() == 3.4


@pytest.mark.parametrize("m", [1, 2, 4, 8])
def test_everything_lies_inside_the_figure_and_nothing_overlaps(m):
    names = [f"parameter_{j}_of_{m}" for j in range(m)]
    grid = plots.pairs(local(m), marks=np.zeros(m), names=names)
    figure = grid[0, 0].figure
    figure.canvas.draw()
    host = host_of(grid)
    words = [*host.texts, *host.get_legend().get_texts(), bar_of(grid).title]
    words += [grid[-1, j].xaxis.label for j in range(m)]
    words += [grid[j, 0].yaxis.label for j in range(1, m)]
    boxes = [word.get_window_extent() for word in words]
    for i, box in enumerate(boxes):
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert 0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert not box.count_overlaps(boxes[:i])


def test_it_draws_inside_the_axes_given():
    _, (left, right) = plt.subplots(1, 2, figsize=(7, 4), layout="constrained")
    grid = plots.pairs(local(2), right)
    right.figure.canvas.draw()
    assert not right.axison
    assert left.axison
    for panel in (grid[0, 0], grid[1, 0], grid[1, 1]):
        assert panel in right.child_axes
        box = panel.get_window_extent()
        assert right.bbox.x0 <= box.x0 < box.x1 <= right.bbox.x1
        assert right.bbox.y0 <= box.y0 < box.y1 <= right.bbox.y1


def test_neither_the_order_of_draws_nor_units_matter():
    result = local(2)
    order = np.random.default_rng(0).permutation(1000)
    other = replace(
        result, theta=5 + 1000 * result.theta[order], probabilities=result.probabilities[order]
    )
    ours, theirs = plots.pairs(result), plots.pairs(other)
    for a, b in zip(ours[1, 1].patches, theirs[1, 1].patches, strict=True):
        assert a.get_height() == b.get_height()
        np.testing.assert_allclose(a.get_facecolor(), b.get_facecolor(), atol=1e-6)
    colours = [grid[1, 0].collections[0].get_facecolors() for grid in (ours, theirs)]
    np.testing.assert_allclose(*colours, atol=1e-6)


def test_a_parameter_that_never_varies():
    result = local(2)
    theta = np.stack([result.theta[:, 0], np.full(1000, 3.0)], 1)
    grid = plots.pairs(replace(result, theta=theta), marks=reference(2))
    assert sum(bar.get_height() for bar in grid[1, 1].patches[:20]) == 1000
    grid[0, 0].figure.canvas.draw()


def test_a_single_draw():
    result = local(2)
    one = replace(result, theta=result.theta[:1], probabilities=result.probabilities[:1])
    assert plots.pairs(one)[0, 0].patches


def test_bad_input():
    result = local(2)
    with pytest.raises(ValueError, match="names: expected 2 different names"):
        plots.pairs(result, names=("a",))
    with pytest.raises(ValueError, match="names: expected 2 different names"):
        plots.pairs(result, names="ab")
    with pytest.raises(ValueError, match=r"marks: expected true parameters with shape \(2,\)"):
        plots.pairs(result, marks=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="marks: expected finite"):
        plots.pairs(result, marks=[np.nan, 0.0])
    with pytest.raises(ValueError, match="result: expected one observation; got 20"):
        plots.pairs(many())
    with pytest.raises(TypeError, match="result: expected that of a local test"):
        plots.pairs(None)


@pytest.mark.parametrize("scale", [1e-3, 0.02, 1.0, 7.0, 300.0, 4e4])
@pytest.mark.parametrize("shift", [0.0, -17.0])
def test_numbers_of_neighbours_do_not_touch(scale, shift):
    result = local(4)
    grid = plots.pairs(replace(result, theta=scale * (result.theta + shift)))
    grid[0, 0].figure.canvas.draw()
    boxes = [
        label.get_window_extent()
        for ax in grid[-1]
        for label in ax.get_xticklabels()
        if label.get_text() and label.get_visible()
    ]
    assert len(boxes) >= 4
    assert all(one.x1 < other.x0 for one, other in zip(boxes, boxes[1:], strict=False))
