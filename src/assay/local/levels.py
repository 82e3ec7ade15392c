r"""Local tests of levels: how the levels of true parameters in q are distributed near x_o.

A **level** is a number between 0 and 1 that is uniform if q is right. The *HPD level* is the share
of draws of q with a higher density than the true parameter. The *conditional PITs* are
:math:`u_j = F_q(\theta_j \mid \theta_{<j}, x)`, which for latents of a flow are
:math:`\Phi(z_j)`. If q is right, they are independent of each other, too: together they determine
q (Rosenblatt 1952).

A null copy has the same x and other levels: fresh uniforms, or, where the levels of the k draws at
the same x are known, those of a random member of each set. The latter keeps whatever dependence
there is between columns, so that joint statements are exact. Among the w nearest simulations,

.. math:: \hat r(\alpha, x_o) = \frac1w \#\{n \text{ near } x_o: u_n \le \alpha\}, \qquad
    T = \frac1g \sum_\alpha (\hat r(\alpha, x_o) - \alpha)^2.

Columns of levels are combined by :func:`assay.results.combined`, the same function for every copy.
The signed area between curve and diagonal is :math:`1/2 - E[u]`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
)
from .._support.random import Seed, seed_of, stream
from .._support.work import spread_over
from ..average.ranks import Quantity, levels_of, log_densities, rank
from ..classifiers.features import Whitened
from ..data.calibration import Calibration, Latents, Observation
from ..data.draw import Draws
from ..data.guards import FEWEST_ROWS, check_calibration
from ..data.posterior import Embed, StandardNormal
from ..data.tables import Layout
from ..neighbourhood import Distance, Nearest, as_nearest
from ..results import LocalResult, MaxT, PPCurve, envelope, pvalue, settings_of

# Sets whose members are ranked at a time.
RANKED_SETS = 2**14
# The levels at which curves are compared with the diagonal.
ALPHAS = tuple(round(0.05 * i, 2) for i in range(1, 20))
# Numbers in the largest table of curves that is held at a time.
ROOM = 2**25
# Null copies by default: they cost next to nothing.
NULLS = 999


@dataclass(frozen=True, eq=False)
class Levels:
    """Levels of the true parameters, with the observations they belong to.

    Args:
        u: Levels between 0 and 1, with shape (n,) or (n, j).
        x: The observations, with shape (n, ...).
        embed: As in :class:`assay.Calibration`.
        names: Names of the j columns.
        u_q: Levels of k draws of q at the same x, with shape (n, k, j), from which a null copy
            takes some in place of `u`; None where levels are independent uniforms if q is right,
            and a null copy consists of such.

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

    def __post_init__(self) -> None:
        x = as_tensors({"x": self.x})["x"]
        u = _check_levels("u", self.u, x)
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
        u_q = None if self.u_q is None else _check_levels("u_q", self.u_q, x)
        if u_q is not None and (u_q.ndim != 3 or u_q.shape[::2] != u.shape):
            raise ValueError(
                f"u_q: expected shape ({len(u)}, k, {u.shape[1]}), beside u; got "
                f"{tuple(u_q.shape)}."
            )
        vars(self).update(u=u, x=x, names=names, u_q=u_q)
        _ = self.calibration

    @classmethod
    def hpd(cls, calibration: Calibration, log_q: Quantity, seed: Seed = 0) -> Self:
        r"""HPD levels: the shares of draws of q with a higher density than the true parameter.

        With r such draws among k, the level is :math:`(r + V) / (k + 1)` with V uniform on [0, 1],
        which is exactly uniform for any k. The seed breaks ties, and makes V. Arguments are those
        of :func:`assay.lhpd`.

        Example:
            >>> theta_q = torch.randn(100, 20, 1, generator=torch.Generator().manual_seed(0))
            >>> far = Calibration(torch.full((100, 1), 9.0), theta_q[:, 0], theta_q)
            >>> levels = Levels.hpd(far, lambda theta, x: -theta[:, 0] ** 2 / 2)
            >>> bool((levels.u > 0.95).all())  # true parameters in the tails of q
            True
        """
        check_calibration(calibration)
        densities = log_densities(calibration, log_q)
        true, draws = (-part[calibration.order] for part in densities)
        calibration = calibration.sorted()
        seed = calibration.own_seed(seed_of(seed))
        ranks = rank(calibration, {"HPD level": (true, draws)}, seed)
        u = torch.from_numpy(levels_of(ranks, draws.shape[1], seed))
        embed, layout = calibration.embed, calibration.layout
        return cls(u, calibration.x, embed, ("HPD level",), layout=layout)

    @classmethod
    def pit(cls, calibration: Calibration, seed: Seed = 0) -> Self:
        r"""Conditional PITs, from latents of a flow or from draws of q.

        For **latents** with base N(0, I) they are :math:`\Phi(z_j)`, exactly.

        From **draws**, the true parameter and the k draws at the same x are whitened together by
        the Cholesky factor of their covariance, so that column j is what is left of theta_j after
        linear regression on theta_<j within the set, and each member is ranked among all. This is
        the Rosenblatt transform of a Gaussian q; for another q columns need not be independent of
        each other, but every member of a set is treated alike, so exchanges are exact. The seed
        breaks ties, and makes levels of ranks.

        Example:
            >>> z, x = torch.randn(2, 100, 3, generator=torch.Generator().manual_seed(0))
            >>> Levels.pit(Calibration.from_base(z, x)).names
            ('z[0]', 'z[1]', 'z[2]')
        """
        check_calibration(calibration)
        calibration, m = calibration.sorted(), calibration.m
        x, embed, layout = calibration.x, calibration.embed, calibration.layout
        if not isinstance(calibration, Latents):
            Whitened().check(calibration.k or 0, m)
            u = _levels_of_members(calibration, calibration.own_seed(seed_of(seed)))
            given = ("", " | theta[0]", *(f" | theta[<{j}]" for j in range(2, m)))
            names = tuple(f"theta[{j}]{given[j]}" for j in range(m))
            return cls(u[:, 0], x, embed, names, u[:, 1:], layout=layout)
        if not isinstance(calibration.base, StandardNormal):
            raise ValueError(
                "calibration: expected latents with base N(0, I), whose PITs are known; got "
                "another base. Give their levels as Levels(u, x)."
            )
        u = torch.special.ndtr(calibration.theta.double())
        return cls(u, x, embed, tuple(f"z[{j}]" for j in range(m)), layout=layout)

    def __len__(self) -> int:
        return len(self.u)

    def __repr__(self) -> str:
        law = "uniform" if self.u_q is None else f"exchange among {self.u_q.shape[1] + 1}"
        return f"Levels(n={len(self)}, names={self.names}, law={law!r})"

    @cached_property
    def calibration(self) -> Calibration:
        """The levels as if they were parameters, which has features, an order and a seed."""
        base = StandardNormal(self.u.shape[1])  # of which nothing is sampled here
        pairs = Latents(self.u, self.x, embed=self.embed, layout=self.layout, base=base)
        return pairs.with_members(self.u, self.u_q)

    def sorted(self) -> Self:
        """The same levels in an order that x alone decides."""
        order = torch.as_tensor(self.calibration.order, device=self.u.device)
        u_q = None if self.u_q is None else self.u_q[order]
        return replace(self, u=self.u[order], x=self.x[order], u_q=u_q)


