"""Normal distributions cut to an interval, by their inverse distribution function."""

import numpy as np
import scipy.special
import torch
from torch import Tensor

from assay._support.inputs import cpu


def log_mass(low: Tensor, high: Tensor) -> Tensor:
    """The logarithm of the mass of a standard normal between two limits, far out as well."""
    a, b = _mirrored(low, high)
    difference = scipy.special.log_ndtr(a) - scipy.special.log_ndtr(b)
    # log(e^B - e^A) for A <= B; an empty interval has none.
    with np.errstate(divide="ignore"):
        return torch.from_numpy(scipy.special.log_ndtr(b) + np.log(-np.expm1(difference)))


def truncated_normal(low: Tensor, high: Tensor, u: Tensor | torch.Generator) -> Tensor:
    """Draws of a standard normal between limits in double precision, each shaped as these.

    From quantiles u of the same shape, or a generator of them. In the logarithms of the lower
    tail, to which intervals in the upper one are mirrored: exact however far out they lie.

    Example:
        >>> limits = torch.tensor([30.0, 31.0], dtype=torch.float64)
        >>> truncated_normal(limits[0], limits[1], torch.Generator().manual_seed(0)) < 30.5
        tensor(True)
    """
    upper = _upper(low, high)
    a, b = _mirrored(low, high)
    if isinstance(u, torch.Generator):
        u = cpu.rand(a.shape, generator=u, dtype=torch.float64)
    quantile = np.where(upper, 1 - u.numpy(), u.numpy())
    log_a, log_b = scipy.special.log_ndtr(a), scipy.special.log_ndtr(b)
    # log(e^A + u (e^B - e^A)); at the lower end it may be minus infinity.
    with np.errstate(divide="ignore"):
        mixed = log_b + np.log(quantile + (1 - quantile) * np.exp(log_a - log_b))
    z = scipy.special.ndtri_exp(mixed)
    z = np.clip(np.where(upper, -z, z), low.numpy(), high.numpy())
    return torch.from_numpy(np.asarray(z))


def _upper(low: Tensor, high: Tensor) -> np.ndarray:
    return np.asarray((low + high).numpy() > 0)


def _mirrored(low: Tensor, high: Tensor) -> tuple[np.ndarray, np.ndarray]:
    upper = _upper(low, high)
    a, b = low.numpy(), high.numpy()
    return np.where(upper, -b, a), np.where(upper, -a, b)
