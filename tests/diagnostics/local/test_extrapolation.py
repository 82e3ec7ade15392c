import numpy as np
import pytest
import torch

from assay._core import stream
from assay.diagnostics.local.extrapolation import LENGTHS, PER_TERM, Extrapolation


def points(b, d, seed=0):
    return torch.rand(b, d, generator=stream(seed, "points"), dtype=torch.double) - 0.3


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=stream(seed, "noise"), dtype=torch.double)


CURVES = {
    "constant": lambda x: 0.5 + 0 * x,
    "slope": lambda x: 2 * x,
    "oscillating": lambda x: torch.cos(9 * x),
}


@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_intervals_hold_what_is_at_x_o(curve, d):
    """30 sets of points with 40 repetitions each: between 90 and 98.5 %."""
    held = []
    for i in range(30):
        x = points(300, d, i)
        found = Extrapolation.of(x)(curve(x[:, :1]) + noise(300, 40, seed=i))
        value = curve(torch.zeros(1, dtype=torch.double))
        held.append(((found.value - value).abs() <= 1.96 * found.error).double().mean())
    assert 0.9 <= np.mean(held) <= 0.985


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_intervals_hold_a_variance_at_x_o(curve):
    """30 sets of points with 40 repetitions each, d = 2: at least 87 %."""
    held = []
    for i in range(30):
        x = points(400, 2, i)
        logs = curve(x[:, :1])
        squares = (noise(400, 40, seed=i) * (logs / 2).exp()).square()
        found = Extrapolation.of(x).log_variance(squares)
        value = curve(torch.zeros(1, dtype=torch.double))
        held.append(((found.value - value).abs() <= 1.96 * found.error).double().mean())
    assert 0.87 <= np.mean(held) <= 0.985


def test_a_polynomial_is_told_exactly():
    x = points(100, 2)
    found = Extrapolation.of(x)(3 + x @ x.new_tensor([[1.0], [-2.0]]) + x.square().sum(1)[:, None])
    torch.testing.assert_close(found.value, x.new_tensor([3.0]))
    assert found.error < 1e-6


def test_an_average_is_not_what_holds_at_x_o():
    """All points lie on one side of x_o."""
    x = points(500, 1) + 0.4
    found = Extrapolation.of(x)(4 * x + 0.1 * noise(500, 1))
    assert abs(float(found.value)) < 0.1
    assert float((4 * x).mean()) > 1


def test_the_fit_says_what_it_is_worth():
    x, flat = points(300, 2), noise(300, 1)
    plain, wavy = (Extrapolation.of(x)(flat + a * torch.sin(12 * x[:, :1])) for a in (0, 3))
    assert 4 <= plain.degrees < 10 < wavy.degrees
    assert (wavy.points - 3 * torch.sin(12 * x[:, :1])).square().mean() < 0.3
    assert wavy.error > plain.error


@pytest.mark.parametrize("x", [torch.zeros(50, 2), torch.ones(50, 2), points(50, 1).repeat(1, 2)])
def test_points_that_tie(x):
    found = Extrapolation.of(x)(noise(50, 3))
    assert found.value.isfinite().all()
    assert (found.error > 0).all()


def test_a_number_that_does_not_vary():
    found = Extrapolation.of(points(50, 2))(torch.full((50, 1), 7.0, dtype=torch.double))
    assert float(found.value) == pytest.approx(7)


def test_too_few_points():
    assert Extrapolation.of(points(PER_TERM * 4 - 1, 2)) is None
    assert Extrapolation.of(points(PER_TERM * 4, 2)) is not None


def test_many_coordinates():
    """Sixteen coordinates have smooth functions of their own, and all have a slope."""
    x = points(600, 40)
    made = Extrapolation.of(x)
    assert len(made.there) == 42
    assert made.smooths[0].spectrum.shape == (len(LENGTHS), 16 * 16)
    found = made(x.sum(1, keepdim=True) + 0.1 * noise(600, 1))
    assert found.value.abs() < 3 * found.error


def test_units_do_not_matter():
    x, y = points(200, 2), noise(200, 1)
    one, two = Extrapolation.of(x)(y), Extrapolation.of(1e6 * x)(1e-6 * y)
    torch.testing.assert_close(1e6 * two.value, one.value)
    torch.testing.assert_close(1e6 * two.error, one.error)
