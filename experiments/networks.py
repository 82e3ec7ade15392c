r"""Networks of scikit-learn, all copies of one at once.

With a fixed ``random_state`` scikit-learn's ``MLPClassifier`` starts from the same weights and
goes through rows in the same order, whatever the data. So copies of one size can be trained
together: :class:`Batched` draws first weights, held-out rows and batches from the same generator
in the same order as :class:`Sklearn`, which is the original, and each copy stops by itself. Both
end with the same weights but for rounding, which grows over many epochs.

The published networks are two: that of L-C2ST has two layers of 10 m rectified linear units, L2
penalty 0.0001, a tenth of the rows held out, and is trained until their accuracy has not improved
by 0.0001 for 50 epochs, after which the best weights are restored; that of local HPD has one layer
of 100 units, no penalty, and is trained until its loss has not improved by 0.0001 for 10 epochs.
Both have Adam with rate 0.001 and batches of 200 rows.

References: Linhart, Gramfort and Rodrigues 2023, appendix; Pedregosa et al. 2011, *Scikit-learn*.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.utils import shuffle
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["LEVELS", "Batched", "Classifier", "Fitted", "Network", "Sklearn", "two_layers"]

BATCH, RATE, HELD, TOLERANCE = 200, 1e-3, 0.1, 1e-4
BETAS, EPSILON = (0.9, 0.999), 1e-8
# Units in all networks that a processor trains at a time, and rows that it judges.
UNITS, ROWS = 3200, 2**11

# One for each copy: the probability of class 1 (s,) at inputs (s, p).
Fitted = Sequence[Callable[[Tensor], Tensor]]


class Classifier(Protocol):
    """What is fitted to all copies of a trial."""

    def fit(self, inputs: Tensor, labels: Tensor) -> Fitted:
        """Fits all copies: inputs (h, n, p), labels (h, n)."""
        ...


@dataclass(frozen=True)
class Network:
    """What scikit-learn is told.

    Args:
        hidden: Units of each layer.
        penalty: The L2 penalty of matrices.
        epochs: The most passes over the rows.
        patience: Epochs without progress after which training ends.
        early: Whether progress is that of the accuracy on a held-out tenth, whose best weights are
            kept; else that of the loss, and the last are.
    """

    hidden: tuple[int, ...]
    penalty: float = 1e-4
    epochs: int = 1000
    patience: int = 50
    early: bool = True

    def original(self, state: int) -> MLPClassifier:
        """Scikit-learn's own."""
        return MLPClassifier(
            self.hidden,
            alpha=self.penalty,
            max_iter=self.epochs,
            early_stopping=self.early,
            n_iter_no_change=self.patience,
            random_state=state,
        )


def two_layers(m: int) -> Network:
    """The network of C2ST and L-C2ST for m parameters."""
    return Network((10 * m, 10 * m))


# The network of local HPD.
LEVELS = Network((100,), penalty=0.0, epochs=25_000, patience=10, early=False)


@dataclass(frozen=True)
class _Trained:
    """A network and its random state, which in the authors' code is always 0."""

    network: Network
    state: int = 0


