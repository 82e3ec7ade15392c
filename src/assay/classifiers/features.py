r"""Features with mean zero under the standard normal, in closed form.

For :math:`a = \sum_n w_n \phi(z_n)` with :math:`\sum_n w_n^2 = 1` and independent
:math:`z_n \sim N(0, I)`, the squared length :math:`|a|^2` has mean :math:`\operatorname{tr} C`
and, for many points, variance :math:`2 \operatorname{tr} C^2`, where C is the covariance of the
features. Both are known here, so that features of any number and scale can be put on one scale of
surprise.
"""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Protocol

import torch
from torch import Tensor

from ..door import check_count, check_number
from ..randomness import stream

__all__ = ["BANKS", "Fourier", "Hermite", "Latent"]

MOST_FEATURES = 10_000


class Latent(Protocol):
    """Features of z with mean zero under N(0, I)."""

    def size(self, m: int) -> int:
        """The number of features of m latents."""

    def __call__(self, z: Tensor) -> Tensor:
        """Features (..., p) of latents (..., m)."""

    def spread(self, m: int) -> tuple[float, float]:
        """Traces of C and of C squared, C being the covariance under N(0, I)."""


@dataclass(frozen=True)
class Hermite:
    r"""All orthonormal Hermite polynomials of one total order.

    Order 1 is the mean, order 2 variance and correlation, order 3 skewness. For multi-indices
    :math:`|\alpha|` = order, :math:`h_\alpha(z) = \prod_j He_{\alpha_j}(z_j) / \sqrt{\alpha_j!}`.

    Args:
        order: The total order.

    Example:
        >>> Hermite(2)(torch.tensor([1.0, 3.0]))
        tensor([0.0000, 3.0000, 5.6569])
    """

    order: int

    def __post_init__(self) -> None:
        check_count("order", self.order)

    def size(self, m: int) -> int:
        """The number of features of m latents."""
        return math.comb(m + self.order - 1, self.order)

    def __call__(self, z: Tensor) -> Tensor:
        """Features (..., p) of latents (..., m)."""
        # Features first in memory: a column is then contiguous, which is several times faster.
        z = z.movedim(-1, 0).contiguous()
        single = [torch.ones_like(z), z]
        for k in range(1, self.order):
            single.append((z * single[k] - math.sqrt(k) * single[k - 1]) / math.sqrt(k + 1))
        columns = z.new_empty(self.size(len(z)), *z.shape[1:])
        for i, index in enumerate(combinations_with_replacement(range(len(z)), self.order)):
            (j, power), *others = Counter(index).items()
            columns[i] = single[power][j]
            for j, power in others:
                columns[i] *= single[power][j]
        return columns.movedim(0, -1)

    def spread(self, m: int) -> tuple[float, float]:
        """Traces of C and of C squared; C is the identity."""
        return float(self.size(m)), float(self.size(m))


@dataclass(frozen=True)
class Fourier:
    r"""Random Fourier features: cosines and sines of random projections of z.

    For frequencies :math:`\omega_i \sim N(0, b^2 I / m)`, they are
    :math:`\cos \omega_i z - e^{-|\omega_i|^2 / 2}` and :math:`\sin \omega_i z`; they see shapes
    that low moments do not.

    Args:
        n: The number of frequencies.
        bandwidth: The typical length b of a frequency.
    """

    n: int = 32
    bandwidth: float = 1.0

    def __post_init__(self) -> None:
        check_count("n", self.n)
        check_number("bandwidth", self.bandwidth)

    def size(self, m: int) -> int:
        """The number of features of m latents."""
        return 2 * self.n

    def __call__(self, z: Tensor) -> Tensor:
        """Features (..., p) of latents (..., m)."""
        frequencies = self._frequencies(z.shape[-1]).to(z)
        phases = z @ frequencies.T
        means = (-0.5 * frequencies.square().sum(1)).exp()
        return torch.cat([phases.cos() - means, phases.sin_()], -1)

    def spread(self, m: int) -> tuple[float, float]:
        """Traces of C and of C squared, by the characteristic function of the normal."""
        w = self._frequencies(m).double()
        near = (-0.5 * (w[:, None] - w[None]).square().sum(2)).exp()
        far = (-0.5 * (w[:, None] + w[None]).square().sum(2)).exp()
        means = (-0.5 * w.square().sum(1)).exp()
        cosines = 0.5 * (near + far) - means[:, None] * means[None]
        sines = 0.5 * (near - far)
        trace = cosines.trace() + sines.trace()
        return float(trace), float(cosines.square().sum() + sines.square().sum())

    def _frequencies(self, m: int) -> Tensor:
        scale = self.bandwidth / math.sqrt(m)
        return scale * torch.randn(self.n, m, generator=stream(0, "frequencies", self.n, m))


BANKS: tuple[Latent, ...] = (
    *(Hermite(1), Hermite(2), Hermite(3)),
    *(Fourier(16, 1.0), Fourier(16, 2.0), Fourier(16, 4.0)),
)
