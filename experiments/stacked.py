r"""Networks of scikit-learn, those of many trials in one stack, for a GPU.

:class:`Stacked` ends with the weights of :class:`experiments.networks.Batched`, which are those of
scikit-learn but for rounding. It is made for 10^4 copies at once:

- Rows are stored once (:class:`Rows`): a copy is a list of numbers of rows.
- Chance is drawn once (:class:`Plan`). With a fixed ``random_state`` first weights and the order
  of rows are those of all copies. So is the stratified split, if the rows of each class are
  numbered in the order in which they come: which numbers are held out does not depend on where
  these rows stand.
- A step is a fixed sequence of operations into memory that was there before. On a GPU those of an
  epoch are captured as a CUDA graph, and played again; copies that are done are left out as soon
  as they are half of all.

Instead of operations of torch a kernel may do it, much faster (:mod:`experiments.kernels`).
"""

import math
import threading
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from .networks import (
    BATCH,
    BETAS,
    EPSILON,
    HELD,
    RATE,
    TOLERANCE,
    Fitted,
    Network,
    _logits,
    _probability,
    _views,
)

__all__ = ["Engine", "Fit", "Places", "Plan", "Rows", "Stacked", "Torch", "Trained", "plan"]

# Numbers that are made at once, at most, where copies may be split.
MOST = 2**28
# Copies below which a stack is not made smaller.
FEW = 16


@dataclass(frozen=True, eq=False)
class Rows:
    """What copies are trained on, with nothing stored twice.

    A row is one of the left beside one of the right. Each copy has a table on either side; rows
    of the left after the first ``pairs`` stand beside those of the right once more.

    Args:
        left: Tables of all copies, one below the other (., m).
        right: The same (., d); d may be 0.
        left_at: Where the table of each copy begins (h,).
        right_at: The same on the right.
        codes: For each copy its rows in their order: twice the number of a row in its table, plus
            its class, as int32 (h, n).
        pairs: The number of rows of the right in a table.
    """

    left: Tensor
    right: Tensor
    left_at: Tensor
    right_at: Tensor
    codes: Tensor
    pairs: int

    @classmethod
    def of(cls, inputs: Tensor, labels: Tensor, m: int | None = None) -> "Rows":
        """Rows that are stored for each copy.

        Args:
            inputs: Rows (h, n, p).
            labels: Their classes (h, n).
            m: How many columns are on the left; all if None.
        """
        copies, n, p = inputs.shape
        left, right = inputs.flatten(0, 1).tensor_split([p if m is None else m], 1)
        at = torch.arange(copies, device=inputs.device) * n
        order = torch.arange(n, device=inputs.device, dtype=torch.int32)
        return cls(left, right, at, at, 2 * order + labels.to(order), n)

    @property
    def inputs(self) -> int:
        """The length of a row."""
        return self.left.shape[1] + self.right.shape[1]

    def check(self) -> None:
        """Refuses rows that are not there, which a kernel would read."""
        row = int(self.codes.max()) >> 1
        last = int(self.left_at.max()) + row, int(self.right_at.max()) + self.pairs - 1
        there = row < 2 * self.pairs and last[0] < len(self.left) and last[1] < len(self.right)
        if not there or int(self.codes.min()) < 0:
            tables = f"{len(self.left)} and {len(self.right)}"
            raise ValueError(f"codes: expected rows of tables of {tables}; got {last}")

    def at(self, copies: Tensor, codes: Tensor) -> Tensor:
        """Rows (a, b, p) of some copies (a,), by their codes (a, b)."""
        rows = codes.long() >> 1
        left = self.left[rows + self.left_at[copies, None]]
        if not self.right.shape[1]:
            return left
        right = self.right[rows % self.pairs + self.right_at[copies, None]]
        return torch.cat([left, right], 2)


