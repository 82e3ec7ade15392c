import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay import Calibration, Draws
from assay._core import stream
from assay.diagnostics.local.local_effects import local_effects
from assay.interpret.effects import effects_of
from assay.samples.neighbourhoods import Distance, Nearest, Smooth


def said(calibration, x_o, **settings):
    found = local_effects(calibration, x_o, **settings)
    return effects_of(found, None, None, 0.05, "", {"test": "effects"})


def exact(draw, n=300, k=16, m=2, d=2):
    """Makes calibrations of a q that is right: truth and draws come from one function."""

    def made(seed):
        generator = stream(seed, "exact")
        x = torch.randn(n, d, generator=generator)
        members = draw(torch.randn(n, k + 1, m, generator=generator), x[:, None], generator)
        return Calibration(members[:, 0], x, members[:, 1:])

    return made


def counts(rate):
    return lambda z, x, g: torch.poisson(torch.full(z.shape, rate), generator=g)


UGLY = {
    "normal": exact(lambda z, x, g: z + x),
    "twenty pairs": exact(lambda z, x, g: z, n=20),
    "counts": exact(counts(0.5)),
    "counts, sixty pairs": exact(counts(0.5), n=60),
    "mostly zero": exact(counts(0.05)),
    "two values": exact(lambda z, x, g: (z > 0.5).float()),
    "rounded": exact(lambda z, x, g: (2 * z).round()),
    "Cauchy": exact(lambda z, x, g: torch.tan(3.14 * torch.special.ndtr(z) - 1.57)),
    "lognormal": exact(lambda z, x, g: (3 * z).exp()),
    "bounded": exact(lambda z, x, g: torch.special.ndtr(3 * z)),
    "constant": exact(lambda z, x, g: z * torch.tensor([1.0, 0.0])),
    "collinear": exact(lambda z, x, g: z[..., :1] + 1e-6 * z),
    "a hundred features": exact(lambda z, x, g: z + x[..., :2], d=100),
    "x ties": exact(lambda z, x, g: z, d=1),
    "scale moves with x": exact(lambda z, x, g: z * (2 * x).exp()),
    "three draws": exact(lambda z, x, g: z, k=3),
    "ten parameters": exact(lambda z, x, g: z, m=10, n=150),
}


def false_claims(name, repetitions):
    wrong = []
    for i in range(repetitions):
        calibration = UGLY[name](i)
        if name == "x ties":
            x = calibration.x.round()
            calibration = Calibration(calibration.theta, x, calibration.theta_q)
        x_o = torch.full(calibration.x.shape[1:], 0.5)
        wrong.append(bool(said(calibration, x_o, seed=i).wrong))
    return sum(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", UGLY)
def test_false_claims_are_as_rare_as_they_should_be(name):
    """1000 repetitions of a right q: at most 6 %."""
    assert false_claims(name, 1000) <= 60


class Planted:
    """p(theta | x) = N(x / 2, I / 2), and a q that is off by functions of the first feature."""

    def __init__(self, bias=lambda x: 0 * x, width=lambda x: 1 + 0 * x):
        self.bias, self.width = bias, width

    base = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 1.0), 1)

    def moments(self, x):
        scale = 0.5**0.5 * self.width(x[..., :1])
        return x / 2 + scale * self.bias(x[..., :1]), scale

    def theta_to_base(self, theta, x):
        mean, scale = self.moments(x)
        return (theta - mean) / scale

    def sample(self, x, n):
        mean, scale = self.moments(x)
        return mean + scale * torch.randn(n, 2)

    def calibration(self, n, k=16, seed=0):
        theta, noise = torch.randn(2, n, 2, generator=stream(seed, "planted"))
        mean, scale = self.moments(theta + noise)
        draws = torch.randn(n, k, 2, generator=stream(seed, "draws"))
        return Calibration(theta, theta + noise, mean[:, None] + scale[:, None] * draws)

    def given(self, kind, n, seed=0):
        calibration = self.calibration(n, 16 if kind == "draws" else 1, seed)
        if kind == "draws":
            return calibration
        z = self.theta_to_base(calibration.theta, calibration.x)
        flow = self if kind == "flow" else None
        return assay.samples.calibration.Latents(z, calibration.x, base=self.base, flow=flow)


