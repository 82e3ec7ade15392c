import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import assay
from assay import (
    MLP,
    Calibration,
    Draws,
    Exchange,
    KnownBase,
    LocalExchange,
    Ridge,
    lc2st,
    moments,
    power,
    region,
)
from assay._core import stream
from assay.classifiers.features import Conditional, Hermite, Joint, NormalScores
from assay.diagnostics.local.base import LocalTest
from assay.interpret.errors import Narrow, Shift, Wide
from assay.interpret.power import Closed, PooledRerun, Rerun, _fitted, _model, replay_of
from assay.results import LC2STResult
from assay.samples.neighbourhoods import Nearest

X_O = torch.tensor([[0.3, -0.3], [1.5, 1.0], [4.0, 4.0]])
BANKS = (Hermite(1), Hermite(2))
TINY = Ridge((Joint(32), Joint(32, frame=Conditional(16))), penalties=0.03)
SD = math.sqrt(0.5)


def prepared(posterior, k=None, n=300, seed=0, nulls=39, **settings):
    calibration = posterior.latents(n, seed) if k is None else posterior.calibration(n, k, seed)
    null = KnownBase(nulls) if k is None else Exchange(nulls)
    settings = {"banks": BANKS, "where": Nearest((0.3,)), **settings}
    return moments(calibration, null=null, seed=seed, **settings)


@dataclass(frozen=True, eq=False)
class Coin(LocalTest):
    """A test that is not one: its p-value is what it is told, whatever the data."""

    calibration: Calibration
    p: float
    seed: int = 0

    nulls = 99
    settings = {"test": "coin"}

    @property
    def whole(self):
        return self.calibration

    def refit_on(self, calibration):
        return replace(self, calibration=calibration)

    def with_nulls(self, n):
        return self

    def __call__(self, draws):
        null = np.tile(np.arange(99.0), (len(draws.x), 1))
        statistic = np.full(len(draws.x), 100.0 if self.p < 0.05 else -1.0)
        return LC2STResult(
            statistic=statistic,
            null=null,
            probabilities=np.zeros((len(draws.x), 1)),
            null_probabilities=None,
            x=draws.x.numpy(),
            draws=np.zeros((len(draws.x), 1, 1)),
            theta=None,
            hypothesis="a coin",
            settings=self.settings,
        )


@pytest.mark.parametrize("k", [None, 6, 16])
@pytest.mark.parametrize("error", [Shift(), Wide(), Narrow()], ids=repr)
def test_the_quick_way_agrees_with_the_test_itself(gaussian, k, error):
    """Statistics of planted data by closed form, and by the moment test from scratch."""
    test = prepared(gaussian(), k, banks=assay.classifiers.features.BANKS)
    engine = replay_of(test, Draws(X_O), 3)
    assert isinstance(engine, Closed)
    near = engine.form.near
    for size in (0.0, 0.3):
        played = engine.planter.played(1)
        truth = played.moved(error, size, engine.planter.chance(1))
        planted = test.refit_on(engine.planter.with_truths(played, truth))(Draws(X_O)).statistic
        others = None if played.others is None else played.others[near]
        close = 1e-3 if k is None else 0.12
        found = engine.form.statistic(truth[near], others)
        np.testing.assert_allclose(found, planted, rtol=close, atol=0.05)


class TestHonesty:
    """Fresh truths of which the same q is wrong by the effect are seen in 70 to 90 %."""

    def seen(self, make, effect, name, repetitions, k=None, n=300):
        """Rejections at the first observation by the real test; errors in one parameter."""
        hits = []
        for i in range(repetitions):
            generator = stream(i, "honest", name)
            x = math.sqrt(2) * torch.randn(n, 2, generator=generator)
            z = torch.randn(n, 2, generator=generator)
            if name == "shift":
                z[:, i % 2] -= effect
            else:
                z = z / (1 + effect)

            def draw(x, k, generator=generator):
                noise = torch.randn(len(x), k, 2, generator=generator)
                return x[:, None] / 2 + SD * noise

            calibration = Calibration.from_base(z, x)
            if k is not None:
                calibration = Calibration(x / 2 + SD * z, x, draw(x, k))
            there = Draws(X_O[0], None if k is None else draw(X_O[:1], 100)[0])
            hits.append(make(calibration, i)(there).pvalue <= 0.05 + 1e-9)
        return np.mean(hits)

    @pytest.mark.parametrize(
        "k", [6, *(pytest.param(k, marks=pytest.mark.slow) for k in (None, 16))]
    )
    def test_moments(self, gaussian, k):
        null = KnownBase(39) if k is None else Exchange(39)

        def make(calibration, seed):
            return moments(calibration, Nearest((0.3,)), null, BANKS, seed=seed)

        result = power(prepared(gaussian(), k), Draws(X_O[0]), repetitions=200)
        for curve in result.curves:
            seen = self.seen(make, float(curve.mde), curve.error.name, 120, k)
            assert 0.7 <= seen <= 0.9

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["exchange", "local", "region", "network"])
    def test_classifiers(self, gaussian, kind):
        k, n = (4, 600) if kind == "region" else (1, 300)

        def make(calibration, seed):
            if kind == "region":
                return region(calibration, TINY, Nearest((0.3,)), Exchange(99), seed=seed)
            if kind == "network":
                return lc2st(calibration, MLP((16,), epochs=10), Exchange(39), seed=seed)
            null = Exchange(99) if kind == "exchange" else LocalExchange(99, 0.3)
            return lc2st(calibration, TINY, null, seed=seed)

        test = make(gaussian().calibration(n, k), 0)
        result = power(test, gaussian().draws(X_O[0], n=100), repetitions=100)
        for curve in result.curves:
            seen = self.seen(make, float(curve.mde), curve.error.name, 150, k, n)
            assert 0.7 <= seen <= 0.9


