import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay import Calibration, Draws, Exchange, KnownBase, moments
from assay._core import stream
from assay.classifiers.features import Fourier, Hermite, NormalScores
from assay.diagnostics.local.moments import Moments, moments_apply
from assay.samples.neighbourhoods import Nearest, Smooth
from assay.tasks import GammaPoisson

X_O = torch.tensor([0.3, -0.3])
FORMS = {"neighbourhood": Nearest(), "smoothed": Smooth()}


def prepared(posterior, kind, n=1000, seed=0, **settings):
    """The test of one kind of input: latents, or whitened or ranked draws."""
    if kind == "latents":
        return moments(posterior.latents(n, seed=seed), seed=seed, **settings)
    coordinates = NormalScores() if kind == "ranks" else None
    calibration = posterior.calibration(n, k=16, seed=seed)
    return moments(calibration, coordinates=coordinates, seed=seed, **settings)


KINDS = ["latents", "draws", "ranks"]


@pytest.mark.parametrize("where", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", KINDS)
class TestTriple:
    """An exact, a conservative and an overconfident posterior, and the direction of the error."""

    def test_exact(self, gaussian, kind, where):
        result = prepared(gaussian(), kind, where=where)(Draws(X_O))
        assert result.pvalue > 0.05
        assert result.approximation > 0.01

    def test_conservative(self, gaussian, kind, where):
        result = prepared(gaussian(width=1.5), kind, where=where)(Draws(X_O))
        assert result.pvalue == 0.005
        assert result.approximation < 1e-3
        assert (result.effects.dispersion.value[-1] > 1.2).all()

    def test_overconfident(self, gaussian, kind, where):
        result = prepared(gaussian(width=0.6), kind, where=where)(Draws(X_O))
        assert result.pvalue == 0.005
        assert (result.effects.dispersion.value[-1] < 0.8).all()

    def test_biased(self, gaussian, kind, where):
        result = prepared(gaussian(shift=0.5), kind, where=where)(Draws(X_O))
        assert result.pvalue == 0.005
        assert (result.effects.bias.value[-1] > 0.3).all()


def test_sums_are_weighted(gaussian):
    """Squared lengths of the data by hand, for weights that differ from set to set."""
    latents = gaussian(shift=0.3).latents(60).sorted()
    test = moments(latents, Smooth((0.2, 0.5)), KnownBase(1), Hermite(2))
    weights = test.weights(test.calibration.observation(Draws(X_O)))
    expected = (weights[0] @ Hermite(2)(test.calibration.theta)).square().sum(1)
    found = test._squares(weights, range(1))[0, 0, :, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def half_wrong(n, seed, shift=0.6):
    """Latents that are right for x_1 > 0 and shifted for x_1 < 0."""
    generator = stream(seed, "half")
    x = torch.randn(n, 2, generator=generator)
    z = torch.randn(n, 2, generator=generator)
    return assay.Calibration.from_base(z - shift * (x[:, :1] < 0), x)


@pytest.mark.slow
def test_nothing_leaks_into_a_neighbourhood_that_is_right():
    """400 repetitions: exact at x_1 = 1.5, rejected at x_1 = -1.5; the smoothed form leaks."""
    x_o = Draws(torch.tensor([[1.5, 0.0], [-1.5, 0.0]]))
    found = {"near": [], "smooth": []}
    for i in range(400):
        calibration = half_wrong(300, i)
        for name, where in (("near", Nearest((0.1,))), ("smooth", Smooth((0.5,)))):
            found[name].append(moments(calibration, where, KnownBase(19))(x_o).pvalue)
    right, wrong = (np.array(found["near"]) <= 0.05).T
    low, high = scipy.stats.binom(400, 0.05).interval(0.999)
    assert low <= right.sum() <= high
    assert wrong.mean() > 0.5
    assert (np.array(found["smooth"]) <= 0.05)[:, 0].sum() > high


SHAPES = {
    "bimodal": lambda z, s: 0.9 * s + (1 - 0.9**2) ** 0.5 * z,
    "skewed": lambda z, s: (
        (torch.exp(0.8 * z) - np.exp(0.32)) / np.sqrt(np.expm1(0.64) * np.exp(0.64))
    ),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_it_sees_shapes_that_mean_and_variance_do_not(shape):
    generator = stream(0, "shape")
    z, x = torch.randn(2, 2000, 2, generator=generator)
    signs = 2.0 * torch.randint(2, (2000, 2), generator=generator) - 1
    odd = shape(z, signs)
    assert odd.mean().abs() < 0.05
    assert abs(float(odd.std()) - 1) < 0.05
    calibration = assay.Calibration.from_base(odd, x)
    fourier = moments(calibration, banks=(Fourier(16, 2.0),))(Draws(X_O))
    low = moments(calibration, banks=(Hermite(1),))(Draws(X_O))
    assert moments(calibration)(Draws(X_O)).pvalue == 0.005
    assert fourier.pvalue == 0.005
    assert low.pvalue > 0.005


def test_one_observation_is_a_row_of_many(gaussian):
    test = prepared(gaussian(width=1.2), "latents", null=KnownBase(9))
    many, one = test(Draws(torch.stack([X_O, -X_O]))), test(Draws(-X_O))
    assert many.statistic.shape == (2,)
    assert one.statistic.shape == ()
    assert many.pairs.shape == (2, 3)
    np.testing.assert_allclose(many.null[1], one.null, rtol=1e-4)
    np.testing.assert_allclose(many.effects.bias.at[1], one.effects.bias.at)
    np.testing.assert_array_equal(many.effects.dispersion.pvalue[1], one.effects.dispersion.pvalue)


def test_what_decides_needs_no_effects(gaussian):
    test = prepared(gaussian(width=1.2), "draws", n=200, null=Exchange(9))
    whole, bare = test(Draws(X_O)), test.decided(Draws(X_O))
    assert bare.effects is None
    np.testing.assert_array_equal(bare.null, whole.null)
    assert "p-value is at most 0.05" in bare.sentence


class TestKeptNulls:
    """Nulls of the same x in latent space are those of every flow; others are made anew."""

    X_OS = Draws(torch.stack([X_O, -X_O]))

    def made(self, monkeypatch):
        """The numbers of null copies that are made from now on."""
        counts, squares = [], Moments._squares

        def counted(test, weights, which):
            if which.start:
                counts.append(len(which))
            return squares(test, weights, which)

        monkeypatch.setattr(Moments, "_squares", counted)
        return counts

    def same(self, one, two, draws=None):
        for name in ("statistic", "null", "approximation"):
            found = (getattr(test(draws or self.X_OS), name) for test in (one, two))
            np.testing.assert_array_equal(*found)

    def test_another_flow_of_the_same_task(self, gaussian, monkeypatch):
        test = moments(gaussian().latents(300), null=KnownBase(19), seed=3)
        test(self.X_OS)
        wide = gaussian(width=1.4).latents(300)
        counts = self.made(monkeypatch)
        kept = test.refit_on(wide)
        result = kept(self.X_OS)
        assert counts == []
        fresh = moments(wide, null=KnownBase(19), seed=3)(self.X_OS)
        assert counts == [19]
        np.testing.assert_array_equal(result.null, fresh.null)
        np.testing.assert_array_equal(result.statistic, fresh.statistic)
        assert not np.array_equal(result.statistic, test(self.X_OS).statistic)

    def test_what_one_test_makes_serves_the_others(self, gaussian, monkeypatch):
        """At another observation, whoever is asked first; and one alone is not two together."""
        test = moments(gaussian().latents(300), null=KnownBase(19))
        kept = test.refit_on(gaussian(width=1.4).latents(300))
        counts = self.made(monkeypatch)
        for draws in (Draws(X_O), self.X_OS):
            kept(draws)
            test(draws)
        assert counts == [19, 19]
        self.same(test, moments(gaussian().latents(300), null=KnownBase(19)), Draws(X_O))

    def test_other_observations_are_made_anew(self, gaussian):
        test = moments(gaussian().latents(300), null=KnownBase(19), seed=3)
        test(self.X_OS)
        for other in (gaussian().latents(300, seed=1), gaussian().latents(200)):
            self.same(test.refit_on(other), moments(other, null=KnownBase(19), seed=3))
            null = test.refit_on(other)(self.X_OS).null
            assert not np.array_equal(null, test(self.X_OS).null)

    def test_draws_are_made_anew(self, gaussian):
        test = moments(gaussian().calibration(200, 8), null=Exchange(19))
        test(self.X_OS)
        wide = gaussian(width=1.4).calibration(200, 8)
        self.same(test.refit_on(wide), moments(wide, null=Exchange(19)))

    def test_another_seed_or_number_is_made_anew(self, gaussian):
        latents = gaussian().latents(300)
        test = moments(latents, null=KnownBase(19))
        test(self.X_OS)
        self.same(
            test.with_seed(4).refit_on(latents), moments(latents, null=KnownBase(19), seed=4)
        )
        self.same(test.with_nulls(9).refit_on(latents), moments(latents, null=KnownBase(9)))

    def test_of_a_test_that_was_saved(self, gaussian, tmp_path):
        test = moments(gaussian().latents(300), null=KnownBase(19), seed=3)
        test(self.X_OS)
        assay.save(test, tmp_path / "test")
        loaded, wide = assay.load(tmp_path / "test"), gaussian(width=1.4).latents(300)
        self.same(loaded.refit_on(wide), test.refit_on(wide))
        other = gaussian().latents(300, seed=1)
        self.same(loaded.refit_on(other), moments(other, null=KnownBase(19), seed=3))

    def test_another_base_is_refused(self, gaussian):
        latents = gaussian().latents(300)
        test = moments(latents, null=KnownBase(19))
        base = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 2.0), 1)
        other = assay.Calibration.from_base(2 * latents.theta, latents.x, base)
        with pytest.raises(ValueError, match=r"calibration: expected latents with base N\(0, I\)"):
            test.refit_on(other)


def test_the_same_seed_gives_the_same_result(gaussian):
    first, again = (prepared(gaussian(), "draws", n=100)(Draws(X_O)) for _ in range(2))
    np.testing.assert_array_equal(first.null, again.null)


def test_the_order_of_rows_does_not_matter(gaussian):
    calibration = gaussian(width=1.2).calibration(200, k=8)
    order = torch.randperm(200, generator=stream(0, "order"))
    first, second = (moments(c)(Draws(X_O)) for c in (calibration, calibration.subset(order)))
    assert first.statistic == pytest.approx(second.statistic, rel=1e-4)
    np.testing.assert_allclose(first.null, second.null, rtol=1e-3)


def test_it_says_what_it_found(gaussian, tmp_path):
    result = prepared(gaussian(width=1.5), "latents")(Draws(X_O))
    text = repr(result)
    assert "throughout the nearest 20%" in text
    assert "width × 1." in text
    assert "<table>" in result._repr_html_()
    assay.save(result, tmp_path / "result.npz")
    assert repr(assay.load(tmp_path / "result.npz")) == text


def test_a_test_can_be_saved(gaussian, tmp_path):
    test = prepared(gaussian(), "draws", n=100)
    assay.save(test, tmp_path / "test.npz")
    np.testing.assert_array_equal(
        assay.load(tmp_path / "test.npz")(Draws(X_O)).null, test(Draws(X_O)).null
    )


def test_another_base(gaussian):
    base = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 2.0), 1)
    latents = gaussian().latents(100)
    other = assay.Calibration.from_base(latents.theta, latents.x, base)
    with pytest.raises(ValueError, match=r"calibration: expected latents with base N\(0, I\)"):
        moments(other)


