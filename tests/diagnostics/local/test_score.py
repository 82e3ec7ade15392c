"""The local score test: exact near x_o, with strength from everywhere."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay import Calibration, Exchange, Nearest, Smooth
from assay.diagnostics.local.score import Score, score
from assay.interpret.errors import Narrow, Shift, Wide

X_O = torch.tensor([0.3, -0.2])


def sets(seed, n=400, m=2, k=16, shift=0.0, width=1.0, where=None, d=2):
    """Pairs whose q is too high by so much and so much too wide, in the last parameter."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator)
    wrong = torch.ones(n, 1) if where is None else where(x).float()[:, None]
    centre = x[:, :1].expand(n, m)
    theta = centre + torch.randn(n, m, generator=generator)
    u = torch.randn(n, k, m, generator=generator)
    u[..., -1] = u[..., -1] * (1 + wrong * (width - 1)) + wrong * shift
    return Calibration(theta, x, centre[:, None] + u)


def latents(seed, n=400, m=2, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    z, x = torch.randn(2, n, m, generator=generator)
    z[:, -1] -= shift
    return Calibration.from_base(z, x)


class TestTriple:
    @pytest.mark.parametrize(("width", "sure"), [(1.7, True), (1.0, False), (0.6, True)])
    def test_width(self, width, sure):
        found = score(sets(1, width=width), null=99)(X_O)
        assert (found.pvalue <= 0.05) == sure
        assert (found.auc.value > found.auc.upper) == sure

    def test_latents(self):
        assert score(latents(0, shift=0.7), null=99)(X_O).pvalue <= 0.05
        assert score(latents(0), null=99)(X_O).pvalue > 0.05

    @pytest.mark.parametrize("k", [1, 3, 5])
    def test_few_draws(self, k):
        assert score(sets(2, n=800, k=k, shift=1.0), null=99)(X_O).pvalue <= 0.05
        right = [score(sets(4 + i, n=800, k=k), null=99).decided(X_O) for i in range(10)]
        assert sum(bool(each.pvalue <= 0.05) for each in right) <= 2

    @pytest.mark.parametrize("error", [{"width": 1.8}, {"width": 0.6}, {"shift": 0.6}])
    def test_one_of_fifteen_parameters(self, error):
        wrong = sets(3, n=600, m=15, k=17, **error)
        assert score(wrong, null=99)(X_O).pvalue <= 0.05

    def test_a_posterior_that_ignores_x(self):
        generator = torch.Generator().manual_seed(0)
        theta, noise = torch.randn(2, 500, 2, generator=generator)
        prior = torch.randn(500, 16, 2, generator=generator)
        assert score(Calibration(theta, theta + noise, prior), null=99)(X_O).pvalue <= 0.05


def test_the_auc_of_a_right_q_is_one_half_on_average():
    """40 repetitions: within four standard errors; a classifier that saw its set says more."""
    found = [score(sets(seed, n=60, m=1, k=4), null=9)(X_O).auc.value for seed in range(40)]
    assert abs(np.mean(found) - 0.5) <= 4 * np.std(found) / 40**0.5


class TestLocal:
    def test_what_is_wrong_elsewhere_does_not_leak_in(self):
        def far(x):
            return ~Nearest((0.3,)).inside(x, X_O[None])[0, 0]

        low = [
            score(sets(seed, n=200, m=1, k=5, shift=10.0, where=far), null=19)(X_O).pvalue <= 0.05
            for seed in range(30)
        ]
        assert sum(low) <= 5

    def test_what_is_wrong_in_the_nearest_few_is_found(self):
        def near(x):
            return Nearest((0.05,)).inside(x, X_O[None])[0, 0]

        assert score(sets(5, n=2000, shift=1.0, where=near), null=99)(X_O).pvalue <= 0.05

    def test_copies_are_what_the_data_could_have_been(self):
        """Sums of a copy are those of data in which its truths play the truth near x_o."""
        given = sets(6, n=200)
        test = score(given, null=9, seed=3)
        rings = test.rings(test.calibration.observation(assay.Draws(X_O)))
        sums, near = test.sets.sums(rings, range(1))[0], rings.near(0)
        turns = test.sets.turns
        truth = turns.truth.clone()
        truth[near] = turns.played(range(4, 5), near)[0]
        changed = replace(test.sets, turns=replace(turns, truth=truth))
        vars(changed)["weights"] = test.sets.weights
        again = changed.sums(rings, range(1))[0]
        for before, after in zip(sums, again, strict=True):
            torch.testing.assert_close(after.near[:, 0], before.near[:, 4])
            torch.testing.assert_close(after.outside, before.outside)

    def test_many_features_of_x(self):
        """With 100 features of x, two of which matter, near means near for q."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2000, 100, generator=generator)
        theta = x[:, :2] + torch.randn(2000, 2, generator=generator)
        theta[:, 0] += (x[:, 0] > 1).float()
        u = torch.randn(2000, 16, 2, generator=generator)
        x_o = torch.randn(100, generator=generator)
        x_o[:2] = torch.tensor([1.5, 0.0])
        found = score(Calibration(theta, x, x[:, None, :2] + u), null=99)(x_o)
        assert found.pvalue <= 0.05
        assert "mean and scale" in found.hypothesis


@pytest.fixture(scope="module")
def found():
    x_o = torch.tensor([[0.3, -0.2], [-1.0, 0.5], [9.0, 9.0]])
    return score(sets(7, width=1.8), null=39)(x_o)


class TestResult:
    def test_shapes(self, found):
        assert found.statistic.shape == (3,)
        assert found.null.shape == (3, 39)
        assert found.pairs.tolist() == [[20, 80]] * 3
        assert found.evidence.shape == (3, len(found.kinds))
        assert found.auc.value.shape == found.accuracy.value.shape == (3,)

    def test_one_of_many(self, found):
        assert found[1].pvalue == found.pvalue[1]
        assert found[1].auc.value == found.auc.value[1]

    def test_outside_is_told(self, found):
        assert found.outside.tolist() == [False, False, True]

    def test_corrected_by_the_shared_copies(self, found):
        assert (found.adjusted >= found.pvalue).all()

    def test_words(self, found):
        assert "separates truths from draws of q with AUC" in found[0].sentence
        assert "nearest 20%" in found.hypothesis

    def test_saved(self, found, tmp_path):
        assay.save(found, tmp_path / "found")
        again = assay.load(tmp_path / "found")
        np.testing.assert_array_equal(again.pvalue, found.pvalue)
        np.testing.assert_array_equal(again.auc.upper, found.auc.upper)

    def test_the_same_seed_gives_the_same_result(self):
        one, two = (score(sets(8), null=19, seed=5)(X_O) for _ in range(2))
        np.testing.assert_array_equal(one.null, two.null)
        other = score(sets(8), null=19, seed=6)(X_O)
        assert not np.array_equal(one.null, other.null)


@pytest.mark.parametrize("where", [Smooth(), 0.2])
def test_another_neighbourhood_is_refused(where):
    with pytest.raises(TypeError, match="where: expected a neighbourhood such as Nearest"):
        score(sets(0), where)


def test_another_null_is_refused():
    with pytest.raises(TypeError, match="null: expected"):
        score(latents(0), null=assay.KnownBase(9))


def test_a_local_exchange_says_what_is_near():
    test = score(sets(0), null=assay.LocalExchange(19, 0.1))
    assert test.where.shares == (0.1,)
    assert test.null == Exchange(19)


class TestDetectable:
    def test_errors_of_one_parameter(self):
        test = score(sets(9, n=2000), null=199)
        found = assay.power(test, X_O, (Shift(0), Shift(1), Wide(0), Narrow(1)), repetitions=100)
        sizes = [float(curve.mde) for curve in found.curves]
        assert all(0.1 < size < 0.5 for size in sizes)
        assert float(found.weakest["shift"].mde) == max(sizes[:2])

    def test_more_simulations_detect_less(self):
        few, many = (
            float(assay.power(score(sets(10, n=n)), X_O, Shift(0))["shift 0"].mde)
            for n in (500, 4000)
        )
        assert many < 0.6 * few

    @pytest.mark.slow
    @pytest.mark.parametrize("space", ["draws", "latents"])
    def test_it_is_found_as_often_as_said(self, space):
        """A stated 0.8 is 0.7 to 0.9, over 120 data sets with the error near x_o."""
        make = {"draws": sets, "latents": latents}[space]
        size = float(assay.power(score(make(0, n=1000)), X_O, Shift(1))["shift 1"].mde)

        def rejected(seed):
            given = make(seed, n=1000)
            near = Nearest((0.2,)).inside(given.features, X_O[None])[0, 0]
            theta = given.theta.clone()
            theta[near, 1] -= size
            return score(replace(given, theta=theta), seed=seed)(X_O).pvalue <= 0.05

        assert 0.65 <= np.mean([rejected(seed) for seed in range(1, 121)]) <= 0.92


def test_repr():
    assert repr(score(sets(0), null=9)).startswith("Score(Calibration(n=400")
    assert isinstance(score(sets(0)), Score)
