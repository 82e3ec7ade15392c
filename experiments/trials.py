r"""The published tests of many runs in one stack of networks: rows, and what is asked of them.

Streams of chance are those of :mod:`experiments.published`, so that a run of L-C2ST or L-C2ST-NF
finds here what it finds there. The oracle is another one: as in the authors' code its nulls are
made once for all runs, of data of their own, and all runs are judged on the same draws.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from assay._support.random import stream

from .published import _orders, _shuffles, pvalue
from .stacked import Places, Rows

__all__ = ["NULLS_OF", "Stack", "stack_of_c2st", "stack_of_lc2st", "stack_of_lc2st_nf"]

# The run of which nulls are made that all runs share.
NULLS_OF = 1_000_000

Found = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Stack:
    """Tests of one size whose classifiers are still to be fitted.

    Args:
        m: The number of parameters, on which the size of networks depends.
        rows: What they are trained on.
        places: Where they are asked.
        judge: Makes of their answers (h, o) what each run has found.
    """

    m: int
    rows: Rows
    places: Places
    judge: Callable[[Tensor], list[Found]]


def stack_of_lc2st(
    pairs: tuple[Tensor, Tensor, Tensor],
    there: tuple[Tensor, Tensor],
    runs: Sequence[int],
    nulls: int = 100,
) -> Stack:
    """L-C2ST in parameters.

    Args:
        pairs: Parameters (r, n, m), observations (r, n, d) and one draw of q at each (r, n, m).
        there: Observations (o, d) and draws of q there (o, s, m), the same in all runs.
        runs: Their numbers (r,), on which shuffles depend.
        nulls: Permutations of all 2 n rows.
    """
    theta, x, theta_q = pairs
    (_, n, m), (x_o, theta_o) = theta.shape, there
    permuted = _permutations(2 * n, nulls).to(theta.device).long()
    codes = []
    for run in runs:
        shuffled = _shuffled(2 * n, 1 + nulls, run).to(theta.device)
        codes.append(2 * permuted.gather(1, shuffled.long()).int() + (shuffled >= n))
    copies = len(runs) * (1 + nulls)
    number = torch.arange(len(runs), device=theta.device).repeat_interleave(1 + nulls)
    rows = Rows(
        left=torch.cat([theta_q, theta], 1).flatten(0, 1),
        right=x.flatten(0, 1),
        left_at=2 * n * number,
        right_at=n * number,
        codes=torch.cat(codes),
        pairs=n,
    )
    count = theta_o.shape[1]
    at = (count * torch.arange(len(x_o), device=theta.device)).expand(copies, -1).contiguous()
    places = Places(theta_o.flatten(0, 1), x_o, at, count)
    return Stack(m, rows, places, lambda table: _local(table, len(runs)))


def stack_of_lc2st_nf(
    pairs: tuple[Tensor, Tensor],
    x_o: Tensor,
    runs: Sequence[int],
    nulls: int = 100,
    draws: int = 10_000,
) -> Stack:
    """L-C2ST-NF in latents.

    Args:
        pairs: Latents (r, n, m) and observations (r, n, d).
        x_o: Observations (o, d).
        runs: Their numbers (r,), on which shuffles and the base draws of class 0 depend.
        nulls: Pairs of base draws.
        draws: Base draws at which a classifier is evaluated.
    """
    z, x = pairs
    (_, n, m), most, device = z.shape, max(draws, z.shape[1]), z.device
    base = [_base(most, m, t, "base") for t in range(nulls)]
    truths = [_base(n, m, t, "class 1") for t in range(nulls)]
    null = [torch.cat([one[:n], other]) for one, other in zip(base, truths, strict=True)]
    own = torch.stack([_base(most, m, nulls + 1 + run, "base")[:n] for run in runs])
    # Tables of the nulls, then of the data of each run.
    left = torch.cat([torch.cat(null).to(device), torch.cat([own.to(device), z], 1).flatten(0, 1)])
    number = torch.arange(len(runs), device=device)
    each = torch.arange(nulls, device=device).expand(len(runs), -1)
    table = torch.cat([(nulls + number)[:, None], each], 1)
    codes = []
    for run in runs:
        # The data have the last shuffle.
        shuffled = _shuffled(2 * n, 1 + nulls, run).roll(1, 0).to(device)
        codes.append(2 * shuffled + (shuffled >= n))
    rows = Rows(
        left=left,
        right=x.flatten(0, 1),
        left_at=2 * n * table.flatten(),
        right_at=n * number.repeat_interleave(1 + nulls),
        codes=torch.cat(codes),
        pairs=n,
    )
    evaluated = torch.stack([_base(most, m, nulls, "base"), *base])[:, :draws]
    at = draws * torch.arange(1 + nulls, device=device).repeat(len(runs))
    places = Places(
        evaluated.flatten(0, 1).to(device), x_o, at[:, None].repeat(1, len(x_o)), draws
    )
    return Stack(m, rows, places, lambda found: _local(found, len(runs)))


def stack_of_c2st(
    samples: tuple[Tensor, Tensor],
    nulls_of: tuple[Tensor, Tensor],
    judged: tuple[Tensor, Tensor],
    runs: Sequence[int],
    nulls: int = 100,
) -> Stack:
    """The oracle: MSE over both classes, with nulls that all runs share.

    Args:
        samples: Draws of q and of the true posterior at each observation, each (r, o, n, m).
        nulls_of: Others (o, n, m), whose permutations are the nulls.
        judged: Others (o, s, m), on which all classifiers are judged.
        runs: Their numbers (r,), on which shuffles depend.
        nulls: Permutations of the rows.
    """
    q, _ = samples
    (r, o, n, m), device = q.shape, q.device
    left = torch.cat([torch.cat(samples, 2).flatten(0, 1), torch.cat(nulls_of, 1)])
    permuted = _permutations(2 * n, nulls)[1:].to(device).long()
    codes, tables = [], []
    for place in range(o):
        for i, run in enumerate(runs):
            (shuffled,) = _shuffled(2 * n, 1, run, place).to(device)
            codes.append((2 * shuffled + (shuffled >= n))[None])
            tables.append(i * o + place)
        shuffled = _shuffled(2 * n, nulls, NULLS_OF, place).to(device)
        codes.append(2 * permuted.gather(1, shuffled.long()).int() + (shuffled >= n))
        tables += [r * o + place] * nulls
    at = torch.tensor(tables, device=device)
    rows = Rows(left.flatten(0, 1), left.new_empty(n, 0), 2 * n * at, 0 * at, torch.cat(codes), n)
    both = torch.cat(judged, 1)
    count = both.shape[1]
    there = count * torch.arange(o, device=device).repeat_interleave(r + nulls)
    places = Places(both.flatten(0, 1), both.new_empty(1, 0), there[:, None], count)
    return Stack(m, rows, places, lambda table: _oracle(table.reshape(o, r + nulls), r))


def _local(table: Tensor, runs: int) -> list[Found]:
    """What runs have found, of tables (1 + h, o) one below the other."""
    return [_told(part[0], part[1:].T) for part in table.chunk(runs)]


def _oracle(table: Tensor, runs: int) -> list[Found]:
    """The same of a table (o, runs and nulls)."""
    return [_told(one, table[:, runs:]) for one in table[:, :runs].T]


def _told(statistic: Tensor, null: Tensor) -> Found:
    """Statistics (o,) with the share of their nulls (o, h) that are larger."""
    found = {"statistic": statistic, "pvalue": pvalue(statistic, null)}
    return {name: [float(f"{v:.6g}") for v in values] for name, values in found.items()}


@lru_cache(maxsize=16)
def _permutations(n: int, nulls: int) -> Tensor:
    """Orders (1 + h, n) of rows, the first as they are, as int32."""
    return _orders(torch.empty(n, 0), nulls).int()


# For all runs of all sizes.
@lru_cache(maxsize=5000)
def _shuffled(n: int, copies: int, *key: int) -> Tensor:
    """Orders (h, n) of rows, one for each copy, as int32."""
    return _shuffles(n, range(copies), *key).int()


@lru_cache(maxsize=2000)
def _base(n: int, m: int, number: int, name: str) -> Tensor:
    """Base draws (n, m)."""
    return torch.randn(n, m, generator=stream(number, name))
