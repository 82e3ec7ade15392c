"""Feature maps: positions of members and functions of them, which look at all members alike."""

import numpy as np
import pytest
import torch

import assay
from assay._support.random import stream
from assay.local import features as module
from assay.local.features import Coordinates, Positions, feature_maps

B, R, M = 60, 8, 3
NAMES = ("z", "given_x", "given_others", "pooled")


def given(r=R, b=B):
    """Members (b, r, m) whose mean and scale change with x (b, 2)."""
    x = torch.randn(b, 2, generator=stream(0, "x"))
    u = torch.randn(b, r, M, generator=stream(1, "u"))
    return (2 * x[:, :1] + (1 + x[:, 1:].abs()) * u.flatten(1)).unflatten(1, (r, M)), x


def positions(members, x, normal=False):
    return Coordinates.fit(members, x, normal=normal)(members, x)


@pytest.mark.parametrize("normal", [False, True])
@pytest.mark.parametrize("r", [4, R])
def test_nothing_depends_on_which_member_is_the_true_parameter(r, normal):
    """Members in another order: the same coordinates and features, in that order."""
    members, x = given(r)
    order = torch.rand(members.shape[:2], generator=stream(2, "order")).argsort(1)[..., None]
    other = members.gather(1, order.expand_as(members))
    before, after = positions(members, x, normal), positions(other, x, normal)
    for name in (*NAMES, "levels"):
        one, two = getattr(before, name), getattr(after, name)
        torch.testing.assert_close(two, one.gather(1, order.expand_as(one)), atol=1e-4, rtol=1e-3)
    for each in feature_maps(M, normal=normal):
        one, two = (each.function(at).flatten(2) for at in (before, after))
        assert one.isfinite().all()
        assert one.shape[2] <= module.MOST_PRODUCTS
        assert each.columns in (None, each.function(before).shape[-1])
        torch.testing.assert_close(two, one.gather(1, order.expand_as(one)), atol=2e-2, rtol=1e-2)


@pytest.mark.parametrize("latent", [False, True])
def test_features_are_centred_within_sets(gaussian, latent):
    calibration = gaussian().latents(50) if latent else gaussian().calibration(50, k=7)
    for table in assay.score(calibration, null=9)._sets.features(slice(0, 50, 2)):
        assert table.shape[:2] == (25, 17 if latent else 8)
        torch.testing.assert_close(table.mean(1), torch.zeros_like(table[:, 0]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_parameter_gives_zeros(dtype):
    members, x = (each.to(dtype) for each in given())
    members[..., 1] = 0.1
    at = positions(members, x)
    assert all((getattr(at, name)[..., 1] == 0).all() for name in NAMES)
    for each in feature_maps(M, normal=False):
        if each.kind == "one parameter":
            own = each.function(at)[:, :, 1]
            assert torch.equal(own, own[:, :1].expand_as(own))


def test_coordinates_given_x_and_given_the_others():
    members, x = given(b=1500)
    members[..., 2] += members[..., 0]
    at = positions(members, x)
    table, others = at.given_x.flatten(0, 1), at.given_others.flatten(0, 1)
    torch.testing.assert_close(table.std(0), torch.ones(M), atol=0.05, rtol=0)
    assert np.abs(np.corrcoef(at.given_x.mean(1).T, x.T)[:M, M:]).max() < 0.1
    assert np.abs(np.corrcoef(at.given_x.std(1).T, x.abs().T)[:M, M:]).max() < 0.15
    correlations = np.corrcoef(others.T, table.T)[:M, M:]
    assert np.abs(correlations - np.diag(np.diag(correlations))).max() < 0.05
    assert np.abs(np.corrcoef(table.T)[0, 2]) > 0.5


def test_large_sets_have_ranks_and_small_ones_levels_of_a_normal():
    large, small = (positions(*given(r)) for r in (module.FEWEST_MEMBERS, 5))
    assert torch.equal(large.levels[..., 0].sort(1).values[0], (torch.arange(6) + 0.5) / 6)
    torch.testing.assert_close(large.z.mean(1), torch.zeros(B, M), atol=1e-5, rtol=0)
    assert torch.equal(small.z, small.given_x)
    torch.testing.assert_close(small.levels[..., :M], torch.special.ndtr(small.z))
    members, x = given()
    members[0, 0] = 1e3  # a wild member is moved in
    assert positions(members, x).pooled.abs().max() == module.FARTHEST


def test_polynomials_are_orthonormal():
    """By Gaussian quadrature, against normal and uniform weights."""
    z, weights = np.polynomial.hermite_e.hermegauss(20)
    table = torch.stack(module.hermite(torch.tensor(z))).numpy()
    np.testing.assert_allclose(table * (weights / weights.sum()) @ table.T, np.eye(5), atol=1e-9)
    t, weights = np.polynomial.legendre.leggauss(20)
    table = torch.stack([torch.ones(20).double(), *module.legendre(torch.tensor(t), 8)]).numpy()
    np.testing.assert_allclose(table * weights / 2 @ table.T, np.eye(9), atol=1e-9)


def test_a_member_far_from_all_others_has_the_largest_distances():
    u = torch.randn(1, R, 2, generator=stream(0, "u"))
    u[0, 5] = 7.0
    at = Positions(u, u, u, u, u, torch.zeros(1, 1))
    first = module.distances(at)[0, :, :, 0]  # the first polynomial grows with the level
    assert first.argmax(0).tolist() == [5, 5, 5]


@pytest.mark.parametrize(("m", "normal", "more"), [(1, False, 2), (150, True, 2), (151, False, 2)])
def test_maps_for_so_many_parameters(m, normal, more):
    """Two of residuals given the other parameters, two of pairs of parameters."""
    assert len(feature_maps(m, normal=normal)) == len(module.FEATURE_MAPS) + more
