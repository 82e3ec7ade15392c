"""Conditional flows of flowjax."""

from typing import Any

import jax
import numpy as np
import torch
from torch import Tensor

from ..data.posterior import Posterior, StandardNormal, fresh_key
from ..data.tables import Layout


class FlowjaxFlow(Posterior):
    """A trained ``flowjax.distributions.Transformed`` with a condition, which is x (..., d)."""

    def __init__(self, distribution: Any) -> None:
        # The base may be trained: a normal one is then a part of the flow.
        self.distribution = distribution.merge_transforms()
        m = self.distribution.shape[0]
        self.base = StandardNormal(m)
        z = np.linspace(-2, 2, 7 * m, dtype="f").reshape(7, m)
        normal = -0.5 * (z**2 + np.log(2 * np.pi)).sum(1)
        same = np.allclose(self.distribution.base_dist.log_prob(z), normal)
        self.flow = self if same else None  # latents are known if its base is N(0, I)
        self.log_density = self.log_prob

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """The log-density (n,) of parameters (n, m) at observations (n, d)."""
        return _tensor(self.distribution.log_prob(_array(theta), _array(x)))

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, d) to latents (n, m)."""
        inverse = jax.vmap(self.distribution.bijection.inverse)
        return _tensor(inverse(_array(theta), _array(x)))

    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, d)."""
        key = jax.random.key(fresh_key())
        return _tensor(self.distribution.sample(key, (n,), _array(x))).swapaxes(0, 1)


def _array(given: Tensor) -> np.ndarray:
    return given.float().cpu().numpy()


def _tensor(given: Any) -> Tensor:
    return torch.from_numpy(np.array(given))


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior | None:
    """A flow of flowjax."""
    from flowjax.distributions import AbstractTransformed as known  # only where it is installed

    return FlowjaxFlow(posterior) if isinstance(posterior, known) else None
