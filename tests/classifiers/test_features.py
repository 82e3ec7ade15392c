import math

import pytest
import torch

from assay import Exchange
from assay._support.regression import random_waves
from assay.classifiers.base import Scaling
from assay.classifiers.features import (
    BANKS,
    Conditional,
    Fourier,
    Hermite,
    Joint,
    NormalScores,
    Pooled,
    Whitened,
    Within,
)

Z = torch.randn(200_000, 3, generator=torch.Generator().manual_seed(0))
ALL = {repr(bank): bank for bank in (*BANKS, Hermite(4), Fourier(8, 0.5))}


@pytest.mark.parametrize("bank", ALL.values(), ids=ALL)
def test_means_are_zero_and_spreads_are_known(bank):
    features = bank(Z).double()
    assert features.shape == (200_000, bank.size(3))
    error = features.std(0) / math.sqrt(len(Z))
    assert (features.mean(0).abs() < 5 * error + 1e-6).all()
    covariance = features.T @ features / len(Z)
    first, second = bank.spread(3)
    assert float(covariance.trace()) == pytest.approx(first, rel=0.05)
    assert float(covariance.square().sum()) == pytest.approx(second, rel=0.1)


def test_hermite_functions_are_orthonormal():
    features = torch.cat([Hermite(k)(Z) for k in (1, 2, 3)], 1).double()
    covariance = features.T @ features / len(Z)
    assert (covariance - torch.eye(len(covariance))).abs().max() < 0.1


def test_hermite_by_hand():
    z = torch.tensor([2.0, -1.0])
    expected = [
        (8 - 6) / math.sqrt(6),
        3 / math.sqrt(2) * -1,
        2 * 0 / math.sqrt(2),
        2 / math.sqrt(6),
    ]
    torch.testing.assert_close(Hermite(3)(z), torch.tensor(expected))


def test_any_number_of_leading_axes():
    torch.testing.assert_close(
        Hermite(2)(Z[:12].reshape(3, 4, 3)), Hermite(2)(Z[:12]).reshape(3, 4, 6)
    )


class TestManyLatents:
    """Where products are too many, chance chooses some of them."""

    Z = torch.randn(20_000, 30, generator=torch.Generator().manual_seed(1))

    def test_all_are_made_while_they_are_few(self):
        assert torch.equal(Hermite(2, 465)(self.Z[:50]), Hermite(2)(self.Z[:50]))

    @pytest.mark.parametrize("order", [2, 3])
    def test_some_are_made_of_many(self, order):
        bank = Hermite(order, 100)
        features = bank(self.Z).double()
        assert features.shape == (20_000, 100)
        torch.testing.assert_close(features[:, :30], Hermite(order, 30)(self.Z).double())
        covariance = features.T @ features / len(features)
        assert (covariance - torch.eye(100)).abs().max() < 0.3
        assert torch.equal(bank(self.Z[:5]), bank(self.Z[:2000])[:5])

    def test_each_latent_is_there_alone(self):
        alone = (self.Z[:10] ** 2 - 1) / math.sqrt(2)
        torch.testing.assert_close(Hermite(2, 3)(self.Z[:10]), alone, atol=1e-5, rtol=1e-5)
        assert Hermite(1, 3).size(30) == 30


@pytest.mark.parametrize("make", [lambda: Hermite(0), lambda: Fourier(0), lambda: Fourier(4, 0.0)])
def test_bad_banks(make):
    with pytest.raises(ValueError, match="expected"):
        make()


SETS = torch.randn(6, 20, 3, generator=torch.Generator().manual_seed(0))
MAPS = {"whitened": Whitened(), "ranks": NormalScores()}


@pytest.mark.parametrize("coordinates", MAPS.values(), ids=MAPS)
def test_they_do_not_know_who_is_the_truth(coordinates):
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        coordinates(SETS[:, order]), coordinates(SETS)[:, order], atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("coordinates", MAPS.values(), ids=MAPS)
def test_they_do_not_mind_units(coordinates):
    a, b = torch.tensor([1e3, 1e-2, 1.0]), torch.tensor([5.0, -1.0, 0.0])
    torch.testing.assert_close(coordinates(SETS * a + b), coordinates(SETS), atol=1e-2, rtol=1e-2)


def test_ranks_are_normal_scores():
    scores = NormalScores()(torch.tensor([[[3.0], [1.0], [2.0], [2.0]]]))[0, :, 0]
    expected = torch.special.ndtri(torch.tensor([3.5, 0.5, 2.0, 2.0]) / 4)
    torch.testing.assert_close(scores, expected)


