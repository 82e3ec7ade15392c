r"""Levels regressed on x by one network that is monotone in the level, all copies together.

Given x, the density of u is a mixture of beta densities, whose weights a network predicts:

.. math:: \hat r(\alpha, x) = \sum_{i=1}^K \pi_i(x) \, I_\alpha(i, K + 1 - i),
    \qquad \pi(x) = \operatorname{softmax} f(x),

with I the regularised incomplete beta function. Weights along alpha are not negative, so curves
rise from 0 to 1, and equal weights are the diagonal, at which training begins. As in Dey et al.
2022 the loss is the binary cross-entropy of :math:`1\{u \le \alpha\}` with alpha drawn anew from
U(0, 1) for every row at every step; early stopping is replaced by weight decay. All copies are
trained as one stack, from the same weights, with the same batches and the same alphas.

Reference: Dey, Zhao, Andrews, Newman, Izbicki and Lee 2022, *Towards Instance-Wise Calibration:
Local Amortized Diagnostics and Reshaping of Conditional Densities (LADaR)*, arXiv 2205.14568.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.special
import torch
from torch import Tensor
from torch.optim import AdamW
from tqdm import tqdm

from ..door import check_count, check_number
from ..levels import LevelCopies
from ..nulls import GLOBAL
from ..randomness import stream
from ..results import Weak
from ..scaling import Robust
from ..workers import spread_over

__all__ = ["Monotone", "Mixtures"]

# Copies that are trained at a time: what they keep busy fits into a processor's cache.
CHUNK = 25
# Keeps logarithms of the loss finite.
LEAST = 1e-6


@dataclass(frozen=True)
class Monotone:
    """One network for all levels, monotone in the level.

    Args:
        hidden: Widths of the hidden layers.
        components: The number K of beta densities.
        epochs: Passes over the calibration points.
        batch: Points in a batch; an eighth of all if that is less.
        rate: The peak of the one-cycle learning rate.
        decay: Decoupled weight decay.

    Example:
        >>> Monotone(epochs=5).components
        8
    """

    hidden: tuple[int, ...] = (32, 32)
    components: int = 8
    epochs: int = 20
    batch: int = 256
    rate: float = 5e-3
    decay: float = 0.3

    def __post_init__(self) -> None:
        given = self.hidden if isinstance(self.hidden, tuple | list) else (self.hidden,)
        if not given:
            raise ValueError("hidden: expected at least one layer; got none.")
        widths = tuple(check_count("hidden", width) for width in given)
        object.__setattr__(self, "hidden", widths)
        check_count("components", self.components, 2)
        check_count("epochs", self.epochs)
        check_count("batch", self.batch)
        check_number("rate", self.rate)
        check_number("decay", self.decay, strict=False)

    @property
    def nulls(self) -> int:
        """A number of null copies that is sensible for its cost."""
        return 99

    def fit(self, copies: LevelCopies, alphas: np.ndarray, seed: int) -> "Mixtures":
        """Trains all copies, one stack of weights after the other."""
        features = copies.levels.calibration.features
        scaling = Robust.fit(features)
        x = scaling(features)
        chunks = [range(len(copies))[i : i + CHUNK] for i in range(0, len(copies), CHUNK)]
        workers = torch.get_num_threads() if x.device.type == "cpu" else 1
        with (
            tqdm(
                total=len(copies) * self.epochs, unit="epoch", desc="fit", disable=None, leave=None
            ) as bar,
            spread_over(workers) as apply,
        ):
            stacks = list(apply(lambda which: self._train(copies, which, x, seed, bar), chunks))
        weights = tuple(torch.cat(parts) for parts in zip(*stacks, strict=True))
        if not all(tensor.isfinite().all() for tensor in weights):
            raise ValueError(
                f"rate: expected one at which training converges; got {self.rate}, at which "
                "weights became infinite. Lower it."
            )
        return Mixtures(weights, scaling, _basis(torch.as_tensor(alphas), self.components))

    def _train(
        self, copies: LevelCopies, which: range, x: Tensor, seed: int, bar: tqdm
    ) -> list[Tensor]:
        """The weights of a chunk of copies, each tensor with shape (c, ...)."""
        rows = torch.arange(len(x), device=x.device)
        u = torch.stack([copies(h, rows) for h in which]).to(x)
        widths = (x.shape[1], *self.hidden, u.shape[2] * self.components)
        layers = _initial(widths, len(which), seed, x)
        optimizer = AdamW(layers, lr=self.rate, weight_decay=self.decay)
        batch = min(self.batch, len(x), max(16, len(x) // 8))
        rates = iter(_cycle(self.epochs * (len(x) // batch)))
        for epoch in range(self.epochs):
            order = torch.randperm(len(x), generator=stream(seed, "order", epoch))
            alphas = torch.rand(len(x), generator=stream(seed, "alphas", epoch))
            basis = _basis(alphas, self.components).to(x)
            for some in order.to(x.device).split(batch)[: len(x) // batch]:
                below = u[:, some] <= alphas.to(x)[some, None]
                optimizer.param_groups[0]["lr"] = self.rate * next(rates)
                _descend(optimizer, layers, x[some], basis[some], below.to(x))
            bar.update(len(which))
        return [layer.detach() for layer in layers]


@dataclass(frozen=True, eq=False)
class Mixtures:
    """A trained stack of networks.

    Args:
        weights: A weight (H + 1, in, out) and a bias (H + 1, 1, out) for each layer.
        scaling: How observations are brought to a common scale.
        basis: Distribution functions of the beta densities at the levels, with shape (g, K).
    """

    weights: tuple[Tensor, ...]
    scaling: Robust
    basis: Tensor

    @property
    def family(self) -> Weak:
        """How p-values at many observations are adjusted: they share their nulls."""
        return Weak()

    def hypothesis(self, x_o: Tensor) -> str:
        """What a small p-value at observations (o, d) speaks against."""
        return GLOBAL

    def __call__(self, x_o: Tensor) -> np.ndarray:
        """Estimates of r, with shape (1, o, H + 1, j, g), at observations (o, d)."""
        shares = _mixture(self.weights, self.scaling(x_o), self.basis.shape[1])
        curves = shares.double() @ self.basis.to(shares.device).mT
        return np.asarray(curves.swapaxes(0, 1)[None].cpu().numpy())


def _descend(
    optimizer: AdamW, layers: list[Tensor], x: Tensor, basis: Tensor, below: Tensor
) -> None:
    """One step of all copies; their losses add up, so that none minds the others.

    Args:
        optimizer: Moves the layers.
        layers: The stack.
        x: Observations on a common scale, with shape (b, d).
        basis: Distribution functions (b, K) at the alpha of each row.
        below: Whether levels are at most that alpha, with shape (c, b, j).
    """
    shares = _mixture(tuple(layers), x, basis.shape[1])
    curves = torch.einsum("cbjk,bk->cbj", shares, basis).clamp(LEAST, 1 - LEAST)
    loss = torch.nn.functional.binary_cross_entropy(curves, below, reduction="sum") / len(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _mixture(layers: tuple[Tensor, ...], x: Tensor, components: int) -> Tensor:
    """Weights (c, b, j, K) of the components at x (b, d)."""
    h = x.expand(len(layers[0]), -1, -1)
    *hidden, last = zip(layers[::2], layers[1::2], strict=True)
    for weight, bias in hidden:
        h = torch.nn.functional.silu(torch.baddbmm(bias, h, weight))
    shares: Tensor = torch.baddbmm(last[1], h, last[0]).unflatten(2, (-1, components)).softmax(3)
    return shares


def _initial(widths: tuple[int, ...], copies: int, seed: int, like: Tensor) -> list[Tensor]:
    """The same initial weights for every copy; the last layer is zero, which is the diagonal."""
    generator = stream(seed, "weights")
    layers = []
    for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
        scale = 0.0 if i == len(widths) - 2 else 1 / math.sqrt(fan_in)
        for rows in (fan_in, 1):
            uniform = scale * (2 * torch.rand(rows, fan_out, generator=generator) - 1)
            layers.append(uniform.to(like).repeat(copies, 1, 1).requires_grad_())
    return layers


def _basis(alphas: Tensor, components: int) -> Tensor:
    """Distribution functions (b, K) of the beta densities at alphas (b,)."""
    i = np.arange(1, components + 1)
    values = scipy.special.betainc(i, components + 1 - i, alphas.double().numpy()[:, None])
    return torch.from_numpy(values)


def _cycle(steps: int) -> list[float]:
    """One cycle of learning rates: a fifth of the steps up to one, the rest down to zero."""
    peak = max(1, round(0.2 * steps))
    up = [0.5 * (1 - math.cos(math.pi * (i + 1) / peak)) for i in range(peak)]
    down = max(1, steps - peak)
    return up + [0.5 * (1 + math.cos(math.pi * i / down)) for i in range(down)]
