import pytest
import torch

import assay
from assay import Exchange
from assay.classifiers.base import Scaling
from assay.classifiers.features import Conditional, Joint, Pooled, Whitened, Within

N = 4000
SETS = torch.randn(6, 20, 3, generator=torch.Generator().manual_seed(0))
each_frame = pytest.mark.parametrize("frame", [Pooled(), Conditional(), Within()], ids=repr)


def test_whitening_does_not_depend_on_the_order_of_members_or_units():
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    white, again = Whitened()(SETS)[:, order], Whitened()(SETS[:, order])
    torch.testing.assert_close(again, white, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        white.mT @ white / 20, torch.eye(3).expand(6, 3, 3), atol=1e-3, rtol=0
    )
    a, b = torch.tensor([1e3, 1e-2, 1.0]), torch.tensor([5.0, -1.0, 0.0])
    torch.testing.assert_close(Whitened()(SETS * a + b), Whitened()(SETS), atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("offset", [1e4, 1e6, -1e6])
def test_an_offset_loses_no_digits(offset):
    """Beyond those that numbers of single precision have there."""
    moved = SETS + offset
    near = (moved.double() - offset).float()
    torch.testing.assert_close(Whitened()(moved), Whitened()(near), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(Whitened()(moved), Whitened()(SETS), atol=0.3, rtol=0)


@pytest.mark.parametrize("towards", [0.1, 1.0])
def test_a_parameter_that_varies_by_rounding_alone(towards):
    sets, some = SETS.clone(), torch.tensor(0.1)
    sets[..., 1] = torch.where(sets[..., 1] > 0, some, some.nextafter(torch.tensor(towards)))
    white, rest = Whitened()(sets), Whitened()(sets[..., [0, 2]])
    assert not white[..., 1].any()
    torch.testing.assert_close(white[..., [0, 2]], rest, atol=1e-4, rtol=1e-4)


@pytest.fixture
def copies(gaussian):
    return Exchange(1).copies(gaussian().calibration(N, k=5), seed=0)


@each_frame
def test_members_and_rows_are_on_their_own(copies, frame):
    feature, order = Joint(8, frame=frame).fit(copies, Scaling.fit(copies)), [2, 0, 3, 1, 5, 4]
    features = feature(copies.members, copies.x)
    assert features.shape == (N, 6, 8)
    some = feature(copies.members[50:60, order], copies.x[50:60])
    torch.testing.assert_close(features[50:60, order], some, atol=1e-3, rtol=1e-3)
    u = frame.coordinates(copies.members, copies.x, feature.scaling, *feature.weights)
    assert u.std() == pytest.approx(1, abs=0.2)


def test_conditional_takes_mean_and_scale_given_x_away():
    """Mean and width of theta vary with x by orders of magnitude; those of u do not."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(N, 1, generator=generator) * 4 - 2
    theta = x.sin()[:, None] + 0.1 * x.exp()[:, None] * torch.randn(N, 2, 1, generator=generator)
    copies = Exchange(1).copies(assay.Calibration(theta[:, 0], x, theta[:, 1:]), seed=0)
    scaling = Scaling(torch.zeros(1), torch.ones(1), Scaling.fit(copies).robust)
    weights = Conditional().fit(theta, x, scaling)
    u = Conditional().coordinates(theta, x, scaling, *weights)
    for low in (-2, -1, 0, 1):
        here = u[(x[:, 0] > low) & (x[:, 0] < low + 1)]
        assert here.mean() == pytest.approx(0, abs=0.15)
        assert here.std() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": 0}, "n: expected at least 1"),
        ({"n": 20_000}, "features: expected at most 10000 features in a bank.*got 20000"),
        ({"bandwidth": float("nan")}, "bandwidth: expected a finite number above 0"),
        ({"frame": Pooled}, "frame: expected a frame such as"),
        ({"frame": Within()}, "theta_q: expected at least 4 draws of q at each x for 2"),
    ],
)
def test_banks_that_mean_nothing(gaussian, settings, message):
    copies = Exchange(1).copies(gaussian().calibration(50, k=3), seed=0)
    with pytest.raises((TypeError, ValueError), match=message):
        Joint(**settings).fit(copies, Scaling.fit(copies))
