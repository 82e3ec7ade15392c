r"""Neural posterior estimation: a conditional flow of parameters given observations.

One network is trained on pairs :math:`(\theta, x)` of the joint to maximise
:math:`\log q(\theta \mid x)` and then serves every observation. Parameters and observations are
standardised by their means and deviations; all densities are in the units of theta.

The networks are zuko's, which need nothing but torch, or those of the l-C2ST paper, which sbi
builds on nflows. Latents are computed here, from the transform and the embedding of x: sbi's own
``inverse_transform`` (0.27) leaves the embedding out.

The loop of training is shared with the other methods: it takes any module and any loss of rows. It
can be interrupted and resumed, and on a CPU ends in the same weights as if it had not been.

References: Papamakarios and Murray 2016, *Fast epsilon-free inference of simulation models with
Bayesian conditional density estimation*; Papamakarios, Pavlakou and Murray 2017, *Masked
autoregressive flow for density estimation*; Durkan et al. 2019, *Neural spline flows*; Greenberg
et al. 2019, *Automatic posterior transformation for likelihood-free inference*.
"""

import hashlib
import json
import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self, TypedDict

import torch
from torch import Tensor, nn
from tqdm import tqdm

from ..bases import StandardNormal
from ..door import as_device, as_tensors, check_count, check_finite, check_number
from ..randomness import Seed, isolated, seed_of, stream
from ..scaling import spread
from .priors import Prior

__all__ = [
    "MAF",
    "NSF",
    "Architecture",
    "Network",
    "Options",
    "SbiMAF",
    "SbiNSF",
    "Trained",
    "Training",
    "Truncated",
    "ZScore",
    "checked_pairs",
    "fit",
    "given_or_global",
    "train",
    "train_flow",
]

FORMAT = 1
# Rows in a batch unless told otherwise, as in sbi; the l-C2ST paper has 10,000.
BATCH = 200
FEWEST_ROWS = 20
# Rows that a network sees at a time when nothing is learned.
PIECE = 2**16
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
        flows = _optional("zuko.flows", "demo")
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
        flows = _optional("zuko.flows", "demo")
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
    build = getattr(_optional("sbi.neural_nets.net_builders", "peers"), builder)
    rest.update(hidden_features=shape.hidden, num_transforms=shape.transforms)
    scaling = {"z_score_x": "none", "z_score_y": "none"}
    return _Nflows(build(torch.zeros(2, m), torch.zeros(2, d), **scaling, **rest).net)