KINDS = ["draws", "latents", "flow"]
X_O = torch.tensor([0.8, -0.4])


@pytest.mark.parametrize("kind", KINDS)
class TestPlanted:
    def test_bias(self, kind):
        found = local_effects(Planted(bias=lambda x: 0.5 + 0 * x).given(kind, 3000, 1), X_O)
        np.testing.assert_allclose(found.bias.value[-1], 0.5, atol=0.12)
        assert ((found.bias.at_lower < 0.5) & (found.bias.at_upper > 0.5)).all()
        assert (found.bias.pvalue[-1] <= 0.05).all()
        assert (found.bias.sign[-1] == -1).all()
        assert found.named == (kind != "latents")

    def test_a_q_that_is_too_wide_has_a_ratio_above_one(self, kind):
        found = local_effects(Planted(width=lambda x: 1.5 + 0 * x).given(kind, 3000), X_O)
        np.testing.assert_allclose(found.dispersion.value[-1], 1.5, atol=0.15)
        assert ((found.dispersion.at_lower < 1.5) & (found.dispersion.at_upper > 1.5)).all()
        assert (found.dispersion.pvalue[-1] <= 0.05).all()
        assert (found.dispersion.sign[-1] == -1).all()
        assert (found.region.value[-1] > assay.results.LEVELS).all()

    def test_a_slope_is_followed_to_x_o(self, kind):
        found = local_effects(Planted(bias=lambda x: x).given(kind, 3000), torch.tensor([2.0, 0]))
        assert (found.bias.value[-1] < 1.7).all()
        assert ((found.bias.at_lower < 2) & (found.bias.at_upper > 2)).all()
        assert (found.bias.varies <= 0.05).all()


CURVES = {
    "constant": lambda x: 0.5 + 0 * x,
    "slope": lambda x: 0.8 * x,
    "oscillating": lambda x: 1.3 * torch.sin(2 * x),
}


def shares_held(curve, kind, repetitions, n=1000):
    """How often intervals at x_o hold bias, width, correlation and the region's coverage."""
    held = []
    for i in range(repetitions):
        q = Planted(bias=curve)
        found = local_effects(q.given(kind, n, i), X_O, seed=i, copies=1)
        bias = float(curve(X_O[0]))
        inside = scipy.stats.ncx2.cdf(
            scipy.stats.chi2.ppf(assay.results.LEVELS, 2), 2, 2 * bias**2
        )
        true = ((found.bias, bias), (found.dispersion, 1.0), (found.correlation, 0.0))
        row = [
            ((e.at_lower <= v) & (v <= e.at_upper)).mean()
            for e, v in (*true, (found.region, inside))
        ]
        held.append(row)
    return np.mean(held, 0)


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_intervals_at_x_o(curve):
    """40 repetitions with draws: at least 85 %."""
    assert (shares_held(curve, "draws", 40) >= 0.85).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_intervals_at_x_o_hold(curve, kind):
    """500 repetitions: bias between 90 and 98 %, the others at least 88 %."""
    held = shares_held(curve, kind, 500)
    assert 0.9 <= held[0] <= 0.985
    assert (held[1:] >= 0.88).all()


@pytest.mark.parametrize("kind", ["draws", "latents"])
def test_bias_is_in_units_of_q(kind):
    """Of a q that is twice as wide as the truth, half a deviation is a whole one of the truth."""
    wide = Planted(bias=lambda x: 0.5 + 0 * x, width=lambda x: 2 + 0 * x)
    found = local_effects(wide.given(kind, 3000, 1), X_O)
    np.testing.assert_allclose(found.bias.value[-1], 0.5, atol=0.12)


