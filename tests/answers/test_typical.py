"""Is x_o like the simulations? Exactness by turns and by repetition, power, words, bad input."""

import math
import re

import numpy as np
import pytest
import torch

from assay.answers.typical import OUTSIDE, Typical, rank, standardise, strangeness, typical


def plain(r, n, d=10):
    return r.normal(size=(n, d))


def contradiction(r, n):
    """Feature 0 is the mean of the others, but for noise of 0.1."""
    others = r.normal(size=(n, 4))
    return np.concatenate([others.mean(1, keepdims=True) + 0.1 * plain(r, n, 1), others], 1)


def ring(r, n):
    angle = 2 * np.pi * r.uniform(size=n)
    return np.stack([np.cos(angle), np.sin(angle)], 1) + 0.1 * plain(r, n, 2)


def fan(r, n):
    u = r.uniform(-1, 1, n)
    return np.stack([u, np.exp(1.5 * u) * r.normal(size=n)], 1)


# Laws of n observations with d features.
LAWS = {
    "normal": lambda r, n: plain(r, n, 3),
    "one feature": lambda r, n: plain(r, n, 1),
    "heavy tails": lambda r, n: r.standard_cauchy((n, 3)),
    "ties": lambda r, n: r.poisson(1.0, (n, 3)).astype(float),
    "a constant and a coin": lambda r, n: np.stack([7 + 0 * r.random(n), r.integers(0, 2, n)], 1),
    "all constant": lambda r, n: np.ones((n, 2)),
    "small beside its offset": lambda r, n: 1e6 + 1e-3 * plain(r, n, 2),
    "large": lambda r, n: 1e30 * plain(r, n, 2),
    "more features than simulations": lambda r, n: plain(r, n, 60),
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
        codes = [np.eye(d)[chance.integers(d, size=n)] for d in (3, 2)]
        for x in (atoms[chance.integers(5, size=n)], np.hstack(codes)):
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
    for level in (0.05, 0.1, 0.25, 0.5, 0.75):
        error = math.sqrt(level * (1 - level) / 329)
        share = (np.concatenate(pvalues) <= level + 1e-9).mean()
        assert share <= level + 3 * error
        # P-values are multiples of 1 / 37, and larger where scores have ties.
        assert share >= math.floor(37 * level) / 37 - 3 * error or law == "ties"


# The law, what is done to 40 observations, and how the sentence goes in most of them.
FAR = {
    "one feature far off": (plain, lambda x: x + 7.0 * np.eye(10)[3], r"x\[3\] "),
    # The others predict it but for a residual of 0.1, and it predicts them but for one of 0.4.
    "a contradiction": (
        contradiction,
        lambda x: x + np.eye(5)[0],
        r"x\[\d\] is (8|9|1[0-3])\S* sd ",
    ),
    "the empty middle of a ring": (
        ring,
        lambda x: 0.1 * x,
        r"x\[0\] and x\[1\] lie together where",
    ),
    "far in all features": (plain, lambda x: 2.1 * np.sign(x), "all features together lie far"),
    "too wide for its place": (
        fan,
        lambda x: np.broadcast_to([-0.8, 4.0], x.shape),
        r"x\[1\] is .* times as far as usual|x\[0\] and x\[1\] lie together",
    ),
}


@pytest.mark.parametrize("case", FAR)
def test_rejects(case):
    """At 0.01, among 600 simulations, in more than 0.8 of 40; and hardly any that is not moved."""
    (law, change, words), chance = FAR[case], np.random.default_rng(2)
    x, own = law(chance, 1000), law(chance, 40)
    found = typical(x, np.concatenate([own, change(own)]))
    assert (found.pvalue[40:] <= OUTSIDE).mean() > 0.8
    assert (found.pvalue[:40] <= OUTSIDE).mean() <= 0.1
    named = [re.match(words, sentence) is not None for sentence in found.sentences[40:]]
    assert np.mean(named) > 0.8, found.sentences[40:]


def test_features():
    """Images of about one brightness: by an embedding with mean and spread, and as they are."""
    chance = np.random.default_rng(0)
    brightness, noise = chance.normal(1, 0.2, (804, 1, 1)), chance.normal(0, 0.1, (804, 8, 8))
    x, x_o = np.split(brightness + noise, [800])
    x_o[1] += 3.0
    x_o[2] *= np.linspace(-1, 3, 64).reshape(8, 8)
    x_o[3, 2, 5] = 9.0
    found = typical(x, x_o, lambda x: torch.stack([x.mean((1, 2)), x.std((1, 2))], 1))
    plainly = typical(x, x_o)
    assert found.outside.tolist() == plainly.outside.tolist() == [False, True, True, True]
    starts = [found.sentences[1][:11], found.sentences[2][:11], plainly.sentences[3][:7]]
    assert starts == ["embed(x)[0]", "embed(x)[1]", "x[2, 5]"]
    # Vectors are looked at beside their embedding; what is padded with NaN is not.
    x, x_o = plain(np.random.default_rng(0), 600, 5), np.zeros((2, 5))
    x_o[1, 4] = 8.0
    found = typical(x, x_o, lambda x: x[:, :2])
    assert found.outside.tolist() == [False, True]
    assert found.sentences[1].startswith("x[4] ")
    x[::2, 4] = x_o[1, 4] = np.nan
    assert not typical(x, x_o, lambda x: x[:, :2]).outside.any()
    # Of many features there are principal components.
    mixing = chance.normal(size=(3, 400))
    every = chance.normal(size=(503, 3)) @ mixing + chance.normal(size=(503, 400))
    found = typical(every[:500], every[500:] + 12 * np.outer([0, 0, 1], mixing[0]))
    assert found.outside.tolist() == [False, False, True]
    assert not found.sentences[2].startswith("x[")


def test_many_are_one_at_a_time_in_any_units():
    """Another split of the simulations changes p-values; units do not."""
    chance, unit = np.random.default_rng(0), np.array([1e-6, 1.0, 1e5])
    x, x_o = plain(chance, 300, 3), 1.5 * plain(chance, 6, 3)
    many, other = typical(x, x_o), typical(x, x_o, seed=1)
    for i, one in enumerate(x_o):
        alone = typical(x, one)
        assert (alone.pvalue, alone.sentences) == (many.pvalue[i], many.sentences[i : i + 1])
    assert (many.pvalue != other.pvalue).any()
    scaled = typical(unit * x + 3 * unit, unit * x_o + 3 * unit).pvalue
    np.testing.assert_allclose(scaled, many.pvalue)


def given(*pvalues, ranked=999):
    o = len(pvalues)
    return Typical(np.array(pvalues), ("x[0] = 9 lies far",) * o, ranked, np.zeros(o, bool))


def test_p_values_are_corrected_by_holm():
    found = given(0.004, 0.9, 0.003, 0.02)
    np.testing.assert_allclose(found.adjusted, [0.012, 0.9, 0.012, 0.04])
    assert not found.outside.any()
    assert given(0.002, 0.45, 0.0015, 0.01).outside.tolist() == [True, False, True, False]
    lines = repr(given(0.002, 0.4)).split("\n")
    assert lines == [
        "outside (p = 0.004, corrected for 2 observations): x[0] = 9 lies far",
        "p = 0.400, like the simulations",
    ]
    assert given(0.002).explanation(0) == "(p = 0.002): x[0] = 9 lies far"


@pytest.mark.parametrize(("o", "outside"), [(1, True), (5, True), (6, False)])
def test_the_smallest_possible_p_value_is_enough(o, outside):
    """Where it is at most 0.05: of 5 observations among 100, and not of 6."""
    p = np.where(np.arange(o) < 1, 1 / 101, 0.5)
    assert given(*p, ranked=100).outside.tolist() == [outside] + [False] * (o - 1)
    assert not given(*2 * p, ranked=100).outside.any()


def test_far_stranger_than_all():
    """With 60 observations among 120, nothing could be outside by its corrected p-value."""
    chance = np.random.default_rng(0)
    x, x_o = plain(chance, 200, 3), plain(chance, 60, 3)
    x_o[3, 1], x_o[5] = 1e6, -200.0
    found = typical(x, x_o)
    assert (found.adjusted > OUTSIDE).all()
    assert np.flatnonzero(found.outside).tolist() == [3, 5]
    # No p-value is quoted, for the corrected one is not small.
    words = f"(far stranger than all 120 that it was compared with): {found.sentences[3]}"
    assert found.explanation(3) == words


@pytest.mark.parametrize("law", ["normal", "standard_cauchy", "exponential"])
def test_what_the_simulator_makes_is_rarely_outside(law):
    """Where no p-value can be small enough, as where all can."""
    chance = np.random.default_rng(0)
    for n, o, most in ((200, 20, 1), (1000, 3, 2)):
        each = [getattr(chance, law)(size=(n + o, 4)) for _ in range(40)]
        found = [typical(x[:n], x[n:], seed=i).outside.any() for i, x in enumerate(each)]
        assert sum(found) <= most


X = plain(np.random.default_rng(0), 60, 3)
HOLE = np.array([0.0, np.nan, 0.0])


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ((X, [0.0, 0.0]), ValueError, r"x_o: expected shape \(3,\)"),
        ((X[:19], X[0]), ValueError, "at least 20 simulations; got .* and 19"),
        ((X[:, 0], 0.0), ValueError, r"x: expected .* \(n, ...\); got \(60,\)"),
        ((X, HOLE), ValueError, "x_o: expected finite"),
        ((np.vstack([X, HOLE]), X[0]), ValueError, "x: expected finite"),
        ((X, HOLE, lambda x: x), ValueError, r"embed\(x\): expected finite"),
        ((X, "far"), TypeError, "x_o: expected an array"),
        ((X, X[0], 3), TypeError, "embed: expected a function"),
    ],
)
def test_bad_input(given, error, words):
    with pytest.raises(error, match=words):
        typical(*given)
