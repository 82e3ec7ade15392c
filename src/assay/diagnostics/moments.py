r"""The local moment test: what the truth looks like, near x_o, in the coordinates of q.

If q is right near x_o, the latents :math:`z = T^{-1}(\theta; x)` of the truths there are draws of
N(0, I), and every feature :math:`\phi` with mean zero under it averages to nothing but noise. For
weights w around x_o of unit norm and several banks b of features,

.. math:: a_b = \sum_n w_n \phi_b(z_n), \qquad
    S = \max_w \sum_b -\log P(\chi^2_{\nu_b} \ge |a_b|^2 / s_b),

where the chi-square law of :math:`|a_b|^2` is that of its known mean and variance. S is compared
with its values for null copies, so the p-value is exact whatever the banks, weights and their
number. With :class:`~assay.neighbourhoods.Nearest` points far from x_o have no weight, and the
p-value is exact for the neighbourhood alone: nothing leaks in.

**Without a flow** the k draws of q at each x take its place: the truth and the draws are whitened
together by their own mean and covariance, features are centred within each set, and the null
exchanges which member plays the truth. This is exact for any sampler.

The averages of the first two orders are themselves the local bias, dispersion and correlation;
how often the regions of q contain the truth near x_o is told beside them.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import scipy.special
import scipy.stats
import torch
from torch import Tensor
from tqdm import tqdm

from ..bases import StandardNormal
from ..classifiers.features import BANKS, MOST_FEATURES, Hermite, Latent
from ..coordinates import Coordinates, Whitened
from ..door import check_kind
from ..neighbourhoods import Nearest, Where
from ..nulls import Exchange, KnownBase, LocalExchange
from ..randomness import Seed, seed_of
from ..results import LEVELS, MomentResult, MomentTable, RegionCoverage, Tail
from ..samples import Calibration, Draws, Place
from ..version import versions
from ..workers import spread_over
from .local_coverage import Balls, Ellipsoids, Shells, residuals, shares_inside, tail

__all__ = ["Moments", "moments"]

# Latents beyond this are moved to it: the cube of a wild one would drown all others.
FARTHEST = 8.0
# Rows that are summed over at a time, so that a million of them need little memory.
STEP = 2**14
# Draws for each unknown of an affine map between latents and parameters.
NEIGHBOURS = 3
# Draws for each feature from which on least squares are steadier than means of products.
PER_FEATURE = 4

# Features (rows, p) of a bank, for the i-th step of rows.
Step = Callable[[int, int], Tensor]


def moments(
    calibration: Calibration,
    where: Where | None = None,
    null: KnownBase | Exchange | LocalExchange | None = None,
    banks: tuple[Latent, ...] | Latent = BANKS,
    coordinates: Coordinates | None = None,
    seed: Seed = 0,
) -> "Moments":
    """Prepares the local moment test; nothing is trained.

    Args:
        calibration: Latents of a flow with base N(0, I), or pairs with k draws of q at each x.
        where: Weights around x_o: :class:`~assay.neighbourhoods.Nearest` by default, exact for the
            neighbourhood, or :class:`~assay.neighbourhoods.Smooth` over all points.
        null: How null copies are made; by default :class:`assay.KnownBase` in latent space and
            :class:`assay.Exchange` for draws. :class:`assay.LocalExchange` is these with its own
            neighbourhood for `where`.
        banks: Banks of features.
        coordinates: What stands in for latents where there are draws:
            :class:`~assay.coordinates.Whitened` by default, or
            :class:`~assay.coordinates.Ranks` for a q of several modes.
        seed: An int or a generator. The same seed gives the same test.

    Example:
        >>> z, x = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(0))
        >>> wide = Calibration.from_base(0.7 * z, x)
        >>> result = moments(wide)(Draws(torch.zeros(2)))
        >>> float(result.pvalue)
        0.005
        >>> result.directions.dispersion[-1].round(1)  # q is 1 / 0.7 = 1.4 times too wide
        array([1.4, 1.4])
    """
    check_kind("calibration", calibration, "a Calibration", "theta_q", "features")
    if isinstance(null, LocalExchange):
        if where is not None and where != null.where:
            raise ValueError(
                f"where: expected None, since {null!r} says what is near; got {where!r}."
            )
        where, null = null.where, null.like(calibration)
    where = Nearest() if where is None else where
    coordinates = Whitened() if coordinates is None else coordinates
    check_kind("where", where, "weights such as Nearest()", "weights", "hypothesis")
    check_kind("coordinates", coordinates, "coordinates such as Whitened()", "check")
    banks = tuple(banks) if isinstance(banks, tuple | list) else (banks,)
    if not banks:
        raise ValueError("banks: expected at least one; got none.")
    latent = calibration.base is not None
    if latent and not isinstance(calibration.base, StandardNormal):
        raise ValueError(
            "calibration: expected latents with base N(0, I), under which the features have known "
            "means; got another base. Transform it to a standard normal, or use draws theta_q."
        )
    for bank in banks:
        check_kind("banks", bank, "banks such as Hermite(2)", "size", "spread")
        if bank.size(calibration.m) > MOST_FEATURES:
            raise ValueError(
                f"banks: expected at most {MOST_FEATURES} features each; got "
                f"{bank.size(calibration.m)} from {bank!r} of {calibration.m} parameters. Leave "
                "it out."
            )
    if null is None:
        null = KnownBase() if latent else Exchange()
    if latent != isinstance(null, KnownBase):
        raise ValueError(
            f"null: expected {'KnownBase(n) for latents' if latent else 'Exchange(n) for draws'}; "
            f"got {null!r}."
        )
    calibration = calibration.sorted()
    if not latent:
        coordinates.check(calibration.k or 0, calibration.m)
    return Moments(calibration, where, null, banks, coordinates, seed_of(seed))


@dataclass(frozen=True, eq=False)
class Moments:
    """A local moment test; call it with :class:`assay.Draws`.

    Args:
        calibration: What it looks at.
        where: The weights around x_o.
        null: How null copies are made.
        banks: Banks of features.
        coordinates: What stands in for latents where there are draws.
        seed: The seed of its nulls.
    """

    calibration: Calibration
    where: Where
    null: KnownBase | Exchange
    banks: tuple[Latent, ...]
    coordinates: Coordinates
    seed: int

    def __call__(self, draws: Draws, null: np.ndarray | None = None) -> MomentResult:
        """Tests q at one observation or many.

        Args:
            draws: The observation x_o; draws of q there are needed only to tell errors in
                parameters through a flow.
            null: Null surprises (H, o, c) of :meth:`surprises` at the same observations, from any
                test in latent space with the same x, where, banks and seed; made anew if None.
        """
        check_kind("draws", draws, "Draws(x_o)", "x", "theta")
        place = self.calibration.place(draws)
        weights = self._weights(place)
        squares = self._squares(weights, slice(None) if null is None else slice(1))
        means, degrees = self._source.laws(self.banks)
        data, *others = _surprise(squares, means, degrees)
        null = np.array(others) if null is None else np.asarray(null)
        if null.shape[1:] != data.shape:
            raise ValueError(
                f"null: expected surprises at {len(data)} observation(s) and {data.shape[1]} "
                f"sizes; got shape {null.shape}."
            )
        pairs = _pairs(weights)
        axis = 0 if place.single else slice(None)
        directions, region, beyond = self._directions(weights)
        parameters = self._parameters(weights, draws)
        return MomentResult(
            statistic=data.max(1)[axis],
            null=null.max(2).T[axis],
            approximation=_approximation(squares[0], means, degrees)[axis],
            pairs=pairs[axis],
            x=place.x.cpu().numpy()[axis],
            directions=_each([directions], lambda v: v[0][axis]),
            parameters=None if parameters is None else _each([parameters], lambda v: v[0][axis]),
            hypothesis=self.where.hypothesis(float(pairs.max()) / len(self.calibration)),
            settings=self.settings,
            family=self.where.family,
            surroundings=self.calibration.surroundings(place),
            region=RegionCoverage(*(part[axis] for part in region)),
            tail=Tail(beyond.count[axis], beyond.truths[axis], beyond.share),
        )

    def surprises(self, draws: Draws) -> np.ndarray:
        """Null surprises (H, o, c), to be reused for other flows of the same task.

        Args:
            draws: The observations.
        """
        check_kind("draws", draws, "Draws(x_o)", "x", "theta")
        squares = self._squares(self._weights(self.calibration.place(draws)), slice(1, None))
        return _surprise(squares, *self._source.laws(self.banks))

    def again(self, calibration: Calibration) -> "Moments":
        """The same recipe on another calibration.

        Args:
            calibration: The calibration.
        """
        return replace(self, calibration=calibration.sorted())

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and versions that made this test, as plain values."""
        return {
            "test": "local moments",
            **self.calibration.summary,
            "where": repr(self.where),
            "null": repr(self.null),
            "banks": [repr(bank) for bank in self.banks],
            "coordinates": repr(self.coordinates),
            "seed": self.seed,
            **versions(),
        }

    def __repr__(self) -> str:
        return f"Moments({self.calibration!r}, {self.where!r}, {self.null!r}, seed={self.seed})"

    @property
    def _source(self) -> "_Latents | _Sets":
        if self.calibration.base is None:
            return _Sets(self.calibration, self.null, self.coordinates, self.seed)
        return _Latents(self.calibration, self.null, self.seed)

    def _weights(self, place: Place) -> Tensor:
        return self.where.weights(self.calibration.features, place.features)

    def _squares(self, weights: Tensor, which: slice) -> np.ndarray:
        """Squared lengths (h, o, c, b) of the weighted sums of each bank, for some copies."""
        near = (weights != 0).any(1).any(0).nonzero().flatten()
        table = weights[..., near].flatten(0, 1)
        features = self._source.features(self.banks, near)

        def squares(h: int) -> Tensor:
            """Squared lengths (o c, b) of copy h."""
            truths, parts = features(h), table.split(STEP, 1)
            sums = [sum(part @ truths(bank, i) for i, part in enumerate(parts)) for bank in banks]
            return torch.stack([total.square().sum(1) for total in sums], 1)

        banks, copies = range(len(self.banks)), range(self.null.n + 1)[which]
        workers = torch.get_num_threads() if weights.device.type == "cpu" else 1
        silent = True if len(copies) < 2000 else None
        with spread_over(workers if len(copies) > 1 else 1) as apply:
            done = tqdm(
                apply(squares, copies), "nulls", total=len(copies), disable=silent, leave=None
            )
            lengths = torch.stack(list(done))
        shape = len(copies), *weights.shape[:2], len(self.banks)
        return lengths.reshape(shape).double().cpu().numpy()

    def _directions(self, weights: Tensor) -> tuple[MomentTable, tuple[np.ndarray, ...], Tail]:
        """Errors of q in latent directions, or in parameters where there are draws.

        With the coverage of its regions (o, c, l), with error and null, and its tail.
        """
        z, null = self._source.residuals(weights)
        correlated = self.calibration.base is not None
        table = _table(weights, z, z.square(), null, correlated=correlated)
        near = (weights != 0).any(1).any(0).nonzero().flatten()
        shells, around = self._source.shells(near), weights[..., near]
        inside = shares_inside(shells, around)
        region = tuple(part[:, :, -1] for part in inside)
        return _with_intervals(table, inside), region, tail(shells, around)

    def _parameters(self, weights: Tensor, draws: Draws) -> MomentTable | None:
        """Errors of q in parameters, from latents of truths that are carried to x_o.

        Moments of q itself are constants of a regression on Hermite functions of the latents of
        its draws, which have known means: only what they do not explain is left as noise.
        """
        if self.calibration.flow is None:
            return None
        observed = self.calibration.observe(draws, self.seed)
        assert observed.theta is not None
        z, _ = self._source.residuals(weights)
        there = torch.cat([Hermite(1)(observed.draws), Hermite(2)(observed.draws)], 2)
        tables = []
        for i, around in enumerate(weights.split(1)):
            near = (around != 0).any(1).any(0).nonzero().flatten()
            latents, theta = observed.draws[i].to(z), observed.theta[i].to(z)
            scale = theta.std(0)
            theta = (theta - theta.mean(0)) / torch.where(scale > 0, scale, 1)
            carried = _carried(z[near], latents, theta)
            mean, square = (_expected(f, there[i].to(z)) for f in (theta, theta**2))
            unit = (square - mean**2).clamp_min(0.5).sqrt()
            moved = (carried - mean) / unit
            flat = torch.ones_like(moved)
            fourth = ((theta - mean) / unit).pow(4).mean(0) * flat
            null = _Null(0 * flat, flat, fourth, 0.0)
            table = _table(around[..., near], moved, moved.square(), null, correlated=False)
            inside = _carried_inside(around[..., near], carried, theta)
            tables.append(_with_intervals(table, inside))
        return _each(tables, np.concatenate)


