r"""Neural posterior estimation: a conditional flow of parameters given observations.

One network is trained on pairs :math:`(\theta, x)` of the joint to maximise
:math:`\log q(\theta \mid x)` and then serves every observation. Parameters and observations are
standardised by their means and deviations; all densities are in the units of theta.

The networks are zuko's, which need nothing but torch, or those of the l-C2ST paper, which sbi
builds on nflows. Latents are computed here, from the transform and the embedding of x: sbi's own
``inverse_transform`` (0.27) leaves the embedding out.

References: Papamakarios and Murray 2016, *Fast epsilon-free inference of simulation models with
Bayesian conditional density estimation*; Papamakarios, Pavlakou and Murray 2017, *Masked
autoregressive flow for density estimation*; Durkan et al. 2019, *Neural spline flows*; Greenberg
et al. 2019, *Automatic posterior transformation for likelihood-free inference*.
"""

import math
import os
import warnings
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from ..bases import StandardNormal
from ..door import as_device, check_count
from ..randomness import Seed, isolated, stream
from .priors import Prior
from .training import (
    PIECE,
    Training,
    ZScore,
    checked_pairs,
    fit,
    given_or_global,
    in_pieces,
    optional,
    read,
    write,
)

__all__ = [
    "MAF",
    "NSF",
    "Architecture",
    "Network",
    "SbiMAF",
    "SbiNSF",
    "Trained",
    "Truncated",
    "train",
    "train_flow",
]

# Draws cut to the prior: the least share that may be accepted, judged by so many proposals.
LEAST_ACCEPTANCE, JUDGED = 1e-4, 100_000


class Network(nn.Module, ABC):
    """A conditional flow between standardised parameters and latents."""

    @abstractmethod
    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Latents (n, m) of parameters (n, m) at x (n, d), and the log-determinants (n,)."""

    @abstractmethod
    def inverse(self, z: Tensor, x: Tensor) -> Tensor:
        """Parameters (n, m) of latents (n, m) at x (n, d)."""

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m) at x (n, d)."""
        z, log_det = self.forward(theta, x)
        return log_det - 0.5 * (z.square().sum(1) + z.shape[1] * math.log(2 * math.pi))


class _Zuko(Network):
    def __init__(self, flow: nn.Module) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = self.flow(x).transform.call_and_ladj(theta)
        return z, log_det

    def inverse(self, z: Tensor, x: Tensor) -> Tensor:
        theta: Tensor = self.flow(x).transform.inv(z)
        return theta


class _Nflows(Network):
    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = self.net._transform(theta, self.net._embedding_net(x))
        return z, log_det

    def inverse(self, z: Tensor, x: Tensor) -> Tensor:
        with warnings.catch_warnings():
            # nflows 0.14 solves triangular systems by a function that torch has deprecated.
            warnings.filterwarnings("ignore", "torch.triangular_solve is deprecated")
            theta: Tensor = self.net._transform.inverse(z, self.net._embedding_net(x))[0]
        return theta


class Architecture(Protocol):
    """What a flow looks like."""

    def build(self, m: int, d: int) -> Network:
        """A flow over m parameters given d observed numbers, with random weights."""


@dataclass(frozen=True)
class NSF:
    """A neural spline flow of zuko, autoregressive (Durkan et al. 2019).

    Args:
        transforms: The number of transforms.
        bins: The number of bins of a spline.
        hidden: Widths of the hidden layers of each transform's network.
    """

    transforms: int = 5
    bins: int = 10
    hidden: tuple[int, ...] = (50, 50)

    def __post_init__(self) -> None:
        _check_counts(self)

    def build(self, m: int, d: int) -> Network:
        """A flow over m parameters given d observed numbers, with random weights."""
        flows = optional("zuko.flows", "demo")
        widths = {"bins": self.bins, "hidden_features": self.hidden}
        return _Zuko(flows.NSF(m, d, transforms=self.transforms, **widths))


