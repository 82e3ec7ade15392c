r"""Flows: what the experiments test, trained here in one short loop.

One conditional flow :math:`\theta = T(z; x)`, with z standard normal, is trained on pairs
:math:`(\theta, x)` to maximise :math:`\log q(\theta \mid x)` and then serves every observation.
Parameters and observations are standardised; densities are in the units of theta. No prior
truncates a flow: q is the flow itself.

Networks are zuko's, or those of the paper, which sbi builds on nflows; of sbi only builders are
used. Latents come from the transform and the embedding of x, since sbi's ``inverse_transform``
(0.27) leaves the embedding out.

References: Papamakarios and Murray 2016 for neural posterior estimation; Papamakarios et al. 2017,
*Masked autoregressive flow*; Durkan et al. 2019, *Neural spline flows*.
"""

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, get_args

import torch
import zuko
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn
from tqdm import tqdm

from assay._support.files import atomic_write
from assay._support.random import isolated, stream
from assay.data.posterior import StandardNormal

from .couplings import build_nsf

__all__ = ["MAF", "NSF", "Architecture", "Flow", "SbiMAF", "SbiNSF", "Training", "train"]

# Rows that a network sees at a time when nothing is learned, on a processor and on a GPU.
ROWS, MANY = 2**11, 2**18


@dataclass(frozen=True)
class NSF:
    """A neural spline flow of zuko, autoregressive."""

    transforms: int = 5
    bins: int = 10
    hidden: tuple[int, ...] = (50, 50)

    def build(self, m: int, d: int) -> nn.Module:
        """A network over m parameters given d observed numbers, with random weights."""
        shape = {"transforms": self.transforms, "hidden_features": self.hidden}
        network: nn.Module = zuko.flows.NSF(m, d, bins=self.bins, **shape)
        return network


@dataclass(frozen=True)
class MAF:
    """A masked autoregressive flow of zuko."""

    transforms: int = 10
    hidden: tuple[int, ...] = (50, 50)

    def build(self, m: int, d: int) -> nn.Module:
        """A network over m parameters given d observed numbers, with random weights."""
        shape = {"transforms": self.transforms, "hidden_features": self.hidden}
        network: nn.Module = zuko.flows.MAF(m, d, **shape)
        return network


@dataclass(frozen=True)
class SbiNSF:
    """The neural spline flow of the paper: couplings and LU layers, built by sbi where it is."""

    transforms: int = 5
    bins: int = 10
    hidden: int = 50

    def build(self, m: int, d: int) -> nn.Module:
        """A network over m parameters given d observed numbers, with random weights."""
        shape = {"num_transforms": self.transforms, "hidden_features": self.hidden}
        if find_spec("sbi") is None:
            return _AsZuko(build_nsf(m, d, num_bins=self.bins, **shape))
        return _from_sbi("build_nsf", m, d, num_bins=self.bins, **shape)


@dataclass(frozen=True)
class SbiMAF:
    """The masked autoregressive flow of the paper, with batch norm, built by sbi."""

    transforms: int = 10
    hidden: int = 50

    def build(self, m: int, d: int) -> nn.Module:
        """A network over m parameters given d observed numbers, with random weights."""
        shape = {"num_transforms": self.transforms, "hidden_features": self.hidden}
        return _from_sbi("build_maf", m, d, use_batch_norm=True, **shape)


Architecture = NSF | MAF | SbiNSF | SbiMAF
ARCHITECTURES = {cls.__name__: cls for cls in get_args(Architecture)}


def _from_sbi(builder: str, m: int, d: int, **shape: Any) -> nn.Module:
    """A network of one of sbi's builders; nothing is scaled inside, as all data come scaled."""
    build = getattr(import_module("sbi.neural_nets.net_builders"), builder)
    scaling = {"z_score_x": "none", "z_score_y": "none"}
    return _AsZuko(build(torch.zeros(2, m), torch.zeros(2, d), **scaling, **shape).net)


