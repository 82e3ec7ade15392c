r"""Least squares in closed form: all nulls for about the price of one.

With features :math:`\phi(\theta, x)` of pooled covariance G and the contrast :math:`\delta_h` of
a copy (mean of the truths less mean of class 0 at the same x), the least-squares fit of the labels
at even odds is

.. math:: d_h(\theta, x_o) - \tfrac{1}{2} = \tfrac{1}{4}
    (\phi(\theta, x_o) - \bar\phi)^T (G + \lambda I)^{-1} \delta_h .

Only :math:`\delta_h` differs between copies, and one eigendecomposition of G serves all penalties
:math:`\lambda`. What a fit says of x alone is noise, to first order, since :math:`E_q[p / q] = 1`:
with the mean of :math:`\phi` over draws of q at x_o for :math:`\bar\phi`, the statistic
:func:`~assay.local.lc2st.mse0` is a quadratic form in :math:`\delta_h` with the
covariance of the features under :math:`q(\cdot \mid x_o)`. A q far from the truth, whose draws are
all alike to the classifier, shows only with the mean over all members; both are asked.

Several banks and penalties are views of the same data; a test asks each and combines them, for
the nulls as for the data, so that nothing is tuned on real labels alone. The probabilities that
are shown are those of the view with the least estimated risk, chosen for each copy on its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import check_kind, check_numbers
from .._support.parallel import one_thread, spread_over
from ..nulls.copies import Copies, Feature, Sums
from ..nulls.exchange import LabelCopies
from .base import ClosedForm, Scaling, Scores, Statistics
from .features import Bank, Conditional, Frame, Joint, Pooled, Whitened, Within

BANDWIDTHS = (0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Ridge(ClosedForm):
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

    features: tuple[Bank, ...] | None = None
    penalties: tuple[float, ...] = (1e-3, 1e-2, 1e-1)

    def __post_init__(self) -> None:
        if self.features is not None:
            given = self.features if isinstance(self.features, tuple | list) else (self.features,)
            if not given:
                raise ValueError("features: expected at least one bank; got none.")
            for bank in given:
                check_kind("features", bank, "a bank such as Joint()", "fit")
            object.__setattr__(self, "features", tuple(given))
        penalties = tuple(check_numbers("penalties", self.penalties))
        if not penalties:
            raise ValueError("penalties: expected at least one; got none.")
        object.__setattr__(self, "penalties", penalties)

    def fit(self, copies: Copies, seed: int) -> "Surfaces":
        """Fits all copies; nothing is left to chance."""
        scaling = Scaling.fit(copies)
        banks = self.features or _default(copies, scaling)
        workers = torch.get_num_threads() if copies.x.device.type == "cpu" else 1
        with spread_over(workers) as apply:
            maps = list(apply(lambda bank: bank.fit(copies, scaling), banks))
        sums = copies.sums(maps)
        with spread_over(workers) as apply:
            penalties = [self.penalties] * len(maps)
            return Surfaces(tuple(apply(_surface, maps, sums, penalties)))

    def refit(self, data: Scores, copies: Copies, near: Tensor, seed: int) -> Scores:
        """Fits copies from the data's fit: contrasts near x_o alone are summed again."""
        assert isinstance(data, Surfaces)
        assert isinstance(copies, LabelCopies)
        features = [surface.feature for surface in data.surfaces]
        sums = copies.subset(near.nonzero().flatten()).sums(features)
        share = float(near.double().mean())
        whole = data.moved(sums, share)
        return LocalSurfaces(whole, whole.without(sums, share))