def test_the_largest_size_with_a_claim_is_told():
    """An error within the nearest twentieth only."""
    z, x = torch.randn(2, 4000, 1, generator=stream(0, "narrow"))
    z = z + 1.5 * (x.abs() < 0.06)
    found = local_effects(Calibration.from_base(z, x), torch.zeros(1))
    assert found.bias.pvalue[0, 0] <= 0.05
    effects = effects_of(found, None, 0, 0.05, "", {})
    assert effects.near == pytest.approx(0.05, abs=0.001)
    assert effects.bias.wrong.all()


def test_few_directions_of_many_features():
    """Of sixty features one tells the parameter, N(x / 1.09, 0.083); q is 1.3 x, and too wide."""
    theta, noise = torch.randn(2, 1000, 1, generator=stream(0, "many"))
    x = torch.cat([theta + 0.3 * noise, torch.randn(1000, 59, generator=stream(0, "rest"))], 1)
    draws = x[:, None, :1] + 0.3 * torch.randn(1000, 16, 1, generator=stream(0, "draws"))
    calibration = Calibration(theta, x, draws + 0.3 * x[:, None, :1])
    x_o = torch.zeros(60)
    x_o[0] = 1.5
    found = local_effects(calibration, x_o)
    true = 1.5 * (1.3 - 1 / 1.09) / 0.3
    assert found.bias.value[-1] < 0.5 * true
    assert found.bias.at_lower < true < found.bias.at_upper
    assert found.bias.varies <= 0.05
    z = Calibration.from_base(theta, x)
    assert np.isnan(local_effects(z, x_o).bias.at).all()


@pytest.mark.parametrize(
    "where", [Nearest(), Smooth(), Nearest((0.5,), Distance(lambda x: x[:, :1]))]
)
def test_any_neighbourhood(where):
    found = local_effects(Planted(width=lambda x: 1.5 + 0 * x).calibration(500), X_O, where)
    assert found.near.shape == (len(where.shares),)
    assert (found.dispersion.value[-1] > 1.2).all()
    assert np.isfinite(found.dispersion.at).all()


def test_one_observation_is_a_row_of_many():
    calibration = Planted(bias=lambda x: x).calibration(400)
    many, one = (local_effects(calibration, x) for x in (torch.stack([-X_O, X_O]), X_O))
    for name in ("bias", "dispersion", "correlation", "intervals", "region"):
        for part, alone in zip(
            vars(getattr(many[1], name)).values(), vars(getattr(one, name)).values(), strict=True
        ):
            np.testing.assert_array_equal(part, alone)
    assert many.tail.count.shape == (2, 3)


def test_the_order_of_rows_and_units_do_not_matter():
    calibration = Planted(bias=lambda x: x).calibration(400)
    order = torch.randperm(400, generator=stream(0, "order"))
    moved = calibration.subset(order)
    other = Calibration(1e20 * moved.theta, 1e-3 * moved.x, 1e20 * moved.theta_q)
    one, two = local_effects(calibration, X_O), local_effects(other, 1e-3 * X_O)
    np.testing.assert_allclose(one.bias.at, two.bias.at, rtol=1e-3)
    np.testing.assert_allclose(one.region.value, two.region.value, atol=1e-3)
    np.testing.assert_array_equal(one.bias.pvalue, two.bias.pvalue)


def test_too_few_sets_for_a_fit():
    found = local_effects(Planted().calibration(40), X_O)
    assert np.isfinite(found.bias.value).all()
    assert np.isnan(found.bias.at).all()


def test_it_can_be_saved(tmp_path):
    found = local_effects(Planted().calibration(100), X_O)
    assay.save(found, tmp_path / "effects.npz")
    again = assay.load(tmp_path / "effects.npz")
    np.testing.assert_array_equal(again.bias.at, found.bias.at)
    assert again.named is True


def test_something_that_is_no_calibration():
    with pytest.raises(TypeError, match="calibration: expected a Calibration; got Tensor"):
        local_effects(torch.zeros(3), X_O)
    with pytest.raises(TypeError, match="where: expected a neighbourhood"):
        local_effects(Planted().calibration(40), Draws(X_O), where=0.2)
