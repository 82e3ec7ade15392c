r"""A conditional normalizing flow as a test needs it, and the proof that it is one q.

A flow maps latents to parameters, :math:`\theta = T(z; x)` with z from a base distribution. A test
in latent space asks for the inverse; the check below makes sure that the inverse, the base and the
samples speak of the same q.
"""

from typing import Any, Protocol

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from .bases import Base
from .door import as_tensors, check_finite, check_kind
from .randomness import isolated, stream

__all__ = ["Flow", "check_flow", "check_inverse", "check_own", "flow_sample", "flow_to_base"]

HANDFUL = 512
# The chance that a right flow is refused: about one in a million for each parameter.
REFUSAL = 1e-6


class Flow(Protocol):
    """A conditional normalizing flow, one and the same q in its three members."""

    @property
    def base(self) -> Any:
        """The base distribution: a torch distribution over R^m, or a :class:`assay.bases.Base`."""

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, ...) to latents (n, m)."""

    def sample(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (n, m) at one observation x, with shape (...,)."""


_ANOTHER_Q = (
    "{name}: expected draws of this flow; their latents do not follow its base "
    "(Kolmogorov-Smirnov p = {p:.1g} in view {view}). They belong to another q: were they "
    "truncated to the prior, or drawn from another network? Test what you sample: keep to "
    "parameter space, or draw from the flow itself."
)
_NOT_INVERSE = (
    "flow: expected theta_to_base to map the flow's own samples to its base; it does not "
    "(Kolmogorov-Smirnov p = {p:.1g} in view {view}). Check the direction of the transform, "
    "the embedding of x, and whether sample() truncates to the prior."
)


def flow_to_base(flow: Flow, theta: Tensor, x: Tensor) -> Tensor:
    """Maps parameters (n, m) at observations (n, ...) to latents (n, m), and checks them."""
    with torch.no_grad():
        z = as_tensors({"flow.theta_to_base": flow.theta_to_base(theta, x)})["flow.theta_to_base"]
    if z.shape != theta.shape:
        raise ValueError(
            f"flow.theta_to_base: expected shape {tuple(theta.shape)}; got {tuple(z.shape)}."
        )
    check_finite("flow.theta_to_base(theta, x)", z)
    return z.to(theta)


def flow_sample(flow: Flow, x: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Returns n draws (n, m) of a flow at one observation, and checks them."""
    with isolated(generator), torch.no_grad():
        theta = as_tensors({"flow.sample": flow.sample(x, n)})["flow.sample"]
    if theta.ndim != 2 or len(theta) != n:
        raise ValueError(
            f"flow.sample: expected n = {n} draws at one observation, with shape ({n}, m); "
            f"got {tuple(theta.shape)}."
        )
    check_finite("flow.sample(x, n)", theta)
    return theta.to(x)


def check_inverse(flow: Flow, base: Base, x: Tensor, generator: torch.Generator) -> None:
    """Refuses a flow whose inverse does not map a handful of its samples to its base."""
    sites = x[: min(len(x), 16)]
    each = HANDFUL // len(sites)
    theta = torch.cat([flow_sample(flow, site, each, generator) for site in sites])
    if theta.shape[1] != base.dim:
        raise ValueError(
            f"flow.sample: expected draws of {base.dim} parameters; got {theta.shape[1]}."
        )
    z = flow_to_base(flow, theta, sites.repeat_interleave(each, 0))
    _check_base(z, base, "flow", _NOT_INVERSE)


def check_own(z: Tensor, base: Base, name: str) -> None:
    """Refuses latents (n, m) of draws that a handful shows not to be the flow's."""
    _check_base(z[:HANDFUL], base, name, _ANOTHER_Q)


def check_flow(flow: Any) -> None:
    """Refuses what lacks a flow's members."""
    hint = " Zuko's flows are wrapped by assay.adapters.zuko.ZukoFlow."
    expected = "an object with base, theta_to_base(theta, x) and sample(x, n)."
    check_kind("flow", flow, expected + hint, "base", "theta_to_base", "sample")


def _check_base(z: Tensor, base: Base, name: str, message: str) -> None:
    """Refuses latents that are visibly not draws of the base."""
    reference = _views(base.sample(100 * HANDFUL, stream(0, "reference", name)))
    for view, (found, expected) in enumerate(zip(_views(z.cpu()), reference, strict=True)):
        p = scipy.stats.ks_2samp(found, expected, method="asymp").pvalue
        if p < REFUSAL:
            raise ValueError(message.format(name=name, p=p, view=view))


def _views(z: Tensor) -> list[np.ndarray]:
    """Coordinates, products of neighbours and a few projections of latents (n, m)."""
    products = z * z.roll(1, 1) if z.shape[1] > 1 else z[:, :0]
    directions = torch.randn(z.shape[1], 4, generator=stream(0, "projections"))
    views = torch.cat([z.double(), products.double(), z.double() @ directions.double()], 1)
    return list(views.numpy().T)
