import math
from itertools import product

import numpy as np
import pytest
import torch

from assay import Calibration
from assay._support.random import stream
from assay.neighbourhood import (
    DIRECTIONS,
    PENALTIES,
    Distance,
    DistanceForQ,
    Nearest,
    RobustScale,
    as_nearest,
    check_features,
    local_quadratic,
    principal_coordinates,
    random_waves,
    regression_design,
    ridge,
    standard_deviation,
)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=stream(seed, "normal"))


X, X_O = normal(200, 3), torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("share", "n", "part", "count"),
    [
        *[(None, 1000, 1.0, 200), (None, 5000, 1.0, 1000), (None, 20_000, 1.0, 2000)],
        *[(None, 500_000, 1.0, 10_000), (None, 20_000, 0.25, 500), (0.1, 20_000, 1.0, 2000)],
        *[(0.1, 2000, 0.25, 50), (1, 300, 1.0, 300), (0.5, 7, 1.0, 7)],
        *[(0.01, 300, 1.0, 10), (None, 30, 0.25, 10)],  # ten are the fewest
    ],
)
def test_how_many_are_near(share, n, part, count):
    assert Nearest(share).count(n, part) == as_nearest(share).count(n, part) == count


@pytest.mark.parametrize("near", [Nearest(), Nearest(0.1)])
def test_simulations_for_so_many_times_as_many_near(near):
    for n, times in product((1000, 4000, 30_000), (0.5, 2, 7)):
        more = round(float(near.simulations_for(n, times)))
        assert near.count(more) == pytest.approx(times * near.count(n), rel=1e-3)


def test_the_nearest_are_the_nearest():
    """In any units of x."""
    inside = Nearest(0.2).inside(X, X_O + 0.3)
    scaled = RobustScale.fit(X)
    lengths = (scaled(X) - scaled(X_O + 0.3)[:1]).norm(dim=1)
    assert inside.shape == (2, 200)
    assert set(inside[0].nonzero().flatten().tolist()) == set(lengths.argsort()[:40].tolist())
    assert (Nearest(0.2).inside(X, X_O + 0.3, 0.25) <= inside).all()
    units, offset = torch.tensor([1.0, 1e3, 1e-3]), torch.tensor([0.0, 5.0, -7.0])
    moved = Nearest(0.2).inside(units * X + offset, units * (X_O + 0.3) + offset)
    assert torch.equal(moved, inside)


def test_ties_are_all_in_or_all_out():
    x = torch.arange(10.0).repeat_interleave(10)[:, None]
    inside = Nearest(0.15).inside(x, torch.zeros(1, 1))[0]
    assert inside.nonzero().flatten().tolist() == list(range(20))
    # One observation or many, and points that nearly coincide.
    tied = torch.randint(3, (300, 7), generator=stream(0, "tied")).float()
    alone = torch.cat([Nearest(0.1).inside(tied, o[None]) for o in tied[:40]])
    assert torch.equal(Nearest(0.1).inside(tied, tied[:40]), alone)
    clusters = torch.cat([1e-4 * normal(500, 2, seed=i) + i for i in (0, 2)])
    assert (Nearest(0.05).inside(clusters, clusters[:5]).sum(1) == 50).all()


def test_a_distance_in_another_representation():
    second = Nearest(0.1, Distance(lambda x: x[:, 1:2]))
    inside = second.inside(X, X_O)[0]
    assert X[inside, 1].abs().max() < 0.4
    assert X[inside, 0].abs().max() > 1
    assert [part.shape for part in second.coordinates(X, X_O)] == [(200, 1), (2, 1)]


