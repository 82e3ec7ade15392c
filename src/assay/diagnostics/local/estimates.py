r"""Bias, width, correlation and coverage of q: averages near x_o, and what they are at x_o.

Near x_o they are averages over sets, at every size of the neighbourhood. At x_o they are what a
fit says that follows their change with x (:mod:`~assay.diagnostics.local.extrapolation`): of
residuals, of the logarithm of their squares around the first fit, of products, and of whether a
truth lies inside.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ...results import LEVELS
from .claims import pairs
from .extrapolation import Extrapolation, Z

if TYPE_CHECKING:
    from .seen import Seen

# A variance that is less than so many of its errors is not told; nor is anything where widths of a
# right q would scatter by this much, in logarithms.
TOLD, UNKNOWN = 2.0, 0.5
# The share of the correction for few draws that may be left, from k = 12 on; measured.
LEFT = 0.2


class Told(NamedTuple):
    """Numbers with the ends of their 95 % intervals."""

    value: Tensor
    lower: Tensor
    upper: Tensor

    @classmethod
    def normal(cls, value: Tensor, error: Tensor) -> "Told":
        """With intervals of normal laws."""
        return cls(value, value - Z * error, value + Z * error)

    @classmethod
    def joined(cls, parts: "list[Told]") -> "Told":
        """Those of several sizes, with a leading axis."""
        return cls(*(torch.stack(part) for part in zip(*parts, strict=True)))


class Estimate(NamedTuple):
    """Numbers near x_o (c, ...) and at x_o (...,), if that is told.

    The null is the standard deviation that those near x_o would have if q were right.
    """

    near: Told
    null: Tensor
    at: Told | None


@dataclass(frozen=True, eq=False)
class Averages:
    """Mean of residuals and variance of the truth over that of q, with errors; all (..., m).

    Spread is the variance of residuals; unit, inflated and first are what draws do to a mean, to a
    mean of squares, and to a mean of zero.
    """

    mean: Tensor
    mean_error: Tensor
    variance: Tensor
    variance_error: Tensor
    spread: Tensor
    unit: Tensor
    inflated: Tensor
    first: Tensor

    @property
    def bias(self) -> Told:
        """How much too high q is."""
        return Told.normal(-self.mean, self.mean_error)

    @property
    def width(self) -> Told:
        """The standard deviation of q over that of the truth, which may be known from below only.

        It is more nearly normal by its logarithm.
        """
        told = self.variance > TOLD * self.variance_error
        value = torch.where(told, self.variance, 1).rsqrt()
        factor = torch.where(told, 0.5 * Z * self.variance_error / self.variance, 0).exp()
        most = (self.variance.clamp_min(0) + Z * self.variance_error).clamp_min(1e-30)
        return Told(
            torch.where(told, value, torch.nan),
            torch.where(told, value / factor, most.rsqrt()),
            torch.where(told, value * factor, torch.inf),
        )


@dataclass(frozen=True, eq=False)
class Estimates:
    """What is told of b sets, the nearest first, with shares (c, b) and a fit that goes to x_o."""

    seen: "Seen"
    shares: Tensor
    fit: Extrapolation | None

    @cached_property
    def near(self) -> tuple[Averages, ...]:
        """Averages at every size."""
        return tuple(self._average(share) for share in self.shares)

    def _average(self, share: Tensor) -> Averages:
        """Averages with shares (b,) of the sets."""
        z, law = self.seen.z, self.seen.law
        inflated = (share @ law.second / (1 + law.noise)).clamp_min(1e-30)
        unit = inflated.clamp_min(1) ** 0.375
        first, raw = (share @ law.first) / unit, share @ z
        squares, weights = (z - raw).square(), share.square()
        spread = share @ squares / (1 - weights.sum())
        error = (weights @ squares).sqrt() / unit
        scatter = (weights @ (squares - spread).square()).sqrt() / inflated
        mean, total = raw / unit - first, spread + raw.square()
        # The mean of skewed draws goes with their deviation, by as much as it moves residuals.
        variance = total / inflated - law.noise - mean.square() - 4 * mean * first
        return Averages(mean, error, variance, scatter, spread, unit, inflated, first)

    @cached_property
    def _at(self) -> tuple[Averages, Tensor] | None:
        """What they are at x_o, and residuals (b, m) over their own deviations."""
        if self.fit is None:
            return None
        size, usual = len(self.fit.terms), self.near[-1]
        raw = self.fit(self.seen.z[:size])
        left = self.seen.z[:size] - raw.points
        logs = self.fit.log_variance(left.square() * size / (size - raw.degrees))
        unit, inflated, first = usual.unit, usual.inflated, usual.first
        mean, spread = raw.value / unit - first, logs.value.exp()
        total = (spread + raw.value.square()) / inflated
        variance = total - self.seen.law.noise - mean.square() - 4 * mean * first
        told = (mean, raw.error / unit, variance, spread * logs.error / inflated)
        return Averages(*told, spread, unit, inflated, first), left * (-0.5 * logs.points).exp()

    @property
    def known(self) -> Tensor:
        """Whether q has a standard deviation to measure by, at every size (c, m)."""
        return self.seen.known & (self.width.null < UNKNOWN)

    @property
    def bias(self) -> Estimate:
        """How much too high q is, in its standard deviations."""
        near, size = Told.joined([one.bias for one in self.near]), self.shares.square().sum(1)
        unit = torch.stack([one.unit for one in self.near])
        null = (self.shares @ self.seen.law.second * size[:, None]).sqrt() / unit
        return Estimate(near, null, None if self._at is None else self._at[0].bias)

    @property
    def width(self) -> Estimate:
        """The standard deviation of q over that of the truth; the null is of its logarithm."""
        near, law = Told.joined([one.width for one in self.near]), self.seen.law
        second, fourth = self.shares @ law.second, self.shares @ law.fourth
        excess = (fourth / second.square() - 1).clamp_min(0)
        null = 0.5 * (1 + law.noise) * (excess * self.shares.square().sum(1)[:, None]).sqrt()
        return Estimate(near, null, None if self._at is None else self._at[0].width)

    @property
    def correlation(self) -> Estimate:
        """How much too high the correlation of q is, for every pair."""
        near, at = [], None
        for share, one in zip(self.shares, self.near, strict=True):
            scaled = (self.seen.z - share @ self.seen.z) * one.spread.clamp_min(1e-30).rsqrt()
            y = self._difference(scaled, share, one)
            mean = share @ y
            near.append(Told.normal(mean, (share.square() @ (y - mean).square()).sqrt()))
        if self.fit is not None and self._at is not None and self.seen.z.shape[1] > 1:
            there, left = self._at
            even = torch.full_like(left[:, 0], 1 / len(left))
            found = self.fit(self._difference(left, even, there))
            at = Told.normal(found.value, found.error)
        size = self.shares.square().sum(1)[:, None] * (1 + self.seen.law.noise)
        null = (1 - (self.shares @ self._own).square()).clamp_min(0) * size.sqrt()
        return Estimate(Told.joined(near), null, at)

    def _difference(self, scaled: Tensor, share: Tensor, averages: Averages) -> Tensor:
        """Numbers (b, p) whose mean is the correlation of q less that of the truth.

        They come from residuals over their deviations (b, m).
        """
        first, second = pairs(scaled.shape[1])
        a, b = scaled[:, first], scaled[:, second]
        r = share @ (a * b)
        # A correlation also moves with the variances that it is divided by.
        linear = a * b - 0.5 * r * (a.square() + b.square()) + r
        raw = (averages.spread / averages.inflated).clamp_min(1e-30).sqrt()
        true = averages.variance.clamp_min(1e-30).sqrt()
        both, bare, shrunk = (
            part[first] * part[second] for part in (raw, true, averages.inflated)
        )
        own = self._own[: len(scaled)]
        found = own * (1 + self.seen.law.noise / bare) - linear * both / bare
        # Two deviations of draws that differ make products smaller than the squares say.
        return found * shrunk ** ((1 - (share @ own).square()) / 8)

    @cached_property
    def _own(self) -> Tensor:
        """The correlation of q in every set (b, p), over its deviations near x_o."""
        first, second = pairs(self.seen.z.shape[1])
        if self.seen.linked is not None:
            return self.seen.linked[first, second].expand(len(self.seen.z), -1)
        draws = self.seen.members[:, 1:]
        scaled = draws * (self.shares[-1] @ draws.square().mean(1)).clamp_min(1e-30).rsqrt()
        products: Tensor = scaled.mT @ scaled / draws.shape[1]
        return products[:, first, second]

    @cached_property
    def coverage(self) -> Estimate:
        """How often intervals, and last regions, of q hold the truth, (m + 1, l)."""
        each = [self._share_inside(share) for share in self.shares]
        near = Told.joined([_binomial(*one[:3]) for one in each])
        null, at = torch.stack([one[2] for one in each]), None
        if self.fit is not None:
            found = self.fit(each[-1][3][: len(self.fit.terms)].flatten(1))
            mean, error = (
                part.unflatten(0, null.shape[1:]) for part in (found.value, found.error)
            )
            more = (len(self.fit.terms) / self.fit.size) ** 0.5
            at = _binomial(mean.clamp(0, 1), error, null[-1] * more)
        return Estimate(near, null, at)

    def _share_inside(self, shares: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Shares (m + 1, l), their errors and nulls, and what they are means of (b, m + 1, l)."""
        seen, rows = self.seen, shares.nonzero().flatten()
        share, levels = shares[rows], shares.new_tensor(LEVELS)
        views = seen.shells.inside(rows, share).to(share)
        if seen.inside is not None:
            views[0, :, :-1] = seen.inside[rows]
        values = torch.einsum("v,vbjl->bjl", share.new_tensor(seen.shells.combined), views)
        mean, plain = (torch.einsum("b,bjl->jl", share, part) for part in (values, views[0]))
        spread, alone = (
            torch.einsum("b,bjl->jl", share.square(), (part - centre).square())
            for part, centre in ((values, mean), (views[0], plain))
        )
        # What combining costs in variance is seen in the data, where anything varies at all.
        cost = torch.where(alone > 0, spread / alone.clamp_min(1e-300), 1.0).clamp_min(1)
        # The edges of an interval are those of so many draws.
        chance = levels * (1 - levels)
        null = (chance * share.square().sum() * cost + chance / seen.draws).sqrt()
        error = (spread + (LEFT * (mean - plain)).square() + chance / seen.draws).sqrt()
        return mean.clamp(0, 1), error, null, values


def _binomial(share: Tensor, error: Tensor, null: Tensor) -> Told:
    """A share with the interval of Wilson 1927 for as many pairs as errors say.

    A share that was put together of several views may have been cut off at zero or one, where
    nothing tells the pairs; its own error reaches as far as it would have.
    """
    levels = share.new_tensor(LEVELS)
    n = levels * (1 - levels) / null.square()
    inner = (share > 0) & (share < 1) & (error > 0)
    told = share * (1 - share) / torch.where(inner, error, 1).square()
    n = torch.where(inner, torch.minimum(n, told), n)
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * (share * (1 - share) / n + Z**2 / (4 * n**2)).sqrt()
    low = torch.minimum(centre - half, share - Z * error).clamp(0, 1)
    return Told(share, low, torch.maximum(centre + half, share + Z * error).clamp(0, 1))
