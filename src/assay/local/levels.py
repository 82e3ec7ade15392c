r"""Local tests of levels: where the truth stands in q near x_o, and how such levels are spread.

A **level** is a number between 0 and 1 that is uniform if q is right. The *HPD level* is the share
of draws of q with a higher density than the truth, small in the middle of q and near one in its
tails. The *conditional PITs* are :math:`u_j = F_q(\theta_j \mid \theta_{<j}, x)`, which for
latents of a flow are :math:`\Phi(z_j)`. Given x, each is uniform on [0, 1] if q is right there,
and conditional PITs are independent of each other as well: together they say all there is to say
about q (Rosenblatt 1952), while an HPD level says only whether regions of q hold the truth as
often as they should.

A null copy has the same x and other levels. Either the **law is known**, and a copy consists of
fresh uniforms; or the truth **exchanges** its place with the k draws at the same x, whose levels
in their set are known too. The latter keeps whatever dependence there is between columns, so that
joint statements are exact for levels that were made from draws.

With weights :math:`w_n` around x_o, the distribution of levels there is estimated by

.. math:: \hat r(\alpha, x_o) = \frac{\sum_n w_n \, 1\{u_n \le \alpha\}}{\sum_n w_n}, \qquad
    T = \frac1g \sum_\alpha (\hat r(\alpha, x_o) - \alpha)^2.

Nothing is trained. Several sizes of a neighbourhood, or columns of levels, are combined by
:func:`assay.results.combined`, the same function for every copy. The curve that is shown is the
mean over the sizes. Its signed area between curve and diagonal is :math:`1/2 - E[u]`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

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
)
from .._support.parallel import spread_over
from .._support.random import Seed, seed_of, stream
from ..average.ranks import Quantity, Ranks, Values, log_densities, ranked
from ..classifiers.features import Whitened
from ..data.calibration import (
    FEWEST_ROWS,
    Calibration,
    Draws,
    Latents,
    Observation,
    check_calibration,
)
from ..data.posterior import Embed, StandardNormal
from ..data.tables import Layout
from ..neighbourhood import Distance, Nearest, as_nearest
from ..results import (
    LocalResult,
    MaxT,
    PPCurve,
    Rowed,
    combined,
    envelope,
    pvalue,
    versions,
)

# Sets whose members are ranked at a time.
RANKED_SETS = 2**14
# The levels at which curves are compared with the diagonal.
ALPHAS = tuple(round(0.05 * i, 2) for i in range(1, 20))
# Numbers in the largest table of curves that is held at a time.
ROOM = 2**25
# Null copies by default: they cost next to nothing.
NULLS = 999


@dataclass(frozen=True)
class Uniform:
    """Independent uniforms on [0, 1], the law of levels if q is right."""

    dim: int

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Returns n draws, with shape (n, j)."""
        return cpu.rand(n, self.dim, generator=generator)


