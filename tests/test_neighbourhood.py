"""What is near: shares and counts, distances, distances for q, and local-quadratic weights."""

import math

import numpy as np
import pytest
import torch

from assay import Calibration
from assay._support.random import stream
from assay.neighbourhood import (
    SETS_PER_COEFFICIENT,
    Distance,
    DistanceForQ,
    Nearest,
    RobustScale,
    as_nearest,
    check_features,
    local_quadratic,
    principal_coordinates,
)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=stream(seed, "normal"))


X, X_O = normal(200, 3), torch.zeros(2, 3)


# Counts.


@pytest.mark.parametrize(
    ("share", "n", "part", "count"),
    [
        (None, 1000, 1.0, 200),
        (None, 5000, 1.0, 1000),
        (None, 20_000, 1.0, 2000),
        (None, 500_000, 1.0, 10_000),
        (None, 20_000, 0.25, 500),
        (0.1, 20_000, 1.0, 2000),
        (0.1, 2000, 0.25, 50),
        (1, 300, 1.0, 300),
        (0.01, 300, 1.0, 10),  # ten are the fewest
        (None, 30, 0.25, 10),
        (0.5, 7, 1.0, 7),
    ],
)
def test_how_many_are_near(share, n, part, count):
    assert Nearest(share).count(n, part) == as_nearest(share).count(n, part) == count


@pytest.mark.parametrize("share", [None, 0.1])
@pytest.mark.parametrize("n", [1000, 4000, 30_000])
def test_simulations_for_so_many_times_as_many_near(share, n):
    near = Nearest(share)
    for times in (0.5, 2, 7):
        more = round(float(near.simulations_for(n, times)))
        assert near.count(more) == pytest.approx(times * near.count(n), rel=1e-3)


# Who is near.


def test_the_nearest_are_the_nearest():
    inside = Nearest(0.2).inside(X, X_O + 0.3)
    scaled = RobustScale.fit(X)
    lengths = (scaled(X) - scaled(X_O + 0.3)[:1]).norm(dim=1)
    assert inside.shape == (2, 200)
    assert set(inside[0].nonzero().flatten().tolist()) == set(lengths.argsort()[:40].tolist())
    assert (Nearest(0.2).inside(X, X_O + 0.3, 0.25) <= inside).all()


def test_ties_are_all_in_or_all_out():
    x = torch.arange(10.0).repeat_interleave(10)[:, None]
    inside = Nearest(0.15).inside(x, torch.zeros(1, 1))[0]
    assert inside.nonzero().flatten().tolist() == list(range(20))
    assert Nearest(0.2).inside(torch.ones(100, 2), torch.ones(1, 2)).all()


def test_one_observation_or_many_and_points_that_nearly_coincide():
    tied = torch.randint(3, (300, 7), generator=stream(0, "tied")).float()
    together = Nearest(0.1).inside(tied, tied[:40])
    alone = torch.cat([Nearest(0.1).inside(tied, o[None]) for o in tied[:40]])
    assert torch.equal(together, alone)
    clusters = torch.cat([1e-4 * normal(500, 2, seed=i) + i for i in (0, 2)])
    assert (Nearest(0.05).inside(clusters, clusters[:5]).sum(1) == 50).all()


def test_units_of_x_do_not_matter():
    units, offset = torch.tensor([1.0, 1e3, 1e-3]), torch.tensor([0.0, 5.0, -7.0])
    moved = Nearest(0.2).inside(units * X + offset, units * X_O + offset)
    assert torch.equal(moved, Nearest(0.2).inside(X, X_O))


def test_a_distance_in_another_representation():
    second = Nearest(0.1, Distance(lambda x: x[:, 1:2]))
    inside = second.inside(X, X_O)[0]
    assert X[inside, 1].abs().max() < 0.4
    assert X[inside, 0].abs().max() > 1
    coordinates, centre = second.coordinates(X, X_O)
    assert (coordinates.shape, centre.shape) == ((200, 1), (2, 1))


# Near for q.


def members(x, of, width=1.0):
    """Members (n, 9, 1) with a mean and a width at each x."""
    return of[:, None, None] + width * normal(len(x), 9, 1, seed=1)


class TestDistanceForQ:
    X = normal(1000, 50)

    def nearest(self, sets, x=X, at=0):
        x_o = x[:1].clone()
        x_o[0, at] = 0.5
        return Nearest(0.1, DistanceForQ.fit(x, sets)).inside(x, x_o)[0]

    @pytest.mark.parametrize("what", ["mean", "width"])
    def test_it_finds_the_feature_that_matters_of_fifty(self, what):
        feature = self.X[:, 7]
        mean = members(self.X, 2 * feature)
        width = members(self.X, 0 * feature, (1.5 * feature).exp()[:, None, None])
        near = self.nearest({"mean": mean, "width": width}[what], at=7)
        assert self.X[near, 7].std() < 0.6
        assert abs(self.X[near, 7].mean() - 0.5) < 0.2
        assert self.X[near, 8].std() > 0.8

    def test_it_does_not_depend_on_labels(self):
        sets = members(self.X, self.X[:, 0])
        order = torch.rand(1000, 9, generator=stream(2, "order")).argsort(1)
        other = sets.gather(1, order[..., None])
        assert torch.equal(self.nearest(sets), self.nearest(other))

    @pytest.mark.parametrize("sets", [normal(1000, 9, 2, seed=3), torch.ones(1000, 9, 1)])
    def test_a_q_that_ignores_x_leaves_x_alone(self, sets):
        x = self.X[:, :6]
        both = self.nearest(sets, x) & Nearest(0.1).inside(x, x[:1].index_fill(1, Z, 0.5))[0]
        assert both.sum() > 70

    def test_which_distance_a_calibration_takes(self):
        theta, latents = normal(60, 1), Calibration.from_base(normal(60, 1), self.X[:60])
        few, many = (Calibration(theta, self.X[:60, :d], theta[:, None] + 1) for d in (4, 5))
        kinds = [type(each.nearest().distance) for each in (few, many, latents)]
        assert kinds == [Distance, DistanceForQ, Distance]
        assert few.nearest(0.3).words == "throughout the nearest 30% of x around x_o"
        assert "by q's mean and width given x" in many.nearest(0.3).words
        assert many.nearest(Nearest(0.3, Distance())).words == few.nearest(0.3).words


