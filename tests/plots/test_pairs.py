"""The pair plot: colours and sizes are those of the draws, marks are where they belong."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.contour import ContourSet

from assay import plots
from assay.plots._pairs import MASS, TOO_LITTLE, TOO_MUCH
from tests.plots.cases import drawn_figure, local, many, reference


def host_and_bar(grid):
    """The axes that hold the panels, and the colour bar, with the half range of its colours."""
    (host,) = grid[0, 0].figure.axes
    low, high = host.child_axes[-1].get_xlim()
    assert low + high == pytest.approx(1)
    return host, host.child_axes[-1], high - 0.5


def check_colours(result, low, high, colours, half, within):
    """Cells have the colours of the draws between their lower and upper ends, (n, m)."""
    theta, checked = result.theta[:, : low.shape[1]], 0
    for a, b, colour in zip(low, high, colours, strict=True):
        some = ((a <= theta) & (theta < b)).all(1)
        if some.any() and np.abs([a, b]).max() < 2:
            expected = MASS((result.probabilities[some].mean() - 0.5 + half) / (2 * half))
            np.testing.assert_allclose(colour, expected, atol=within)
            checked += 1
    assert checked > 10


def test_bars_and_squares_have_the_colours_and_the_number_of_their_draws():
    result = local(2)
    theta = result.theta.copy()
    theta[0] = 1e6  # beyond the bins, and counted in the outermost
    grid = plots.pairs(replace(result, theta=theta))
    bars, half = grid[0, 0].patches, host_and_bar(grid)[2]
    assert sum(bar.get_height() for bar in bars) == 1000
    assert max(bar.get_x() for bar in bars) < 10
    low, size = np.array([[b.get_x(), b.get_width()] for b in bars])[:, :, None].swapaxes(0, 1)
    check_colours(result, low, low + size, [b.get_facecolor() for b in bars], half, 0.02)
    (squares,) = grid[1, 0].collections
    boxes = np.array([path.get_extents().get_points() for path in squares.get_paths()])
    middle, sides = boxes.mean(1), boxes[:, 1] - boxes[:, 0]
    size = sides.max(0)
    cells = middle - size / 2, middle + size / 2
    check_colours(result, *cells, squares.get_facecolors(), half, 0.03)
    crowded = np.abs(middle).max(1) < 0.5
    assert sides[crowded].mean() > 1.5 * sides[~crowded].mean()


@pytest.mark.parametrize(("strength", "half"), [(9, 0.5), (0.1, 0.08), (0.02, 0.015), (0, 0.001)])
def test_one_symmetric_range_with_words_on_their_sides(strength, half):
    result = local(1, strength=strength)
    grid = plots.pairs(result if strength else replace(result, probabilities=np.full(1000, 0.5)))
    host, bar, own = host_and_bar(grid)
    assert own == pytest.approx(half)
    ticks = [float(t.get_text().replace("−", "-")) for t in bar.get_xticklabels()]
    np.testing.assert_allclose(ticks, [0.5 - half, 0.5, 0.5 + half])
    # Probabilities of class 1 rise to the right, where q has too little mass.
    words = [(text.get_text(), text.get_position()[0] < 0.5) for text in host.texts]
    assert words == [(TOO_MUCH, True), (TOO_LITTLE, False)]
    first, *_, last = (patch.get_facecolor() for patch in grid[0, 0].patches)
    if strength:  # blue outweighs red where the probability of the truth is above 1/2
        assert first[0] > first[2]
        assert last[2] > last[0]
    else:
        np.testing.assert_allclose([first, last], [to_rgba("#d4d4d4")] * 2, atol=0.02)


def test_true_parameters_and_reference_draws():
    grid = plots.pairs(local(3), marks=[0.4, -0.3, 9.0])
    assert [grid[j, j].get_lines()[0].get_xdata()[0] for j in range(3)] == [0.4, -0.3, 9.0]
    assert grid[2, 1].get_lines()[0].get_xydata().tolist() == [[-0.3, 9.0]]
    assert min(grid[2, 1].get_ylim()[1], grid[2, 2].get_xlim()[1]) > 9
    marks = reference(2)
    grid = plots.pairs(local(2), marks=marks)
    heights, edges, _ = grid[0, 0].patches[-1].get_data()
    np.testing.assert_allclose(heights, np.histogram(marks[:, 0], edges)[0])
    (contours,) = (c for c in grid[1, 0].collections if isinstance(c, ContourSet))
    shares = [path.contains_points(marks).mean() for path in contours.get_paths()]
    np.testing.assert_allclose(shares, [0.9, 0.5], atol=0.04)
    few, far = (plots.pairs(local(2), marks=some) for some in (marks[:30], 1e5 + marks))
    np.testing.assert_allclose(few[1, 0].get_lines()[0].get_xydata(), marks[:30])
    drawn_figure(far)
    assert far[0, 0].get_xlim()[1] > 1e5


@pytest.mark.parametrize("m", [1, 2, 4, 8])
def test_everything_lies_inside_the_figure_and_nothing_overlaps(m):
    names = [f"parameter_{j}_of_{m}" for j in range(m)]
    grid = plots.pairs(local(m), marks=np.zeros(m), names=names)
    assert ((grid == None) == (np.triu(np.ones((m, m)), 1) > 0)).all()  # noqa: E711
    figure, (host, bar, _) = drawn_figure(grid), host_and_bar(grid)
    words = [*host.texts, *host.get_legend().get_texts(), bar.title]
    words += [panel.xaxis.label for panel in grid[-1]] + [p.yaxis.label for p in grid[1:, 0]]
    boxes = [word.get_window_extent() for word in words]
    for i, box in enumerate(boxes):
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert 0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert not box.count_overlaps(boxes[:i])


@pytest.mark.parametrize("scale", [1e-3, 0.02, 1.0, 7.0, 300.0, 4e4])
@pytest.mark.parametrize("shift", [0.0, -17.0])
def test_units_matter_to_numbers_alone_which_do_not_touch(scale, shift):
    result, order = local(4), np.random.default_rng(0).permutation(1000)
    theta = scale * (result.theta[order] + shift)
    other = replace(result, probabilities=result.probabilities[order], theta=theta)
    ours, theirs = plots.pairs(result), plots.pairs(other)
    colours = [grid[1, 0].collections[0].get_facecolors() for grid in (ours, theirs)]
    np.testing.assert_allclose(*colours, atol=1e-6)
    drawn_figure(theirs)
    labels = [label for ax in theirs[-1] for label in ax.get_xticklabels() if label.get_visible()]
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    assert len(boxes) >= 4
    assert all(one.x1 < other.x0 for one, other in zip(boxes, boxes[1:], strict=False))


def test_draws_need_not_vary_and_may_be_latents():
    result = local(2)
    theta = np.stack([result.theta[:, 0], np.full(1000, 3.0)], 1)
    grid = plots.pairs(replace(result, theta=theta), marks=reference(2))
    assert sum(bar.get_height() for bar in grid[1, 1].patches[:20]) == 1000
    one = replace(result, theta=theta[:1], probabilities=result.probabilities[:1])
    drawn_figure(grid), drawn_figure(plots.pairs(one))
    assert plots.pairs(replace(result, theta=None))[-1, 0].get_xlabel() == "latent[0]"


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"names": ("a",)}, ValueError, "names: expected 2 different names"),
        ({"marks": [1.0, 2.0, 3.0]}, ValueError, r"marks: expected true .* shape \(2,\)"),
        ({"marks": [np.nan, 0.0]}, ValueError, "marks: expected finite"),
        ({"result": many()}, ValueError, "result: expected one observation; got 20"),
        ({"result": None}, TypeError, "result: expected that of a local test"),
    ],
)
def test_bad_input(given, error, words):
    with pytest.raises(error, match=words):
        plots.pairs(**{"result": local(2)} | given)