@dataclass(frozen=True, eq=False)
class Levels:
    """Levels of the truths, with the observations they belong to.

    Args:
        u: Levels between 0 and 1, with shape (n,) or (n, j).
        x: The observations, with shape (n, ...).
        embed: As in :class:`assay.Calibration`.
        names: Names of the j columns.
        u_q: Levels of k draws of q at the same x, with shape (n, k, j), among which a null copy
            chooses who plays the truth; None where levels are independent uniforms if q is right,
            and a null copy is made of such.

    Example:
        >>> u, x = torch.rand(2, 100, generator=torch.Generator().manual_seed(0))
        >>> Levels(u, x[:, None])
        Levels(n=100, names=('u[0]',), law='uniform')
    """

    u: Tensor
    x: Tensor
    embed: Embed | None = None
    names: tuple[str, ...] = ()
    u_q: Tensor | None = None
    # The columns of x, if they have names.
    layout: Layout | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            u: Any,
            x: Any,
            embed: Embed | None = None,
            names: tuple[str, ...] = (),
            u_q: Any = None,
            *,
            layout: Layout | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        x = as_tensors({"x": self.x})["x"]
        u = _checked_levels("u", self.u, x)
        u = u[:, None] if u.ndim == 1 else u
        if u.ndim != 2 or x.ndim < 2 or len(u) != len(x) or len(u) < FEWEST_ROWS:
            raise ValueError(
                f"u: expected levels (n,) or (n, j) beside observations x (n, ...), with n of at "
                f"least {FEWEST_ROWS}; got {tuple(u.shape)} and {tuple(x.shape)}."
            )
        given: Any = self.names
        if isinstance(given, str):
            raise TypeError(f"names: expected a tuple of names; got {given!r}.")
        names = tuple(self.names) or tuple(f"u[{j}]" for j in range(u.shape[1]))
        if len(names) != u.shape[1]:
            raise ValueError(f"names: expected {u.shape[1]}, one a column; got {len(names)}.")
        u_q = None if self.u_q is None else _checked_levels("u_q", self.u_q, x)
        if u_q is not None and (u_q.ndim != 3 or u_q.shape[::2] != u.shape):
            raise ValueError(
                f"u_q: expected shape ({len(u)}, k, {u.shape[1]}), beside u; got "
                f"{tuple(u_q.shape)}."
            )
        for name, value in {"u": u, "x": x, "names": names, "u_q": u_q}.items():
            object.__setattr__(self, name, value)
        _ = self.calibration

    @classmethod
    def hpd(cls, calibration: Calibration, log_q: Quantity, seed: Seed = 0) -> "Levels":
        r"""HPD levels: the shares of draws of q with a higher density than the truth.

        With r such draws among k, the level is :math:`(r + V) / (k + 1)` with V uniform on [0, 1],
        which is exactly uniform for any k. Ties are broken by chance.

        Args:
            calibration: Pairs with k draws of q at each x.
            log_q: The log-density of q, as a function of matching rows theta (b, m) and x
                (b, ...), or its :class:`~assay.average.ranks.Values`; a constant for
                each x may be missing.
            seed: Breaks ties, and makes V.

        References:
            Zhao, Dalmasso, Izbicki and Lee 2021, *Diagnostics for Conditional Density Models and
            Bayesian Inference Algorithms*.

        Example:
            >>> theta_q = torch.randn(100, 20, 1, generator=torch.Generator().manual_seed(0))
            >>> far = Calibration(torch.full((100, 1), 9.0), theta_q[:, 0], theta_q)
            >>> levels = Levels.hpd(far, lambda theta, x: -theta[:, 0] ** 2 / 2)
            >>> bool((levels.u > 0.95).all())  # a truth in the tails of q
            True
        """
        check_calibration(calibration)
        densities, order = log_densities(calibration, log_q), calibration.order
        calibration = calibration.subset(order)
        values = Values(-densities.truth[order], -densities.draws[order])
        seed = calibration.own_seed(seed_of(seed))
        ranks = ranked(calibration, {"HPD level": values}, seed)
        given = ranks.levels(seed), calibration.x, calibration.embed, ("HPD level",)
        return cls(*given, layout=calibration.layout)

    @classmethod
    def pit(cls, calibration: Calibration, seed: Seed = 0) -> "Levels":
        r"""Conditional PITs, from latents of a flow or from draws of q.

        For **latents** with base N(0, I) they are :math:`\Phi(z_j)`, exactly.

        From **draws**, the truth and the k draws at the same x are whitened together by the
        Cholesky factor of their covariance, so that column j is what is left of theta_j after
        linear regression on theta_<j within the set, and each member is ranked among all. This is
        the Rosenblatt transform of a Gaussian q; for another q columns need not be independent of
        each other, but every member of a set is treated alike, so exchanges are exact.

        Args:
            calibration: Latents of a flow with base N(0, I), or pairs with k draws of q at each x.
            seed: Breaks ties, and makes levels of ranks.

        References:
            Linhart, Gramfort and Rodrigues 2022, *Validation Diagnostics for SBI algorithms based
            on Normalizing Flows*, arXiv 2211.09602.

        Example:
            >>> z, x = torch.randn(2, 100, 3, generator=torch.Generator().manual_seed(0))
            >>> Levels.pit(Calibration.from_base(z, x)).names
            ('z[0]', 'z[1]', 'z[2]')
        """
        check_calibration(calibration)
        calibration = calibration.sorted()
        x, embed, m = calibration.x, calibration.embed, calibration.m
        made = partial(cls, layout=calibration.layout)
        if not isinstance(calibration, Latents):
            Whitened().check(calibration.k or 0, m)
            u = _ranked_members(calibration, calibration.own_seed(seed_of(seed)))
            return made(u[:, 0], x, embed, _conditional(m), u[:, 1:])
        if not isinstance(calibration.base, StandardNormal):
            raise ValueError(
                "calibration: expected latents with base N(0, I), whose PITs are known; got "
                "another base. Give their levels as Levels(u, x)."
            )
        u = torch.special.ndtr(calibration.theta.double())
        return made(u, x, embed, tuple(f"z[{j}]" for j in range(m)))

    def __len__(self) -> int:
        return len(self.u)

    def __repr__(self) -> str:
        law = "uniform" if self.u_q is None else f"exchange among {self.u_q.shape[1] + 1}"
        return f"Levels(n={len(self)}, names={self.names}, law={law!r})"

    @cached_property
    def calibration(self) -> Calibration:
        """The levels as if they were parameters, and their law, if it is known, as if a base."""
        if self.u_q is not None:
            # Levels of draws are ranks in their set, which no independent draws would be.
            alone = Calibration(self.u, self.x, self.u, self.embed, layout=self.layout)
            return alone.with_members(self.u, self.u_q)
        base = Uniform(self.u.shape[1])
        return Latents(self.u, self.x, embed=self.embed, layout=self.layout, base=base)

    def sorted(self) -> "Levels":
        """The same levels in an order that x alone decides."""
        order = torch.as_tensor(self.calibration.order, device=self.u.device)
        u_q = None if self.u_q is None else self.u_q[order]
        return replace(self, u=self.u[order], x=self.x[order], u_q=u_q)

    def copies(self, n: int, seed: int) -> "LevelCopies":
        """The data and n null copies, made by seed and x, in an order that x alone decides."""
        return LevelCopies(self.sorted(), n, seed)


