import torch

import assay
from assay import Exchange
from assay.classifiers.scaling import FARTHEST, Scaling


def scaling(calibration):
    return Scaling.fit(Exchange(1).copies(calibration, 0))


def test_members_are_standardised_together(gaussian):
    calibration = gaussian(width=3.0, shift=2.0).calibration(500)
    pooled = torch.cat([calibration.theta, calibration.theta_q[:, 0]])
    scaled = scaling(calibration).theta(pooled)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.std(0), torch.ones(2), atol=1e-5, rtol=0)


def test_columns_of_any_unit_give_the_same_inputs(gaussian):
    calibration = gaussian().calibration(200)
    a, b = torch.tensor([1e3, 1e-1]), torch.tensor([5.0, -0.7])
    moved = assay.Calibration(
        calibration.theta * a + b, calibration.x * a - b, calibration.theta_q * a + b
    )
    first, second = scaling(calibration), scaling(moved)
    torch.testing.assert_close(
        first.theta(calibration.theta), second.theta(moved.theta), atol=1e-3, rtol=1e-3
    )
    torch.testing.assert_close(first.x(calibration.x), second.x(moved.x), atol=1e-3, rtol=1e-3)


def test_discrete_and_constant_columns(gaussian):
    theta = gaussian().calibration(200).theta
    x = torch.stack([torch.full((200,), 0.1), (torch.arange(200) % 10 == 0).float()], 1)
    found = scaling(assay.Calibration(theta, x, theta))
    assert found.robust.scale[0] == 1
    torch.testing.assert_close(found.robust.scale[1], x[:, 1].std())
    assert found.x(x).isfinite().all()


def test_wild_members_are_moved_in(gaussian):
    calibration = gaussian().calibration(200)
    assert scaling(calibration).theta(torch.full((1, 2), 1e9)).max() == FARTHEST


def test_many_rows(gaussian):
    assert scaling(gaussian().calibration(250_000)).robust.scale.isfinite().all()
