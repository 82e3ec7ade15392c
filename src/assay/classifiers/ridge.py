r"""Least squares in closed form: all nulls for about the price of one.

With features :math:`\phi(\theta, x)` of mean zero at each x, pooled covariance G and the contrast
:math:`\delta_h` of a copy (mean of the truths less mean of class 0 at the same x), the
least-squares fit of the labels at even odds is

.. math:: d_h(\theta, x_o) - \tfrac{1}{2} = \tfrac{1}{4}
    (\phi(\theta, x_o) - E_q \phi(\cdot, x_o))^T (G + \lambda I)^{-1} \delta_h .

Only :math:`\delta_h` differs between copies, and one eigendecomposition of G serves all penalties
:math:`\lambda`. The mean over draws of q at x_o is taken off since :math:`E_q[p / q] = 1`: what a
fit says of x alone is noise. The statistic :class:`~assay.statistics.mse0` is then a quadratic
form in :math:`\delta_h`, with the covariance of the features under :math:`q(\cdot \mid x_o)`.

Several banks and penalties are views of the same data; a test asks each and combines them, for
the nulls as for the data, so that nothing is tuned on real labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..coordinates import Whitened
from ..copies import Copies, Feature
from ..door import check_kind, check_number
from .features import BANKS
from .frames import Conditional, Frame, Pooled, Within
from .maps import Bank, Joint, Product
from .scaling import Scaling

__all__ = ["Ridge", "Surface", "Surfaces", "joint", "products"]

# Features of a default bank: more than this many cost seconds, and see little more.
MOST_PRODUCTS = 2048


def joint(m: int, k: int) -> tuple[Bank, ...]:
    """Random Fourier features of m parameters and x, at three bandwidths and in every frame.

    With enough draws of q at each x, the frame that whitens each set is one of them.
    """
    frames: tuple[Frame, ...] = (Pooled(), Conditional())
    if k >= m + 2:
        frames = (*frames, Within(Whitened()))
    return tuple(
        Joint(bandwidth=bandwidth, frame=frame)
        for frame in frames
        for bandwidth in (0.5, 1.0, 2.0)
    )


def products(m: int) -> tuple[Bank, ...]:
    """Moments of m latents times as many features of x as are affordable, 32 at most."""
    sizes = {bank: bank.size(m) for bank in BANKS}
    return tuple(
        Product(bank, n=min(32, MOST_PRODUCTS // size - 1))
        for bank, size in sizes.items()
        if size <= MOST_PRODUCTS // 4
    )


@dataclass(frozen=True)
class Ridge:
    """Ridge regression of the labels on banks of features, for all copies in closed form.

    Args:
        features: Banks of features; by default :func:`joint`, random Fourier features of
            parameters and x at three bandwidths, or where the base is known :func:`products`,
            moments of the latents times features of x.
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
        penalties = self.penalties
        penalties = tuple(penalties) if isinstance(penalties, tuple | list) else (penalties,)
        if not penalties:
            raise ValueError("penalties: expected at least one; got none.")
        checked = tuple(check_number("penalties", penalty) for penalty in penalties)
        object.__setattr__(self, "penalties", checked)

    def fit(self, copies: Copies, seed: int) -> "Surfaces":
        """Fits all copies.

        Args:
            copies: The data and its nulls.
            seed: Not used: nothing is left to chance.
        """
        scaling = Scaling.fit(copies)
        m = len(scaling.location)
        default = products(m) if copies.base is not None else joint(m, copies.odds)
        maps = [bank.fit(copies, scaling) for bank in self.features or default]
        found = zip(maps, copies.sums(maps), strict=True)
        surfaces = (_surface(feature, *sums, self.penalties) for feature, sums in found)
        return Surfaces(tuple(surfaces))


@dataclass(frozen=True, eq=False)
class Surface:
    """Fits of one bank, for all copies and penalties.

    Args:
        feature: The features.
        axes: Eigenvectors of their covariance, with shape (p, p).
        values: Its eigenvalues, with shape (p,).
        contrasts: Contrasts of the copies along the eigenvectors, with shape (H + 1, p).
        penalties: The penalties, relative to the mean eigenvalue.
    """

    feature: Feature
    axes: Tensor
    values: Tensor
    contrasts: Tensor
    penalties: tuple[float, ...]

    def views(self, theta: Tensor, x: Tensor) -> Iterator[Tensor]:
        """Least-squares fits (o, H + 1, s) of class-1 probabilities for each penalty."""
        parts = [self._along(theta[i : i + 1], x[i : i + 1]) for i in range(len(theta))]
        along = torch.cat(parts)
        for penalty in self.penalties:
            shrunk = self.values + penalty * self.values.mean()
            weights = 0.25 * self.contrasts / shrunk
            yield 0.5 + weights @ along.mT

    def _along(self, theta: Tensor, x: Tensor) -> Tensor:
        """Features along the eigenvectors, less their mean over draws, with shape (o, s, p)."""
        features = self.feature.at(x)(theta)
        return (features - features.mean(1, keepdim=True)) @ self.axes


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Fits of several banks.

    Args:
        surfaces: The fits of each.
    """

    surfaces: tuple[Surface, ...]

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s), the mean of all views."""
        found = list(self.views(theta, x))
        return torch.stack(found).mean(0).clamp_(0, 1).to(theta)

    def views(self, theta: Tensor, x: Tensor) -> Iterator[Tensor]:
        """Least-squares fits (o, H + 1, s) of every bank and penalty, not cut to [0, 1]."""
        for surface in self.surfaces:
            yield from surface.views(theta, x)


def _surface(
    feature: Feature, covariance: Tensor, contrasts: Tensor, penalties: tuple[float, ...]
) -> Surface:
    if not (covariance.isfinite().all() and contrasts.isfinite().all()):
        raise ValueError(
            "features: expected finite features; got NaN or infinity. Look for outliers in theta "
            "and x."
        )
    values, axes = torch.linalg.eigh(covariance)
    # A singular covariance has eigenvalues that are zero but for rounding; the penalty is not.
    values = values.clamp_min(0)
    if not values.mean() > 0:
        raise ValueError(
            "features: expected some that vary over the calibration; got constants only. Is theta "
            "constant?"
        )
    along = contrasts @ axes
    return Surface(feature, axes.float(), values.float(), along.float(), penalties)
