"""Is x_o like the simulations? Exactness by turns and by repetition, power, words, bad input."""

import math
import re

import numpy as np
import pytest
import torch

from assay.answers.typical import OUTSIDE, Typical, rank, standardise, strangeness, typical
from assay.results import holm

NONE = np.zeros(9, bool)
# Laws of n observations with d features.
LAWS = {
    "normal": lambda r, n: r.normal(size=(n, 3)),
    "one feature": lambda r, n: r.normal(size=(n, 1)),
    "heavy tails": lambda r, n: r.standard_cauchy((n, 3)),
    "ties": lambda r, n: r.poisson(1.0, (n, 3)).astype(float),
    "a constant and a coin": lambda r, n: np.stack(
        [np.full(n, 7.0), r.integers(0, 2, n), r.normal(size=n)], 1
    ),
    "all constant": lambda r, n: np.ones((n, 2)),
    "the same twice": lambda r, n: np.repeat(r.normal(size=(n, 1)), 2, 1),
    "a curve": lambda r, n: (lambda u: np.stack([u, np.sin(2 * u)], 1))(r.normal(size=n)),
    "small beside its offset": lambda r, n: 1e6 + 1e-3 * r.normal(size=(n, 2)),
    "large": lambda r, n: 1e30 * r.normal(size=(n, 2)),
    "more features than simulations": lambda r, n: r.normal(size=(n, 60)),
}


@pytest.mark.parametrize("law", LAWS)
def test_exact_by_turns(law):
    """Each of B + 1 is ranked among the others: of their p-values, k are at most k / (B + 1).

    Since x_o is exchangeable with the B others, this is all that an exact p-value needs.
    """
    x = LAWS[law](np.random.default_rng(0), 100)
    pairs = np.stack(np.triu_indices(x.shape[1], 1), 1)[:60]
    scores, pvalues = strangeness(standardise(x, 50), 50, pairs), []
    for i in range(50):
        last = np.append(np.delete(np.arange(50), i), i)
        ((p, _, _),) = rank({kind: part[last] for kind, part in scores.items()}, 49)
        pvalues.append(p)
    assert (np.sort(pvalues) >= np.arange(1, 51) / 50 - 1e-12).all()
    # Where no two observations are alike, there are about as many as there may be.
    assert np.mean(np.array(pvalues) <= 0.2) > 0.1 or len(np.unique(x, axis=0)) < 100


@pytest.mark.parametrize("n", [400, 1000])
def test_an_observation_that_is_simulated_often_is_not_strange(n):
    """Rows that are equal have equal scores to the last bit, wherever they are."""
    chance, atoms = np.random.default_rng(0), np.random.default_rng(9).normal(size=(5, 8))
    for seed in range(20):
        codes = np.hstack(
            [np.eye(3)[chance.integers(3, size=n)], np.eye(2)[chance.integers(2, size=n)]]
        )
        for x in (atoms[chance.integers(5, size=n)], codes):
            found = typical(x[:-1], x[-1], seed=seed)
            assert found.pvalue[0] > 0.05
            assert not found.outside.any()


@pytest.mark.parametrize("law", ["normal", "heavy tails", "ties"])
def test_exact_in_repetitions(law):
    """50 small repetitions of each law, with eight observations each.

    P-values of one repetition share its simulations: their shares vary as those of
    50 / (1 / 8 + 1 / 37) = 329 that are independent. Limits are three errors of so many.
    """
    chance, pvalues = np.random.default_rng(1), []
    for seed in range(50):
        x = LAWS[law](chance, 68)
        pvalues.append(typical(x[:60], x[60:], seed=seed).pvalue)
    pvalues = np.concatenate(pvalues)
    for level in (0.05, 0.1, 0.25, 0.5, 0.75):
        error = math.sqrt(level * (1 - level) / 329)
        share = (pvalues <= level + 1e-9).mean()
        assert share <= level + 3 * error
        # P-values are multiples of 1 / 37, and larger where scores have ties.
        assert share >= math.floor(37 * level) / 37 - 3 * error or law == "ties"


def contradiction(r, n):
    """Feature 0 is the mean of the others, but for some noise."""
    others = r.normal(size=(n, 4))
    return np.concatenate([others.mean(1, keepdims=True) + 0.1 * r.normal(size=(n, 1)), others], 1)


def ring(r, n):
    angle = 2 * np.pi * r.uniform(size=n)
    return np.stack([np.cos(angle), np.sin(angle)], 1) + 0.1 * r.normal(size=(n, 2))


def moved(x, which, by):
    x = x.copy()
    x[:, which] += by
    return x


def plain(r, n, d=10):
    return r.normal(size=(n, d))