def _optional(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        name = module.split(".")[0]
        raise ImportError(f"This needs {name}: pip install 'assay[{extra}]'", name=name) from error


@dataclass(frozen=True, eq=False)
class ZScore:
    """Means and deviations of k columns, each with shape (k,), in double precision.

    Example:
        >>> rows = torch.tensor([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0]])
        >>> scale = ZScore.of(rows)
        >>> scale(rows)
        tensor([[-1.,  0.], [ 0.,  0.], [ 1.,  0.]])
        >>> torch.equal(scale.inverse(scale(rows)).float(), rows)
        True
    """

    location: Tensor
    scale: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> Self:
        """The scale of rows (n, k); a constant column is only centred."""
        rows = rows.double()
        return cls(rows.mean(0), spread(rows))

    def __call__(self, rows: Tensor) -> Tensor:
        """Standardised rows (n, k), in single precision."""
        return ((rows.double() - self.location) / self.scale).float()

    def inverse(self, rows: Tensor) -> Tensor:
        """Rows (n, k) in their own units, in double precision."""
        return rows.double() * self.scale + self.location

    @property
    def log_volume(self) -> Tensor:
        """The logarithm of the volume of one unit, that of densities in either scale."""
        return self.scale.log().sum()


class Options(TypedDict, total=False):
    """The keywords of :func:`train`, for functions that hand them on."""

    batch: int | None
    rate: float
    patience: int
    validation: float
    clip: float | None
    epochs: int
    device: str | torch.device | None
    seed: Seed
    checkpoint: str | os.PathLike[str] | None


@dataclass(frozen=True)
class Training:
    """How a network is trained; see :func:`train` for each field."""

    batch: int | None = None
    rate: float = 5e-4
    patience: int = 20
    validation: float = 0.1
    clip: float | None = 5.0
    epochs: int = 10_000
    device: str | torch.device | None = None
    seed: Seed = 0
    checkpoint: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_count("batch", BATCH if self.batch is None else self.batch, 2)
        check_count("patience", self.patience)
        check_count("epochs", self.epochs)
        check_number("rate", self.rate)
        check_number("clip", 1.0 if self.clip is None else self.clip)
        if check_number("validation", self.validation) > 0.9:
            raise ValueError(f"validation: expected a share up to 0.9; got {self.validation}.")
        object.__setattr__(self, "seed", seed_of(self.seed))

    @property
    def place(self) -> Path | None:
        """Where the state of training is kept."""
        return None if self.checkpoint is None else Path(self.checkpoint)

    def stream(self, *key: int | str) -> torch.Generator:
        """A stream of random numbers of this training."""
        return stream(seed_of(self.seed), "training", *key)


Loss = Callable[..., Tensor]


def fit(
    network: nn.Module,
    loss: Loss,
    data: tuple[Tensor, ...],
    how: Training,
    label: str,
    unit: float = 0.0,
) -> tuple[float, ...]:
    """Trains a network in place until a validation set has not improved for a while.

    Args:
        network: Ends with the weights of the best epoch, frozen, and ready for use.
        loss: Takes rows of all data, and returns their losses (b,).
        data: Tensors with n rows each, on the device of the network.
        how: The settings.
        label: What is trained, in words; a checkpoint of another thing is refused.
        unit: Added to the losses that are shown and returned.

    Returns:
        The validation losses of all epochs.
    """
    held, known = _split(data, how)
    run = _Run(network, how, _identity(data, how, label))
    if how.place is not None and how.place.exists():
        run.resume(how.place)
    bar = tqdm(desc=label, unit=" epochs", initial=len(run.losses), disable=None)
    with bar, torch.enable_grad():
        while not run.finished():
            run.epoch(loss, known)
            run.judge(loss, held)
            if how.place is not None:
                run.save(how.place)
            now, best = run.losses[-1] + unit, min(run.losses) + unit
            bar.set_postfix(validation=f"{now:.3f}", best=f"{best:.3f}")
            bar.update()
    network.load_state_dict(run.best)
    network.requires_grad_(False).eval()  # noqa: FBT003
    return tuple(found + unit for found in run.losses)


class _Run:
    """A training in progress, with all it needs to go on after an interruption.

    Random numbers are streams of the epoch, so that there is no state of theirs to keep.
    """

    def __init__(self, network: nn.Module, how: Training, identity: dict[str, Any]) -> None:
        self.network, self.how, self.identity = network, how, identity
        self.optimizer = torch.optim.Adam(network.parameters(), lr=how.rate, fused=True)
        self.losses: list[float] = []
        self.best: dict[str, Tensor] = {}

    def finished(self) -> bool:
        """Whether the last epoch has come, or the patience is at its end."""
        if not self.losses:
            return False
        since = len(self.losses) - 1 - self.losses.index(min(self.losses))
        return len(self.losses) >= self.how.epochs or since >= self.how.patience

    def epoch(self, loss: Loss, data: tuple[Tensor, ...]) -> None:
        """One pass over the data (n, ...), in whole batches."""
        self.network.train()
        n = len(data[0])
        batch = min(self.how.batch or BATCH, n)
        order = torch.randperm(n, generator=self.how.stream("epoch", len(self.losses)))
        for rows in order[: n // batch * batch].to(data[0].device).split(batch):
            self._step(loss(*(part[rows] for part in data)).mean())

    def _step(self, loss: Tensor) -> None:
        """One step; nothing that is not finite reaches the weights."""
        self.optimizer.zero_grad()
        loss.backward()
        limit = math.inf if self.how.clip is None else self.how.clip
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), limit)
        self._check(float(loss.detach() + norm), "gradient")
        self.optimizer.step()

    def judge(self, loss: Loss, data: tuple[Tensor, ...]) -> None:
        """Notes the loss of the data (n, ...), and the weights if they are the best so far."""
        self.network.eval()
        with torch.no_grad():
            total = _in_pieces(lambda *rows: loss(*rows).double(), *data).mean()
        found = self._check(float(total), "validation loss")
        if not self.losses or found < min(self.losses):
            self.best = {k: v.detach().clone() for k, v in self.network.state_dict().items()}
        self.losses.append(found)

    def _check(self, value: float, what: str) -> float:
        if not math.isfinite(value):
            raise ValueError(
                f"rate: expected one at which training converges; got {self.how.rate:g}, and "
                f"training diverged at epoch {len(self.losses)}: its {what} is {value}. Try a "
                "lower one, and look for outliers in the data."
            )
        return value

    def save(self, path: Path) -> None:
        """Writes weights, the best weights, the optimizer's state and the losses so far."""
        moments = self.optimizer.state_dict()["state"]
        tensors = {f"now/{name}": part for name, part in self.network.state_dict().items()}
        tensors |= {f"best/{name}": part for name, part in self.best.items()}
        tensors |= {f"adam/{i}/{k}": v for i, parts in moments.items() for k, v in parts.items()}
        _write(path, tensors, {"training": self.identity, "losses": self.losses})

    def resume(self, path: Path) -> None:
        """Takes up a training where :meth:`save` left it."""
        tensors, header = _read(path, "checkpoint", "training")
        found = header["training"]
        other = [name for name, value in self.identity.items() if found.get(name) != value]
        if other:
            raise ValueError(
                f"checkpoint: expected a training of the same data and settings; got one of other "
                f"{', '.join(other)}. Remove {path}, or name another file."
            )
        device = next(self.network.parameters()).device
        parts: dict[str, dict[str, Tensor]] = {"now": {}, "best": {}, "adam": {}}
        for name, tensor in tensors.items():
            kind, key = name.split("/", 1)
            parts[kind][key] = tensor.to(device)
        self.network.load_state_dict(parts["now"])
        self.best, self.losses = parts["best"], header["losses"]
        state: dict[int, dict[str, Tensor]] = {}
        for key, tensor in parts["adam"].items():
            index, name = key.split("/")
            state.setdefault(int(index), {})[name] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})


