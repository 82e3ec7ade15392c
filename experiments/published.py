r"""The tests as they were published, all copies of a classifier in one stack.

The classifier is scikit-learn's ``MLPClassifier`` as the authors set it: two layers of 10 m
rectified linear units, inputs as they are, Adam with rate 0.001, batches of 200 rows, L2 penalty
0.0001, a tenth of the rows held out, and training until their accuracy has not improved by 0.0001
for 50 epochs, after which the best weights are restored. With a fixed ``random_state`` all copies
have the same initial weights, batches and held-out rows, so that they can be trained together;
each stops by itself. :class:`Sklearn` is the original, for comparison.

The p-value is the share of nulls that are larger, :math:`\#\{T_h > T\} / H`.

References: Linhart, Gramfort and Rodrigues 2023, Algorithms 1 to 4 and appendix; Pedregosa et al.
2011, *Scikit-learn*.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from assay._core import stream

__all__ = [
    "Batched",
    "Fitted",
    "Sklearn",
    "Trial",
    "c2st",
    "lc2st",
    "lc2st_nf",
    "pvalue",
    "together",
    "trial_of_c2st",
    "trial_of_lc2st",
    "trial_of_lc2st_nf",
]

BATCH, RATE, PENALTY = 200, 1e-3, 1e-4
HELD, PATIENCE, TOLERANCE, EPOCHS = 0.1, 50, 1e-4, 1000
BETAS, EPSILON = (0.9, 0.999), 1e-8
# Units in a layer of all networks that a processor trains at a time, and rows that it judges.
UNITS, ROWS = 1600, 2**11

# One for each copy: the probability of class 1 (s,) at inputs (s, p).
Fitted = Sequence[Callable[[Tensor], Tensor]]


@dataclass(frozen=True)
class Sklearn:
    """The original, one copy after the other.

    Args:
        width: Units of either layer.
        state: The random state; the authors' is always 0.
    """

    width: int
    state: int = 0

    def fit(self, inputs: Tensor, labels: Tensor) -> Fitted:
        """Fits all copies: inputs (h, n, p), labels (h, n)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = [
                MLPClassifier(
                    (self.width, self.width),
                    max_iter=EPOCHS,
                    early_stopping=True,
                    n_iter_no_change=PATIENCE,
                    random_state=self.state,
                ).fit(rows.cpu().numpy(), truth.cpu().numpy())
                for rows, truth in zip(inputs, labels, strict=True)
            ]
        return [partial(_asked, one) for one in fitted]


def _asked(network: MLPClassifier, at: Tensor) -> Tensor:
    return torch.from_numpy(network.predict_proba(at.cpu().numpy())[:, 1]).to(at)


