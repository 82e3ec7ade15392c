import math

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay import Draws, effects, lc2st, moments
from assay._core import stream
from assay.diagnostics.local.region import region
from assay.interpret.density_ratio import Estimate, weighted
from assay.interpret.effects import Reweighted, _off, _ratio, _width, two
from assay.interpret.errors import Skew
from assay.results import LEVELS, LC2STResult
from assay.samples.neighbourhoods import Nearest
from assay.tasks import ConjugateGaussian, Perturbed

X_O = torch.tensor([0.3, -0.3])
NOISE = 0.04


def fitted(posterior, seed=0, nulls=19, s=1000, x=X_O, noise=NOISE):
    """What a classifier would find that knows the ratio, but for noise as null copies have it."""
    theta = posterior.draws(x, s, seed).theta
    z = (theta - x / 2) / math.sqrt(0.5)
    features = torch.cat([z, z.square() - 1, z[:, :1] * z[:, 1:]], 1)
    moved = torch.randn(nulls + 1, features.shape[1], generator=stream(seed, "noise"))
    logits = noise * (moved @ features.mT)
    logits[0] += posterior.bayes(theta, x).logit()
    d = torch.sigmoid(logits).double().numpy()
    return LC2STResult(
        statistic=np.square(d[0] - 0.5).mean(),
        null=np.square(d[1:] - 0.5).mean(1),
        probabilities=d[0],
        null_probabilities=d[1:],
        x=x.numpy(),
        draws=theta.numpy(),
        theta=theta.numpy(),
        hypothesis="q is right",
        settings={"test": "known ratio", "n": 1, "scope": "here", "space": "parameters"},
    )


def true(posterior):
    """True effects of a Gaussian posterior with the same shift in both parameters."""
    normal, levels = scipy.stats.norm, np.array(LEVELS)
    shift, width, scale = posterior.shift, posterior.width, math.sqrt(0.5)
    edges = posterior.scale * normal.ppf((1 + levels) / 2)
    held = normal.cdf((shift + edges) / scale) - normal.cdf((shift - edges) / scale)
    radii = width**2 * scipy.stats.chi2.ppf(levels, 2)
    return {
        "bias": np.full(2, shift / posterior.scale),
        "dispersion": np.full(2, width),
        "intervals": np.tile(held, (2, 1)),
        "region": scipy.stats.ncx2.cdf(radii, 2, max(2 * (shift / scale) ** 2, 1e-9)),
    }


