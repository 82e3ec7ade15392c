r"""What the moment test tells of q near x_o: bias, width, correlation and coverage, with errors.

Averages of residuals of truths near x_o are the local bias, dispersion and correlation of q.
If q is right, the truth lies in a region of level l with probability l. **In latent space** the
regions are balls, :math:`|z|^2 \le \chi^2_{m, l}`, and intervals :math:`|z_j| \le \Phi^{-1}((1 +
l) / 2)`. **With k draws** at each x, every member of a set is measured against the others of its
set: by its distance in their own mean and covariance, and by its residual in every parameter. A
region ends where a share l of all members near x_o lies inside, so that the coverage is exactly l
if q is right, whatever k, m and the shape of q.

A mean and a covariance of k draws are noisy, which draws the coverage of a wrong q towards l by an
amount of order 1 / k. The same is computed with both halves of the draws, where it is twice as
large, and

.. math:: 2 C(k) - \tfrac{1}{2} (C_1(k / 2) + C_2(k / 2))

leaves an error of order :math:`1 / k^2` (Quenouille 1956, *Notes on bias in estimation*).
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import scipy.special
import torch
from torch import Tensor

from ...classifiers.features import Coordinates
from ...results import LEVELS, Rowed
from ...samples.neighbourhoods import middle

# The share of latents beyond which a truth is said to lie in the tail of q.
BEYOND = 1e-3
# Members by which the edges of regions are found.
MEMBERS = 2**16
# The share of the correction for few draws that may be left, from k = 12 on; measured.
LEFT = 0.2
# Draws for each unknown of an affine map between latents and parameters.
NEIGHBOURS = 3
# Draws for each feature from which on least squares are steadier than means of products.
PER_FEATURE = 4
# Rows that are carried to x_o at a time.
ROWS = 2**14


@dataclass(frozen=True, eq=False)
class MomentTable(Rowed):
    """Local errors of q in m directions, at c sizes, each with its error and its null.

    Fields have shape (c, m), or (o, c, m) for o observations; correlations one more m, intervals
    one more axis of levels. An error is the standard error of the estimate; a null is the standard
    deviation it would have if q were right, so that anything within twice of it is noise.

    Args:
        bias, bias_error, bias_null: How much too high q is, in standard deviations of q.
        dispersion, dispersion_error, dispersion_null: Standard deviation of q over that of the
            truth: above one, q is too wide.
        correlation, correlation_null: Correlation of the truth between directions in which q has
            none; None where the directions are parameters. The null has shape (c, 1, 1).
        intervals, intervals_error, intervals_null: How often q's central intervals contain the
            truth, at the levels :data:`LEVELS`; None where that is not told.
    """

    bias: np.ndarray
    bias_error: np.ndarray
    bias_null: np.ndarray
    dispersion: np.ndarray
    dispersion_error: np.ndarray
    dispersion_null: np.ndarray
    correlation: np.ndarray | None
    correlation_null: np.ndarray | None
    intervals: np.ndarray | None = None
    intervals_error: np.ndarray | None = None
    intervals_null: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class RegionCoverage(Rowed):
    """How often q's central regions contain the truth near x_o, at c sizes and :data:`LEVELS`.

    A region is the ball of latents that has its level under N(0, I); where there are draws it is
    their ellipsoid, that of their own mean and covariance. Fields have shape (c, l), or (o, c, l):
    the share of truths inside, which is the level if q is right, its error and its null.
    """

    share: np.ndarray
    error: np.ndarray
    null: np.ndarray


@dataclass(frozen=True, eq=False)
class Tail(Rowed):
    """Truths near x_o where q has next to no mass, at c sizes; fields (c,), or (o, c).

    What q cannot show, such as a mode it has lost, no reweighting of its draws can show either.
    Of so many truths near x_o a count lies beyond, where a share (), expected if q is right, is
    that of latents outside a ball of 99.9 %, or of truths farther out than all k draws.
    """

    count: np.ndarray
    truths: np.ndarray
    share: np.ndarray
    shared: ClassVar[tuple[str, ...]] = ("share",)

    @property
    def pvalue(self) -> np.ndarray:
        """The exact binomial probability of as many truths beyond if q is right."""
        return np.asarray(scipy.special.bdtrc(self.count - 1, self.truths, self.share))


class Shells(Protocol):
    """Nested regions of q at n points, and where the truths lie in them."""

    @property
    def combined(self) -> tuple[float, ...]:
        """How v ways of telling what is inside are added up."""

    @property
    def beyond(self) -> tuple[Tensor, float]:
        """Whether truths lie in the tail of q (n,), and the share that does if q is right."""

    def inside(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Whether the truths of b rows are inside (v, b, m + 1, l), the region behind intervals.

        Where ties make an edge unsharp, how much of them is inside. Shares (b,) sum to one.
        """