class Plan:
    """All chance of a fit, from scikit-learn's generator in its order.

    Args:
        network: What scikit-learn is told.
        inputs: The length of a row.
        counts: How many rows there are of each class, in each copy.
        state: The random state.
    """

    def __init__(
        self, network: Network, inputs: int, counts: tuple[int, int], state: int = 0
    ) -> None:
        # The old generator is that of scikit-learn.
        self._chance, self._lock = np.random.RandomState(state), threading.Lock()
        self.shapes: list[tuple[int, int]] = []
        first = []
        for fan_in, fan_out in pairwise((inputs, *network.hidden, 1)):
            bound = math.sqrt(6 / (fan_in + fan_out))
            for shape in ((fan_in, fan_out), (1, fan_out)):
                first.append(self._chance.uniform(-bound, bound, shape).ravel())
                self.shapes.append(shape)
        self.first = torch.from_numpy(np.concatenate(first))
        every, truth = np.arange(sum(counts)), np.repeat([0, 1], counts)
        parts = train_test_split(every, test_size=HELD, random_state=self._chance, stratify=truth)
        self.known, self.held = map(torch.from_numpy, parts)
        self._orders: list[np.ndarray] = []

    @property
    def batch(self) -> int:
        """Rows of a batch; the last may have fewer."""
        return min(BATCH, len(self.known))

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return -(-len(self.known) // self.batch)

    def orders(self, first: int, last: int) -> Tensor:
        """Positions of known rows in the order of some epochs, as int32 (last - first, n)."""
        with self._lock:
            while len(self._orders) < last:
                every = np.arange(len(self.known), dtype=np.int32)
                before = self._orders[-1] if self._orders else every.copy()
                # As ``sklearn.utils.shuffle`` does.
                self._chance.shuffle(every)
                self._orders.append(before[every])
        return torch.from_numpy(np.stack(self._orders[first:last]))

    def rates(self, first: int, last: int) -> Tensor:
        """Adam's rates in the steps of some epochs (last - first, steps)."""
        t = torch.arange(first * self.steps + 1, last * self.steps + 1, dtype=torch.double)
        rates = RATE * (1 - BETAS[1] ** t).sqrt() / (1 - BETAS[0] ** t)
        return rates.reshape(last - first, self.steps)

    def split(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Codes (h, .) of the known and of the held-out rows, among codes (h, n)."""
        by_class = codes.gather(1, (codes & 1).argsort(dim=1, stable=True))
        known, held = (part.to(codes.device) for part in (self.known, self.held))
        return by_class[:, known], by_class[:, held]


@cache
def plan(network: Network, inputs: int, counts: tuple[int, int], state: int = 0) -> Plan:
    """The plan of all who ask for the same."""
    return Plan(network, inputs, counts, state)


@dataclass(frozen=True, eq=False)
class Fit:
    """Copies that are to be trained.

    Args:
        network: What scikit-learn is told.
        plan: Its chance.
        rows: Rows in the order in which scikit-learn is given them.
    """

    network: Network
    plan: Plan
    rows: Rows

    @classmethod
    def of(cls, network: Network, rows: Rows, state: int = 0) -> "Fit":
        """With the chance of a random state."""
        if not network.early or len(network.hidden) != 2:
            raise ValueError(f"network: expected two layers that stop early; got {network}")
        rows.check()
        ones = (rows.codes & 1).sum(1).unique().tolist()
        if len(ones) > 1:
            raise ValueError(f"labels: expected as many of a class in each copy; got {ones}")
        counts = rows.codes.shape[1] - ones[0], ones[0]
        return cls(network, plan(network, rows.inputs, counts, state), rows)

    @cached_property
    def split(self) -> tuple[Tensor, Tensor]:
        """Codes of known and of held-out rows (h, .)."""
        size = max(1, MOST // self.rows.codes.shape[1])
        known, held = zip(*map(self.plan.split, self.rows.codes.split(size)), strict=True)
        return torch.cat(known), torch.cat(held)


@dataclass(frozen=True, eq=False)
class Trained:
    """Networks that were trained.

    Args:
        flat: Weights, those of one layer after the other (h, w).
        shapes: Shapes of the matrices and biases in a row of weights.
        epochs: How many epochs each was trained (h,).
    """

    flat: Tensor
    shapes: list[tuple[int, int]]
    epochs: Tensor

    @property
    def fitted(self) -> Fitted:
        """Each by itself."""
        return [partial(_probability, row[None], self.shapes) for row in self.flat]


@dataclass(frozen=True, eq=False)
class Places:
    """Where networks are asked: at an observation, beside the draws of a table.

    Args:
        draws: Tables of draws, one below the other (., m).
        x: Observations (o, d).
        at: Where the table of each copy and observation begins (h, o).
        count: The number of draws in a table.
    """

    draws: Tensor
    x: Tensor
    at: Tensor
    count: int

    def __post_init__(self) -> None:
        # A kernel would read what is not there.
        if self.at.shape[1] != len(self.x):
            raise ValueError(f"at: expected {len(self.x)} observations; got {self.at.shape[1]}")
        last = int(self.at.max()) + self.count
        if last > len(self.draws) or int(self.at.min()) < 0:
            raise ValueError(f"at: expected tables within {len(self.draws)} draws; got {last}")


class Engine(Protocol):
    """What trains all copies, and asks them."""

    def train(self, fit: Fit) -> Trained:
        """Trains all copies."""
        ...

    def ask(self, trained: Trained, places: Places) -> Tensor:
        """Mean squared distances of probabilities to 1/2, (h, o)."""
        ...


@dataclass(frozen=True)
class Torch:
    """Operations of torch, in single or double precision.

    Args:
        most: Numbers that are made at once, about; copies are split if they are more.
    """

    most: int = 16 * MOST

    def train(self, fit: Fit) -> Trained:
        """Trains all copies."""
        units = sum(fit.network.hidden)
        each = 4 * fit.plan.batch * units + len(fit.plan.held) * (units + fit.rows.inputs)
        every = torch.arange(len(fit.rows.codes), device=fit.rows.codes.device)
        with _Precise():
            parts = [_trained(fit, part) for part in every.split(max(1, self.most // each))]
        flat, epochs = (torch.cat(some) for some in zip(*parts, strict=True))
        return Trained(flat, fit.plan.shapes, epochs)

    def ask(self, trained: Trained, places: Places) -> Tensor:
        """Mean squared distances of probabilities to 1/2, (h, o)."""
        each = places.count * max(b for _, b in trained.shapes)
        size = max(1, self.most // each // 4)
        with _Precise():
            parts = zip(trained.flat.split(size), places.at.split(size), strict=True)
            return torch.cat([_asked(flat, trained.shapes, places, at) for flat, at in parts])


class _Precise:
    """No rounding to fewer bits in products on a GPU, whatever torch was told."""

    def __enter__(self) -> None:
        self.before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False

    def __exit__(self, *_: object) -> None:
        torch.backends.cuda.matmul.allow_tf32 = self.before


def _asked(flat: Tensor, shapes: list[tuple[int, int]], places: Places, at: Tensor) -> Tensor:
    """What networks (a, w) say at tables of draws that begin at (a, o)."""
    first, bias, *rest = _views(flat, shapes)
    m, found = places.draws.shape[1], []
    each = torch.arange(places.count, device=at.device)
    for x, starts in zip(places.x, at.T, strict=True):
        draws = places.draws[starts[:, None] + each]
        # The observation is the same in all rows: it makes a bias.
        shifted = bias + (x @ first[:, m:])[:, None]
        d = torch.sigmoid(_logits([first[:, :m], shifted, *rest], draws))
        found.append((d - 0.5).square().mean(1))
    return torch.stack(found, 1)


def _trained(fit: Fit, copies: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of some copies, and the epochs that they were trained."""
    stack = _Stack.of(fit, copies)
    final, epochs = torch.empty_like(stack.now["best"]), torch.zeros_like(copies)
    for epoch in range(fit.network.epochs):
        stack.epoch(epoch)
        done, last = stack.now["done"], epoch + 1 == fit.network.epochs
        count = len(done) if last else int(done.sum())
        if count == len(done) or (len(done) > FEW and 2 * count >= len(done)):
            gone = torch.searchsorted(copies, stack.copies[done | last])
            final[gone] = stack.now["best"][done | last]
            epochs[gone] = stack.now["epochs"][done | last]
            if count == len(done):
                break
            stack = stack.of_copies(~done)
    return final, epochs


class _Stack:
    """Copies that are trained together, and the memory that this takes.

    Args:
        fit: What they are part of.
        copies: Their numbers (a,).
        now: What is known of them: weights and moments (a, w), and the rest (a,).
    """

    def __init__(self, fit: Fit, copies: Tensor, now: dict[str, Tensor]) -> None:
        self.fit, self.copies, self.now = fit, copies, now
        known, held = (part[copies] for part in fit.split)
        self.known, self.held = known, fit.rows.at(copies, held)
        self.truth = (held & 1) == 1
        flat, steps = now["flat"], fit.plan.steps
        self.weights = _views(flat, fit.plan.shapes)
        self.gradient, self.move = torch.empty_like(flat), torch.empty_like(flat)
        self.gradients = _views(self.gradient, fit.plan.shapes)
        # Matrices are penalised, biases are not.
        each = [torch.full((a * b,), float(a > 1)) for a, b in fit.plan.shapes]
        self.penalised = torch.cat(each).to(flat)
        self.order = torch.zeros(known.shape[1], dtype=torch.long, device=flat.device)
        self.rates = torch.zeros(steps, dtype=flat.dtype, device=flat.device)
        self.graph: Any = None
        self.warm = False

    @classmethod
    def of(cls, fit: Fit, copies: Tensor) -> "_Stack":
        """Before the first epoch."""
        flat = fit.plan.first.to(fit.rows.left).expand(len(copies), -1).clone()
        zeros = torch.zeros_like(copies)
        now = {"flat": flat, "best": flat.clone()}
        now |= {"first": torch.zeros_like(flat), "second": torch.zeros_like(flat)}
        now |= {"stale": zeros, "epochs": zeros.clone(), "done": zeros.bool()}
        now["score"] = torch.full_like(zeros, -math.inf, dtype=torch.double)
        return cls(fit, copies, now)

    def of_copies(self, which: Tensor) -> "_Stack":
        """Some of them alone."""
        now = {name: value[which] for name, value in self.now.items()}
        return _Stack(self.fit, self.copies[which], now)

    def epoch(self, number: int) -> None:
        """A step on each batch, and what it was good for."""
        self.order.copy_(self.fit.plan.orders(number, number + 1)[0])
        self.rates.copy_(self.fit.plan.rates(number, number + 1)[0])
        if not self.order.is_cuda:
            self._epoch()
        elif not self.warm:
            # What libraries set up at their first call cannot be captured.
            self._epoch()
            self.warm = True
        else:
            if self.graph is None:
                torch.cuda.synchronize()
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                    self._epoch()
            self.graph.replay()

    def _epoch(self) -> None:
        batches = self.order.split(self.fit.plan.batch)
        for rate, positions in zip(self.rates, batches, strict=True):
            codes = self.known[:, positions]
            self._step(self.fit.rows.at(self.copies, codes), codes & 1, rate)
        self._judge()

    def _step(self, inputs: Tensor, labels: Tensor, rate: Tensor) -> None:
        """One step of Adam on some rows (a, b, p)."""
        self._differentiate(inputs, labels.to(inputs.dtype))
        now, g = self.now, self.gradient
        if self.fit.network.penalty:
            share = self.fit.network.penalty / inputs.shape[1]
            g.addcmul_(now["flat"], self.penalised, value=share)
        now["first"].lerp_(g, 1 - BETAS[0])
        now["second"].mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
        torch.sqrt(now["second"], out=self.move).add_(EPSILON)
        torch.div(now["first"], self.move, out=self.move)
        now["flat"].addcmul_(self.move, rate, value=-1)

    def _differentiate(self, inputs: Tensor, labels: Tensor) -> None:
        """Leaves the gradients of mean losses, by hand."""
        w1, b1, w2, b2, w3, b3 = self.weights
        g1, c1, g2, c2, g3, c3 = self.gradients
        one = torch.baddbmm(b1, inputs, w1).relu_()
        two = torch.baddbmm(b2, one, w2).relu_()
        back = torch.baddbmm(b3, two, w3).sigmoid_()
        back.sub_(labels[..., None]).div_(inputs.shape[1])
        g3.copy_(two.mT @ back)
        c3.copy_(back.sum(1, keepdim=True))
        # What a rectifier has left is positive where it has let through.
        back = torch.ops.aten.threshold_backward(back * w3.mT, two, 0)
        g2.copy_(one.mT @ back)
        c2.copy_(back.sum(1, keepdim=True))
        back = torch.ops.aten.threshold_backward(back @ w2.mT, one, 0)
        g1.copy_(inputs.mT @ back)
        c1.copy_(back.sum(1, keepdim=True))

    def _judge(self) -> None:
        """Notes progress on held-out rows; copies without it for long are done."""
        now = self.now
        right = (_logits(self.weights, self.held) > 0) == self.truth
        score = right.sum(1).double() / right.shape[1]
        # Progress must exceed the tolerance to count, but any keeps the weights.
        stale = torch.where(score < now["score"] + TOLERANCE, now["stale"] + 1, 0)
        better = (score > now["score"]) & ~now["done"]
        torch.where(better[:, None], now["flat"], now["best"], out=now["best"])
        torch.maximum(score, now["score"], out=now["score"])
        now["stale"].copy_(stale)
        now["epochs"].add_(~now["done"])
        now["done"].logical_or_(stale > self.fit.network.patience)


@dataclass(frozen=True)
class Stacked:
    """All copies at once, as :class:`experiments.networks.Batched` does.

    Args:
        network: What scikit-learn is told.
        state: Its random state.
        engine: What trains them.
    """

    network: Network
    state: int = 0
    engine: Engine = Torch()

    def train(self, rows: Rows) -> Trained:
        """Trains all copies."""
        return self.engine.train(Fit.of(self.network, rows, self.state))

    def fit(self, inputs: Tensor, labels: Tensor) -> Fitted:
        """Fits all copies: inputs (h, n, p), labels (h, n), as many of a class in each."""
        return self.train(Rows.of(inputs, labels)).fitted
