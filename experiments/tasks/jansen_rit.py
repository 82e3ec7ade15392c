r"""Jansen-Rit: a stochastic neural mass model of the signals of one cortical column.

Three populations, with positions :math:`Q` and momenta :math:`P` in :math:`\mathbb R^3`:

.. math::
    dQ = P \, dt, \qquad
    dP = (F(Q) - 2 R P - R^2 Q) \, dt + \Sigma \, dW, \qquad
    R = \mathrm{diag}(a, a, b), \quad \Sigma = \mathrm{diag}(0.01, \sigma, 1)

.. math::
    F(Q) = \bigl(A a \, S(Q_2 - Q_3), \;
        A a \, (\mu + 0.8 \, C \, S(C Q_1)), \;
        B b \, 0.25 \, C \, S(0.25 \, C Q_1)\bigr), \qquad
    S(v) = \frac{v_{\max}}{1 + e^{r (v_0 - v)}}

The signal is :math:`10^{g / 10} (Q_2 - Q_3)` minus its mean, for eight seconds at 128 Hz. It is
simulated by Strang splitting with 1024 steps in a second: half a kick :math:`P + h F(Q) / 2`, the
linear equation without :math:`F`, which is solved exactly, and half a kick. A kick leaves
:math:`Q` as it is, so that the second half of one and the first half of the next make one kick.

References: Ableidinger et al. 2017, *A stochastic version of the Jansen and Rit neural mass
model: analysis and numerics*; Buckwar et al. 2020, *Spectral density-based and measure-preserving
ABC for partially observed diffusion processes*; Rodrigues et al. 2021, *HNPE: leveraging global
parameters for neural posterior estimation*; Linhart et al. 2023, *L-C2ST: local diagnostics for
posterior approximations in simulation-based inference*.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NoReturn, Protocol

import torch
from torch import Tensor
from tqdm import tqdm

from assay._support.inputs import check_kind, cpu
from assay._support.random import seed_of, stream
from assay._support.work import one_thread

from .priors import Box
from .task import Exact, Observations, Task

# A a and B b of excitation and inhibition, and what S is made of.
EXCITATION, INHIBITION = 3.25 * 100, 22.0 * 50
CEILING, THRESHOLD, STEEPNESS = 5.0, 6.0, 0.56
# The diagonals of R and, with one in the place of sigma, of Sigma.
RATES, NOISE = (100.0, 100.0, 50.0), (0.01, 1.0, 1.0)
# Shares of C.
STRONG, WEAK = 0.8, 0.25
# Seconds to a step, steps to a sample, samples dropped, and samples kept.
STEP, STRIDE, DROPPED, KEPT = 1 / 1024, 8, 256, 1024
# Windows of the power spectrum, in samples.
WINDOW, HOP = 65, 32
# Simulations at once.
BATCH, BATCH_CUDA = 2048, 32_768


class Summary(Protocol):
    """What is observed of a signal: d numbers."""

    @property
    def d(self) -> int:
        """The length of an observation."""

    def __call__(self, signals: Tensor) -> Tensor:
        """Observations (n, d) of signals (n, 1024)."""


@dataclass(frozen=True)
class Spectrum:
    r"""The power spectrum: 33 logarithms to base ten, at multiples of 128 / 65 Hz.

    Squared moduli of the Fourier transforms of 30 windows, each of 65 samples and 32 after the one
    before, are averaged; nothing is tapered or scaled. A gain of g adds :math:`g / 5` to each.

    Example:
        >>> Spectrum()(torch.eye(1024)[:2]).shape
        torch.Size([2, 33])
    """

    d: ClassVar[int] = WINDOW // 2 + 1

    def __call__(self, signals: Tensor) -> Tensor:
        """Observations (n, 33) of signals (n, 1024)."""
        waves = torch.fft.rfft(signals.unfold(1, WINDOW, HOP))
        return torch.view_as_real(waves).square().sum(3).mean(1).log10()


@dataclass(frozen=True)
class Series:
    """The signal itself.

    Example:
        >>> Series().d
        1024
    """

    d: ClassVar[int] = KEPT

    def __call__(self, signals: Tensor) -> Tensor:
        """Observations (n, 1024) of signals (n, 1024)."""
        return signals


class JansenRit(Task):
    """Four parameters of a neural mass model, and the spectrum of its signal.

    The coupling C, the mean and the deviation of the input, mu and sigma, and the gain of the
    recording in decibels. Neither posterior nor likelihood is known. What is observed is the
    summary: a :class:`Spectrum` by default, or a :class:`Series`.

    All is computed in double precision, on the device of the parameters. Rows are simulated in
    batches of 2048 on a CPU and 32 768 on a GPU, each with a stream of its own. The noise depends
    on the generator, the number of rows in the batch and the kind of device; it does not depend on
    the parameters, their precision or the summary.

    Example:
        >>> task = JansenRit()
        >>> theta, x = task.joint(2, torch.Generator().manual_seed(0))
        >>> theta.shape, x.shape
        (torch.Size([2, 4]), torch.Size([2, 33]))
    """

    name = "jansen_rit"
    parameters = ("C", "mu", "sigma", "gain")
    prior = Box((10.0, 50.0, 100.0, -20.0), (250.0, 500.0, 5000.0, 20.0))

    def __init__(self, summary: Summary | None = None) -> None:
        summary = Spectrum() if summary is None else summary
        check_kind("summary", summary, "Spectrum() or Series()", "d", "__call__")
        self.summary, self.d = summary, summary.d

    @property
    def observations(self) -> Observations:
        """Nine observations that differ in gain, from -20 to 20 decibels, and in noise."""
        gains = cpu.arange(-20.0, 21.0, 5.0, dtype=torch.float32)
        theta = cpu.tensor([[135.0, 220.0, 2000.0, 0.0]]).repeat(len(gains), 1)
        theta[:, 3] = gains
        x = self.summary(signals(theta.double(), stream(0, self.name, "observations")))
        return Observations(x.float(), theta)

    def _simulate(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        seed, x_parts = seed_of(generator), []
        words = {"desc": "simulating", "unit": " signals"}
        with tqdm(total=len(theta), **words, disable=None, leave=None) as bar:
            for i, rows in enumerate(theta.split(BATCH_CUDA if theta.is_cuda else BATCH)):
                x = self.summary(signals(rows, stream(seed, self.name, i)))
                x_parts.append(x.to(theta.dtype))
                bar.update(len(rows))
        return torch.cat(x_parts)

    def _posterior(self, x: Tensor, n: int, generator: torch.Generator) -> Exact:
        self._refuse()

    def _log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ValueError(
            f"task: expected one with a known posterior; got {self.name}, which has a simulator "
            "alone. Its likelihood is an integral over all paths of the noise."
        )


@one_thread()
def signals(theta: Tensor, generator: torch.Generator) -> Tensor:
    """Signals (n, 1024) of parameters (n, 4), in double precision and on the device of these."""
    theta = theta.double()
    scheme, noise = Scheme.of(theta), _noise(theta, generator)
    state = scheme.start(next(noise)[0])
    samples = theta.new_empty(DROPPED + KEPT, len(theta))
    samples[0] = scheme.output(state)
    for i in range(1, len(samples)):
        state = scheme.advance(state, next(noise))
        samples[i] = scheme.output(state)
    kept = samples[DROPPED:] - samples[DROPPED:].mean(0)
    return (kept * 10 ** (theta[:, 3] / 10)).mT.contiguous()


def _noise(theta: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    """Standard normal numbers (8, 3, 2, n) for the steps to a sample, time and again.

    In single precision, since double takes four times as long.
    """
    if generator.device.type != theta.device.type:
        generator = torch.Generator(theta.device).manual_seed(seed_of(generator))
    shape = STRIDE, len(RATES), 2, len(theta)
    while True:
        yield torch.randn(shape, generator=generator, dtype=torch.float32, device=theta.device)


def propagator(rate: float, step: float) -> Tensor:
    r"""The mean (2, 2) of the linear equation after a step, as a matrix on position and momentum.

    .. math:: e^{-c h} \begin{pmatrix} 1 + c h & h \\ -c^2 h & 1 - c h \end{pmatrix}

    with the rate c and the step h, in seconds.
    """
    turn = rate * step
    rows = [[1 + turn, step], [-rate * turn, 1 - turn]]
    return math.exp(-turn) * cpu.tensor(rows, dtype=torch.float64)


def covariance(rate: float, step: float) -> Tensor:
    r"""The covariance (2, 2) of position and momentum after a step, for noise of strength one.

    .. math::
        \frac{1}{4 c^3} (1 - e^{-2 c h} (1 + 2 c h + 2 c^2 h^2)), \qquad
        \frac{1}{4 c} (1 - e^{-2 c h} (1 - 2 c h + 2 c^2 h^2))

    on the diagonal, and :math:`h^2 e^{-2 c h} / 2` beside it; c and h as in :func:`propagator`.
    """
    turn, fade = rate * step, math.exp(-2 * rate * step)
    position = (1 - fade * (1 + 2 * turn + 2 * turn**2)) / (4 * rate**3)
    momentum = (1 - fade * (1 - 2 * turn + 2 * turn**2)) / (4 * rate)
    both = step**2 * fade / 2
    return cpu.tensor([[position, both], [both, momentum]], dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Scheme:
    r"""The splitting scheme for n rows of parameters, in coordinates whose noise is standard.

    For a population with noise s, and L the lower Cholesky factor of :func:`covariance`,
    :math:`(q, p) = s L y`. The linear equation becomes :math:`y' = L^{-1} E L y + z` with standard
    normal z, and a kick still moves only the second coordinate, since L is triangular. A state is
    y with shape (3, 2, n), and half of its next kick is in it already.

    Args:
        linear: The matrices :math:`L^{-1} E L`, with shape (3, 2, 2).
        factor: The matrices L, with shape (3, 2, 2).
        noise: The noise s, with shape (3, n).
        potential: What a unit of the first coordinates adds to r Q, with shape (3, n).
        coupled: What a unit of that of the first population adds to the arguments of S in the
            second and third, with shape (2, n).
        kick: What S adds to the second coordinates, with shape (3, n).
        push: What mu adds to that of the second population, with shape (n,).
    """

    linear: Tensor
    factor: Tensor
    noise: Tensor
    potential: Tensor
    coupled: Tensor
    kick: Tensor
    push: Tensor

    @classmethod
    def of(cls, theta: Tensor) -> "Scheme":
        """The scheme of parameters (n, 4)."""
        coupling, mean, sigma, _ = theta.mT
        one = torch.ones_like(sigma)
        linear, factor = (part.to(theta) for part in _whitened())
        noise = torch.stack([NOISE[0] * one, NOISE[1] * sigma, NOISE[2] * one])
        position, momentum = factor.diagonal(dim1=1, dim2=2).mT[..., None] * noise
        others = EXCITATION * STRONG * coupling, INHIBITION * WEAK * coupling
        force = torch.stack([EXCITATION * one, *others])
        return cls(
            linear=linear,
            factor=factor,
            noise=noise,
            potential=STEEPNESS * position,
            coupled=STEEPNESS * position[0] * torch.stack([coupling, WEAK * coupling]),
            kick=STEP * CEILING * force / momentum,
            push=STEP * EXCITATION * mean / momentum[1],
        )

    def start(self, given: Tensor) -> Tensor:
        """The state of positions and momenta (3, 2, n)."""
        state = torch.linalg.solve_triangular(self.factor, given.to(self.factor), upper=False)
        return self._kicked(state / self.noise[:, None], 0.5)

    def advance(self, state: Tensor, noise: Tensor) -> Tensor:
        """The state after one step for each noise (t, 3, 2, n)."""
        for drawn in noise.unbind(0):
            state = self._kicked(torch.baddbmm(drawn.to(state), self.linear, state))
        return state

    def output(self, state: Tensor) -> Tensor:
        """The positions (n,) of the second population minus those of the third."""
        return self._difference(state[:, 0]) / STEEPNESS

    def _kicked(self, state: Tensor, share: float = 1.0) -> Tensor:
        """The same state (3, 2, n), after a share of a kick."""
        position, momentum = state.unbind(1)
        argument = torch.empty_like(self.kick)
        torch.mul(self.coupled, position[0], out=argument[1:])
        argument[0] = self._difference(position)
        argument.sub_(STEEPNESS * THRESHOLD).sigmoid_()
        momentum.addcmul_(self.kick, argument, value=share)
        momentum[1].add_(self.push, alpha=share)
        return state

    def _difference(self, position: Tensor) -> Tensor:
        _, second, third = position.unbind(0)
        return (self.potential[1] * second).addcmul_(self.potential[2], third, value=-1)


def _whitened() -> tuple[Tensor, Tensor]:
    """Matrices L^-1 E L and L of the three populations, with shape (3, 2, 2) each."""
    factor = torch.linalg.cholesky(torch.stack([covariance(rate, STEP) for rate in RATES]))
    linear = torch.stack([propagator(rate, STEP) for rate in RATES]) @ factor
    return torch.linalg.solve_triangular(factor, linear, upper=False), factor
