from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay import Calibration, Draws, lpit
from assay._core import stream
from assay.diagnostics.local.levels import Levels
from assay.samples.neighbourhoods import Nearest, Smooth
from tests.diagnostics.local.test_lhpd import check_level

X_O = torch.tensor([0.3, -0.3])
SPACES = ["latents", "draws"]


def given(posterior, space, n=600, k=15, seed=0):
    latent = space == "latents"
    return posterior.latents(n, seed) if latent else posterior.calibration(n, k, seed)


@pytest.mark.parametrize("where", [Nearest(), Smooth()], ids=["nearest", "smooth"])
@pytest.mark.parametrize("space", SPACES)
class TestTriple:
    """A right, a wide, a narrow and a shifted posterior, and the direction of the error."""

    def found(self, posterior, space, where):
        return lpit(given(posterior, space, n=1500), where, 199)(Draws(X_O))

    def test_exact(self, gaussian, space, where):
        assert self.found(gaussian(), space, where).pvalue > 0.05

    def test_conservative(self, gaussian, space, where):
        result = self.found(gaussian(width=1.6), space, where)
        assert result.pvalue <= 0.01
        assert (result.width.sign == 1).all()
        assert "too wide" in result.sentence

    def test_overconfident(self, gaussian, space, where):
        result = self.found(gaussian(width=0.6), space, where)
        assert result.pvalue <= 0.01
        assert (result.width.sign == -1).all()
        assert "too narrow" in result.sentence

    @pytest.mark.parametrize("shift", [0.4, -0.4])
    def test_shifted(self, gaussian, space, where, shift):
        result = self.found(gaussian(shift=shift), space, where)
        assert result.pvalue <= 0.01
        assert (result.pvalues <= 0.05).all()
        assert (result.area.sign == np.sign(shift)).all()
        assert ("too high" if shift > 0 else "too low") in result.sentence


def correlated(space, n=1000, k=15, rho=0.6, seed=0):
    """Truths whose coordinates are correlated, where q knows of no correlation."""
    generator = stream(seed, "correlated")
    factor = torch.linalg.cholesky(torch.tensor([[1.0, rho], [rho, 1.0]]))
    theta = torch.randn(n, 2, generator=generator) @ factor.mT
    x = torch.randn(n, 2, generator=generator)
    if space == "latents":
        return Calibration.from_base(theta, x)
    return Calibration(theta, x, torch.randn(n, k, 2, generator=generator))


@pytest.mark.parametrize("space", SPACES)
def test_a_wrong_correlation_shows_in_the_independence_alone(space):
    result = lpit(correlated(space))(Draws(X_O))
    assert result.pvalue_independence == 0.001
    assert result.pvalue == 0.001
    assert result.pvalue_curves > 0.05
    assert result.correlation[0, 1] == pytest.approx(0.6, abs=0.15)
    assert result.correlation[0, 0] == pytest.approx(1)
    assert "a dependence of coordinates shows" in result.sentence


def test_the_right_correlation_is_none(gaussian):
    """Draws of a q that is right and correlated: nothing is left of it in conditional PITs."""
    generator = stream(0, "right")
    factor = torch.linalg.cholesky(torch.tensor([[1.0, 0.9], [0.9, 1.0]]))
    members = torch.randn(1000, 16, 2, generator=generator) @ factor.mT
    x = torch.randn(1000, 2, generator=generator)
    result = lpit(Calibration(members[:, 0], x, members[:, 1:]))(Draws(X_O))
    assert result.pvalue_independence > 0.05
    assert result.pvalue > 0.05


def test_wrong_margins_alone_are_no_dependence(gaussian):
    found = lpit(gaussian(width=1.4, shift=0.4).latents(1000))(Draws(X_O))
    assert found.pvalue_curves == 0.001
    assert found.pvalue_independence > 0.05


@pytest.mark.parametrize("space", SPACES)
def test_errors_elsewhere_do_not_leak_in(gaussian, space):
    """100 repetitions with q shifted by one sd outside the nearest 20 %: a 99.9 % interval."""
    found = []
    for i in range(100):
        right = given(gaussian(), space, n=200, k=5, seed=i)
        far = Nearest().weights(right.x, X_O[None])[0, -1] == 0
        wrong = replace(right, theta=right.theta + far.float()[:, None])
        found.append(lpit(wrong, null=19)(Draws(X_O)).pvalue)
    check_level(found)


def test_a_single_column_has_no_independence(gaussian):
    result = lpit(gaussian(m=1, shift=1.0).latents(200), null=99)(Draws([0.3]))
    assert result.pvalue == result.pvalue_curves == 0.01
    assert result.pvalue_independence == 1
    assert "dependence" not in result.sentence


@pytest.mark.parametrize("space", SPACES)
def test_one_observation_is_a_row_of_many(gaussian, space):
    test = lpit(given(gaussian(width=1.2), space, n=200), null=19)
    x_o = torch.stack([X_O, -X_O, 2 * X_O])
    many, one = test(Draws(x_o)), test(Draws(x_o[1]))
    assert many.curves.shape == (3, 2, 19)
    assert many.correlation.shape == many.null_correlation.shape == (3, 2, 2)
    assert many.pvalues.shape == (3, 2)
    assert one.correlation.shape == (2, 2)
    np.testing.assert_array_equal(many.curves[1], one.curves)
    np.testing.assert_allclose(many.correlation[1], one.correlation, atol=1e-12)
    assert many.pvalue[1] == one.pvalue
    assert many.pvalue_independence[1] == one.pvalue_independence
    assert "p indep." in many.table[0]