CASES = {
    "exact": {},
    "shifted": {"shift": 0.3},
    "conservative": {"width": 1.3},
    "overconfident": {"width": 0.75},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_known_ratios_give_known_effects(gaussian, case):
    posterior = gaussian(**case)
    found = effects(fitted(posterior, s=20_000, noise=1e-3))
    for name, value in true(posterior).items():
        np.testing.assert_allclose(getattr(found, name).value, value, atol=0.03, err_msg=name)


def test_known_ratios_give_known_divergences(gaussian):
    found = effects(fitted(gaussian(shift=0.3), s=20_000, noise=1e-3))
    square = 2 * 0.3**2 / 0.5
    assert found.kl_pq.value == pytest.approx(square / 2, abs=0.02)
    assert found.kl_qp.value == pytest.approx(square / 2, abs=0.02)
    assert found.chi_square.value == pytest.approx(math.expm1(square), abs=0.05)
    assert found.ess.value == pytest.approx(math.exp(-square), abs=0.03)
    distance = 2 * scipy.stats.norm.cdf(math.sqrt(square) / 2) - 1
    assert found.total_variation.value == pytest.approx(distance, abs=0.01)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_stated_bands_hold_the_truth(gaussian, case):
    """100 repetitions: at least 90 % for every number."""
    posterior, held = gaussian(**case), []
    for i in range(100):
        found = effects(fitted(posterior, seed=i, s=600))
        bands = {name: getattr(found, name) for name in true(posterior)}
        held.append(
            np.concatenate(
                [
                    ((band.lower <= value) & (value <= band.upper)).ravel()
                    for band, value in zip(bands.values(), true(posterior).values(), strict=True)
                ]
            )
        )
    assert np.mean(held, 0).min() >= 0.9


def test_a_right_posterior_is_called_wrong_at_most_5_times_in_100(gaussian):
    """400 repetitions, every number of every family: below a 99.9 % binomial limit, not idle.

    Records of 24 designs have 1000 each (benchmarks/effects.py).
    """
    wrong = []
    for i in range(400):
        found = effects(fitted(gaussian(), seed=i, s=60))
        parts = (found.bias, found.dispersion, found.intervals, found.region)
        wrong.append(any(part.wrong.any() for part in parts))
    assert 2 < sum(wrong) <= scipy.stats.binom(400, 0.05).ppf(0.999)


def test_small_errors_are_not_called_zero():
    assert [_ratio(v) for v in (0.998, 1.006, 1.06, 1.26)] == ["0.998", "1.01", "1.06", "1.3"]
    assert _off(numbers([0.004]), 0, " sd") == "less than 0.01 sd (of q) too high"
    assert [two(v) for v in (0.0612, 9.91, 12.4, 4100.0)] == ["0.061", "9.9", "12", "4100"]


def numbers(value, lower=None, upper=None, **there):
    """An estimate of these values, all wrong."""
    value = np.array(value)
    ends = (
        value if lower is None else np.array(lower),
        value if upper is None else np.array(upper),
    )
    there = {name: np.array(part) for name, part in there.items()}
    return Estimate(value, *ends, *(0 * value,) * 3, np.full(value.shape, True), **there)


class TestWords:
    """What is said of single numbers, near x_o and at x_o."""

    def test_a_bias_that_grows_towards_x_o(self):
        bias = numbers([0.61], at=[1.2], at_lower=[0.9], at_upper=[1.5])
        expected = "0.61 sd (of q) too high (at x_o, extrapolated: 1.2 sd too high, 0.9 to 1.5)"
        assert _off(bias, 0, " sd") == expected

    def test_a_bias_that_changes_its_sign(self):
        bias = numbers([0.61], at=[-0.3], at_lower=[-0.7], at_upper=[0.1])
        assert _off(bias, 0, " sd").endswith("(at x_o, extrapolated: 0.3 sd too low, -0.1 to 0.7)")

    def test_a_bias_without_a_size(self):
        for ends, side in (((-np.inf, 0), "low"), ((0, np.inf), "high")):
            bias = numbers([np.nan], [ends[0]], [ends[1]])
            assert _off(bias, 0, " sd") == f"too {side} (by how much is not identifiable)"

    def test_widths(self):
        width = numbers([0.34], at=[0.3], at_lower=[0.25], at_upper=[0.36])
        assert _width(width, 0).startswith("0.34 times the true sd (at x_o, extrapolated: 0.3 ")
        assert _width(numbers([410.0]), 0) == "410 times the true sd"

    def test_widths_without_a_size(self):
        untold = "(by how much is not identifiable)"
        for ends, words in (
            ((6.4, np.inf), "more than 6.4 times the true sd"),
            ((1.0, np.inf), "too large"),
            ((-np.inf, 1.0), "too small"),
        ):
            assert _width(numbers([np.nan], [ends[0]], [ends[1]]), 0) == f"{words} {untold}"


class TestTriple:
    """An exact, a conservative and an overconfident posterior, in words."""

    def test_exact(self, gaussian):
        found = effects(fitted(gaussian()))
        assert found.sentence.startswith("No error beyond noise: bias within ±0.")
        assert not found.wrong

    def test_conservative(self, gaussian):
        found = effects(fitted(gaussian(width=1.4)))
        assert found.sentence.startswith("q's sd of theta[1] is 1.4 times the true sd; the 90 %")
        assert found.wrong
        assert (found.region.value > LEVELS).all()

    def test_overconfident(self, gaussian):
        found = effects(fitted(gaussian(width=0.7)), names=("mu", "sigma"))
        assert found.sentence.startswith("q's sd of mu is 0.7")
        assert "times the true sd; q's sd of sigma is 0." in found.sentence
        assert "; the 90 % region covers about 6" in found.sentence
        assert (found.region.value < LEVELS).all()

    def test_shifted(self, gaussian):
        found = effects(fitted(gaussian(shift=-0.4)))
        assert found.sentence.count("sd (of q) too low") == 2


@pytest.mark.parametrize("width", [0.6, 1.0, 1.6])
def test_trained_ratios_point_the_right_way(gaussian, width):
    posterior = gaussian(width=width)
    test = lc2st(posterior.latents(1000), assay.MLP(epochs=10), assay.KnownBase(9))
    found = effects(test(Draws(X_O)))
    assert found.names == ("latent[0]", "latent[1]")
    if width == 1:
        assert np.abs(found.dispersion.value - 1).max() < 0.15
    else:
        assert ((found.dispersion.value > 1) == (width > 1)).all()
        assert found.total_variation.wrong


def test_nulls_tell_how_much_of_a_divergence_is_noise(gaussian):
    found = effects(fitted(gaussian(), noise=0.15))
    assert found.total_variation.value > 0.1
    assert abs(found.total_variation.excess) < 0.1
    assert not found.total_variation.outside
    assert found.total_variation.lower == 0
    assert found.ess.upper == 1


def test_the_order_of_draws_and_their_units_do_not_matter(gaussian):
    result = fitted(gaussian(shift=0.3))
    order = np.random.default_rng(0).permutation(1000)
    theta = 5 * result.theta[order] @ np.array([[1.0, 0.0], [0.0, 1e6]]) - 3
    parts = (result.probabilities, result.null_probabilities, result.theta, result.draws)
    first = weighted(*parts).estimates
    second = weighted(parts[0][order], parts[1][:, order], theta, theta).estimates
    for name in ("bias", "dispersion", "intervals", "region", "total_variation"):
        np.testing.assert_allclose(first[name].value, second[name].value, rtol=1e-5, atol=1e-6)


def test_one_observation_is_a_row_of_many(gaussian):
    test = moments(gaussian(width=1.4).calibration(500, k=16), null=assay.Exchange(9))
    draws = torch.stack([X_O, -X_O])
    many, one = effects(test(Draws(draws))), effects(test(Draws(-X_O)))
    assert many.bias.value.shape == (2, 2)
    assert many.intervals.value.shape == (2, 2, 3)
    np.testing.assert_allclose(many[1].region.value, one.region.value)
    np.testing.assert_array_equal(many[1].tail.count, one.tail.count)
    assert len(many.table) == 2 * len(one.table)
    assert "Near 2 of 2 observations q is wrong by more than noise: 0, 1." in repr(many)
    # One observation is its own only row.
    assert one[0] is one[-1] is one["0"] is one
    assert (len(one), len(many)) == (1, 2)
    np.testing.assert_array_equal(many["1"].bias.value, many[1].bias.value)
    with pytest.raises(IndexError, match="expected one of 1 rows; got 1"):
        one[1]


def test_many_observations_of_a_ratio(gaussian):
    posterior = gaussian(shift=0.4)
    test = lc2st(posterior.calibration(200), assay.MLP(epochs=2), assay.Exchange(9))
    x = torch.stack([X_O, -X_O])
    many = effects(test(posterior.draws(x, 300)))
    assert many.weights.shape == (2, 300)
    assert many.khat.shape == (2,)
    draws = many.reweighted(50)
    assert draws.theta.shape == (2, 50, 2)
    np.testing.assert_array_equal(many[0].reweighted(50).theta, draws.theta[0])


class TestReweighted:
    def test_it_moves_towards_the_truth(self, gaussian):
        found = effects(fitted(gaussian(shift=0.4, width=1.2), s=20_000, noise=1e-3))
        draws = found.reweighted(2000, seed=1)
        np.testing.assert_allclose(draws.theta.mean(0), X_O / 2, atol=0.03)
        np.testing.assert_allclose(draws.theta.std(0), math.sqrt(0.5), atol=0.03)
        assert draws.reliable
        assert draws.remark == ""

    def test_systematic_resampling_repeats_a_draw_as_often_as_it_weighs(self, gaussian):
        found = effects(fitted(gaussian(shift=0.4)))
        chosen = found.reweighted(5000).theta
        counts = (chosen[None, :, 0] == found.theta[:, None, 0]).sum(1)
        assert np.abs(counts - 5 * found.weights).max() <= 1 + 1e-6

    def test_the_same_seed_gives_the_same_draws(self, gaussian):
        found = effects(fitted(gaussian(shift=0.4)))
        first, again, other = (found.reweighted(100, seed=i).theta for i in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()

    def test_draws_that_cannot_be_relied_on_say_so(self, gaussian):
        found = effects(fitted(gaussian(shift=2.5, width=0.5)))
        draws = found.reweighted(100)
        assert not draws.reliable
        assert draws.remark.startswith("Not to be relied on: the tail of the weights has shape")

    def test_moments_have_no_weights(self, gaussian):
        found = effects(moments(gaussian().latents(100), null=assay.KnownBase(9))(Draws(X_O)))
        with pytest.raises(ValueError, match="effects: expected those of a test with a ratio"):
            found.reweighted(10)


def test_fields_that_moments_cannot_give_are_none(gaussian):
    found = effects(moments(gaussian().latents(200), null=assay.KnownBase(9))(Draws(X_O)))
    for name in ("total_variation", "kl_pq", "kl_qp", "chi_square", "ess", "weights", "khat"):
        assert getattr(found, name) is None
    assert found.names == ("latent[0]", "latent[1]")
    assert found.tail.truths == [40]


def test_moments_say_what_is_wrong_in_parameters(gaussian):
    flow = gaussian(width=1.3, shift=0.25)
    latent = flow.calibration(5000).to_latent(flow)
    found = effects(moments(latent, null=assay.KnownBase(9))(Draws(X_O, n=2000)))
    assert found.names == ("theta[0]", "theta[1]")
    for name, value in true(flow).items():
        if name != "region":
            np.testing.assert_allclose(getattr(found, name).value, value, atol=0.1)
    assert found.sentence.startswith("Near x_o (nearest 20 %), q's mean of theta[0] is 0.")
    assert "(of q) too high (at x_o, extrapolated: 0." in found.sentence
    assert "; its sd is 1." in found.sentence


def test_sizes_of_the_neighbourhood(gaussian):
    result = moments(gaussian(width=1.4).latents(1000), null=assay.KnownBase(9))(Draws(X_O))
    first, last = effects(result, size=0), effects(result)
    np.testing.assert_array_equal(first.bias.value, result.effects.bias.value[0])
    np.testing.assert_array_equal(last.bias.value, result.effects.bias.value[-1])
    assert (first.near, last.near) == (pytest.approx(0.05), pytest.approx(0.2))
    assert (first.tail.truths, last.tail.truths) == ([50], [200])
    with pytest.raises(ValueError, match="size: expected one of 3 sizes; got 3"):
        effects(result, size=3)


def test_truths_that_q_never_draws_are_counted(gaussian):
    """A q far too narrow: reweighting cannot show what the tail check sees."""
    result = moments(gaussian(width=0.3).latents(1000), null=assay.KnownBase(9))(Draws(X_O))
    found = effects(result)
    assert found.tail.pvalue[-1] < 1e-6
    assert "truths near x_o lie in the outermost" in found.sentence


def test_it_can_be_saved(gaussian, tmp_path):
    for i, result in enumerate(
        [
            fitted(gaussian(shift=0.3)),
            moments(gaussian().calibration(100, k=8), null=assay.Exchange(9))(Draws(X_O)),
        ]
    ):
        found = effects(result, names=("a", "b"))
        assay.save(found, tmp_path / f"{i}.npz")
        again = assay.load(tmp_path / f"{i}.npz")
        assert repr(again) == repr(found)
        assert "<table>" in found._repr_html_()
    draws = effects(fitted(gaussian())).reweighted(10)
    assay.save(draws, tmp_path / "draws.npz")
    assert isinstance(assay.load(tmp_path / "draws.npz"), Reweighted)


def test_estimates_cannot_be_written(gaussian):
    found = effects(fitted(gaussian()))
    assert isinstance(found.bias, Estimate)
    with pytest.raises(ValueError, match="read-only"):
        found.bias.value[0] = 1.0


def test_probabilities_of_zero_and_one(gaussian):
    result = fitted(gaussian())
    d = np.array(result.probabilities)
    d[:3], d[3:6] = 0.0, 1.0
    estimates = weighted(d, result.null_probabilities, result.theta, result.draws).estimates
    assert all(np.isfinite(e.value).all() for e in estimates.values())


class TestBadInput:
    def test_a_result_of_another_kind(self):
        with pytest.raises(TypeError, match="result: expected what lc2st or moments found"):
            effects(3)

    def test_too_few_nulls(self, gaussian):
        with pytest.raises(ValueError, match="at least 9 fitted nulls.* got 3"):
            effects(fitted(gaussian(), nulls=3))

    def test_nulls_that_were_not_fitted(self, gaussian):
        posterior = gaussian()
        test = region(posterior.calibration(200, k=4), assay.Ridge(), seed=0)
        with pytest.raises(ValueError, match="fitted nulls.* got none"):
            effects(test(posterior.draws(X_O)))

    @pytest.mark.parametrize("names", [("a",), ("a", "b", "c"), "abc"])
    def test_another_number_of_names(self, gaussian, names):
        with pytest.raises(ValueError, match="names: expected 2 different names"):
            effects(fitted(gaussian()), names=names)

    def test_draws_that_do_not_vary(self, gaussian):
        result = fitted(gaussian())
        constant = np.ones_like(result.theta)
        parts = (result.probabilities, result.null_probabilities, constant, constant)
        with pytest.raises(ValueError, match="result: expected draws that vary"):
            weighted(*parts)


def test_an_exponent_tempers_data_and_nulls(gaussian):
    q = gaussian(shift=0.3)
    result = lc2st(q.calibration(300), assay.Ridge(), assay.Exchange(39))(q.draws([0.2, 0.1]))
    plain, half, none = (effects(result, exponent=e) for e in (1.0, 0.5, 0.0))
    np.testing.assert_allclose(none.weights, 1)
    assert 0 < half.chi_square.value < plain.chi_square.value
    assert half.chi_square.null_mean < plain.chi_square.null_mean
    assert half.settings["exponent"] == 0.5
    with pytest.raises(ValueError, match="exponent"):
        effects(result, exponent=-1.0)


def test_a_correlation_is_named(gaussian):
    latents = gaussian().latents(2000)
    z = latents.theta.clone()
    z[:, 1] = 0.6 * z[:, 0] + 0.8 * z[:, 1]
    result = moments(assay.Calibration.from_base(z, latents.x), null=9)(X_O)
    found = effects(result, names=("a", "b"))
    assert found.pairs == [("a", "b")]
    assert found.correlation.wrong.all()
    assert found.correlation.lower < -0.6 < found.correlation.upper
    assert "the correlation of a and b is 0." in found.sentence
    assert "too low (at x_o, extrapolated: 0." in found.sentence
    assert "a, b correlation" in found.labels
    assert effects(result, alpha=0.004).sentence.startswith("Near x_o (nearest 20 %), no error")


def test_an_error_that_varies_is_said_to():
    z, x = torch.randn(2, 2000, 1, generator=stream(0, "varies"))
    result = moments(assay.Calibration.from_base(z - x, x), null=9)(torch.tensor([1.5]))
    found = effects(result, names=["mu"])
    assert "the error of mu varies near x_o" in found.sentence
    assert found.bias.value < 1.45 < 1.5 < found.bias.at_upper
    assert found.dispersion.varies is not None
    constant = moments(assay.Calibration.from_base(z - 1, x), null=9)(torch.tensor([1.5]))
    assert "varies" not in effects(constant).sentence


def test_what_is_not_identifiable_is_said_to_be_so():
    """Draws that are all zero have no standard deviation; that truths lie above them is known."""
    x = torch.randn(400, 1, generator=stream(0, "zeros"))
    draws = torch.zeros(400, 16, 2)
    draws[..., 1] = torch.randn(400, 16, generator=stream(0, "second"))
    result = moments(assay.Calibration(torch.ones(400, 2), x, draws), null=9)(torch.zeros(1))
    found = effects(result, names=("mu", "nu"))
    assert np.isnan(found.bias.value[0])
    assert "q's mean of mu is too low (by how much is not identifiable)" in found.sentence
    assert "e+0" not in found.sentence
    assert "times the true sd (by how much is not identifiable)" in found.sentence


def test_the_largest_size_at_which_anything_is_wrong():
    """An error within the nearest twentieth, beside an observation without any."""
    z, x = torch.randn(2, 300, 1, generator=stream(1, "narrow"))
    wrong = assay.Calibration.from_base(z - 1.5 * (x.abs() < 0.06), x)
    result = moments(wrong, assay.Nearest((0.05, 0.5)), null=9)(torch.tensor([[0.0], [1.0]]))
    found = effects(result)
    np.testing.assert_allclose(found.near, [0.05, 0.5], atol=0.001)
    assert found.wrong.tolist() == [True, False]
    assert found[0].sentence.startswith("Near x_o (nearest 5 %), q's mean of latent[0] is 1.")


def test_moments_of_a_skewed_posterior():
    """Parameters are not linear in latents: truths are carried there, not their polynomials."""
    q = Perturbed(ConjugateGaussian(3, 5), Skew(0), 0.5)
    latents = q.calibration(20_000, 1, stream(0, "skewed")).to_latent(q)
    x_o = torch.full((5,), 0.3)
    test = moments(latents, Nearest((0.3,)), assay.KnownBase(1))
    found = effects(test(Draws(x_o, n=4000)))
    true = q.moved(x_o)
    np.testing.assert_allclose(found.dispersion.value, true.dispersion, atol=0.03)
    assert true.dispersion[0] > 1.04
    np.testing.assert_allclose(found.bias.value, true.bias / true.dispersion, atol=0.05)
