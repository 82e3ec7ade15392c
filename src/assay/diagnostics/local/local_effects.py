r"""Effects near x_o and at x_o: bias, width, correlation and coverage, with intervals and claims.

Truths near x_o are measured by q: a residual is a truth less the mean of q, in standard deviations
of q, at the same x. **Near x_o**, averages of residuals, of their squares and products are the
bias, width and correlation of q, on average over the sets near x_o. **At x_o** they are what a fit
says that follows their change with x (:mod:`~assay.diagnostics.local.extrapolation`). **Claims**
that any of them is wrong are made by exchanges (:mod:`~assay.diagnostics.local.claims`).
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..._core import Seed, cpu, mix_seed, one_thread, seed_of, spread_over, stream
from ...classifiers.features import Coordinates, NormalScores, Whitened
from ...results import LEVELS, Rowed
from ...samples.calibration import Calibration, Draws, check_calibration
from ...samples.neighbourhoods import Neighbourhood, as_neighbourhood, spread
from .claims import Claim, Exchanged, claims, pairs, varying
from .estimates import Estimate, Estimates, Told
from .extrapolation import MOST_POINTS, PER_TERM, Extrapolation
from .moment_effects import Tail, tail
from .seen import Seen, source_of, usable

# Exchanges that claims are made by, and sets near an observation that are looked at.
COPIES, MOST_SETS = 199, 2**15
# Truths near an observation that are kept to be shown, at most, beside as many draws of q.
SHOWN = 300
# How far out they are shown, in standard deviations.
FARTHEST = 1e4


@dataclass(frozen=True, eq=False)
class Kind(Rowed):
    """Numbers of one kind, j of them: near x_o at c sizes, and at x_o.

    All fields have one more axis, first, for o observations. What cannot be told is NaN.

    Args:
        value, lower, upper: The number on average near x_o, and its 95 % interval, (c, j).
        null: Its standard deviation if q were right, (c, j); of its logarithm for widths.
        pvalue: That of the claim that it is wrong, adjusted for all claims, (c, j).
        sign: Whether the truth has more (1) or less (-1) of it than q, (c, j).
        at, at_lower, at_upper: The number at x_o and its 95 % interval, (j,).
        varies: P-value of the claim that the error changes near x_o, (j,).
    """

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    null: np.ndarray
    pvalue: np.ndarray
    sign: np.ndarray
    at: np.ndarray
    at_lower: np.ndarray
    at_upper: np.ndarray
    varies: np.ndarray


@dataclass(frozen=True, eq=False)
class Sizes(Rowed):
    """Bias and width near x_o against the share of the sets that is near.

    Args:
        near: The shares, from the smallest to the largest, with shape (c,); where two sizes are
            asked, there is one more between them.
        bias, dispersion: The numbers and the ends of their 95 % intervals, with shape (3, c, m).
    """

    near: np.ndarray
    bias: np.ndarray
    dispersion: np.ndarray


@dataclass(frozen=True, eq=False)
class LocalEffects(Rowed):
    """What is wrong with q near x_o and at x_o, in m parameters or latents.

    Args:
        bias: How much too high the mean of q is, in standard deviations of q; j = m.
        dispersion: Standard deviation of q over that of the truth, j = m; above one, too wide.
        correlation: How much too high the correlation of q is, for every pair of parameters.
        intervals: How often q's central intervals hold the truth; j is (m, l) for :data:`LEVELS`.
        region: The same of q's regions, j = l.
        tail: Truths where q has next to no mass.
        near: The share of the sets that is near at each size, with shape (c,).
        sizes: Bias and width against that share.
        truths, drawn: Some truths near x_o, and as many draws of q, less the mean of q and in its
            deviations, at the same x, with shape (s, m); NaN where there are fewer.
        named: Whether errors are told in parameters, rather than in latents.
    """

    bias: Kind
    dispersion: Kind
    correlation: Kind
    intervals: Kind
    region: Kind
    tail: Tail
    near: np.ndarray
    sizes: Sizes
    truths: np.ndarray
    drawn: np.ndarray
    named: bool


def local_effects(
    calibration: Calibration,
    draws: Any,
    where: Neighbourhood | None = None,
    coordinates: Coordinates | None = None,
    seed: Seed = 0,
    copies: int = COPIES,
) -> LocalEffects:
    """Effects near one observation or many, and at them.

    Args:
        calibration: Pairs with three or more draws of q at each x, or latents of a flow.
        draws: The observations; with draws of q there a flow tells of parameters.
        where: The neighbourhood; the nearest 5, 10 and 20 % of x by default.
        coordinates: In which the regions of draws are measured; whitened sets by default.
        seed: An int or a generator. The same seed gives the same claims.
        copies: The number of exchanges that claims are made by.

    Example:
        >>> z, x = torch.randn(2, 2000, 2, generator=torch.Generator().manual_seed(0))
        >>> slope = Calibration.from_base(z - x, x)  # q is x too high
        >>> found = local_effects(slope, torch.tensor([1.0, -1.0]))
        >>> found.bias.value[-1].round(1), found.bias.at.round(1)
        (array([ 0.9, -0.9]), array([ 1. , -1.1]))
        >>> found.bias.pvalue[-1]
        array([0.005, 0.005])
    """
    check_calibration(calibration)
    where, draws, seed = as_neighbourhood(where), Draws.of(draws), seed_of(seed)
    named, calibration = calibration.named, usable(calibration, seed)
    observation = calibration.observation(draws)
    source = source_of(calibration, coordinates or Whitened(), draws, seed)
    weights = where.weights(calibration.features, observation.features).double()
    points, x_o = where.coordinates(calibration.features, observation.features)
    own, few = calibration.own_seed(seed), _directions(calibration, points, weights)

    def one(i: int) -> LocalEffects:
        # Where x_o stands among the features is the same in all units.
        place = (calibration.features < observation.features[i]).sum(0).cpu().numpy()
        chance = stream(mix_seed(own, place), "effects")
        around = _Around.of(weights[i], points.double() - x_o[i].double(), few)
        return _effects(source.seen(around.rows, i, chance), around, copies, chance)

    workers = torch.get_num_threads() if weights.device.type == "cpu" else 1
    with one_thread(), spread_over(min(workers, len(x_o))) as apply:
        found: LocalEffects = observation.shaped(_joined(list(apply(one, range(len(x_o))))))
    return replace(found, named=named)


@dataclass(frozen=True, eq=False)
class _Around:
    """The b sets around one observation, the nearest first.

    Args:
        rows: Which they are, with shape (b,).
        shares: Their shares at every size, with shape (c, b).
        moved: Where they lie from x_o, with shape (b, d).
        near: The share of all sets that is near at each size, with shape (c,).
    """

    rows: Tensor
    shares: Tensor
    moved: Tensor
    near: Tensor

    @classmethod
    def of(cls, weights: Tensor, moved: Tensor, directions: Tensor | None) -> "_Around":
        """From weights (c, n) of all sets, and where they lie (n, d); in few directions if any."""
        rows = (weights != 0).any(0).nonzero().flatten()
        near = weights.sum(1).square() / weights.square().sum(1) / weights.shape[1]
        rows = rows[moved[rows].square().sum(1).argsort(stable=True)][
            :: 1 + len(rows) // MOST_SETS
        ]
        shares = weights[:, rows] / weights[:, rows].sum(1, keepdim=True)
        moved = moved[rows] if directions is None else moved[rows] @ directions
        return cls(rows, shares, moved, near)

    @property
    def sizes(self) -> tuple[Tensor, Tensor]:
        """Shares (c, b) of the sets at each size, and of all sets (c,); one more between two."""
        counts = (self.shares > 0).sum(1)
        if len(counts) != 2 or counts[0] == counts[1]:
            return self.shares, self.near
        few = int(counts.double().prod().sqrt())
        middle = (cpu.arange(self.shares.shape[1]) < few).to(self.shares) / few
        near = torch.stack([self.near[0], self.near.prod().sqrt(), self.near[1]])
        return torch.stack([self.shares[0], middle, self.shares[1]]), near

    def contrasts(self) -> Tensor:
        """What an error may vary with (b, p): coordinates, distance, and being very near."""
        distance = self.moved.square().sum(1, keepdim=True)
        inner = (self.shares[:-1] > self.shares[-1:]).mT.to(distance)
        raw = torch.cat([self.moved, distance, inner], 1)
        centred = raw - raw.mean(0)
        norms = centred.norm(dim=0)
        return centred / torch.where(norms > 0, norms, 1)


def _directions(calibration: Calibration, points: Tensor, weights: Tensor) -> Tensor | None:
    """Directions (d, e) in x with which the means of sets move, where x has too many of its own.

    The slopes of least squares with a small penalty; members tell them, whoever is the truth.
    """
    d = points.shape[1]
    fewest = int((weights != 0).any(1).sum(1).min())
    if fewest >= PER_TERM * (d + 2) or calibration.theta_q is None:
        return None
    means = calibration.members.double().mean(1)
    x, y = ((part - part.mean(0)) / spread(part) for part in (points.double(), means))
    gram = x.mT @ x + d * cpu.eye(d).to(x)
    slopes = torch.linalg.solve(gram, x.mT @ y) / spread(points.double())[:, None]
    most = max(1, fewest // PER_TERM - 2)
    found: Tensor = torch.linalg.svd(slopes, full_matrices=False).U[:, :most]
    return found


def _effects(seen: Seen, around: _Around, copies: int, chance: torch.Generator) -> LocalEffects:
    """All numbers at one observation."""
    told = Estimates(seen, around.shares, Extrapolation.of(around.moved[:MOST_POINTS]))
    levels = torch.special.ndtri(around.shares.new_tensor(LEVELS))
    marks = _scores(seen.distances[..., None]) <= levels
    exchanged = Exchanged.of(_scores(seen.members), marks, copies, chance)
    said, varies = claims(exchanged, around.shares), varying(exchanged, around.contrasts())
    # An interval is wrong where bias or width is.
    either = np.minimum(said.bias.pvalue, said.width.pvalue)[..., None].repeat(len(LEVELS), 2)
    first, second = pairs(seen.z.shape[1])
    known, covered = told.known, told.coverage
    everywhere, even = known.new_ones(()), np.ones(())
    inner, outer = (_of(covered, part) for part in (slice(0, -1), -1))
    return LocalEffects(
        bias=_kind(told.bias, said.bias, known, varies[0]),
        dispersion=_kind(told.width, said.width, known, varies[1]),
        correlation=_kind(
            told.correlation, said.correlation, known[:, first] & known[:, second], even
        ),
        intervals=_kind(inner, Claim(either, np.zeros_like(either)), everywhere, even),
        region=_kind(outer, said.region, everywhere, even),
        tail=tail(seen.shells, around.shares[None])[0],
        near=around.near.cpu().numpy(),
        sizes=_sizes(seen, around),
        **_shown(seen, around),
        named=True,
    )


def _sizes(seen: Seen, around: _Around) -> Sizes:
    """Bias and width against the share that is near."""
    shares, near = around.sizes
    told = Estimates(seen, shares, None)
    bias, width = (
        torch.where(told.known, torch.stack(tuple(kind.near)), torch.nan).cpu().numpy()
        for kind in (told.bias, told.width)
    )
    return Sizes(near.cpu().numpy(), bias, width)


def _shown(seen: Seen, around: _Around) -> dict[str, np.ndarray]:
    """Truths of the largest size and, for each, a draw of q at the same x."""
    rows = (around.shares[-1] > 0).nonzero().flatten()
    rows = rows[cpu.linspace(0, len(rows) - 1, min(SHOWN, len(rows))).round().long()]
    both = {"truths": seen.z[rows], "drawn": seen.members[rows, 1]}
    blank = (0, 0, 0, SHOWN - len(rows))
    pad = torch.nn.functional.pad
    return {
        name: pad(part.clamp(-FARTHEST, FARTHEST).half(), blank, value=torch.nan).cpu().numpy()
        for name, part in both.items()
    }


def _of(estimate: Estimate, which: int | slice) -> Estimate:
    """Some of the numbers (c, j, ...) near x_o, and (j, ...) at x_o."""
    near = Told(*(part[:, which] for part in estimate.near))
    at = None if estimate.at is None else Told(*(part[which] for part in estimate.at))
    return Estimate(near, estimate.null[:, which], at)


def _kind(estimate: Estimate, claim: Claim, known: Tensor, varies: np.ndarray) -> Kind:
    """Numbers as arrays; NaN where they are not known (c, ...), nor told."""
    known = known.expand(estimate.null.shape)
    none = torch.full_like(estimate.null[-1], torch.nan)
    at = Told(none, none, none) if estimate.at is None else estimate.at
    near = (torch.where(known, part, torch.nan) for part in (*estimate.near, estimate.null))
    there = (torch.where(known[-1], part, torch.nan) for part in at)
    value, lower, upper, null, *ends = (part.cpu().numpy() for part in (*near, *there))
    return Kind(
        *(value, lower, upper, null, claim.pvalue, claim.sign),
        *(ends[0], ends[1], ends[2], np.broadcast_to(varies, none.shape)),
    )


def _scores(members: Tensor) -> Tensor:
    """Normal scores of members (b, r, m) among those of all sets."""
    return NormalScores()(members.double().flatten(0, 1)[None]).reshape(members.shape)


def _joined(parts: list[Any]) -> Any:
    """Parts of single observations as one, with a leading axis."""
    first = parts[0]
    if isinstance(first, np.ndarray):
        return np.stack(parts)
    if not isinstance(first, Rowed):
        return first
    names = [name for name in vars(first) if name not in first.shared]
    columns = {name: _joined([getattr(part, name) for part in parts]) for name in names}
    return replace(cast(Any, first), **columns)