def test_more_features_than_memory_allows():
    z, x = torch.randn(2, 20, 60, generator=stream(0, "wide"))
    with pytest.raises(ValueError, match=r"banks: expected at most .* got 12000 from Fourier"):
        moments(Calibration.from_base(z, x), banks=Fourier(6000))


class TestManyParameters:
    @pytest.mark.parametrize("m", [40, 100])
    def test_latents(self, m):
        z, x = torch.randn(2, 300, m, generator=stream(0, "many", m))
        x_o, null = torch.zeros(m), KnownBase(39)
        assert moments(Calibration.from_base(z, x), null=null)(x_o).pvalue > 0.05
        z[:, 7] += 2
        result = moments(Calibration.from_base(z, x), null=null)(x_o)
        assert result.pvalue == 0.025
        assert np.abs(result.effects.bias.value[-1]).argmax() == 7

    def test_draws(self):
        members = torch.randn(200, 45, 40, generator=stream(0, "draws"))
        members[:, 0, 7] += 3
        x = torch.randn(200, 2, generator=stream(1, "draws"))
        calibration = Calibration(members[:, 0], x, members[:, 1:])
        result = moments(calibration, null=Exchange(19))(torch.zeros(2))
        assert result.pvalue == 0.05
        assert "parameter 5" in result.sentence

    def test_features_that_are_not_held_are_the_same(self, gaussian, monkeypatch):
        held = prepared(gaussian(), "draws", n=200, null=Exchange(19))(X_O)
        monkeypatch.setattr(assay.diagnostics.local.moments, "ROOM", 0)
        made = prepared(gaussian(), "draws", n=200, null=Exchange(19))(X_O)
        np.testing.assert_allclose(made.statistic, held.statistic, rtol=1e-5)
        np.testing.assert_allclose(made.null, held.null, rtol=1e-4)