@dataclass(frozen=True, eq=False)
class Balls:
    """Balls and intervals of a standard normal base, with latents z (n, m) of the truths."""

    z: Tensor
    combined: ClassVar[tuple[float, ...]] = (1.0,)

    @property
    def beyond(self) -> tuple[Tensor, float]:
        """Whether truths lie in the tail of q (n,), and the share that does if q is right."""
        m = self.z.shape[1]
        return self.z.double().square().sum(1) > scipy.special.chdtri(m, BEYOND), BEYOND

    def inside(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Whether the truths of b rows are inside (1, b, m + 1, l), the region last."""
        squares = self.z[rows].double().square()
        table = torch.cat([squares, squares.sum(1, keepdim=True)], 1)
        degrees = np.array([1] * squares.shape[1] + [squares.shape[1]])
        edges = scipy.special.chdtri(degrees[:, None], 1 - np.array(LEVELS))
        return (table[..., None] <= torch.from_numpy(edges).to(table)).to(table)[None]


@dataclass(frozen=True, eq=False)
class Ellipsoids:
    """Ellipsoids and intervals of the draws at each x, from members (n, k + 1, m), truths first.

    The length of a member in the coordinates of its set is its distance.
    """

    members: Tensor
    coordinates: Coordinates

    @property
    def combined(self) -> tuple[float, ...]:
        """All draws, and both halves of them where they are enough."""
        return (2.0, -0.5, -0.5) if len(self._views) == 3 else (1.0,)

    @property
    def beyond(self) -> tuple[Tensor, float]:
        """Whether truths lie farther out than all draws (n,), and the share if q is right."""
        norms = self._views[0][..., -1]
        return norms[:, 0] > norms[:, 1:].amax(1), 1 / norms.shape[1]

    def inside(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Whether the truths of b rows are inside (v, b, m + 1, l), the region last."""
        some = torch.arange(0, len(rows), 1 + len(rows) * self._views[0].shape[1] // MEMBERS)
        some = some.to(rows.device)
        weights = shares[some].clamp_min(0)
        views = (_inside(view[rows, 0], view[rows[some]], weights) for view in self._views)
        return torch.stack(list(views))

    @cached_property
    def _views(self) -> list[Tensor]:
        """Residuals and distances (n, r, m + 1) of members, the truth first, in three views."""
        r, m = self.members.shape[1:]
        half = (r - 1) // 2
        truth, parts = self.members[:, :1], [self.members]
        if self.coordinates.enough(half, m):
            # Too few draws to be halved leave an error of order 1 / k.
            halves = self.members[:, 1 : 1 + half], self.members[:, 1 + half : 1 + 2 * half]
            parts += [torch.cat([truth, draws], 1) for draws in halves]
        return [self._measured(part) for part in parts]

    def _measured(self, members: Tensor) -> Tensor:
        norms = self.coordinates(members).square().sum(2, keepdim=True)
        return torch.cat([residuals(members), norms], 2)


def residuals(members: Tensor) -> Tensor:
    """Members (n, r, m) against the mean of the others of their set, in their deviations."""
    k = members.shape[1] - 1
    centred = members - middle(members, 1)
    centred = centred - centred.mean(1, keepdim=True)
    total = centred.square().sum(1, keepdim=True)
    # Mean and variance of the others: their sum is minus one's own.
    variance = (total - centred.square() * (1 + 1 / k)).clamp_min(0) / (k - 1)
    # A set without variation, or a member far from k identical ones, tells nothing.
    least = torch.finfo(members.dtype).eps * total / k
    scale = torch.maximum(variance, least).sqrt()
    return centred * (1 + 1 / k) / torch.where(scale > 0, scale, torch.ones_like(scale))


def _inside(truths: Tensor, view: Tensor, weights: Tensor) -> Tensor:
    """How much of truths (b, m + 1) lies inside intervals and regions of members (b, m + 1, l).

    A truth takes the levels between the weight of members below it and that of members not above
    it; ties share them, so that a right q is covered as it should be whatever its ties. Members
    near x_o have the view (c, r, m + 1), and their sets weights (c,).
    """
    table, order = view.flatten(0, 1).sort(0)
    below = weights.repeat_interleave(view.shape[1])[order].double().cumsum(0).mT
    below = torch.nn.functional.pad(below / below[:, -1:], (1, 0))
    columns, values = table.mT.contiguous(), truths.mT.contiguous()
    start, end = (
        below.gather(1, torch.searchsorted(columns, values, right=right)).mT[..., None]
        for right in (False, True)
    )
    levels = torch.tensor(LEVELS).to(below)
    lower = ((1 - levels) / 2).repeat(view.shape[2], 1)
    upper = ((1 + levels) / 2).repeat(view.shape[2], 1)
    lower[-1], upper[-1] = 0, levels
    # Truths among members have levels of their own; one between two members has a single one.
    width = (end - start).clamp_min(1e-12)
    overlap = torch.minimum(start + width, upper) - torch.maximum(start, lower)
    return (overlap / width).clamp(0, 1)


def shares_inside(shells: Shells, weights: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares of truths inside, errors and nulls, (o, c, m + 1, l) each, from weights (o, c, n).

    Example:
        >>> z = torch.randn(10_000, 2, generator=torch.Generator().manual_seed(0))
        >>> share, error, null = shares_inside(Balls(0.7 * z), torch.ones(1, 1, 10_000))
        >>> share[0, 0, :, 1].round(2)  # both intervals and the region of 90 %
        array([0.98, 0.98, 0.99])
    """
    each = [_shares_inside(shells, row) for row in weights.flatten(0, 1)]
    parts = (torch.stack(part).unflatten(0, weights.shape[:2]) for part in zip(*each, strict=True))
    share, error, null = (part.cpu().numpy() for part in parts)
    return share, error, null


def _shares_inside(shells: Shells, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same (m + 1, l) for weights (n,) of one observation and size."""
    rows = weights.nonzero().flatten()
    shares = (weights[rows] / weights[rows].sum()).double()
    views = shells.inside(rows, shares).double()
    values = torch.einsum("v,vbjl->bjl", views.new_tensor(shells.combined), views)
    mean, plain = (torch.einsum("b,bjl->jl", shares, part) for part in (values, views[0]))
    squares = shares.square()
    spread, alone = (
        torch.einsum("b,bjl->jl", squares, (part - centre).square())
        for part, centre in ((values, mean), (views[0], plain))
    )
    levels = mean.new_tensor(LEVELS)
    # What combining costs in variance is seen in the data, where anything varies at all.
    cost = torch.where(alone > 0, spread / alone.clamp_min(1e-300), 1.0).clamp_min(1)
    null = (levels * (1 - levels) * squares.sum() * cost).sqrt()
    error = (spread + (LEFT * (mean - plain)).square()).sqrt()
    return mean.clamp(0, 1), error, null


def tail(shells: Shells, weights: Tensor) -> Tail:
    """Truths with any of the weights (o, c, n) that lie in the tail of q."""
    beyond, share = shells.beyond
    near = weights != 0
    return Tail((near & beyond).sum(2).cpu().numpy(), near.sum(2).cpu().numpy(), np.array(share))


@dataclass(frozen=True, eq=False)
class ResidualLaw:
    """Moments (n, m) of residuals of truths if q were right; few skewed draws have a first one.

    Noise is the variance of the mean of draws they are taken from, over that of one draw.
    """

    first: Tensor
    second: Tensor
    fourth: Tensor
    noise: float


def moment_table(
    weights: Tensor, z: Tensor, square: Tensor, null: ResidualLaw, *, correlated: bool
) -> MomentTable:
    r"""Bias, dispersion and correlation from local means of z (n, m) and of its square.

    Residuals from k draws have :math:`E z = b \, E[\sigma / s]` and :math:`E z^2 = (\rho + b^2 + 1
    / k) \, E[\sigma^2 / s^2]`, where s is the deviation of the draws and :math:`\rho = 1` if q is
    right. That gives the last factor, and its power 3/8 is the first
    where s is nearly lognormal; for normal draws it is right to a thousandth from k = 16 on.
    """
    shares = weights / weights.sum(2, keepdim=True)
    size = 1 / shares.square().sum(2, keepdim=True)
    second, fourth = shares @ null.second, shares @ null.fourth
    inflated = (second / (1 + null.noise)).clamp_min(1e-30)
    unit = inflated.clamp_min(1) ** 0.375
    first = (shares @ null.first) / unit
    mean = (shares @ z) / unit - first
    total = (shares @ square) / inflated
    mean_square = shares.square() @ z.square() / unit.square()
    mean_error = (mean_square - mean.square() / size).clamp_min(0).sqrt()
    # The mean of skewed draws goes with their deviation, by as much as it moves residuals.
    variance = (total - null.noise - mean.square() - 4 * mean * first).clamp_min(1e-6)
    dispersion = variance.rsqrt()
    # The variance moves with z^2 - 2 E[z] z.
    cross = shares.square() @ (square * z) / (inflated * unit)
    moves = shares.square() @ square.square() / inflated.square() - 4 * mean * cross
    moves = moves + 4 * mean.square() * mean_square - (total - 2 * mean.square()).square() / size
    excess = (fourth / second.square() - 1).clamp_min(0)
    columns = {
        "bias": -mean,
        "bias_error": mean_error,
        "bias_null": (second / size).sqrt() / unit,
        "dispersion": dispersion,
        "dispersion_error": 0.5 * dispersion / variance * moves.clamp_min(0).sqrt(),
        "dispersion_null": 0.5 * (1 + null.noise) * (excess / size).sqrt(),
    }
    if correlated:
        products = shares @ (z[:, :, None] * z[:, None]).flatten(1)
        products = products.unflatten(2, (z.shape[1], z.shape[1]))
        centred = products - mean[..., :, None] * mean[..., None, :]
        columns["correlation"] = centred * dispersion[..., :, None] * dispersion[..., None, :]
        columns["correlation_null"] = size.rsqrt()[..., None]
    plain: dict[str, Any] = {"correlation": None, "correlation_null": None}
    return MomentTable(**plain | {k: v.double().cpu().numpy() for k, v in columns.items()})


def expected_under_q(values: Tensor, features: Tensor) -> Tensor:
    """Means (j,) under q of values (s, j) at draws with features (s, p), whose means are zero.

    The constants of least squares; plain means with too few draws for them.
    """
    s, p = features.shape
    if s < PER_FEATURE * (1 + p):
        return values.mean(0)
    rows = torch.cat([torch.ones_like(features[:, :1]), features], 1).double()
    constants: Tensor = torch.linalg.lstsq(rows, values.double()).solution[0].to(values)
    return constants


def with_intervals(
    table: MomentTable, inside: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> MomentTable:
    """A table with the coverage of intervals (o, c, m, l), the error of it, and its null."""
    m = table.bias.shape[-1]
    names = ("intervals", "intervals_error", "intervals_null")
    return replace(table, **{k: v[:, :, :m] for k, v in zip(names, inside, strict=True)})


def carried_inside(
    weights: Tensor, carried: Tensor, theta: Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often intervals of draws theta (s, m) of q at x_o hold truths carried there (n, m).

    With error and null, (1, c, m, l) each, from weights (1, c, n) of the truths.
    """
    levels = torch.tensor(LEVELS).to(theta)
    lower, upper = (theta.quantile((1 + sign * levels) / 2, dim=0).mT for sign in (-1, 1))
    inside = ((carried[..., None] >= lower) & (carried[..., None] <= upper)).to(weights)
    shares = weights / weights.sum(2, keepdim=True)
    mean = torch.einsum("ocn,njl->ocjl", shares, inside)
    squares = shares.square().sum(2)[..., None, None]
    spread = torch.einsum("ocn,njl->ocjl", shares.square(), inside) - mean.square() * squares
    # The edges of an interval are those of so many draws.
    edges = levels * (1 - levels) / len(theta)
    error = (spread.clamp_min(0) + edges).sqrt()
    null = (levels * (1 - levels) * squares + edges).sqrt().expand_as(mean)
    share, errors, nulls = (part.double().cpu().numpy() for part in (mean, error, null))
    return share, errors, nulls


def carried_to(z: Tensor, draws: Tensor, theta: Tensor) -> Tensor:
    """Parameters (n, m) at x_o of latents (n, m), by affine maps through the nearest draws.

    A flow tells latents of parameters only; the other way, its draws at x_o, in latents (s, m) and
    parameters theta (s, m), are interpolated.
    """
    near = min(len(draws), NEIGHBOURS * (z.shape[1] + 1))
    parts = []
    for some in z.split(ROWS):
        index = torch.cdist(some, draws).topk(near, largest=False).indices
        moved = draws[index] - some[:, None]
        rows = torch.cat([torch.ones_like(moved[..., :1]), moved], 2)
        gram = rows.mT @ rows + 1e-4 * torch.eye(rows.shape[2]).to(rows)
        parts.append(torch.linalg.solve(gram, rows.mT @ theta[index])[:, 0])
    return torch.cat(parts)


def joined_tables(tables: list[MomentTable]) -> MomentTable:
    """Tables of single observations, each with a leading axis of one, as one table."""
    columns = {f.name: [getattr(table, f.name) for table in tables] for f in fields(MomentTable)}
    joined = {k: None if v[0] is None else np.concatenate(v) for k, v in columns.items()}
    return MomentTable(**cast(dict[str, Any], joined))