# The law, what is done to 40 observations, and how the sentence goes in most of them.
FAR = {
    "one feature far off": (plain, lambda x: moved(x, 3, 7.0), r"x\[3\] "),
    "a contradiction": (contradiction, lambda x: moved(x, 0, 1.0), r"x\[\d\] is .* sd from"),
    "the empty middle of a ring": (
        ring,
        lambda x: 0.1 * x,
        r"x\[0\] and x\[1\] lie together where no simulation does",
    ),
    "between two lumps": (
        lambda r, n: 5.0 * r.choice([-1, 1], (n, 1)) + r.normal(size=(n, 1)),
        lambda x: 0.1 * x,
        r"x\[0\] = -?0\.\d+ lies where no simulation does",
    ),
    "far in all features": (plain, lambda x: 2.1 * np.sign(x), "all features together lie far"),
    "too wide for its place": (
        lambda r, n: (lambda u: np.stack([u, np.exp(1.5 * u) * r.normal(size=n)], 1))(
            r.uniform(-1, 1, n)
        ),
        lambda x: np.stack([np.full(len(x), -0.8), np.full(len(x), 4.0)], 1),
        r"x\[1\] is .* times as far as usual|x\[0\] and x\[1\] lie together",
    ),
}


@pytest.mark.parametrize("case", FAR)
def test_rejects(case):
    """At 0.01, among 600 simulations, in more than 0.8 of 40; and hardly any that is not moved."""
    law, change, words = FAR[case]
    chance = np.random.default_rng(2)
    x, own = law(chance, 1000), law(chance, 40)
    found = typical(x, np.concatenate([own, change(own)]))
    assert (found.pvalue[40:] <= OUTSIDE).mean() > 0.8
    assert (found.pvalue[:40] <= OUTSIDE).mean() <= 0.1
    named = [re.match(words, sentence) is not None for sentence in found.sentences[40:]]
    assert np.mean(named) > 0.8, found.sentences[40:]


def test_size_of_a_residual():
    """The others predict x[0] but for a residual with sd 0.1; it is 20 of these off.

    So they are from it: the mean of four determines each of them, but for a residual of 0.4.
    """
    x = contradiction(np.random.default_rng(0), 2000)
    x_o = np.array([2.0, 0.0, 0.0, 0.0, 0.0])
    (sentence,) = typical(x, x_o).sentences
    found = re.fullmatch(r"x\[\d\] is (\d+) sd from what the other features predict", sentence)
    assert float(found[1]) == pytest.approx(20, rel=0.15)


class TestFeatures:
    def test_images(self):
        """Of about one brightness: by an embedding that says mean and spread, and as they are."""
        chance = np.random.default_rng(0)
        brightness, noise = chance.normal(1, 0.2, (804, 1, 1)), chance.normal(0, 0.1, (804, 8, 8))
        x, x_o = np.split(brightness + noise, [800])
        x_o[1] += 3.0
        x_o[2] *= np.linspace(-1, 3, 64).reshape(8, 8)
        x_o[3, 2, 5] = 9.0
        embed = lambda x: torch.stack([x.mean((1, 2)), x.std((1, 2))], 1)  # noqa: E731
        found, plainly = typical(x, x_o, embed), typical(x, x_o)
        assert found.outside.tolist() == [False, True, True, True]
        assert found.sentences[1].startswith("embed(x)[0] ")
        assert found.sentences[2].startswith("embed(x)[1] ")
        assert plainly.outside.tolist() == [False, True, True, True]
        assert plainly.sentences[3].startswith("x[2, 5] ")

    def test_numbers_that_an_embedding_discards(self):
        """Vectors are looked at beside their embedding; what is padded with NaN is not."""
        x, x_o = plain(np.random.default_rng(0), 600, 5), np.zeros((2, 5))
        x_o[1, 4] = 8.0
        found = typical(x, x_o, lambda x: x[:, :2])
        assert found.outside.tolist() == [False, True]
        assert found.sentences[1].startswith("x[4] ")
        x[::2, 4] = x_o[1, 4] = np.nan
        assert not typical(x, x_o, lambda x: x[:, :2]).outside.any()

    def test_many_features_by_components(self):
        chance = np.random.default_rng(0)
        mixing = chance.normal(size=(3, 400))
        every = chance.normal(size=(503, 3)) @ mixing + chance.normal(size=(503, 400))
        x, x_o = every[:500], every[500:] + 12 * np.outer([0, 0, 1], mixing[0])
        found = typical(x, x_o)
        assert found.outside.tolist() == [False, False, True]
        assert not found.sentences[2].startswith("x[")