Z = torch.tensor([0])


# At x_o.


@pytest.mark.parametrize(("n", "e"), [(200, 1), (200, 3), (1000, 6)])
def test_local_quadratic_weights(n, e):
    """They sum to one, and reproduce quadratics exactly, wherever x_o lies."""
    u, x_o = normal(n, e).double(), torch.full((e,), 0.7).double()
    design, coefficients = local_quadratic(u, x_o, np.full(n, 1 / n))
    assert design.shape == (n, (e + 1) * (e + 2) // 2)
    weights = coefficients[0]
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    assert (weights < 0).any()
    slopes, curves = normal(e, seed=4).double(), normal(e, e, seed=5).double()
    every = torch.cat([u, x_o[None]])
    *values, expected = (1.5 + every @ slopes + (every @ curves * every).sum(1)).tolist()
    assert weights @ values == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(design @ (coefficients @ values), values, atol=1e-4)
    farthest = int((u - x_o).norm(dim=1).argmax())
    assert abs(weights[farthest]) < 1e-3 * np.abs(weights).max()


@pytest.mark.parametrize(("n", "e", "kept"), [(200, 30, 4), (1000, 30, 11), (25, 3, 1)])
def test_many_coordinates_are_reduced(n, e, kept):
    """To as many as there are twelve simulations for each coefficient; at least to one."""
    u = normal(n, e).double()
    design, coefficients = local_quadratic(u, torch.zeros(e), np.full(n, 1 / n))
    p = (kept + 1) * (kept + 2) // 2
    assert design.shape == (n, p)
    assert kept == 1 or p * SETS_PER_COEFFICIENT <= n
    assert coefficients[0].sum() == pytest.approx(1, abs=1e-6)


def test_simulations_that_all_coincide_weigh_alike():
    _, coefficients = local_quadratic(torch.ones(20, 2), torch.ones(2), np.full(20, 0.05))
    np.testing.assert_allclose(coefficients[0], 0.05, atol=1e-6)


def test_weights_of_simulations_count_in_a_local_fit():
    """As many copies of a simulation as its weight says are the same fit."""
    u, x_o = normal(120, 1).double(), torch.tensor([0.3]).double()
    times = torch.arange(120) % 3 + 1
    _, one = local_quadratic(u, x_o, times.numpy() / 240)
    _, copies = local_quadratic(u.repeat_interleave(times, 0), x_o, np.full(240, 1 / 240))
    sums = np.add.reduceat(copies[0], np.r_[0, times.cumsum(0)[:-1]])
    np.testing.assert_allclose(one[0], sums, atol=1e-8)


@pytest.mark.parametrize("most", [2, 9])
def test_principal_coordinates(most):
    offset = normal(100, 5) * torch.arange(1.0, 6.0) + 7
    found = principal_coordinates(offset, most)
    assert found.shape == (100, min(most, 5))
    if most == 2:
        kept, whole = found.var(0).sum(), offset.var(0)
        assert kept >= whole.sort().values[-2:].sum() - 1e-3
        assert abs(np.corrcoef(found.T)[0, 1]) < 1e-5


BAD = {
    **{
        f"a share of {share!r}": (lambda share=share: Nearest(share), "share: expected a number")
        for share in (0, -0.1, 1.5, math.nan, True, "a", (0.1, 0.2), np.array([0.1, 0.2]))
    },
    "near": (lambda: as_nearest("near"), "near: expected a number between 0 and 1"),
    "a distance": (lambda: Nearest(0.1, 3.0), "distance: expected one such as"),
    "a class": (lambda: Nearest(0.1, Distance), "distance: expected .*; got the class Distance"),
    "no function": (lambda: Distance("a"), "function: expected a function of features"),
    "fewer rows": (lambda: Distance(lambda x: x[:3])(X, X_O), r"function: expected one that maps"),
    "not finite": (lambda: Distance(lambda x: x / 0)(X, X_O), "function: expected finite"),
    "an image": (lambda: check_features(X[:, None], X_O), r"x: expected features \(n, d\)"),
    "missing": (lambda: Nearest().inside(X, X_O / 0), "x_o: expected finite"),
    "another width": (lambda: Nearest().inside(X, X_O[:, :2]), "x_o: .* got 3 and 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, message = BAD[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call()