def test_the_curve_is_found_again():
    """Rejections drawn from a curve of known effect: within three standard errors, 200 times."""
    rng = np.random.default_rng(0)
    sizes, reach = 0.3 * 2 ** np.arange(-0.5, 0.75, 0.25), 0.8416 + 1.6449
    scale = 0.3 / reach ** (1 / 1.5)
    rates = _model(sizes, scale, 1.5, 0.05)
    found = [_fitted(sizes, rng.random((60, 5)) < rates, 0.05, 0.8) for _ in range(200)]
    effects, errors = np.array(found).T[2:]
    assert effects.mean() == pytest.approx(0.3, rel=0.02)
    assert (np.abs(effects - 0.3) < 2 * errors).mean() > 0.88
    assert errors.mean() == pytest.approx(effects.std(), rel=0.2)


def test_standard_errors_know_that_sizes_share_their_truths():
    """Repetitions that reject from a size of their own on, at all larger ones."""
    rng = np.random.default_rng(0)
    sizes = 0.3 * 2 ** np.arange(-0.5, 0.75, 0.25)
    rates = _model(sizes, 0.3 / 2.4865 ** (1 / 1.5), 1.5, 0.05)
    found = [_fitted(sizes, rng.random((60, 1)) < rates, 0.05, 0.8) for _ in range(200)]
    effects, errors = np.array(found).T[2:]
    assert errors.mean() == pytest.approx(effects.std(), rel=0.25)


def test_more_pairs_see_smaller_errors(gaussian):
    few, many = (
        power(prepared(gaussian(), n=n), Draws(X_O[0]), repetitions=30)["shift"].mde
        for n in (150, 1200)
    )
    # The reach grows with the root of the number of pairs: a factor of 2.8.
    assert 1.8 < few / many < 4.2


def test_one_observation_is_a_row_of_many(gaussian):
    test = prepared(gaussian())
    many, one = power(test, Draws(X_O), repetitions=20), power(test, Draws(X_O[1]), repetitions=20)
    assert many["shift"].mde.shape == (3,)
    assert one["shift"].mde.shape == ()
    assert one["shift"].rates.shape == one["shift"].sizes.shape
    assert one.x.shape == (2,)
    # The sizes that were looked at may differ, the rates at the same sizes may not.
    rates = dict(zip(many["shift"].sizes, many["shift"].rates[1], strict=True))
    alone = zip(one["shift"].sizes, one["shift"].rates, strict=True)
    shared = [(rate, rates[size]) for size, rate in alone if size in rates]
    assert len(shared) >= 3
    assert all(a == b for a, b in shared)