@dataclass(frozen=True)
class MAF:
    """A masked autoregressive flow of zuko (Papamakarios et al. 2017).

    Args:
        transforms: The number of transforms.
        hidden: Widths of the hidden layers of each transform's network.
    """

    transforms: int = 10
    hidden: tuple[int, ...] = (50, 50)

    def __post_init__(self) -> None:
        _check_counts(self)

    def build(self, m: int, d: int) -> Network:
        """A flow over m parameters given d observed numbers, with random weights."""
        flows = optional("zuko.flows", "demo")
        return _Zuko(flows.MAF(m, d, transforms=self.transforms, hidden_features=self.hidden))


@dataclass(frozen=True)
class SbiNSF:
    """The neural spline flow of the l-C2ST paper: couplings and LU layers, built by sbi.

    Args:
        transforms: The number of transforms.
        bins: The number of bins of a spline.
        hidden: The width of all hidden layers.
    """

    transforms: int = 5
    bins: int = 10
    hidden: int = 50

    def __post_init__(self) -> None:
        _check_counts(self)

    def build(self, m: int, d: int) -> Network:
        """A flow over m parameters given d observed numbers, with random weights."""
        return _from_sbi("build_nsf", m, d, self, num_bins=self.bins)


@dataclass(frozen=True)
class SbiMAF:
    """The masked autoregressive flow of the l-C2ST paper, built by sbi.

    Args:
        transforms: The number of transforms.
        hidden: The width of all hidden layers.
        batch_norm: Whether hidden layers normalise over the batch: they did in the paper's flow of
            the Jansen-Rit model; sbi advises against it.
    """

    transforms: int = 10
    hidden: int = 50
    batch_norm: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_counts(self)

    def build(self, m: int, d: int) -> Network:
        """A flow over m parameters given d observed numbers, with random weights."""
        return _from_sbi("build_maf", m, d, self, use_batch_norm=self.batch_norm)


ARCHITECTURES: dict[str, type] = {cls.__name__: cls for cls in (NSF, MAF, SbiNSF, SbiMAF)}


def _check_counts(architecture: Any) -> None:
    """Refuses an architecture without layers, bins or width; makes a list of widths a tuple."""
    for name, value in asdict(architecture).items():
        if isinstance(value, tuple | list):
            if not value:
                raise ValueError(f"{name}: expected at least one layer; got none.")
            widths = tuple(check_count(name, width) for width in value)
            object.__setattr__(architecture, name, widths)
        elif not isinstance(value, bool):
            check_count(name, value, 2 if name == "bins" else 1)