@dataclass(frozen=True)
class Sklearn(_Trained):
    """The original, one copy after the other."""

    def fit(self, inputs: Tensor, labels: Tensor) -> Fitted:
        """Fits all copies: inputs (h, n, p), labels (h, n)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = [
                self.network.original(self.state).fit(rows.cpu().numpy(), truth.cpu().numpy())
                for rows, truth in zip(inputs, labels, strict=True)
            ]
        return [partial(_asked, one) for one in fitted]


def _asked(network: MLPClassifier, at: Tensor) -> Tensor:
    return torch.from_numpy(network.predict_proba(at.cpu().numpy())[:, 1]).to(at)


@dataclass(frozen=True)
class Batched(_Trained):
    """All copies at once."""

    def fit(self, inputs: Tensor, labels: Tensor) -> Fitted:
        """Fits all copies: inputs (h, n, p), labels (h, n), as many of a class in each."""
        # Copies do not know of each other; some at a time fit into the cache of a processor.
        units = sum(self.network.hidden)
        size = len(inputs) if inputs.is_cuda else max(1, UNITS // units)
        parts = zip(inputs.split(size), labels.split(size), strict=True)
        return [one for part in parts for one in self._fit(*part)]

    def _fit(self, inputs: Tensor, labels: Tensor) -> Fitted:
        # The old generator is that of scikit-learn.
        chance = np.random.RandomState(self.state)
        run = _Training.of(self.network, inputs, chance)
        rows, truth = inputs, labels.to(inputs.dtype)
        held = None
        if self.network.early:
            held, (rows, truth) = _split(rows, truth, chance)
        order = np.arange(rows.shape[1])
        for _ in range(self.network.epochs):
            order = shuffle(order, random_state=chance)
            loss = run.epoch(rows, truth, torch.from_numpy(order).to(rows.device))
            run.judge(-loss if held is None else run.accuracy(*held))
            if not len(run.active):
                break
        run.leave(run.active)
        return [partial(_probability, row[None], run.shapes) for row in run.final]


def _split(
    inputs: Tensor, labels: Tensor, chance: np.random.RandomState
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Inputs and labels of held-out rows, and of the others; each copy has its own."""
    every, before, parts = np.arange(labels.shape[1]), chance.get_state(), []
    for truth in labels.cpu().numpy():
        # All copies take as many numbers from the generator, and the same ones.
        chance.set_state(before)
        parts.append(train_test_split(every, test_size=HELD, random_state=chance, stratify=truth))
    known, held = (torch.from_numpy(np.stack(some)) for some in zip(*parts, strict=True))

    def taken(rows: Tensor) -> tuple[Tensor, Tensor]:
        at = rows.to(inputs.device)
        return inputs.take_along_dim(at[..., None], 1), labels.take_along_dim(at, 1)

    return taken(held), taken(known)


def _probability(flat: Tensor, shapes: list[tuple[int, int]], at: Tensor) -> Tensor:
    weights = _views(flat, shapes)
    parts = [at] if at.is_cuda else at.split(ROWS)
    return torch.sigmoid(torch.cat([_logits(weights, part[None])[0] for part in parts]))