@dataclass(frozen=True, eq=False)
class LevelCopies:
    """The levels of the data and of n null copies, which share the same x."""

    levels: Levels
    n: int
    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("null", self.n))

    def __len__(self) -> int:
        return self.n + 1

    def __call__(self, h: int, rows: Tensor) -> Tensor:
        """Levels (b, j) of copy h in some rows (b,); copy 0 is the data."""
        u, u_q = self.levels.u, self.levels.u_q
        if h == 0:
            return u[rows]
        generator = stream(self._mixed, "null", h)
        if u_q is None:
            return cpu.rand(u.shape, generator=generator).to(u)[rows]
        who = cpu.randint(u_q.shape[1] + 1, (len(u),), generator=generator).to(rows.device)
        return self._members[rows, who[rows]]

    @cached_property
    def _members(self) -> Tensor:
        """Levels (n, k + 1, j) of all who may play the truth."""
        assert self.levels.u_q is not None
        return torch.cat([self.levels.u[:, None], self.levels.u_q], 1)

    @cached_property
    def _mixed(self) -> int:
        return self.levels.calibration.own_seed(self.seed)


def _checked_levels(name: str, given: Any, x: Tensor) -> Tensor:
    """Levels in the precision of x, so that an embedding of x gets what it expects."""
    u = as_tensors({name: given})[name].to(x)
    outside = ~((u >= 0) & (u <= 1))
    if outside.any():
        raise ValueError(
            f"{name}: expected levels between 0 and 1; got {int(outside.sum())} of {u.numel()} "
            "outside, or NaN."
        )
    return u


