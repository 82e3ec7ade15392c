"""What all local tests promise to power, the trust map and tuning."""

import json
from functools import partial

import numpy as np
import pytest
import torch

import assay
from assay import Draws, Exchange, KnownBase, LocalExchange, lc2st, lhpd, lpit, moments, region
from assay.classifiers import QDA
from assay.diagnostics.local.base import ClosedForm, LocalTest
from assay.interpret.errors import Shift
from assay.results import LocalResult
from assay.samples.neighbourhoods import Nearest
from tests.conftest import Gaussian
from tests.diagnostics.local.test_levels import log_q

X_O = torch.tensor([0.3, -0.3])
NULLS = 19
MAKERS = {
    "lc2st": lambda c, seed=0: lc2st(c, QDA(), Exchange(NULLS), seed=seed),
    "local lc2st": lambda c, seed=0: lc2st(c, QDA(), LocalExchange(NULLS, 0.3), seed=seed),
    "region": lambda c, seed=0: region(c, QDA(), Nearest((0.3,)), NULLS, seed),
    "moments": lambda c, seed=0: moments(c, null=NULLS, seed=seed),
    "lhpd": lambda c, seed=0: lhpd(c, log_q(Gaussian()), null=NULLS, seed=seed),
    "lpit": lambda c, seed=0: lpit(c, null=NULLS, seed=seed),
}
IN_LATENT_SPACE = {
    "lc2st": lambda c, seed=0: lc2st(c, QDA(), KnownBase(NULLS), seed=seed),
    "region": MAKERS["region"],
    "moments": MAKERS["moments"],
    "lpit": MAKERS["lpit"],
}
CASES = [pytest.param(make, False, id=name) for name, make in MAKERS.items()] + [
    pytest.param(make, True, id=f"{name}, latents") for name, make in IN_LATENT_SPACE.items()
]
each_case = pytest.mark.parametrize(("make", "latent"), CASES)


def pairs(latent, seed=0, n=150, **errors):
    posterior = Gaussian(**errors)
    return posterior.latents(n, seed) if latent else posterior.calibration(n, 8, seed)


def there(latent, x_o=X_O):
    return Draws(x_o, n=60) if latent else Gaussian().draws(x_o, 60)


def same(one, two, draws):
    first, second = one(draws), two(draws)
    # But for the rounding of products of other shapes.
    np.testing.assert_allclose(first.statistic, second.statistic, rtol=1e-12)
    np.testing.assert_allclose(first.null, second.null, rtol=1e-12)
    assert first.hypothesis == second.hypothesis
    assert first.settings == second.settings


@each_case
def test_it_says_what_it_is(make, latent):
    calibration = pairs(latent)
    test = make(calibration, 3)
    assert isinstance(test, LocalTest)
    assert test.seed == 3
    assert json.loads(json.dumps(test.settings))["seed"] == 3
    assert torch.equal(test.calibration.sorted().x, calibration.sorted().x)
    result = test(there(latent))
    assert isinstance(result, LocalResult)
    assert result.null.shape == (NULLS,)
    assert result[0] is result


@each_case
def test_made_again_of_all_its_pairs_it_is_the_same(make, latent):
    test = make(pairs(latent))
    same(test, test.refit_on(test.calibration), there(latent))


@each_case
def test_on_another_calibration_it_is_the_test_of_that(make, latent):
    """Other truths and draws at the same x, and another x."""
    test = make(pairs(latent))
    test(there(latent))
    for other in (pairs(latent, width=1.4), pairs(latent, seed=1), pairs(latent, n=120)):
        again = test.refit_on(other)
        same(again, make(other), there(latent))
        assert again(there(latent)).statistic != test(there(latent)).statistic


@each_case
def test_another_seed_makes_other_nulls(make, latent):
    calibration = pairs(latent)
    test = make(calibration)
    other = test.with_seed(5).refit_on(calibration)
    assert (test.seed, other.seed) == (0, 5)
    same(other, make(calibration, 5), there(latent))
    assert not np.array_equal(other(there(latent)).null, test(there(latent)).null)
    same(other.with_seed(0).refit_on(calibration), test, there(latent))