def test_the_same_seed_gives_the_same_result_and_no_generator_moves(gaussian):
    state = torch.get_rng_state()
    test = prepared(gaussian(), 6)
    first, again = (power(test, Draws(X_O), Shift(), repetitions=10, seed=4) for _ in range(2))
    other = power(test, Draws(X_O), Shift(), repetitions=10, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(first["shift"].mde, again["shift"].mde)
    assert not np.array_equal(first["shift"].mde, other["shift"].mde)


@pytest.mark.parametrize("k", [None, 6])
def test_row_order_and_units_do_not_matter(gaussian, k):
    test = prepared(gaussian(), k)
    first = power(test, Draws(X_O), repetitions=10)
    calibration = test.calibration.subset(torch.randperm(300, generator=stream(0)))
    if k is not None:
        # Powers of two, which do not round.
        unit = torch.tensor([8.0, 2.0**-7])
        theta, theta_q = calibration.theta * unit, calibration.theta_q * unit
        calibration = Calibration(theta, calibration.x, theta_q)
    again = power(test.refit_on(calibration), Draws(X_O), repetitions=10)
    for curve in first.curves:
        np.testing.assert_allclose(again[curve.error.name].mde, curve.mde, rtol=0.02)


def test_the_labels_are_not_read(gaussian):
    """However wrong q is, latents are never looked at."""
    right, wrong = (prepared(gaussian(width=width)) for width in (1.0, 3.0))
    first, second = (power(test, Draws(X_O), repetitions=10) for test in (right, wrong))
    np.testing.assert_array_equal(first["shift"].mde, second["shift"].mde)


@pytest.mark.parametrize(("p", "expected"), [(0.01, 0.01), (1.0, np.inf)])
def test_always_and_never(gaussian, p, expected):
    result = power(
        Coin(gaussian().calibration(30), p), gaussian().draws(X_O), Shift(), repetitions=8
    )
    np.testing.assert_array_equal(result["shift"].mde, expected)
    assert np.isnan(result["shift"].mde_error).all()
    words = "less than a shift of 0.01 sd" if p < 0.05 else "not even a shift of 5 sd"
    assert words in result.sentence


WHOLE, POOLED, CLOSED = "whole test", "pooled nulls", "closed form"
KINDS = {
    **{"latent network": POOLED, "network": POOLED, "local network": POOLED, "local": WHOLE},
    **{"ranks": WHOLE, "embedded": CLOSED},
}


SLOW = ("latent network", "local network", "ranks")


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow) if k in SLOW else k for k in KINDS]
)
def test_any_test(gaussian, kind):
    """Tests that are run whole, or with nulls of their own, at two observations."""
    q = gaussian()
    tiny = MLP((16,), epochs=15)
    if kind == "latent network":
        test, draws = lc2st(q.latents(200), tiny, KnownBase(19)), Draws(X_O[:2], n=50)
    elif kind == "network":
        test, draws = lc2st(q.calibration(200), tiny, Exchange(19)), q.draws(X_O[:2], n=50)
    elif kind == "local network":
        test = lc2st(q.calibration(100), tiny, LocalExchange(19, 0.5))
        draws = q.draws(X_O[:2], n=50)
    elif kind == "local":
        test = lc2st(q.calibration(150), TINY, LocalExchange(19, 0.5))
        draws = q.draws(X_O[:2], n=50)
    elif kind == "ranks":
        test, draws = prepared(q, 6, coordinates=NormalScores(), n=150), Draws(X_O[:2])
    else:
        calibration = q.calibration(200, k=6)
        images = calibration.x[:, :, None].expand(-1, -1, 3)
        embedded = Calibration(
            calibration.theta, images, calibration.theta_q, embed=lambda x: x.mean(2)
        )
        test = moments(embedded, Nearest((0.3,)), Exchange(19), BANKS)
        draws = Draws(X_O[:2, :, None].expand(-1, -1, 3))
    result = power(test, draws, Shift(), repetitions=8)
    assert result.settings["planted"] == KINDS[kind]
    assert (result["shift"].mde > 0.05).all()
    assert np.isfinite(result["shift"].mde).all()
    assert result["shift"].mde.shape == (2,)
    assert result.x.shape == tuple(draws.x.shape)


def test_what_it_says(gaussian):
    result = power(prepared(gaussian()), Draws(X_O[0]), (Shift(0), Narrow()), repetitions=20)
    shift, narrow = (float(curve.mde) for curve in result.curves)
    assert result.sentence == (
        f"The test detects a shift of {shift:.2g} sd in coordinate 0, a width "
        f"{100 * narrow / (1 + narrow):.2g} % too small, with probability 0.8 at level 0.05."
    )
    (row,) = result.table
    assert list(row) == ["shift 0", "± shift 0", "too narrow", "± too narrow"]
    assert row["shift 0"] == shift
    said = " ".join(repr(result).split())
    assert said.endswith(f"{result.hypothesis}. {result.sentence}")
    assert "<table>" in result._repr_html_()
    assert {"test": "local moments", "nulls": 39, "planted": "closed form"}.items() <= (
        result.settings.items()
    )
    curve = result["shift 0"]
    assert float(curve.fitted(curve.mde)[0]) == pytest.approx(0.8)
    assert float(curve.fitted(np.array([1e-9]))[0]) == pytest.approx(0.05)
    with pytest.raises(KeyError, match="expected one of"):
        result["skew"]
    with pytest.raises(ValueError, match="read-only"):
        curve.rates[0] = 1


