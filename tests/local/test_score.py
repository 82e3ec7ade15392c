"""The local score test: its level and power, and what must not change its p-value."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

from assay import Calibration, Exchange, Nearest
from assay._support.random import stream
from assay.local import score as module
from assay.local.features import DIRECTIONS, PENALTY, FeatureMap, waves
from assay.local.score import score
from assay.neighbourhood import Distance
from assay.results import Holm, MaxT, holm, pvalue_error, step_down
from tests.level.designs import DESIGNS, Design

X_O = torch.tensor([0.3, -0.2])


def pairs(change=lambda q: q, seed=0, n=300, k=16, m=2, where=lambda x: x[:, 0] < math.inf):
    """Normal pairs; draws of q (n, k, m) are changed where x is, and stay right elsewhere."""
    generator = stream(seed, "pairs")
    x = torch.randn(n, 2, generator=generator)
    u = torch.randn(n, k + 1, m, generator=generator)
    q = torch.where(where(x)[:, None, None], change(u[:, 1:]), u[:, 1:])
    return Calibration(u[:, 0] + x[:, :1], x, q + x[:, None, :1])


def far(x):
    return ~Nearest(0.3).inside(x, X_O[None])[0]


def relabel(calibration, rows):
    """The same members, of which another is the true parameter in some sets (n,)."""
    theta, theta_q = calibration.theta.clone(), calibration.theta_q.clone()
    theta[rows], theta_q[rows, 0] = calibration.theta_q[rows, 0], calibration.theta[rows]
    return Calibration(theta, calibration.x, theta_q)


UNIFORM = torch.distributions.Uniform(torch.zeros(2), torch.ones(2))
BASE = torch.distributions.Independent(UNIFORM, 1)
RIGHT_NEAR = {
    "Cauchy": DESIGNS["Cauchy"].pairs,
    "scale changes with x": DESIGNS["scale moves with x"].pairs,
    "one draw, eight features": Design(n=60, k=1, d=8).pairs,
    "twenty pairs": Design(n=20, k=3, m=1, d=1).pairs,
    "ties in x": DESIGNS["ties in x"].pairs,
    "counts": DESIGNS["counts"].pairs,
    "latents": DESIGNS["normal"].latents,
    "uniform latents": lambda s: Calibration.from_base(
        *torch.rand(2, 50, 2, generator=stream(s, "uniform")), BASE
    ),
    "wrong elsewhere": lambda s: pairs(lambda q: q + 10, s, 60, 3, 1, where=far),
}


@pytest.mark.parametrize("repetitions", [12, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("design", RIGHT_NEAR)
def test_the_level_is_exact(design, repetitions, monkeypatch):
    """Within 99.9 % binomial intervals; ties of members or in x may only lower it."""
    if repetitions < 100:  # sixteen cosines in place of 256
        monkeypatch.setattr(waves, "__defaults__", ("given_x", 16))
    found = []
    for seed in range(repetitions):
        calibration = RIGHT_NEAR[design](seed)
        x_o = X_O if design == "wrong elsewhere" else calibration.x.mean(0)
        found.append(score(calibration, 0.3, 19, seed)(x_o).pvalue)
    for alpha in (0.05, 0.25, 0.5):
        low, high = binom.interval(0.999, repetitions, alpha)
        count = (np.array(found) <= alpha + 1e-9).sum()
        assert count <= high
        assert count >= low or design in ("counts", "ties in x")


LAST = 1 + 0.8 * (torch.arange(15) == 14)
NEAREST = {"n": 800, "where": lambda x: (x - X_O).norm(dim=1) < 0.35}
# What q is changed to, the kinds of evidence that see it, and the data.
WRONG_NEAR = {
    "wide": (lambda q: 1.5 * q, ("smooth", "near", "learned"), {}),
    "narrow": (lambda q: 0.65 * q, ("smooth", "distances"), {}),
    "shifted": (lambda q: q + 0.7, ("smooth", "one parameter"), {}),
    "correlated": (lambda q: q @ torch.tensor([[1.0, 0.8], [0.0, 0.6]]), ("pairs",), {}),
    "two modes": (lambda q: 0.9 * q.sign() + 0.45 * q, ("finest", "one parameter"), {}),
    "one of fifteen": (lambda q: q * LAST, ("one parameter", "learned"), {"m": 15, "n": 500}),
    "in the nearest few": (lambda q: q + 1.2, ("near",), NEAREST),
    "one draw": (lambda q: q + 1.0, ("smooth",), {"k": 1}),
}


@pytest.mark.parametrize("name", WRONG_NEAR)
def test_an_error_near_x_o_is_found(name):
    change, kinds, data = WRONG_NEAR[name]
    found = score(pairs(change, **data), null=19)(X_O)
    assert found.pvalue == 0.001
    assert found.auc - 0.5 > (0 if name == "one of fifteen" else 3) * found.auc_error
    evidence = dict(zip(found.kinds, found.evidence, strict=True))
    assert all(evidence[kind] <= 0.01 for kind in kinds)


def test_the_verdict_depends_on_where_x_o_is():
    """Wrong for x_1 < 0 alone: rejected there and not on the other side, in one call."""
    test = score(pairs(lambda q: 1.7 * q, n=500, where=lambda x: x[:, 0] < 0), 0.1, null=99)
    found = test(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    assert found.pvalue[0] == 0.001
    assert found.pvalue[1] > 0.1
    assert found.auc[0] > 0.6
    assert abs(found.auc[1] - 0.5) < 3 * found.auc_error[1]


AUC = {
    "right": (lambda q: q, 0.5),
    "shifted by 1 sd": (lambda q: q + 1, norm.cdf(math.sqrt(0.5))),
    "twice as wide": (lambda q: 2 * q, 2 / math.pi * math.atan(2)),
}


@pytest.mark.parametrize("name", AUC)
def test_the_auc_against_its_closed_form(name):
    """Of the best classifier, which learns from enough pairs; with its error where q is right."""
    change, expected = AUC[name]
    n, m, near = (280, 3, 0.5) if name == "right" else (700, 1, 0.2)
    found = score(pairs(change, n=n, k=8, m=m), near, null=9)(X_O)
    assert found.near == 140
    assert abs(found.auc - expected) < 3 * found.auc_error
    if name == "right":
        # The share of eight draws below a true parameter is uniform on 0, 1/8, ..., 1.
        assert found.auc_error == pytest.approx(math.sqrt(10 / 96 / 140), rel=0.15)


def test_a_small_pvalue_is_that_of_more_copies():
    """Whether it is then smaller or larger; all others are those of the first copies."""
    few, more = (score(pairs(lambda q: 1.5 * q, n=80, k=2), null=n) for n in (19, 999))
    x_o = torch.randn(16, 2, generator=stream(3, "x_o"))
    found, first = few(x_o), few.pvalues(x_o)
    again = found.copies == 999
    assert ((first <= 0.1) == again).all()
    assert set(found.copies) == {19, 999}
    np.testing.assert_array_equal(found.pvalue[~again], first[~again])
    np.testing.assert_array_equal(found.pvalue[again], more.pvalues(x_o)[again])
    assert (found.pvalue[again] < first[again]).any()
    assert (found.pvalue[again] > first[again]).any()
    np.testing.assert_array_equal(found.pvalue_error, pvalue_error(found.pvalue, found.copies))
    assert score(pairs(lambda q: 2 * q, n=100), null=1200)(X_O).copies == 1200


@pytest.mark.parametrize(("many", "adjustment"), [(3, Holm), (50, Holm), (51, MaxT)])
def test_several_observations_are_corrected(many, adjustment):
    """Step by step with copies of each, or by a table of labels that all share."""
    wrong = pairs(lambda q: q + 2, n=50, k=2, m=1, where=lambda x: x[:, 0] < 0.5)
    found = score(wrong, null=39)(X_O + torch.linspace(0, 1.5, many)[:, None])
    assert isinstance(found.adjustment, adjustment)
    holms = adjustment is Holm
    expected = holm(found.pvalue) if holms else step_down(found.statistic, found.null)
    np.testing.assert_array_equal(found.adjusted, expected)
    assert set(found.copies) == ({39, 999} if holms else {39})
    assert found.adjustment.words in found.sentence
    assert found[1].pvalue == found[1].adjusted == found.pvalue[1]


@pytest.mark.parametrize("most", [1, 2])
def test_strength_is_borrowed_for_few_observations_alone(most, monkeypatch):
    monkeypatch.setattr(module, "MOST_BORROWING", most)
    calibration = pairs(n=50, k=2, m=1)
    given = calibration, relabel(calibration, far(calibration.x))
    one, two = (score(c, 0.3, 9)(X_O.expand(2, 2)).statistic[0] for c in given)
    assert (abs(one - two) < 1e-4) == (most == 1)


def test_sums_of_copies_are_those_of_the_members_they_label():
    test, rows = score(pairs(n=150, k=4), null=5), torch.arange(150)
    sets, labels = test._sets, test._labels(5)
    ((sums, near_x_o),) = sets.sums_at(X_O[None], borrow=True)
    assert torch.equal(near_x_o[0], Nearest(0.2).inside(test.calibration.x, X_O[None])[0])
    assert near_x_o.sum(1).tolist() == [30, 10]
    group = (sets.groups[..., None] == rows).any(1).byte().argmax(0)  # of each set, (n,)
    chosen = labels[:, group]  # (6, n)
    # In the data, the member that is labelled is the true parameter.
    assert torch.equal(sets.members[rows, chosen[0]], test.calibration.theta)
    select = torch.nn.functional.one_hot(labels, 5).flatten(1).float()
    at = sets.coordinates(sets.members, sets.x)
    for i, (each, here) in enumerate(zip(sets.maps, sums, strict=True)):
        features = sets.whitened(i, each(at).double()[rows, chosen])  # (6, n, p)
        assert here.near.shape[2] == here.squares.shape[2] == max(1, each.near_sizes)
        for added, near in zip(here.near.unbind(2), near_x_o, strict=False):
            found = sets.whitened(i, (select @ added.flatten(0, 1)).double())
            torch.testing.assert_close(found, features[:, near].sum(1), rtol=1e-3, atol=1e-3)
        expected = features[0, ~near_x_o[0]].sum(0)
        torch.testing.assert_close(here.elsewhere[1], expected, rtol=1e-3, atol=1e-3)


def test_nothing_but_labels_depends_on_which_member_is_the_true_parameter():
    calibration = pairs(n=100, k=7)
    chosen = torch.rand(100, generator=stream(0, "rows")) < 0.5
    one, two = (score(c, null=9) for c in (calibration, relabel(calibration, chosen)))
    assert torch.equal(one._sets.members.sort(1).values, two._sets.members.sort(1).values)
    assert torch.equal(one._labels(9), two._labels(9))
    torch.testing.assert_close(one._sets.coordinates.regression, two._sets.coordinates.regression)


def test_dense_statistics_are_sums_over_pairs_of_sets():
    """L . (S + L) - D, whitened: a set says nothing about itself."""
    each = FeatureMap("smooth", lambda at: at)
    f = torch.randn(12, 3, generator=stream(0, "features"), dtype=torch.double)
    elsewhere = np.random.default_rng(0).normal(size=(2, 3))
    whitening = each.whitening(f)
    penalised = f.mT @ f / 12
    penalised.diagonal().add_(PENALTY * penalised.diagonal().mean())
    torch.testing.assert_close(whitening @ penalised @ whitening.mT, torch.eye(3).double())
    white = (f @ whitening.mT).numpy()
    own, total = np.full((1, 2), (white**2).sum()), np.stack([white.sum(0)] * 2)[None]
    found = list(module.statistics(each, None, total, own, elsewhere))
    gram = white @ white.T
    between, learned = gram.sum() - gram.trace(), elsewhere @ white.sum(0)
    kinds, statistics = zip(*found, strict=True)
    assert kinds == ("near", "near", "smooth", "smooth")
    np.testing.assert_allclose(np.ravel(statistics), [between, between, *(between + learned)])


def test_sparse_statistics_are_squares_of_each_parameter():
    total = np.array([[[6.0, 8.0, 2.0, 1.0], [3.0, 4.0, 1.0, 0.0]], np.ones((2, 4))])
    elsewhere = np.array([np.zeros(4), [2.9, -5.0, 3.0, 4.0]])
    near = np.arange(14) < np.array([[10], [5]])
    # Of the four sets that are not near, sums have unit variance if they are divided by two.
    given = near, total, None, 2 * elsewhere
    one, two = (FeatureMap("one parameter", None, columns=c) for c in (4, 2))
    found = list(module.statistics(one, *given))
    assert [kind for kind, _ in found] == ["one parameter", "one parameter", "learned"]
    np.testing.assert_allclose([found[0][1], found[1][1]], [[10.5, 0.4], [5.2, 0.8]])
    # What is beyond three standard deviations: -2 of the second, 1 of the fourth.
    np.testing.assert_allclose(found[2][1], [-15.0, -1.0])
    # Of several parameters the largest counts, on a common scale.
    largest = module.surprise(np.array([[10.0, 0.2], [0.5, 0.2]])).max(0)
    np.testing.assert_allclose(next(module.statistics(two, *given))[1], largest)
    assert one.whitening(torch.tensor([[3.0, 0.0], [-3.0, 0.0]])).tolist() == [3, 1]
    directions = module.random_directions(200)  # in which squared lengths keep their mean
    expected = 200 / DIRECTIONS * torch.eye(DIRECTIONS).double()
    torch.testing.assert_close(directions.mT @ directions, expected)


@pytest.mark.parametrize("function", [module.surprise, module.combine])
def test_versions_are_treated_alike(function):
    """In another order of versions, statistics come in that order; equal ones stay equal."""
    statistics = np.random.default_rng(0).gamma(2.0, size=(4, 30))
    statistics[:, 7] = statistics[:, 3]
    order = np.random.default_rng(1).permutation(30)
    found = function(statistics)
    np.testing.assert_allclose(function(statistics[:, order]), found[..., order])
    np.testing.assert_allclose(found[..., 7], found[..., 3])
    assert (function(np.ones((4, 30))) == function(np.ones((4, 30)))[..., :1]).all()


GIVEN = pairs(lambda q: 1.15 * q, n=200, k=4)


@pytest.fixture(scope="module")
def plain():
    return score(GIVEN, null=99)(X_O)


def same(found, plain):
    np.testing.assert_allclose(found.statistic, plain.statistic, rtol=1e-3)
    np.testing.assert_allclose(found.null, plain.null, rtol=1e-3, atol=1e-2)
    assert found.pvalue == plain.pvalue
    assert found.auc == pytest.approx(float(plain.auc), abs=2e-3)


@pytest.mark.parametrize(("unit", "offset"), [(0.01, 3.0), (300.0, -50.0)])
def test_units_of_theta_and_x(plain, unit, offset):
    units = torch.tensor([unit, 1.0])
    theta, theta_q = (each.double() * units + offset for each in (GIVEN.theta, GIVEN.theta_q))
    x, x_o = (each.double() / units - offset for each in (GIVEN.x, X_O))
    same(score(Calibration(theta, x, theta_q), null=99)(x_o), plain)


def test_the_order_of_rows_and_seeds(plain):
    rows = GIVEN.subset(torch.randperm(200, generator=stream(0, "order")))
    again, other = (score(rows, null=99, seed=seed)(X_O) for seed in (0, 1))
    np.testing.assert_array_equal(again.null, plain.null)
    assert not np.array_equal(other.null, plain.null)


@pytest.mark.parametrize("limit", ["MOST_FEATURES", "MOST_SUMS"])
def test_parts_that_fit_into_memory(plain, limit, monkeypatch):
    """Tables of features that are not kept, and observations one by one."""
    monkeypatch.setattr(module, limit, 1)
    same(score(GIVEN, null=99)(torch.stack([X_O, -X_O]))[0], plain)


def test_a_result_of_several_observations():
    found = score(pairs(n=100, k=4), 0.3, 49, seed=5)(torch.stack([X_O, -X_O, 2 * X_O]))
    kinds = ("smooth", "fine", "finest", "one parameter", "distances", "pairs", "near", "learned")
    assert found.kinds == found[1].kinds == kinds
    assert (found.evidence.shape, found.null.shape, found.x.shape) == ((3, 8), (3, 49), (3, 2))
    assert found.table[2].items() >= {"AUC": found.auc[2], "simulations near x_o": 30}.items()
    assert "At 0 of 3 observations" in found.sentence
    assert f"{int(found[1].copies)} relabelled copies, 30 simulations near" in found[1].sentence
    expected = {"test": "local score", "n": 100, "k": 4, "null": 49, "seed": 5}
    expected["scope"] = "throughout the nearest 30% of x around x_o"
    assert expected.items() <= found.settings.items()
    assert found.hypothesis == f"q(theta | x) = p(theta | x) {expected['scope']}"
    test = score(pairs(n=10))
    assert (test.null, test.seed, test.near) == (199, 0, Nearest(None, Distance()))


BAD = {
    "no calibration": (lambda c: score(c.theta), "calibration: expected"),
    "a share": (lambda c: score(c, 1.5), "near: expected a number between 0 and 1"),
    "a null": (lambda c: score(c, null=Exchange(9)), "null: expected a whole number; got Exch"),
    "no copies": (lambda c: score(c, null=0), "null: expected at least 1"),
    "width of x_o": (lambda c: score(c)(torch.zeros(3)), "x_o: expected shape"),
    "missing x_o": (lambda c: score(c)([0.0, math.nan]), "x_o: expected finite"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(pairs(n=50, k=2))


@pytest.mark.parametrize("factors", [(1, 0), (0, 1), (1e30, 1e30), (1, 1)])
def test_degenerate_data(factors):
    """A p-value that is a number, whatever has no spread."""
    c = pairs(n=10 if factors == (1, 1) else 60, k=3)
    theta, theta_q = factors[0] * c.theta, factors[0] * c.theta_q
    found = score(Calibration(theta, factors[1] * c.x, theta_q), null=9)(X_O)
    assert 0 < found.pvalue <= 1
    assert np.isfinite(found.statistic)
    assert found.auc_error >= 0