def test_a_parameter_that_does_not_vary():
    sets = SETS.clone()
    sets[..., 1] = 0.1
    white = Whitened()(sets)
    torch.testing.assert_close(white[..., 1], torch.zeros(6, 20), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        white[..., [0, 2]], Whitened()(sets[..., [0, 2]]), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("offset", [1e4, 1e6, -1e6])
def test_an_offset_loses_no_digits(offset):
    """Beyond those that numbers of single precision have there."""
    moved = SETS + offset
    near = (moved.double() - offset).float()
    torch.testing.assert_close(Whitened()(moved), Whitened()(near), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(Whitened()(moved), Whitened()(SETS), atol=0.3, rtol=0)


def test_a_parameter_that_varies_by_rounding_alone():
    sets = SETS.clone()
    some = torch.tensor(0.1)
    sets[..., 1] = torch.where(sets[..., 1] > 0, some, some.nextafter(torch.tensor(1.0)))
    assert not Whitened()(sets)[..., 1].any()


@pytest.mark.parametrize(("coordinates", "fewest"), [(Whitened(), 7), (NormalScores(), 3)])
def test_too_few_draws(coordinates, fewest):
    """Five parameters: a covariance needs two draws more, an order three in any case."""
    assert coordinates.fewest(5) == fewest
    assert coordinates.enough(fewest, 5)
    assert not coordinates.enough(fewest - 1, 5)
    coordinates.check(fewest, 5)
    message = f"theta_q: expected at least {fewest} draws of q at each x for 5 parameter"
    with pytest.raises(ValueError, match=message):
        coordinates.check(fewest - 1, 5)


N = 4000


@pytest.fixture
def copies(gaussian):
    return Exchange(1).copies(gaussian().calibration(N, k=3), seed=0)


@pytest.mark.parametrize("frame", [Pooled(), Conditional(), Within(NormalScores())])
def test_who_plays_the_truth_does_not_matter(copies, frame):
    """The order of members within their sets changes nothing but the order."""
    scaling = Scaling.fit(copies)
    u = frame.fit(copies.members, copies.x, scaling)(copies.members, copies.x)
    order = torch.tensor([2, 0, 3, 1])
    members = copies.members[:, order]
    again = frame.fit(members, copies.x, scaling)(members, copies.x)
    torch.testing.assert_close(u[:, order], again, atol=1e-3, rtol=1e-3)
    assert u.shape == copies.members.shape
    assert u.std() == pytest.approx(1, abs=0.2)


def test_conditional_takes_mean_and_scale_given_x_away():
    """Mean and width of theta vary with x by orders of magnitude; those of u do not."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(N, 1, generator=generator) * 4 - 2
    theta = x.sin()[:, None] + 0.1 * x.exp()[:, None] * torch.randn(N, 2, 1, generator=generator)
    scaling = Scaling(torch.zeros(1), torch.ones(1), Scaling.fit(_copies(theta, x)).robust)
    u = Conditional().fit(theta, x, scaling)(theta, x)
    for low in (-2, -1, 0, 1):
        here = u[(x[:, 0] > low) & (x[:, 0] < low + 1)]
        assert here.mean() == pytest.approx(0, abs=0.15)
        assert here.std() == pytest.approx(1, abs=0.15)


def _copies(theta, x):
    import assay

    return Exchange(1).copies(assay.Calibration(theta[:, 0], x, theta[:, 1:]), seed=0)


def test_within_needs_nothing_of_other_sets(copies):
    frame = Within(NormalScores()).fit(copies.members, copies.x, Scaling.fit(copies))
    torch.testing.assert_close(
        frame(copies.members, copies.x)[:5], frame(copies.members[:5], copies.x[:5])
    )


BANKS = [
    Joint(8),
    Joint(8, frame=Conditional()),
    Joint(8, frame=Within(Whitened())),
]


@pytest.mark.parametrize("bank", BANKS, ids=repr)
def test_sizes_are_stated_and_rows_are_on_their_own(gaussian, bank):
    copies = Exchange(1).copies(gaussian().calibration(200, k=6), seed=0)
    feature = bank.fit(copies, Scaling.fit(copies))
    features = feature(copies.members, copies.x)
    assert features.shape == (200, 7, feature.size)
    some = feature(copies.members[50:60], copies.x[50:60])
    torch.testing.assert_close(features[50:60], some, atol=1e-4, rtol=1e-4)


def test_joint_features_by_hand(gaussian):
    """Cosines of member and x together, where x has a say and where it has none."""
    copies = Exchange(1).copies(gaussian().latents(50), seed=0)
    scaling = Scaling(torch.zeros(2), torch.ones(2), Scaling.fit(copies).robust)
    u = torch.tensor([3.0, -2.0]).expand(50, 1, 2)
    for x_frequency in (1.5, 0.0):
        features = Joint(4, 2.0, x_frequency).fit(copies, scaling)(u, copies.x)
        ours, _ = random_waves(4, 2.0, 2, "member", "2.0")
        theirs, phases = random_waves(4, x_frequency, 2, "x", "2.0")
        expected = (u[:, 0] @ ours + scaling.x(copies.x) @ theirs + phases).cos()
        torch.testing.assert_close(features[:, 0], expected)
        alike = (features == features[:1]).all()
        assert alike == (x_frequency == 0)


def test_more_features_than_memory_allows():
    with pytest.raises(ValueError, match="at most 10000 features in a bank.*got 20000"):
        Joint(20_000)


@pytest.mark.parametrize(
    "settings", [{"n": 0}, {"bandwidth": 0.0}, {"bandwidth": float("nan")}, {"x_frequency": -1.0}]
)
def test_settings_that_mean_nothing(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Joint(**settings)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Joint(frame=None), "frame"),
        (lambda: Joint(frame=Whitened()), "frame"),
        (lambda: Joint(frame=Pooled), "frame"),
        (lambda: Within(Whitened), "coordinates"),
        (lambda: Within(Pooled()), "coordinates"),
    ],
)
def test_parts_of_another_kind(make, name):
    with pytest.raises(TypeError, match=f"{name}: expected"):
        make()


def test_too_few_draws_to_whiten(gaussian):
    copies = Exchange(1).copies(gaussian().calibration(50), seed=0)
    with pytest.raises(ValueError, match="theta_q: expected at least 4 draws"):
        Joint(frame=Within(Whitened())).fit(copies, Scaling.fit(copies))