class TestMany:
    def test_are_one_at_a_time(self):
        chance = np.random.default_rng(0)
        x, x_o = plain(chance, 300, 3), 1.5 * plain(chance, 6, 3)
        many = typical(x, x_o)
        assert len(many) == 6
        for i, one in enumerate(x_o):
            alone = typical(x, one)
            assert alone.pvalue.shape == (1,)
            assert (alone.pvalue[0], *alone.sentences) == (many.pvalue[i], many.sentences[i])

    def test_are_corrected_by_holm(self):
        p = np.array([0.004, 0.9, 0.003, 0.02])
        found = Typical(p, ("strange",) * 4, 999, NONE[:4])
        np.testing.assert_allclose(found.adjusted, holm(p))
        np.testing.assert_allclose(found.adjusted, [0.012, 0.9, 0.012, 0.04])
        assert not found.outside.any()
        again = Typical(p / 2, ("strange",) * 4, 999, NONE[:4])
        assert again.outside.tolist() == [True, False, True, False]

    def test_the_smallest_possible_p_value_is_enough(self):
        """Where it is at most 0.05: of 3 observations among 100, and not of 6."""
        for o, outside in ((1, True), (3, True), (5, True), (6, False)):
            p = np.where(np.arange(o) < 1, 1 / 101, 0.5)
            found = Typical(p, ("strange",) * o, 100, NONE[:o])
            assert found.outside.tolist() == [outside] + [False] * (o - 1)
            assert not Typical(2 * p, ("strange",) * o, 100, NONE[:o]).outside.any()

    def test_far_stranger_than_all(self):
        """With 60 observations among 120, nothing could be outside by its corrected p-value."""
        chance = np.random.default_rng(0)
        x, x_o = plain(chance, 200, 3), plain(chance, 60, 3)
        x_o[3, 1], x_o[5] = 1e6, -200.0
        found = typical(x, x_o)
        assert (found.adjusted > OUTSIDE).all()
        assert np.flatnonzero(found.outside).tolist() == [3, 5]
        # No p-value is quoted, for the corrected one is not small.
        words = f"far stranger than all 120 that it was compared with): {found.sentences[3]}"
        assert found.explanation(3) == f"({words}"
        assert repr(found).split("\n")[3] == f"outside ({words}"

    @pytest.mark.parametrize("law", ["normal", "standard_cauchy", "exponential"])
    def test_what_the_simulator_makes_is_rarely_outside(self, law):
        """Where no p-value can be small enough, as where all can."""
        chance = np.random.default_rng(0)
        for n, o, most in ((200, 20, 1), (1000, 3, 2)):
            each = [getattr(chance, law)(size=(n + o, 4)) for _ in range(40)]
            found = [typical(x[:n], x[n:], seed=i).outside.any() for i, x in enumerate(each)]
            assert sum(found) <= most

    def test_words(self):
        found = Typical(np.array([0.002, 0.4]), ("x[0] = 9.0 lies far", "nothing"), 999, NONE[:2])
        lines = [
            "outside (p = 0.004, corrected for 2 observations): x[0] = 9.0 lies far",
            "p = 0.400, like the simulations",
        ]
        assert repr(found).split("\n") == lines
        assert (
            found.explanation(0)
            == "(p = 0.004, corrected for 2 observations): x[0] = 9.0 lies far"
        )
        alone = Typical(np.array([0.002]), ("x[0] = 9.0 lies far",), 999, NONE[:1])
        assert alone.explanation(0) == "(p = 0.002): x[0] = 9.0 lies far"


def test_what_changes_p():
    """Another split of the simulations does; units do not."""
    chance = np.random.default_rng(0)
    x, x_o, unit = plain(chance, 300, 3), plain(chance, 20, 3), np.array([1e-6, 1.0, 1e5])
    first, again, other = (typical(x, x_o, seed=seed).pvalue for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    scaled = typical(unit * x + 3 * unit, unit * x_o + 3 * unit).pvalue
    np.testing.assert_allclose(scaled, first)


@pytest.mark.parametrize(("n", "ranked"), [(100, 60), (4000, 3000), (11_500, 10_000)])
def test_the_number_that_is_ranked(n, ranked):
    """Three fifths of the simulations; of many, all but 1000, and at most 10 000."""
    assert typical(plain(np.random.default_rng(0), n, 1), [0.0]).ranked == ranked


X = np.random.default_rng(0).normal(size=(60, 3))
HOLE = np.array([0.0, np.nan, 0.0])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: typical(X, [0.0, 0.0]), ValueError, r"x_o: expected shape \(3,\)"),
        (lambda: typical(X[:19], X[0]), ValueError, "at least 20 simulations; got .* and 19"),
        (lambda: typical(X[:, 0], 0.0), ValueError, r"x: expected .* \(n, ...\); got \(60,\)"),
        (lambda: typical(X, HOLE), ValueError, "x_o: expected finite"),
        (lambda: typical(np.vstack([X, HOLE]), X[0]), ValueError, "x: expected finite"),
        (lambda: typical(X, HOLE, lambda x: x), ValueError, r"embed\(x\): expected finite"),
        (lambda: typical(X, "far"), TypeError, "x_o: expected an array"),
        (lambda: typical(X, X[0], embed=3), TypeError, "embed: expected a function"),
        (lambda: typical(X, X[0], lambda x: x.sum()), ValueError, "embed: expected features"),
        (lambda: typical(X, X[0], seed="a"), TypeError, "seed: expected an int"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
