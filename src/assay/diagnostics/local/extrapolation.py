r"""What holds at x_o itself, from numbers that are seen near it.

An average over a neighbourhood holds at x_o only where nothing varies. Numbers :math:`y_i` at
points :math:`x_i` near x_o are modelled as

.. math:: y_i = a + b^\top (x_i - x_o) + c \, |x_i - x_o|^2 + g(x_i) + e_i

in the coordinates of the neighbourhood's distance, and :math:`a + g(x_o)` is what is told. The
first terms are a local-linear fit, and the curvature that biases one: in a ball the mean curvature
does, whatever the number of coordinates (Fan and Gijbels 1996, *Local Polynomial Modelling and Its
Applications*; with it, intervals hold, Calonico, Cattaneo and Titiunik 2014). g is a random smooth
function, a sum over single coordinates or one function of all, made of cosines and sines (Rahimi
and Recht 2007, *Random Features for Large-Scale Kernel Machines*). With its length and size known
this is universal kriging (Matheron 1969). They are not known: fits with many are averaged by their
restricted likelihood (Hoeting, Madigan, Raftery and Volinsky 1999, *Bayesian Model Averaging*),
and a fifth of the prior belongs to g = 0. Where an error oscillates g follows it; where it does
not, intervals are those of the polynomial.

A **variance** that varies is fitted by its logarithm, :math:`\log v_i = \eta_i`, through working
responses :math:`\eta_i + v_i / e^{\eta_i} - 1` (Hastie and Tibshirani 1990, *Generalized Additive
Models*), so that it stays above zero.
"""

from dataclasses import dataclass

import scipy.special
import torch
from torch import Tensor

from ..._core import cpu

# Points for each term of the polynomial, at least; nearest points that are looked at, at most.
PER_TERM, MOST_POINTS = 5, 2**13
# Lengths of smooth functions over the radius of the neighbourhood; variances over that of noise.
LENGTHS = (0.15, 0.3, 0.6, 1.2)
SIZES = (0.0, *(2.0**power for power in range(-9, 2)))
# The prior of no smooth function.
NOTHING = 0.2
# Frequencies of each single coordinate, and of all together; coordinates with their own functions.
SINGLE, JOINT, MOST_SINGLE = 8, 32, 16
# Steps towards the logarithm of a variance, by the polynomial and with smooth functions.
STEPS, SMOOTH_STEPS = 12, 4
Z = float(scipy.special.ndtri(0.975))


@dataclass(frozen=True, eq=False)
class Fitted:
    """Values at x_o (j,) with standard errors (j,), and the fit at the points (b, j).

    Errors are those of a normal law that has as wide an interval of 95 % as Student's; degrees
    (j,) are the number of terms that the fit is worth.
    """

    value: Tensor
    error: Tensor
    points: Tensor
    degrees: Tensor


@dataclass(frozen=True, eq=False)
class Smooth:
    """Random smooth functions of l lengths, p for each.

    Args:
        spectrum: The variances of their principal directions over the points, with shape (l, p).
        points: Their values at the points, less what a polynomial tells, with shape (b, l p), in
            single precision: most of the time of a fit is to read them.
        axes: The principal directions, with shape (l, p, p).
        there: What these are at x_o, with shape (l, p).
    """

    spectrum: Tensor
    points: Tensor
    axes: Tensor
    there: Tensor