def test_one_draw_for_each_x(gaussian):
    with pytest.raises(ValueError, match="theta_q: expected at least 4 draws of q at each x"):
        moments(gaussian().calibration(100))


def test_nulls_of_latents_alone(gaussian):
    with pytest.raises(ValueError, match=r"null: expected Exchange\(n\) for draws"):
        moments(gaussian().calibration(50, k=8), null=KnownBase(9))


def test_a_calibration_of_another_kind():
    with pytest.raises(TypeError, match="calibration: expected a Calibration; got Tensor"):
        moments(torch.zeros(3))


def within(p, alpha=0.05, coverage=0.999):
    low, high = scipy.stats.binom(len(p), alpha).interval(coverage)
    return low <= (np.array(p) <= alpha + 1e-9).sum() <= high


@pytest.mark.slow
@pytest.mark.parametrize("constant", [True, False])
def test_level_at_one_seed_and_one_feature(constant):
    """One seed serves 500 data sets, also where x is a single number, or constant."""
    found = []
    for i in range(500):
        z, x = torch.randn(2, 60, 1, generator=stream(i, "one seed"))
        x = torch.ones_like(x) if constant else x
        test = moments(Calibration.from_base(z, x), Nearest((1.0,)), KnownBase(19), seed=0)
        found.append(float(test(Draws(torch.zeros(1))).pvalue))
    assert within(found)


