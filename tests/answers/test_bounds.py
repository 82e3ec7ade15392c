"""Bounds: each row against its closed form, what intervals cover, and what changes nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay._support.random import stream
from assay.answers.bounds import Estimate, bounds, critical_value, skewness_and_tails
from tests.conftest import Gaussian

X_O = [0.0, 0.0]
KINDS = "bias width slope skewness tails correlation coverage region_coverage".split()
EXPONENTIAL = torch.distributions.Exponential(1.0)
LAPLACE = torch.distributions.Laplace(0.0, math.sqrt(0.5))


def sine(x):
    return torch.sin(8 * x)


def pairs(n=300, k=16, m=2, shift=0.0, width=1.0, rho=0.0, mean=sine, seed=0, truth=None, q=None):
    """Pairs at x ~ N(0, I): theta = mean(x) + e, and q of a shifted mean and another width.

    A shift or a width may be a function of x; e and draws have unit variance, and some law.
    """
    generator = stream(seed, "pairs")
    x = torch.randn(n, m, generator=generator, dtype=torch.float64)

    def noise(shape, law):
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        normal = torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12))
        return normal if law is None else (law.icdf(uniform) - law.mean) / law.stddev

    z = noise((n, k, m), q)
    if rho:
        z[..., 1] = rho * z[..., 0] + math.sqrt(1 - rho**2) * z[..., 1]
    shift, width = (part(x)[:, None] if callable(part) else part for part in (shift, width))
    theta = mean(x) + noise((n, m), truth)
    return assay.Calibration(theta, x, mean(x)[:, None] + shift + width * z)


def holds(found, kind, value):
    """Whether intervals of a kind hold a value, (o, ...)."""
    return (found.table[kind][:, 1] <= value) & (value <= found.table[kind][:, 2])


def same(first, second, rtol=1e-7, parts=3):
    """Checks that numbers are the same; the first part alone is without the ends."""
    for kind in KINDS:
        one, other = (found.table[kind][:, :parts] for found in (first, second))
        np.testing.assert_allclose(one, other, rtol, 1e-9, err_msg=kind)


def covered(shift, width, m=1):
    """Shares of N(0, 1) in intervals of N(shift, width^2), or in regions of m parameters."""
    radius = width**2 * scipy.stats.chi2.ppf([0.5, 0.9, 0.95], m)
    return scipy.stats.ncx2.cdf(radius, m, m * shift**2 + 1e-12)


# How q is wrong; rows that are wrong; and rows that may be, since members are less the mean of
# others, which makes them a little less skewed.
CASES = {
    "exact": ({}, {}),
    "high": ({"shift": 0.4}, {"bias": 0.4}),
    "low and narrow": ({"shift": -0.3, "width": 0.6}, {"bias": -0.5, "width": 0.6}),
    "wide": ({"width": 1.5}, {"width": 1.5}),
    "correlated": ({"rho": 0.6}, {"correlation": 0.6}),
    "skewed": ({"q": EXPONENTIAL, "k": 64}, {"skewness": 0.55}, {"tails": 0.08}),
    "light": ({"truth": LAPLACE, "k": 64}, {"tails": -0.3}),
}


@pytest.mark.parametrize("case", CASES)
def test_numbers_and_directions(case):
    """2000 sets of a wiggly mean: every number is in its interval, and intervals are short."""
    how, wrong, slight = (*CASES[case], {})[:3]
    found = bounds(pairs(2000, **how), X_O, near=1)
    expected = {"width": 1.0} | wrong | slight
    for kind in KINDS[:5]:
        _, lower, upper = found.table[kind][0]
        # Shapes are not compared where a width is wrong.
        known = ~(np.isnan(lower) & (kind in ("skewness", "tails") and "width" in wrong))
        assert known.all() or "width" in wrong
        assert holds(found, kind, expected.get(kind, 0.0))[0][known].all(), kind
        assert (upper - lower)[known].max(initial=0) < 0.4
    assert holds(found, "correlation", wrong.get("correlation", 0.0) * (1 - np.eye(2))).all()
    if set(wrong) <= {"bias", "width"}:
        shift, width = how.get("shift", 0.0), how.get("width", 1.0)
        assert holds(found, "coverage", covered(shift, width)).all()
        assert holds(found, "region_coverage", covered(shift, width, m=2)).all()
    kinds = {row.kind for row in found.wrong[0] if "coverage" not in row.kind}
    assert kinds - set(slight) == set(wrong)


def test_slopes_name_errors_that_cancel():
    """The error 0.8 x changes its sign at x_o; it changes by 0.8 of the spread of x near x_o."""
    found = bounds(pairs(4000, m=1, shift=lambda x: 0.8 * x), [0.0])
    spread = float(pairs(4000, m=1).x[:, 0].abs().sort().values[:800].pow(2).mean().sqrt())
    assert holds(found, "bias", 0.0).all()
    assert found.slope[0, 0, 0] == pytest.approx(0.8 * spread, abs=0.06)
    assert found.wrong[0][0].kind == "slope"


@pytest.mark.parametrize(("x_o", "near"), [(-1.0, None), (0.0, 0.6), (0.7, None)])
def test_at_x_o(x_o, near):
    """The average near x_o differs from what holds at x_o, where the error is curved."""
    wrong = {"shift": lambda x: x.square(), "width": lambda x: (0.5 * x).exp()}
    found, width = bounds(pairs(4000, m=1, seed=2, **wrong), [x_o], near), math.exp(0.5 * x_o)
    assert holds(found.at, "bias", x_o**2 / width).all()
    assert holds(found.at, "width", width).all()
    assert (found.at.bias_upper - found.at.bias_lower)[0, 0] < 0.6
    assert x_o or not holds(found, "bias", 0.0).any()
    assert {row.kind for row in found.at.rows[0]} == {"bias", "width"}


DESIGNS = {
    "right": {"mean": lambda x: x / 2, "k": 8},
    "wiggly, wrong": {"shift": 0.5, "width": 1.5, "k": 8},
    "two draws, one parameter": {"k": 2, "m": 1},
    "a skewed law": {"truth": EXPONENTIAL, "q": EXPONENTIAL, "k": 4},
}


@pytest.mark.parametrize("design", DESIGNS)
def test_intervals_hold(design):
    """50 repetitions with 150 sets; the limits are those that chance passes once in 1000.

    Means, widths and slopes are in all their intervals in 0.95 of repetitions: 40 of 50. Where q
    is right, other rows are wrong in at most 0.05: 9 of 50. Intervals at x_o hold in 0.95.
    """
    how, hold, others, at = DESIGNS[design], 0, 0, []
    value = {"bias": how.get("shift", 0.0) / how.get("width", 1.0), "width": how.get("width", 1.0)}
    for seed in range(50):
        found = bounds(pairs(150, **how, seed=seed), [0.0] * how.get("m", 2), 1)
        hold += all(holds(found, kind, value.get(kind, 0.0)).all() for kind in KINDS[:3])
        others += any(row.kind not in KINDS[:3] for row in found.wrong[0])
        known = np.isfinite(found.at.width_upper)
        at += [holds(found.at, kind, value[kind])[known] for kind in ("bias", "width")]
    assert hold >= 40
    assert others <= 9 or "shift" in how
    assert np.concatenate(at).mean() > 0.85


def test_one_draw():
    """Errors of widths appear smaller, and so q is never within the tolerance."""
    found = bounds(pairs(2000, k=1, shift=0.5, width=2.0, mean=lambda x: 9 * sine(x)), X_O, 1)
    assert (found.bias_lower > 0).all()
    assert ((1 < found.width) & (found.width < 1.5)).all()
    assert not bounds(pairs(2000, k=1), X_O, 1).within().any()


def test_latents():
    """A flow that is too wide by 1.5 and too high by 0.35, which is 0.33 of its sd 1.06."""
    q = Gaussian(width=1.5, shift=0.35)
    found, other = (bounds(q.latents(2000), X_O, 1, seed) for seed in (0, 1))
    assert (found.names, found.draws) == (("latent[0]", "latent[1]"), 16)
    assert (holds(found, "bias", 0.35 / q.scale) & holds(found, "width", 1.5)).all()
    assert (found.width != other.width).all()  # a seed decides draws of the base


def test_what_is_not_known():
    """A constant parameter has no rows, and changes no value of others; nor is q within."""
    whole = pairs(600, m=3)
    some = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    constant = replace(whole, theta=whole.theta * some, theta_q=whole.theta_q * some)
    without, found = (bounds(c, [0.0] * 3) for c in (whole, constant))
    assert not [row for row in found.rows[0] if "theta[1]" in row.parameters]
    for kind in ("bias", "width", "skewness", "tails", "coverage"):
        here, there = (getattr(each, kind)[:, [0, 2]] for each in (found, without))
        np.testing.assert_allclose(here, there)
    assert not found.within(100.0).any()
    # Nothing changes with an x that does not vary; it is unknown, without a warning.
    assert np.isnan(bounds(replace(whole, x=0 * whole.x), [0.0] * 3).slope_upper).all()
    # Of two draws, some bootstrap samples have no variance of true parameters left.
    found = bounds(pairs(150, k=2, width=lambda x: 1 + 0.8 * some[:2].flip(0) * x**0), X_O, 1)
    assert np.isnan(found.width_lower[0]).tolist() == [False, True]
    assert np.isfinite(found.bias_lower).all()
    # Intervals of few values hold more of q than they should.
    coins = (torch.rand(600, 17, 3, generator=stream(0, "coins")) < 0.02).float()
    rare = bounds(replace(whole, theta=coins[:, 0], theta_q=coins[:, 1:]), [0.0] * 3, 1)
    assert np.isnan(rare.coverage).any()
    assert rare.wrong == ((),)


def test_shares_of_zero_have_binomial_intervals():
    """q is 30 sd too high: no true parameter is inside, of as many as there are near."""
    found = bounds(pairs(200, m=1, shift=30.0), [0.0], 0.2)
    assert not found.coverage.any()
    # Of 40, the interval of each of six rows by itself ends at 1 - 0.025^(1 / 40) = 0.09.
    assert 0.095 < found.coverage_upper.min() <= found.coverage_upper.max() < 0.2
    assert holds(found, "bias", 30.0).all()


@pytest.mark.parametrize("r", [1, 2, 10])
def test_critical_value(r):
    """Of r independent numbers, each holds with probability 0.95 to the power of 1 / r."""
    deviations = np.random.default_rng(0).normal(size=(100_000, r))
    known = Estimate(np.zeros(r), np.ones(r), deviations)
    unknown = Estimate(np.zeros(1), np.full(1, np.nan), np.full((100_000, 1), np.nan))
    expected = scipy.stats.norm.ppf((1 + 0.95 ** (1 / r)) / 2)
    assert critical_value(known, unknown) == pytest.approx(expected, rel=0.01)
    # Numbers that do not vary in the bootstrap, as shares of zero, are no better known than one.
    assert critical_value(known._replace(deviations=0 * deviations)) == pytest.approx(1.96, 1e-3)


def test_weights():
    """Of pairs that are right and pairs that are too high by one, the second weigh thrice."""
    parts = pairs(1000), pairs(1000, shift=1.0, seed=1)
    names = ("theta", "x", "theta_q")
    theta, x, draws = (torch.cat([getattr(part, name) for part in parts]) for name in names)
    weights = torch.tensor([1.0, 3.0]).repeat_interleave(1000)
    # Draws that were made exchangeable are not those that errors are measured with.
    whole = assay.Calibration(theta, x, draws.flip(0), weights=weights, plain_draws=draws)
    found = bounds(whole, X_O, 1)
    assert holds(found, "bias", 0.75).all()
    # Of the variance of true parameters around q's mean, 3 / 16 is that of the shift.
    assert holds(found, "width", 1 / math.sqrt(1 + 3 / 16)).all()
    assert found.near == pytest.approx(2000 / (1 + 0.25))
    even = replace(whole, weights=torch.full((2000,), 7.0))
    same(bounds(even, X_O, 1), bounds(replace(whole, theta_q=draws, weights=None), X_O, 1))


def test_many_observations():
    calibration, x_o = pairs(500, width=2.0), torch.linspace(-1, 1, 24).reshape(12, 2)
    many = bounds(calibration, x_o)
    assert len(many) == len(many.wrong) == 12
    alone = bounds(calibration, x_o[3])
    for here, there in ((many, alone), (many.at, alone.at)):
        for kind in here.table:
            np.testing.assert_array_equal(here.table[kind][3], there.table[kind][0])
    first, second, *_, last = lines = repr(many).splitlines()
    assert first == "Bounds(o=12, m=2, n=500, draws=16)"
    assert second == f"x_o[0]: {many.wrong[0][0].sentence}"
    assert (last, len(lines)) == ("... and 2 more observations", 2 + 10 * 4)
    hidden = many.without(np.arange(12) < 1)
    for part in (hidden.bias, hidden.at.bias, hidden.near_truths):
        assert np.isnan(part).all(tuple(range(1, part.ndim))).tolist() == [True] + [False] * 11
    assert (hidden.rows[0], hidden.rows[1]) == ((), many.rows[1])
    assert hidden.within(9.0).tolist() == [False] + [True] * 11


@pytest.mark.parametrize("k", [1, 2, 4])
def test_shapes(k):
    found = bounds(pairs(300, m=3, k=k), torch.zeros(2, 3))
    few = KINDS[:3] + ["correlation"] * (k > 1)
    assert {row.kind for row in found.rows[0]} == set(KINDS if k == 4 else few)
    shapes = [getattr(found, kind).shape for kind in ("tails", "slope", "correlation", "coverage")]
    assert shapes == [(2, 3), (2, 3, 3), (2, 3, 3), (2, 3, 3)]
    # Sixty true parameters, and up to four draws beside each.
    assert (found.near_truths.shape, found.near_draws.shape) == ((2, 60, 3), (2, 60 * k, 3))


@pytest.mark.parametrize("wrong", [{"shift": 0.3}, {"shift": -0.3}, {"width": 0.8}], ids=str)
def test_within(wrong):
    found = bounds(pairs(800, **wrong), [X_O, [0.5, 0.5]])
    mean = np.maximum(-found.bias_lower, found.bias_upper).max(1)
    exact = np.maximum(mean, np.maximum(1 / found.width_lower, found.width_upper).max(1) - 1)
    assert found.within(1.001 * exact.max()).all()
    assert not found.within(0.999 * exact.min()).any()
    needed = np.stack([found.pairs_for(t) for t in (0.05, 0.2, 0.5, 0.8, 2.0)])
    assert (np.diff(needed, axis=0) <= 0).all()
    assert (needed >= 800).all()


def test_pairs_for():
    """Half-widths go with the root of the number: with so many pairs, they are 0.6 of 0.2."""
    needed = int(bounds(pairs(800, shift=0.3), X_O).pairs_for(0.2)[0])
    more = bounds(pairs(needed), X_O)
    half = (more.bias_upper - more.bias_lower).max() / 2
    assert half == pytest.approx(0.6 * 0.2, rel=0.3)
    assert more.within(0.2).all()


def test_what_changes_nothing():
    calibration = pairs(500, shift=0.3, width=1.2, rho=0.4)
    first, unit = bounds(calibration, X_O), torch.tensor([1e3, 1e-4], dtype=torch.float64)
    same(first, bounds(calibration, X_O), 0)
    moved = (unit * part + 5.0 for part in (calibration.theta, calibration.theta_q))
    same(first, bounds(assay.Calibration(next(moved), calibration.x, next(moved)), X_O))
    same(first, bounds(replace(calibration, x=100 * calibration.x - 3), [-3.0, -3.0]))
    reverse = calibration.subset(range(499, -1, -1))
    for other in (bounds(calibration, X_O, seed=1), bounds(reverse, X_O)):
        same(first, other, parts=1)
        # With other bootstrap samples, ends differ by part of a half-width.
        one, two = (each.table["bias"][:, 1:] for each in (first, other))
        assert (one != two).all()
        np.testing.assert_allclose(one, two, atol=0.1 * np.abs(one[:, 1] - one[:, 0]).max())
    # A parameter with the opposite sign has the opposite error, and the same width.
    parts = {name: -getattr(calibration, name) for name in ("theta", "theta_q")}
    flipped = bounds(replace(calibration, **parts), X_O)
    for kind, sign in zip(["bias", "slope", "skewness", "width"], [-1, -1, -1, 1], strict=True):
        np.testing.assert_allclose(getattr(flipped, kind), sign * getattr(first, kind), atol=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda c: bounds(c, [0.0]), ValueError, "x_o: expected shape"),
        (lambda c: bounds(c, [math.nan, 0.0]), ValueError, "x_o: expected finite"),
        (lambda c: bounds(c.theta, X_O), TypeError, "calibration: expected a Calibration"),
        (lambda c: bounds(c, X_O, 2.0), ValueError, "expected a number between 0 and 1; got 2"),
        (lambda c: bounds(c, X_O).within(0), ValueError, "tolerance: expected"),
        (lambda c: bounds(c, X_O).pairs_for("much"), TypeError, "tolerance: expected a number"),
        (lambda c: bounds(c, X_O).bias_middle, AttributeError, "no attribute 'bias_middle'"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call(pairs(100))


def test_skewness_and_tails():
    shares, weights = (np.arange(20_000) + 0.5) / 20_000, np.full(20_000, 1 / 20_000)
    laplace = scipy.stats.laplace.ppf(shares)[:, None, None]
    expected = [0, math.log(math.log(10) / math.log(2))]
    assert skewness_and_tails(laplace, weights)[0][:, 0] == pytest.approx(expected, abs=1e-4)
    # The influence is the change with the weights; densities are constant around each quantile.
    knots, at = [0, 0.12, 0.37, 0.62, 0.88, 1], [0, 1, 1.5, 3, 4, 9]
    values = np.interp(shares, knots, at)[:, None, None]
    before, influence = skewness_and_tails(values, weights)
    change = 1e-2 * np.sin(9 * shares) * weights
    after, _ = skewness_and_tails(values, (weights + change) / (1 + change.sum()))
    by_influence = np.einsum("n,npm->pm", change, influence)
    np.testing.assert_allclose(by_influence, after - before, rtol=0.02)
    assert np.abs(by_influence).min() > 1e-4
