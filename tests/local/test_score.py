"""The local score test: its level and power, and what must not change its p-value."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

from assay import Calibration, Exchange, KnownBase, LocalExchange, Nearest
from assay._support.random import stream
from assay.local import score as module
from assay.local.features import (
    DIRECTIONS,
    FEATURE_MAPS,
    PENALTY,
    FeatureMap,
    feature_maps,
    waves,
)
from assay.local.score import Score, score
from assay.neighbourhood import Distance
from assay.results import Holm, MaxT, holm, pvalue_error, step_down
from tests.level.designs import DESIGNS, Design

X_O, NEAR = torch.tensor([0.3, -0.2]), Distance()
WAVES = [each.function for each in FEATURE_MAPS if getattr(each.function, "func", 0) is waves]


def pairs(change=lambda q: q, seed=0, n=300, k=16, m=2, where=lambda x: x[:, 0] < math.inf):
    """Normal pairs; draws of q (n, k, m) are changed where x is, and stay right elsewhere."""
    generator = stream(seed, "pairs")
    x = torch.randn(n, 2, generator=generator)
    u = torch.randn(n, k + 1, m, generator=generator)
    q = torch.where(where(x)[:, None, None], change(u[:, 1:]), u[:, 1:])
    return Calibration(u[:, 0] + x[:, :1], x, q + x[:, None, :1])


def last(change):
    """A change of the last parameter alone."""
    return lambda q: torch.cat([q[..., :-1], change(q[..., -1:])], -1)


def correlated(q):
    """The second parameter correlated with the first by 0.8."""
    return torch.cat([q[..., :1], 0.8 * q[..., :1] + 0.6 * q[..., 1:]], -1)


def near(x):
    """The nearest few of all x."""
    return (x - X_O).norm(dim=1) < 0.35


def far(x):
    """All but the nearest 30 %."""
    return ~Nearest(0.3).inside(x, X_O[None])[0]


def relabel(calibration, rows):
    """The same members, of which another is the true parameter in some sets (n,)."""
    theta, theta_q = calibration.theta.clone(), calibration.theta_q.clone()
    theta[rows], theta_q[rows, 0] = calibration.theta_q[rows, 0], calibration.theta[rows]
    return Calibration(theta, calibration.x, theta_q)


# The level.


def from_design(design):
    return lambda seed: (design.pairs(seed), design.x_o)


def uniform_latents(seed):
    z, x = torch.rand(2, 50, 2, generator=stream(seed, "uniform"))
    base = torch.distributions.Uniform(torch.zeros(2), torch.ones(2))
    return Calibration.from_base(z, x, torch.distributions.Independent(base, 1)), x.mean(0)


RIGHT_NEAR = {
    "Cauchy": from_design(DESIGNS["Cauchy"]),
    "scale changes with x": from_design(DESIGNS["scale moves with x"]),
    "one draw, eight features": from_design(Design(n=60, k=1, d=8)),
    "twenty pairs": from_design(Design(n=20, k=3, m=1, d=1)),
    "ties in x": from_design(DESIGNS["ties in x"]),
    "counts": from_design(DESIGNS["counts"]),
    "latents": lambda seed: (DESIGNS["normal"].latents(seed), DESIGNS["normal"].x_o),
    "uniform latents": uniform_latents,
    "wrong elsewhere": lambda s: (pairs(lambda q: q + 10, s, 60, 3, 1, where=far), X_O),
}


def few_waves(m, *, normal):
    """All feature maps, with sixteen cosines in place of 256."""
    return tuple(
        replace(each, function=partial(each.function, n=16)) if each.function in WAVES else each
        for each in feature_maps(m, normal=normal)
    )


@pytest.mark.parametrize("repetitions", [12, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("design", RIGHT_NEAR)
def test_the_level_is_exact(design, repetitions, monkeypatch):
    """Within 99.9 % binomial intervals; ties of members or in x may only lower it."""
    if repetitions < 100:
        monkeypatch.setattr(module, "feature_maps", few_waves)
    found = []
    for seed in range(repetitions):
        calibration, x_o = RIGHT_NEAR[design](seed)
        found.append(score(calibration, 0.3, 19, seed)(x_o).pvalue)
    for alpha in (0.05, 0.25, 0.5):
        low, high = binom.interval(0.999, repetitions, alpha)
        count = (np.array(found) <= alpha + 1e-9).sum()
        assert count <= high
        assert count >= low or design in ("counts", "ties in x")


# Power.

# What q is changed to, the kinds of evidence that see it, and the data.
WRONG_NEAR = {
    "wide": (lambda q: 1.5 * q, ("smooth", "near", "learned"), {}),
    "narrow": (lambda q: 0.65 * q, ("smooth", "distances"), {}),
    "shifted": (lambda q: q + 0.7, ("smooth", "one parameter"), {}),
    "correlated": (correlated, ("pairs",), {}),
    "two modes": (lambda q: 0.9 * q.sign() + 0.45 * q, ("finest", "one parameter"), {}),
    "one of fifteen": (last(lambda u: 1.8 * u), ("one parameter", "learned"), {"m": 15, "n": 500}),
    "in the nearest few": (lambda q: q + 1.2, ("near",), {"n": 800, "where": near}),
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


def test_wrong_latents():
    z, x = torch.randn(2, 400, 2, generator=stream(0, "latents"))
    found = score(Calibration.from_base(z + torch.tensor([0, 0.8]), x), null=99)(X_O)
    assert found.pvalue == 0.001
    assert found.auc - 0.5 > 3 * found.auc_error


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
    found = score(pairs(change, n=700, k=8, m=1), null=9)(X_O)
    assert found.near == 140
    assert abs(found.auc - expected) < 3 * found.auc_error
    if name == "right":
        # The share of eight draws below a true parameter is uniform on 0, 1/8, ..., 1.
        assert found.auc_error == pytest.approx(math.sqrt(10 / 96 / 140), rel=0.15)


# Copies and p-values.


def test_more_copies_are_made_of_a_small_pvalue():
    right, wrong = score(pairs(n=100), null=39)(X_O), score(pairs(lambda q: 2 * q), null=39)(X_O)
    assert right.pvalue > 0.1
    assert (right.copies, wrong.copies) == (39, 999)
    assert right.null.shape == wrong.null.shape == (39,)
    assert wrong.pvalue == 0.001
    for found in (right, wrong):
        for p in (found.pvalue, found.evidence):
            counts = p * (1 + found.copies)
            np.testing.assert_allclose(counts, counts.round(), atol=1e-9)
        expected = math.sqrt(found.pvalue * (1 - found.pvalue) / (1 + found.copies))
        assert found.pvalue_error == pytest.approx(expected)
    assert score(pairs(lambda q: 2 * q, n=100), null=1200)(X_O).copies == 1200


def test_the_monte_carlo_error_of_p(monkeypatch):
    """Over other copies; more than that of counting, as copies standardise the statistic, too."""
    test, found = score(pairs(n=50, k=2), null=49), []
    labels = test._labels(30 * 49)
    for some in labels[1:].split(49):
        monkeypatch.setattr(Score, "_labels", lambda *_, some=some: torch.cat([labels[:1], some]))
        found.append(float(test.pvalues(X_O)[0]))
    assert 0.1 < np.mean(found) < 0.9
    assert 0.8 < np.std(found) / pvalue_error(np.mean(found), 49) < 2.2


@pytest.mark.parametrize("null", [19, 999])
def test_pvalues_are_those_of_the_first_copies(null):
    test = score(pairs(n=50, k=2), null=null)
    x_o = torch.randn(6, 2, generator=stream(2, "x_o"))
    found, p = test(x_o), test.pvalues(x_o)
    first = found.copies == null
    np.testing.assert_array_equal(p[first], found.pvalue[first])
    assert (p[~first] <= 0.1).all()
    assert first.any()


def test_a_small_pvalue_is_that_of_more_copies():
    """Whether it is then smaller or larger."""
    few, more = (score(pairs(lambda q: 1.5 * q, n=80, k=2), null=n) for n in (19, 999))
    x_o = torch.randn(16, 2, generator=stream(3, "x_o"))
    found, first = few(x_o), few.pvalues(x_o)
    again = found.copies == 999
    assert ((first <= 0.1) == again).all()
    np.testing.assert_array_equal(found.pvalue[again], more.pvalues(x_o)[again])
    assert (found.pvalue[again] < first[again]).any()
    assert (found.pvalue[again] > first[again]).any()


@pytest.mark.parametrize(("many", "adjustment"), [(3, Holm), (50, Holm), (51, MaxT)])
def test_several_observations_are_corrected(many, adjustment):
    """Step by step with copies of each, or by a table of labels that all share."""
    wrong = pairs(lambda q: q + 2, n=50, k=2, m=1, where=lambda x: x[:, 0] < 0.5)
    found = score(wrong, null=39)(X_O + torch.linspace(0, 1.5, many)[:, None])
    assert isinstance(found.adjustment, adjustment)
    assert found.pvalue.shape == found.adjusted.shape == (many,)
    if adjustment is Holm:
        np.testing.assert_array_equal(found.adjusted, holm(found.pvalue))
        assert set(found.copies) == {39, 999}
    else:
        np.testing.assert_array_equal(found.adjusted, step_down(found.statistic, found.null))
        assert set(found.copies) == {39}
    assert found.adjustment.words in found.sentence
    assert found[1].pvalue == found[1].adjusted == found.pvalue[1]


@pytest.mark.parametrize("most", [1, 2])
def test_strength_is_borrowed_for_few_observations_alone(most, monkeypatch):
    """True parameters that are far from x_o do not count for more observations than that."""
    monkeypatch.setattr(module, "MOST_BORROWING", most)
    calibration = pairs(n=50, k=2, m=1)
    given = calibration, relabel(calibration, far(calibration.x))
    one, two = (score(c, 0.3, 9)(X_O.expand(2, 2)).statistic[0] for c in given)
    assert (abs(one - two) < 1e-4) == (most == 1)


# What the test is made of.


def test_sums_of_copies_are_those_of_the_members_they_label():
    test, rows = score(pairs(n=150, k=4), null=5), torch.arange(150)
    ((sums, near_x_o),) = test._sets.sums_at(X_O[None], test.near, borrow=True)
    assert torch.equal(near_x_o[0], Nearest(0.2).inside(test.calibration.x, X_O[None])[0])
    assert near_x_o.sum(1).tolist() == [30, 10]
    groups, labels = test._sets.groups, test._labels(5)
    group = (groups[..., None] == rows).any(1).byte().argmax(0)  # of each set, (n,)
    chosen = labels[:, group]  # (6, n)
    # In the data, the member that is labelled is the true parameter.
    assert torch.equal(test._sets.members[rows, chosen[0]], test.calibration.theta)
    select = torch.nn.functional.one_hot(labels, 5).flatten(1).float()
    for i, (table, here) in enumerate(zip(test._sets.features(rows), sums, strict=True)):
        features = test._sets.whitened(i, table.double()[rows, chosen])  # (6, n, p)
        assert len(here.near) == len(here.squares) == test._sets.maps[i].sizes
        for added, near in zip(here.near, near_x_o, strict=False):
            found = test._sets.whitened(i, (select @ added.flatten(0, 1)).double())
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
    for first, second in zip(one._sets.whitening, two._sets.whitening, strict=True):
        # Both whiten the same features: what one does, the other undoes, up to rounding.
        matrices = [each if each.ndim == 2 else each.diag() for each in (first, second)]
        both = matrices[0] @ torch.linalg.inv(matrices[1])
        torch.testing.assert_close(both, torch.eye(len(both)).to(both), rtol=0, atol=1e-3)
    truth = {tuple(row) for row in two.calibration.theta.tolist()}
    assert {tuple(row) for row in two._sets.members[:, 0].tolist()} == truth


def test_dense_statistics_are_sums_over_pairs_of_sets():
    """L . (S + L) - D, whitened: a set says nothing about itself."""
    f = torch.randn(12, 3, generator=stream(0, "features"), dtype=torch.double)
    elsewhere = torch.randn(2, 3, generator=stream(1, "features"), dtype=torch.double)
    whitening = module.whitener(f)
    covariance = f.mT @ f / 12
    penalty = PENALTY * covariance.diagonal().mean() * torch.eye(3)
    torch.testing.assert_close(
        whitening @ (covariance + penalty) @ whitening.mT, torch.eye(3).double()
    )
    white = f @ whitening.mT
    own, total = white.square().sum().expand(2, 1), white.sum(0).expand(2, 1, 3)
    each = FeatureMap("smooth", lambda at: at, near_sizes=2)
    found = list(module.dense_statistics(each, total, own, elsewhere))
    gram = white @ white.mT
    between = gram.sum() - gram.trace()
    learned = white.sum(0) @ elsewhere.mT
    assert [kind for kind, _ in found] == ["near", "near", "smooth", "smooth"]
    values = torch.stack([table[0, 0] for _, table in found])
    torch.testing.assert_close(values, torch.cat([between.expand(2), between + learned]))


def test_sparse_statistics_are_squares_of_each_parameter():
    total = torch.tensor([[[6.0, 8.0, 2.0, 1.0]], [[3.0, 4.0, 1.0, 0.0]]]).double()
    elsewhere = torch.tensor([2.9, -5.0, 3.0, 4.0]).double()
    each = FeatureMap("one parameter", lambda at: at, columns=2)
    whole, small, learned = module.sparse_statistics(each, total, elsewhere, [10, 5])
    torch.testing.assert_close(small[1], torch.tensor([[5.0], [0.2]]).double())
    torch.testing.assert_close(whole[1], torch.tensor([[10.0], [0.5]]).double())
    # What is beyond three standard deviations: -2 of the second, 1 of the fourth.
    assert learned[0] == "learned"
    torch.testing.assert_close(learned[1], torch.tensor([[-15.0]]).double())
    assert module.scales(torch.tensor([[3.0, 0.0], [-3.0, 0.0]])).tolist() == [3, 1]
    c = DIRECTIONS  # squared lengths keep their mean in a few directions
    directions = module.random_directions(200)
    torch.testing.assert_close(directions.mT @ directions, 200 / c * torch.eye(c).double())


@pytest.mark.parametrize("function", [module.surprise, module.largest, module.combine])
def test_versions_are_treated_alike(function):
    """In another order of versions, statistics come in that order; equal ones stay equal."""
    statistics = np.random.default_rng(0).gamma(2.0, size=(4, 30))
    statistics[:, 7] = statistics[:, 3]
    order = np.random.default_rng(1).permutation(30)
    found = function(statistics)
    np.testing.assert_allclose(function(statistics[:, order]), found[..., order])
    np.testing.assert_allclose(found[..., 7], found[..., 3])
    assert (function(np.ones((4, 30))) == function(np.ones((4, 30)))[..., :1]).all()


def test_what_one_kind_sees_and_what_all_half_see():
    evidence = np.random.default_rng(0).exponential(size=(9, 200))
    evidence[4, 0] = 25.0
    assert module.combine(evidence).argmax() == 0
    evidence[4, 0] = 0.0
    evidence[:, 1] = 4.0  # of 200 exponentials, the largest is 5.9 on average
    assert module.combine(evidence).argmax() == 1


# What must not change a p-value.


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


def test_the_order_of_rows_threads_and_seeds(plain):
    order = torch.randperm(200, generator=stream(0, "order"))
    before, state = torch.get_num_threads(), torch.get_rng_state()
    try:
        torch.set_num_threads(3)
        found = score(GIVEN.subset(order), null=99)(X_O)
    finally:
        torch.set_num_threads(before)
    same(found, plain)
    again, other = (score(GIVEN.subset(order), null=99, seed=seed)(X_O) for seed in (0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(again.null, plain.null)
    assert not np.array_equal(other.null, plain.null)


@pytest.mark.parametrize("limits", [(1, 2**26), (2**27, 1)])
def test_parts_that_fit_into_memory(plain, limits, monkeypatch):
    """Tables of features that are not kept, and observations one by one."""
    for name, limit in zip(("MOST_FEATURES", "MOST_SUMS"), limits, strict=True):
        monkeypatch.setattr(module, name, limit)
    same(score(GIVEN, null=99)(torch.stack([X_O, -X_O]))[0], plain)


# What a result and a test offer.


def test_a_result_of_several_observations():
    found = score(pairs(n=100, k=4), null=19)(torch.stack([X_O, -X_O, 2 * X_O]))
    kinds = ("smooth", "fine", "finest", "one parameter", "distances", "pairs", "near", "learned")
    assert found.kinds == kinds
    assert found.evidence.shape == (3, len(kinds))
    assert found.null.shape == (3, 19)
    assert found.x.shape == (3, 2)
    assert found.near.tolist() == [20, 20, 20]
    assert found[1].evidence.tolist() == found.evidence[1].tolist()
    assert found[1].kinds == kinds
    assert (found[1].auc, found[1].near) == (found.auc[1], 20)
    assert found.table[2]["AUC"] == found.auc[2]
    assert found.table[2]["simulations near x_o"] == 20
    assert "At 0 of 3 observations" in found.sentence
    assert f"{int(found[1].copies)} relabelled copies, 20 simulations near" in found[1].sentence
    with pytest.raises(ValueError, match="read-only"):
        found.evidence[:] = 0


def test_settings_and_defaults():
    found = score(pairs(n=100, k=4), 0.3, 49, seed=5)(X_O)
    expected = {"test": "local score", "n": 100, "k": 4, "null": "Exchange(n=49)", "seed": 5}
    expected["scope"] = "throughout the nearest 30% of x around x_o"
    assert expected.items() <= found.settings.items()
    assert found.hypothesis == f"q(theta | x) = p(theta | x) {expected['scope']}"
    default, given = score(pairs(n=10, k=4)), score(pairs(n=10, k=4), Nearest(0.4), Exchange(7))
    assert (default.null, default.seed, default.near) == (Exchange(199), 0, Nearest(None, NEAR))
    assert (given.null, given.near) == (Exchange(7), Nearest(0.4, NEAR))
    assert repr(given).startswith("Score(Calibration(n=10")


BAD = {
    "no calibration": (lambda c: score(c.theta), TypeError, "calibration: expected"),
    "a share": (lambda c: score(c, 1.5), ValueError, "near: expected a number between 0 and 1"),
    "a local null": (lambda c: score(c, null=LocalExchange(9)), TypeError, "null: expected"),
    "a base": (lambda c: score(c, null=KnownBase(9)), TypeError, "null: expected"),
    "no copies": (lambda c: score(c, null=0), ValueError, "null: expected at least 1"),
    "a seed": (lambda c: score(c, seed="a"), TypeError, "seed: expected"),
    "width of x_o": (lambda c: score(c)(torch.zeros(3)), ValueError, "x_o: expected shape"),
    "missing x_o": (lambda c: score(c)([0.0, math.nan]), ValueError, "x_o: expected finite"),
    "no x_o": (lambda c: score(c)("x_o"), TypeError, "expected"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call(pairs(n=50, k=2))


DEGENERATE = {
    "one x": lambda theta, theta_q, x: (theta, 0 * x, theta_q),
    "a constant parameter": lambda theta, theta_q, x: (0 * theta, x, 0 * theta_q),
    "huge": lambda theta, theta_q, x: (1e30 * theta, 1e30 * x, 1e30 * theta_q),
    "ten pairs": lambda theta, theta_q, x: (theta[:10], x[:10], theta_q[:10]),
}


@pytest.mark.parametrize("change", DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_data(change):
    """A p-value that is a number, whatever has no spread."""
    c = pairs(n=60, k=3)
    found = score(Calibration(*change(c.theta, c.theta_q, c.x)), null=9)(X_O)
    assert 0 < found.pvalue <= 1
    assert np.isfinite(found.statistic)
    assert found.auc_error >= 0
