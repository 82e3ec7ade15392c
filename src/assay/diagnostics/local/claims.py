r"""Claims: which errors of q may be named near x_o, at a stated rate of any false one.

If q is right near x_o, the members of every set there are exchangeable, and so are all ways to
choose who of them plays the truth. For the data and for H exchanges the same statistics are taken
of the truths' scores u, the normal scores of their residuals among those of all members near x_o:

.. math:: \frac{\bar u_j}{s_j}, \qquad \frac{\log s_j^2}{\operatorname{se}(\log s_j^2)}, \qquad
    \operatorname{artanh} r_{ij}

for bias and width of every parameter and the correlation of every pair, at every size of the
neighbourhood, and the share of truths in q's regions. Scores mind neither heavy tails nor units,
and ties share theirs. A p-value is that of the largest statistic, step by step (Westfall and Young
1993): **any** claim at level alpha is made with probability at most alpha if q is right near x_o,
whatever its distribution and however few the sets. Bias and width are over their own deviations,
so that an error of one kind hardly makes a claim of another (Janssen 1997, *Studentized
permutation tests for non-i.i.d. hypotheses*; Chung and Romano 2013, *Exact and asymptotically
robust permutation tests*).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..._core import cpu
from ...results import step_down

# Numbers in the largest table of scores: it stays in the cache of a core.
ROOM = 2**17
# The least variance of scores, and of their squares over the square of it.
LEAST = 0.01


@dataclass(frozen=True, eq=False)
class Exchanged:
    """Members of b sets near x_o, and who plays the truth in the data, first, and in H copies.

    Args:
        scores: Scores of members, with shape (b, r, m).
        marks: Whether members lie inside q's regions of l levels, with shape (b, r, l).
        who: Which member plays the truth, with shape (H + 1, b).
    """

    scores: Tensor
    marks: Tensor
    who: Tensor

    @classmethod
    def of(
        cls, scores: Tensor, marks: Tensor, copies: int, generator: torch.Generator
    ) -> "Exchanged":
        """Scores (b, r, m) and marks (b, r, l) of members, truths first, and so many exchanges."""
        b, r, _ = scores.shape
        who = cpu.randint(r, (copies + 1, b), generator=generator, dtype=torch.int16)
        who[0] = 0
        return cls(scores.double(), marks.double(), who.to(scores.device))

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores (h, b, m) and marks (h, b, l) of the truths of some copies after another."""
        b, r, m = self.scores.shape
        first = r * torch.arange(b, device=self.who.device)
        tables = self.scores.flatten(0, 1), self.marks.flatten(0, 1)
        for who in self.who.split(max(1, ROOM // (b * m))):
            scores, marks = (torch.nn.functional.embedding(first + who, table) for table in tables)
            yield scores, marks


@dataclass(frozen=True, eq=False)
class Claim:
    """P-values of claims of one kind at c sizes, and signs: above zero where truths have more.

    Fields have shape (c, m) for bias and width, (c, m (m - 1) / 2) for the correlation of pairs,
    and (c, l) for regions.
    """

    pvalue: np.ndarray
    sign: np.ndarray


@dataclass(frozen=True, eq=False)
class Claims:
    """Claims of every kind, with one rate of any false one."""

    bias: Claim
    width: Claim
    correlation: Claim
    region: Claim


def claims(exchanged: Exchanged, shares: Tensor) -> Claims:
    """What may be said near x_o, with shares (c, b) of the sets at every size.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> scores = torch.randn(200, 9, 2, generator=generator)
        >>> scores[:, 0, 1] *= 2  # q is too narrow in the second parameter
        >>> sets = Exchanged.of(scores, scores > 0, 199, generator)
        >>> claims(sets, torch.full((1, 200), 0.005)).width.pvalue <= 0.05
        array([[False,  True]])
    """
    m, shares = exchanged.scores.shape[2], shares.double()
    usual = (shares @ exchanged.scores.square().mean(1)).clamp_min(1e-6)
    parts = [_statistics(u, marks, shares, usual) for u, marks in exchanged.blocks()]
    found = torch.cat(parts).permute(1, 2, 0)
    moved, pvalue = _adjusted(found.flatten(0, 1))
    ends = np.cumsum([m, m, m * (m - 1) // 2])
    kinds = (np.split(part.reshape(found.shape[:2]), ends, 1) for part in (pvalue, np.sign(moved)))
    return Claims(*(Claim(*kind) for kind in zip(*kinds, strict=True)))


def varying(exchanged: Exchanged, contrasts: Tensor) -> np.ndarray:
    """P-values (2, m) of bias and width varying near x_o, by contrasts (b, p) over its sets.

    A contrast sums to zero, so that an error which is the same in all sets makes none.
    """
    m, contrasts = exchanged.scores.shape[2], contrasts.double()
    parts = [_contrasted(u, contrasts) for u, _ in exchanged.blocks()]
    _, pvalue = _adjusted(torch.cat(parts).mT)
    return np.asarray(pvalue.reshape(2, m, -1).min(2))


def pairs(m: int) -> tuple[Tensor, Tensor]:
    """The first and the second of every pair of m parameters."""
    first, second = cpu.triu_indices(m, m, 1)
    return first, second


def _statistics(u: Tensor, marks: Tensor, shares: Tensor, usual: Tensor) -> Tensor:
    """Statistics (h, c, t) of bias, width, correlation and regions, from scores (h, b, m).

    The usual variance (c, m) of scores is that of all members.
    """
    squared = u * u
    mean, square, cube, fourth = (shares @ v for v in (u, squared, squared * u, squared * squared))
    variance = (square - mean**2).clamp_min(1e-6)
    spread = fourth - 4 * cube * mean + 6 * square * mean**2 - 3 * mean**4 - variance**2
    width = (variance / usual).log() * _per_deviation(spread / variance**2)
    products = torch.stack([_products(u, share) for share in shares], 1)
    covariance = products - mean[..., None] * mean[..., None, :]
    scale = (variance[..., None] * variance[..., None, :]).sqrt()
    first, second = pairs(u.shape[2])
    correlation = (covariance / scale)[..., first, second].clamp(-0.999, 0.999).atanh()
    return torch.cat([mean * _per_deviation(variance), width, correlation, shares @ marks], 2)


def _products(u: Tensor, share: Tensor) -> Tensor:
    """Means (h, m, m) of products of scores (h, b, m); the nearest sets come first."""
    last = int(share.nonzero()[-1]) + 1
    return (u[:, :last].mT * share[:last]) @ u[:, :last]


def _contrasted(u: Tensor, contrasts: Tensor) -> Tensor:
    """Contrasts (h, 2 m p) of scores (h, b, m) and of their squared deviations."""
    moved = u - u.mean(1, keepdim=True)
    variance = moved.square().mean(1).clamp_min(1e-6)
    squares = moved.square() / variance[:, None]
    bias = (moved.mT @ contrasts) * _per_deviation(variance)[..., None]
    width = (squares.mT @ contrasts) * _per_deviation(squares.var(1))[..., None]
    return torch.cat([bias, width], 1).flatten(1)


def _per_deviation(variance: Tensor) -> Tensor:
    return (variance.clamp_min(0) + LEAST).rsqrt()


def _adjusted(statistics: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """How far statistics (t, H + 1) of the data are from those of all copies; p-values (t,)."""
    moved = (statistics - statistics.mean(1, keepdim=True)).cpu().numpy()
    scale = moved.std(1, keepdims=True)
    # Sums of the same numbers round differently; a statistic that never moves says nothing.
    still = scale <= 1e-9 * np.abs(statistics.cpu().numpy()).max(1, keepdims=True)
    squares = np.square(np.where(still, 0, moved / np.where(still, 1, scale)))
    return moved[:, 0], step_down(squares[:, 0], squares[:, 1:])