def _from_sbi(builder: str, m: int, d: int, shape: SbiNSF | SbiMAF, **rest: Any) -> Network:
    """A network of one of sbi's builders; nothing is scaled inside, as all data come scaled."""
    build = getattr(optional("sbi.neural_nets.net_builders", "peers"), builder)
    rest.update(hidden_features=shape.hidden, num_transforms=shape.transforms)
    scaling = {"z_score_x": "none", "z_score_y": "none"}
    return _Nflows(build(torch.zeros(2, m), torch.zeros(2, d), **scaling, **rest).net)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained flow: q itself, which no prior truncates.

    Args:
        architecture: What the flow looks like.
        network: Its weights.
        theta_scale: The scale of parameters.
        x_scale: The scale of observations.
        losses: The validation loss of every epoch, in nats and in the units of theta.
    """

    architecture: Architecture
    network: Network = field(repr=False)
    theta_scale: ZScore = field(repr=False)
    x_scale: ZScore = field(repr=False)
    losses: tuple[float, ...] = field(repr=False)

    @property
    def m(self) -> int:
        """The number of parameters."""
        return len(self.theta_scale.location)

    @property
    def d(self) -> int:
        """The length of an observation."""
        return len(self.x_scale.location)

    @property
    def base(self) -> StandardNormal:
        """The distribution of latents."""
        return StandardNormal(self.m)

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, d), or at one (d,), to latents (n, m)."""
        return in_pieces(lambda *rows: self.network(*rows)[0], *self._scaled(theta, x)).to(theta)

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m) at observations (n, d), or at one (d,)."""
        density = in_pieces(self.network.log_prob, *self._scaled(theta, x))
        return (density - self.theta_scale.log_volume).to(theta)

    def sample(self, x: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Returns n draws (n, m) at one observation.

        Args:
            x: The observation, with shape (d,).
            n: The number of draws.
            generator: The source of all noise, on the CPU; torch's own if None.
        """
        return self.sample_each(x.reshape(1, -1), n, generator)[0]

    def sample_each(self, x: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Returns n draws at each of many observations, with shape (o, n, m).

        Args:
            x: The observations, with shape (o, d).
            n: The number of draws at each.
            generator: The source of all noise, on the CPU; torch's own if None.
        """
        n = check_count("n", n)
        z = torch.randn(len(x) * n, self.m, generator=generator, dtype=torch.float32)
        _, rows = self._scaled(z, x.repeat_interleave(n, 0))
        with torch.no_grad():
            theta = in_pieces(self.network.inverse, z.to(rows.device), rows)
        return self.theta_scale.inverse(theta).reshape(len(x), n, self.m).to(x)

    def _scaled(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters and observations as the network takes them, on its device."""
        x = x.expand(len(theta), -1) if x.ndim == 1 else x
        for name, rows, width in (("theta", theta, self.m), ("x", x, self.d)):
            if rows.shape != (len(theta), width):
                raise ValueError(
                    f"{name}: expected shape ({len(theta)}, {width}); got {tuple(rows.shape)}."
                )
        device = self.theta_scale.location.device
        return self.theta_scale(theta.to(device)), self.x_scale(x.to(device))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the flow to a file of safetensors; the file appears whole or not at all."""
        header = {
            "architecture": type(self.architecture).__name__,
            "fields": {f.name: getattr(self.architecture, f.name) for f in _fields(self)},
            "m": self.m,
            "d": self.d,
            "theta_scale": [self.theta_scale.location.tolist(), self.theta_scale.scale.tolist()],
            "x_scale": [self.x_scale.location.tolist(), self.x_scale.scale.tolist()],
            "losses": self.losses,
        }
        write(Path(path), self.network.state_dict(), {"flow": header})

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | torch.device = "cpu") -> Self:
        """Reads what :meth:`save` wrote.

        Args:
            path: The file.
            device: Where the flow is to be.
        """
        tensors, header = read(Path(path), "path", "flow")
        flow, device = header["flow"], as_device(device)
        architecture = ARCHITECTURES[flow["architecture"]](**flow["fields"])
        with isolated(stream(0, "network")):
            network = architecture.build(flow["m"], flow["d"])
        network.load_state_dict(tensors)
        network.to(device).requires_grad_(False).eval()  # noqa: FBT003
        theta_scale, x_scale = (
            ZScore(*torch.tensor(flow[key], dtype=torch.float64, device=device))
            for key in ("theta_scale", "x_scale")
        )
        return cls(architecture, network, theta_scale, x_scale, tuple(flow["losses"]))


def train(
    theta: Any,
    x: Any,
    architecture: Architecture = NSF(),  # noqa: B008
    *,
    batch: int | None = None,
    rate: float = 5e-4,
    patience: int = 20,
    validation: float = 0.1,
    clip: float | None = 5.0,
    epochs: int = 10_000,
    device: str | torch.device | None = None,
    seed: Seed = 0,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Trained:
    """Trains a flow of parameters given observations.

    Args:
        theta: Parameters of the joint, with shape (n, m).
        x: What they produced, with shape (n, d).
        architecture: What the flow looks like.
        batch: Rows in a batch: 200 if None, and never more than there are. The l-C2ST paper has
            10,000, which is all of them for most of its flows. A last batch that is not full is
            left out.
        rate: The learning rate of Adam.
        patience: The number of epochs without a better validation loss that end training.
        validation: The share of rows that are held back for validation.
        clip: The largest norm of a gradient; None for no limit.
        epochs: The largest number of epochs.
        device: Where to train; where the data lie if None.
        seed: The seed of weights, batches and the validation set.
        checkpoint: A file to which the state of training is written after every epoch. If it
            exists, training goes on from there, for which data and settings must be the same; only
            `patience` and `epochs` may differ.

    Returns:
        The flow with the weights of the best epoch.
    """
    how = Training(batch, rate, patience, validation, clip, epochs, device, seed, checkpoint)
    theta, x = checked_pairs(theta, x, how)
    return train_flow(theta, x, architecture, how, "theta")


def train_flow(
    theta: Tensor, x: Tensor, architecture: Architecture, how: Training, name: str
) -> Trained:
    """Trains a flow of one array (n, m) given another (n, d), both checked.

    Args:
        theta: What the flow is a density of.
        x: What it is given.
        architecture: What the flow looks like.
        how: The settings.
        name: What the messages call `theta`.
    """
    constant = (theta.amax(0) == theta.amin(0)).nonzero().flatten().tolist()
    if constant:
        raise ValueError(
            f"{name}: expected columns that vary, to have a density; got constants in {constant}."
        )
    theta_scale, x_scale = ZScore.of(theta), ZScore.of(x)
    with isolated(how.stream("network")):
        network = architecture.build(theta.shape[1], x.shape[1]).to(theta.device)

    def loss(theta: Tensor, x: Tensor) -> Tensor:
        return -network.log_prob(theta, x)

    data, unit = (theta_scale(theta), x_scale(x)), float(theta_scale.log_volume)
    losses = fit(network, loss, data, how, f"{architecture} of {name}", unit)
    return Trained(architecture, network, theta_scale, x_scale, losses)


@dataclass(frozen=True, eq=False)
class Truncated:
    """A flow cut to the support of a prior: another q than the flow, without latents.

    Args:
        flow: The flow.
        prior: Its support is kept.
    """

    flow: Trained
    prior: Prior

    def sample(self, x: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Returns n draws (n, m) at one observation, by rejection.

        Args:
            x: The observation, with shape (d,).
            n: The number of draws.
            generator: The source of all noise, on the CPU; torch's own if None.
        """
        generator = given_or_global(generator)
        size = min(max(check_count("n", n), 1000), PIECE)
        found, proposed, accepted = [], 0, 0
        while accepted < n:
            theta = self.flow.sample(x, size, generator)
            found.append(theta[self.prior.inside(theta)])
            proposed, accepted = proposed + size, accepted + len(found[-1])
            if proposed >= JUDGED and accepted < LEAST_ACCEPTANCE * proposed:
                raise ValueError(
                    f"x: expected an observation at which the flow keeps to the prior; got "
                    f"{accepted} of {proposed} draws inside. The flow is far off here, or x is "
                    "unlike what it was trained on."
                )
        return torch.cat(found)[:n]

    def leakage(
        self, x: Tensor, n: int = 10_000, generator: torch.Generator | None = None
    ) -> float:
        """The share of the flow's mass outside the prior at one observation, from n draws.

        Args:
            x: The observation, with shape (d,).
            n: The number of draws.
            generator: The source of all noise, on the CPU; torch's own if None.
        """
        inside = self.prior.inside(self.flow.sample(x, n, generator))
        return 1 - float(inside.double().mean())


def _fields(flow: Trained) -> tuple[Any, ...]:
    """The fields of a flow's architecture; an unknown one could not be read back."""
    if ARCHITECTURES.get(type(flow.architecture).__name__) is not type(flow.architecture):
        raise TypeError(
            f"architecture: expected one of {', '.join(ARCHITECTURES)} in order to be saved; got "
            f"{type(flow.architecture).__name__}."
        )
    return fields(flow.architecture)  # type: ignore[arg-type]