@dataclass(frozen=True, eq=False)
class Surface:
    """Fits of one bank for all copies."""

    feature: Feature
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

    def moved(self, near: Sums, share: float) -> "Surface":
        """The fit of copies that differ from the data in a share of the sets, with their sums."""
        along = near.contrasts @ self.axes.double()
        moved = self.contrasts[:1] + share * (along - along[:1])
        return replace(self, contrasts=moved.to(self.contrasts))

    def without(self, near: Sums, share: float) -> "Surface":
        """The fit of the same copies without a share of the sets, with their sums."""
        along = near.contrasts @ self.axes.double()
        return replace(self, contrasts=(self.contrasts - share * along).to(self.contrasts))

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
    several: ClassVar[bool] = True

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s), for each copy from the view of the least risk."""
        pairs = [(surface, penalty) for surface in self._shown for penalty in surface.penalties]
        best = torch.stack([surface.risks(penalty) for surface, penalty in pairs]).argmin(0)
        probabilities = theta.new_empty(len(theta), len(best), theta.shape[1])
        for i, (surface, penalty) in enumerate(pairs):
            chosen = (best == i).nonzero().flatten()
            if len(chosen):
                fits = surface.weights(penalty)[chosen] @ surface.along(theta, x).mT
                probabilities[:, chosen] = (0.5 + fits).to(probabilities)
        return probabilities.clamp_(0, 1)

    @property
    def _shown(self) -> list[Surface]:
        """Fits that mean the same for the many draws at x_o as for the sets they were fitted to.

        Coordinates within a set do not: those of a truth among few draws are never far out.
        """
        comparable = [s for s in self.surfaces if s.feature.comparable]
        return comparable or list(self.surfaces)

    def moved(self, near: list[Sums], share: float) -> "Surfaces":
        """Fits of copies that differ from the data in a share of the sets, with their sums."""
        pairs = zip(self.surfaces, near, strict=True)
        return Surfaces(tuple(surface.moved(sums, share) for surface, sums in pairs))

    def without(self, near: list[Sums], share: float) -> "Surfaces":
        """Fits of the same copies without a share of the sets, with their sums."""
        pairs = zip(self.surfaces, near, strict=True)
        return Surfaces(tuple(surface.without(sums, share) for surface, sums in pairs))

    def views(self, theta: Tensor, x: Tensor) -> Iterator[Tensor]:
        """Least-squares fits (o, H + 1, s) of every bank and penalty, not cut to [0, 1].

        Less their mean over the draws; and as they are for the largest penalty, to see a q so far
        off that all of its draws are alike.
        """
        for surface in self.surfaces:
            along = surface.along(theta, x)
            yield 0.5 + surface.weights(max(surface.penalties)) @ along.mT
            centred = along - along.mean(1, keepdim=True)
            for penalty in surface.penalties:
                yield 0.5 + surface.weights(penalty) @ centred.mT


@dataclass(frozen=True, eq=False)
class LocalSurfaces(Scores):
    """Fits of copies that differ from the data near x_o."""

    whole: Surfaces
    without: Surfaces  # the same without the sets near x_o
    several: ClassVar[bool] = True

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s), for each copy from the view of the least risk."""
        return self.whole(theta, x)

    def statistics(self, statistic: Statistics, theta: Tensor, x: Tensor) -> list[np.ndarray]:
        """What the sets near x_o add to a statistic (o, H + 1), for every view."""
        pairs = zip(self.whole.views(theta, x), self.without.views(theta, x), strict=True)
        return [statistic(whole) - statistic(part) for whole, part in pairs]


def _surface(feature: Feature, sums: Sums, penalties: tuple[float, ...]) -> Surface:
    mean, covariance, contrasts, rows = sums
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
    along = contrasts @ axes
    mean, axes, values, along = (t.float() for t in (mean, axes, values, along))
    return Surface(feature, mean, axes, values, along, rows, penalties)


def _default(copies: Copies, scaling: Scaling) -> tuple[Bank, ...]:
    frames: list[Frame] = [Pooled()]
    # Without x all sets are alike, and no frame but that of the pool tells anything new.
    if copies.base is None and copies.x.shape[1]:
        frames.append(Conditional())
        if copies.odds >= len(scaling.location) + 2:
            frames.append(Within(Whitened()))
    return tuple(Joint(bandwidth=width, frame=frame) for frame in frames for width in BANDWIDTHS)