def _conditional(m: int) -> tuple[str, ...]:
    given = ("", " | theta[0]", *(f" | theta[<{j}]" for j in range(2, m)))
    return tuple(f"theta[{j}]{given[j]}" for j in range(m))


def _ranked_members(calibration: Calibration, seed: int) -> np.ndarray:
    """Levels (n, k + 1, m) of all members of each set, the truth first."""
    members = calibration.members
    # In random order, so that chance and not the place in the set decides between ties.
    order = cpu.rand(members.shape[:2], generator=stream(seed, "ties")).argsort(1)
    index = order.to(members.device)[..., None].expand_as(members)
    white = torch.cat([Whitened()(part) for part in members.gather(1, index).split(RANKED_SETS)])
    ranks = white.argsort(dim=1, stable=True).argsort(1)
    back = torch.empty_like(ranks).scatter_(1, index, ranks)
    n, r, m = members.shape
    table = Ranks(back.reshape(n, r * m).cpu().numpy(), r - 1, ())
    return table.levels(seed).reshape(n, r, m)


@dataclass(frozen=True, eq=False)
class Around:
    """The rows (b,) that have weight around o observations, at c sizes; shape is (o, c).

    Weights (b, o c) in double precision add up to one.
    """

    rows: Tensor
    weights: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(cls, where: Nearest, copies: LevelCopies, x_o: Tensor) -> "Around":
        """The weights of some observations (o, d)."""
        weights = where.inside(copies.levels.calibration.features, x_o).double()[:, None]
        rows = (weights != 0).any(1).any(0).nonzero().flatten()
        shares = weights / weights.sum(2, keepdim=True)
        o, c, _ = weights.shape
        return cls(rows, shares[..., rows].flatten(0, 1).mT.contiguous(), (o, c))

    @property
    def pairs(self) -> np.ndarray:
        """Effective numbers of pairs (o, c): one over the sum of squared shares."""
        pairs = 1 / self.weights.square().sum(0)
        return np.asarray(pairs.unflatten(0, self.shape).cpu().numpy())

    def spread(self, function: Callable[[int], Any], copies: int) -> Iterable[Any]:
        """A function of each copy, in order, over the threads there are."""
        workers = torch.get_num_threads() if self.rows.device.type == "cpu" else 1
        with spread_over(workers if copies > 1 else 1) as apply:
            yield from apply(function, range(copies))


def null_band(null: np.ndarray, axis: int) -> np.ndarray:
    """The 2.5 and 97.5 % quantiles of null copies, beyond each of which 2.5 % of data lie."""
    # One of H + 1 values that are alike is beyond the i-th of the others in H + 1 - i cases.
    return np.asarray(np.quantile(null, [0.025, 0.975], axis=axis, method="weibull"))


