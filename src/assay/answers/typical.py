r"""Is x_o like the simulations? An exact p-value, and the features that do not fit.

Scores of how strange an x is are learned on one part of the simulations; x_o is then ranked among
B others, and the conformal :math:`p = \operatorname{rank} / (B + 1)` is exact, whatever the scores
(Vovk, Gammerman and Shafer 2005, *Algorithmic Learning in a Random World*).

Scores are of six kinds: residuals of a feature given the others, by a linear and by an additive
fit (Hastie and Tibshirani 1990, *Generalized Additive Models*); residuals in units of a scale that
depends on the others; the Mahalanobis length; distances to the nearest simulations, in features
and in pairs of them. A score counts by its excess over its 90 % quantile among the B + 1, in units
of the mean excess. The largest of each kind is measured likewise, and the largest kind decides.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree

from .._support.inputs import as_tensors, check_finite, cpu, full_precision
from .._support.random import Seed, seed_of, stream
from .._support.work import progress
from ..data.guards import features_of
from ..data.posterior import Embed
from ..printing import equals, number
from ..results import Frozen, holm

# x_o is outside at this corrected p-value, or at the smallest that is possible up to another; or
# where a score is so many times farther beyond the usual than that of any simulation.
OUTSIDE, MOST_OUTSIDE, BY_FAR = 0.01, 0.05, 4.0
PLAIN_KINDS = "linear", "single", "pair"  # those whose tails are short whatever the features are
TAIL = 0.1  # the share of scores of which excesses are taken
# The part of the simulations on which scores are learned, and how many are learned on and ranked.
LEARNED, MOST_LEARNED, MOST_RANKED = 0.4, 1000, 10_000
# The fewest simulations; the most features before components replace them, and pairs; neighbours.
FEWEST, MOST_FEATURES, MOST_PAIRS, PAIR_NEIGHBOURS, NEIGHBOURS = 20, 300, 60, 5, 3
# How many scales from its median a feature begins to count by its logarithm, as arcsinh does: in
# distances, in scores of all features, and in additive fits, which bend where features are bent.
NEAR, FAR, FARTHEST = 1.0, 3.0, 10.0
# Functions of each feature in a fit, at most; what is rounding of numbers near one; penalties.
MOST_FUNCTIONS, TINY = 9, 1e-9
PENALTIES = np.array([1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 1e3])
SENTENCES = {
    "linear": "{name} is {size} sd from what the other features predict",
    "additive": "{name} is {size} sd from what the other features predict",
    "local": "{name} is {size} times as far as usual from what the others predict",
    "length": "all features together lie far from those of the simulations",
    "single": "{name}{value} lies where no simulation does",
    "pair": "{name} and {other} lie together where no simulation does",
}
ALONE = "{name}{value} lies far from those of the simulations"  # where there is a single feature


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
        >>> found.outside, found.sentences[1]
        (array([False,  True]), 'x[2] = 6.0 lies where no simulation does')
    """
    simulated, observed = as_tensors({"x": x, "x_o": x_o}).values()
    if simulated.ndim < 2:
        raise ValueError(
            f"x: expected simulated observations (n, ...); got {tuple(simulated.shape)}. For a "
            "single number at each use x.reshape(-1, 1)."
        )
    n, shape = len(simulated), tuple(simulated.shape[1:])
    observed = observed[None] if observed.shape == shape else observed
    if observed.shape[1:] != shape or n < FEWEST:
        raise ValueError(
            f"x_o: expected shape {shape}, or (o, ...) for many, beside at least {FEWEST} "
            f"simulations; got {tuple(observed.shape)} and {n}."
        )
    if embed is None:
        check_finite("x", simulated)
        check_finite("x_o", observed)
    finite = all(part.isfinite().all() for part in (simulated, observed))
    plain = embed is None or (finite and len(shape) == 1 and shape[0] <= MOST_FEATURES)
    embeddings = [embed] * (embed is not None) + [None] * plain
    features, own = (
        torch.cat([features_of(part, each).double().cpu() for each in embeddings], 1).numpy()
        for part in (simulated, observed)
    )
    names = [f"x[{', '.join(map(str, i))}]" for i in np.ndindex(shape)] if plain else []
    embedded = [f"embed(x)[{j}]" for j in range(features.shape[1] - len(names))]
    return compare(features, own, embedded + names, seed_of(seed))