@dataclass(frozen=True, eq=False)
class Extrapolation:
    """From points near an observation to the observation; made once for all numbers seen there.

    Args:
        terms: The polynomial's terms at the points, orthonormal, with shape (b, f).
        there: The same at x_o, with shape (f,).
        smooths: What may be added to the polynomial.

    Example:
        >>> x = torch.linspace(-1, 2, 400, dtype=torch.double)[:, None]
        >>> noise = torch.randn(400, 1, generator=torch.Generator().manual_seed(0)).double()
        >>> fitted = Extrapolation.of(x)(torch.cos(3 * x) + 0.3 * noise)
        >>> bool((fitted.value - 1).abs() < 2 * fitted.error), bool(fitted.error < 0.1)
        (True, True)
    """

    terms: Tensor
    there: Tensor
    smooths: tuple[Smooth, ...]

    @classmethod
    def of(cls, moved: Tensor) -> "Extrapolation | None":
        """The fit at points x - x_o (b, d); None where they are too few for their coordinates."""
        b, d = moved.shape
        if b < PER_TERM * (d + 2):
            return None
        moved = moved.double()
        radius = moved.square().sum(1).max().sqrt()
        moved = moved / torch.where(radius > 0, radius, 1)
        terms, there = _polynomial(moved)
        waves = [_single(moved), _joint(moved)] if d > 1 else [_single(moved)]
        return cls(terms, there, tuple(_smooth(phases, terms, there) for phases in waves))

    @property
    def size(self) -> float:
        """How many points at x_o itself would tell as much as these do through the polynomial."""
        return float(1 / self.there.square().sum())

    def __call__(self, y: Tensor) -> Fitted:
        """What numbers y (b, j) are at x_o."""
        plain = self.terms.mT @ y
        left = y - self.terms @ plain
        fits = [_Fits.of(smooth, left, self) for smooth in self.smooths]
        logs = torch.cat([fit.likelihood for fit in fits])
        weights = logs.flatten(0, 1).softmax(0).unflatten(0, logs.shape[:2])
        values, variances = (
            torch.cat(parts) for parts in zip(*((f.value, f.variance) for f in fits), strict=True)
        )
        value = (weights * values).sum((0, 1))
        variance = (weights * (variances + (values - value).square())).sum((0, 1))
        shares = list(zip(fits, weights.split(len(LENGTHS)), strict=True))
        points = self.terms @ plain + sum(fit.points(share) for fit, share in shares)
        degrees = len(plain) + sum((share * fit.degrees).sum((0, 1)) for fit, share in shares)
        wider = float(scipy.special.stdtrit(len(y) - len(plain), 0.975)) / Z
        return Fitted(self.there @ plain + value, wider * variance.sqrt(), points, degrees)

    def log_variance(self, squares: Tensor) -> Fitted:
        """The logarithm at x_o of the mean of squares (b, j)."""
        logs = squares.mean(0).clamp_min(1e-300).log().expand_as(squares)
        for _ in range(STEPS):
            moved = self.terms @ (self.terms.mT @ _response(logs, squares))
            logs = logs + (moved - logs).clamp(-1, 1)
        for _ in range(SMOOTH_STEPS):
            fitted = self(_response(logs, squares))
            logs = fitted.points
        return fitted


@dataclass(frozen=True, eq=False)
class _Fits:
    """Fits with smooth functions of l lengths and t sizes; what they add to the polynomial.

    Likelihood, value and variance at x_o have shape (l, t, j), degrees (l, t, 1), gains (l, t, p)
    and the coefficients that they shrink (l, p, j).
    """

    smooth: Smooth
    gains: Tensor
    coefficients: Tensor
    likelihood: Tensor
    value: Tensor
    variance: Tensor

    @classmethod
    def of(cls, smooth: Smooth, left: Tensor, fit: Extrapolation) -> "_Fits":
        """The fits to what the polynomial leaves (b, j)."""
        sizes = left.new_tensor(SIZES)[:, None]
        free, rest = len(left) - fit.terms.shape[1], left.square().sum(0).clamp_min(1e-300)
        spectrum = smooth.spectrum[:, None]
        # Few rows times many columns are quick, and the other way round they are not.
        c = (left.mT.float() @ smooth.points).double().unflatten(1, smooth.spectrum.shape)
        c = smooth.axes.mT @ c.permute(1, 2, 0)
        gains = sizes / (1 + sizes * spectrum)
        noise = (rest - gains @ c.square()).clamp_min(1e-12 * rest)
        likelihood = -0.5 * torch.log1p(sizes * spectrum).sum(2, keepdim=True)
        spread = fit.there.square().sum() + (gains @ smooth.there.square()[..., None])
        return cls(
            smooth,
            gains,
            c,
            likelihood - 0.5 * free * noise.log() + _prior(sizes),
            (gains * smooth.there[:, None]) @ c,
            noise / free * spread,
        )

    @property
    def degrees(self) -> Tensor:
        """The terms that each is worth."""
        return (self.gains * self.smooth.spectrum[:, None]).sum(2, keepdim=True)

    def points(self, weights: Tensor) -> Tensor:
        """Their mean at the points (b, j), with weights (l, t, j)."""
        shrunk = torch.einsum("ltj,ltp->lpj", weights, self.gains) * self.coefficients
        rows = (self.smooth.axes @ shrunk).flatten(0, 1).mT.float()
        return (rows @ self.smooth.points.mT).mT.double()


