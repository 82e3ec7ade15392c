"""H + 1 small networks, trained together as one stack of weights.

All copies see the same inputs in the same order from the same initial weights, so a layer of all
networks is one batched product and a statistic is one deterministic function of the labels. How
the stack is cut into chunks changes nothing, bit for bit on a CPU. The loss is the binary
cross-entropy with both classes weighted equally, over batches of whole sets, without early
stopping: networks are regularised by decoupled weight decay instead.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from .._support.inputs import ALL, MOST_SQUARED, check_count, check_number, cpu
from .._support.random import seed_of, stream
from .._support.work import progress, spread_over
from ..nulls import Copies
from .base import Classifier, Scaling, Scores

MOST_LAYERS = 100
# Bytes that one chunk of copies may keep busy: a share of a processor's cache, or of a GPU.
CPU_BYTES, GPU_BYTES = 20 * 2**20, 4 * 2**30
# A product rounds differently if it is the only one of its batch, or if its matrices do not begin
# at multiples of 64 bytes; so there are always two, and all widths but the last are padded.
FEWEST_COPIES, GRID = 2, 16
FIRST, SECOND = 0.9, 0.999  # how much AdamW keeps of its means of gradients and of their squares
WORKERS = 4  # threads of Python that train chunks of copies, at most
BLOCK, GPU_BLOCK = 8, 64  # batches whose inputs are made at a time, and those that a GPU replays


@dataclass(frozen=True)
class MLP(Classifier):
    """Multilayer perceptrons with rectified linear units, all copies in one stack.

    Args:
        hidden: Widths of the hidden layers.
        epochs: Passes over the calibration sets.
        batch: Sets in a batch; an eighth of all sets if that is less.
        rate: The peak of the one-cycle learning rate.
        decay: Decoupled weight decay.
        members: Networks in an ensemble, whose probabilities are averaged.
        chunk: Copies that are trained at a time; chosen by memory if None. Changes nothing else.
    """

    hidden: tuple[int, ...] = (64, 64)
    epochs: int = 10
    batch: int = 256
    rate: float = 5e-3
    decay: float = 0.3
    members: int = 1
    chunk: int | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        given = self.hidden if isinstance(self.hidden, tuple | list) else (self.hidden,)
        if not given:
            raise ValueError("hidden: expected at least one layer; got none.")
        check_count("layers of hidden", len(given), 1, MOST_LAYERS)
        checked = {
            "hidden": tuple(check_count("hidden", width, 1, MOST_SQUARED) for width in given),
            "epochs": check_count("epochs", self.epochs),
            "batch": check_count("batch", self.batch, 1, ALL),
            "members": check_count("members", self.members, 1, MOST_SQUARED),
            "rate": check_number("rate", self.rate),
            "decay": check_number("decay", self.decay, strict=False),
            "chunk": None if self.chunk is None else check_count("chunk", self.chunk, 1, ALL),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def fit(self, copies: Copies, seed: int) -> "Networks":
        """Trains all copies; the seed names the streams of initial weights and batch order."""
        scaling = Scaling.fit(copies)
        # Beyond a few workers they would wait for Python; others help them with each product.
        threads = 1 if copies.x.is_cuda else torch.get_num_threads()
        workers = min(threads, WORKERS)
        size = self.chunk or self._chunk_size(copies, scaling, workers)
        seeds = [seed_of(stream(seed, "member", j)) for j in range(self.members)]
        total = len(copies) * self.members * self.epochs
        with progress(desc="training", total=total, unit="epoch") as bar:
            while True:
                starts = range(0, len(copies), size)
                jobs = [(copies[i : i + size], seed) for seed in seeds for i in starts]
                try:
                    with spread_over(workers, threads // workers) as apply:
                        parts = list(apply(lambda job: self._train(scaling, bar, *job), jobs))
                    break
                except torch.cuda.OutOfMemoryError:
                    if size == 1:
                        raise
                    size = -(-size // 4)
                    torch.cuda.empty_cache()
                    again = f"training starts again with {size} copies at a time."
                    warnings.warn(f"the GPU ran out of memory: {again}", stacklevel=2)
        weights = torch.cat(parts).reshape(self.members, len(copies), -1)
        if not weights.isfinite().all():
            raise ValueError(
                f"rate: expected one at which training converges; got {self.rate}, at which "
                "weights became infinite. Lower it, or look for outliers in theta and x."
            )
        return Networks(weights, self._widths(scaling), scaling)

    def _widths(self, scaling: Scaling, grid: int = GRID) -> tuple[int, ...]:
        inputs = len(scaling.location) + len(scaling.robust.median)
        return (*(-(-width // grid) * grid for width in (inputs, *self.hidden)), 1)

    def _sets(self, copies: Copies) -> int:
        # Sets in a batch: few data need small batches to be trained at all.
        return min(self.batch, len(copies.x), max(16, len(copies.x) // 8))

    def _chunk_size(self, copies: Copies, scaling: Scaling, workers: int) -> int:
        """How many copies fit into the cache, or into a share of a GPU's memory."""
        rows, widths, room = self._sets(copies) * copies.size, self._widths(scaling), CPU_BYTES
        if copies.x.is_cuda:
            room = min(GPU_BYTES, torch.cuda.mem_get_info()[0] // 4)
        each = 4 * (rows * (sum(widths) + max(widths[1:])) + 4 * sum(_sizes(widths)))
        rounds = -(-len(copies) // (workers * max(4, room // each)))
        return -(-len(copies) // (workers * rounds))

    def _train(self, scaling: Scaling, bar: Any, copies: Copies, seed: int) -> Tensor:
        """Trains one member of a chunk of copies; returns its weights (c, p)."""
        x, widths, sets = scaling.x(copies.x), self._widths(scaling), self._sets(copies)
        batches = len(x) // sets
        initial = _initial(self._widths(scaling, 1), widths, seed).to(x.device)
        make_stack = _ReplayedStack if x.is_cuda else _Stack
        stack = make_stack(initial, widths, len(copies), sets * copies.size)
        schedule = self._schedule(self.epochs * batches)
        # Both classes weigh the same in each batch.
        share = 0.5 * (1 + copies.odds) / stack.rows
        class1, class0 = x.new_tensor([share, share / copies.odds])
        # On a GPU, blocks that are about equally long.
        size = -(-batches // -(-batches // GPU_BLOCK)) if x.is_cuda else BLOCK
        for epoch in range(self.epochs):
            order = cpu.randperm(len(x), generator=stream(seed, "order", epoch)).to(x.device)
            for block in order[: batches * sets].split(size * sets):
                members, labels = copies.batch(block, epoch)  # (c, b, r, m) and (c, b, r)
                context = x[block][:, None].expand(*members.shape[:3], -1)
                inputs = _inputs(scaling.theta(members), context, widths[0]).flatten(1, 2)
                labels, steps = labels.flatten(1), len(block) // sets
                weights = torch.where(labels, class1, class0)
                stack.train(inputs, labels.to(inputs), weights, schedule[:steps])
                schedule = schedule[steps:]
            bar.update(len(copies))
        tensors = [tensor.flatten(1) for layer in stack.layers for tensor in layer]
        return torch.cat(tensors, 1)[: len(copies)].clone()

    def _schedule(self, steps: int) -> Tensor:
        """What is kept of weights, the rate, and the scale of gradients, with shape (steps, 3)."""
        # One cycle of rates: a fifth of the steps up to the peak, the rest down to zero.
        peak = max(1, round(0.2 * steps))
        down = steps - peak
        cycle = [0.04 + 0.48 * (1 - math.cos(math.pi * i / peak)) for i in range(peak)]
        cycle += [0.5 * (1 + math.cos(math.pi * i / down)) for i in range(down)]
        rate = enumerate((self.rate * share for share in cycle), 1)
        rows = [(1 - r * self.decay, r / (1 - FIRST**t), (1 - SECOND**t) ** -0.5) for t, r in rate]
        return cpu.tensor(rows)


@dataclass(frozen=True, eq=False)
class Networks(Scores):
    """A trained stack of networks."""

    weights: Tensor  # (members, H + 1, p)
    widths: tuple[int, ...]  # of all layers, input and output included, with their padding
    scaling: Scaling

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s) at theta (o, s, m) and x (o, d)."""
        x = x[:, None].expand(-1, theta.shape[1], -1)
        return torch.stack([self.at_rows(*rows) for rows in zip(theta, x, strict=True)])

    def at_rows(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (H + 1, s) at rows of theta (s, m) and x (s, d)."""
        inputs = _inputs(self.scaling.theta(theta), self.scaling.x(x), self.widths[0])
        each = 4 * len(inputs) * max(self.widths) * len(self.weights)
        means = []
        for part in self.weights.split(max(FEWEST_COPIES, CPU_BYTES // each), 1):
            weights = part.flatten(0, 1)  # (members c, p)
            weights = weights.expand(max(len(weights), FEWEST_COPIES), -1)
            layers = _layers(_flat(weights, self.widths), self.widths)
            logits = _logits(layers, inputs.expand(len(weights), -1, -1), [None] * len(layers))
            members = logits[: part.shape[:2].numel()].unflatten(0, part.shape[:2])
            means.append(_sigmoid(members).mean(0))
        return torch.cat(means)


class _Stack:
    """Networks of one shape, their gradients and the means of AdamW, in buffers made once.

    Gradients are written out by hand: autograd's tape, which allocates every intermediate anew,
    costs more than such small products. So is AdamW (Loshchilov and Hutter 2019): torch's own
    loads a compiler, for seconds.
    """

    def __init__(self, initial: Tensor, widths: tuple[int, ...], copies: int, rows: int) -> None:
        copies, self.rows = max(copies, FEWEST_COPIES), rows
        self.flat = _flat(initial.expand(copies, -1), widths)
        self.gradient, self.step = torch.empty_like(self.flat), torch.empty_like(self.flat)
        self.first, self.second = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.layers, self.gradients = (_layers(t, widths) for t in (self.flat, self.gradient))
        self.hidden = [initial.new_empty(copies, rows, width) for width in widths[1:-1]]
        scratch = initial.new_empty(copies * rows * max(widths[1:-1]))
        self.scratch = [scratch[: h.numel()].view_as(h) for h in self.hidden]

    def train(self, inputs: Tensor, labels: Tensor, weights: Tensor, schedule: Tensor) -> None:
        # A step for each row of the schedule (t, 3), with inputs (c, b, in), labels (c, b) and
        # weights of the rows in the loss (c, b) each; c is 1 where all copies share them.
        parts = (part.split(self.rows, 1) for part in (inputs, labels, weights))
        for x, y, w, (kept, rate, root) in zip(*parts, schedule, strict=True):
            self._compute_gradient(x.expand(len(self.hidden[0]), -1, -1), y, w)
            self.first.lerp_(self.gradient, 1 - FIRST)
            self.second.mul_(SECOND).addcmul_(self.gradient, self.gradient, value=1 - SECOND)
            torch.sqrt(self.second, out=self.step).mul_(root).add_(1e-8)
            torch.div(self.first, self.step, out=self.step).mul_(rate)
            self.flat.mul_(kept).sub_(self.step)

    def _compute_gradient(self, inputs: Tensor, labels: Tensor, weights: Tensor) -> None:
        top, (weight, bias) = self.hidden[-1], self.gradients[-1]
        logits = _logits(self.layers, inputs, [*self.hidden, self.scratch[-1]])
        slope = _sigmoid(logits).sub_(labels).mul_(weights)  # of the loss in the logits, (c, b)
        torch.sum(torch.mul(top, slope[..., None], out=self.scratch[-1]), 1, out=weight[..., 0])
        torch.sum(slope, 1, keepdim=True, out=bias[..., 0])
        above = torch.mul(slope[..., None], self.layers[-1][0].mT, out=self.scratch[-1])
        for i in reversed(range(len(self.hidden))):
            # A layer's buffer takes the slope in its inputs once its values are used up.
            here, (weight, bias) = self.hidden[i], self.gradients[i]
            g = torch.ops.aten.threshold_backward.grad_input(above, here, 0, grad_input=here)
            torch.bmm((self.hidden[i - 1] if i else inputs).mT, g, out=weight)
            torch.sum(g, 1, keepdim=True, out=bias)
            if i:
                above = torch.bmm(g, self.layers[i][0].mT, out=self.scratch[i - 1])


class _ReplayedStack(_Stack):
    """The same on a GPU, where a block is recorded once and then replayed: launches cost most."""

    begun = False
    held: tuple[Tensor, ...] = ()
    graph: Any = None

    def train(self, *given: Tensor) -> None:
        given = *given[:3], given[3].to(self.flat.device)
        if self.graph is None and self.begun:
            self.held = tuple(part.clone() for part in given)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                super().train(*self.held)
        # The first block allocates what the recording needs; the last of a pass is shorter.
        self.begun = True
        if [part.shape for part in given] != [part.shape for part in self.held]:
            super().train(*given)
            return
        for held, part in zip(self.held, given, strict=True):
            held.copy_(part)
        self.graph.replay()


def _inputs(theta: Tensor, x: Tensor, width: int) -> Tensor:
    """Inputs (..., width) from members (..., m) and features (..., d), padded with zeros."""
    padding = theta.new_zeros(()).expand(*theta.shape[:-1], width - theta.shape[-1] - x.shape[-1])
    return torch.cat([theta, x, padding], -1)


def _initial(widths: tuple[int, ...], padded: tuple[int, ...], seed: int) -> Tensor:
    """The initial weights (p,) of every copy, uniform in plus or minus fan_in^(-1/2)."""
    # Padding is zero, and stays so: a unit without weights has no gradient.
    generator, weights = stream(seed, "weights"), cpu.zeros(sum(_sizes(padded)))
    layers = _layers(weights, padded)
    for (fan_in, fan_out), (weight, bias) in zip(pairwise(widths), layers, strict=True):
        for tensor, rows in ((weight, fan_in), (bias, 1)):
            uniform = 2 * cpu.rand(rows, fan_out, generator=generator) - 1
            tensor[0, :rows, :fan_out] = uniform / math.sqrt(fan_in)
    return weights


def _sizes(widths: tuple[int, ...]) -> list[int]:
    """How many numbers the weight and the bias of each layer have."""
    return [size for i, o in pairwise(widths) for size in (i * o, o)]


def _flat(weights: Tensor, widths: tuple[int, ...]) -> Tensor:
    """Weights (c, p) in one tensor (c p,), layer after layer, so that each is contiguous."""
    return torch.cat([part.flatten() for part in weights.split(_sizes(widths), 1)])


def _layers(flat: Tensor, widths: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Views of weights (c p,) as a weight (c, in, out) and a bias (c, 1, out) for each layer."""
    sizes = _sizes(widths)
    c = len(flat) // sum(sizes)
    parts = iter(flat.split([c * size for size in sizes]))
    return [(next(parts).view(c, -1, o), next(parts).view(c, -1, o)) for o in widths[1:]]


def _logits(
    layers: list[tuple[Tensor, Tensor]], inputs: Tensor, buffers: Sequence[Tensor | None]
) -> Tensor:
    """Logits (c, b) of networks at inputs (c, b, in), with buffers for all products, or None."""
    h = inputs
    for (weight, bias), buffer in zip(layers[:-1], buffers[:-1], strict=True):
        h = torch.baddbmm(bias, h, weight, out=buffer).relu_()
    weight, bias = layers[-1]
    # Faster than a product with one column.
    return torch.mul(h, weight.mT, out=buffers[-1]).sum(2).add_(bias[..., 0])


def _sigmoid(logits: Tensor) -> Tensor:
    """The logistic function; torch.sigmoid's last bit depends on a number's place in memory."""
    return logits.neg().exp_().add_(1).reciprocal_()
