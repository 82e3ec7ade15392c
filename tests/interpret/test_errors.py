import re

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay import Calibration, Draws, Exchange, moments
from assay._core import stream
from assay.interpret.errors import Narrow, Planter, Shift, Skew, Wide
from assay.samples.neighbourhoods import Nearest
from assay.tasks import ConjugateGaussian, Perturbed

FIXED = [Shift(1), Wide(), Narrow(), Skew(0)]
ERRORS = [*FIXED, Shift(), Skew()]
# Truths, and where errors of size 0.4 have moved them in every version so far.
U = torch.tensor([[0.5, -1.0, 2.0], [-1.5, 0.25, 0.0]])
MOVED = [
    (Shift(), [[0.1, -1.0, 2.0], [-1.9, 0.25, 0.0]]),
    (Shift(1), [[0.5, -1.4, 2.0], [-1.5, -0.15, 0.0]]),
    (Wide(), [[0.35714287, -0.71428573, 1.42857146], [-1.07142854, 0.17857143, 0.0]]),
    (Narrow(), [[0.7, -1.4, 2.8], [-2.1, 0.35, 0.0]]),
    (Skew(), [[0.58294463, -1.0, 2.0], [-1.65073693, 0.25, 0.0]]),
    (Skew(2), [[0.5, -1.0, 1.64554918], [-1.5, 0.25, 0.13312513]]),
]


def normal(n=20_000, m=2, **kwargs):
    return torch.randn(n, m, generator=stream(0, "u"), **kwargs)


def log_normal(u):
    return torch.distributions.Normal(0.0, 1.0).log_prob(u).sum(1)


@pytest.mark.parametrize(("error", "expected"), MOVED, ids=repr)
def test_where_truths_go(error, expected):
    found = error.apply(U, 0.4, stream(1))
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("error", FIXED, ids=repr)
def test_truths_go_the_other_way(error):
    """Planted in truths and then put on draws, an error cancels."""
    u = normal(100, dtype=torch.float64)
    truths = error.apply(u, 0.4, stream(0))
    torch.testing.assert_close(error.distort(truths, 0.4), u)
    torch.testing.assert_close(error.undo(error.distort(u, 0.4), 0.4), u)


@pytest.mark.parametrize("error", FIXED, ids=repr)
def test_slopes_against_autograd(error):
    u = normal(5, dtype=torch.float64)
    jacobians = [
        torch.autograd.functional.jacobian(lambda v: error.distort(v[None], 0.4)[0], v) for v in u
    ]
    torch.testing.assert_close(error.log_slope(u, 0.4), torch.stack(jacobians).logdet())


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


@pytest.mark.parametrize("error", FIXED, ids=repr)
def test_ratios_average_to_one(error):
    """Over draws of q, the mean of p / q is the mass of p."""
    wrong = error.distort(normal(200_000, dtype=torch.float64), 0.3)
    assert float(error.ratio(wrong, 0.3, log_normal).mean()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("error", "size", "bias", "dispersion"),
    [(Shift(0), 0.5, 0.5, 1.0), (Wide(), 0.4, 0.0, 1.4), (Narrow(), 0.4, 0.0, 1 / 1.4)],
    ids=repr,
)
def test_one_sign_for_draws_and_for_truths(error, size, bias, dispersion):
    """A q that is wrong by design and a planted error show the same effects."""
    task, x_o = ConjugateGaussian(3, 5), torch.full((5,), 0.3)
    wrong, right = (
        Perturbed(task, error, s).calibration(8000, 16, stream(0, "sign")) for s in (size, 0.0)
    )
    for calibration in (wrong, Planter.of(right).plant(error, size, 0)):
        found = assay.effects(moments(calibration, null=Exchange(1))(Draws(x_o)))
        assert found.bias.value[0] == pytest.approx(bias, abs=0.12)
        assert found.dispersion.value[0] == pytest.approx(dispersion, rel=0.1)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_of_no_size_changes_nothing(error):
    u = normal(100)
    torch.testing.assert_close(error.apply(u, 0.0, stream(0)), u)