def _split(
    data: tuple[Tensor, ...], how: Training
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Rows that are held back for validation, and the others."""
    n = len(data[0])
    order = torch.randperm(n, generator=how.stream("split")).to(data[0].device)
    held = max(2, int(n * how.validation))
    return tuple(part[order[:held]] for part in data), tuple(part[order[held:]] for part in data)


def _identity(data: tuple[Tensor, ...], how: Training, label: str) -> dict[str, Any]:
    """What must be the same for a training to be resumed."""
    if how.place is None:
        return {}
    digest = hashlib.sha256()
    for part in data:
        digest.update(part.cpu().contiguous().numpy().tobytes())
    settings = ("rate", "validation", "clip", "seed")
    batch = min(how.batch or BATCH, len(data[0]))
    chosen = {name: getattr(how, name) for name in settings}
    return {"network": label, "data": digest.hexdigest(), "batch": batch, **chosen}


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
        return _in_pieces(lambda *rows: self.network(*rows)[0], *self._scaled(theta, x)).to(theta)

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m) at observations (n, d), or at one (d,)."""
        density = _in_pieces(self.network.log_prob, *self._scaled(theta, x))
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
            theta = _in_pieces(self.network.inverse, z.to(rows.device), rows)
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
        _write(Path(path), self.network.state_dict(), {"flow": header})

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | torch.device = "cpu") -> Self:
        """Reads what :meth:`save` wrote.

        Args:
            path: The file.
            device: Where the flow is to be.
        """
        tensors, header = _read(Path(path), "path", "flow")
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


def checked_pairs(theta: Any, x: Any, how: Training) -> tuple[Tensor, Tensor]:
    """Brings parameters (n, m) and observations (n, d) to the device of training, or refuses."""
    arrays = as_tensors({"theta": theta, "x": x})
    theta, x = arrays.values()
    for name, rows in arrays.items():
        if rows.ndim != 2 or len(rows) != len(theta):
            shapes = f"{tuple(theta.shape)} and {tuple(x.shape)}"
            raise ValueError(f"{name}: expected theta (n, m) and x (n, d); got {shapes}.")
        check_finite(name, rows, "Leave out simulations that failed.")
    if len(theta) < FEWEST_ROWS:
        raise ValueError(f"theta: expected at least {FEWEST_ROWS} rows; got {len(theta)}.")
    device = theta.device if how.device is None else as_device(how.device)
    return theta.to(device), x.to(device)


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


def given_or_global(generator: torch.Generator | None) -> torch.Generator:
    """The generator, or one that torch's global state seeds."""
    if generator is not None:
        return generator
    return torch.Generator().manual_seed(int(torch.randint(2**62, ())))


def _in_pieces(function: Callable[..., Tensor], *arrays: Tensor) -> Tensor:
    """A function of rows, on pieces of about equal size that fit into memory."""
    pieces = math.ceil(len(arrays[0]) / PIECE)
    if pieces <= 1:
        return function(*arrays)
    split = (array.tensor_split(pieces) for array in arrays)
    return torch.cat([function(*rows) for rows in zip(*split, strict=True)])


def _fields(flow: Trained) -> tuple[Any, ...]:
    """The fields of a flow's architecture; an unknown one could not be read back."""
    if ARCHITECTURES.get(type(flow.architecture).__name__) is not type(flow.architecture):
        raise TypeError(
            f"architecture: expected one of {', '.join(ARCHITECTURES)} in order to be saved; got "
            f"{type(flow.architecture).__name__}."
        )
    return fields(flow.architecture)  # type: ignore[arg-type]


def _write(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Writes tensors, and a header in JSON, to a file of safetensors, whole or not at all."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path: expected a folder that exists; got {path.parent}.")
    content = {
        name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()
    }
    metadata = {"assay": json.dumps({"format": FORMAT, **header})}
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(_optional("safetensors.torch", "demo").save(content, metadata))
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _read(path: Path, name: str, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads tensors and header of a file of some kind, named so in messages."""
    safetensors = _optional("safetensors", "demo")
    try:
        with safetensors.safe_open(path, "pt") as file:
            header: dict[str, Any] = json.loads((file.metadata() or {})["assay"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        found = header["format"], kind in header
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{name}: expected the file of a {kind}; got {path}.") from error
    if found != (FORMAT, True):
        raise ValueError(f"{name}: expected the file of a {kind}; got {path}, of another kind.")
    return tensors, header
