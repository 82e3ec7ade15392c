r"""Discriminant analysis in closed form, and the Bayes classifier of known densities.

With :math:`v = (\theta, x)` and a normal density for each class, at even odds,

.. math:: \operatorname{logit} d_h(v) = \log N(v; \mu_{h1}, \Sigma_{h1})
    - \log N(v; \mu_{h0}, \Sigma_{h0}),

a polynomial of degree two in v, or of degree one if both classes share their covariance. Means and
covariances of all copies h come from one product of their labels with the table
:math:`[1, v, v v^T]`, and the probabilities of all copies from another; a thousand nulls cost
about as much as one fit of the usual kind.

Columns are standardised over the pool of both classes first, which changes nothing but rounding,
and every covariance is shrunk towards the identity of that scale by a small amount, which makes a
singular one invertible.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from assay import Exchange
from assay._support.inputs import check_number
from assay._support.random import call_user_code
from assay.classifiers.base import Classifier, Scores
from assay.neighbourhood import standard_deviation
from assay.nulls import Copies, GlobalNull

# Numbers in the largest table that is held at a time.
ROOM = 2**22

Density = Callable[[Tensor], Any]
# Weights (c,), (c, v) and (c, v, v) of 1, v and v v^T in logits; none of squares in LDA.
_Weights = tuple[Tensor, Tensor, Tensor | None]


class _Class(NamedTuple):
    """One class of all copies: its rows (c, 1, 1), means (c, v) and covariances (c, v, v)."""

    rows: Tensor
    mean: Tensor
    covariance: Tensor


@dataclass(frozen=True)
class Discriminant(Classifier):
    """Normal densities for both classes, all copies at once."""

    # The share s, between 0 and 1; at 0 a singular covariance is refused.
    shrinkage: float = 1e-6
    null: ClassVar[GlobalNull | None] = Exchange(999)

    def __post_init__(self) -> None:
        if not 0 <= check_number("shrinkage", self.shrinkage, strict=False) <= 1:
            raise ValueError(
                f"shrinkage: expected a number between 0 and 1; got {self.shrinkage}."
            )
        object.__setattr__(self, "shrinkage", float(self.shrinkage))

    def fit(self, copies: Copies, seed: int) -> "Discriminants":
        """Fits all copies; nothing is left to chance."""
        location, scale = _scale(copies)
        parts = [self._weights(*_moments(some, location, scale)) for some in _chunks(copies)]
        constant, linear, quadratic = zip(*parts, strict=True)
        squares = None if quadratic[0] is None else torch.cat(quadratic)
        return Discriminants(torch.cat(constant), torch.cat(linear), squares, location, scale)

    @abstractmethod
    def _weights(self, truths: "_Class", draws: "_Class") -> "_Weights":
        """Weights of 1, v and v v^T in the logits of some copies."""


@dataclass(frozen=True)
class QDA(Discriminant):
    r"""Quadratic discriminant analysis: a normal density for each class, all copies at once.

    Covariances are those of maximum likelihood, and then :math:`(1 - s) \Sigma + s I` on the scale
    of the pool.

    References:
        Hastie, Tibshirani and Friedman 2009, *The Elements of Statistical Learning*, section 4.3.

    Example:
        >>> QDA()
        QDA(shrinkage=1e-06)
    """

    def _weights(self, truths: "_Class", draws: "_Class") -> "_Weights":
        one, other = (_quadratic(each, self.shrinkage) for each in (truths, draws))
        quadratic, linear, constant = (a - b for a, b in zip(one, other, strict=True))
        return constant, linear, quadratic


@dataclass(frozen=True)
class LDA(Discriminant):
    r"""Linear discriminant analysis: normal densities with one covariance, all copies at once.

    The covariance is that of maximum likelihood within classes, over all rows, and then
    :math:`(1 - s) \Sigma + s I` on the scale of the pool.

    References:
        Hastie, Tibshirani and Friedman 2009, *The Elements of Statistical Learning*, section 4.3.

    Example:
        >>> LDA(shrinkage=0.1)
        LDA(shrinkage=0.1)
    """

    def _weights(self, truths: "_Class", draws: "_Class") -> "_Weights":
        linear, constant = _linear(truths, draws, self.shrinkage)
        return constant, linear, None


@dataclass(frozen=True, eq=False)
class Discriminants(Scores):
    """Logits of all copies, polynomials of v = (theta, x) on the scale of the pool."""

    constant: Tensor  # (H + 1,)
    linear: Tensor  # (H + 1, v)
    quadratic: Tensor | None  # (H + 1, v, v); None if there are no squares
    location: Tensor  # the mean of v over the pool, (v,)
    scale: Tensor  # its standard deviation, (v,)

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s) at theta (o, s, m) and x (o, d)."""
        o, s, _ = theta.shape
        rows = (_joined(theta, x).flatten(0, 1).double() - self.location) / self.scale
        step = max(1, ROOM // max(len(self.constant), rows.shape[1] ** 2))
        probabilities = torch.cat([self._at(part) for part in rows.split(step)])
        return probabilities.reshape(o, s, -1).mT.to(theta)

    def _at(self, rows: Tensor) -> Tensor:
        """Class-1 probabilities (b, H + 1) of rows (b, v)."""
        logits = self.constant + rows @ self.linear.mT
        if self.quadratic is not None:
            logits += _products(rows) @ self.quadratic.flatten(1).mT
        return logits.sigmoid_()


@dataclass(frozen=True)
class Bayes(Classifier):
    r"""The Bayes classifier :math:`d^*(v) = p(v) / (p(v) + q(v))` from two log-densities.

    It trains nothing and is the same for every copy. What does not depend on labels
    is then the same for data and nulls: a mean over both classes of equal size, such as
    ``mse`` of :func:`assay.c2st`, can be read off but not tested, and its p-value is 1.
    Accuracy and AUC can be tested, and no classifier beats this one.

    Args:
        log_p: The log-density of true parameters, a function of rows v = (theta, x), with shape
            (b, m + d), that returns (b,); it need not be normalised over x.
        log_q: The same of the approximation.

    Example:
        >>> def normal(mean):
        ...     return lambda v: -0.5 * ((v - mean) ** 2).sum(1)
        >>> p, q = torch.randn(2, 1000, 1, generator=torch.Generator().manual_seed(0))
        >>> result = assay.c2st(p + 1, q - 1, Bayes(normal(1.0), normal(-1.0)), 99)
        >>> print(f"{result['accuracy'].statistic:.2f}")  # in theory P(Z < 1) = 0.84
        0.84
    """

    log_p: Density
    log_q: Density

    def __post_init__(self) -> None:
        for name in ("log_p", "log_q"):
            if not callable(getattr(self, name)):
                raise TypeError(
                    f"{name}: expected a function of rows (b, m + d); got {getattr(self, name)!r}."
                )

    def fit(self, copies: Copies, seed: int) -> "Ratio":
        """Nothing to fit."""
        return Ratio(self, len(copies))


@dataclass(frozen=True, eq=False)
class Ratio(Scores):
    """The Bayes classifier, the same for all copies."""

    bayes: Bayes
    copies: int  # their number, H + 1

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s) at theta (o, s, m) and x (o, d)."""
        o, s, _ = theta.shape
        rows = _joined(theta, x).flatten(0, 1)
        log_p, log_q = (_density(name, self.bayes, rows) for name in ("log_p", "log_q"))
        logits = log_p - log_q
        if logits.isnan().any():
            raise ValueError(
                "log_p, log_q: expected at least one finite number in every row; got minus "
                f"infinity from both in {int(logits.isnan().sum())} of {len(rows)} rows."
            )
        d = logits.sigmoid().reshape(o, 1, s).to(theta)
        return d.expand(-1, self.copies, -1)


def _density(name: str, bayes: Bayes, rows: Tensor) -> Tensor:
    """Values (b,) of a log-density of any kind, in double precision."""
    values = call_user_code(name, getattr(bayes, name), rows).to(rows.device).double()
    if values.shape != rows.shape[:1]:
        raise ValueError(
            f"{name}: expected a function that maps rows {tuple(rows.shape)} to "
            f"({len(rows)},); got {tuple(values.shape)}."
        )
    if (values.isnan() | values.isposinf()).any():
        raise ValueError(
            f"{name}: expected finite numbers or minus infinity; got NaN or infinity."
        )
    return values


def _joined(theta: Tensor, x: Tensor) -> Tensor:
    """Rows v (o, s, m + d) of theta (o, s, m) and x (o, d)."""
    return torch.cat([theta, x[:, None].expand(-1, theta.shape[1], -1)], -1)


def _scale(copies: Copies) -> tuple[Tensor, Tensor]:
    """Location and scale (v,) of members and x, which no exchange of labels changes."""
    location, scale = (part.double() for part in copies.scaling)
    x = copies.x.double()
    # A test of two samples has no x.
    if not x.shape[1]:
        return location, scale
    return torch.cat([location, x.mean(0)]), torch.cat([scale, standard_deviation(x)])


def _chunks(copies: Copies) -> list[Copies]:
    """The copies, so many at a time that their labels and weights fit into memory."""
    width = copies.scaling[0].shape[0] + copies.x.shape[1]
    size = max(1, ROOM // max(copies.size * len(copies.x) // 16, width**2))
    return [copies[i : i + size] for i in range(0, len(copies), size)]


def _products(rows: Tensor) -> Tensor:
    """All products (b, v * v) of the columns of rows (b, v)."""
    return (rows[..., :, None] * rows[..., None, :]).flatten(-2)


def _moments(copies: Copies, location: Tensor, scale: Tensor) -> tuple[_Class, _Class]:
    """Class 1 and class 0 of all copies, streamed over the sets."""
    sets, width = torch.arange(len(copies.x), device=copies.x.device), len(location)
    tables = len(copies.batch(sets[:1], 0)[0])
    step = max(1, ROOM // (tables * copies.size * (1 + width + width**2)))
    truths = both = location.new_zeros(())
    for rows in sets.split(step):
        members, labels = copies.batch(rows, 0)
        x = copies.x[rows, None].expand(*members.shape[:3], -1)
        v = ((torch.cat([members, x], -1).double() - location) / scale).flatten(1, 2)
        table = torch.cat([torch.ones_like(v[..., :1]), v, _products(v)], -1)
        truths = truths + _summed(labels.flatten(1).double(), table)
        both = both + table.sum(1)
    return _class(truths), _class(both - truths)


def _summed(labels: Tensor, table: Tensor) -> Tensor:
    """Sums (c, f) of tables with labels (c, b) or (1, b), and tables (c, b, f) or (1, b, f)."""
    if len(table) == 1:
        return labels @ table[0]
    return torch.einsum("cb,cbf->cf", labels.expand(len(table), -1), table)


def _class(sums: Tensor) -> _Class:
    """Rows, means and covariances of a class, from sums (c, 1 + v + v * v)."""
    width = int((sums.shape[1] - 0.75) ** 0.5)
    rows = sums[:, :1]
    mean = sums[:, 1 : 1 + width] / rows
    second = sums[:, 1 + width :].unflatten(1, (width, width))
    centred = second / rows[..., None] - mean[:, :, None] * mean[:, None, :]
    return _Class(rows[..., None], mean, centred)


def _quadratic(one: _Class, shrinkage: float) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (c, v, v), (c, v) and (c,) of v v^T, v and 1 in the log-densities of a class."""
    inverse, log_determinant = _inverse(one.covariance, shrinkage)
    linear = (inverse @ one.mean[..., None])[..., 0]
    constant = -0.5 * ((linear * one.mean).sum(1) + log_determinant)
    return -0.5 * inverse, linear, constant


def _linear(truths: _Class, draws: _Class, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Weights (c, v) and (c,) of v and 1 in the logits of all copies."""
    within = truths.rows * truths.covariance + draws.rows * draws.covariance
    inverse, _ = _inverse(within / (truths.rows + draws.rows), shrinkage)
    linear = (inverse @ (truths.mean - draws.mean)[..., None])[..., 0]
    return linear, -0.5 * (linear * (truths.mean + draws.mean)).sum(1)


def _inverse(covariance: Tensor, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Inverses (c, v, v) and log-determinants (c,) of shrunk covariances."""
    shrunk = (1 - shrinkage) * covariance
    shrunk.diagonal(dim1=1, dim2=2).add_(shrinkage)
    factor, failed = torch.linalg.cholesky_ex(shrunk)
    if failed.any():
        raise ValueError(
            f"shrinkage: expected one that makes all covariances invertible; got {shrinkage:g}, "
            f"with which {int((failed > 0).sum())} of {len(failed)} are not. Give a larger one, "
            "or more rows than columns."
        )
    logs = factor.diagonal(dim1=1, dim2=2).log()
    return torch.cholesky_inverse(factor), 2 * logs.sum(1)