@pytest.mark.slow
@pytest.mark.parametrize("constant", [True, False])
def test_level_where_x_has_ties_and_rows_are_in_the_order_of_theta(constant):
    """Counts with their exact posterior, 300 repetitions; the order given must not matter."""
    task, found = GammaPoisson(), []
    for i in range(300):
        generator = stream(i, "ties")
        theta, x = task.joint(200, generator)
        theta_q = task.draws(x, 8, generator)
        if constant:
            theta, theta_q = torch.randn(200, 2, generator=generator), theta_q
            theta_q = torch.randn(200, 8, 2, generator=generator)
            x = torch.ones(200, 2)
        order = theta[:, 0].argsort()
        calibration = Calibration(theta[order], x[order], theta_q[order])
        test = moments(calibration, null=Exchange(19), seed=i)
        found.append(float(test(Draws(torch.ones(2))).pvalue))
    assert within(found)


@pytest.mark.parametrize("units", [1e-25, 1e-15, 1e15, 1e25])
def test_units_do_not_matter(gaussian, units):
    calibration = gaussian(shift=0.5).calibration(200, k=8)
    other = Calibration(units * calibration.theta, calibration.x, units * calibration.theta_q)
    first, second = (moments(c, null=Exchange(19))(Draws(X_O)) for c in (calibration, other))
    np.testing.assert_allclose(first.null, second.null, rtol=1e-2)
    np.testing.assert_allclose(first.approximation, second.approximation, rtol=0.1)


