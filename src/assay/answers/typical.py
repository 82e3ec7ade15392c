r"""Is x_o like the simulations? An exact p-value, and the features that do not fit.

If the simulator makes x_o, then x_o and the simulated x are exchangeable. Scores of how strange an
x is are learned on one part of the simulations; x_o is then ranked among B others, and
:math:`p = \operatorname{rank} / (B + 1)` is exact, whatever the scores.

There are six kinds of scores: residuals of a feature given the others, by a linear and by an
additive fit; residuals in units of a scale that depends on the others; the Mahalanobis length;
distances to the nearest simulations, in single features and in pairs of them. A score counts by
its excess over its 90 % quantile among the B + 1, in units of the mean excess beyond it. The
largest score of each kind is measured in the same way, and the largest kind decides.

References: Vovk, Gammerman and Shafer 2005, *Algorithmic Learning in a Random World*, for
conformal p-values; Hastie and Tibshirani 1990, *Generalized Additive Models*.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import scipy.spatial
import torch
from torch import Tensor

from .._support.inputs import as_tensors, check_finite, cpu, full_precision
from .._support.progress import progress
from .._support.random import Seed, seed_of, stream
from ..data.calibration import features_of
from ..data.posterior import Embed
from ..results import Frozen, holm, number, probability

# x_o is outside at this p-value.
OUTSIDE = 0.01
# The part of the simulations on which scores are learned, and how many are learned on and ranked.
LEARNED, MOST_LEARNED, MOST_RANKED = 0.4, 1000, 10_000
# The fewest simulations; the most features, where more are replaced by principal components.
FEWEST, MOST_FEATURES = 20, 300
# The share of scores beyond which excesses are taken.
TAIL = 0.1
# How many scales from its median a feature begins to count by its logarithm: in distances, in
# scores of all features, and in additive fits, which bend where features are bent.
NEAR, FAR, FARTHEST = 1.0, 3.0, 10.0
# Where squares, waves and products of a feature end.
FAR_ENOUGH = 5.0
# Functions of each feature in an additive fit, at most; how much less each pair of waves weighs
# than the one before; weights of squares, and of products of two features.
MOST_FUNCTIONS, SMOOTHER, SQUARES, PRODUCTS = 9, 0.7, 0.5, 0.7
# Pairs of features that are looked at, and neighbours to which distances are taken.
MOST_PAIRS, PAIR_NEIGHBOURS, NEIGHBOURS = 60, 5, 3
PENALTIES = (1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 1e3)
SCALE_PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 1e3)
TINY = 1e-12

# Scores (n, c) of c features, pairs or lengths, by kind.
Table = dict[str, np.ndarray]


@full_precision()
def typical(x: Any, x_o: Any, embed: Embed | None = None, seed: Seed = 0) -> "Typical":
    """Tests whether observations are like the simulated ones.

    Args:
        x: Simulated observations, with parameters from the prior, (n, ...).
        x_o: One observation (...,) or many (o, ...).
        embed: Turns images, series or sets into features (n, d). Vectors of up to 300 numbers are
            looked at beside their embedding, which may have discarded what is strange.
        seed: An int or a generator. The same seed gives the same p-values.

    Returns:
        Exact p-values, and what fits least in each observation.

    Example:
        >>> x = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0))
        >>> found = typical(x, [[0.0, 0.1, -0.3, 1.0], [0.0, 0.1, 6.0, 1.0]])
        >>> found.outside
        array([False,  True])
        >>> found.sentences[1]
        'x[2] = 6.0 lies where no simulation does'
    """
    simulated, observed = as_tensors({"x": x, "x_o": x_o}).values()
    if simulated.ndim < 2:
        raise ValueError(
            f"x: expected simulated observations (n, ...); got {tuple(simulated.shape)}. For a "
            "single number at each use x.reshape(-1, 1)."
        )
    observed = observed[None] if observed.shape == simulated.shape[1:] else observed
    if observed.shape[1:] != simulated.shape[1:] or len(simulated) < FEWEST:
        raise ValueError(
            f"x_o: expected shape {tuple(simulated.shape[1:])}, or (o, ...) for many, beside at "
            f"least {FEWEST} simulations; got {tuple(observed.shape)} and {len(simulated)}."
        )
    both = simulated, observed
    plain = embed is None or all(
        part.ndim == 2 and part.shape[1] <= MOST_FEATURES and part.isfinite().all()
        for part in both
    )
    for name, part in zip(("x", "x_o"), both, strict=True):
        if plain:
            check_finite(name, part)
    (features, names), (theirs, _) = (_features(part, embed, plain=plain) for part in both)
    seed, n = seed_of(seed), len(features)
    order = cpu.randperm(n, generator=stream(seed, "typical")).numpy()
    learned, others = np.split(order, [min(round(LEARNED * n), MOST_LEARNED)])
    scores = Scores.learn(features[learned], names, np.random.default_rng(seed))
    ranking = Ranking.of(scores(features[others[:MOST_RANKED]]))
    table = scores(theirs)
    found = []
    for i in progress(range(len(theirs)), "comparing with simulations"):
        p, kind, which = ranking({kind: values[i] for kind, values in table.items()})
        found.append((p, scores.describe(kind, which, table[kind][i, which], theirs[i])))
    pvalues, sentences = zip(*found, strict=True)
    return Typical(np.array(pvalues), sentences, len(others[:MOST_RANKED]))


def _features(
    x: Tensor, embed: Embed | None, *, plain: bool
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Features (n, d) of observations: those of an embedding, then plain numbers; their names."""
    parts, names = [], []
    if embed is not None:
        parts.append(features_of(x, embed))
        names += [f"embed(x)[{j}]" for j in range(parts[0].shape[1])]
    if plain:
        parts.append(x.flatten(1))
        names += [f"x[{', '.join(map(str, place))}]" for place in np.ndindex(*x.shape[1:])]
    return torch.cat([part.double().cpu() for part in parts], 1).numpy(), tuple(names)


