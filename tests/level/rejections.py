"""What rejects a right q: every p-value and band of the library, at each of ALPHAS.

A new p-value or band is one line of REJECTIONS: a function of a design and a seed that returns, by
name, whether q is rejected at each of ALPHAS.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from sklearn.model_selection import KFold

import assay
from assay import MLP, Exchange, FreePermutation, KnownBase, LocalExchange, Nearest, Ridge
from assay._support.random import stream
from assay.answers.predictive import rank_among
from assay.classifiers.base import Classifier
from assay.classifiers.features import Joint
from assay.results import clopper_pearson, holm
from tests.conftest import FunctionScores

from .designs import log_density

ALPHAS = np.array([0.05, 0.2])
NEAR = 0.3
RIDGE, TINY = Ridge((Joint(16),), penalties=0.1), MLP((8,), epochs=2, batch=32)
LEVELS = (0.2, 0.5, 0.8)


def low(pvalues):
    """Whether any of some p-values is low, at each level."""
    return np.min(pvalues) <= ALPHAS + 1e-9


def outside(value, lower, upper):
    """Whether any of some numbers lies outside its band."""
    return bool(((value < lower - 1e-9) | (value > upper + 1e-9)).any())


def pairs(design, seed):
    return design.pairs(seed)


def latents(design, seed):
    return design.latents(seed)


class Ordered(Classifier):
    """A classifier that minds the order of rows: how often each place of a set is the truth."""

    def fit(self, copies, seed):
        labels = [copies.rows(h)[2] for h in range(len(copies))]
        places = torch.stack([each.float().reshape(-1, copies.size) for each in labels])
        value = places.mean(1).std(1)

        def scores(theta, x):
            shape = len(theta), len(value), theta.shape[1]
            return (0.5 + 0.4 * value[:, None]).expand(shape).clamp(0, 1)

        return FunctionScores(scores)


def score(samples, design, seed):
    """The p-value at the first of two observations, and whether any of them is rejected."""
    result = assay.score(samples(design, seed), NEAR, 39)(design.observations(2))
    return {"p": low(result.pvalue[0]), "any": low(result.adjusted)}


def first_copies(samples, design, seed):
    """P-values at many observations, which are not made of more copies where they are small."""
    return {"p": low(assay.score(samples(design, seed), NEAR, 19).pvalues(design.x_o))}


def classified(samples, classifier, null, design, seed):
    """The p-value of L-C2ST, and whether its PP-curve leaves its simultaneous band."""
    draws = assay.Draws(design.x_o, n=30) if samples is latents else design.draws(seed)
    result = assay.lc2st(samples(design, seed), classifier, null)(draws)
    curves = [result.pp_curve(alpha) for alpha in ALPHAS]
    beyond = [outside(c.ecdf, c.envelope_lower, c.envelope_upper) for c in curves]
    small = [c.pvalue <= alpha + 1e-9 for c, alpha in zip(curves, ALPHAS, strict=True)]
    return {"p": low(result.pvalue), "PP": np.array(small), "PP band": np.array(beyond)}


def lhpd(design, seed):
    return levels(assay.lhpd(design.pairs(seed), log_density, NEAR, 39, LEVELS)(design.x_o))


def lpit(samples, design, seed):
    result = assay.lpit(samples(design, seed), NEAR, 39, LEVELS)(design.x_o)
    parts = {"curves": result.pvalue_curves, "independence": result.pvalue_independence}
    return levels(result) | {name: low(p) for name, p in parts.items()}


def levels(result):
    """P-values of local levels, and whether any of their curves leaves its band."""
    curves = [result.bands(alpha / len(result.names)) for alpha in ALPHAS]
    beyond = [outside(c.ecdf, c.envelope_lower, c.envelope_upper) for c in curves]
    columns = low(result.pvalues * len(result.names))
    return {"p": low(result.pvalue), "columns": columns, "bands": np.array(beyond)}


def sbc(design, seed):
    result = assay.sbc(design.pairs(seed), null=199)
    kinds = {"KS": result, "chi-square": result.chi_square, "envelope": result.envelope}
    curves = [result.ecdf(alpha) for alpha in ALPHAS]
    return {
        **{name: low(holm(kind.pvalue)) for name, kind in kinds.items()},
        "ECDF band": np.array([outside(c.ecdf[0], c.null_lower, c.null_upper) for c in curves]),
    }


def histogram(design, seed):
    result = assay.sbc(design.pairs(seed), null=19)
    bars = [result.histogram(alpha) for alpha in ALPHAS]
    return {"bars": np.array([outside(b.counts[0], b.lower, b.upper) for b in bars])}


def covered(make, design, seed):
    result = make(design.pairs(seed))
    curves = [result.curve(alpha) for alpha in ALPHAS]
    ends = [clopper_pearson(result.coverage[0], len(result.ranks), alpha) for alpha in ALPHAS]
    # One interval of a level that so few draws tell apart.
    beyond = [outside(result.levels[:1], *(end[:1] for end in each)) for each in ends]
    return {
        "p": low(result.adjusted),
        "area": low(result.area_pvalue[0]),
        "band": np.array([outside(c.ecdf[0], c.null_lower, c.null_upper) for c in curves]),
        "interval": np.array(beyond),
    }


def c2st(share, design, seed):
    """Two samples of the same law, the first a share of the second or more."""
    p, q = (design.pairs(i).theta for i in (seed, 10**6 + seed))
    size = int(share * len(p))
    p, q = (p[:size], q) if share < 1 else (p, q[: int(len(q) / share)])
    result = assay.c2st(p, q, RIDGE, 19, KFold(2))
    return {name: low(result[name].pvalue) for name in result.labels}


def predictive(design, seed):
    """The truth is a draw of the right posterior at the x that it made."""
    generator = stream(seed, "predictive")
    theta = torch.randn(1, 1, design.d, generator=generator)
    z = torch.randn(1, 20, design.m, generator=generator)
    x = design.draw(z, theta, generator)
    return {"p": low(rank_among(x[:, 1:], theta[0], x[:, 0], None)[0].pvalue)}


def typical(design, seed):
    """A simulated observation among the others, alone and as one of two."""
    x = design.pairs(seed).x
    result = assay.typical(x[2:], x[:2])
    return {"p": low(result.pvalue[0]), "any": low(result.adjusted)}


@dataclass(frozen=True)
class Rejection:
    """Rejections of a right q.

    Args:
        call: A function of a design and a seed, with rejections at ALPHAS by name.
        repetitions: How many of them are made every day, over all designs in turn.
        equal: Names that reject as often as their level says where nothing is tied.
        without: Designs for which it is not made.
    """

    call: Callable
    repetitions: int
    equal: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


# Half of twelve pairs are too few, and so are they all for what is learned from some of them.
HALVED = ("twelve pairs",)

REJECTIONS = {
    "score": Rejection(partial(score, pairs), 28, ("p",)),
    "score of latents": Rejection(partial(score, latents), 14, ("p",)),
    "score, first copies": Rejection(partial(first_copies, pairs), 14, ("p",)),
    "Ridge": Rejection(partial(classified, pairs, RIDGE, Exchange(19)), 56, ("p",)),
    "Ridge of latents": Rejection(partial(classified, latents, RIDGE, Exchange(19)), 56, ("p",)),
    "Ridge, local": Rejection(
        partial(classified, pairs, RIDGE, LocalExchange(19, Nearest(0.5))), 42, ("p",)
    ),
    "network": Rejection(partial(classified, pairs, TINY, Exchange(19)), 56, ("p",)),
    "network of latents": Rejection(partial(classified, latents, TINY, KnownBase(19)), 56, ("p",)),
    "network, local": Rejection(
        partial(classified, pairs, TINY, LocalExchange(19, Nearest(0.5))), 28, ("p",)
    ),
    "free permutation": Rejection(partial(classified, pairs, TINY, FreePermutation(19)), 42),
    "a classifier that minds the order": Rejection(
        partial(classified, pairs, Ordered(), Exchange(19)), 42
    ),
    "lhpd": Rejection(lhpd, 42, ("p",)),
    "lpit": Rejection(partial(lpit, pairs), 28, ("p",)),
    "lpit of latents": Rejection(partial(lpit, latents), 28, ("p",)),
    "sbc": Rejection(sbc, 140),
    "rank histogram": Rejection(histogram, 42),
    "coverage of intervals": Rejection(
        partial(covered, lambda c: assay.coverage(c, null=199)), 140
    ),
    "coverage of regions": Rejection(
        partial(covered, lambda c: assay.coverage(c, log_density, null=199)), 140
    ),
    "tarp": Rejection(partial(covered, lambda c: assay.tarp(c, null=199)), 140),
    "tarp around x": Rejection(
        partial(covered, lambda c: assay.tarp(c, lambda x: x[:, :1].repeat(1, c.m), null=199)), 70
    ),
    "c2st": Rejection(partial(c2st, 1), 42, ("mse",)),
    "c2st of few truths": Rejection(partial(c2st, 0.5), 39, ("mse",), HALVED),
    "c2st of many truths": Rejection(partial(c2st, 2), 39, ("mse",), HALVED),
    "predictive": Rejection(predictive, 1400, ("p",)),
    "typical": Rejection(typical, 26, ("p",), HALVED),
}
