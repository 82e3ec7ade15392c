"""Workflows and approximators of BayesFlow 2, whose conditions are a dict of arrays."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.posterior import Posterior, StandardNormal, as_table, fresh_key
from ..data.tables import Layout

# Networks whose forward pass is the inverse of their draws.
INVERTIBLE = ("CouplingFlow", "FlowMatching")


class BayesFlowPosterior(Posterior):
    """An approximator of BayesFlow.

    Args:
        approximator: A ``bayesflow.approximators.ContinuousApproximator``.
        conditions: How its conditions lie in the columns of x.
        like: An observation (1, d), at which the names of parameters are looked up.
    """

    # Observations at which draws are made in one call, which takes long however few they are.
    rows = 500

    def __init__(self, approximator: Any, conditions: Layout, like: Tensor) -> None:
        self.approximator, self.conditions = approximator, conditions
        layout = as_table("theta", self._draws(like, 1, 0), 2).layout
        assert layout is not None
        self.layout, self.names = layout, layout.names
        # The network is a flow if it has an inverse and a normal base.
        network = approximator.inference_network
        kinds = {kind.__name__ for kind in type(network).__mro__}
        normal = type(network.base_distribution).__name__ == "DiagonalNormal"
        self.base = StandardNormal(len(self.names))
        self.flow = self if normal and kinds & set(INVERTIBLE) else None
        self.log_density = self.log_prob
        self.embed = None if approximator.summary_network is None else self._embed

    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, d)."""
        draws = self._draws(x, n, fresh_key())
        parts = (torch.as_tensor(part, device="cpu") for part in draws.values())
        return torch.cat([part.reshape(len(x), n, -1) for part in parts], 2)

    def _draws(self, x: Tensor, n: int, key: int) -> dict[str, np.ndarray]:
        given = _arrays(self.conditions, x)
        with _without_bars():
            draws = self.approximator.sample(num_samples=n, conditions=given, seed=key)
        return {name: np.asarray(array) for name, array in draws.items()}

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, d) to latents (n, m)."""
        a, given = self.approximator, _arrays(self.conditions, x)
        every = {**_arrays(self.layout, theta), **given}
        y = a.adapter(every, strict=False, stage="inference")
        y = a.standardizer.maybe_standardize(
            y["inference_variables"], key="inference_variables", stage="inference"
        )
        conditions = self._prepared(given)
        z = a.inference_network(y, conditions=conditions, inverse=False, density=False)
        return torch.from_numpy(np.array(z))

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """The log-density (n,) of parameters (n, m) at observations (n, d)."""
        given = {**_arrays(self.layout, theta), **_arrays(self.conditions, x)}
        return torch.from_numpy(np.array(self.approximator.log_prob(given)))

    def _embed(self, x: Any) -> Tensor:
        features = self._prepared(_arrays(self.conditions, x))
        return torch.from_numpy(np.array(features)).flatten(1)

    def _prepared(self, given: dict[str, np.ndarray]) -> Any:
        """What the network is given of conditions, through the summary network if there is one."""
        with _without_bars():
            return self.approximator._prepare_conditions(given, batch_size=None)[0]


def _arrays(layout: Layout, given: Any) -> dict[str, np.ndarray]:
    """Columns (..., d), or arrays by name as they are, by name in single precision."""
    parts = given if isinstance(given, dict) else layout.unpack(given)
    tensors = {name: torch.as_tensor(part, device="cpu") for name, part in parts.items()}
    return {name: np.asarray(tensor.float()) for name, tensor in tensors.items()}


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """BayesFlow writes progress of its own to stderr."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior:
    """A workflow or an approximator."""
    kinds = {kind.__name__ for kind in type(posterior).__mro__}
    approximator = posterior.approximator if "Workflow" in kinds else posterior
    if layout is None or not layout.packed:
        raise ValueError(
            "x: expected the conditions of BayesFlow's approximator by name, as {'x': x}, and x_o "
            "likewise; got an array."
        )
    return BayesFlowPosterior(approximator, layout, x[:1])