def _check_levels(name: str, given: Any, x: Tensor) -> Tensor:
    """Levels in the precision of x, so that an embedding of x gets what it expects."""
    u = as_tensors({name: given})[name].to(x)
    outside = ~((u >= 0) & (u <= 1))
    if outside.any():
        raise ValueError(
            f"{name}: expected levels between 0 and 1; got {int(outside.sum())} of {u.numel()} "
            "outside, or NaN."
        )
    return u


def _levels_of_members(calibration: Calibration, seed: int) -> Tensor:
    """Levels (n, k + 1, m) of all members of each set, the true parameter first."""
    members = calibration.members
    # In random order, so that chance and not the place in the set decides between ties.
    order = cpu.rand(members.shape[:2], generator=stream(seed, "ties")).argsort(1)
    index = order.to(members.device)[..., None].expand_as(members)
    white = torch.cat([Whitened()(part) for part in members.gather(1, index).split(RANKED_SETS)])
    ranks = white.argsort(dim=1, stable=True).argsort(1)
    ranks = torch.empty_like(ranks).scatter_(1, index, ranks)
    return torch.from_numpy(levels_of(ranks.cpu().numpy(), members.shape[1] - 1, seed))


@dataclass(frozen=True, eq=False)
class Band:
    """A number for each column (j,) or (o, j), and the 2.5 and 97.5 % quantiles of its null."""

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
        shape = self.curves.shape[:-1]
        data = self.curves.reshape(-1, 1, self.curves.shape[-1])
        null = np.moveaxis(self.null_curves, -3, -2).reshape(len(data), -1, data.shape[-1])
        each = [envelope(np.concatenate(pair), alpha) for pair in zip(data, null, strict=True)]
        fields = {name: np.stack([curve[name] for curve in each]) for name in each[0]}
        shaped = {name: v.reshape(*shape, *v.shape[1:]) for name, v in fields.items()}
        return PPCurve(self.alphas, **shaped, alpha=alpha)

    @property
    def _end(self) -> str:
        """Test and sizes, in the brackets that end a sentence."""
        s, h = self.settings, self.null.shape[-1]
        return f"({s['test']}, {s['n']} calibration pairs, {h} nulls)"

    @property
    def _many(self) -> str:
        """The sentence on many observations."""
        return f"{self._counted} {self._end}. {self._adjusted_by}"