class _AsZuko(nn.Module):
    """A network of nflows with the manners of zuko: ``network(x).transform`` takes theta to z."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> "_At":
        return _At(self.net._transform, self.net._embedding_net(x))


@dataclass(frozen=True)
class _At:
    """A transform of nflows at embedded observations."""

    bijection: Any
    context: Tensor

    @property
    def transform(self) -> Self:
        return self

    def call_and_ladj(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = self.bijection(theta, self.context)
        return z, log_det

    def inv(self, z: Tensor) -> Tensor:
        with warnings.catch_warnings():
            # nflows 0.14 solves triangular systems by a function that torch has deprecated.
            warnings.filterwarnings("ignore", "torch.triangular_solve is deprecated")
            theta: Tensor = self.bijection.inverse(z, self.context)[0]
        return theta


@dataclass(frozen=True, eq=False)
class Flow:
    """A trained flow.

    Args:
        architecture: What it looks like.
        network: Its weights.
        theta_scale: Means and deviations of parameters, (2, m).
        x_scale: Means and deviations of observations, (2, d).
        losses: The validation loss of every epoch, in nats and in the units of theta.
    """

    architecture: Architecture
    network: nn.Module = field(repr=False)
    theta_scale: Tensor = field(repr=False)
    x_scale: Tensor = field(repr=False)
    losses: tuple[float, ...] = field(repr=False)

    @property
    def base(self) -> StandardNormal:
        """The distribution of latents."""
        return StandardNormal(self.theta_scale.shape[1])

    @property
    def device(self) -> torch.device:
        """Where the flow is."""
        return self.theta_scale.device

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Latents (n, m) of parameters (n, m) at observations (n, d), or at one (d,)."""
        return self._by_rows(lambda a, b: self.network(b).transform.call_and_ladj(a)[0], theta, x)

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m) at observations (n, d), or at one (d,)."""
        found = self._by_rows(lambda a, b: _log_prob(self.network, a, b), theta, x)
        return found - _log_volume(self.theta_scale)

    def sample(self, x: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws (n, m) at one observation (d,); see :meth:`sample_each`."""
        return self.sample_each(x.reshape(1, -1), n, generator)[0]

    def sample_each(self, x: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws (o, n, m) at each of many observations (o, d).

        Args:
            x: The observations.
            n: The number of draws at each.
            generator: The source of all noise, on the CPU; torch's own if None.
        """
        z = torch.randn(len(x) * n, self.base.dim, generator=generator, dtype=torch.float32)
        draws = x.new_empty(z.shape)
        for rows in torch.arange(len(z)).split(_most(self.device)):
            draws[rows] = self._theta(z[rows], x[rows // n])
        return draws.reshape(len(x), n, -1)

    def base_to_theta(self, z: Tensor, x: Tensor) -> Tensor:
        """Parameters (n, m) of latents (n, m) at observations (n, d)."""
        most = _most(self.device)
        parts = zip(z.split(most), x.split(most), strict=True)
        return torch.cat([self._theta(*rows) for rows in parts])

    @torch.no_grad()
    def _theta(self, z: Tensor, x: Tensor) -> Tensor:
        at = self.network(_standard(x, self.x_scale))
        theta = at.transform.inv(z.to(self.device)).double()
        scaled: Tensor = theta * self.theta_scale[1] + self.theta_scale[0]
        return scaled.to(x)

    def _by_rows(self, ask: Callable[..., Tensor], theta: Tensor, x: Tensor) -> Tensor:
        """What the network says of theta (n, m) at x (n, d) or (d,), some rows at a time."""
        most = _most(self.device)
        parts = zip(theta.split(most), x.expand(len(theta), -1).split(most), strict=True)
        scaled = ((_standard(a, self.theta_scale), _standard(b, self.x_scale)) for a, b in parts)
        return torch.cat([ask(*rows).to(theta) for rows in scaled])

    def save(self, path: Path) -> None:
        """Writes the flow to a file of safetensors; the file appears whole or not at all."""
        header = {
            "architecture": type(self.architecture).__name__,
            "fields": asdict(self.architecture),
            "losses": self.losses,
        }
        scales = {"theta_scale": self.theta_scale, "x_scale": self.x_scale}
        tensors = {
            name: tensor.cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in (self.network.state_dict() | scales).items()
        }
        with atomic_write(path) as file:
            file.write(save(tensors, {"flow": json.dumps(header)}))

    @classmethod
    def load(cls, path: Path, device: str | torch.device = "cpu") -> Self:
        """Reads what :meth:`save` wrote, to a device."""
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()["flow"])
            tensors = {key: file.get_tensor(key).to(device) for key in file.keys()}  # noqa: SIM118
        theta_scale, x_scale = tensors.pop("theta_scale"), tensors.pop("x_scale")
        # JSON knows no tuples.
        shape = {k: tuple(v) if isinstance(v, list) else v for k, v in header["fields"].items()}
        architecture = ARCHITECTURES[header["architecture"]](**shape)
        network = _built(architecture, theta_scale, x_scale)
        network.load_state_dict(tensors)
        return cls(architecture, _frozen(network), theta_scale, x_scale, tuple(header["losses"]))


def _most(device: torch.device) -> int:
    """Rows at a time."""
    return MANY if device.type == "cuda" else ROWS


def _scale(rows: Tensor) -> Tensor:
    """Means and deviations (2, k) of rows (n, k); a constant column is only centred."""
    mean, deviation = rows.double().mean(0), rows.double().std(0)
    return torch.stack([mean, torch.where(deviation > 0, deviation, 1.0)])


def _standard(rows: Tensor, scale: Tensor) -> Tensor:
    """Rows (n, k) as a network takes them."""
    return ((rows.to(scale) - scale[0]) / scale[1]).float()


def _log_volume(scale: Tensor) -> float:
    """What a log-density loses in the units of its parameters."""
    return float(scale[1].log().sum())


def _log_prob(network: nn.Module, theta: Tensor, x: Tensor) -> Tensor:
    """Log-densities (n,) of standardised parameters (n, m) at x (n, d)."""
    z, log_det = network(x).transform.call_and_ladj(theta)
    density: Tensor = log_det - 0.5 * (z.square() + math.log(2 * math.pi)).sum(1)
    return density


def _built(architecture: Architecture, theta: Tensor, x: Tensor, seed: int = 0) -> nn.Module:
    """A network with random weights for parameters (..., m) and observations (..., d)."""
    with isolated(stream(seed, "training", "network")):
        return architecture.build(theta.shape[1], x.shape[1]).to(theta.device)


def _frozen(network: nn.Module) -> nn.Module:
    return network.requires_grad_(False).eval()  # noqa: FBT003


@dataclass(frozen=True)
class Training:
    """How a flow is trained: by Adam, until a held-out tenth has not improved for a while.

    Args:
        batch: Rows in a batch; a last one that is not full is left out.
        rate: The learning rate.
        patience: The number of epochs without a better validation loss that end training.
        epochs: The largest number of epochs.
        clip: The largest norm of a gradient.
        seed: The seed of weights, batches and the held-out rows.
    """

    batch: int = 200
    rate: float = 5e-4
    patience: int = 20
    epochs: int = 10_000
    clip: float = 5.0
    seed: int = 0

    def order(self, rows: Tensor, *key: int | str) -> Tensor:
        """A random order of rows, for some purpose."""
        generator = stream(self.seed, "training", *key)
        return torch.randperm(len(rows), generator=generator).to(rows.device)


def train(
    theta: Tensor,
    x: Tensor,
    architecture: Architecture = NSF(),  # noqa: B008
    how: Training = Training(),  # noqa: B008
    device: str | torch.device = "cpu",
) -> Flow:
    """Trains a flow of parameters given observations, and keeps its best epoch.

    Args:
        theta: Parameters of the joint, (n, m).
        x: What they produced, (n, d).
        architecture: What the flow looks like.
        how: The settings.
        device: Where to train, and where the flow is afterwards.
    """
    theta, x = theta.to(device), x.to(device)
    scales = _scale(theta), _scale(x)
    network = _built(architecture, theta, x, how.seed)
    with torch.enable_grad():
        losses = _fit(network, _standard(theta, scales[0]), _standard(x, scales[1]), how)
    units = tuple(loss + _log_volume(scales[0]) for loss in losses)
    return Flow(architecture, _frozen(network), *scales, units)


def _fit(network: nn.Module, theta: Tensor, x: Tensor, how: Training) -> list[float]:
    """Leaves the weights of the best epoch, and returns the validation losses of all."""
    held, known = how.order(theta, "split").tensor_split([max(2, len(theta) // 10)])
    optimizer = torch.optim.Adam(network.parameters(), lr=how.rate, fused=True)
    losses: list[float] = []
    bar = tqdm(range(how.epochs), "training a flow", unit="epoch", disable=None, leave=None)
    for epoch in bar:
        order = known[how.order(known, "epoch", epoch)]
        _pass(network, optimizer, theta[order], x[order], how)
        losses.append(_validation(network, theta[held], x[held], how))
        stale = epoch - losses.index(min(losses))
        if stale == 0:
            best = {name: t.detach().clone() for name, t in network.state_dict().items()}
        if stale >= how.patience:
            break
        bar.set_postfix(validation=f"{losses[-1]:.3f}", best=f"{min(losses):.3f}")
    bar.close()
    network.load_state_dict(best)
    return losses


def _pass(
    network: nn.Module, optimizer: torch.optim.Adam, theta: Tensor, x: Tensor, how: Training
) -> None:
    """One step for each whole batch of the rows."""
    network.train()
    batch = min(how.batch, len(theta))
    whole = len(theta) // batch * batch
    for rows in zip(theta[:whole].split(batch), x[:whole].split(batch), strict=True):
        optimizer.zero_grad()
        loss = -_log_prob(network, *rows).mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(network.parameters(), how.clip)
        _checked(float(loss.detach() + norm), how)
        optimizer.step()


@torch.no_grad()
def _validation(network: nn.Module, theta: Tensor, x: Tensor, how: Training) -> float:
    """The mean loss of rows that were held out."""
    network.eval()
    most = _most(theta.device)
    parts = zip(theta.split(most), x.split(most), strict=True)
    density = torch.cat([_log_prob(network, *rows) for rows in parts])
    return _checked(-float(density.double().mean()), how)


def _checked(loss: float, how: Training) -> float:
    """A loss that is finite; nothing else may reach the weights."""
    if not math.isfinite(loss):
        raise ValueError(
            f"rate: expected one at which training converges; got {how.rate:g}, at which it "
            f"diverged: a loss or its gradient is {loss}. Try a lower one, and look for outliers."
        )
    return loss
