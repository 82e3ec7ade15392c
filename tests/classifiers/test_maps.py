import pytest
import torch

from assay import Exchange
from assay.classifiers.features import Fourier, Hermite
from assay.classifiers.frames import Conditional, Within
from assay.classifiers.maps import Joint, Product
from assay.classifiers.scaling import Scaling
from assay.coordinates import Whitened

BANKS = [
    Joint(8),
    Joint(8, frame=Conditional()),
    Joint(8, frame=Within(Whitened())),
    Product(Hermite(2), n=3),
    Product(Fourier(4), n=0),
]


@pytest.mark.parametrize("bank", BANKS, ids=repr)
def test_sizes_are_stated_and_rows_are_on_their_own(gaussian, bank):
    copies = Exchange(1).copies(gaussian().calibration(200, k=6), seed=0)
    feature = bank.fit(copies, Scaling.fit(copies))
    features = feature(copies.members, copies.x)
    assert features.shape == (200, 7, feature.size)
    some = feature(copies.members[50:60], copies.x[50:60])
    torch.testing.assert_close(features[50:60], some, atol=1e-4, rtol=1e-4)


def test_products_by_hand(gaussian):
    copies = Exchange(1).copies(gaussian().latents(50), seed=0)
    scaling = Scaling(torch.zeros(2), torch.ones(2), Scaling.fit(copies).robust)
    feature = Product(Hermite(1), n=2).fit(copies, scaling)
    z = torch.tensor([3.0, -2.0]).expand(50, 1, 2)
    features = feature(z, copies.x).reshape(50, 2, 3)
    torch.testing.assert_close(features[:, :, 0], z[:, 0])
    torch.testing.assert_close(features[:, 0] / 3, features[:, 1] / -2)


def test_more_features_than_memory_allows(gaussian):
    with pytest.raises(ValueError, match="at most 10000 features in a bank.*got 20000"):
        Joint(20_000)
    copies = Exchange(1).copies(gaussian(m=20).calibration(50), seed=0)
    with pytest.raises(ValueError, match="at most 10000 features in a bank.*smaller n or order"):
        Product(Hermite(3)).fit(copies, Scaling.fit(copies))


@pytest.mark.parametrize(
    "settings", [{"n": 0}, {"bandwidth": 0.0}, {"bandwidth": float("nan")}, {"reach": -1.0}]
)
def test_settings_that_mean_nothing(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Joint(**settings)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Joint(frame=None),
        lambda: Joint(frame=Whitened()),
        lambda: Within(Whitened),
        lambda: Product(None),
        lambda: Product(Hermite),
    ],
)
def test_parts_of_another_kind(make):
    with pytest.raises(TypeError, match="frame|coordinates|bank"):
        make()


def test_too_few_draws_to_whiten(gaussian):
    copies = Exchange(1).copies(gaussian().calibration(50), seed=0)
    with pytest.raises(ValueError, match="theta_q: expected at least 4 draws"):
        Joint(frame=Within(Whitened())).fit(copies, Scaling.fit(copies))
