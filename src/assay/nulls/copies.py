r"""Copies: the data and its nulls, as H + 1 labelled versions of one data set.

Copy 0 is the data; the others are what the data could have been if q were right. All share the
same x. A copy consists of n sets, one for each x, and a set of r members of which some play class
1 (the truth) and the others class 0 (q). This is all that passes from a null to a classifier.

A **null** says how copies are made and which hypothesis they stand for. With :math:`T_0, \dots,
T_H` one and the same function of the data and of H null copies, :math:`p = (1 + \#\{T_h \ge T_0\})
/ (1 + H)` is at most :math:`\alpha` with probability at most :math:`\alpha`, for every sample size
and classifier, over the data and the draws of the nulls; the latter change with x as well as with
the seed.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from torch import Tensor

from ..data.posterior import Base


class Rows(NamedTuple):
    """One copy, row by row."""

    theta: Tensor  # parameters or latents, (n r, m)
    x: Tensor  # features of the observations, (n r, d)
    labels: Tensor  # whether a row plays the truth, (n r,)

    @classmethod
    def of(cls, members: Tensor, x: Tensor, labels: Tensor) -> "Rows":
        """Rows of members (n, r, m), observations (n, d) and labels (n, r)."""
        r = members.shape[1]
        return cls(members.flatten(0, 1), x.repeat_interleave(r, 0), labels.flatten())


class Feature(Protocol):
    """A map from members and observations to p features, which no exchange changes."""

    @property
    def size(self) -> int:
        """The number of features p."""

    @property
    def comparable(self) -> bool:
        """Whether features mean the same for the many draws at x_o as for the sets."""

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Features (b, r, p) of members (b, r, m) and observations (b, d)."""


class Sums(NamedTuple):
    """What least squares need to know of copies, in double precision."""

    mean: Tensor  # of the features over all members, (p,)
    covariance: Tensor  # of the same, (p, p)
    contrasts: Tensor  # mean of class 1 less that of class 0 at the same x, (c, p)
    rows: int  # the number of members


class Copies(ABC):
    """H + 1 labelled versions of one data set; a slice of it is the same with fewer copies.

    Attributes:
        x: Features of the observations, with shape (n, d).
        base: The distribution of class 0, where it is known.
        which: The copies h.
        size: The number of members of a set, r.
        odds: The number of class-0 members for each class-1 member of a set.
        scaling: Location and scale (m,) of the members, the same for every copy.
    """

    if TYPE_CHECKING:
        # Fields in one kind of copies, and properties in another.
        @property
        def x(self) -> Tensor: ...  # noqa: D102
        @property
        def base(self) -> Base | None: ...  # noqa: D102
        @property
        def which(self) -> range: ...  # noqa: D102
        @property
        def size(self) -> int: ...  # noqa: D102
        @property
        def odds(self) -> float: ...  # noqa: D102
        @property
        def scaling(self) -> tuple[Tensor, Tensor]: ...  # noqa: D102

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, which: slice) -> Self: ...

    @abstractmethod
    def inside(self, near: Tensor) -> Self:
        """Copies that differ from the data in some sets only, as near (n,) says."""

    @abstractmethod
    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members (c, b, r, m) and labels (c, b, r) of some sets (b,), in all c copies.

        With 1 in place of c where the copies do not differ. Where class 0 is known, its draws
        change with the epoch, the pass over the data.
        """

    @abstractmethod
    def rows(self, copy: int) -> Rows:
        """One copy, row by row, for classifiers that take one data set at a time."""

    @abstractmethod
    def sums(self, features: Sequence[Feature]) -> list[Sums]:
        """Sums of features for linear classifiers, streamed over the sets."""