@dataclass(frozen=True, eq=False)
class Typical(Frozen):
    """Whether o observations are like the simulated ones.

    Args:
        pvalue: The exact p-value of each by itself, (o,).
        sentences: What fits least in each.
        ranked: The number B of simulations that observations were ranked among.
        by_far: Whether each is far stranger than all of these, (o,).
    """

    pvalue: np.ndarray
    sentences: tuple[str, ...]
    ranked: int
    by_far: np.ndarray

    @property
    def adjusted(self) -> np.ndarray:
        """P-values corrected for the number of observations by Holm's step-down, (o,)."""
        return holm(self.pvalue)

    @property
    def outside(self) -> np.ndarray:
        """Whether observations are unlike the simulations, (o,).

        Their corrected p-value is at most 0.01, or the smallest that is possible, up to 0.05; or
        they are far stranger than all simulations.
        """
        smallest = len(self) / (1 + self.ranked) * (1 + 1e-9)
        level = max(OUTSIDE, smallest) if smallest <= MOST_OUTSIDE else OUTSIDE
        return np.asarray((self.adjusted <= level) | self.by_far)

    def explanation(self, i: int) -> str:
        """Why observation i is outside: its corrected p-value or its rank, and what fits least."""
        corrected = f", corrected for {len(self)} observations" if len(self) > 1 else ""
        evidence = f"p {equals(float(self.adjusted[i]))}{corrected}"
        if self.by_far[i] and self.adjusted[i] > OUTSIDE:
            evidence = f"far stranger than all {self.ranked} that it was compared with"
        return f"({evidence}): {self.sentences[i]}"

    def __len__(self) -> int:
        return len(self.pvalue)

    def __repr__(self) -> str:
        lines = [f"p {equals(float(p))}, like the simulations" for p in self.pvalue]
        for i in np.flatnonzero(self.outside).tolist():
            lines[i] = f"outside {self.explanation(i)}"
        return "\n".join(lines)


def compare(x: np.ndarray, x_o: np.ndarray, names: list[str], seed: int) -> Typical:
    """Compares observations with simulations by features (o, d) and (n, d) that have names."""
    order = cpu.randperm(len(x), generator=stream(seed, "typical")).numpy()
    learned = min(round(LEARNED * len(x)), MOST_LEARNED)
    ranked = min(len(x) - learned, MOST_RANKED)
    z = standardise(np.concatenate([x[order[: learned + ranked]], x_o]), learned)
    if reduced := z.shape[1] < len(names):
        names = [f"principal component {j + 1} of x" for j in range(z.shape[1])]
    every = np.stack(np.triu_indices(z.shape[1], 1), 1)
    pairs = np.random.default_rng(seed).choice(every, min(MOST_PAIRS, len(every)), replace=False)
    # Equal rows get equal scores to the last bit: they are scored once.
    rows, which = np.unique(z[learned:], axis=0, return_inverse=True)
    scores = strangeness(np.concatenate([z[:learned], rows]), learned, pairs)
    scores = {kind: part[which.ravel()] for kind, part in scores.items()}  # (ranked + o, c)
    pvalues, sentences = [], []
    for i, (p, kind, column) in enumerate(rank(scores, ranked)):
        first, other = pairs[column] if kind == "pair" else (column, column)
        value = "" if reduced else f" = {number(float(x_o[i, first]), 2)}"
        size = number(float(scores[kind][ranked + i, column]), 2)
        sentence = ALONE if z.shape[1] == 1 and kind != "single" else SENTENCES[kind]
        words = {"name": names[first], "other": names[other], "value": value, "size": size}
        sentences.append(sentence.format(**words))
        pvalues.append(p)
    beyond = []  # how far observations are beyond the usual, over the farthest simulation
    for part in (scores[kind] for kind in PLAIN_KINDS if kind in scores):
        usual, farthest = np.quantile(part[:ranked], 1 - TAIL, axis=0), part[:ranked].max(0)
        # Scores are in units of standard deviations, about: less than one is never far.
        beyond.append(((part[ranked:] - usual) / np.maximum(farthest - usual, 1.0)).max(1))
    return Typical(np.array(pvalues), tuple(sentences), ranked, np.max(beyond, 0) >= BY_FAR)


