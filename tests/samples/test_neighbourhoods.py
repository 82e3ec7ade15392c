import numpy as np
import pytest
import torch

from assay._core import stream
from assay.samples.neighbourhoods import (
    Distance,
    Nearest,
    Neighbourhood,
    Robust,
    Smooth,
    as_neighbourhood,
    spread,
    support,
)

X = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
X_O = torch.zeros(2, 3)


@pytest.mark.parametrize("where", [Nearest(), Smooth(), Nearest((1.0,))])
def test_weights_have_unit_norm_and_do_not_mind_units(where):
    weights = where.weights(X, X_O)
    assert weights.shape == (2, len(where.shares), 200)
    torch.testing.assert_close(weights.square().sum(2), torch.ones(weights.shape[:2]))
    moved = where.weights(100 * X + 3, 100 * X_O + 3)
    torch.testing.assert_close(moved, weights, atol=1e-4, rtol=1e-3)


def test_the_nearest_are_the_nearest():
    weights = Nearest((0.1, 0.2)).weights(X, X_O)[0]
    assert (weights != 0).sum(1).tolist() == [20, 40]
    assert ((weights[0] != 0) <= (weights[1] != 0)).all()


def test_a_kernel_falls_with_distance():
    line = torch.linspace(-1, 1, 101)[:, None]
    weights = Smooth((0.2,)).weights(line, line[50:51])[0, 0]
    assert weights.argmax() == 50
    assert (weights[50:].diff() <= 0).all()


@pytest.mark.parametrize("where", [Nearest(), Smooth()])
def test_observations_that_are_all_the_same(where):
    weights = where.weights(torch.ones(100, 2), torch.ones(1, 2))
    torch.testing.assert_close(weights, torch.full((1, 3, 100), 0.1))


@pytest.mark.parametrize("shares", [(), (0.0,), (1.5,), (-0.1, 0.2)])
def test_bad_shares(shares):
    with pytest.raises(ValueError, match="shares: expected .*number"):
        Nearest(shares)


def test_hypotheses_differ():
    assert "nearest 20%" in Nearest().hypothesis(0.2)
    assert "almost every x" in Smooth().hypothesis(0.2)


def test_ties_are_all_in_or_all_out():
    x = torch.arange(10.0).repeat_interleave(10)[:, None]
    inside = Nearest((0.15,)).weights(x, torch.tensor([[0.0]]))[0, 0] > 0
    assert inside.nonzero().flatten().tolist() == list(range(20))


def test_shares_of_any_kind():
    assert Nearest(np.array([0.2, 0.1])).shares == Nearest([0.1, 0.2]).shares == (0.1, 0.2)
    with pytest.raises(TypeError, match="shares: expected a number"):
        Nearest("a")


def test_distance_in_another_representation(gaussian):
    calibration = gaussian().calibration(200)
    only_second = Distance(lambda x: x[:, 1:])
    near = Nearest((0.1,), only_second).inside(calibration.features, torch.zeros(1, 2))[0, 0]
    assert calibration.x[near, 1].abs().max() < 0.4
    assert calibration.x[near, 0].abs().max() > 1
    with pytest.raises(ValueError, match="function: expected one that maps"):
        Nearest((0.1,), Distance(lambda x: x[:3])).inside(calibration.features, torch.zeros(1, 2))


def test_near_points_are_found_in_single_precision_and_however_many_are_asked():
    x = torch.cat([torch.randn(500, 2, generator=stream(i, "cluster")) * 1e-4 + i for i in (0, 2)])
    assert (Nearest((0.05,)).inside(x, x[:5]).sum(2) == 50).all()
    tied = torch.randint(3, (300, 7), generator=stream(0, "tied")).float()
    together = Nearest((0.1,)).inside(tied, tied[:40])
    alone = torch.cat([Nearest((0.1,)).inside(tied, o[None]) for o in tied[:40]])
    assert torch.equal(together, alone)