@dataclass(frozen=True)
class Batched:
    """The same recipe for all copies at once.

    Args:
        width: Units of either layer.
        state: The random state; the authors' is always 0.
    """

    width: int
    state: int = 0

    def fit(self, inputs: Tensor, labels: Tensor) -> Fitted:
        """Fits all copies: inputs (h, n, p), labels (h, n)."""
        # Copies do not know of each other; some at a time fit into the cache of a processor.
        size = len(inputs) if inputs.is_cuda else max(1, UNITS // self.width)
        parts = zip(inputs.split(size), labels.split(size), strict=True)
        return [one for part in parts for one in self._fit(*part)]

    def _fit(self, inputs: Tensor, labels: Tensor) -> Fitted:
        copies, n, size = inputs.shape
        generator = stream(self.state, "published")
        held = torch.randperm(n, generator=generator).to(inputs.device)
        count = math.ceil(HELD * n)
        test, train = held[:count], held[count:]
        run = _Training.of(copies, (size, self.width, self.width, 1), inputs, generator)
        truth = labels.to(inputs.dtype)
        for _ in range(EPOCHS):
            order = train[torch.randperm(len(train), generator=generator).to(inputs.device)]
            for rows in order.split(min(BATCH, len(train))):
                run.step(inputs, truth, rows)
            at = run.active[:, None], test
            run.judge(inputs[at], truth[at] > 0.5)
            if not len(run.active):
                break
        return [partial(_probability, row[None], run.shapes) for row in run.best]


def _probability(flat: Tensor, shapes: list[tuple[int, int]], at: Tensor) -> Tensor:
    weights = _views(flat, shapes)
    parts = [at] if at.is_cuda else at.split(ROWS)
    return torch.sigmoid(torch.cat([_logits(weights, part[None])[0] for part in parts]))


class _Training:
    """Copies that are still trained, and the best weights of all.

    Weights, their moments and the best ones are each one table with a row for each copy, so that a
    step of Adam is a few calls, whatever the number of layers.

    Args:
        flat: Weights (h, w), those of one layer after the other.
        shapes: Shapes of the matrices and biases in a row.
    """

    def __init__(self, flat: Tensor, shapes: list[tuple[int, int]]) -> None:
        copies, device = len(flat), flat.device
        self.shapes = shapes
        self.flat, self.best = flat, flat.clone()
        self.first, self.second = torch.zeros_like(flat), torch.zeros_like(flat)
        self.active = torch.arange(copies, device=device)
        self.score = torch.full((copies,), -math.inf, device=device)
        self.stale = torch.zeros(copies, dtype=torch.long, device=device)
        # Matrices are penalised, biases are not.
        each = [torch.full((a * b,), float(a > 1)) for a, b in shapes]
        self.penalised = torch.cat(each).to(flat)
        self.steps = 0

    @classmethod
    def of(
        cls, copies: int, sizes: tuple[int, ...], like: Tensor, generator: torch.Generator
    ) -> "_Training":
        """The same initial weights for all copies, as Glorot and Bengio 2010."""
        weights, shapes = [], []
        for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
            bound = math.sqrt(6 / (fan_in + fan_out))
            for shape in ((fan_in, fan_out), (1, fan_out)):
                weights.append(bound * (2 * torch.rand(shape, generator=generator) - 1).flatten())
                shapes.append(shape)
        return cls(torch.cat(weights).to(like).expand(copies, -1).clone(), shapes)

    def step(self, inputs: Tensor, labels: Tensor, rows: Tensor) -> None:
        """One step of Adam on some rows."""
        at = self.active[:, None], rows
        each = _gradients(_views(self.flat, self.shapes), inputs[at], labels[at])
        g = torch.cat([one.flatten(1) for one in each], 1)
        g.addcmul_(self.flat, self.penalised, value=PENALTY / len(rows))
        self.steps += 1
        rate = RATE * math.sqrt(1 - BETAS[1] ** self.steps) / (1 - BETAS[0] ** self.steps)
        self.first.mul_(BETAS[0]).add_(g, alpha=1 - BETAS[0])
        self.second.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
        self.flat.addcdiv_(self.first, self.second.sqrt().add_(EPSILON), value=-rate)

    def judge(self, inputs: Tensor, truth: Tensor) -> None:
        """Scores copies on held-out rows; those without progress for long leave."""
        logits = _logits(_views(self.flat, self.shapes), inputs)
        score = ((logits > 0) == truth).float().mean(1)
        known = self.score[self.active]
        # Progress must exceed the tolerance to count, but any keeps the weights.
        stale = torch.where(score < known + TOLERANCE, self.stale[self.active] + 1, 0)
        better = (score > known).nonzero().flatten()
        self.best[self.active[better]] = self.flat[better]
        self.score[self.active] = torch.maximum(score, known)
        self.stale[self.active] = stale
        stay = (stale <= PATIENCE).nonzero().flatten()
        if len(stay) < len(self.active):
            self.active = self.active[stay]
            for name in ("flat", "first", "second"):
                setattr(self, name, getattr(self, name)[stay])


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


def _gradients(weights: list[Tensor], inputs: Tensor, labels: Tensor) -> list[Tensor]:
    """Gradients of the mean loss, by hand: graphs of tiny layers cost more."""
    layers, n = _layers(weights, inputs), inputs.shape[1]
    back = (torch.sigmoid(layers[-1]) - labels[..., None]) / n
    found: list[Tensor] = []
    for i in reversed(range(0, len(weights), 2)):
        below = layers[i // 2]
        found[:0] = [below.mT @ back, back.sum(1, keepdim=True)]
        if i:
            back = (back @ weights[i].mT) * (below > 0)
    return found


def pvalue(statistic: Tensor, null: Tensor) -> Tensor:
    """The share of nulls (o, h) that are larger than the statistics (o,)."""
    return (null > statistic[:, None]).double().mean(1)


@dataclass(frozen=True, eq=False)
class Trial:
    """A test whose classifiers are still to be fitted.

    Args:
        inputs: Rows of the data and of its null copies, (1 + h, n, p).
        labels: Their classes, (1 + h, n).
        judge: What fitted classifiers say: statistics and nulls.
    """

    inputs: Tensor
    labels: Tensor
    judge: Callable[[Fitted], tuple[Tensor, ...]]


def together(classifier: Batched | Sklearn, trials: Sequence[Trial]) -> list[tuple[Tensor, ...]]:
    """What trials of one size find, with all their classifiers fitted in one stack."""
    inputs, labels = (torch.cat([getattr(t, k) for t in trials]) for k in ("inputs", "labels"))
    fitted = classifier.fit(inputs, labels)
    found, first = [], 0
    for trial in trials:
        found.append(trial.judge(fitted[first : first + len(trial.inputs)]))
        first += len(trial.inputs)
    return found


def trial_of_lc2st(
    pairs: tuple[Tensor, Tensor, Tensor],
    observations: tuple[Tensor, Tensor],
    nulls: int = 100,
    *,
    free: bool = True,
) -> Trial:
    """L-C2ST in parameters: statistics (o,) and nulls (o, h) of the single-class MSE.

    Args:
        pairs: Parameters (n, m), observations (n, d) and one draw of q at each, (n, m).
        observations: Observations (o, d) and draws of q there, (o, s, m).
        nulls: Permutations of all 2 n rows.
        free: Whether permutations are any, as published; else rows of a pair change places.
    """
    theta, x, theta_q = pairs
    rows = torch.cat([torch.cat([theta_q, x], 1), torch.cat([theta, x], 1)])
    inputs = rows[(_orders if free else _swaps)(rows, nulls)]
    same = repeat(observations[1])
    return Trial(inputs, _halves(inputs), lambda fitted: _single(fitted, observations[0], same))


def lc2st(
    classifier: Batched | Sklearn,
    pairs: tuple[Tensor, Tensor, Tensor],
    observations: tuple[Tensor, Tensor],
    nulls: int = 100,
) -> tuple[Tensor, ...]:
    """L-C2ST in parameters, alone; see :func:`trial_of_lc2st`."""
    return together(classifier, [trial_of_lc2st(pairs, observations, nulls)])[0]


def trial_of_lc2st_nf(
    pairs: tuple[Tensor, Tensor],
    x_o: Tensor,
    nulls: int = 100,
    draws: int = 10_000,
    part: range | None = None,
    run: int = 0,
) -> Trial:
    """L-C2ST-NF in latents: statistics (o,) and nulls (o, h) of the single-class MSE.

    Null classifiers are evaluated on base draws of which the first are those that they were
    trained on, as in the authors' code; the data's classifier on others.

    Args:
        pairs: Latents (n, m) and observations (n, d).
        x_o: Observations (o, d).
        nulls: Pairs of base draws.
        draws: Base draws at which a classifier is evaluated.
        part: Numbers of the nulls that are wanted; all if None.
        run: The number of the run: class 0 of the data has base draws of its own in each, where
            those of nulls and of the evaluation are the same in all.
    """
    z, x = pairs
    (n, m), most = z.shape, max(draws, len(z))
    part = range(nulls) if part is None else part

    def drawn(numbers: Iterable[int], count: int, name: str) -> Tensor:
        each = [torch.randn(count, m, generator=stream(t, name)) for t in numbers]
        return torch.stack(each).to(z)

    # Row 0 is the data, trained on draws of a stream of its own.
    base = drawn([nulls + 1 + run, *part], most, "base")
    truths = torch.cat([z[None], drawn(part, n, "class 1")])
    inputs = torch.cat([_with(base[:, :n], x), _with(truths, x)], 1)
    evaluated = torch.cat([drawn([nulls], most, "base"), base[1:]])[:, :draws]
    # A copy has draws of its own, the same at all observations.
    at = [one.expand(len(x_o), -1, -1) for one in evaluated]
    return Trial(inputs, _halves(inputs), lambda fitted: _single(fitted, x_o, at))


def lc2st_nf(
    classifier: Batched | Sklearn,
    pairs: tuple[Tensor, Tensor],
    x_o: Tensor,
    nulls: int = 100,
    draws: int = 10_000,
) -> tuple[Tensor, ...]:
    """L-C2ST-NF in latents, alone; see :func:`trial_of_lc2st_nf`."""
    return together(classifier, [trial_of_lc2st_nf(pairs, x_o, nulls, draws)])[0]


def trial_of_c2st(samples: tuple[Tensor, Tensor], n: int, nulls: int = 100) -> Trial:
    """The oracle: MSE and its nulls, and accuracy and its nulls, of one observation.

    Args:
        samples: Draws of q and of the true posterior, each (n + s, m).
        n: The number of those to train on; classifiers are judged on the others.
        nulls: Permutations of the rows, of training and evaluation alike.
    """
    train = torch.cat([one[:n] for one in samples])
    judged = torch.cat([one[n:] for one in samples])
    inputs = train[_orders(train, nulls)]
    order = _orders(judged, nulls)
    truth = _halves(judged[None])[0] > 0.5

    def judge(fitted: Fitted) -> tuple[Tensor, ...]:
        pairs = zip(fitted, order, strict=False)
        d = torch.stack([one(judged[rows]) for one, rows in pairs])
        mse = (d - 0.5).square().mean(1)
        accuracy = ((d > 0.5) == truth).double().mean(1)
        return mse[0], mse[1:], accuracy[0], accuracy[1:]

    return Trial(inputs, _halves(inputs), judge)


def c2st(
    classifier: Batched | Sklearn, samples: tuple[Tensor, Tensor], n: int, nulls: int = 100
) -> tuple[Tensor, ...]:
    """The oracle, alone; see :func:`trial_of_c2st`."""
    return together(classifier, [trial_of_c2st(samples, n, nulls)])[0]


def _orders(rows: Tensor, nulls: int) -> Tensor:
    """The order of rows, and permutations of it, (1 + h, n)."""
    orders = [torch.arange(len(rows))]
    orders += [torch.randperm(len(rows), generator=stream(t, "permutation")) for t in range(nulls)]
    return torch.stack(orders).to(rows.device)


def _swaps(rows: Tensor, nulls: int) -> Tensor:
    """The order of rows, and others in which members of some pairs change places, (1 + h, 2 n)."""
    n = len(rows) // 2
    orders = [torch.arange(2 * n)]
    for t in range(nulls):
        swapped = torch.rand(n, generator=stream(t, "swap")) < 0.5
        first = torch.where(swapped, torch.arange(n, 2 * n), torch.arange(n))
        orders.append(torch.cat([first, (first + n) % (2 * n)]))
    return torch.stack(orders).to(rows.device)


def _halves(inputs: Tensor) -> Tensor:
    """Labels (h, 2 n): class 0 first."""
    half = inputs.shape[1] // 2
    return (torch.arange(2 * half, device=inputs.device) >= half).long().expand(len(inputs), -1)


def _with(latents: Tensor, x: Tensor) -> Tensor:
    """Latents (h, n, m) beside observations (n, d)."""
    return torch.cat([latents, x.expand(len(latents), -1, -1)], 2)


def _single(fitted: Fitted, x_o: Tensor, draws: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Statistics (o,) and nulls (o, h) at observations (o, d); each copy has draws (o, s, m)."""
    found = []
    # Fewer are fitted than there are copies where only the data's classifier is wanted.
    for one, there in zip(fitted, draws, strict=False):
        rows = torch.cat([there, x_o[:, None].expand(-1, there.shape[1], -1)], 2)
        d = one(rows.flatten(0, 1)).unflatten(0, there.shape[:2])
        found.append((d - 0.5).square().mean(1))
    table = torch.stack(found, 1)
    return table[:, 0], table[:, 1:]