class TestDistanceForQ:
    X = normal(1000, 50)

    def nearest(self, sets, x=X, distance=None):
        """Whether each x is near one with a first feature of 0.5."""
        x_o = x[:1].clone()
        x_o[0, 0] = 0.5
        return Nearest(0.1, distance or DistanceForQ.fit(x, sets)).inside(x, x_o)[0]

    @pytest.mark.parametrize("width", [False, True])
    def test_it_finds_the_feature_that_matters_of_fifty(self, width):
        feature = self.X[:, 0, None, None]
        noise = normal(1000, 9, 1, seed=1)
        near = self.nearest((1.5 * feature).exp() * noise if width else 2 * feature + noise)
        assert self.X[near, 0].std() < 0.6
        assert abs(self.X[near, 0].mean() - 0.5) < 0.2
        assert self.X[near, 8].std() > 0.8

    def test_it_does_not_depend_on_labels(self):
        sets = self.X[:, :1, None] + normal(1000, 9, 1, seed=1)
        order = torch.rand(1000, 9, generator=stream(2, "order")).argsort(1)
        assert torch.equal(self.nearest(sets), self.nearest(sets.gather(1, order[..., None])))

    @pytest.mark.parametrize("sets", [normal(1000, 9, 2, seed=3), torch.ones(1000, 9, 1)])
    def test_a_q_that_ignores_x_leaves_x_alone(self, sets):
        x = self.X[:, :6]
        assert (self.nearest(sets, x) & self.nearest(sets, x, Distance())).sum() > 70

    def test_which_distance_a_calibration_takes(self):
        theta, latents = normal(60, 1), Calibration.from_base(normal(60, 1), self.X[:60])
        few, many = (Calibration(theta, self.X[:60, :d], theta[:, None] + 1) for d in (4, 5))
        kinds = [type(each.nearest().distance) for each in (few, many, latents)]
        assert kinds == [Distance, DistanceForQ, Distance]
        assert few.nearest(0.3).words == "throughout the nearest 30% of x around x_o"
        assert "by q's mean and width given x" in many.nearest(0.3).words
        assert many.nearest(Nearest(0.3, Distance())).words == few.nearest(0.3).words


def test_the_common_scale():
    """Median and interquartile range; the spread where quartiles coincide, one without any."""
    rare = (torch.arange(5000) % 10 == 0).float()[:, None]
    table = torch.cat([3 * normal(5000, 1) + 5, rare, torch.full((5000, 1), 7.0)], 1)
    found = RobustScale.fit(table)
    torch.testing.assert_close(found.median, torch.tensor([5.0, 0.0, 7.0]), atol=0.2, rtol=0)
    assert found.scale.tolist() == [pytest.approx(3, rel=0.05), pytest.approx(rare.std()), 1]
    far = found(torch.tensor([[1e6, 0.0, 7.0], [math.inf, 0.0, 7.0]]))
    assert torch.equal(far[:, 1:], torch.zeros(2, 2))
    assert 12 < far[0, 0] < 14  # logarithmic in the tails
    assert far.isfinite().all()
    far_off = standard_deviation(table + 1e5)
    torch.testing.assert_close(far_off, standard_deviation(table), rtol=1e-2, atol=0)


@pytest.mark.parametrize("d", [4, DIRECTIONS + 50])
def test_the_design_has_a_constant_directions_and_cosines(d):
    x = normal(20, d)
    design = regression_design(x, 10)
    assert design.shape == (20, 1 + min(d, DIRECTIONS) + 10)
    assert (design[:, 0] == 1).all()
    assert d > 4 or torch.equal(design[:, 1:5].float(), x)
    assert design[:, -10:].abs().max() <= math.sqrt(2 / 10) + 1e-6
    (frequencies, _), (again, _) = (random_waves(50, 2.0, d, "key") for _ in range(2))
    assert torch.equal(frequencies, again)
    assert frequencies.norm(dim=0).mean() == pytest.approx(2.0, rel=0.1)


