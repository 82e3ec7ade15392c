r"""Levels: where the truth stands in q, as a number between 0 and 1 that is uniform if q is right.

The *HPD level* is the share of draws of q with a higher density than the truth, small in the
middle of q and near one in its tails. The *conditional PITs* are :math:`u_j = F_q(\theta_j \mid
\theta_{<j}, x)`, which for latents of a flow are :math:`\Phi(z_j)`. Given x, each is uniform on
[0, 1] if q is right there, and conditional PITs are independent of each other as well: together
they say all there is to say about q (Rosenblatt 1952), while an HPD level says only whether
regions of q hold the truth as often as they should.

A null copy has the same x and other levels. Either the **law is known**, and a copy consists of
fresh uniforms; or the truth **exchanges** its place with the k draws at the same x, whose levels
in their set are known too. The latter keeps whatever dependence there is between columns, so that
joint statements are exact for levels that were made from draws.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .bases import StandardNormal
from .coordinates import Whitened
from .door import as_tensors, check_count, check_kind
from .randomness import Seed, seed_of, stream
from .ranks import Quantity, Ranks, Values, log_densities, ranked
from .samples import FEWEST_ROWS, Calibration, Embed

__all__ = ["LevelCopies", "Levels", "Uniform"]

# Sets whose members are ranked at a time.
SETS = 2**14


@dataclass(frozen=True)
class Uniform:
    """Independent uniforms on [0, 1], the law of levels if q is right."""

    dim: int

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Returns n draws, with shape (n, j)."""
        return torch.rand(n, self.dim, generator=generator)


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

    if TYPE_CHECKING:

        def __init__(
            self,
            u: Any,
            x: Any,
            embed: Embed | None = None,
            names: tuple[str, ...] = (),
            u_q: Any = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        x = as_tensors({"x": self.x})["x"]
        u = _column(_checked("u", self.u, x))
        if u.ndim != 2 or len(u) != len(x) or x.ndim < 2 or len(u) < FEWEST_ROWS:
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
        u_q = None if self.u_q is None else _checked("u_q", self.u_q, x)
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
                (b, ...), or its :class:`~assay.ranks.Values`; a constant for each x may be
                missing.
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
        check_kind("calibration", calibration, "a Calibration", "theta_q", "features")
        found, order = log_densities(calibration, log_q), calibration.order
        calibration = calibration.subset(order)
        values = Values(-found.truth[order], -found.draws[order])
        seed = calibration.mix(seed_of(seed))
        ranks = ranked(calibration, {"HPD level": values}, seed)
        return cls(ranks.levels(seed), calibration.x, calibration.embed, ("HPD level",))

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
        check_kind("calibration", calibration, "a Calibration", "theta_q", "features")
        calibration = calibration.sorted()
        x, embed, m = calibration.x, calibration.embed, calibration.m
        if calibration.theta_q is not None:
            Whitened().check(calibration.theta_q.shape[1], m)
            u = _ranked_members(calibration, calibration.mix(seed_of(seed)))
            return cls(u[:, 0], x, embed, _conditional(m), u[:, 1:])
        if not isinstance(calibration.base, StandardNormal):
            raise ValueError(
                "calibration: expected latents with base N(0, I), whose PITs are known; got "
                "another base. Give their levels as Levels(u, x)."
            )
        u = torch.special.ndtr(calibration.theta.double())
        return cls(u, x, embed, tuple(f"z[{j}]" for j in range(m)))

    @classmethod
    def from_ranks(cls, ranks: Any, k: int, x: Any, seed: Seed = 0) -> "Levels":
        """Levels of ranks that were saved, exactly uniform for any k.

        Args:
            ranks: How many of k draws of q were below the truth, in whatever respect, with shape
                (n,) or (n, j); for HPD values, how many had a higher density.
            k: The number of draws.
            x: The observations, with shape (n, ...).
            seed: Spreads a rank over its share of [0, 1].

        Example:
            >>> ranks, x = torch.arange(11), torch.arange(11.0)[:, None]
            >>> Levels.from_ranks(ranks, 10, x).u.shape
            torch.Size([11, 1])
        """
        check_count("k", k)
        whole = as_tensors({"ranks": ranks})["ranks"]
        if ((whole < 0) | (whole > k) | (whole != whole.round())).any():
            raise ValueError(f"ranks: expected whole numbers from 0 to {k}; got others.")
        # Levels that are in order only serve to check shapes and to find the order of rows.
        given = cls(whole / k, x)
        order = given.calibration.order
        table = Ranks(_column(whole)[order].cpu().numpy(), k, given.names)
        return cls(table.levels(given.sorted().calibration.mix(seed_of(seed))), given.x[order])

    def __len__(self) -> int:
        return len(self.u)

    def __repr__(self) -> str:
        law = "uniform" if self.u_q is None else f"exchange among {self.u_q.shape[1] + 1}"
        return f"Levels(n={len(self)}, names={self.names}, law={law!r})"

    @cached_property
    def calibration(self) -> Calibration:
        """The levels as if they were parameters, and their law, if it is known, as if a base."""
        base = Uniform(self.u.shape[1]) if self.u_q is None else None
        return Calibration(self.u, self.x, self.u_q, self.embed, base=base)

    def sorted(self) -> "Levels":
        """The same levels in an order that x alone decides."""
        order = torch.as_tensor(self.calibration.order, device=self.u.device)
        u_q = None if self.u_q is None else self.u_q[order]
        return replace(self, u=self.u[order], x=self.x[order], u_q=u_q)

    def copies(self, n: int, seed: int) -> "LevelCopies":
        """The data, and n null copies of it, in an order that x alone decides.

        Args:
            n: The number of null copies.
            seed: Makes them, together with x.
        """
        return LevelCopies(self.sorted(), n, seed)


@dataclass(frozen=True, eq=False)
class LevelCopies:
    """The levels of the data and of n null copies, which share the same x.

    Args:
        levels: The data.
        n: The number of null copies.
        seed: Makes them, together with x.
    """

    levels: Levels
    n: int
    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("nulls", self.n))

    def __len__(self) -> int:
        return self.n + 1

    def __call__(self, h: int, rows: Tensor) -> Tensor:
        """Levels (b, j) of copy h in some rows (b,); copy 0 is the data."""
        u, u_q = self.levels.u, self.levels.u_q
        if h == 0:
            return u[rows]
        generator = stream(self._mixed, "null", h)
        if u_q is None:
            return torch.rand(u.shape, generator=generator).to(u)[rows]
        who = torch.randint(u_q.shape[1] + 1, (len(u),), generator=generator).to(rows.device)
        return self._members[rows, who[rows]]

    @cached_property
    def _members(self) -> Tensor:
        """Levels (n, k + 1, j) of all who may play the truth."""
        assert self.levels.u_q is not None
        return torch.cat([self.levels.u[:, None], self.levels.u_q], 1)

    @cached_property
    def _mixed(self) -> int:
        return self.levels.calibration.mix(self.seed)