@pytest.mark.parametrize("offset", [1e6, -1e6])
def test_an_offset_does_not_matter(gaussian, offset):
    """Numbers of single precision, which are told to 1/16 there, and the same moved back."""
    given = gaussian(shift=0.4).calibration(400, k=8)
    far = [(part + offset).float() for part in (given.theta, given.x, given.theta_q, X_O)]
    near = [(part.double() - offset).float() for part in far]
    tests = [moments(Calibration(*parts[:3]), null=Exchange(19)) for parts in (far, near)]
    first, second = (test(parts[3]) for test, parts in zip(tests, (far, near), strict=True))
    np.testing.assert_allclose(first.statistic, second.statistic, rtol=1e-3)
    np.testing.assert_allclose(first.null, second.null, rtol=1e-3)
    np.testing.assert_allclose(first.effects.bias.value, second.effects.bias.value, atol=1e-3)
    one, other = (result.effects.region.value for result in (first, second))
    np.testing.assert_allclose(one, other, atol=0.03)
    assert first.pvalue == 0.05
    planted = [_planted(test, parts[3]) for test, parts in zip(tests, (far, near), strict=True)]
    np.testing.assert_allclose(*planted, rtol=1e-3)


def _planted(test, x_o):
    """The statistic in closed form, where the truths are moved as power moves them."""
    closed = test.closed_form(test.calibration.observation(Draws(x_o)), 1)
    near = test.calibration.subset(closed.near)
    return closed.statistic(near.theta + 0.5, near.theta_q)


def test_draws_without_variation():
    ones, x = torch.ones(50, 2), torch.randn(50, 2, generator=stream(0, "x"))
    calibration = Calibration(ones, x, torch.ones(50, 8, 2))
    with pytest.raises(ValueError, match="theta_q: expected draws that vary within their sets"):
        moments(calibration)(Draws(X_O))


def test_an_observation_beyond_single_precision(gaussian):
    x_o = torch.full((2,), 1e300, dtype=torch.float64)
    with pytest.raises(ValueError, match="x_o: .*beyond the range of torch.float32"):
        moments(gaussian().latents(50))(Draws(x_o))


def test_the_hypothesis_says_how_many_were_used(gaussian):
    result = moments(gaussian().latents(20))(Draws(X_O))
    assert "nearest 50% of x" in result.hypothesis


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"where": 0.2}, TypeError, "where: expected a neighbourhood such as"),
        ({"where": Nearest}, TypeError, "where: expected a neighbourhood such as"),
        ({"coordinates": "ranks"}, TypeError, "coordinates: expected coordinates such as"),
        ({"banks": ()}, ValueError, "banks: expected at least one"),
        ({"banks": (3,)}, TypeError, "banks: expected banks such as"),
    ],
)
def test_arguments_of_another_kind(gaussian, settings, error, message):
    with pytest.raises(error, match=message):
        moments(gaussian().latents(50), **settings)


def test_a_single_bank_and_a_bare_observation(gaussian):
    latents = gaussian(width=1.6).latents(200)
    one, two = (moments(latents, banks=banks, null=9) for banks in (Hermite(2), (Hermite(2),)))
    assert one.null == Exchange(9)
    assert one.banks == (Hermite(2),)
    np.testing.assert_array_equal(one(X_O).null, two(Draws(X_O)).null)
    assert one(X_O).pvalue == 0.1
    with pytest.raises(TypeError, match="x_o: expected an array"):
        one("x_o")


def test_where_it_applies(gaussian):
    """A standard normal base, or two draws more than there are parameters."""
    assert moments_apply(gaussian().latents(50))
    assert moments_apply(gaussian().calibration(50, 4))
    assert not moments_apply(gaussian().calibration(50, 3))
    latents = gaussian().latents(50)
    base = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 2.0), 1)
    assert not moments_apply(Calibration.from_base(latents.theta, latents.x, base))