def test_what_it_says_of_many(gaussian):
    result = power(prepared(gaussian()), Draws(X_O), Shift(), repetitions=20)
    _, half, most = np.sort(result["shift"].mde)
    assert result.sentence == (
        f"At half of the 3 observations the test detects a shift of {half:.2g} sd, with "
        f"probability 0.8 at level 0.05; at all of them, a shift of {most:.2g} sd."
    )
    assert len(result.table) == 3


def test_it_can_be_saved(gaussian, tmp_path):
    result = power(prepared(gaussian()), Draws(X_O), repetitions=10)
    assay.save(result, tmp_path / "power.npz")
    again = assay.load(tmp_path / "power.npz")
    assert repr(again) == repr(result)
    np.testing.assert_array_equal(again["too wide"].rates, result["too wide"].rates)
    assert again["shift"].error == Shift()


def test_bad_input(gaussian):
    test, there = prepared(gaussian()), Draws(X_O)
    with pytest.raises(TypeError, match="test: expected a local test such as moments"):
        power(gaussian().latents(30), there)
    with pytest.raises(TypeError, match="x_o: expected an array of real numbers"):
        power(test, "x_o")
    with pytest.raises(TypeError, match="errors: expected errors such as Shift"):
        power(test, there, "shift")
    with pytest.raises(ValueError, match="target: expected a probability above alpha"):
        power(test, there, target=0.01)
    with pytest.raises(ValueError, match=r"alpha: expected at least 0.025 for 39 nulls"):
        power(test, there, alpha=0.001)
    with pytest.raises(ValueError, match="repetitions: expected at least 8; got 2"):
        power(test, there, repetitions=2)
    with pytest.raises(ValueError, match="x_o: expected shape"):
        power(test, Draws(torch.zeros(5)))
    with pytest.raises(ValueError, match="draws: expected Draws"):
        power(lc2st(gaussian().calibration(60), TINY, Exchange(19)), Draws(X_O))


def test_a_bare_observation_is_enough_where_no_draws_are_needed(gaussian):
    test = prepared(gaussian())
    bare, given = (power(test, x, Shift(), repetitions=8) for x in (X_O, Draws(X_O)))
    np.testing.assert_array_equal(bare["shift"].mde, given["shift"].mde)


def test_nulls_are_pooled_over_repetitions_at_each_observation(gaussian):
    """Against a count by hand, for statistics and nulls (n, o, 1 + h)."""
    test = lc2st(gaussian().calibration(60), MLP((4,), epochs=1), Exchange(9))
    engine = replay_of(test, gaussian().draws(X_O, n=20), 0)
    assert isinstance(engine, PooledRerun)
    assert engine.nulls == 9
    runs = np.random.default_rng(0).normal(size=(7, 3, 5))
    found = engine.pvalues(runs)
    for i in range(7):
        for j in range(3):
            larger = (runs[:, j, 1:] >= runs[i, j, 0]).sum()
            assert found[i, j] == (1 + larger) / (1 + 7 * 4)
    assert engine.run(Shift(0), [0.1, 0.2], 0).shape == (2, 3, 5)


def test_a_whole_test_is_made_again_with_its_own_seed_in_each_repetition(gaussian):
    test = lc2st(gaussian().calibration(80), TINY, LocalExchange(9, 0.5))
    draws = gaussian().draws(X_O, n=20)
    engine = replay_of(test, draws, 0)
    assert isinstance(engine, Rerun)
    assert not isinstance(engine, PooledRerun)
    first, second = (engine._results(Shift(0), [0.3], i)[0] for i in range(2))
    assert first.settings["seed"] != second.settings["seed"]
    np.testing.assert_array_equal(engine.run(Shift(0), [0.3], 0)[0, :, 0], first.pvalue)


@pytest.mark.parametrize("kind", ["moments", "lc2st", "region"])
def test_a_test_made_again_is_the_same(gaussian, kind):
    calibration, draws = gaussian().calibration(100, k=5), gaussian().draws(X_O, n=50)
    makers = {"moments": moments, "lc2st": lc2st, "region": region}
    settings = {} if kind == "moments" else {"classifier": TINY}
    test = makers[kind](calibration, null=Exchange(19), seed=3, **settings)
    whole = test.calibration
    assert torch.equal(whole.theta, calibration.sorted().theta)
    assert torch.equal(whole.theta_q, calibration.sorted().theta_q)
    np.testing.assert_array_equal(test.refit_on(whole)(draws).null, test(draws).null)
