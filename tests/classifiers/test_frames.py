import pytest
import torch

from assay import Exchange
from assay.classifiers.frames import Conditional, Known, Pooled, Within, waves
from assay.classifiers.scaling import Scaling
from assay.coordinates import Ranks

N = 4000


@pytest.fixture
def copies(gaussian):
    return Exchange(1).copies(gaussian().calibration(N, k=3), seed=0)


@pytest.mark.parametrize(
    "frame", [Pooled(), Conditional(), Within(Ranks()), Known(lambda t, x: t)]
)
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
    frame = Within(Ranks()).fit(copies.members, copies.x, Scaling.fit(copies))
    torch.testing.assert_close(
        frame(copies.members, copies.x)[:5], frame(copies.members[:5], copies.x[:5])
    )


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda theta, x: theta.sum(), "expected quantities with shape"),
        (lambda theta, x: theta[..., 0] * torch.inf, "expected finite quantities"),
    ],
)
def test_functions_that_give_something_else(copies, function, message):
    with pytest.raises(ValueError, match=message):
        Known(function).fit(copies.members, copies.x, Scaling.fit(copies))


def test_a_function_that_is_none():
    with pytest.raises(TypeError, match="function: expected a function"):
        Known(3)


def test_waves_are_the_same_whenever_asked():
    first, again, other = waves(50, 2.0, 4, "a"), waves(50, 2.0, 4, "a"), waves(50, 2.0, 4, "b")
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert first[0].norm(dim=0).mean() == pytest.approx(2.0, rel=0.1)
