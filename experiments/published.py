r"""The tests as they were published.

The classifier is a network of scikit-learn (:mod:`experiments.networks`) that is given inputs as
they are. Rows are shuffled before each fit, as in the authors' code, so that each copy has batches
and held-out rows of its own.

The p-value is the share of nulls that are larger, :math:`\#\{T_h > T\} / H`.

Reference: Linhart, Gramfort and Rodrigues 2023, Algorithms 1 to 4 and appendix.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

import torch
from torch import Tensor

from assay._support.random import stream

from .networks import Classifier, Fitted

__all__ = [
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


def pvalue(statistic: Tensor, null: Tensor) -> Tensor:
    """The share of nulls (o, h) that are larger than the statistics (o,)."""
    return (null > statistic[:, None]).double().mean(1)


@dataclass(frozen=True, eq=False)
class Trial:
    """A test whose classifiers are still to be fitted.

    Args:
        inputs: Rows of the data and of its null copies, class 0 first, (1 + h, n, p).
        shuffles: The order of rows in which each copy is fitted, (1 + h, n); the authors' code
            shuffles before each fit, so that copies have other batches and held-out rows.
        judge: What fitted classifiers say: statistics and nulls.
    """

    inputs: Tensor
    shuffles: Tensor
    judge: Callable[[Fitted], tuple[Tensor, ...]]

    @property
    def rows(self) -> tuple[Tensor, Tensor]:
        """Inputs and their classes (1 + h, n), shuffled."""
        order = self.shuffles.to(self.inputs.device)
        labels = _halves(self.inputs)
        return self.inputs.take_along_dim(order[..., None], 1), labels.take_along_dim(order, 1)


def together(classifier: Classifier, trials: Sequence[Trial]) -> list[tuple[Tensor, ...]]:
    """What trials of one size find, with all their classifiers fitted in one stack."""
    rows = zip(*(trial.rows for trial in trials), strict=True)
    fitted = classifier.fit(*map(torch.cat, rows))
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
    run: int = 0,
) -> Trial:
    """L-C2ST in parameters: statistics (o,) and nulls (o, h) of the single-class MSE.

    Args:
        pairs: Parameters (n, m), observations (n, d) and one draw of q at each, (n, m).
        observations: Observations (o, d) and draws of q there, (o, s, m).
        nulls: Permutations of all 2 n rows.
        free: Whether permutations are any, as published; else rows of a pair change places.
        run: The number of the run, on which shuffles depend.
    """
    theta, x, theta_q = pairs
    rows = torch.cat([torch.cat([theta_q, x], 1), torch.cat([theta, x], 1)])
    inputs = rows[(_orders if free else _swaps)(rows, nulls)]
    same = repeat(observations[1])
    shuffles = _shuffles(len(rows), range(1 + nulls), run)
    return Trial(inputs, shuffles, lambda fitted: _single(fitted, observations[0], same))


def lc2st(
    classifier: Classifier,
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
    shuffles = _shuffles(2 * n, (nulls, *part), run)
    return Trial(inputs, shuffles, lambda fitted: _single(fitted, x_o, at))


def lc2st_nf(
    classifier: Classifier,
    pairs: tuple[Tensor, Tensor],
    x_o: Tensor,
    nulls: int = 100,
    draws: int = 10_000,
) -> tuple[Tensor, ...]:
    """L-C2ST-NF in latents, alone; see :func:`trial_of_lc2st_nf`."""
    return together(classifier, [trial_of_lc2st_nf(pairs, x_o, nulls, draws)])[0]


def trial_of_c2st(
    samples: tuple[Tensor, Tensor], n: int, nulls: int = 100, key: tuple[int, ...] = (0,)
) -> Trial:
    """The oracle: MSE and its nulls, and accuracy and its nulls, of one observation.

    Args:
        samples: Draws of q and of the true posterior, each (n + s, m).
        n: The number of those to train on; classifiers are judged on the others.
        nulls: Permutations of the rows, of training and evaluation alike.
        key: Numbers of the run and the observation, on which shuffles depend.
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

    return Trial(inputs, _shuffles(2 * n, range(1 + nulls), *key), judge)


def c2st(
    classifier: Classifier, samples: tuple[Tensor, Tensor], n: int, nulls: int = 100
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


def _shuffles(n: int, copies: Iterable[int], *key: int) -> Tensor:
    """Orders (h, n) of rows, one for each copy."""
    each = [torch.randperm(n, generator=stream(t, "shuffle", *key)) for t in copies]
    return torch.stack(each)


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