@dataclass(frozen=True, eq=False)
class Typical(Frozen):
    """Whether o observations are like the simulated ones.

    Args:
        pvalue: The exact p-value of each by itself, (o,).
        sentences: What fits least in each.
        ranked: The number B of simulations that observations were ranked among.
    """

    pvalue: np.ndarray
    sentences: tuple[str, ...]
    ranked: int

    @property
    def adjusted(self) -> np.ndarray:
        """P-values corrected for the number of observations by Holm's step-down, (o,)."""
        return holm(self.pvalue)

    @property
    def outside(self) -> np.ndarray:
        """Whether observations are unlike the simulations, (o,).

        Their corrected p-value is at most 0.01. Where there are too few simulations for so many
        observations, those that are stranger than all simulations are outside, too.
        """
        strangest = self.pvalue <= min(OUTSIDE, (1 + 1e-9) / (1 + self.ranked))
        return np.asarray((self.adjusted <= OUTSIDE) | strangest)

    def __len__(self) -> int:
        return len(self.pvalue)

    def __repr__(self) -> str:
        each = zip(self.pvalue, self.outside, self.sentences, strict=True)
        return "\n".join(
            f"p = {probability(float(p))}, {'outside' if outside else 'like the simulations'}"
            + (f": {words}" if outside else "")
            for p, outside, words in each
        )


