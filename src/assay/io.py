"""Calibrations, fitted tests and results to files and back: NumPy arrays and JSON, never pickle.

A file is an ``.npz`` archive: its arrays hold the numbers, and a JSON text named ``assay`` the
structure around them. Functions cannot be stored; an embedding or a flow must be given again when
a file that was made with one is loaded.
"""

import json
import os
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from . import statistics
from .bases import StandardNormal
from .classifiers.discriminant import LDA, QDA, Discriminants
from .classifiers.features import Fourier, Hermite
from .classifiers.frames import (
    Conditional,
    Known,
    Pooled,
    Quantities,
    Residuals,
    Standardised,
    Within,
)
from .classifiers.learned import Learned
from .classifiers.maps import Joint, JointMap, Product, ProductMap
from .classifiers.mlp import MLP, Networks
from .classifiers.ridge import Ridge, Surface, Surfaces
from .classifiers.scaling import Scaling
from .coordinates import Ranks, Whitened
from .curves import PPCurve
from .diagnostics.c2st import C2STResult
from .diagnostics.coverage import CoverageCurve, CoverageResult
from .diagnostics.divergence import DivergenceResult
from .diagnostics.lc2st import LC2ST
from .diagnostics.lhpd import LHPD, HPDResult
from .diagnostics.lpit import LPIT, PITResult
from .diagnostics.moments import Moments
from .diagnostics.region import Region
from .diagnostics.sbc import RankHistogram, SBCResult
from .diagnostics.tarp import TARPResult
from .effects import Effects, Reweighted
from .health import Health
from .levels import LevelCopies, Levels, Uniform
from .neighbourhoods import Distance, Nearest, Regressed, Smooth
from .nulls import (
    Exchange,
    FittedNull,
    FreePermutation,
    Joined,
    KnownBase,
    LocalExchange,
    LocalScores,
)
from .planted import Lost, Narrow, Shift, Skew, Wide
from .power import PowerCurve, PowerResult
from .ratios import Estimate
from .regressions.linear import Linear, Weighted
from .regressions.monotone import Mixtures, Monotone
from .results import (
    LocalResult,
    MomentResult,
    MomentTable,
    RegionCoverage,
    Separate,
    Strong,
    Tail,
    Weak,
)
from .samples import Calibration, Draws
from .scaling import Robust
from .surroundings import Surroundings
from .trust import TrustMap
from .tuned import Tuned
from .uniformity import Compared, RankCurve, UniformRanks
from .version import __version__
from .whole import whole

__all__ = ["load", "savable", "save"]

T = TypeVar("T")

FORMAT = 1
CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(Calibration, Draws, StandardNormal),
        *(Exchange, FittedNull, FreePermutation, Joined, KnownBase, LocalExchange, LocalScores),
        *(Distance, Surroundings, Separate, Strong, Weak),
        *(MLP, Networks, Robust, Scaling, Ridge, Surface, Surfaces, Learned),
        *(Joint, JointMap, Product, ProductMap, Conditional, Residuals, Pooled, Standardised),
        *(Known, Quantities, Within, QDA, LDA, Discriminants),
        *(C2STResult, LC2ST, LocalResult, PPCurve, DivergenceResult, Region, TrustMap, Health),
        *(Levels, LevelCopies, Uniform, LHPD, HPDResult, LPIT, PITResult),
        *(Linear, Weighted, Regressed, Monotone, Mixtures),
        *(SBCResult, RankCurve, RankHistogram, Compared, UniformRanks),
        *(CoverageResult, CoverageCurve, TARPResult),
        *(Moments, MomentResult, MomentTable, Nearest, Smooth, Whitened, Ranks, Hermite, Fourier),
        *(RegionCoverage, Tail, Effects, Estimate, Reweighted),
        *(PowerResult, PowerCurve, Shift, Wide, Narrow, Skew, Lost, Tuned),
    )
}
STATISTICS = {name: getattr(statistics, name) for name in statistics.__all__ if name.islower()}
# What a file cannot hold, and the argument of `load` that brings it back.
FOREIGN = ("base", "embed", "flow", "function", "statistic")


