r"""H + 1 small networks, trained together as one stack of weights.

All copies see the same inputs in the same order from the same initial weights, so a layer of all
networks is one batched product (``baddbmm``) and a statistic is one deterministic function of the
labels. The stack is worked off in chunks of copies that fit into the processor's cache; how it is
cut changes nothing, bit for bit on a CPU.

The loss is the binary cross-entropy with both classes weighted equally, over batches of whole
sets. There is no early stopping: networks are regularised by decoupled weight decay instead.
"""

import math
import warnings
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
    r"""Multilayer perceptrons with rectified linear units, all copies in one stack.

    Args:
        hidden: Widths of the hidden layers.
        epochs: Passes over the calibration sets.
        batch: Sets in a batch; an eighth of all sets if that is less.
        rate: The peak of the one-cycle learning rate.
        decay: Decoupled weight decay.
        members: Networks in an ensemble, whose probabilities are averaged.
        chunk: Copies that are trained at a time; chosen by memory if None. Changes nothing else.

    Example:
        >>> MLP(epochs=5).hidden
        (64, 64)
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
        widths = self._widths(scaling)
        seeds = [seed_of(stream(seed, "member", j)) for j in range(self.members)]
        total = len(copies) * self.members * self.epochs
        with progress(desc="training", total=total, unit="epoch") as bar:
            chunks = _train_chunks(self, copies, scaling, seeds, bar)
        weights = torch.cat(chunks).reshape(self.members, len(copies), -1)
        if not weights.isfinite().all():
            raise ValueError(
                f"rate: expected one at which training converges; got {self.rate}, at which "
                "weights became infinite. Lower it, or look for outliers in theta and x."
            )
        return Networks(weights, widths, scaling)

    def _sets(self, n: int) -> int:
        """Sets in a batch: few data need small batches to be trained at all."""
        return min(self.batch, n, max(16, n // 8))

    def _widths(self, scaling: Scaling) -> tuple[int, ...]:
        """Widths of all layers, padded to the grid."""
        return (*(-(-w // GRID) * GRID for w in (scaling.width, *self.hidden)), 1)


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
        inputs = _inputs(self.scaling.theta(theta), self.scaling.x(x), self.widths[0])[None]
        size = max(FEWEST_COPIES, CPU_BYTES // (4 * inputs.shape[1] * max(self.widths)))
        means = []
        for part in self.weights.split(size, 1):
            logits = torch.stack([_logits(member, self.widths, inputs) for member in part])
            means.append(_sigmoid(logits).mean(0))  # over the networks of an ensemble
        return torch.cat(means)


def _train_chunks(
    recipe: MLP, copies: Copies, scaling: Scaling, seeds: list[int], bar: Any
) -> list[Tensor]:
    """Weights (c, p) of chunks of copies, one member after the other."""
    threads = 1 if copies.x.device.type == "cuda" else torch.get_num_threads()
    # Beyond a few workers they would wait for Python; others help them with each product.
    workers = min(threads, WORKERS)
    widths, sets = recipe._widths(scaling), recipe._sets(len(copies.x))
    size = recipe.chunk or _chunk_size(copies, sets, widths, workers)
    while True:
        chunks = [copies[i : i + size] for i in range(0, len(copies), size)]
        jobs = [(chunk, seed) for seed in seeds for chunk in chunks]
        try:
            with spread_over(workers, threads // workers) as apply:
                return list(apply(lambda job: _train(recipe, job[0], scaling, job[1], bar), jobs))
        except torch.cuda.OutOfMemoryError:
            if size == 1:
                raise
            size = -(-size // 4)
            torch.cuda.empty_cache()
            warnings.warn(
                f"the GPU ran out of memory: training starts again with {size} copies at a time.",
                stacklevel=2,
            )


def _train(recipe: MLP, copies: Copies, scaling: Scaling, seed: int, bar: Any) -> Tensor:
    """Trains one member of a chunk of copies; returns its weights (c, p)."""
    x, widths = scaling.x(copies.x), recipe._widths(scaling)
    sets = recipe._sets(len(x))
    batches = len(x) // sets
    initial = _initial((scaling.width, *recipe.hidden, 1), widths, seed).to(x.device)
    stack = _Stack(initial, widths, len(copies), sets * copies.size)
    descent = (_Replayed if x.is_cuda else _Descent)(stack)
    scales = _scales(recipe, recipe.epochs * batches)
    # Both classes weigh the same in each batch.
    share = 0.5 * (1 + copies.odds) / stack.rows
    class1, class0 = x.new_tensor([share, share / copies.odds])
    # On a GPU, blocks that are about equally long.
    size = -(-batches // -(-batches // GPU_BLOCK)) if x.is_cuda else BLOCK
    done = 0
    for epoch in range(recipe.epochs):
        order = cpu.randperm(len(x), generator=stream(seed, "order", epoch)).to(x.device)
        for block in order[: batches * sets].split(size * sets):
            members, labels = copies.batch(block, epoch)
            context = x[block][:, None].expand(*members.shape[:3], -1)
            inputs = _inputs(scaling.theta(members), context, widths[0]).flatten(1, 2)
            labels, steps = labels.flatten(1), len(block) // sets
            weights = torch.where(labels, class1, class0)
            descent(inputs, labels.to(inputs), weights, scales[done : done + steps])
            done += steps
        bar.update(len(copies))
    return stack.weights[: len(copies)].clone()


class _Descent:
    """Steps of AdamW (Loshchilov and Hutter 2019) over blocks of batches.

    Written out here, since :class:`torch.optim.AdamW` loads torch's compiler, for seconds.
    """

    def __init__(self, stack: "_Stack") -> None:
        self.stack = stack
        self.first, self.second = torch.zeros_like(stack.flat), torch.zeros_like(stack.flat)
        self.scratch = torch.empty_like(stack.flat)

    def __call__(self, inputs: Tensor, labels: Tensor, weights: Tensor, scales: Tensor) -> None:
        """Takes a step for each of the scales (t, 3), with a part of the rows each."""
        parts = (part.split(self.stack.rows, 1) for part in (inputs, labels, weights))
        for *batch, (kept, rate, root) in zip(*parts, scales, strict=True):
            self.stack.descend(*batch)
            gradient = self.stack.gradient
            self.first.lerp_(gradient, 1 - FIRST)
            self.second.mul_(SECOND).addcmul_(gradient, gradient, value=1 - SECOND)
            torch.sqrt(self.second, out=self.scratch).mul_(root).add_(1e-8)
            torch.div(self.first, self.scratch, out=self.scratch).mul_(rate)
            self.stack.flat.mul_(kept).sub_(self.scratch)


class _Replayed(_Descent):
    """The same on a GPU, where a block is recorded once and then replayed: launches cost most."""

    def __init__(self, stack: "_Stack") -> None:
        super().__init__(stack)
        self.begun = False
        self.held: tuple[Tensor, ...] = ()
        self.graph: Any = None

    def __call__(self, inputs: Tensor, labels: Tensor, weights: Tensor, scales: Tensor) -> None:
        """Takes a step for each of the scales (t, 3), with a part of the rows each."""
        given = inputs, labels, weights, scales.to(inputs.device)
        if self.graph is None and self.begun:
            self._record(*given)
        # The first block allocates what the recording needs; the last of a pass is shorter.
        self.begun = True
        if [part.shape for part in given] != [part.shape for part in self.held]:
            super().__call__(*given)
            return
        for held, part in zip(self.held, given, strict=True):
            held.copy_(part)
        self.graph.replay()

    def _record(self, *given: Tensor) -> None:
        inputs, labels, weights, scales = self.held = tuple(part.clone() for part in given)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            super().__call__(inputs, labels, weights, scales)


def _scales(recipe: MLP, steps: int) -> Tensor:
    """What is kept of weights, the rate, and the scale of gradients, with shape (steps, 3)."""
    table = [
        (1 - r * recipe.decay, r / (1 - FIRST**t), (1 - SECOND**t) ** -0.5)
        for t, r in enumerate((recipe.rate * rate for rate in _cycle(steps)), 1)
    ]
    return cpu.tensor(table)


def _cycle(steps: int) -> list[float]:
    """One cycle of learning rates: a fifth of the steps up to one, the rest down to zero."""
    peak = max(1, round(0.2 * steps))
    up = [0.04 + 0.48 * (1 - math.cos(math.pi * i / peak)) for i in range(peak)]
    down = steps - peak
    return up + [0.5 * (1 + math.cos(math.pi * i / down)) for i in range(down)]


class _Stack:
    """Networks of one shape and their gradients, in buffers that are made once.

    Gradients are written out by hand: at this size the tape of autograd, which allocates every
    intermediate anew, costs more than the products.
    """

    def __init__(self, initial: Tensor, widths: tuple[int, ...], copies: int, rows: int) -> None:
        copies = max(copies, FEWEST_COPIES)
        tensors = _tensors(initial.expand(copies, -1), widths)
        # All weights in one tensor, layer after layer, so that each is contiguous.
        self.flat = torch.cat([tensor.flatten() for tensor in tensors])
        self.gradient = torch.empty_like(self.flat)
        sizes, shapes = [t.numel() for t in tensors], [t.shape for t in tensors]
        self.layers, self.gradients = (
            _pairs([part.view(s) for part, s in zip(flat.split(sizes), shapes, strict=True)])
            for flat in (self.flat, self.gradient)
        )
        self.rows = rows
        self.hidden = [initial.new_empty(copies, rows, width) for width in widths[1:-1]]
        self.scratch = initial.new_empty(copies * rows * max(widths[1:-1]))

    @property
    def weights(self) -> Tensor:
        """The weights (c, p) of all copies."""
        return torch.cat([tensor.flatten(1) for layer in self.layers for tensor in layer], 1)

    def descend(self, inputs: Tensor, labels: Tensor, weights: Tensor) -> None:
        """Writes the gradient of the loss of one batch.

        It takes inputs (c, b, in), labels (c, b), one for class 1 and zero for q, and weights of
        the rows in the loss (c, b); with 1 in place of c where they are shared.
        """
        h = inputs = inputs.expand(len(self.hidden[0]), -1, -1)
        for (weight, bias), out in zip(self.layers[:-1], self.hidden, strict=True):
            h = torch.baddbmm(bias, h, weight, out=out).relu_()
        logits = _output(h, *self.layers[-1], self._like(h))
        self._backward(inputs, _sigmoid(logits).sub_(labels).mul_(weights))

    def _backward(self, inputs: Tensor, slope: Tensor) -> None:
        """Writes the gradient, given the slope (c, b) of the loss in the logits.

        A hidden layer's buffer takes the slope in its inputs once its values are used up.
        """
        top, (weight, bias) = self.hidden[-1], self.gradients[-1]
        product = torch.mul(top, slope[..., None], out=self._like(top))
        torch.sum(product, 1, out=weight[..., 0])
        torch.sum(slope, 1, keepdim=True, out=bias[..., 0])
        above = torch.mul(slope[..., None], self.layers[-1][0].mT, out=product)
        for i in reversed(range(len(self.hidden))):
            here, (weight, bias) = self.hidden[i], self.gradients[i]
            g = torch.ops.aten.threshold_backward.grad_input(above, here, 0, grad_input=here)
            torch.bmm((self.hidden[i - 1] if i else inputs).mT, g, out=weight)
            torch.sum(g, 1, keepdim=True, out=bias)
            if i:
                above = torch.bmm(g, self.layers[i][0].mT, out=self._like(self.hidden[i - 1]))

    def _like(self, hidden: Tensor) -> Tensor:
        return self.scratch[: hidden.numel()].view_as(hidden)


def _chunk_size(copies: Copies, sets: int, widths: tuple[int, ...], workers: int) -> int:
    """How many copies fit into the cache, or into a share of a GPU's memory."""
    rows = sets * copies.size
    weights = sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(widths))
    each = 4 * (rows * (sum(widths) + max(widths[1:])) + 4 * weights)
    cuda = copies.x.device.type == "cuda"
    room = min(GPU_BYTES, torch.cuda.mem_get_info()[0] // 4) if cuda else CPU_BYTES
    most = max(4, room // each)
    rounds = -(-len(copies) // (workers * most))
    return -(-len(copies) // (workers * rounds))


def _inputs(theta: Tensor, x: Tensor, width: int) -> Tensor:
    """Inputs (..., width) from members (..., m) and features (..., d), padded with zeros."""
    padding = theta.new_zeros(()).expand(*theta.shape[:-1], width - theta.shape[-1] - x.shape[-1])
    return torch.cat([theta, x, padding], -1)


def _initial(widths: tuple[int, ...], padded: tuple[int, ...], seed: int) -> Tensor:
    """The initial weights (p,) of every copy, uniform in plus or minus fan_in^(-1/2).

    Padding is zero, and stays so: a unit without weights has no gradient.
    """
    generator = stream(seed, "weights")
    weights = cpu.zeros(sum((i + 1) * o for i, o in pairwise(padded)))
    for (fan_in, fan_out), (weight, bias) in zip(
        pairwise(widths), _pairs(_tensors(weights[None], padded)), strict=True
    ):
        for tensor, rows in ((weight, fan_in), (bias, 1)):
            uniform = 2 * cpu.rand(rows, fan_out, generator=generator) - 1
            tensor[0, :rows, :fan_out] = uniform / math.sqrt(fan_in)
    return weights


def _tensors(weights: Tensor, widths: tuple[int, ...]) -> list[Tensor]:
    """Views of weights (c, p) as a weight (c, in, out) and a bias (c, 1, out) for each layer."""
    shapes = [s for i, o in pairwise(widths) for s in ((i, o), (1, o))]
    parts = weights.split([rows * columns for rows, columns in shapes], 1)
    return [part.unflatten(1, shape) for part, shape in zip(parts, shapes, strict=True)]


def _pairs(tensors: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def _logits(weights: Tensor, widths: tuple[int, ...], inputs: Tensor) -> Tensor:
    """Logits (c, s) of networks with weights (c, p) at inputs (1, s, in)."""
    copies = len(weights)
    weights = weights.expand(max(copies, FEWEST_COPIES), -1)
    *hidden, last = _pairs([tensor.contiguous() for tensor in _tensors(weights, widths)])
    h = inputs.expand(len(weights), -1, -1)
    for weight, bias in hidden:
        h = torch.baddbmm(bias, h, weight).relu_()
    return _output(h, *last, torch.empty_like(h))[:copies]


def _output(h: Tensor, weight: Tensor, bias: Tensor, scratch: Tensor) -> Tensor:
    """Logits (c, b) from the last hidden layer; faster than a product with one column."""
    return torch.mul(h, weight.mT, out=scratch).sum(2).add_(bias[..., 0])


def _sigmoid(logits: Tensor) -> Tensor:
    """The logistic function; torch.sigmoid's last bit depends on a number's place in memory."""
    return logits.neg().exp_().add_(1).reciprocal_()