def standardise(x: np.ndarray, n: int) -> np.ndarray:
    """Features in robust units of the first n rows, or their principal components there."""
    quarter, median, three_quarters = np.quantile(x[:n], [0.25, 0.5, 0.75], axis=0)
    scale, spread = (three_quarters - quarter) / 1.349, x[:n].std(0)
    z = (x - median) / np.select([scale > 0, spread > 0], [scale, spread], 1.0)
    if z.shape[1] > MOST_FEATURES:
        far, most = FAR * np.arcsinh(z / FAR), min(MOST_FEATURES, n // 4)
        z = far @ np.linalg.svd(far[:n], full_matrices=False)[2][:most].T
        z /= z[:n].std(0)
    return z


def rank(scores: dict[str, np.ndarray], b: int) -> Iterator[tuple[float, str, int]]:
    """P-values of o observations by scores (b + o, c), with the strangest kind and its score."""
    kinds, k = np.array(list(scores)), max(2, int(TAIL * (b + 1)))
    top = {kind: np.partition(part[:b].T, -k - 1)[:, -k - 1 :] for kind, part in scores.items()}
    among = {kind: part[: b + 1].T.copy() for kind, part in scores.items()}
    for i in progress(range(b, len(scores["length"])), "comparing with simulations"):
        each = {}
        for kind, part in among.items():
            part[:, -1] = scores[kind][i]  # the column of x_o
            each[kind] = excesses(part, np.column_stack([top[kind], part[:, -1]]), k)
        largest = np.stack([part.max(0) for part in each.values()])
        largest = excesses(largest, largest, k)
        decisive, own = largest.max(0), largest[:, -1]
        as_strange = (largest >= own[:, None]).sum(1)
        # Not the length where another is as good, for that says what is strange.
        kind = str(kinds[np.lexsort([-own, kinds == "length", as_strange])[0]])
        yield float((decisive >= decisive[-1]).mean()), kind, int(each[kind][:, -1].argmax())


def excesses(scores: np.ndarray, top: np.ndarray, k: int) -> np.ndarray:
    """Scores (c, n) less a threshold that k of the `top` exceed, in units of their mean excess."""
    top = np.partition(top, -k - 1)[:, -k - 1 :]
    threshold = top[:, :1]
    return (scores - threshold) / np.maximum(top[:, 1:].mean(1, keepdims=True) - threshold, TINY)


def strangeness(z: np.ndarray, n: int, pairs: np.ndarray) -> dict[str, np.ndarray]:
    """Scores (b, c) by kind of features z (n + b, d), learned on the first n; pairs are (q, 2)."""
    near, far, farthest = (end * np.arcsinh(z / end) for end in (NEAR, FAR, FARTHEST))
    linear, linear_size, _ = fit(far, far[:n], 1)
    additive, additive_size, _ = fit(farthest, farthest[:n], MOST_FUNCTIONS)
    robust, _, left_out = fit(far, far[:n], MOST_FUNCTIONS)
    sizes = np.abs(left_out) + 0.05 * np.abs(left_out).mean(0) + TINY
    log_size, *_ = fit(far, np.log(sizes), 2, PENALTIES[3:])
    covariance = np.atleast_2d(np.cov(far[:n].T))
    shrinkage = min(0.9, 0.3 * len(covariance) / n)
    covariance += shrinkage * (np.diag(covariance.diagonal() + 1e-6) - covariance)
    centred, singles = far - far[:n].mean(0), []
    for values, known in zip(near.T, np.sort(near[:n], axis=0).T, strict=True):
        place = np.searchsorted(known, values)
        sides = np.clip([place - NEIGHBOURS, place + NEIGHBOURS - 1], 0, n - 1)
        singles.append(np.abs(values - known[sides]).min(0))
    scores = {
        "linear": np.abs(far - linear) / linear_size,
        "additive": np.abs(farthest - additive) / additive_size,
        "local": np.abs(far - robust) / np.exp(np.clip(log_size, -20, 20)),
        "length": (centred @ np.linalg.inv(covariance) * centred).sum(1, keepdims=True),
        "single": np.stack(singles, 1),
    }
    if len(pairs):
        found = [cKDTree(near[:n, pair]).query(near[:, pair], PAIR_NEIGHBOURS) for pair in pairs]
        scores["pair"] = np.stack([distances.mean(1) for distances, _ in found], 1)
    return {kind: part[n:] for kind, part in scores.items()}


def fit(
    z: np.ndarray, targets: np.ndarray, functions: int, penalties: np.ndarray = PENALTIES
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Targets (n, d) predicted by features z (n + b, d) but their own, with left-out residuals."""
    n, d = targets.shape
    functions, half = max(1, min(functions, n // (3 * d))), n // 2
    # What is not linear is not extrapolated; the faster a wave, the less it weighs.
    inner, feature = np.clip(z, -5, 5), np.eye(d, dtype=bool)
    each = [z, 0.5 * (np.square(inner) - 1)]
    for k in range(1, 1 + functions // 2):
        each += [0.7**k * np.sin(0.8 * k * inner), 0.7**k * np.cos(0.8 * k * inner)]
    design = np.stack(each[:functions], 2).reshape(len(z), -1)
    own = np.repeat(feature, functions, 1)
    first, second = np.triu_indices(d, 1)
    if functions == MOST_FUNCTIONS and len(first) + functions * d < half:
        design = np.hstack([design, 0.7 * inner[:, first] * inner[:, second]])
        own = np.hstack([own, feature[:, first] | feature[:, second]])
    train, errors = design[:n], []
    for penalty in penalties:  # chosen for each target by the error on a held-out half
        weights = ridge(train[:half], targets[:half], own, np.full(d, penalty))
        missed = targets[half:] - targets[:half].mean(0) - train[half:] @ weights
        errors.append(np.square(missed).mean(0))
    chosen = penalties[np.argmin(errors, 0)]
    residuals = np.empty_like(targets)
    for fold in range(5):
        out = np.arange(n) % 5 == fold
        weights = ridge(train[~out], targets[~out], own, chosen)
        residuals[out] = targets[out] - targets.mean(0) - train[out] @ weights
    size = np.sqrt(np.square(residuals).mean(0))
    predicted = targets.mean(0) + design @ ridge(train, targets, own, chosen)  # (n + b, d)
    return predicted, np.where(size > TINY, size, 1.0), residuals


def ridge(design: np.ndarray, y: np.ndarray, own: np.ndarray, penalties: np.ndarray) -> np.ndarray:
    """Ridge coefficients (p, d) of y (n, d) with penalties (d,), without `own` columns (d, p)."""
    gram, products = design.T @ design / len(design), design.T @ (y - y.mean(0)) / len(design)
    inverses = {each: np.linalg.inv(gram + each * np.eye(len(gram))) for each in set(penalties)}
    weights = np.empty_like(products)
    for j, penalty in enumerate(penalties):
        # Coefficients without some columns follow from those with all, by Schur complements.
        inverse, out = inverses[penalty], np.flatnonzero(own[j])
        full = inverse @ products[:, j]
        block = np.linalg.solve(inverse[np.ix_(out, out)], full[out])
        weights[:, j] = full - inverse[:, out] @ block
        weights[out, j] = 0
    return weights
