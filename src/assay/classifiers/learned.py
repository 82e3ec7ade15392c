"""A frame that a network has learned: its last hidden layer."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ..door import check_kind
from ..nulls import Exchange, KnownBase
from ..randomness import Seed, seed_of, stream
from ..samples import Calibration
from .mlp import MLP, Networks
from .scaling import Scaling

__all__ = ["Learned"]


@dataclass(frozen=True, eq=False)
class Learned:
    """Coordinates of members that tell truths from draws of q, learned on other pairs.

    A network that has seen real labels must not be used on the pairs it has seen: split first,
    learn on one part and test on the other.

    Args:
        networks: The trained network.
        seen: Fingerprints of the members it has seen.

    Example:
        >>> from assay.classifiers.features import Hermite
        >>> from assay.classifiers.maps import Product
        >>> theta, noise, z = torch.randn(3, 400, 1, generator=torch.Generator().manual_seed(0))
        >>> calibration = Calibration(theta, theta + noise, z)
        >>> first, second = calibration.split()
        >>> learned = Learned.train(first, MLP(epochs=2))
        >>> test = assay.lc2st(second, assay.Ridge(Product(Hermite(1), n=0, frame=learned)))
    """

    networks: Networks
    seen: Tensor

    @classmethod
    def train(
        cls, calibration: Calibration, classifier: MLP | None = None, seed: Seed = 0
    ) -> Self:
        """Trains a network on one part of the pairs.

        Args:
            calibration: The part to learn on.
            classifier: The network; an :class:`assay.MLP` by default.
            seed: An int or a generator.
        """
        check_kind("calibration", calibration, "a Calibration", "theta_q", "features")
        classifier = MLP() if classifier is None else classifier
        if not isinstance(classifier, MLP):
            raise TypeError(f"classifier: expected an MLP; got {classifier!r}.")
        seed, calibration = seed_of(seed), calibration.sorted()
        null = Exchange(1) if calibration.base is None else KnownBase(1)
        copies = null.copies(calibration, seed)[:1]
        networks = classifier.fit(copies, seed)
        return cls(networks, _fingerprints(calibration.theta, copies.x))

    def __repr__(self) -> str:
        return f"Learned(widths={self.networks.widths[1:-1]}, pairs={len(self.seen)})"

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> Self:
        """Refuses members that the network has seen; nothing else is to be found."""
        rows = x[:, None].expand(*theta.shape[:2], -1).flatten(0, 1)
        again = torch.isin(_fingerprints(theta.flatten(0, 1), rows), self.seen.to(theta.device))
        if again.any():
            raise ValueError(
                f"features: expected a calibration of other pairs than the network has learned "
                f"on; got {int(again.sum())} that it has seen. Use first, second = "
                "calibration.split(), Learned.train(first) and lc2st(second, ...)."
            )
        return self

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Coordinates (b, r, u) of members (b, r, m) and features of observations (b, d)."""
        return self.networks.hidden(theta, x)


def _fingerprints(theta: Tensor, x: Tensor) -> Tensor:
    """A number for each member (n,) by which it is known again, in any precision."""
    rows = torch.cat([theta, x], 1).float().double()
    weights = torch.randn(rows.shape[1], generator=stream(0, "fingerprint")).to(rows)
    # Ten digits: sums of the same numbers round differently from one call to the next.
    sums = (rows * weights).sum(1)
    unit = 10.0 ** (sums.abs().clamp_min(1e-300).log10().floor() - 9)
    return (sums / unit).round() * unit