@dataclass(frozen=True, eq=False)
class _Latents:
    """Truths as latents, and null copies of them as base draws."""

    calibration: Calibration
    null: Any
    seed: int

    def laws(self, banks: tuple[Latent, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Mean, and degrees of freedom, of the squared length of each bank's sum."""
        return _laws([bank.spread(self.calibration.m) for bank in banks])

    def residuals(self, like: Tensor) -> tuple[Tensor, "_Null"]:
        """What is standard normal if q is right (n, m), and what it would be then."""
        z = self.calibration.theta.to(like)
        return z, _Null(torch.zeros_like(z), torch.ones_like(z), torch.full_like(z, 3.0), 0.0)

    def shells(self, near: Tensor) -> Shells:
        """Regions of q at some points."""
        return Balls(self.calibration.theta[near])

    def features(self, banks: tuple[Latent, ...], near: Tensor) -> Callable[[int], Step]:
        """Features (rows, p) for the truths of copy h."""
        copies = self.null.copies(self.calibration, self.seed)

        def of(h: int) -> Step:
            z = copies[h : h + 1].redrawn[0, near].clamp(-FARTHEST, FARTHEST).split(STEP)
            return lambda bank, i: banks[bank](z[i])

        return of


@dataclass(frozen=True, eq=False)
class _Sets:
    """Truths among draws, in the coordinates of their set, and exchanges of them."""

    calibration: Calibration
    null: Any
    coordinates: Coordinates
    seed: int

    def laws(self, banks: tuple[Latent, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Mean, and degrees of freedom, of the squared length of each bank's sum.

        From the covariance within sets, which no exchange changes.
        """
        rows = torch.arange(0, len(self.calibration), 1 + len(self.calibration) // 2000)
        spreads = []
        for features in self._centred(banks, rows):
            flat = features.flatten(0, 1).double()
            covariance = flat.mT @ flat / len(flat)
            spreads.append((float(covariance.trace()), float(covariance.square().sum())))
        return _laws(spreads)

    def residuals(self, like: Tensor) -> tuple[Tensor, "_Null"]:
        """Truths in standard deviations of the draws (n, m), and what they would be.

        That is told by all members, each against the rest of its set, whatever the shape of q and
        the number of draws.
        """
        theta, theta_q = self.calibration.theta, self.calibration.theta_q
        assert theta_q is not None
        found = residuals(torch.cat([theta[:, None], theta_q], 1)).to(like)
        squares = found.square()
        parts = (found.mean(1), squares.mean(1), squares.square().mean(1))
        return found[:, 0], _Null(*parts, 1 / theta_q.shape[1])

    def shells(self, near: Tensor) -> Shells:
        """Regions of q at some points."""
        theta, theta_q = self.calibration.theta, self.calibration.theta_q
        assert theta_q is not None
        return Ellipsoids(theta[near], theta_q[near], self.coordinates)

    def features(self, banks: tuple[Latent, ...], near: Tensor) -> Callable[[int], Step]:
        """Features (rows, p) for the truths of copy h, centred within sets."""
        centred = [features.split(STEP) for features in self._centred(banks, near)]
        copies = self.null.copies(self.calibration, self.seed)

        def of(h: int) -> Step:
            truths = copies.relabelled(h).to(near.device)[near].long().argmax(1).split(STEP)

            def features(bank: int, i: int) -> Tensor:
                rows = torch.arange(len(truths[i]), device=near.device)
                found: Tensor = centred[bank][i][rows, truths[i]]
                return found

            return features

        return of

    def _centred(self, banks: tuple[Latent, ...], rows: Tensor) -> list[Tensor]:
        members = self.null.copies(self.calibration, self.seed).members
        z = self.coordinates(members[rows]).clamp(-FARTHEST, FARTHEST)
        features = (bank(z) for bank in banks)
        return [f - f.mean(1, keepdim=True) for f in features]


def _laws(spreads: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and degrees of freedom of chi-square laws with these traces of C and C squared."""
    first, second = np.array(spreads).T
    if not (np.isfinite(first).all() and (first > 1e-6).all()):
        raise ValueError(
            "theta_q: expected draws that vary within their sets; got sets without variation, or "
            "in units beyond the range of their precision."
        )
    return first, first**2 / second


def _approximation(squares: np.ndarray, means: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """P-values (o,) by the chi-square laws alone, from squared lengths (o, c, b)."""
    p = scipy.stats.chi2.sf(degrees * squares / means, degrees)
    return _cauchy(p.reshape(len(p), -1))


def _surprise(squares: np.ndarray, means: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """Sums over banks of minus the logarithm of chi-square tails, by Wilson and Hilferty.

    A fixed function of the squares, so nulls stay exact; its far tails stay finite.
    """
    variance = 2 / (9 * degrees)
    score = (np.cbrt(squares / means) - (1 - variance)) / np.sqrt(variance)
    return np.asarray(-scipy.special.log_ndtr(-score).sum(-1))


def _cauchy(p: np.ndarray) -> np.ndarray:
    """Combines p-values (o, t) under any dependence (Liu and Xie 2020)."""
    p = np.clip(p, 1e-300, 1 - 1e-12)
    # tan(pi (1/2 - p)) loses all digits for tiny p, where it is 1 / (pi p).
    tangents = np.where(p < 1e-8, 1 / (np.pi * p), np.tan(np.pi * (0.5 - p)))
    mean = tangents.mean(-1)
    return np.asarray(np.where(mean > 1e8, 1 / (np.pi * mean), 0.5 - np.arctan(mean) / np.pi))


def _pairs(weights: Tensor) -> np.ndarray:
    """Effective numbers of pairs (o, c): (sum w)^2 / sum w^2."""
    return (weights.sum(2).square() / weights.square().sum(2)).double().cpu().numpy()


@dataclass(frozen=True, eq=False)
class _Null:
    """What residuals of truths would be if q were right.

    Args:
        first: Their means, with shape (n, m); not zero where few draws are skewed.
        second: Their moments of order 2, with shape (n, m).
        fourth: Their moments of order 4, with shape (n, m).
        noise: The variance of the mean of draws that residuals are taken from, over that of one.
    """

    first: Tensor
    second: Tensor
    fourth: Tensor
    noise: float


def _table(
    weights: Tensor, z: Tensor, square: Tensor, null: _Null, *, correlated: bool
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
    found = {
        "bias": -mean,
        "bias_error": mean_error,
        "bias_null": (second / size).sqrt() / unit,
        "dispersion": dispersion,
        "dispersion_error": 0.5 * dispersion / variance * moves.clamp_min(0).sqrt(),
        "dispersion_null": 0.5
        * (1 + null.noise)
        * ((fourth / second.square() - 1).clamp_min(0) / size).sqrt(),
    }
    if correlated:
        products = shares @ (z[:, :, None] * z[:, None]).flatten(1)
        products = products.unflatten(2, (z.shape[1], z.shape[1]))
        centred = products - mean[..., :, None] * mean[..., None, :]
        found["correlation"] = centred * dispersion[..., :, None] * dispersion[..., None, :]
        found["correlation_null"] = size.rsqrt()[..., None]
    plain: dict[str, Any] = {"correlation": None, "correlation_null": None}
    return MomentTable(**plain | {k: v.double().cpu().numpy() for k, v in found.items()})


def _expected(values: Tensor, features: Tensor) -> Tensor:
    """Means (j,) under q of values (s, j) at draws with features (s, p), whose means are zero.

    The constants of least squares; plain means with too few draws for them.
    """
    s, p = features.shape
    if s < PER_FEATURE * (1 + p):
        return values.mean(0)
    rows = torch.cat([torch.ones_like(features[:, :1]), features], 1).double()
    found: Tensor = torch.linalg.lstsq(rows, values.double()).solution[0].to(values)
    return found


def _with_intervals(
    table: MomentTable, inside: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> MomentTable:
    """A table with the coverage of intervals (o, c, m, l), the error of it, and its null."""
    m = table.bias.shape[-1]
    names = ("intervals", "intervals_error", "intervals_null")
    return replace(table, **{k: v[:, :, :m] for k, v in zip(names, inside, strict=True)})


def _carried_inside(
    weights: Tensor, carried: Tensor, theta: Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often intervals of q at x_o hold truths carried there (1, c, m, l), error and null.

    Args:
        weights: Weights of the calibration points near x_o, with shape (1, c, n).
        carried: Their truths, carried to x_o, with shape (n, m).
        theta: Draws of q at x_o, with shape (s, m).
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


def _carried(z: Tensor, draws: Tensor, theta: Tensor) -> Tensor:
    """Parameters (n, m) at x_o of latents (n, m), by affine maps through the nearest draws.

    A flow tells latents of parameters only; the other way, its draws at x_o are interpolated.

    Args:
        z: The latents.
        draws: Latents of draws at x_o, with shape (s, m).
        theta: The same in parameters, with shape (s, m).
    """
    near = min(len(draws), NEIGHBOURS * (z.shape[1] + 1))
    parts = []
    for some in z.split(STEP):
        index = torch.cdist(some, draws).topk(near, largest=False).indices
        moved = draws[index] - some[:, None]
        rows = torch.cat([torch.ones_like(moved[..., :1]), moved], 2)
        gram = rows.mT @ rows + 1e-4 * torch.eye(rows.shape[2]).to(rows)
        parts.append(torch.linalg.solve(gram, rows.mT @ theta[index])[:, 0])
    return torch.cat(parts)


def _each(
    tables: list[MomentTable], join: Callable[[list[np.ndarray]], np.ndarray]
) -> MomentTable:
    """A table whose fields are those of others, joined."""
    joined: dict[str, Any] = {}
    for field in fields(MomentTable):
        values = [getattr(table, field.name) for table in tables]
        joined[field.name] = None if values[0] is None else join(values)
    return MomentTable(**joined)