@dataclass(frozen=True, eq=False, repr=False)
class LevelTest:
    """A local test of levels; call it with x_o: it needs no draws of q there.

    Version 0 of the levels is the data; `null` others share its x. Curves are compared with the
    diagonal at alphas (g,).
    """

    TEST: ClassVar[str]

    levels: Levels  # in an order that x alone decides
    near: Nearest
    null: int
    alphas: np.ndarray
    seed: int

    @classmethod
    def of(cls, levels: Levels, near: Any, null: Any, alphas: Any, seed: Seed) -> Self:
        """Checks the arguments of a test."""
        near = as_nearest(near)
        near = near if near.distance is not None else replace(near, distance=Distance())
        null, grid = check_count("null", NULLS if null is None else null), _check_grid(alphas)
        check_fits("null", null, WORD * levels.u.shape[1] * len(grid))
        return cls(levels.sorted(), near, null, grid, seed_of(seed))

    def version(self, h: int, rows: Tensor) -> Tensor:
        """Levels (b, j) of a version in some rows (b,)."""
        u, u_q = self.levels.u, self.levels.u_q
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
        return self.levels.calibration.own_seed(self.seed)

    def _of_versions(self, function: Callable[[int], Tensor]) -> Tensor:
        """Values (H + 1, ...) of a function of every version, over the threads there are."""
        here = self.levels.u.device.type == "cpu"
        with spread_over(torch.get_num_threads() if here else 1) as apply:
            return torch.stack(list(apply(function, range(self.null + 1))))

    def _near_rows(self, x_o: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (b,) near any of some observations (o, d), and their weights (b, o) there."""
        inside = self.near.inside(self.levels.calibration.features, x_o)
        rows = inside.any(0).nonzero().flatten()
        weights = inside.double() / inside.sum(1, keepdim=True)
        return rows, weights[:, rows].mT.contiguous()

    def curves(self, x_o: Tensor) -> np.ndarray:
        """Curves (o, H + 1, j, g) of all versions at observations with features (o, d)."""
        each = (self.null + 1) * self.levels.u.shape[1] * len(self.alphas) * 4
        return np.concatenate([self._curves_at(part) for part in x_o.split(max(1, ROOM // each))])

    def _curves_at(self, x_o: Tensor) -> np.ndarray:
        rows, weights = self._near_rows(x_o)
        edges = torch.from_numpy(self.alphas).to(self.levels.u)
        g, j = len(self.alphas), self.levels.u.shape[1]

        def cumulate(h: int) -> Tensor:
            """Sums of weights (j, g, o) of the levels up to each alpha."""
            bins = torch.bucketize(self.version(h, rows), edges)
            sums = weights.new_zeros(j, g + 1, len(x_o))
            for column, places in zip(sums, bins.mT, strict=True):
                column.index_add_(0, places.contiguous(), weights)
            return sums[:, :g].cumsum(1)

        return self._of_versions(cumulate).permute(3, 0, 1, 2).cpu().numpy()

    def statistics(self, curves: np.ndarray) -> np.ndarray:
        """Mean squared distances (j, o, H + 1) of curves (o, H + 1, j, g) from the diagonal."""
        return np.square(curves - self.alphas).mean(-1).transpose(2, 0, 1)

    def _observe(self, draws: Any) -> Observation:
        return self.levels.calibration.observation(Draws.of(draws))

    def _fields(
        self, observation: Observation, curves: np.ndarray, total: np.ndarray, **own: np.ndarray
    ) -> dict[str, Any]:
        """The fields of a result, from curves (o, H + 1, j, g) and statistics (o, H + 1)."""
        columns = self.statistics(curves).swapaxes(0, 1)
        arrays = {
            "statistic": total[:, 0],
            "null": total[:, 1:],
            "curves": curves[:, 0],
            "null_curves": curves[:, 1:],
            "statistics": columns[..., 0],
            "null_statistics": columns[..., 1:],
            "x": observation.x.cpu().numpy(),
        }
        return {
            **{name: observation.shaped(array) for name, array in (arrays | own).items()},
            "alphas": self.alphas,
            "names": self.levels.names,
            "hypothesis": f"q(theta | x) = p(theta | x) {self.near.words}",
            "settings": self.settings,
            "adjustment": MaxT(),
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and versions that determine this test, as plain values."""
        levels = self.levels
        own = {"near": self.near, "alphas": self.alphas.tolist(), "seed": self.seed}
        null = "uniform levels" if levels.u_q is None else "exchange"
        columns = list(levels.names)
        return settings_of(
            self.TEST,
            levels.calibration,
            **{"space": "levels", "columns": columns, "null": null, "nulls": self.null, **own},
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.levels!r}, {self.near!r}, null={self.null}, "
            f"seed={self.seed})"
        )


def _check_grid(alphas: Any) -> np.ndarray:
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
