r"""Local tests of levels near x_o: coverage of highest-density regions (HPD), conditional PITs.

A level u is uniform on [0, 1] if q is right. The HPD level is the mass of q where its density is
higher than at the true parameter. The PITs :math:`u_j = F_q(\theta_j \mid \theta_{<j}, x)`, for
latents of a flow :math:`\Phi(z_j)`, are also independent of each other then, and determine q. The
share of levels up to alpha among the nearest simulations is compared with alpha.

References: Zhao, Dalmasso, Izbicki and Lee 2021, *Diagnostics for Conditional Density Models and
Bayesian Inference Algorithms*; Linhart, Gramfort and Rodrigues 2022, *Validation Diagnostics for
SBI algorithms based on Normalizing Flows*, arXiv 2211.09602.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import (
    MOST_SQUARED,
    WORD,
    as_tensors,
    check_count,
    check_fits,
    check_share,
    cpu,
    full_precision,
)
from .._support.random import Seed, seed_of, stream
from .._support.work import map_in_threads
from ..average.coverage import log_densities
from ..average.ranks import Quantity, Sets
from ..classifiers.features import Whitened
from ..data.calibration import Calibration, Latents
from ..data.draw import Draws
from ..data.guards import check_calibration
from ..data.posterior import StandardNormal
from ..neighbourhood import Distance, Nearest, as_nearest
from ..results import LocalResult, MaxT, PPCurve, combined, envelope, pvalue, settings_of

# The levels at which curves are compared with the diagonal, and null copies, by default.
ALPHAS, NULLS = tuple(round(0.05 * i, 2) for i in range(1, 20)), 999
# Sets whose members are ranked at a time; numbers in the largest table of curves at a time.
SETS, ROOM = 2**14, 2**25
# Levels nearer to 0 or 1 are moved to it: the normal scores of 0 and 1 are infinite.
NEAREST = 1e-6
# The variance of scores is near one if q is right, but zero where all levels are equal.
LEAST_VARIANCE = 0.1
HPD, PIT = "local HPD coverage", "local PIT"
# What a sign of the area says.
RIGHT = "which is neither too wide nor too narrow beyond chance"
WIDTHS = {1: "q is too wide there", -1: "q is too narrow there", 0: RIGHT}


@full_precision()
def lhpd(
    calibration: Calibration,
    log_q: Quantity | None = None,
    near: float | Nearest | None = None,
    null: int | None = None,
    alphas: Any = ALPHAS,
    seed: Seed = 0,
) -> "LevelTest":
    """Prepares a test of local coverage of highest-density regions, to be called with any x_o.

    It is blind to errors that move mass between regions of equal density.

    Args:
        calibration: Pairs with k draws of q at each x.
        log_q: The log-density of q: a function of matching rows theta (b, m) and x (b, ...), or
            its :class:`~assay.average.ranks.Values`.
        near: What is near x_o: a share of the simulations, or :class:`assay.Nearest`.
        null: The number of null copies; 999 by default.
        alphas: The levels at which coverage is compared.
        seed: An int or a generator. The same seed gives the same test.

    Example:
        >>> theta, noise = torch.randn(2, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> z = torch.randn(500, 50, 1, generator=torch.Generator().manual_seed(1))
        >>> wide = Calibration(theta, theta + noise, (theta + noise)[:, None] / 2 + z)
        >>> result = lhpd(wide, lambda theta, x: -((theta - x / 2) ** 2).sum(1))(torch.zeros(1))
        >>> float(result.pvalue), int(result.area.sign[0])  # above the diagonal: too wide
        (0.001, 1)
    """
    check_calibration(calibration)
    if log_q is None:
        raise ValueError(
            "log_q: expected the log-density of q as a function of theta (b, m) and x (b, ...), "
            "or its Values; got None."
        )
    pairs, seed = calibration.sorted(), seed_of(seed)
    densities = log_densities(Sets.of(calibration, seed), log_q)[calibration.order]  # (n, k + 1)
    own = pairs.own_seed(seed)
    ranks = torch.from_numpy(Sets.of(pairs, own).rank({"HPD level": -densities}))
    levels = _as_levels(pairs, ranks[:, None], densities.shape[1], own)
    return LevelTest(HPD, *levels, ("HPD level",), near, null, alphas, seed)


@full_precision()
def lpit(
    calibration: Calibration,
    near: float | Nearest | None = None,
    null: int | None = None,
    alphas: Any = ALPHAS,
    seed: Seed = 0,
) -> "LevelTest":
    """Prepares a test of local conditional PITs, to be called with any x_o.

    Among draws, each member of a set is ranked after all are whitened by the Cholesky factor of
    their covariance: the Rosenblatt transform of a Gaussian q. For another q columns need not be
    independent, but every member is treated alike, so exchanges of members are exact.

    Args:
        calibration: Latents of a flow with base N(0, I), or pairs with k draws of q at each x.
        near: What is near x_o: a share of the simulations, or :class:`assay.Nearest`.
        null: The number of null copies; 999 by default.
        alphas: The levels at which curves are compared with the diagonal.
        seed: An int or a generator. The same seed gives the same test.

    Example:
        >>> z, x = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(0))
        >>> high = Calibration.from_base(z - torch.tensor([0.5, 0.0]), x)
        >>> lpit(high)(torch.zeros(2)).area.sign  # q is too high in the first coordinate
        array([1, 0])
    """
    check_calibration(calibration)
    pairs, seed = calibration.sorted(), seed_of(seed)
    if isinstance(pairs, Latents):
        if not isinstance(pairs.base, StandardNormal):
            raise ValueError(
                "calibration: expected latents with base N(0, I), whose PITs are known; got "
                "another base."
            )
        names = tuple(f"z[{j}]" for j in range(pairs.m))
        levels = _as_levels(pairs, torch.special.ndtr(pairs.theta.double())[:, None])
        return LevelTest(PIT, *levels, names, near, null, alphas, seed)
    members, own = pairs.members, pairs.own_seed(seed)
    Whitened().check(members.shape[1] - 1, pairs.m)
    # In random order, so that chance and not the place in the set decides between ties.
    order = cpu.rand(members.shape[:2], generator=stream(own, "ties")).argsort(1)
    index = order.to(members.device)[..., None].expand_as(members)
    white = torch.cat([Whitened()(part) for part in members.gather(1, index).split(SETS)])
    ranks = white.argsort(dim=1, stable=True).argsort(1)
    ranks = torch.empty_like(ranks).scatter_(1, index, ranks)
    given = ("", " | theta[0]", *(f" | theta[<{j}]" for j in range(2, pairs.m)))
    names = tuple(f"theta[{j}]{given[j]}" for j in range(pairs.m))
    levels = _as_levels(pairs, ranks.cpu(), members.shape[1], own)
    return LevelTest(PIT, *levels, names, near, null, alphas, seed)


def _as_levels(
    pairs: Calibration, u: Tensor, steps: int = 0, seed: int = 0
) -> tuple[Latents, Tensor | None]:
    """Levels (n, 1, j) or (n, k + 1, j), or ranks with so many steps, in place of parameters."""
    if steps:
        chance = cpu.rand(u.shape, generator=stream(seed, "levels"), dtype=torch.double)
        u = (u + chance) / steps
    # In the precision of x, so that an embedding of x gets what it expects.
    u, base = u.to(pairs.x), StandardNormal(u.shape[2])  # of which nothing is sampled here
    levels = Latents(u[:, 0], pairs.x, embed=pairs.embed, layout=pairs.layout, base=base)
    return levels.sorted(), u[levels.order, 1:] if u.shape[1] > 1 else None


@dataclass(frozen=True, eq=False)
class Band:
    """A number for each column, (j,) or (o, j), and the 2.5 and 97.5 % quantiles of its null."""

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @classmethod
    def of(cls, value: np.ndarray, null: np.ndarray) -> Self:
        """A number (..., j) with the quantiles of its null copies (..., H, j)."""
        # Weibull's: one of H + 1 values that are alike is beyond the i-th of the others in
        # H + 1 - i cases.
        return cls(value, *np.quantile(null, [0.025, 0.975], axis=-2, method="weibull"))

    @property
    def sign(self) -> np.ndarray:
        """1 above the null band, -1 below it, 0 within."""
        return (self.value > self.upper).astype(int) - (self.value < self.lower)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LevelResult(LocalResult):
    """What a local test of levels found at one observation.

    At many observations arrays have a leading axis. `null_...` are values for the H null copies.
    """

    alphas: np.ndarray  # the levels at which curves are compared, (g,)
    curves: np.ndarray  # estimates of P(u <= alpha) at x_o, (j, g)
    null_curves: np.ndarray  # (H, j, g)
    statistics: np.ndarray  # the statistic of each column, (j,)
    null_statistics: np.ndarray  # (j, H)
    curve_statistic: np.ndarray  # that of all columns together
    null_curve_statistic: np.ndarray  # (H,)
    independence: np.ndarray  # the sum of squared correlations
    null_independence: np.ndarray  # (H,)
    correlation: np.ndarray  # local correlations of normal scores, (j, j)
    names: tuple[str, ...]  # of the j columns
    shared: ClassVar[tuple[str, ...]] = ("alphas",)

    @property
    def pvalues(self) -> np.ndarray:
        """The p-value of each column, with shape (j,) or (o, j)."""
        return pvalue(self.statistics, self.null_statistics)

    @property
    def pvalue_curves(self) -> np.ndarray:
        """The p-value of all columns together, with shape () or (o,)."""
        return pvalue(self.curve_statistic, self.null_curve_statistic)

    @property
    def pvalue_independence(self) -> np.ndarray:
        """The p-value of all correlations together, with shape () or (o,)."""
        return pvalue(self.independence, self.null_independence)

    @property
    def area(self) -> Band:
        """The signed area between curve and diagonal: positive where u is too small."""
        return self._integrate(np.ones_like(self.alphas))

    @property
    def width(self) -> Band:
        """How much nearer to 1/2 u is than it should be: positive where PITs crowd in the middle.

        It is 1/4 less the mean of |u - 1/2|, the area right of 1/2 less that left of it.
        """
        return self._integrate(np.sign(self.alphas - 0.5))

    def _integrate(self, weights: np.ndarray) -> Band:
        """Weighted areas between curves and diagonal, by the trapezoidal rule."""
        edges = np.concatenate([[0.0], self.alphas, [1.0]])
        shares = 0.5 * (edges[2:] - edges[:-2]) * weights
        return Band.of(*((c - self.alphas) @ shares for c in (self.curves, self.null_curves)))

    def bands(self, alpha: float = 0.05) -> PPCurve:
        """The curves, (j, g) or (o, j, g), with pointwise and simultaneous null bands."""
        check_share("alpha", alpha)
        *shape, g = self.curves.shape
        data = self.curves.reshape(-1, 1, g)
        null = np.moveaxis(self.null_curves, -3, -2).reshape(len(data), -1, g)
        each = [envelope(np.concatenate(pair), alpha) for pair in zip(data, null, strict=True)]
        tables = {name: np.stack([curve[name] for curve in each]) for name in each[0]}
        shaped = {name: v.reshape(*shape, *v.shape[1:]) for name, v in tables.items()}
        return PPCurve(self.alphas, **shaped, alpha=alpha)

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        s = self.settings
        end = f"({s['test']}, {s['n']} calibration pairs, {self.null.shape[-1]} nulls)"
        if self.many:
            return f"{self._counted} {end}. {self._adjusted_by}"
        found = self._coverage() if s["test"] == HPD else f", at 0.05 each: {self._errors()}"
        return f"Near x_o{found} {end}."

    def _coverage(self) -> str:
        """How often a region of q holds the true parameter."""
        i, area, bands = int(np.abs(self.alphas - 0.9).argmin()), self.area, self.bands()
        low, high = bands.lower[0, i], bands.upper[0, i]
        return (
            f" the {self.alphas[i]:.0%} region of q holds the true parameter with probability "
            f"{self.curves[0, i]:.2f} (if q is right, {low:.2f} to {high:.2f}); the signed area "
            f"of the curve is {area.value[0]:+.3f} (if q is right, {area.lower[0]:+.3f} to "
            f"{area.upper[0]:+.3f}): {WIDTHS[int(area.sign[0])]}"
        )

    def _errors(self) -> str:
        """What the curves of PITs, and their correlations, say of q."""
        errors, signs = [], zip(self.area.sign, self.width.sign, strict=True)
        for name, p, (high, wide) in zip(self.names, self.pvalues, signs, strict=True):
            if p <= 0.05:
                words = ("", "too high", "too low")[high], ("", "too wide", "too narrow")[wide]
                error = " and ".join(filter(None, words)) or "of another shape"
                errors.append(f"q is {error} in {name} (p = {p:.3g})")
        parts = errors[:6] or ["no curve leaves the diagonal by itself"]
        if len(self.names) > 1:
            p = float(self.pvalue_independence)
            word = "a" if p <= 0.05 else "no"
            parts.append(f"{word} dependence of coordinates shows (p = {p:.3g})")
        return "; ".join(parts + ["..."] * (len(errors) > 6))

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        own = {"p curves": self.pvalue_curves, "p indep.": self.pvalue_independence}
        if self.settings["test"] == HPD:
            own = {"area": self.area.value[..., 0]}
        return super()._columns | own


@dataclass(frozen=True, eq=False, repr=False)
class LevelTest:
    """A local test of levels; call it with x_o: it needs no draws of q there.

    Version 0 of the levels is the data. The others are fresh uniforms, or, where the levels of
    draws are known, those of a random member of each set, which keeps dependence of columns.
    """

    kind: str  # what is tested
    levels: Latents  # u (n, j), in place of parameters
    u_q: Tensor | None  # those of draws at the same x, (n, k, j), if known
    names: tuple[str, ...]  # of the j columns
    near: Any
    null: Any  # the number of other versions, H
    alphas: Any  # (g,)
    seed: int

    def __post_init__(self) -> None:
        near = as_nearest(self.near)
        near = near if near.distance is not None else replace(near, distance=Distance())
        null = check_count("null", NULLS if self.null is None else self.null)
        (given,) = as_tensors({"alphas": self.alphas}).values()
        check_count("numbers of alphas", given.numel(), 1, MOST_SQUARED)
        alphas = np.unique(given.double().cpu().numpy())
        if given.ndim > 1 or not ((alphas > 0) & (alphas < 1)).all():
            raise ValueError(
                "alphas: expected levels above 0 and below 1, since curves are known there; got "
                f"{given.tolist()}."
            )
        check_fits("null", null, WORD * len(self.names) * len(alphas))
        vars(self).update(near=near, null=null, alphas=alphas)

    @full_precision()
    def __call__(self, draws: Any) -> LevelResult:
        """Tests q at one observation or many; draws of q there are not needed."""
        observation = self.levels.observation(Draws.of(draws))
        curves = self.curves(observation.features)  # (o, H + 1, j, g)
        statistics = np.square(curves - self.alphas).mean(-1).transpose(2, 0, 1)  # (j, o, H + 1)
        together = combined(statistics)  # (o, H + 1)
        correlations = self.correlations(observation.features)  # (o, H + 1, j, j)
        independence = np.square(np.triu(correlations, 1)).sum((-1, -2))  # (o, H + 1)
        both = combined(np.stack([together, independence]))
        total = both if len(self.names) > 1 else together
        arrays = {
            "statistic": total[:, 0],
            "null": total[:, 1:],
            "curves": curves[:, 0],
            "null_curves": curves[:, 1:],
            "statistics": statistics[..., 0].T,
            "null_statistics": statistics[..., 1:].swapaxes(0, 1),
            "curve_statistic": together[:, 0],
            "null_curve_statistic": together[:, 1:],
            "independence": independence[:, 0],
            "null_independence": independence[:, 1:],
            "correlation": correlations[:, 0],
            "x": observation.x.cpu().numpy(),
        }
        own: Any = {"space": "levels", "columns": list(self.names), "nulls": self.null}
        own["null"] = "uniform levels" if self.u_q is None else "exchange"
        own["k"] = None if self.u_q is None else self.u_q.shape[1]
        own |= {"near": self.near, "alphas": self.alphas.tolist(), "seed": self.seed}
        return LevelResult(
            **{name: observation.shaped(array) for name, array in arrays.items()},
            alphas=self.alphas,
            names=self.names,
            hypothesis=f"q(theta | x) = p(theta | x) {self.near.words}",
            settings=settings_of(self.kind, self.levels, **own),
            adjustment=MaxT(),
        )

    def curves(self, x_o: Tensor) -> np.ndarray:
        """Curves (o, H + 1, j, g) of all versions at observations with features (o, d)."""
        each = (self.null + 1) * len(self.names) * len(self.alphas) * 4
        return np.concatenate([self._curves_at(part) for part in x_o.split(max(1, ROOM // each))])

    def _curves_at(self, x_o: Tensor) -> np.ndarray:
        rows, weights = self._near_rows(x_o)
        edges = torch.from_numpy(self.alphas).to(self.levels.theta)

        def cumulate(h: int) -> Tensor:
            """Sums of weights (j, g, o) of the levels up to each alpha."""
            places = torch.bucketize(self.version(h, rows), edges)
            sums = weights.new_zeros(len(self.names), len(edges) + 1, len(x_o))
            for column, place in zip(sums, places.mT, strict=True):
                column.index_add_(0, place.contiguous(), weights)
            return sums[:, :-1].cumsum(1)

        versions = torch.stack(map_in_threads(cumulate, range(self.null + 1)))
        return versions.permute(3, 0, 1, 2).cpu().numpy()

    def correlations(self, x_o: Tensor) -> np.ndarray:
        r"""Correlations (o, H + 1, j, j) of normal scores in all versions near x_o.

        :math:`\rho_{ij} = \sum_n w_n (s_{ni} - \bar s_i)(s_{nj} - \bar s_j) / \sqrt{v_i v_j}`,
        with weights that add up to one.
        """
        rows, weights = self._near_rows(x_o)

        def correlate(h: int) -> Tensor:
            u = self.version(h, rows).double().clamp(NEAREST, 1 - NEAREST)
            scores = torch.special.ndtri(u.mT.contiguous())
            j = len(scores)
            i, k = torch.triu_indices(j, j, device=u.device)
            sums = (torch.cat([scores, scores[i] * scores[k]]) @ weights).mT
            mean, second = sums[:, :j], sums.new_zeros(len(sums), j, j)
            second[:, i, k] = second[:, k, i] = sums[:, j:]
            covariance = second - mean[:, :, None] * mean[:, None]
            spread = covariance.diagonal(dim1=1, dim2=2).clamp_min(LEAST_VARIANCE).sqrt()
            return covariance / (spread[:, :, None] * spread[:, None])

        versions = torch.stack(map_in_threads(correlate, range(self.null + 1)))
        return versions.swapaxes(0, 1).cpu().numpy()

    def version(self, h: int, rows: Tensor) -> Tensor:
        """Levels (b, j) of a version in some rows (b,)."""
        u, u_q = self.levels.theta, self.u_q
        if h == 0:
            return u[rows]
        generator = stream(self._own_seed, "null", h)
        if u_q is None:
            return cpu.rand(u.shape, generator=generator).to(u)[rows]
        label = cpu.randint(u_q.shape[1] + 1, (len(u),), generator=generator).to(rows.device)[rows]
        draws = u_q[rows, (label - 1).clamp_min(0)]
        return torch.where(label[:, None] == 0, u[rows], draws)

    @cached_property
    def _own_seed(self) -> int:
        return self.levels.with_members(self.levels.theta, self.u_q).own_seed(self.seed)

    def _near_rows(self, x_o: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (b,) near any of some observations (o, d), and their weights (b, o) there."""
        inside = self.near.inside(self.levels.features, x_o)
        rows = inside.any(0).nonzero().flatten()
        weights = inside.double() / inside.sum(1, keepdim=True)
        return rows, weights[:, rows].mT.contiguous()

    def __repr__(self) -> str:
        sizes = f"n={len(self.levels)}, names={self.names}, null={self.null}"
        return f"LevelTest({self.kind!r}, {sizes}, {self.near!r}, seed={self.seed})"