@pytest.mark.parametrize(
    ("make", "latent"), [case for case in CASES if not case.id.startswith("region")]
)
def test_another_number_of_nulls(make, latent):
    """But for the region test, whose nulls are never pooled."""
    calibration = pairs(latent)
    test = make(calibration)
    fewer = test.with_nulls(7).refit_on(calibration)
    assert fewer(there(latent)).null.shape == (7,)
    same(fewer.with_nulls(NULLS).refit_on(calibration), test, there(latent))


@each_case
def test_a_bare_observation_is_enough_where_no_draws_are_needed(make, latent):
    test = make(pairs(latent))
    if not latent and type(test).__name__ in ("LC2ST", "Region"):
        with pytest.raises(ValueError, match=r"draws: expected Draws\(x_o, theta_o\)"):
            test(X_O)
        return
    for x_o in (X_O, torch.stack([X_O, -X_O])):
        bare, given = test(x_o), test(Draws(x_o))
        np.testing.assert_array_equal(bare.null, given.null)
        np.testing.assert_array_equal(bare.x, x_o.numpy())
    np.testing.assert_array_equal(test(X_O.tolist()).statistic, test(X_O).statistic)


@each_case
def test_one_observation_is_a_row_of_many(make, latent):
    """Also through the result: the i-th of many is that of one."""
    test, x_o = make(pairs(latent)), torch.stack([X_O, -X_O, 2 * X_O])
    draws = there(latent, x_o)
    many = test(draws)
    one = test(Draws(x_o[1], None if latent else draws.theta[1], draws.n))
    assert (len(many), many.labels) == (3, ("0", "1", "2"))
    assert many[1].statistic.shape == ()
    for found in (one, many["1"]):
        np.testing.assert_allclose(many[1].statistic, found.statistic, rtol=1e-4)
        np.testing.assert_allclose(many[1].null, found.null, rtol=1e-4, atol=1e-6)
    assert many[1].pvalue == many.pvalue[1] == one.pvalue


def test_nothing_but_a_whole_test_is_one():
    with pytest.raises(TypeError, match="abstract"):
        LocalTest()
    with pytest.raises(TypeError, match="abstract"):
        ClosedForm()


def test_what_may_be_pooled_and_what_has_a_closed_form():
    sets, latents = pairs(False), pairs(True)
    observation = sets.observation(Draws(X_O))
    found = {name: make(sets) for name, make in MAKERS.items()}
    assert {name for name, test in found.items() if test.poolable} == {"lc2st", "local lc2st"}
    assert not lc2st(sets, assay.Ridge(), Exchange(1)).poolable
    forms = {name for name, test in found.items() if test.closed_form(observation, 19)}
    assert forms == {"moments"}
    closed = moments(latents, null=NULLS).closed_form(latents.observation(Draws(X_O)), 19)
    test = moments(latents, null=assay.KnownBase(NULLS))
    z = test.calibration.theta[closed.near]
    assert closed.statistic(z, None)[0] == pytest.approx(float(test(X_O).statistic), rel=1e-4)


LEVEL_TESTS = {
    "lhpd": (MAKERS["lhpd"], False),
    "lpit": (MAKERS["lpit"], False),
    "lpit, latents": (MAKERS["lpit"], True),
}


@pytest.mark.parametrize(("make", "latent"), LEVEL_TESTS.values(), ids=LEVEL_TESTS)
class TestOfLevels:
    """Tests of levels are tests like any other to what interprets them."""

    def test_power(self, make, latent):
        """Of more pairs it sees smaller shifts."""
        effect = partial(assay.power, draws=X_O, errors=Shift(), repetitions=8)
        few, many = (effect(make(pairs(latent, n=n))) for n in (150, 600))
        assert few.settings["planted"] == "whole test"
        assert 0.1 < many["shift"].mde < few["shift"].mde

    def test_trust_map(self, make, latent):
        """Three times too wide on one side; nothing was simulated at the third place."""
        right, wide = pairs(latent, n=400), pairs(latent, n=400, width=3.0)
        bad = right.x[:, :1] < 0
        theta_q = None if latent else torch.where(bad[..., None], wide.theta_q, right.theta_q)
        half = right.with_members(torch.where(bad, wide.theta, right.theta), theta_q)
        places = torch.tensor([[-1.5, 0.0], [1.5, 0.0], [9.0, 9.0]])
        found = assay.trust_map(make(half), places, 3.0, (Shift(),))
        assert found.verdicts == ("rejected", "passed", "outside")
