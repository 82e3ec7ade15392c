r"""The local moment test: what the truth looks like, near x_o, in the coordinates of q.

If q is right near x_o, the latents :math:`z = T^{-1}(\theta; x)` of the truths there are draws of
N(0, I), and every feature :math:`\phi` with mean zero under it averages to nothing but noise. For
weights w around x_o of unit norm and several banks b of features,

.. math:: a_b = \sum_n w_n \phi_b(z_n), \qquad
    S = \max_w \sum_b -\log P(\chi^2_{\nu_b} \ge |a_b|^2 / s_b),

where the chi-square law of :math:`|a_b|^2` is that of its known mean and variance. S is compared
with its values for null copies, so the p-value is exact whatever the banks, weights and their
number. With :class:`~assay.samples.neighbourhoods.Nearest` points far from x_o have no weight, and
the p-value is exact for the neighbourhood alone: nothing leaks in.

**Without a flow** the k draws of q at each x take its place: the truth and the draws are whitened
together by their own mean and covariance, features are centred within each set, and the null
exchanges which member plays the truth. This is exact for any sampler.

What is wrong near x_o, and at x_o, is told beside it by :mod:`.local_effects`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import scipy.special
import torch
from torch import Tensor

from ..._core import (
    Seed,
    as_null,
    check_kind,
    cpu,
    one_thread,
    own_terms,
    progress,
    seed_of,
    spread_over,
)
from ...classifiers.features import BANKS, MOST_FEATURES, Coordinates, Latent, Whitened
from ...nulls.exchange import Exchange, KnownBase, LocalExchange
from ...nulls.turns import Part, Turns, turned_parts
from ...results import Adjustment, GlobalMaxT, LocalResult, MaxT, settings_of
from ...samples.calibration import Calibration, Draws, Latents, Observation, check_calibration
from ...samples.neighbourhoods import Neighbourhood, as_neighbourhood, middle
from ...samples.posterior import StandardNormal
from .base import ClosedForm, LocalTest
from .local_effects import LocalEffects, local_effects

# Latents beyond this are moved to it: the cube of a wild one would drown all others.
FARTHEST = 8.0
# Rows that are summed over at a time, so that a million of them need little memory.
ROWS = 2**14
# Base draws at each x that stand beside a truth in latent space.
BASE_DRAWS = 16
# Sets that are summed at a time.
SETS = 1000
# Copies that are summed at a time, and from which on progress is shown.
COPIES, MANY = 16, 2000
# Numbers of sums that are held, and products in a covariance of features.
ROOM, PRODUCTS = 2**25, 2**33


@own_terms()
def moments(
    calibration: Calibration,
    where: Neighbourhood | None = None,
    null: int | KnownBase | Exchange | LocalExchange | None = None,
    banks: tuple[Latent, ...] | Latent = BANKS,
    coordinates: Coordinates | None = None,
    seed: Seed = 0,
) -> "Moments":
    """Prepares the local moment test; nothing is trained.

    Args:
        calibration: Latents of a flow with base N(0, I), or pairs with k draws of q at each x.
        where: Weights around x_o: :class:`assay.Nearest` by default, exact for the neighbourhood,
            or :class:`assay.Smooth` over all points.
        null: How null copies are made, or their number: :class:`assay.Exchange` by default, with
            16 draws of the base at each x in latent space, where :class:`assay.KnownBase` can be
            had as well; :class:`assay.LocalExchange` is the same with its own neighbourhood for
            `where`.
        banks: Banks of features.
        coordinates: What stands in for latents where there are draws:
            :class:`~assay.classifiers.features.Whitened` by default, or
            :class:`~assay.classifiers.features.NormalScores` for a q of several modes.
        seed: An int or a generator. The same seed gives the same test.

    Example:
        >>> z, x = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(0))
        >>> wide = Calibration.from_base(0.7 * z, x)
        >>> result = moments(wide)(torch.zeros(2))
        >>> float(result.pvalue)
        0.005
        >>> result.effects.dispersion.value[-1].round(1)  # q is 1 / 0.7 = 1.4 times too wide
        array([1.4, 1.4])
    """
    check_calibration(calibration)
    where, null = _local(calibration, where, null)
    coordinates = Whitened() if coordinates is None else coordinates
    check_kind("coordinates", coordinates, "coordinates such as Whitened()", "check", "enough")
    banks = tuple(banks) if isinstance(banks, tuple | list) else (banks,)
    _check_banks(banks, calibration.m)
    calibration = _usable(calibration, coordinates)
    return Moments(calibration, where, null, banks, coordinates, seed_of(seed))


def moments_apply(calibration: Calibration) -> bool:
    """Whether there is a standard normal base, or enough draws of q at each x."""
    if isinstance(calibration, Latents):
        return isinstance(calibration.base, StandardNormal)
    return Whitened().enough(calibration.k or 0, calibration.m)


def _local(
    calibration: Calibration, where: Neighbourhood | None, null: Any
) -> tuple[Neighbourhood, KnownBase | Exchange]:
    """The weights, and the null that fits the calibration."""
    if isinstance(null, LocalExchange):
        where, null = null.near(where), Exchange(null.n)
    null = as_null(null, Exchange(), Exchange, KnownBase)
    if isinstance(null, KnownBase) and not isinstance(calibration, Latents):
        raise ValueError(f"null: expected Exchange(n) for draws; got {null!r}.")
    return as_neighbourhood(where), null


def _check_banks(banks: tuple[Latent, ...], m: int) -> None:
    if not banks:
        raise ValueError("banks: expected at least one; got none.")
    for bank in banks:
        check_kind("banks", bank, "banks such as Hermite(2)", "size", "spread")
        if bank.size(m) > MOST_FEATURES:
            raise ValueError(
                f"banks: expected at most {MOST_FEATURES} features each; got {bank.size(m)} from "
                f"{bank!r} of {m} parameters. Leave it out."
            )


def _usable(calibration: Calibration, coordinates: Coordinates) -> Calibration:
    """The calibration in an order that x decides, or refuses another base or too few draws."""
    if not isinstance(calibration, Latents):
        coordinates.check(calibration.k or 0, calibration.m)
    elif not isinstance(calibration.base, StandardNormal):
        raise ValueError(
            "calibration: expected latents with base N(0, I), under which the features have known "
            "means; got another base. Transform it to a standard normal, or use draws theta_q."
        )
    return calibration.sorted()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MomentsResult(LocalResult):
    """What the local moment test found at one observation, or at o of them.

    The statistic is the largest surprise over all sizes.

    Args:
        approximation: The p-value by chi-square laws, without nulls, shaped as the statistic; for
            draws it is about twice as small as it should be.
        pairs: The effective number of calibration pairs at each size, with shape (c,) or (o, c).
        effects: What is wrong near x_o and at x_o, in parameters or latents; None where only the
            test was asked for.
    """

    approximation: np.ndarray
    pairs: np.ndarray
    effects: LocalEffects | None = None
    adjustment: Adjustment = MaxT()

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        return {**super()._columns, "p approx": self.approximation, "pairs": self.pairs[..., -1]}

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        if self.many or self.effects is None:
            return f"{self._counted}. {self._adjusted_by}"
        bias, width = self.effects.bias, self.effects.dispersion
        name = "parameter" if self.effects.named else "latent"
        parts = [
            f"{name} {j}: {bias.value[-1, j]:+.2f} ± {2 * bias.null[-1, j]:.2f} sd, "
            f"width × {width.value[-1, j]:.2f} ± {2 * width.null[-1, j]:.2f}"
            for j in range(min(len(bias.at), 6))
        ]
        more = "; ..." if len(bias.at) > len(parts) else ""
        return (
            f"Against the truth near x_o (± two null standard deviations), q is off by "
            f"{'; '.join(parts)}{more}.{self._warning}"
        )


@dataclass(frozen=True, eq=False)
class Moments(LocalTest):
    """A local moment test, see :func:`moments`; call it with x_o, or with :class:`assay.Draws`."""

    calibration: Calibration
    where: Neighbourhood
    null: KnownBase | Exchange
    banks: tuple[Latent, ...]
    coordinates: Coordinates
    seed: int

    @own_terms()
    def __call__(self, draws: Any) -> MomentsResult:
        """Tests q at one observation or many; with draws there a flow tells of parameters."""
        draws = Draws.of(draws)
        how = self.where, self.coordinates, self.seed
        return replace(self.decided(draws), effects=local_effects(self.calibration, draws, *how))

    @own_terms()
    def decided(self, draws: Any) -> MomentsResult:
        """The same without effects."""
        observation = self.calibration.observation(Draws.of(draws))
        weights = self.weights(observation)
        means, degrees = self._laws
        if isinstance(self.null, KnownBase):
            squares, null = self._squares(weights, range(1)), self._null(observation, weights)
        else:
            squares = self._squares(weights, range(self.null.n + 1))
            null = _surprise(squares[1:], means, degrees)
        data = _surprise(squares[:1], means, degrees)[0]
        pairs, shaped = _pairs(weights), observation.shaped
        return MomentsResult(
            statistic=shaped(data.max(1)),
            null=shaped(null.max(2).T),
            approximation=shaped(_approximation(squares[0], means, degrees)),
            pairs=shaped(pairs),
            x=shaped(observation.x.cpu().numpy()),
            hypothesis=self.where.hypothesis(float(pairs.max()) / len(self.calibration)),
            settings=self.settings,
            adjustment=MaxT() if self.where.local else GlobalMaxT(),
            support=self.calibration.support(observation),
        )

    def refit_on(self, calibration: Calibration) -> "Moments":
        """The same recipe on another calibration; nulls of the same latent x are kept."""
        check_calibration(calibration)
        made = replace(self, calibration=_usable(calibration, self.coordinates))
        if made._null_key == self._null_key:
            vars(made)["_nulls"] = self._nulls
        return made

    def closed_form(self, observation: Observation, nulls: int) -> "ClosedMoments | None":
        """The test of other truths at the same x in closed form, for latents and whitened sets."""
        if self.calibration.base is None and not isinstance(self.coordinates, Whitened):
            return None
        known = isinstance(self.calibration, Latents)
        test = replace(self, null=KnownBase(self.null.n)) if known else self
        return ClosedMoments.of(test, observation, nulls)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and versions that made this test, as plain values."""
        banks = [repr(bank) for bank in self.banks]
        own = {"where": self.where, "null": self.null, "banks": banks}
        made = {"coordinates": self.coordinates, "seed": self.seed}
        return settings_of("local moments", self.calibration, **own, **made)

    def __repr__(self) -> str:
        return f"Moments({self.calibration!r}, {self.where!r}, {self.null!r}, seed={self.seed})"

    def weights(self, observation: Observation) -> Tensor:
        """Weights (o, c, n) of the calibration points around observations."""
        return self.where.weights(self.calibration.features, observation.features)

    @cached_property
    def _source(self) -> "_Latents | _Sets":
        if isinstance(self.null, KnownBase) and isinstance(self.calibration, Latents):
            return _Latents(self.calibration, self.null, self.seed)
        return _Sets(self.calibration, self.null, self.coordinates, self.seed)

    @cached_property
    def _laws(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean, and degrees of freedom, of the squared length of each bank's sum."""
        return self._source.laws(self.banks)

    @property
    def _null_key(self) -> Any:
        """What nulls of a known base depend on; a new one every time where they depend on q."""
        if not isinstance(self.null, KnownBase):
            return object()
        features = self.calibration.features
        own = self.calibration.own_seed(self.seed)
        return own, self.null.n, features.shape, features.cpu().numpy().tobytes()

    @cached_property
    def _nulls(self) -> dict[bytes, np.ndarray]:
        """Null surprises (H, o, c) that were made, by observations."""
        return {}

    def _null(self, observation: Observation, weights: Tensor) -> np.ndarray:
        """Null surprises (H, o, c), made once for the same observations."""
        key = observation.features.cpu().numpy().tobytes()
        if key not in self._nulls:
            self._nulls[key] = self.surprises(weights, range(1, self.null.n + 1))
        return self._nulls[key]

    def surprises(self, weights: Tensor, which: range) -> np.ndarray:
        """Surprises (h, o, c) of some copies, with weights (o, c, n)."""
        return _surprise(self._squares(weights, which), *self._laws)

    def _squares(self, weights: Tensor, which: range) -> np.ndarray:
        """Squared lengths (h, o, c, b) of the weighted sums of each bank, for some copies."""
        near = _near(weights)
        table = weights[..., near].flatten(0, 1)
        lengths = self._source.lengths(self.banks, near, table, which)
        shape = len(which), *weights.shape[:2], len(self.banks)
        return lengths.reshape(shape).double().cpu().numpy()


def _workers(table: Tensor) -> int:
    """The threads over which work on a table is spread."""
    return torch.get_num_threads() if table.device.type == "cpu" else 1


def _near(weights: Tensor) -> Tensor:
    """The points (b,) with any weight around any observation, from weights (o, c, n)."""
    return (weights != 0).any(1).any(0).nonzero().flatten()


@dataclass(frozen=True, eq=False)
class ClosedMoments(ClosedForm):
    r"""The moment test of other truths at the same x, with nulls and set means made once.

    In sets, a truth with :math:`u = L^{-1} (\theta - \mu)` for the mean and the Cholesky factor of
    the covariance of the k others has, whitened among all k + 1 = r, the coordinates

    .. math:: z_j = \sqrt{k / r} \; u_j / \sqrt{a_{j-1} a_j}, \qquad
        a_j = 1 + \tfrac1r \sum_{i \le j} u_i^2 .

    The sets near any observation (b,) have weights (o c, b); offsets are the weighted sums (o c,
    p) of the set means of each bank's features, laws mean and degrees of its squared length.
    """

    banks: tuple[Latent, ...]
    near: Tensor
    null: np.ndarray
    nulls: int
    hypothesis: str
    weights: Tensor
    offsets: tuple[Tensor, ...]
    laws: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(cls, test: Moments, observation: Observation, nulls: int) -> "ClosedMoments":
        """Makes nulls and set means."""
        weights = test.weights(observation)
        near = _near(weights)
        table = weights[..., near].flatten(0, 1)
        share = float((weights != 0).sum(2).max()) / weights.shape[2]
        copies = range(1, max(nulls, test.null.n) + 1)
        many = replace(test, null=replace(test.null, n=len(copies)))
        return cls(
            test.banks,
            near,
            many.surprises(weights, copies).max(2).T,
            test.null.n,
            test.where.hypothesis(share),
            table,
            _set_means(test, table, near),
            test._laws,
        )

    def statistic(self, truth: Tensor, others: Tensor | None) -> np.ndarray:
        """Statistics (o,) of truths (b, m) among the others of their sets (b, k, m)."""
        return self.statistics([truth], others)[0]

    def statistics(self, truths: Iterable[Tensor], others: Tensor | None) -> list[np.ndarray]:
        """The same for several truths of the same sets."""
        whiten = None if others is None else _Among.of(others)
        return [self._statistic(truth if whiten is None else whiten(truth)) for truth in truths]

    def _statistic(self, white: Tensor) -> np.ndarray:
        z = white.clamp(-FARTHEST, FARTHEST)
        parts = list(zip(self.weights.split(ROWS, 1), z.split(ROWS), strict=True))
        squares = []
        for bank, offset in zip(self.banks, self.offsets, strict=True):
            total = sum((part @ bank(rows) for part, rows in parts), -offset)
            squares.append(total.square().sum(1))
        table = torch.stack(squares, 1).double().cpu().numpy()
        surprise = _surprise(table.reshape(len(self.null), -1, len(squares)), *self.laws)
        return np.asarray(surprise.max(1))


def _set_means(test: Moments, weights: Tensor, near: Tensor) -> tuple[Tensor, ...]:
    """Weighted sums (o c, p) of the set means of features; zero in latent space."""
    totals: list[Any] = [weights.new_zeros(())] * len(test.banks)
    if isinstance(test.calibration, Latents):
        return tuple(totals)
    members = test.calibration.members
    step = max(1, ROWS // members.shape[1])
    for rows, part in zip(near.split(step), weights.split(step, 1), strict=True):
        z = test.coordinates(members[rows]).clamp(-FARTHEST, FARTHEST)
        for i, bank in enumerate(test.banks):
            totals[i] = totals[i] + part @ bank(z).mean(1)
    return tuple(totals)


@dataclass(frozen=True, eq=False)
class _Among:
    """Coordinates of truths among the k others of their sets, with mean (b, m) and factor.

    All are first moved by an offset (b, m).
    """

    offset: Tensor
    mean: Tensor
    factor: Tensor
    k: int

    @classmethod
    def of(cls, others: Tensor) -> "_Among":
        """From the others (b, k, m)."""
        k, offset = others.shape[1], middle(others, 1)
        others = others - offset
        mean = others.mean(1)
        centred = others - mean[:, None]
        covariance = centred.mT @ centred / k
        diagonal = covariance.diagonal(dim1=1, dim2=2)
        # As in `Whitened`: a little more than rounding, and a parameter without variation stays.
        diagonal += torch.where(diagonal > 0, 1e-4 * diagonal, torch.ones_like(diagonal))
        return cls(offset[:, 0], mean, torch.linalg.cholesky(covariance), k)

    def __call__(self, truth: Tensor) -> Tensor:
        """Coordinates (b, m) of truths (b, m)."""
        apart = (truth - self.offset - self.mean)[..., None]
        u = torch.linalg.solve_triangular(self.factor, apart, upper=False)[..., 0]
        above = 1 + u.square().cumsum(1) / (self.k + 1)
        before = torch.cat([torch.ones_like(above[:, :1]), above[:, :-1]], 1)
        white: Tensor = math.sqrt(self.k / (self.k + 1)) * u * (above * before).rsqrt()
        return white


@dataclass(frozen=True, eq=False)
class _Latents:
    """Truths as latents, and null copies of them as base draws."""

    calibration: Latents
    null: Any
    seed: int

    def laws(self, banks: tuple[Latent, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Mean, and degrees of freedom, of the squared length of each bank's sum."""
        with one_thread():
            return _laws([bank.spread(self.calibration.m) for bank in banks])

    def lengths(
        self, banks: tuple[Latent, ...], near: Tensor, table: Tensor, which: range
    ) -> Tensor:
        """Squared lengths (h, t, b) of sums of copies with weights (t, s) of sets (s,)."""
        copies = self.null.copies(self.calibration, self.seed)[which.start : which.stop]

        def lengths(some: Any) -> Tensor:
            z = some.copy_truths[:, near].clamp(-FARTHEST, FARTHEST)
            parts = list(zip(table.split(ROWS, 1), z.split(ROWS, 1), strict=True))
            sums = [sum(part @ bank(rows) for part, rows in parts) for bank in banks]
            return torch.stack([total.square().sum(2) for total in sums], 2)

        # Pieces that are the same whatever the number of threads, one thread to each.
        step = max(1, min(ROWS // len(near), COPIES))
        pieces = [copies[i : i + step] for i in range(0, len(copies), step)]
        workers = _workers(table)
        silent = True if len(which) < MANY else None
        with one_thread(), spread_over(workers if len(pieces) > 1 else 1) as apply:
            done = progress(apply(lengths, pieces), "nulls", silent=silent, total=len(pieces))
            return torch.cat(list(done))


@dataclass(frozen=True, eq=False)
class _Sets:
    """Truths among draws, in the coordinates of their set or as latents, and exchanges of them."""

    calibration: Calibration
    null: Any
    coordinates: Coordinates
    seed: int

    def laws(self, banks: tuple[Latent, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Mean and degrees, from the covariance within sets, which no exchange changes."""
        rows = cpu.arange(0, len(self.calibration), 1 + len(self.calibration) // 2000)
        workers = _workers(self.calibration.x)

        def spread(bank: Latent) -> tuple[float, float]:
            # Of fewer sets where there are many features.
            most = PRODUCTS // (bank.size(z.shape[2]) ** 2 * z.shape[1])
            flat = _centred(bank, z[:: 1 + len(z) // max(50, most)]).flatten(0, 1).double()
            covariance = flat.mT @ flat / len(flat)
            return float(covariance.trace()), float(covariance.square().sum())

        with one_thread(), spread_over(workers) as apply:
            z = self._white(rows)
            return _laws(list(apply(spread, banks)))

    def lengths(
        self, banks: tuple[Latent, ...], near: Tensor, table: Tensor, which: range
    ) -> Tensor:
        """Squared lengths (h, t, b) of sums of copies with weights (t, s) of sets (s,)."""
        turns = self._copies.turns.subset(near).filled()
        turns = replace(turns, by=turns.by[which.start : which.stop])
        numbers = turns.r * turns.by.shape[1] * sum(b.size(self.calibration.m) for b in banks)
        some = table.split(max(1, ROOM // numbers))
        return torch.cat([self._lengths(banks, near, part, turns) for part in some], 1)

    def _lengths(
        self, banks: tuple[Latent, ...], near: Tensor, table: Tensor, turns: Turns
    ) -> Tensor:
        """The same for the turns of these sets in some copies, and as many weights as fit."""

        def turned(part: Part) -> list[Tensor]:
            totals: list[Tensor] = []
            for rows in part.rows.split(SETS):
                portions = turns.subset(rows).portions(table[:, rows], part.groups)
                z = self._white(near[rows])
                sums = [portions.turned(_centred(bank, z)) for bank in banks]
                totals = [a.add_(b) for a, b in zip(totals, sums, strict=True)] if totals else sums
            return totals

        def lengths(job: tuple[tuple[Tensor, ...], int]) -> Tensor:
            return turned_parts(turns.by, *job).square().sum(1)

        workers = _workers(near)
        # Parts that are the same whatever the number of threads, one thread to each.
        with one_thread(), spread_over(workers) as apply:
            each = zip(*apply(turned, turns.parts()), strict=True)
            found = list(apply(lengths, product(each, range(len(table)))))
        squares: Tensor = torch.stack(found, 1).unflatten(1, (len(banks), -1)).mT
        return squares

    @cached_property
    def _copies(self) -> Any:
        return self.null.copies(self.calibration, self.seed, BASE_DRAWS)

    def _white(self, rows: Tensor) -> Tensor:
        """Coordinates (b, r, m) of the members of some sets; latents are their own."""
        members = self._copies.members[rows]
        white = members if self.calibration.base is not None else self.coordinates(members)
        return white.clamp(-FARTHEST, FARTHEST)


def _centred(bank: Latent, z: Tensor) -> Tensor:
    """Features (b, r, p) of sets (b, r, m), less their means."""
    features = bank(z)
    return features - features.mean(1, keepdim=True)


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
    p = scipy.special.chdtrc(degrees, degrees * squares / means)
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