def test_ridge_leaves_rows_out_one_by_one():
    """Against as many fits, with every penalty; the best of them is taken."""
    design = torch.cat([torch.ones(40, 1), normal(40, 3)], 1).double()
    targets = torch.stack([design[:, 1] + 0.3 * normal(40, seed=1), normal(40, seed=2)], 1)
    targets, rest, shares = targets - targets.mean(0), ~torch.eye(40, dtype=torch.bool), []
    for penalty in PENALTIES:
        penalties = 40 * penalty * torch.eye(4)
        grams = [design[some].mT @ design[some] + penalties for some in rest]
        products = [design[some].mT @ targets[some] for some in rest]
        fits = torch.linalg.solve(torch.stack(grams), torch.stack(products))
        missed = (targets - torch.einsum("np,npj->nj", design, fits)).square().mean(0)
        shares.append((1 - missed / targets.square().mean(0)).clamp_min(0))
    weights, explained = ridge(design, targets)
    torch.testing.assert_close(explained, max(shares, key=lambda share: float(share.mean())))
    assert explained[0] > 0.8
    assert weights[1, 0] == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(("n", "e"), [(200, 1), (200, 3), (1000, 6)])
def test_local_quadratic_weights(n, e):
    """They sum to one, and reproduce quadratics exactly, wherever x_o lies."""
    u, x_o = normal(n, e).double(), torch.full((e,), 0.7).double()
    design, coefficients = local_quadratic(u, x_o, np.full(n, 1 / n))
    weights = coefficients[0]
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    slopes, curves = normal(e, seed=4).double(), normal(e, e, seed=5).double()
    every = torch.cat([u, x_o[None]])
    *values, expected = (1.5 + every @ slopes + (every @ curves * every).sum(1)).tolist()
    assert weights @ values == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(design @ (coefficients @ values), values, atol=1e-4)
    farthest = int((u - x_o).norm(dim=1).argmax())
    assert abs(weights[farthest]) < 1e-3 * np.abs(weights).max()


@pytest.mark.parametrize(("n", "e", "kept"), [(200, 3, 3), (200, 30, 4), (25, 3, 1)])
def test_many_coordinates_are_reduced(n, e, kept):
    """To as many as there are twelve simulations for each coefficient; at least to one."""
    design, coefficients = local_quadratic(normal(n, e), torch.zeros(e), np.full(n, 1 / n))
    assert design.shape == (n, (kept + 1) * (kept + 2) // 2)
    assert coefficients[0].sum() == pytest.approx(1, abs=1e-6)
    offset = normal(100, 5) * torch.arange(1.0, 6.0) + 7
    found = principal_coordinates(offset, 2)
    assert found.var(0).sum() >= offset.var(0).sort().values[-2:].sum() - 1e-3


def test_simulations_that_coincide_or_have_weights_in_a_local_fit():
    """All alike where all coincide; as many copies as a weight says are the same fit."""
    _, alike = local_quadratic(torch.ones(20, 2), torch.ones(2), np.full(20, 0.05))
    np.testing.assert_allclose(alike[0], 0.05, atol=1e-6)
    u, x_o = normal(120, 1).double(), torch.tensor([0.3]).double()
    times = torch.arange(120) % 3 + 1
    _, one = local_quadratic(u, x_o, times.numpy() / 240)
    _, copies = local_quadratic(u.repeat_interleave(times, 0), x_o, np.full(240, 1 / 240))
    sums = np.add.reduceat(copies[0], np.r_[0, times.cumsum(0)[:-1]])
    np.testing.assert_allclose(one[0], sums, atol=1e-8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *[(lambda s=s: Nearest(s), "share: expected a number") for s in (0, 1.5, True, "a", X)],
        (lambda: as_nearest("near"), "near: expected a number between 0 and 1"),
        (lambda: Nearest(0.1, Distance), "distance: expected .*; got the class Distance"),
        (lambda: Distance("a"), "function: expected a function of features"),
        (lambda: Distance(lambda x: x[:3])(X, X_O), r"function: expected one that maps"),
        (lambda: Distance(lambda x: x / 0)(X, X_O), "function: expected finite"),
        (lambda: check_features(X[:, None], X_O), r"x: expected features \(n, d\)"),
        (lambda: Nearest().inside(X, X_O / 0), "x_o: expected finite"),
        (lambda: Nearest().inside(X, X_O[:, :2]), "x_o: .* got 3 and 2"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