class _Training:
    """Copies that are still trained, and the weights that all end with.

    Weights, their moments and the final ones are each one table with a row for each copy, so that
    a step of Adam is a few calls, whatever the number of layers.

    Args:
        network: When it stops.
        flat: Weights (h, w), those of one layer after the other.
        shapes: Shapes of the matrices and biases in a row.
    """

    def __init__(self, network: Network, flat: Tensor, shapes: list[tuple[int, int]]) -> None:
        copies, device = len(flat), flat.device
        self.network, self.shapes = network, shapes
        self.flat, self.final = flat, flat.clone()
        self.first, self.second = torch.zeros_like(flat), torch.zeros_like(flat)
        self.active = torch.arange(copies, device=device)
        self.score = torch.full((copies,), -math.inf, device=device, dtype=flat.dtype)
        self.stale = torch.zeros(copies, dtype=torch.long, device=device)
        # Matrices are penalised, biases are not.
        each = [torch.full((a * b,), float(a > 1)) for a, b in shapes]
        self.penalised = torch.cat(each).to(flat)
        self.steps = 0

    @classmethod
    def of(cls, network: Network, inputs: Tensor, chance: np.random.RandomState) -> "_Training":
        """The same first weights for all copies of inputs (h, n, p), as Glorot and Bengio 2010."""
        copies, _, size = inputs.shape
        sizes, weights, shapes = (size, *network.hidden, 1), [], []
        for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
            bound = math.sqrt(6 / (fan_in + fan_out))
            for shape in ((fan_in, fan_out), (1, fan_out)):
                weights.append(torch.from_numpy(chance.uniform(-bound, bound, shape)).flatten())
                shapes.append(shape)
        flat = torch.cat(weights).to(inputs).expand(copies, -1).clone()
        return cls(network, flat, shapes)

    def epoch(self, inputs: Tensor, labels: Tensor, order: Tensor) -> Tensor:
        """A step on each batch of the rows in some order; mean losses (h,) before the steps."""
        loss = self.flat.new_zeros(len(self.active))
        for rows in order.split(min(BATCH, len(order))):
            at = self.active[:, None], rows
            loss += len(rows) * self.step(inputs[at], labels[at])
        return loss / len(order)

    def step(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """One step of Adam on some rows (h, b, p), and losses (h,) before it."""
        loss, each = _gradients(_views(self.flat, self.shapes), inputs, labels)
        g = torch.cat([one.flatten(1) for one in each], 1)
        if self.network.penalty:
            share = self.network.penalty / inputs.shape[1]
            g.addcmul_(self.flat, self.penalised, value=share)
        self.steps += 1
        rate = RATE * math.sqrt(1 - BETAS[1] ** self.steps) / (1 - BETAS[0] ** self.steps)
        self.first.mul_(BETAS[0]).add_(g, alpha=1 - BETAS[0])
        self.second.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
        self.flat.addcdiv_(self.first, self.second.sqrt().add_(EPSILON), value=-rate)
        return loss

    def accuracy(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The share (h,) of held-out rows that are classified correctly."""
        logits = _logits(_views(self.flat, self.shapes), inputs[self.active])
        return ((logits > 0) == (labels[self.active] > 0)).to(logits.dtype).mean(1)

    def judge(self, score: Tensor) -> None:
        """Notes progress by scores (h,); copies without it for long leave."""
        known = self.score[self.active]
        # Progress must exceed the tolerance to count, but any keeps the weights.
        stale = torch.where(score < known + TOLERANCE, self.stale[self.active] + 1, 0)
        if self.network.early:
            better = (score > known).nonzero().flatten()
            self.final[self.active[better]] = self.flat[better]
        self.score[self.active] = torch.maximum(score, known)
        self.stale[self.active] = stale
        done = stale > self.network.patience
        if done.any():
            self.leave(self.active[done])

    def leave(self, copies: Tensor) -> None:
        """Some copies are trained no more."""
        gone = torch.isin(self.active, copies)
        if not self.network.early:
            self.final[self.active[gone]] = self.flat[gone]
        self.active = self.active[~gone]
        for name in ("flat", "first", "second"):
            setattr(self, name, getattr(self, name)[~gone])


def _views(flat: Tensor, shapes: list[tuple[int, int]]) -> list[Tensor]:
    """Matrices and biases, each with a leading axis of copies, in a table (h, w)."""
    parts = flat.split([a * b for a, b in shapes], 1)
    return [part.unflatten(1, shape) for part, shape in zip(parts, shapes, strict=True)]


def _layers(weights: list[Tensor], inputs: Tensor) -> list[Tensor]:
    """Inputs and outputs of all layers."""
    found = [inputs]
    for i in range(0, len(weights), 2):
        out = torch.baddbmm(weights[i + 1], found[-1], weights[i])
        found.append(out.clamp_min(0) if i + 2 < len(weights) else out)
    return found


def _logits(weights: list[Tensor], inputs: Tensor) -> Tensor:
    return _layers(weights, inputs)[-1][..., 0]


def _gradients(
    weights: list[Tensor], inputs: Tensor, labels: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Mean losses (h,) and their gradients, by hand: graphs of tiny layers cost more."""
    layers, n = _layers(weights, inputs), inputs.shape[1]
    logits = layers[-1][..., 0]
    loss = (softplus(logits) - labels * logits).mean(1)
    back = (torch.sigmoid(logits) - labels)[..., None] / n
    found: list[Tensor] = []
    for i in reversed(range(0, len(weights), 2)):
        below = layers[i // 2]
        found[:0] = [below.mT @ back, back.sum(1, keepdim=True)]
        if i:
            back = (back @ weights[i].mT) * (below > 0)
    return loss, found