def savable(cls: type[T]) -> type[T]:
    """Lets the objects of a dataclass be saved.

    Args:
        cls: The class, whose fields can be saved.
    """
    CLASSES[cls.__name__] = cls
    return cls


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Saves a calibration, draws, a fitted test or null, or a result.

    The file appears whole or not at all.

    Args:
        obj: What to save.
        path: The file to write; the usual ending is ``.npz``.

    Example:
        >>> draws = Draws([0.5, 1.0], torch.zeros(100, 2))
        >>> path = Path(tempfile.mkdtemp()) / "draws.npz"
        >>> save(draws, path)
        >>> load(path)
        Draws(x=(2,), theta=(100, 2))
    """
    if type(obj).__name__ not in CLASSES:
        raise TypeError(
            f"obj: expected one of {', '.join(sorted(CLASSES))}; got {type(obj).__name__}."
        )
    arrays: dict[str, np.ndarray] = {}
    content = _encode(obj, "", arrays)
    header = {"format": FORMAT, "version": __version__, "content": content}
    arrays["assay"] = np.array(json.dumps(header))
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path: expected a folder that exists; got {target.parent}.")
    with whole(target) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: str | os.PathLike[str], **given: Any) -> Any:
    """Loads what :func:`save` wrote.

    Args:
        path: The file.
        given: What a file cannot hold, where it was made with it: `embed`, `flow`, a `base` other
            than the standard normal, a `statistic` that is not one of this library's, or the
            `function` of a :class:`~assay.classifiers.frames.Known` frame.
    """
    unknown = set(given) - set(FOREIGN)
    if unknown:
        raise TypeError(f"load: expected among {FOREIGN}; got {sorted(unknown)}.")
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop("assay")))
        content, form = header["content"], header["format"]
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, TypeError) as error:
        raise ValueError(f"path: expected a file that assay.save wrote; got {path}.") from error
    if form != FORMAT:
        raise ValueError(
            f"path: expected format {FORMAT}; got {form}, written by assay "
            f"{header.get('version')}. Install a version that reads it."
        )
    if "flow" in given:
        given = {"base": given["flow"].base, **given}
    return _decode(content, arrays, given)


def _encode(value: Any, key: str, arrays: dict[str, np.ndarray]) -> Any:
    """A JSON tree for a value; arrays are put aside under their place in the tree."""
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        tensor = isinstance(value, torch.Tensor)
        arrays[key] = value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        return {"tensor" if tensor else "array": key}
    if type(value) in CLASSES.values():
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        tree = {name: _encode(part, f"{key}/{name}", arrays) for name, part in parts.items()}
        return {"class": type(value).__name__, "fields": tree}
    if isinstance(value, dict):
        return {"dict": {k: _encode(v, f"{key}/{k}", arrays) for k, v in value.items()}}
    if isinstance(value, tuple | list):
        return {"tuple": [_encode(v, f"{key}/{i}", arrays) for i, v in enumerate(value)]}
    if value in STATISTICS.values():
        return {"statistic": value.__name__}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = key.rsplit("/", 1)[-1]
    if name in FOREIGN:
        return {"foreign": name}
    raise TypeError(
        f"obj{key.replace('/', '.')}: expected something that can be saved without pickle; got "
        f"{type(value).__name__}. Save its results instead."
    )


def _decode(tree: Any, arrays: dict[str, np.ndarray], given: dict[str, Any]) -> Any:
    if not isinstance(tree, dict):
        return tree
    (kind, content), *rest = tree.items()
    match kind:
        case "tensor":
            return torch.from_numpy(arrays[content])
        case "array":
            return arrays[content]
        case "dict":
            return {k: _decode(v, arrays, given) for k, v in content.items()}
        case "tuple":
            return tuple(_decode(v, arrays, given) for v in content)
        case "statistic":
            return STATISTICS[content]
        case "foreign":
            return _foreign(content, given)
    parts = {k: _decode(v, arrays, given) for k, v in tree["fields"].items()}
    return CLASSES[content](**parts)


def _foreign(name: str, given: dict[str, Any]) -> Any:
    if given.get(name) is None:
        raise ValueError(
            f"{name}: expected the one this file was made with, as load(path, {name}=...); a file "
            "cannot hold it."
        )
    return given[name]
