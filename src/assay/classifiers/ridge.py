r"""Least squares in closed form: all nulls for about the price of one.

With features :math:`\phi(\theta, x)` of pooled covariance G and the contrast :math:`\delta_h` of
a copy (mean of class 1 less mean of class 0 at the same x), the least-squares fit of the labels at
even odds is

.. math:: d_h(\theta, x_o) - \tfrac{1}{2} = \tfrac{1}{4}
    (\phi(\theta, x_o) - \bar\phi)^T (G + \lambda I)^{-1} \delta_h .

Only :math:`\delta_h` differs between copies, and one eigendecomposition of G serves all penalties
:math:`\lambda`. What a fit depends on through x alone is noise, to first order, since
:math:`E_q[p / q] = 1`: with the mean over draws of q at x_o for :math:`\bar\phi`, the statistic
:func:`~assay.local.lc2st.mse0` is a quadratic form in :math:`\delta_h`. A q so far off that its
draws are all alike to the classifier shows only with the mean over all members; both are used.

Each bank and penalty is a view of the same data; a test combines the views, for nulls as for the
data, so that nothing is tuned on real labels alone. Probabilities are those of the view with the
least estimated risk, chosen for each copy on its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import check_kind, check_numbers
from .._support.work import one_thread, spread_over
from ..nulls import Copies, Exchange, GlobalNull, LabelCopies
from .base import Classifier, Scaling, Scores, Statistics
from .features import Conditional, Frame, Joint, JointFeature, Pooled, Within

BANDWIDTHS = (0.5, 1.0, 2.0)
MOST_MEMBERS = 8  # of a set, in random order, from which a covariance is taken
BLOCK = 2**22  # numbers in the largest table of features


@dataclass(frozen=True)
class Ridge(Classifier):
    """Ridge regression of the labels on banks of features, for all copies in closed form.

    Args:
        features: Banks of features; by default random Fourier features of members and x together,
            at three bandwidths, of latents as they are and of parameters in several frames:
            standardised over the pool, standardised given x, and whitened within their set where
            there are enough draws.
        penalties: Ridge penalties, relative to the mean variance of a bank's features.

    Example:
        >>> Ridge(penalties=0.1).penalties
        (0.1,)
    """

    features: tuple[Joint, ...] | None = None
    penalties: tuple[float, ...] = (1e-3, 1e-2, 1e-1)
    null: ClassVar[GlobalNull | None] = Exchange(999)

    def __post_init__(self) -> None:
        if self.features is not None:
            given = self.features if isinstance(self.features, tuple | list) else (self.features,)
            if not given:
                raise ValueError("features: expected at least one bank; got none.")
            for bank in given:
                check_kind("features", bank, "a bank such as Joint()", Joint)
            object.__setattr__(self, "features", tuple(given))
        penalties = tuple(check_numbers("penalties", self.penalties))
        if not penalties:
            raise ValueError("penalties: expected at least one; got none.")
        object.__setattr__(self, "penalties", penalties)

    def fit(self, copies: Copies, seed: int) -> "Surfaces":
        """Fits all copies; nothing is left to chance."""
        if not isinstance(copies, LabelCopies) or copies.table is not None:
            raise ValueError(
                "null: expected Exchange(n) for a classifier in closed form, whose copies have "
                "the same members and one true parameter in every set; got copies of another "
                "null, such as KnownBase(n) or FreePermutation(n)."
            )
        scaling = Scaling.fit(copies)
        banks = self.features or _default_banks(copies)

        def surface(bank: Joint) -> Surface:
            return _surface(bank.fit(copies, scaling), copies, self.penalties)

        # One thread to each bank: how sums round does not depend on their number.
        with spread_over(_workers(copies)) as apply:
            return Surfaces(tuple(apply(surface, banks)))

    def refit(self, data: Scores, copies: Copies, near: Tensor, seed: int) -> Scores:
        """Fits copies from the data's fit: contrasts near x_o alone are summed again."""
        assert isinstance(data, Surfaces)
        assert isinstance(copies, LabelCopies)
        nearby, share = copies.subset(near.nonzero().flatten()), float(near.double().mean())

        def refitted(surface: Surface) -> tuple[Surface, Surface]:
            along = _moments(surface.feature, nearby)[2] @ surface.axes.double()
            whole = surface.contrasts[:1] + share * (along - along[:1])
            whole = whole.to(surface.contrasts)
            rest = (whole - share * along).to(whole)
            return replace(surface, contrasts=whole), replace(surface, contrasts=rest)

        with spread_over(_workers(copies)) as apply:
            whole, rest = zip(*apply(refitted, data.surfaces), strict=True)
        return Surfaces(whole, without=Surfaces(rest))


@dataclass(frozen=True, eq=False)
class Surface:
    """Fits of one bank for all copies."""

    feature: JointFeature
    mean: Tensor  # of the features over all members, (p,)
    axes: Tensor  # eigenvectors of their covariance, (p, p)
    values: Tensor  # its eigenvalues, (p,)
    contrasts: Tensor  # of the copies along the eigenvectors, (H + 1, p)
    rows: int  # of both classes that were fitted
    penalties: tuple[float, ...]  # relative to the mean eigenvalue

    def along(self, theta: Tensor, x: Tensor) -> Tensor:
        """Features along the eigenvectors, less their mean over members, with shape (o, s, p)."""
        with one_thread():
            return (self.feature(theta, x) - self.mean) @ self.axes

    def weights(self, penalty: float) -> Tensor:
        """Weights (H + 1, p) along the eigenvectors."""
        return 0.25 * self.contrasts / (self.values + penalty * self.values.mean())

    def risks(self, penalty: float) -> Tensor:
        r"""Estimated risks (H + 1,) of all copies, in the manner of Mallows.

        The squared error of the fit to labels of variance 1/4, less a constant, with the optimism
        of having been fitted to them added: :math:`w^T G w - \delta^T w / 2 + \nu / 2 N` for
        :math:`\nu` effective parameters and N rows.
        """
        weights = self.weights(penalty)
        error = (weights.square() * self.values - 0.5 * weights * self.contrasts).sum(1)
        parameters = (self.values / (self.values + penalty * self.values.mean())).sum()
        return error + 0.5 * parameters / self.rows


