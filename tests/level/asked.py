"""What is asked of a right q: p-values and bands, each with how often it may speak against q.

A new p-value or band is one line of ASKED: a function of a design and a seed that returns, by
name, whether q is rejected at each of ALPHAS.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from sklearn.model_selection import KFold

import assay
from assay import (
    MLP,
    Exchange,
    FreePermutation,
    KnownBase,
    LocalExchange,
    Nearest,
    Ridge,
    Smooth,
)
from assay._core import stream
from assay.classifiers import LDA, QDA
from assay.classifiers.base import Classifier
from assay.classifiers.features import Joint, NormalScores
from assay.interpret.predictive import among
from assay.interpret.trust import REJECTED, judged_by
from assay.samples.neighbourhoods import support
from tests.conftest import FunctionScores

from .designs import DESIGNS, log_density

ALPHAS = np.array([0.05, 0.2])
NEAR = Nearest((0.3, 0.6))
RIDGE, TINY = Ridge((Joint(16),), penalties=0.1), MLP((8,), epochs=2, batch=32)
LEVELS = (0.2, 0.5, 0.8)


def low(pvalues):
    """Whether any of some p-values is low, at each level."""
    return np.min(pvalues) <= ALPHAS + 1e-9


def left(value, lower, upper):
    """Whether any of some numbers lies outside its band."""
    return bool(((value < lower - 1e-9) | (value > upper + 1e-9)).any())


class Ordered(Classifier):
    """A classifier that minds the order of rows: how often each place of a set is the truth."""

    def fit(self, copies, seed):
        tables = [copies.rows(h) for h in range(len(copies))]
        places = torch.stack([t.labels.float().reshape(-1, copies.odds + 1) for t in tables])
        value = places.mean(1).std(1)

        def scores(theta, x):
            shape = len(theta), len(value), theta.shape[1]
            return (0.5 + 0.4 * value[:, None]).expand(shape).clamp(0, 1)

        return FunctionScores(scores)


def pairs(design, seed):
    return design.pairs(seed)


def latents(design, seed):
    return design.latents(seed)


def local(given, make, design, seed):
    """The p-value at the first of two observations, and whether any of them is rejected."""
    result = make(given(design, seed)).decided(design.observations(2))
    return {"p": low(result.pvalue[0]), "any": any_rejected(result)}


def any_rejected(result):
    """Whether the trust map says so of any observation, at each level."""
    sure = np.ones(len(result.pvalue), bool)
    maps = (judged_by(result, sure, {}, 0.5, alpha) for alpha in ALPHAS)
    return np.array([REJECTED in each.verdicts for each in maps])


def score(design, seed):
    """The same, and whether AUC and accuracy lie outside their null bands of 95 %."""
    result = assay.score(design.pairs(seed), NEAR, 199)(design.observations(2))
    apart = {"AUC": result.auc[0], "accuracy": result.accuracy[0]}
    told = {name: np.array([band.sign != 0]) for name, band in apart.items()}
    return {"p": low(result.pvalue[0]), "any": any_rejected(result), **told}


def classified(given, classifier, null, design, seed):
    """The p-value of L-C2ST, and whether its PP-curve leaves its simultaneous band."""
    draws = assay.Draws(design.x_o, n=30) if given is latents else design.draws(seed)
    result = assay.lc2st(given(design, seed), classifier, null)(draws)
    curves = [assay.pp_curve(result, alpha) for alpha in ALPHAS]
    out = [left(c.ecdf, c.envelope_lower, c.envelope_upper) for c in curves]
    small = [c.pvalue <= alpha + 1e-9 for c, alpha in zip(curves, ALPHAS, strict=True)]
    return {"p": low(result.pvalue), "PP": np.array(small), "PP band": np.array(out)}


def region(design, seed):
    return {"p": low(assay.region(design.pairs(seed), LDA(), NEAR, 19)(design.draws(seed)).pvalue)}


def levels(make, design, seed):
    """P-values of local levels, and whether any of their curves leaves its band."""
    result = make(design.pairs(seed))(design.x_o)
    curves = [result.bands(alpha / len(result.names)) for alpha in ALPHAS]
    out = [left(c.ecdf, c.envelope_lower, c.envelope_upper) for c in curves]
    columns = low(result.pvalues * len(result.names))
    return {"p": low(result.pvalue), "columns": columns, "bands": np.array(out)}


def lpit(given, design, seed):
    result = assay.lpit(given(design, seed), NEAR, 19, LEVELS)(design.x_o)
    parts = {"curves": result.pvalue_curves, "independence": result.pvalue_independence}
    return {"p": low(result.pvalue), **{name: low(p) for name, p in parts.items()}}


def sbc(design, seed):
    result = assay.sbc(design.pairs(seed), null=199)
    kinds = {"KS": result, "chi-square": result.chi_square, "envelope": result.envelope}
    curves = [result.ecdf(alpha) for alpha in ALPHAS]
    return {
        **{name: low(kind.adjusted) for name, kind in kinds.items()},
        "ECDF band": np.array([left(c.ecdf[0], c.lower, c.upper) for c in curves]),
    }


def histogram(design, seed):
    result = assay.sbc(design.pairs(seed), null=19)
    bars = [result.histogram(alpha) for alpha in ALPHAS]
    return {"bars": np.array([left(b.counts[0], b.lower, b.upper) for b in bars])}


def covered(make, design, seed):
    result = make(design.pairs(seed))
    curves = [result.curve(alpha) for alpha in ALPHAS]
    ends = [result.intervals(result.coverage[0], alpha) for alpha in ALPHAS]
    return {
        "p": low(result.adjusted),
        "area": low(result.area_pvalue[0]),
        "band": np.array([left(c.coverage[0], c.null_lower, c.null_upper) for c in curves]),
        # One interval of a level that so few draws tell apart.
        "interval": np.array([left(result.levels[:1], *(end[:1] for end in e)) for e in ends]),
    }


def divergence(design, seed):
    log_score, ranks = assay.divergence(design.pairs(seed), LDA(), 19).pvalue
    return {"log-score": low(log_score), "ranks": low(ranks)}


def c2st(classifier, share, design, seed):
    """Two samples of the same law, the first a share of the second or more."""
    p, q = (design.pairs(i).theta for i in (seed, 10**6 + seed))
    size = int(share * len(p))
    p, q = (p[:size], q) if share < 1 else (p, q[: int(len(q) / share)])
    result = assay.c2st(p, q, classifier, 19, KFold(2))
    return {name: low(result[name].pvalue) for name in result.labels}


def predictive(design, seed):
    """The truth is a draw of the right posterior at the x that it made."""
    generator = stream(seed, "predictive")
    theta = torch.randn(1, 1, design.d, generator=generator)
    z = torch.randn(1, 20, design.m, generator=generator)
    x = design.draw(z, theta, generator)
    return {"p": low(among(x[:, 1:], theta[0], x[:, 0], None).pvalue)}


def posterior_sbc(design, seed):
    """N(0, 1) seen through N(0, 1): q given r observations is N(sum / (r + 1), 1 / (r + 1))."""

    def sample(xs, n):
        width = 1 / (1 + len(xs))
        return width * xs.sum(0) + width**0.5 * torch.randn(n, design.m)

    def simulate(theta):
        return theta + torch.randn(theta.shape)

    x_o = torch.full((design.m,), 0.5)
    result = assay.posterior_sbc(sample, simulate, x_o, 20, 9, null=19, seed=seed)
    return {"p": low(result.pvalue[0])}


def named(given, design, seed):
    """Whether any error near x_o is named, whether any is said to vary, and the tail."""
    found = assay.moments(given(design, seed), NEAR, 19)(design.x_o)
    told = [assay.effects(found, alpha=alpha) for alpha in ALPHAS]
    kinds = found.effects.bias, found.effects.dispersion
    return {
        "any": np.array([bool(each.wrong) for each in told]),
        "varies": low([kind.varies.min() for kind in kinds]),
        "tail": low(found.effects.tail.pvalue[-1]),
    }


def weighed(design, seed):
    """Whether any number of the density ratio is called wrong; the level is 0.05."""
    result = assay.lc2st(design.pairs(seed), RIDGE, 39)(design.draws(seed, 100))
    return {"any": np.array([bool(assay.effects(result).wrong)])}


def inside(design, seed):
    """Whether a simulated observation is said to lie outside the others."""
    x = design.pairs(seed).x
    return {"p": low(support(x[1:], x[:1]).pvalue)}


@dataclass(frozen=True)
class Asked:
    """What is asked.

    Args:
        call: A function of a design and a seed, with rejections at ALPHAS by name.
        repetitions: How many of them are made every day, over all designs in turn.
        equal: Names that reject as often as they say where nothing is tied.
        without: Designs for which it is not made.
    """

    call: Callable
    repetitions: int
    equal: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


NORMAL_ONLY = tuple(name for name in DESIGNS if name != "normal")
# Half of twelve pairs are too few.
HALVED = ("twelve pairs",)


def scored(c):
    return assay.score(c, NEAR, 39)


def near(null, **how):
    return lambda c: assay.moments(c, NEAR, null, **how)


ASKED = {
    "score": Asked(score, 84, ("p",)),
    "score of latents": Asked(partial(local, latents, scored), 42, ("p",)),
    "moments": Asked(partial(local, pairs, near(39)), 210, ("p",)),
    "moments, smooth": Asked(
        partial(local, pairs, lambda c: assay.moments(c, Smooth((0.5,)), 39)), 140, ("p",)
    ),
    "moments, normal scores": Asked(
        partial(local, pairs, near(39, coordinates=NormalScores())), 140, ("p",)
    ),
    "moments of latents": Asked(partial(local, latents, near(39)), 140, ("p",)),
    "moments of a known base": Asked(partial(local, latents, near(KnownBase(39))), 140, ("p",)),
    "Ridge": Asked(partial(classified, pairs, RIDGE, Exchange(19)), 140, ("p",)),
    "Ridge of latents": Asked(partial(classified, latents, RIDGE, Exchange(19)), 140, ("p",)),
    "Ridge, local": Asked(partial(classified, pairs, RIDGE, LocalExchange(19, 0.5)), 140, ("p",)),
    "LDA": Asked(partial(classified, pairs, LDA(), Exchange(19)), 140, ("p",)),
    "QDA": Asked(partial(classified, pairs, QDA(), Exchange(19)), 140, ("p",)),
    "LDA of latents": Asked(partial(classified, latents, LDA(), KnownBase(19)), 140, ("p",)),
    "network": Asked(partial(classified, pairs, TINY, Exchange(19)), 140, ("p",)),
    "network of latents": Asked(partial(classified, latents, TINY, KnownBase(19)), 140, ("p",)),
    "network, local": Asked(partial(classified, pairs, TINY, LocalExchange(19, 0.5)), 56, ("p",)),
    "free permutation": Asked(partial(classified, pairs, TINY, FreePermutation(19)), 84),
    "a classifier that minds the order": Asked(
        partial(classified, pairs, Ordered(), Exchange(19)), 140
    ),
    "region": Asked(region, 280, ("p",), HALVED),
    "lhpd": Asked(
        partial(levels, lambda c: assay.lhpd(c, log_density, NEAR, 39, LEVELS)), 140, ("p",)
    ),
    "lpit": Asked(partial(lpit, pairs), 140, ("p",)),
    "lpit of latents": Asked(partial(lpit, latents), 140, ("p",)),
    "lpit, smooth": Asked(
        partial(levels, lambda c: assay.lpit(c, Smooth((0.5,)), 39, LEVELS)), 98, ("p",)
    ),
    "sbc": Asked(sbc, 980),
    "rank histogram": Asked(histogram, 140),
    "coverage of intervals": Asked(partial(covered, lambda c: assay.coverage(c, null=199)), 490),
    "coverage of regions": Asked(
        partial(covered, lambda c: assay.coverage(c, log_density, null=199)), 490
    ),
    "tarp": Asked(partial(covered, lambda c: assay.tarp(c, null=199)), 490),
    "tarp around x": Asked(
        partial(covered, lambda c: assay.tarp(c, lambda x: x[:, :1].repeat(1, c.m), null=199)), 280
    ),
    "divergence": Asked(divergence, 280, ("log-score",), HALVED),
    "c2st": Asked(partial(c2st, LDA(), 1), 140, ("mse",)),
    "c2st of few truths": Asked(partial(c2st, QDA(), 0.5), 140, ("mse",), HALVED),
    "c2st of many truths": Asked(partial(c2st, LDA(), 2), 140, ("mse",), HALVED),
    "predictive": Asked(predictive, 2800, ("p",)),
    "posterior SBC": Asked(posterior_sbc, 60, (), NORMAL_ONLY),
    "errors that are named": Asked(partial(named, pairs), 98),
    "errors that are named, latents": Asked(partial(named, latents), 56),
    "errors by the ratio": Asked(weighed, 98),
    "support": Asked(inside, 700),
}
