r"""Banks of features for :class:`assay.Ridge`: waves of a member's coordinates and of x.

A frame gives coordinates in which members of all sets can be compared, a bank (:class:`Joint`)
makes features of these and of x. Both are fitted to members and x, and never look at labels, so
that members stay exchangeable if q is right.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .._support.inputs import check_count, check_kind, check_number, cpu
from ..neighbourhood import random_waves, standard_deviation
from ..nulls import Copies
from .base import Scaling

MOST_FEATURES = 10_000  # of a bank, whose covariance must fit into memory
FARTHEST = 8.0  # coordinates beyond are moved to it
PENALTY = 1e-3  # of regressions on x, relative to the mean square of their features
MOST_SETS = 20_000  # that a frame is fitted to; more would not change it


class Frame:
    """Coordinates in which members of all sets can be compared; by default those of the pool."""

    # Whether coordinates mean the same for the many draws at x_o as for the sets.
    comparable: ClassVar[bool] = True

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> tuple[Tensor, ...]:
        """Weights, fitted to members (n, r, m) and features of observations (n, d)."""
        return ()

    def coordinates(self, theta: Tensor, x: Tensor, scaling: Scaling, *weights: Tensor) -> Tensor:
        """Coordinates (b, r, m) of members (b, r, m) and features of observations (b, d)."""
        return scaling.theta(theta)


@dataclass(frozen=True)
class Pooled(Frame):
    """Members are standardised by mean and deviation of the whole pool."""


@dataclass(frozen=True)
class Conditional(Frame):
    """Members are standardised by mean and scale given x.

    Both are ridge regressions on x and n random Fourier features of it: of theta first, and then
    of the logarithm of the residuals. Where a posterior is narrow and moves with x, features of
    moderate frequency then depend on its shape.
    """

    n: int = 256

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n, 1, MOST_FEATURES))

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> tuple[Tensor, ...]:
        """Weights (p, m) of means and of log-scales given x, and what scale is left over (m,)."""
        members, design = scaling.theta(theta), self._design(scaling.x(x)).double()
        gram = design.mT @ design / len(design)
        gram.diagonal().add_(PENALTY * gram.diagonal().mean())

        def regress(targets: Tensor) -> Tensor:
            sums = design.mT @ targets.double() / len(design)
            return torch.linalg.solve(gram, sums).float()

        means = regress(members.mean(1))
        residuals = members - (design.float() @ means)[:, None]
        scales = regress((residuals.abs() + 1e-4).log().mean(1))
        u = self.coordinates(theta, x, scaling, means, scales, torch.ones_like(means[0]))
        return means, scales, standard_deviation(u.flatten(0, 1))

    def coordinates(self, theta: Tensor, x: Tensor, scaling: Scaling, *weights: Tensor) -> Tensor:
        """Coordinates (b, r, m) of members (b, r, m) and features of observations (b, d)."""
        means, scales, unit = weights
        design = self._design(scaling.x(x))
        residuals = scaling.theta(theta) - (design @ means)[:, None]
        unit = unit * (design @ scales).exp()[:, None]
        return (residuals / unit).clamp(-FARTHEST, FARTHEST)

    def _design(self, x: Tensor) -> Tensor:  # (b, 1 + d + n)
        frequencies, phases = random_waves(self.n, 1.0, x.shape[1], "frame")
        cosines = (x @ frequencies.to(x) + phases.to(x)).cos()
        return torch.cat([x.new_ones(len(x), 1), x, math.sqrt(2 / self.n) * cosines], 1)


@dataclass(frozen=True)
class Within(Frame):
    """Members are whitened by the mean and covariance of their set, which needs m + 2 draws."""

    # Those of a true parameter among few draws are never far out.
    comparable: ClassVar[bool] = False

    def check(self, k: int, m: int) -> None:
        """Refuses too few draws of m parameters for a regular covariance."""
        if k < m + 2:
            raise ValueError(
                f"theta_q: expected at least {m + 2} draws of q at each x for {m} parameter(s); "
                f"got {k}. With 32 a local test has nearly all the power there is."
            )

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> tuple[Tensor, ...]:
        """Refuses sets that are too small; there are no weights."""
        self.check(theta.shape[1] - 1, theta.shape[2])
        return ()

    def coordinates(self, theta: Tensor, x: Tensor, scaling: Scaling, *weights: Tensor) -> Tensor:
        """Coordinates (b, r, m) of members (b, r, m)."""
        return self(theta).float().clamp(-FARTHEST, FARTHEST)

    def __call__(self, members: Tensor) -> Tensor:
        """White members (n, r, m) of sets (n, r, m)."""
        # By the largest first: squares in tiny or huge units would leave the range of numbers.
        offset = members.amin(1, keepdim=True) / 2 + members.amax(1, keepdim=True) / 2
        centred = members - offset
        largest = centred.abs().amax(1, keepdim=True)
        centred = centred / largest.where(largest > 0, 1)
        centred = centred - centred.mean(1, keepdim=True)
        scale = centred.square().mean(1, keepdim=True).sqrt()
        # A parameter that does not vary in a set beyond rounding stays at zero there.
        varies = scale * largest > torch.finfo(members.dtype).eps * offset.abs()
        centred = (centred / scale).where(varies, 0)
        covariance = centred.mT @ centred / members.shape[1]
        # A little more than the identity's rounding error, for draws on a line.
        jitter = 1e-4 * cpu.eye(members.shape[2]).to(members)
        factor = torch.linalg.cholesky(covariance + jitter)
        return torch.linalg.solve_triangular(factor, centred.mT, upper=False).mT


Whitened = Within  # where sets are whitened outside of a bank


@dataclass(frozen=True)
class Joint:
    r"""Random Fourier features of members and x together.

    They are :math:`\cos(\omega_i u + \nu_i x + b_i)`, with random frequencies and phases.

    Args:
        n: The number of features.
        bandwidth: The typical length of a frequency of u; those of x have length one.
        frame: The coordinates u of members.
    """

    n: int = 512
    bandwidth: float = 1.0
    frame: Frame = Pooled()

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n))
        check_number("bandwidth", self.bandwidth)
        check_kind("frame", self.frame, "a frame such as Pooled() or Within()", Frame)
        if self.n > MOST_FEATURES:
            raise ValueError(
                f"features: expected at most {MOST_FEATURES} features in a bank, whose covariance "
                f"must fit into memory; got {self.n} from {self!r}. Choose a smaller n."
            )

    def fit(self, copies: Copies, scaling: Scaling) -> "JointFeature":
        """The features, with the frame fitted to some members."""
        x = copies.x
        rows = torch.arange(0, len(x), 1 + len(x) // MOST_SETS, device=x.device)
        members = copies[:1].batch(rows, 0)[0][0]
        return JointFeature(self, scaling, self.frame.fit(members, x[rows], scaling))


@dataclass(frozen=True, eq=False)
class JointFeature:
    """Features of :class:`Joint`, fitted to members and x."""

    bank: Joint
    scaling: Scaling
    weights: tuple[Tensor, ...]  # of the frame

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Features (b, r, p) of members (b, r, m) and observations (b, d)."""
        # Banks of other bandwidths get other directions.
        n, width = self.bank.n, self.bank.bandwidth
        u = self.bank.frame.coordinates(theta, x, self.scaling, *self.weights)
        of_theta, _ = random_waves(n, width, u.shape[-1], "member", str(width))
        of_x, phases = random_waves(n, 1.0, x.shape[1], "x", str(width))
        shift = self.scaling.x(x) @ of_x.to(u) + phases.to(u)
        return (u @ of_theta.to(u)).add_(shift[:, None]).cos_()