def test_a_neighbourhood_is_one_and_none_is_the_nearest():
    assert as_neighbourhood(None) == Nearest()
    smooth = Smooth((0.3,))
    assert as_neighbourhood(smooth) is smooth
    assert Nearest.local
    assert not Smooth.local
    with pytest.raises(TypeError, match="abstract"):
        Neighbourhood()


@pytest.mark.parametrize("where", [Nearest, 0.2, "near", Distance()])
def test_weights_of_another_kind(where):
    with pytest.raises(TypeError, match=r"where: expected a neighbourhood such as Nearest\(\)"):
        as_neighbourhood(where)


def test_the_common_scale():
    """Median and interquartile range; the spread where quartiles coincide, one without any."""
    x = torch.randn(5000, 1, generator=stream(0, "scale"))
    rare = (torch.arange(5000) % 10 == 0).float()[:, None]
    table = torch.cat([3 * x + 5, rare, torch.full_like(x, 7.0)], 1)
    found = Robust.fit(table)
    torch.testing.assert_close(found.location, torch.tensor([5.0, 0.0, 7.0]), atol=0.2, rtol=0)
    assert found.scale[0] == pytest.approx(3, rel=0.05)
    assert found.scale[1:].tolist() == [pytest.approx(float(rare.std())), 1]
    assert spread(table)[2] == 1
    torch.testing.assert_close(spread(table + 1e6)[0], spread(table)[0], rtol=1e-2, atol=0)
    far = found(torch.tensor([[1e6, 0.0, 7.0]]))
    torch.testing.assert_close(far[0, 1:], torch.zeros(2))
    assert 12 < far[0, 0] < 14  # logarithmic in the tails


def test_the_share_that_is_used():
    """Ten points are the fewest, and ties are all in or all out."""
    line = torch.arange(100.0)[:, None]
    assert Nearest((0.2,)).share_used(line, line[:1]) == 0.2
    assert Nearest((0.01,)).share_used(line, line[:1]) == 0.1
    tied = (torch.arange(100) // 30).float()[:, None]
    assert Nearest((0.1,)).share_used(tied, tied[[0, 99]]) == 0.3


def cloud(n=2000, d=3, seed=0):
    return torch.randn(n, d, generator=stream(seed, "cloud"))


def test_a_typical_observation_has_a_twentieth_of_the_pairs_around_it():
    x = cloud()
    found = support(x, cloud(50, seed=1))
    assert 60 < np.median(found.pairs) < 140
    assert 0.8 < np.median(found.distance) < 1.2
    assert found.outside.mean() <= 0.06


def test_pvalues_of_points_from_the_cloud_are_uniform():
    found = support(cloud(), cloud(1000, seed=2)).pvalue
    for level in (0.1, 0.5, 0.9):
        assert abs((found <= level).mean() - level) < 0.06


def test_far_points_lie_outside():
    found = support(cloud(), torch.full((1, 3), 8.0))
    assert found.outside.all()
    assert found.pairs[0] == 0
    assert found.distance[0] > 3


def test_units_of_x_do_not_matter():
    x, there = cloud(), cloud(5, seed=1)
    unit, moved = torch.tensor([1.0, 1e3, 1e-3]), torch.tensor([0.0, 5.0, -7.0])
    one, two = support(x, there), support(x * unit + moved, there * unit + moved)
    np.testing.assert_allclose(one.distance, two.distance, rtol=1e-3)


def test_many_calibration_points_are_thinned_and_counts_scaled_back():
    found = support(cloud(50_000, 2), torch.zeros(1, 2))
    assert 2000 < found.pairs[0] < 12_000


def test_coinciding_and_few_points():
    found = support(torch.zeros(20, 2), torch.zeros(1, 2))
    assert found.pvalue[0] == 1
    inside, outside = support(cloud(10), torch.tensor([[0.0] * 3, [9.0] * 3])).pvalue
    assert inside > 0.5
    assert outside == pytest.approx(1 / 11)


def test_one_of_many():
    many = support(cloud(), torch.stack([torch.zeros(3), torch.full((3,), 8.0)]))
    assert [bool(many[i].outside) for i in (0, 1)] == [False, True]
    assert many[1].pairs == many.pairs[1]
    assert many[0].distance.shape == ()