def test_observations_are_worked_off_in_parts(gaussian, monkeypatch):
    test = lpit(gaussian().latents(200), null=9)
    draws = Draws(torch.randn(7, 2, generator=stream(0, "x_o")))
    whole = test(draws)
    monkeypatch.setattr("assay.diagnostics.local.levels.ROOM", 4000)
    parts = test(draws)
    np.testing.assert_allclose(parts.null_curves, whole.null_curves)
    np.testing.assert_allclose(parts.null, whole.null)


@pytest.mark.parametrize("space", SPACES)
def test_order_of_rows(gaussian, space):
    calibration = given(gaussian(width=1.2), space, n=200)
    order = torch.randperm(200, generator=stream(0, "shuffle"))
    first, again = (lpit(c, null=19)(Draws(X_O)) for c in (calibration, calibration.subset(order)))
    np.testing.assert_array_equal(first.null_curves, again.null_curves)
    np.testing.assert_allclose(first.null, again.null)


def test_units_of_x_do_not_matter(gaussian):
    latents = gaussian(width=1.2).latents(200)
    moved = Calibration.from_base(latents.theta, 1000 * latents.x - 7)
    first, again = lpit(latents)(Draws(X_O)), lpit(moved)(Draws(1000 * X_O - 7))
    np.testing.assert_allclose(first.curves, again.curves, atol=0.02)


@pytest.mark.parametrize("space", SPACES)
def test_save_and_load(gaussian, space, tmp_path):
    test = lpit(given(gaussian(), space, n=100), null=9)
    result = test(Draws(X_O))
    assay.save(test, tmp_path / "test")
    assay.save(result, tmp_path / "result")
    again = assay.load(tmp_path / "test")
    assert repr(again) == repr(test)
    np.testing.assert_array_equal(again(Draws(X_O)).null, result.null)
    assert repr(assay.load(tmp_path / "result")) == repr(result)


def test_bad_input(gaussian):
    with pytest.raises(TypeError, match="calibration: expected a Calibration"):
        lpit(torch.zeros(5, 2))
    with pytest.raises(TypeError, match="where: expected a neighbourhood"):
        lpit(gaussian().latents(50), 99)
    with pytest.raises(ValueError, match="null: expected at least 1; got 0"):
        lpit(gaussian().latents(50), null=0)
    with pytest.raises(ValueError, match="alphas: expected levels above 0"):
        lpit(gaussian().latents(50), alphas=(0.5, 1.5))
    with pytest.raises(ValueError, match=r"x_o: expected shape \(2,\)"):
        lpit(gaussian().latents(50))(torch.zeros(3))


def test_levels_of_ones_own():
    u, x = torch.rand(2, 100, 2, generator=stream(0, "own"))
    result = lpit(Levels(u, x, names=("a", "b")), null=19)(Draws(x[0]))
    assert result.names == ("a", "b")
    assert result.pvalue > 0.05


def test_levels_of_zero_and_one_are_no_trouble():
    x = torch.randn(100, 2, generator=stream(0, "x"))
    u = torch.cat([torch.zeros(100, 1), torch.ones(100, 1)], 1)
    result = lpit(Levels(u, x), null=19)(Draws(x[0]))
    assert result.pvalue == 0.05
    assert np.isfinite(result.correlation).all()


def test_local_exchange_says_what_is_near(gaussian):
    calibration = gaussian(shift=0.5).latents(400)
    null = assay.LocalExchange(19, 0.2)
    one = lpit(calibration, null=null)(Draws(X_O))
    two = lpit(calibration, null.where, 19)(Draws(X_O))
    np.testing.assert_array_equal(one.null, two.null)
    assert "nearest 20%" in one.hypothesis
    with pytest.raises(ValueError, match="where: expected None"):
        lpit(calibration, Nearest((0.5,)), null)


class TestMadeAgain:
    """The same recipe on another calibration, with another seed or another number of nulls."""

    @pytest.mark.parametrize("space", SPACES)
    def test_on_the_same_and_on_another_calibration(self, gaussian, space):
        first = given(gaussian(), space, 200, 9)
        test = lpit(first, Smooth(), 19, (0.2, 0.5, 0.8), seed=3)
        others = (
            given(gaussian(width=1.6), space, 200, 9),
            given(gaussian(), space, 200, 9, seed=1),
        )
        for calibration in (first, *others):
            again = test.refit_on(calibration)
            made = lpit(calibration, Smooth(), 19, (0.2, 0.5, 0.8), seed=3)
            np.testing.assert_array_equal(again(X_O).null_curves, made(X_O).null_curves)
            np.testing.assert_array_equal(again(X_O).statistic, made(X_O).statistic)
            assert again.settings == made.settings
            assert again.calibration is calibration

    @pytest.mark.parametrize("space", SPACES)
    def test_with_another_seed_and_number(self, gaussian, space):
        calibration = given(gaussian(), space, 100, 9)
        test = lpit(calibration, null=19)
        other = test.with_seed(7)
        assert (other.seed, other.copies.n) == (7, 19)
        np.testing.assert_array_equal(other(X_O).curves, test(X_O).curves)
        assert not np.array_equal(other(X_O).null, test(X_O).null)
        made = lpit(calibration, null=19, seed=7)
        np.testing.assert_array_equal(other.refit_on(calibration)(X_O).null, made(X_O).null)
        fewer = test.with_nulls(5)
        assert fewer.copies.n == 5
        np.testing.assert_array_equal(fewer(X_O).null_curves, test(X_O).null_curves[:5])

    def test_not_without_pairs(self):
        u, x = torch.rand(2, 100, 2, generator=stream(0, "own"))
        with pytest.raises(ValueError, match="test: expected one that was made of a Calibration"):
            _ = lpit(Levels(u, x), null=9).calibration