def _prior(sizes: Tensor) -> Tensor:
    """Logarithms (t, 1) of the prior of each size."""
    some = (1 - NOTHING) / (len(sizes) - 1)
    return torch.where(sizes == 0, NOTHING, some).log()


def _response(logs: Tensor, squares: Tensor) -> Tensor:
    """Working responses, which are linear in the logarithm of a mean."""
    return logs + squares * (-logs).exp() - 1


def _polynomial(moved: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal terms (b, f) at the points (b, d), and at x_o (f,); terms that tie drop out."""
    raw = torch.cat([moved, moved.square().sum(1, keepdim=True)], 1)
    mean = raw.mean(0)
    terms, scale, axes = torch.linalg.svd(raw - mean, full_matrices=False)
    kept = scale > 1e-6 * scale.max().clamp_min(1e-300)
    flat = moved.new_full((len(moved), 1), len(moved) ** -0.5)
    there = -(axes @ mean)[kept] / scale[kept]
    return torch.cat([flat, terms[:, kept]], 1), torch.cat([flat[0], there])


def _smooth(phases: Tensor, terms: Tensor, there: Tensor) -> Smooth:
    """Functions with phases (b, w) at unit length, beside terms (b, f) that are (f,) at x_o."""
    lengths = phases.new_tensor(LENGTHS)[:, None]
    scaled, size = (phases[:, None] / lengths).float(), phases.shape[1] ** -0.5
    waves = torch.cat([scaled.cos(), scaled.sin()], 2).mul_(size)  # (b, l, p)
    flat = terms.float()
    told = flat.mT @ waves.flatten(1)
    rest = waves.flatten(1) - flat @ told
    each = rest.view_as(waves).transpose(0, 1)
    spectrum, axes = torch.linalg.eigh((each.mT @ each).double())
    # At x_o all phases are zero.
    own = size * _at_zero(phases) - (there @ told.double()).view(len(lengths), -1)
    return Smooth(spectrum.clamp_min(0), rest, axes, (own[:, None] @ axes)[:, 0])


def _at_zero(phases: Tensor) -> Tensor:
    ones = torch.ones_like(phases[0])
    return torch.cat([ones, torch.zeros_like(ones)])


def _single(moved: Tensor) -> Tensor:
    """Phases (b, w) of functions of single coordinates, those that vary most."""
    if moved.shape[1] > MOST_SINGLE:
        moved = moved @ torch.linalg.svd(moved, full_matrices=False).Vh[:MOST_SINGLE].mT
    levels = (cpu.arange(SINGLE).to(moved) + 0.5) / SINGLE
    frequencies = torch.special.ndtri(0.5 + levels / 2)
    phases: Tensor = (moved[..., None] * frequencies).flatten(1)
    return phases


def _joint(moved: Tensor) -> Tensor:
    """Phases (b, w) of functions of all coordinates: normal frequencies, evenly spread."""
    sobol = torch.quasirandom.SobolEngine(moved.shape[1], scramble=True, seed=0)
    frequencies = torch.special.ndtri(sobol.draw(JOINT).to(moved).clamp(1e-6, 1 - 1e-6))
    phases: Tensor = moved @ frequencies.mT
    return phases
