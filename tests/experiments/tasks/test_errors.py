import pytest
import scipy.stats
import torch

from assay._support.random import stream
from experiments.tasks.errors import Narrow, Shift, Skew, Wide

ERRORS = [Shift(1), Shift(), Wide(), Wide(0), Narrow(), Skew(0), Skew()]
# Right draws, and where errors of size 0.4 move them.
U = torch.tensor([[0.5, -1.0, 2.0], [-1.5, 0.25, 0.0]])
MOVED = [
    (Shift(), [[0.9, -0.6, 2.4], [-1.1, 0.65, 0.4]]),
    (Shift(1), [[0.5, -0.6, 2.0], [-1.5, 0.65, 0.0]]),
    (Wide(), [[0.7, -1.4, 2.8], [-2.1, 0.35, 0.0]]),
    (Narrow(2), [[0.5, -1.0, 1.42857146], [-1.5, 0.25, 0.0]]),
    (Skew(2), [[0.5, -1.0, 3.08061487], [-1.5, 0.25, 0.41075233]]),
]


def normal(n=20_000, m=2, **kwargs):
    return torch.randn(n, m, generator=stream(0, "u"), **kwargs)


def log_normal(u):
    return torch.distributions.Normal(0.0, 1.0).log_prob(u).sum(1)


@pytest.mark.parametrize(("error", "expected"), MOVED, ids=repr)
def test_where_draws_go(error, expected):
    torch.testing.assert_close(error.distort(U, 0.4), torch.tensor(expected))


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_what_is_undone_is_right_again(error):
    u = normal(100, dtype=torch.float64)
    torch.testing.assert_close(error.undo(error.distort(u, 0.4), 0.4), u)
    torch.testing.assert_close(error.distort(u, 0.0), u)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_ratios_against_autograd(error):
    """p / q at a wrong draw: densities of p, and the determinant of the map."""
    u = normal(5, dtype=torch.float64)
    jacobians = [
        torch.autograd.functional.jacobian(lambda v: error.distort(v[None], 0.4)[0], v) for v in u
    ]
    wrong = error.distort(u, 0.4)
    expected = log_normal(wrong) - log_normal(u) + torch.stack(jacobians).logdet()
    torch.testing.assert_close(error.ratio(wrong, 0.4, log_normal).log(), expected)


@pytest.mark.parametrize(
    ("error", "location", "scale"),
    [(Shift(1), [0.0, 0.4], 1.0), (Wide(), [0.0, 0.0], 1.4), (Narrow(), [0.0, 0.0], 1 / 1.4)],
    ids=repr,
)
def test_ratios_of_normal_densities(error, location, scale):
    u = normal(100, dtype=torch.float64)
    q = torch.distributions.Normal(torch.tensor(location, dtype=torch.float64), scale)
    expected = (log_normal(u) - q.log_prob(u).sum(1)).exp()
    torch.testing.assert_close(error.ratio(u, 0.4, log_normal), expected)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_ratios_average_to_one(error):
    """Over draws of q, the mean of p / q is the mass of p."""
    wrong = error.distort(normal(200_000, dtype=torch.float64), 0.3)
    assert float(error.ratio(wrong, 0.3, log_normal).mean()) == pytest.approx(1, abs=0.02)


def test_skewed_draws():
    """To the right, in one coordinate."""
    skewed = Skew(0).distort(normal(), 0.8)
    assert scipy.stats.skew(skewed[:, 0].numpy()) > 0.5
    assert torch.equal(skewed[:, 1], normal()[:, 1])


def test_bad_errors():
    with pytest.raises(ValueError, match="along: expected at least 0"):
        Shift(-1)
    with pytest.raises(ValueError, match="along: expected one of 2 coordinate"):
        Shift(2).distort(normal(10), 0.1)
