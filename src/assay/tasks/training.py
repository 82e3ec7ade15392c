"""The loop that trains networks: early stopping, checkpoints, and scales of data.

It takes any module and any loss of rows. It can be interrupted and resumed, and on a CPU ends in
the same weights as if it had not been.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self, TypedDict

import torch
from torch import Tensor, nn
from tqdm import tqdm

from ..door import as_device, as_tensors, check_count, check_finite, check_number
from ..randomness import Seed, seed_of, stream
from ..scaling import spread

__all__ = [
    "Options",
    "Training",
    "ZScore",
    "checked_pairs",
    "fit",
    "given_or_global",
    "in_pieces",
    "optional",
    "read",
    "write",
]

FORMAT = 1
# Rows in a batch unless told otherwise, as in sbi; the l-C2ST paper has 10,000.
BATCH = 200
FEWEST_ROWS = 20
# Rows that a network sees at a time when nothing is learned.
PIECE = 2**16


def optional(module: str, extra: str) -> Any:
    """Imports a module, or says which extra brings it."""
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
    bar = tqdm(desc=label, unit=" epochs", initial=len(run.losses), disable=None, leave=None)
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
            total = in_pieces(lambda *rows: loss(*rows).double(), *data).mean()
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
        write(path, tensors, {"training": self.identity, "losses": self.losses})

    def resume(self, path: Path) -> None:
        """Takes up a training where :meth:`save` left it."""
        tensors, header = read(path, "checkpoint", "training")
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


def given_or_global(generator: torch.Generator | None) -> torch.Generator:
    """The generator, or one that torch's global state seeds."""
    if generator is not None:
        return generator
    return torch.Generator().manual_seed(int(torch.randint(2**62, ())))


def in_pieces(function: Callable[..., Tensor], *arrays: Tensor) -> Tensor:
    """A function of rows, on pieces of about equal size that fit into memory."""
    pieces = math.ceil(len(arrays[0]) / PIECE)
    if pieces <= 1:
        return function(*arrays)
    split = (array.tensor_split(pieces) for array in arrays)
    return torch.cat([function(*rows) for rows in zip(*split, strict=True)])


def write(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Writes tensors, and a header in JSON, to a file of safetensors, whole or not at all."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path: expected a folder that exists; got {path.parent}.")
    content = {
        name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()
    }
    metadata = {"assay": json.dumps({"format": FORMAT, **header})}
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(optional("safetensors.torch", "demo").save(content, metadata))
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read(path: Path, name: str, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads tensors and header of a file of some kind, named so in messages."""
    safetensors = optional("safetensors", "demo")
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