@dataclass(frozen=True, eq=False)
class Band(Rowed):
    """A number for each column (j,) or (o, j), and the 2.5 and 97.5 % quantiles of its null."""

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @property
    def sign(self) -> np.ndarray:
        """1 above the null band, -1 below it, 0 within."""
        return np.asarray((self.value > self.upper).astype(int) - (self.value < self.lower))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LevelResult(LocalResult):
    """What a local test of levels found at one observation, or at o of them.

    Args:
        alphas: The levels, with shape (g,).
        curves: Estimates of P(u <= alpha) at x_o, with shape (j, g) or (o, j, g).
        null_curves: The same for the null copies, with shape (H, j, g) or (o, H, j, g).
        statistics: The statistic of each column, with shape (j,) or (o, j).
        null_statistics: Its values for the null copies, with shape (j, H) or (o, j, H).
        names: The names of the columns.
    """

    alphas: np.ndarray
    curves: np.ndarray
    null_curves: np.ndarray
    statistics: np.ndarray
    null_statistics: np.ndarray
    names: tuple[str, ...]
    shared: ClassVar[tuple[str, ...]] = ("alphas",)

    @property
    def pvalues(self) -> np.ndarray:
        """The p-value of each column, with shape (j,) or (o, j)."""
        return pvalue(self.statistics, self.null_statistics)

    @property
    def area(self) -> Band:
        """The signed area between curve and diagonal: positive where u is too small."""
        return self._band(lambda alphas: np.ones_like(alphas))

    @property
    def width(self) -> Band:
        """How much nearer to 1/2 u is than it should be: positive where PITs crowd in the middle.

        It is 1/4 less the mean of |u - 1/2|, the area right of 1/2 less that left of it.
        """
        return self._band(lambda alphas: np.sign(alphas - 0.5))

    def bands(self, alpha: float = 0.05) -> PPCurve:
        """The curves, (j, g) or (o, j, g), with pointwise and simultaneous null bands."""
        check_share("alpha", alpha)
        shape = self.curves.shape[:-1]
        data = self.curves.reshape(-1, 1, self.curves.shape[-1])
        null = np.moveaxis(self.null_curves, -3, -2).reshape(len(data), -1, data.shape[-1])
        each = [envelope(np.concatenate(pair), alpha) for pair in zip(data, null, strict=True)]
        fields = {name: np.stack([curve[name] for curve in each]) for name in each[0]}
        shaped = {name: v.reshape(*shape, *v.shape[1:]) for name, v in fields.items()}
        return PPCurve(self.alphas, **shaped, alpha=alpha)

    def _band(self, weigh: Any) -> Band:
        """A linear functional of the curves, as an integral over the levels, with its null."""
        edges = np.concatenate([[0.0], self.alphas, [1.0]])
        # The trapezoidal rule, with both ends on the diagonal.
        shares = 0.5 * (edges[2:] - edges[:-2]) * weigh(self.alphas)
        value, null = ((c - self.alphas) @ shares for c in (self.curves, self.null_curves))
        return Band(np.asarray(value), *null_band(null, -2))

    @property
    def _end(self) -> str:
        """P-value and sizes, in the brackets that end a sentence."""
        s, h = self.settings, self.null.shape[-1]
        return f"({s['test']}, {s['n']} calibration pairs, {h} nulls)"

    @property
    def _many(self) -> str:
        """The sentence on many observations."""
        return f"{self._counted} {self._end}. {self._adjusted_by}"


@dataclass(frozen=True, eq=False)
class CurvesAt:
    """Curves (o, H + 1, j, g), mean over the sizes, and statistics (c, j, o, H + 1)."""

    curves: np.ndarray
    statistics: np.ndarray

    @property
    def columns(self) -> np.ndarray:
        """The statistics of each column, combined over sizes, with shape (j, o, H + 1)."""
        return combined(self.statistics)

    @property
    def total(self) -> np.ndarray:
        """One statistic for all columns and sizes, with shape (o, H + 1)."""
        return combined(self.statistics.reshape(-1, *self.statistics.shape[2:]))

    @property
    def fields(self) -> dict[str, np.ndarray]:
        """What a result shows of it, with a leading axis of observations."""
        columns = self.columns.swapaxes(0, 1)
        return {
            "curves": self.curves[:, 0],
            "null_curves": self.curves[:, 1:],
            "statistics": columns[..., 0],
            "null_statistics": columns[..., 1:],
        }