@dataclass(frozen=True, eq=False)
class Surfaces(Scores):
    """Fits of several banks and penalties, each of which is a view of the same data."""

    surfaces: tuple[Surface, ...]
    without: "Surfaces | None" = None  # local copies fitted without the sets near x_o
    several: ClassVar[bool] = True

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s), for each copy from the view of the least risk."""
        # Coordinates within a set are left out: those of a true parameter among few draws are
        # never far out, unlike those of the many draws at x_o.
        comparable = [s for s in self.surfaces if s.feature.bank.frame.comparable]
        surfaces = comparable or self.surfaces
        pairs = [(surface, penalty) for surface in surfaces for penalty in surface.penalties]
        best = torch.stack([surface.risks(penalty) for surface, penalty in pairs]).argmin(0)
        probabilities = theta.new_empty(len(theta), len(best), theta.shape[1])
        for i, (surface, penalty) in enumerate(pairs):
            chosen = (best == i).nonzero().flatten()
            if len(chosen):
                fits = surface.weights(penalty)[chosen] @ surface.along(theta, x).mT
                probabilities[:, chosen] = (0.5 + fits).to(probabilities)
        return probabilities.clamp_(0, 1)

    def views(self, theta: Tensor, x: Tensor) -> Iterator[Tensor]:
        """Least-squares fits (o, H + 1, s) of every bank and penalty, not cut to [0, 1].

        Less their mean over the draws; and as they are for the largest penalty, for a q so far off
        that all of its draws are alike.
        """
        for surface in self.surfaces:
            along = surface.along(theta, x)
            yield 0.5 + surface.weights(max(surface.penalties)) @ along.mT
            centred = along - along.mean(1, keepdim=True)
            for penalty in surface.penalties:
                yield 0.5 + surface.weights(penalty) @ centred.mT

    def statistics(self, statistic: Statistics, theta: Tensor, x: Tensor) -> list[np.ndarray]:
        """Statistics (o, H + 1) of every view; of local copies, what the sets near x_o add."""
        values = [statistic(view) for view in self.views(theta, x)]
        if self.without is None:
            return values
        rest = self.without.statistics(statistic, theta, x)
        return [value - other for value, other in zip(values, rest, strict=True)]


def _workers(copies: Copies) -> int:
    return torch.get_num_threads() if copies.x.device.type == "cpu" else 1


def _default_banks(copies: LabelCopies) -> tuple[Joint, ...]:
    frames: list[Frame] = [Pooled()]
    # Without x all sets are alike, and other frames than that of the pool add nothing.
    if copies.base is None and copies.x.shape[1]:
        frames.append(Conditional())
        if copies.odds >= copies.members.shape[2] + 2:
            frames.append(Within())
    return tuple(Joint(bandwidth=width, frame=frame) for frame in frames for width in BANDWIDTHS)


def _surface(feature: JointFeature, copies: LabelCopies, penalties: tuple[float, ...]) -> Surface:
    mean, covariance, contrasts = _moments(feature, copies)
    if not (covariance.isfinite().all() and contrasts.isfinite().all()):
        raise ValueError(
            "features: expected finite features; got NaN or infinity. Look for outliers in theta "
            "and x."
        )
    values, axes = torch.linalg.eigh(covariance)
    # A singular covariance has eigenvalues that are zero up to rounding; the penalty is not.
    values = values.clamp_min(0)
    if not values.mean() > 0:
        raise ValueError(
            "features: expected some that vary over the calibration; got constants only. Is theta "
            "constant?"
        )
    mean, axes, values, along = (t.float() for t in (mean, axes, values, contrasts @ axes))
    rows = copies.size * len(copies.x)
    return Surface(feature, mean, axes, values, along, rows, penalties)


def _moments(feature: JointFeature, copies: LabelCopies) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (p,) and covariance (p, p) of features, and contrasts (H + 1, p) of all copies.

    In double precision, streamed over the sets.
    """
    n, r, _ = copies.members.shape
    p = feature.bank.n
    zeros = partial(copies.x.new_zeros, dtype=torch.float64)
    group_sums = zeros(r, copies.shifts.shape[1], p)
    first, second, centre, rows = zeros(p), zeros(p, p), zeros(p), 0
    for some in torch.arange(n, device=copies.x.device).split(max(16, BLOCK // (r * p))):
        part = copies.subset(some)
        table = feature(part.members, part.x)
        within = table - table.mean(1, keepdim=True)
        group_sums += part.group_sums(within)
        members = table[:, :MOST_MEMBERS].flatten(0, 1)
        # Around the first mean, so that rounding costs little.
        centre = centre if rows else members.mean(0)
        members = members - centre
        first += members.sum(0)
        second += members.mT @ members
        rows += len(members)
    mean = first / rows
    # A member of class 1 less the mean of its set of k + 1 is the k-th part of k + 1 of its
    # contrast; with a single draw of q, the contrast is the other way round.
    scale = (1 if copies.truths == 1 else -1) * r / (r - 1) / n
    contrasts = scale * copies.copy_sums(group_sums)
    return centre + mean, second / rows - torch.outer(mean, mean), contrasts