@dataclass(frozen=True, eq=False)
class Ranking:
    """Scores of the B ranked simulations, and the largest k of each, by kind.

    Args:
        scores: Scores (B, c).
        top: The k + 1 largest of each, in descending order, (k + 1, c).
    """

    scores: Table
    top: Table

    @classmethod
    def of(cls, scores: Table) -> "Ranking":
        """Prepares scores for ranking."""
        b = len(next(iter(scores.values())))
        k = max(2, int(TAIL * (b + 1)))
        return cls(
            scores, {kind: -np.sort(-table, axis=0)[: k + 1] for kind, table in scores.items()}
        )

    def __call__(self, scores: dict[str, np.ndarray]) -> tuple[float, str, int]:
        """The p-value of an observation with scores (c,), and the kind and the score to name.

        That is the kind in which the fewest simulations are as strange. Where a length is one of
        several, another is named, which says what is strange.
        """
        largest, which = {}, {}
        for kind, theirs in scores.items():
            location, scale = self._tail(kind, theirs)
            others = ((self.scores[kind] - location) / scale).max(1)
            own = (theirs - location) / scale
            which[kind] = int(own.argmax())
            largest[kind] = self._standardise(np.append(others, own.max()))
        table = np.stack(list(largest.values()), 1)
        decisive = table.max(1)
        as_strange = (table >= table[-1]).sum(0)
        is_length = [kind == "length" for kind in largest]
        *_, kind = min(zip(as_strange, is_length, -table[-1], largest, strict=True))
        return float((decisive >= decisive[-1]).mean()), kind, which[kind]

    def _tail(self, kind: str, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Threshold and mean excess (c,) of each score among the simulations and x_o."""
        top = self.top[kind]
        k = len(top) - 1
        among = theirs > top[k - 1]
        threshold = np.where(among, top[k - 1], np.maximum(top[k], theirs))
        total = top[: k - 1].sum(0) + np.where(among, theirs, top[k - 1])
        return threshold, np.maximum(total / k - threshold, TINY)

    def _standardise(self, values: np.ndarray) -> np.ndarray:
        """Values (B + 1,) as excesses over their own quantile."""
        k = len(next(iter(self.top.values()))) - 1
        top = -np.partition(-values, k)[: k + 1]
        threshold = top.min()
        return (values - threshold) / max((top.sum() - threshold) / k - threshold, TINY)


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of strangeness of observations with d features, learned on simulations.

    Args:
        names: Names of the features.
        median, scale: Of the features, (d,).
        components: Principal components that replace too many features; None if they do not.
        linear, additive: Fits of each feature by the others.
        robust, width: An additive fit of features that are bent more, and one of the logarithm of
            its residuals.
        spread: Typical residuals of the linear and the additive fit, (d,) each.
        mean, precision: Of all features, (d,) and (d, d).
        sorted: Values of each feature, (n, d).
        pairs: Pairs of features that are looked at, with trees of the simulations there.
    """

    names: tuple[str, ...]
    median: np.ndarray
    scale: np.ndarray
    components: np.ndarray | None
    linear: "Fit"
    additive: "Fit"
    robust: "Fit"
    width: "Fit"
    spread: dict[str, np.ndarray]
    mean: np.ndarray
    precision: np.ndarray
    sorted: np.ndarray
    pairs: dict[tuple[int, int], scipy.spatial.cKDTree]

    @classmethod
    def learn(cls, x: np.ndarray, names: tuple[str, ...], chance: np.random.Generator) -> "Scores":
        """Learns from features (n, d) of simulations."""
        quarter, median, three_quarters = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
        scale, spread = (three_quarters - quarter) / 1.349, x.std(0)
        scale = np.where(scale > 0, scale, np.where(spread > 0, spread, 1.0))
        z, components = (x - median) / scale, None
        if x.shape[1] > MOST_FEATURES:
            most = min(MOST_FEATURES, len(x) // 4)
            components = np.linalg.svd(bend(z, FAR), full_matrices=False)[2][:most].T
            names = tuple(f"principal component {j + 1} of x" for j in range(components.shape[1]))
            z = bend(z, FAR) @ components
            z = z / z.std(0)
            components = components / (bend((x - median) / scale, FAR) @ components).std(0)
        far, near = bend(z, FAR), bend(z, NEAR)
        n, d = far.shape
        linear, additive = Fit.learn(far, far, 1), Fit.learn(bend(z, FARTHEST), bend(z, FARTHEST))
        robust = Fit.learn(far, far)
        left_out = np.abs(robust.cross_fitted(far))
        sizes = np.log(left_out + 0.05 * left_out.mean(0) + TINY)
        covariance = np.cov(far.T).reshape(d, d)
        diagonal = np.diag(np.diag(covariance)) + 1e-6 * np.eye(d)
        shrinkage = min(0.9, 0.3 * d / n)
        every = list(combinations(range(d), 2))
        some = chance.choice(len(every), min(MOST_PAIRS, len(every)), replace=False)
        pairs = [every[i] for i in sorted(some)]
        return cls(
            names=names,
            median=median,
            scale=scale,
            components=components,
            linear=linear,
            additive=additive,
            robust=robust,
            width=Fit.learn(far, sizes, 2, SCALE_PENALTIES),
            spread={
                "linear": root_mean_square(linear.cross_fitted(far)),
                "additive": root_mean_square(additive.cross_fitted(bend(z, FARTHEST))),
            },
            mean=far.mean(0),
            precision=np.linalg.inv((1 - shrinkage) * covariance + shrinkage * diagonal),
            sorted=np.sort(near, axis=0),
            pairs={pair: scipy.spatial.cKDTree(near[:, pair]) for pair in pairs},
        )

    def __call__(self, x: np.ndarray) -> Table:
        """Scores (n, c) of features (n, d), by kind."""
        z = (x - self.median) / self.scale
        if self.components is not None:
            z = bend(z, FAR) @ self.components
        far, near, centred = bend(z, FAR), bend(z, NEAR), bend(z, FAR) - self.mean
        width = np.clip(self.width.predict(far), -20, 20)
        tables = {
            "linear": np.abs(self.linear.residuals(far)) / self.spread["linear"],
            "additive": np.abs(self.additive.residuals(bend(z, FARTHEST)))
            / self.spread["additive"],
            "local": np.abs(self.robust.residuals(far)) / np.exp(width),
            "length": np.einsum("ni,ij,nj->n", centred, self.precision, centred)[:, None],
            "single": self._distances(near),
        }
        if self.pairs:
            each = (
                tree.query(near[:, pair], PAIR_NEIGHBOURS) for pair, tree in self.pairs.items()
            )
            tables["pair"] = np.stack([distance.mean(1) for distance, _ in each], 1)
        return tables

    def _distances(self, near: np.ndarray) -> np.ndarray:
        """Distances (n, d) of single features to the nearest simulations on the nearer side."""
        columns, last = [], len(self.sorted) - 1
        for values, known in zip(near.T, self.sorted.T, strict=True):
            place = np.searchsorted(known, values)
            below = known[np.clip(place - NEIGHBOURS, 0, last)]
            above = known[np.clip(place + NEIGHBOURS - 1, 0, last)]
            columns.append(np.minimum(np.abs(values - below), np.abs(above - values)))
        return np.stack(columns, 1)

    def describe(self, kind: str, which: int, score: float, x: np.ndarray) -> str:
        """What a score of features x (d,) says, in words."""
        if kind == "pair":
            first, second = (self.names[j] for j in list(self.pairs)[which])
            return f"{first} and {second} lie together where no simulation does"
        if kind == "length":
            return "all features together lie far from those of the simulations"
        name, size = self.names[which], number(float(score), 2)
        return {
            "linear": f"{name} is {size} sd from what the other features predict",
            "additive": f"{name} is {size} sd from what the other features predict",
            "local": f"{name} is {size} times as far as usual from what the others predict",
            "single": f"{self._value(which, x)} lies where no simulation does",
        }[kind]

    def _value(self, which: int, x: np.ndarray) -> str:
        """A feature with its value, where it has one of its own."""
        if self.components is not None:
            return self.names[which]
        return f"{self.names[which]} = {number(float(x[which]), 2)}"


@dataclass(frozen=True, eq=False)
class Fit:
    """A ridge regression of each feature on functions of the others.

    Args:
        functions: Functions of each feature: itself, its square, and waves.
        products: Whether products of two features are added.
        targets: What is predicted, (n, d), from features (n, d).
        penalties: Of each target, chosen by the error on a held-out half, (d,).
        weights: The coefficients, (p, d), none of them of functions of the target's own feature.
    """

    functions: int
    products: bool
    features: np.ndarray
    targets: np.ndarray
    penalties: np.ndarray
    weights: np.ndarray

    @classmethod
    def learn(
        cls,
        features: np.ndarray,
        targets: np.ndarray,
        functions: int = MOST_FUNCTIONS,
        penalties: Sequence[float] = PENALTIES,
    ) -> "Fit":
        """Learns to predict targets (n, d) from features (n, d)."""
        n, d = features.shape
        functions = max(1, min(functions, n // (3 * d)))
        products = functions == MOST_FUNCTIONS and d * (d - 1) // 2 + functions * d < n // 2
        design, half = design_of(features, functions, products=products), n // 2
        first, own = slice(half), own_columns(d, functions, products=products)
        errors = []
        for penalty in penalties:
            weights = ridge_without_own(design[first], targets[first], penalty, own)
            missed = targets[half:] - targets[first].mean(0) - design[half:] @ weights
            errors.append(np.square(missed).mean(0))
        chosen = np.asarray(penalties)[np.argmin(errors, 0)]
        empty = np.zeros((design.shape[1], d))
        fit = cls(functions, products, features, targets, chosen, empty)
        return replace(fit, weights=fit._solve(np.arange(n)))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predictions (n, d)."""
        design = design_of(features, self.functions, products=self.products)
        return self.targets.mean(0) + design @ self.weights

    def residuals(self, features: np.ndarray) -> np.ndarray:
        """Features less what the others predict, (n, d)."""
        return features - self.predict(features)

    def cross_fitted(self, features: np.ndarray) -> np.ndarray:
        """The same for the features it was learned from, in five folds that were left out."""
        fold = np.arange(len(features)) % 5
        residuals = np.empty_like(features)
        for f in range(5):
            part = replace(self, weights=self._solve(np.flatnonzero(fold != f)))
            residuals[fold == f] = part.residuals(features[fold == f])
        return residuals

    def _solve(self, rows: np.ndarray) -> np.ndarray:
        """Coefficients (p, d) from some rows."""
        design = design_of(self.features[rows], self.functions, products=self.products)
        own = own_columns(self.features.shape[1], self.functions, products=self.products)
        weights = np.zeros_like(self.weights)
        for penalty in np.unique(self.penalties):
            some = self.penalties == penalty
            weights[:, some] = ridge_without_own(design, self.targets[rows], penalty, own)[:, some]
        return weights


def design_of(z: np.ndarray, functions: int, *, products: bool) -> np.ndarray:
    """Functions of features (n, d), feature by feature, then products of two, (n, p)."""
    # What bends is not extrapolated.
    linear, z = z, np.clip(z, -FAR_ENOUGH, FAR_ENOUGH)
    each = [linear, SQUARES * (np.square(z) - 1)]
    for k in range(1, 1 + functions // 2):
        each += [SMOOTHER**k * np.sin(0.8 * k * z), SMOOTHER**k * np.cos(0.8 * k * z)]
    columns = np.stack(each[:functions], 2).reshape(len(z), -1)
    if not products:
        return columns
    first, second = np.triu_indices(z.shape[1], 1)
    return np.concatenate([columns, PRODUCTS * z[:, first] * z[:, second]], 1)


def own_columns(d: int, functions: int, *, products: bool) -> list[np.ndarray]:
    """The columns of a design in which each feature takes part."""
    owners = np.repeat(np.arange(d), functions)
    pairs = np.stack(np.triu_indices(d, 1)) if products else np.empty((2, 0), int)
    both = np.concatenate([np.stack([owners, owners]), pairs], 1)
    return [np.flatnonzero((both == j).any(0)) for j in range(d)]


def ridge_without_own(
    design: np.ndarray, targets: np.ndarray, penalty: float, own: list[np.ndarray]
) -> np.ndarray:
    """Ridge coefficients (p, d) of each target, without the columns of its own feature.

    They follow from one inverse for all targets, by Schur complements.
    """
    n, centred = len(design), targets - targets.mean(0)
    inverse = np.linalg.inv(design.T @ design / n + penalty * np.eye(design.shape[1]))
    products = design.T @ centred / n
    weights = np.empty_like(products)
    for j, columns in enumerate(own):
        product = products[:, j].copy()
        product[columns] = 0
        full = inverse @ product
        block = inverse[np.ix_(columns, columns)]
        weights[:, j] = full - inverse[:, columns] @ np.linalg.solve(block, full[columns])
        weights[columns, j] = 0
    return weights


def bend(z: np.ndarray, far: float) -> np.ndarray:
    """Values that are linear up to about `far` and grow like a logarithm beyond."""
    return far * np.arcsinh(z / far)


def root_mean_square(residuals: np.ndarray) -> np.ndarray:
    """Root mean squares of columns (n, d); one for a column of zeros."""
    size = np.sqrt(np.square(residuals).mean(0))
    return np.where(size > TINY, size, 1.0)
