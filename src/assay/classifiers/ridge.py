r"""Least squares in closed form: all nulls for about the price of one.

With features :math:`\phi(\theta, x)` of pooled covariance G and the contrast :math:`\delta_h` of
a copy (mean of class 1 less mean of class 0 at the same x), the fit of the labels at even odds is

.. math:: d_h(\theta, x_o) - \tfrac{1}{2} = \tfrac{1}{4}
    (\phi(\theta, x_o) - \bar\phi)^T (G + \lambda I)^{-1} \delta_h ,

of which only :math:`\delta_h` differs between copies. With the mean over draws of q at x_o for
:math:`\bar\phi`, noise that depends on x alone drops out; with the mean over all members, a q is
found that is so far off that its draws are all alike. Both are used.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

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

    Each bank and penalty is a view of the same data; a test combines the views, for nulls as for
    the data. Probabilities are those of the view with the least estimated risk in each copy.

    Args:
        features: Banks of features; by default :class:`~assay.classifiers.features.Joint` ones at
            three bandwidths, of latents as they are and of parameters in several frames: pooled,
            conditional on x, and within their set where there are enough draws.
        penalties: Ridge penalties, relative to the mean variance of a bank's features.
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
        scaling, banks = Scaling.fit(copies), self.features
        if banks is None:
            frames: list[Frame] = [Pooled()]
            # Without x all sets are alike, and other frames than that of the pool add nothing.
            if copies.base is None and copies.x.shape[1]:
                frames.append(Conditional())
                if copies.odds >= copies.members.shape[2] + 2:
                    frames.append(Within())
            banks = tuple(Joint(bandwidth=b, frame=frame) for frame in frames for b in BANDWIDTHS)

        # One thread to each bank: how sums round does not depend on their number.
        with spread_over(1 if copies.x.is_cuda else torch.get_num_threads()) as apply:
            fits = apply(lambda bank: Surface.fit(bank, scaling, copies, self.penalties), banks)
            return Surfaces(tuple(fits))

    def refit(self, data: Scores, copies: Copies, near: Tensor, seed: int) -> Scores:
        """Fits copies from the data's fit: contrasts near x_o alone are summed again."""
        assert isinstance(data, Surfaces)
        assert isinstance(copies, LabelCopies)
        nearby, share = copies.subset(near.nonzero().flatten()), float(near.double().mean())

        def refit(surface: Surface) -> tuple[Surface, Surface]:
            along = _moments(surface.feature, nearby)[2] @ surface.axes.double()
            data = surface.contrasts[:1]
            whole = (data + share * (along - along[:1])).to(data)
            rest = (whole - share * along).to(whole)
            return replace(surface, contrasts=whole), replace(surface, contrasts=rest)

        with spread_over(1 if copies.x.is_cuda else torch.get_num_threads()) as apply:
            whole, rest = zip(*apply(refit, data.surfaces), strict=True)
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

    @classmethod
    def fit(
        cls, bank: Joint, scaling: Scaling, copies: LabelCopies, penalties: tuple[float, ...]
    ) -> Self:
        """Fits all copies, by one eigendecomposition that serves all penalties."""
        feature = bank.fit(copies, scaling)
        mean, covariance, contrasts = _moments(feature, copies)
        if not (covariance.isfinite().all() and contrasts.isfinite().all()):
            raise ValueError(
                "features: expected finite features; got NaN or infinity. Look for outliers in "
                "theta and x."
            )
        values, axes = torch.linalg.eigh(covariance)
        # A singular covariance has eigenvalues that are zero up to rounding; the penalty is not.
        values = values.clamp_min(0)
        if not values.mean() > 0:
            raise ValueError(
                "features: expected some that vary over the calibration; got constants only. Is "
                "theta constant?"
            )
        mean, axes, values, along = (t.float() for t in (mean, axes, values, contrasts @ axes))
        return cls(feature, mean, axes, values, along, copies.size * len(copies.x), penalties)

    def along(self, theta: Tensor, x: Tensor) -> Tensor:
        """Features (o, s, p) along the eigenvectors, less their mean over members."""
        with one_thread():
            return (self.feature(theta, x) - self.mean) @ self.axes

    def weights(self, penalty: float) -> Tensor:
        """Weights (H + 1, p) along the eigenvectors."""
        return 0.25 * self.contrasts / (self.values + penalty * self.values.mean())

    def risks(self, penalty: float) -> Tensor:
        """Estimated risks (H + 1,): squared errors of the fits, less a constant."""
        weights = self.weights(penalty)
        error = (weights.square() * self.values - 0.5 * weights * self.contrasts).sum(1)
        # The optimism of having been fitted to these rows is added, in the manner of Mallows.
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
        pairs = [(s, penalty) for s in comparable or self.surfaces for penalty in s.penalties]
        best = torch.stack([surface.risks(penalty) for surface, penalty in pairs]).argmin(0)
        probabilities = theta.new_empty(len(theta), len(best), theta.shape[1])
        for i, (surface, penalty) in enumerate(pairs):
            chosen = (best == i).nonzero().flatten()
            if len(chosen):
                fits = surface.weights(penalty)[chosen] @ surface.along(theta, x).mT
                probabilities[:, chosen] = (0.5 + fits).to(probabilities)
        return probabilities.clamp_(0, 1)

    def views(self, theta: Tensor, x: Tensor) -> Iterator[Tensor]:
        """Fits (o, H + 1, s) of every bank: as they are, and less their mean for each penalty."""
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


def _moments(feature: JointFeature, copies: LabelCopies) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (p,) and covariance (p, p) of features, and contrasts (H + 1, p) of all copies."""
    n, r, p = len(copies.x), copies.size, feature.bank.n
    zeros = partial(copies.x.new_zeros, dtype=torch.float64)
    first, second, group_sums = zeros(p), zeros(p, p), zeros(r, copies.shifts.shape[1], p)
    blocks = torch.arange(n, device=copies.x.device).split(max(16, BLOCK // (r * p)))
    centre = zeros(p).float()
    for i, part in enumerate(copies.subset(block) for block in blocks):
        table = feature(part.members, part.x)  # (b, r, p)
        group_sums += part.group_sums(table - table.mean(1, keepdim=True))
        members = table[:, :MOST_MEMBERS].flatten(0, 1)
        # Around the first mean, so that rounding costs little.
        centre = centre if i else members.mean(0)
        members = members - centre
        first += members.sum(0)
        second += members.mT @ members
    mean, second = (sums / (n * min(r, MOST_MEMBERS)) for sums in (first, second))
    # A member of class 1 less the mean of its set of k + 1 is the k-th part of k + 1 of its
    # contrast; with a single draw of q, the contrast is the other way round.
    scale = (1 if copies.truths == 1 else -1) * r / (r - 1) / n
    return centre + mean, second - torch.outer(mean, mean), scale * copies.copy_sums(group_sums)
