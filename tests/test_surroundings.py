import numpy as np
import torch

from assay.randomness import stream
from assay.surroundings import surroundings


def cloud(n=2000, d=3, seed=0):
    return torch.randn(n, d, generator=stream(seed, "cloud"))


def test_a_typical_observation_has_a_twentieth_of_the_pairs_around_it():
    x = cloud()
    found = surroundings(x, cloud(50, seed=1))
    assert 60 < np.median(found.pairs) < 140
    assert 0.8 < np.median(found.distance) < 1.2
    assert found.outside.mean() <= 0.06


def test_pvalues_of_points_from_the_cloud_are_uniform():
    found = surroundings(cloud(), cloud(1000, seed=2)).pvalue
    for level in (0.1, 0.5, 0.9):
        assert abs((found <= level).mean() - level) < 0.06


def test_far_points_lie_outside():
    found = surroundings(cloud(), torch.full((1, 3), 8.0))
    assert found.outside.all()
    assert found.pairs[0] == 0
    assert found.distance[0] > 3


def test_units_do_not_matter():
    x, there = cloud(), cloud(5, seed=1)
    unit, moved = torch.tensor([1.0, 1e3, 1e-3]), torch.tensor([0.0, 5.0, -7.0])
    one, two = surroundings(x, there), surroundings(x * unit + moved, there * unit + moved)
    np.testing.assert_allclose(one.distance, two.distance, rtol=1e-3)


def test_many_calibration_points_are_thinned_and_counts_scaled_back():
    found = surroundings(cloud(50_000, 2), torch.zeros(1, 2))
    assert 2000 < found.pairs[0] < 12_000


def test_coinciding_and_few_points():
    found = surroundings(torch.zeros(20, 2), torch.zeros(1, 2))
    assert found.pvalue[0] == 1
    assert surroundings(cloud(10), cloud(1, seed=1)).pvalue.shape == (1,)