@pytest.mark.parametrize("error", FIXED, ids=repr)
def test_draws_without_an_error_stay(error):
    u = normal(100)
    torch.testing.assert_close(error.distort(u, 0.0), u)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_the_same_chance_at_every_size(error):
    """A larger error moves the same truths further in the same direction."""
    u = normal(100)
    small, large = (error.apply(u, size, stream(3)) - u for size in (0.2, 0.4))
    assert (large.abs() >= small.abs() - 1e-6).float().mean() > 0.9
    assert torch.equal(error.apply(u, 0.2, stream(3)) - u, small)


def test_skew_keeps_mean_and_deviation():
    skewed = Skew(0).apply(normal(), 0.8, stream(0))
    assert abs(float(skewed[:, 0].mean())) < 0.03
    assert abs(float(skewed[:, 0].std()) - 1) < 0.03
    assert scipy.stats.skew(skewed[:, 0].numpy()) < -0.5
    assert torch.equal(skewed[:, 1], normal()[:, 1])


def test_skewed_draws():
    """To the right, in one coordinate."""
    skewed = Skew(0).distort(normal(), 0.8)
    assert scipy.stats.skew(skewed[:, 0].numpy()) > 0.5
    assert torch.equal(skewed[:, 1], normal()[:, 1])


@pytest.mark.parametrize("k", [None, 1, 5, 16])
@pytest.mark.parametrize(
    ("error", "bias", "width"), [(Shift(0), 0.5, 1.0), (Wide(), 0.0, 1.5), (Narrow(), 0.0, 0.67)]
)
def test_sizes_are_errors_of_q(gaussian, k, error, bias, width):
    """Measured against the posterior itself: q is off by what was planted, in its own units."""
    q = gaussian()
    calibration = q.latents(4000) if k is None else q.calibration(4000, k=k)
    planted = Planter.of(calibration).plant(error, 0.5, 0)
    z = planted.theta if k is None else q.theta_to_base(planted.theta, planted.x)
    assert float(-z[:, 0].mean()) == pytest.approx(bias, abs=0.06)
    assert float(1 / z[:, 1].std()) == pytest.approx(width, rel=0.06)
    assert planted.k == {None: None, 16: 15}.get(k, k)


@pytest.mark.parametrize("k", [5, 16])
@pytest.mark.parametrize("rough", [False, True])
def test_widths_among_the_draws(k, rough):
    """Truths around their set mean vary as those of a wide q would, whether x tells it or not."""
    x = torch.randn(4000, 2, generator=stream(0, "x"))
    mean = 20 * torch.randn(4000, 1, 2, generator=stream(0, "mean")) if rough else x[:, None]
    draws = mean + torch.randn(4000, k + 1, 2, generator=stream(0, "draws"))
    planter = Planter.of(Calibration(draws[:, 0], x, draws[:, 1:]))
    assert ((planter._unknown > 0.9) == rough).all()
    planted = planter.plant(Wide(), 0.5, 0)
    among = planted.theta - planted.theta_q.mean(1)
    expected = 1 / 1.5**2 + 1 / planted.k
    np.testing.assert_allclose(among.square().mean(0), expected, rtol=0.08)


@pytest.mark.parametrize("k", [1, 4])
def test_it_is_the_same_whoever_is_the_truth(gaussian, k):
    calibration = gaussian(shift=1.0).calibration(60, k=k)
    members = torch.cat([calibration.theta[:, None], calibration.theta_q], 1)
    order = torch.rand(60, k + 1, generator=stream(0, "order")).argsort(1)
    mixed = members.gather(1, order[..., None].expand_as(members))
    other = Calibration(mixed[:, 0], calibration.x, mixed[:, 1:])
    assert not torch.equal(other.theta, calibration.theta)
    for repetition in range(3):
        first, second = (
            Planter.pooled(c).plant(Shift(), 0.3, repetition) for c in (calibration, other)
        )
        assert torch.equal(first.theta, second.theta)
        assert torch.equal(first.theta_q, second.theta_q)