def _column(array: Tensor) -> Tensor:
    return array[:, None] if array.ndim == 1 else array


def _checked(name: str, given: Any, x: Tensor) -> Tensor:
    """Levels in the precision of x, so that an embedding of x gets what it expects."""
    u = as_tensors({name: given})[name].to(x)
    outside = ~((u >= 0) & (u <= 1))
    if outside.any():
        raise ValueError(
            f"{name}: expected levels between 0 and 1; got {int(outside.sum())} of {u.numel()} "
            "outside, or NaN. Ranks need Levels.from_ranks(ranks, k, x)."
        )
    return u


def _conditional(m: int) -> tuple[str, ...]:
    given = ("", " | theta[0]", *(f" | theta[<{j}]" for j in range(2, m)))
    return tuple(f"theta[{j}]{given[j]}" for j in range(m))


def _ranked_members(calibration: Calibration, seed: int) -> np.ndarray:
    """Levels (n, k + 1, m) of all members of each set, the truth first."""
    assert calibration.theta_q is not None
    members = torch.cat([calibration.theta[:, None], calibration.theta_q], 1)
    # In random order, so that chance and not the place in the set decides between ties.
    order = torch.rand(members.shape[:2], generator=stream(seed, "ties")).argsort(1)
    index = order.to(members.device)[..., None].expand_as(members)
    white = torch.cat([Whitened()(part) for part in members.gather(1, index).split(SETS)])
    ranks = white.argsort(dim=1, stable=True).argsort(1)
    back = torch.empty_like(ranks).scatter_(1, index, ranks)
    n, r, m = members.shape
    table = Ranks(back.reshape(n, r * m).cpu().numpy(), r - 1, ())
    return table.levels(seed).reshape(n, r, m)