@dataclass(frozen=True, eq=False, repr=False)
class LevelTest:
    """A local test of levels; call it with x_o: it needs no draws of q there.

    Curves are compared with the diagonal at alphas (g,).
    """

    TEST: ClassVar[str]

    copies: LevelCopies
    where: Nearest
    alphas: np.ndarray

    def _observation(self, draws: Any) -> Observation:
        return self.copies.levels.calibration.observation(Draws.of(draws))

    def _claim(self, observation: Observation, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a result: its claim, and arrays shaped as observations are."""
        levels = self.copies.levels
        return {
            **{name: observation.shaped(array) for name, array in arrays.items()},
            "alphas": self.alphas,
            "x": observation.shaped(observation.x.cpu().numpy()),
            "names": levels.names,
            "hypothesis": f"q(theta | x) = p(theta | x) {self.where.words}",
            "settings": self.settings,
            "adjustment": MaxT(),
        }

    def _curves(self, observation: Observation) -> CurvesAt:
        """Curves and statistics, a few observations at a time."""
        each = len(self.copies) * self.copies.levels.u.shape[1] * len(self.alphas) * 4
        parts = [self._at(x_o) for x_o in observation.features.split(max(1, ROOM // each))]
        curves, statistics = zip(*parts, strict=True)
        return CurvesAt(np.concatenate(curves), np.concatenate(statistics, 2))

    def _at(self, x_o: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Curves (o, H + 1, j, g) and statistics (c, j, o, H + 1) at observations (o, d)."""
        curves = weighted_curves(Around.of(self.where, self.copies, x_o), self.copies, self.alphas)
        distances = np.square(curves - self.alphas).mean(-1)
        return curves.mean(0), distances.transpose(0, 3, 1, 2)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and versions that made this test, as plain values."""
        levels = self.copies.levels
        return {
            "test": self.TEST,
            "n": len(levels),
            "columns": list(levels.names),
            "d": levels.calibration.features.shape[1],
            "null": "uniform levels" if levels.u_q is None else "exchange",
            "k": None if levels.u_q is None else levels.u_q.shape[1],
            "nulls": self.copies.n,
            "near": repr(self.where),
            "alphas": self.alphas.tolist(),
            "seed": self.copies.seed,
            "device": str(levels.u.device),
            **versions(),
        }

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.copies.levels!r}, {self.where!r}, "
            f"null={self.copies.n}, seed={self.copies.seed})"
        )


def weighted_curves(around: Around, copies: LevelCopies, alphas: np.ndarray) -> np.ndarray:
    """Estimates of r, with shape (c, o, H + 1, j, g), from weights around o observations."""
    edges = torch.from_numpy(alphas).to(copies.levels.u)
    g, columns = len(edges), copies.levels.u.shape[1]

    def counts(h: int) -> Tensor:
        """Sums of weights (j, g, o c) of the levels up to each alpha, for copy h."""
        bins = torch.bucketize(copies(h, around.rows), edges)
        sums = around.weights.new_zeros(columns, g + 1, around.weights.shape[1])
        for total, places in zip(sums, bins.mT, strict=True):
            total.index_add_(0, places.contiguous(), around.weights)
        return sums[:, :g].cumsum(1)

    stacked = torch.stack(list(around.spread(counts, len(copies))))
    curves = stacked.unflatten(3, around.shape).permute(4, 3, 0, 1, 2)
    return np.asarray(curves.cpu().numpy())


def level_test(levels: Levels, near: Any, null: Any, alphas: Any, seed: Seed) -> dict[str, Any]:
    """Checks the arguments of a test of levels, and returns its fields."""
    near = as_nearest(near)
    near = near if near.distance is not None else replace(near, distance=Distance())
    copies, grid = levels.copies(NULLS if null is None else null, seed_of(seed)), _grid(alphas)
    check_fits("null", copies.n, WORD * levels.u.shape[1] * len(grid))
    return {"copies": copies, "where": near, "alphas": grid}


def _grid(alphas: Any) -> np.ndarray:
    """Levels in rising order, strictly between 0 and 1."""
    (given,) = as_tensors({"alphas": alphas}).values()
    check_count("numbers of alphas", given.numel(), 1, MOST_SQUARED)
    grid = np.unique(given.double().cpu().numpy())
    if given.ndim > 1 or not ((grid > 0) & (grid < 1)).all():
        raise ValueError(
            f"alphas: expected levels above 0 and below 1, since curves are known there; got "
            f"{given.tolist()}."
        )
    return grid