def test_with_many_draws_the_truths_are_left_out(gaussian):
    calibration = gaussian().calibration(60, k=16)
    other = Calibration(calibration.theta + 100, calibration.x, calibration.theta_q)
    first, second = (Planter.of(c).plant(Wide(), 0.3, 1) for c in (calibration, other))
    assert torch.equal(first.theta, second.theta)
    assert torch.equal(first.theta_q, second.theta_q)


def test_latents_are_not_looked_at(gaussian):
    latents = gaussian().latents(60)
    other = Calibration.from_base(latents.theta + 100, latents.x)
    first, second = (Planter.of(c).plant(Wide(), 0.3, 1) for c in (latents, other))
    assert torch.equal(first.theta, second.theta)


def test_a_base_of_its_own_scale():
    base = torch.distributions.Independent(
        torch.distributions.Normal(5.0, torch.full((2,), 3.0)), 1
    )
    x = torch.randn(4000, 2, generator=stream(0))
    latents = Calibration.from_base(torch.zeros(4000, 2), x, base)
    planted = Planter.of(latents).plant(Shift(0), 1.0, 0)
    np.testing.assert_allclose(planted.theta.mean(0), [2.0, 5.0], atol=0.2)


@pytest.mark.parametrize("k", [1, 8])
def test_parameters_without_variation_stay(gaussian, k):
    calibration = gaussian().calibration(60, k=k)
    still = [
        torch.cat([part, torch.ones_like(part[..., :1])], -1)
        for part in (calibration.theta, calibration.theta_q)
    ]
    planted = Planter.of(Calibration(still[0], calibration.x, still[1])).plant(Wide(), 0.5, 0)
    assert planted.theta.isfinite().all()


@pytest.mark.slow
def test_level_without_an_error(gaussian):
    """1000 repetitions: a test of planted data of size zero keeps its level (99.9 %)."""
    planter = Planter.of(gaussian(width=0.5).calibration(60, k=5))
    found = []
    for i in range(1000):
        test = moments(planter.plant(Shift(), 0.0, i), Nearest((0.5,)), Exchange(19))
        found.append(float(test(Draws(torch.zeros(2))).pvalue))
    for alpha in (0.05, 0.2):
        low, high = scipy.stats.binom(1000, alpha).interval(0.999)
        assert low <= (np.array(found) <= alpha + 1e-9).sum() <= high


@pytest.mark.parametrize("size", [0.003, 0.29, 0.995, 1.0, 1.1, 2.345, 9.99])
def test_sizes_are_plain_numbers(size):
    for error in (Shift(), Wide(), Narrow()):
        assert "e" not in re.search(r" [0-9][0-9.e+-]* ", error.words(size))[0]


def test_above_a_hundred_per_cent():
    assert Wide().words(1.1) == "a width 110 % too large"
    assert Wide(0).words(9.5) == "a width 950 % too large in coordinate 0"
    assert Narrow().words(9.0) == "a width 90 % too small"


def test_bad_errors():
    with pytest.raises(ValueError, match="along: expected at least 0"):
        Shift(-1)
    with pytest.raises(ValueError, match="along: expected one of 2 coordinate"):
        Shift(2).apply(normal(10), 0.1, stream(0))
    with pytest.raises(ValueError, match="along: expected one of 2 coordinate.*got None"):
        Shift().distort(normal(10), 0.1)
    with pytest.raises(TypeError, match="errors: expected errors such as Shift"):
        assay.interpret.errors.checked_errors(["shift"])
    with pytest.raises(TypeError, match="errors: expected errors such as Shift"):
        assay.interpret.errors.checked_errors(Shift)
    with pytest.raises(ValueError, match="errors: expected at least one, each of its own kind"):
        assay.interpret.errors.checked_errors([Shift(), Shift()])
