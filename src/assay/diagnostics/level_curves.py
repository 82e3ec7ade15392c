r"""What local tests of levels share: curves at x_o, their distance from the diagonal, their nulls.

For levels u that are uniform given x if q is right, a regression estimates
:math:`r(\alpha, x) = P(u \le \alpha \mid x)`. The statistic at x_o is, as published,

.. math:: T = \frac1g \sum_\alpha (\hat r(\alpha, x_o) - \alpha)^2.

Where a regression has several sizes, or levels several columns, their statistics are combined by
:func:`assay.results.combined`, the same function for every copy. The curve that is shown is the
mean over the sizes. Its signed area between curve and diagonal is :math:`1/2 - E[u]`.
"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ..curves import PPCurve, envelope
from ..door import check_kind
from ..levels import LevelCopies, Levels
from ..nulls import LocalExchange
from ..randomness import Seed, seed_of
from ..regressions.linear import Linear
from ..regressions.regression import Curves, Regression
from ..results import Family, LocalTested, combined, pvalue
from ..samples import Draws, Place
from ..surroundings import Surroundings
from ..version import versions

__all__ = ["ALPHAS", "Band", "Found", "LevelResult", "LevelTest", "fitted"]

ALPHAS = tuple(round(0.05 * i, 2) for i in range(1, 20))
# Numbers in the largest table of curves that is held at a time.
ROOM = 2**25


@dataclass(frozen=True, eq=False)
class Band:
    """A number for each column, and where it lies if q is right.

    Args:
        value: The number, with shape (j,) or (o, j).
        lower: The 2.5 % quantile of its null.
        upper: The 97.5 % quantile of its null.
    """

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @property
    def sign(self) -> np.ndarray:
        """1 above the null band, -1 below it, 0 within."""
        return np.asarray((self.value > self.upper).astype(int) - (self.value < self.lower))


@dataclass(frozen=True, eq=False, repr=False)
class LevelResult(LocalTested, ABC):
    """What a local test of levels found at one observation, or at o of them.

    Args:
        statistic: The combined statistic, with shape () or (o,).
        null: Its values for the null copies, with shape (H,) or (o, H).
        alphas: The levels, with shape (g,).
        curves: Estimates of P(u <= alpha) at x_o, with shape (j, g) or (o, j, g).
        null_curves: The same for the null copies, with shape (H, j, g) or (o, H, j, g).
        statistics: The statistic of each column, with shape (j,) or (o, j).
        null_statistics: Its values for the null copies, with shape (j, H) or (o, j, H).
        x: The observation, with shape (...,) or (o, ...).
        names: The names of the columns.
        hypothesis: What a small p-value speaks against.
        settings: The settings and versions that made it.
        family: How p-values at many observations are adjusted for their number.
        surroundings: How the calibration surrounds the observations.
    """

    statistic: np.ndarray
    null: np.ndarray
    alphas: np.ndarray
    curves: np.ndarray
    null_curves: np.ndarray
    statistics: np.ndarray
    null_statistics: np.ndarray
    x: np.ndarray
    names: tuple[str, ...]
    hypothesis: str
    settings: Mapping[str, Any]
    family: Family
    surroundings: Surroundings | None

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
        """The curves with pointwise and simultaneous null bands, with shape (j, g) or (o, j, g).

        Args:
            alpha: One minus the coverage of the bands.
        """
        if not 0 < alpha < 1:
            raise ValueError(f"alpha: expected a number between 0 and 1; got {alpha}.")
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
        lower, upper = np.quantile(null, [0.025, 0.975], axis=-2)
        return Band(np.asarray(value), lower, upper)

    @property
    def _end(self) -> str:
        """P-value and sizes, in the brackets that end a sentence."""
        s, h = self.settings, self.null.shape[-1]
        return f"({s['test']}, {s['n']} calibration pairs, {h} nulls)"

    @property
    def _many(self) -> str:
        low = int((self.pvalue <= 0.05).sum())
        return (
            f"At {low} of {self.pvalue.size} observations the p-value is at most 0.05 "
            f"{self._end}. Adjusted by {self.family.words}.{self._warning}"
        )


@dataclass(frozen=True, eq=False)
class Found:
    """Curves at o observations, and the statistics of all copies.

    Args:
        curves: The curves of all copies, mean over the sizes, with shape (o, H + 1, j, g).
        statistics: The statistics of each size and column, with shape (c, j, o, H + 1).
    """

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

    def fields(self, axis: Any) -> dict[str, Any]:
        """What a result shows of it, at one observation or at many."""
        columns = self.columns.swapaxes(0, 1)
        return {
            "curves": self.curves[:, 0][axis],
            "null_curves": self.curves[:, 1:][axis],
            "statistics": columns[..., 0][axis],
            "null_statistics": columns[..., 1:][axis],
        }


@dataclass(frozen=True, eq=False)
class LevelTest(ABC):
    """A local test of levels; call it with :class:`assay.Draws`, which need no theta.

    Args:
        copies: The levels of the data and its nulls.
        regression: The recipe of its curves.
        alphas: The levels at which curves are compared with the diagonal, with shape (g,).
        curves: The fitted regression of data and nulls.
    """

    TEST: ClassVar[str]

    copies: LevelCopies
    regression: Regression
    alphas: np.ndarray
    curves: Curves

    def _place(self, draws: Draws) -> Place:
        check_kind("draws", draws, "Draws(x_o)", "x", "theta")
        return self.copies.levels.calibration.place(draws)

    def _said(self, place: Place) -> dict[str, Any]:
        """What a result says of itself, whatever was found."""
        levels, axis = self.copies.levels, 0 if place.single else slice(None)
        return {
            "alphas": self.alphas,
            "x": place.x.cpu().numpy()[axis],
            "names": levels.names,
            "hypothesis": self.curves.hypothesis(place.features),
            "settings": self.settings,
            "family": self.curves.family,
            "surroundings": levels.calibration.surroundings(place),
        }

    def _found(self, place: Place) -> Found:
        """Curves and statistics, a few observations at a time."""
        each = len(self.copies) * self.copies.levels.u.shape[1] * len(self.alphas) * 4
        parts = [self._at(x_o) for x_o in place.features.split(max(1, ROOM // each))]
        curves, statistics = zip(*parts, strict=True)
        return Found(np.concatenate(curves), np.concatenate(statistics, 2))

    def _at(self, x_o: Tensor) -> tuple[np.ndarray, np.ndarray]:
        found = self.curves(x_o)
        distances = np.square(found - self.alphas).mean(-1)
        return found.mean(0), distances.transpose(0, 3, 1, 2)

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
            "regression": repr(self.regression),
            "alphas": self.alphas.tolist(),
            "seed": self.copies.seed,
            "device": str(levels.u.device),
            **versions(),
        }

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.copies.levels!r}, {self.regression!r}, "
            f"nulls={self.copies.n}, seed={self.copies.seed})"
        )


def fitted(
    levels: Levels,
    regression: Regression | None,
    nulls: int | LocalExchange | None,
    alphas: Any,
    seed: Seed,
) -> dict[str, Any]:
    """Checks the arguments of a test, fits its curves, and returns its fields."""
    if isinstance(nulls, LocalExchange):
        if regression is not None and regression != Linear(nulls.where):
            raise ValueError(
                f"regression: expected None, since {nulls!r} says what is near; got "
                f"{regression!r}."
            )
        regression, nulls = Linear(nulls.where), nulls.n
    regression = Linear() if regression is None else regression
    check_kind("regression", regression, "a regression such as Linear()", "fit", "nulls")
    grid, seed = _grid(alphas), seed_of(seed)
    copies = levels.copies(regression.nulls if nulls is None else nulls, seed)
    curves = regression.fit(copies, grid, seed)
    return {"copies": copies, "regression": regression, "alphas": grid, "curves": curves}


def _grid(alphas: Any) -> np.ndarray:
    """Levels in rising order, strictly between 0 and 1."""
    try:
        grid = np.unique(np.asarray(alphas, float))
    except (TypeError, ValueError) as error:
        raise TypeError(f"alphas: expected numbers between 0 and 1; got {alphas!r}.") from error
    if not len(grid) or not ((grid > 0) & (grid < 1)).all():
        raise ValueError(
            f"alphas: expected levels above 0 and below 1, since curves are known there; got "
            f"{grid.tolist()}."
        )
    return grid
