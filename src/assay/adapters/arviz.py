"""Draws for ArviZ, by their names; :mod:`assay.data.tables` reads what ArviZ has."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._support.inputs import extra
from ..data.calibration import Calibration
from ..data.draw import Draws
from ..data.tables import Layout


def inference_data(given: Calibration | Draws) -> Any:
    """Draws as ArviZ's InferenceData; as a DataTree where ArviZ has no other.

    Args:
        given: Draws at x_o, which become `posterior`, and x_o `observed_data`; many observations
            have a dimension of their own. Or a calibration: draws of q become `posterior`, with a
            dimension for the simulations, true parameters `prior`, and x `prior_predictive`.

    Variables have the names of the parameters, ``theta`` where there are none; ``beta[0]`` and
    ``beta[1]`` become one variable ``beta``.
    """
    with extra("arviz"):
        import arviz
        import xarray
    if given.theta is None or isinstance(given, Calibration) and given.theta_q is None:
        raise ValueError("given: expected draws of q in parameter space; got none.")
    parts = _of_draws(given) if isinstance(given, Draws) else _of_calibration(given)
    groups = {}
    for group, (arrays, dims) in parts.items():
        named = {
            name: ((*dims, *(f"{name}_dim_{i}" for i in range(array.ndim - len(dims)))), array)
            for name, array in arrays.items()
        }
        groups[group] = xarray.Dataset(named)
    if hasattr(arviz, "InferenceData"):
        return arviz.InferenceData(**groups)
    return xarray.DataTree.from_dict(groups)


# Arrays by name, and the names of their first dimensions.
_Group = tuple[Mapping[str, np.ndarray], tuple[str, ...]]


def _of_draws(given: Draws) -> dict[str, _Group]:
    """Draws (s, m) or (o, s, m), and x (...,) or (o, ...)."""
    assert given.theta is not None
    theta = given.theta.cpu().numpy()
    many = ("observation",) * (theta.ndim - 2)
    theta = theta.swapaxes(0, 1)[None] if many else theta[None]
    return {
        "posterior": (variables(theta, given.names), ("chain", "draw", *many)),
        "observed_data": ({"x": given.x.cpu().numpy()}, many),
    }


def _of_calibration(given: Calibration) -> dict[str, _Group]:
    """True parameters (n, m), observations (n, ...) and draws (n, k, m)."""
    assert given.theta_q is not None
    theta, x, theta_q = (a.cpu().numpy() for a in (given.theta, given.x, given.theta_q))
    each = ("chain", "draw")
    return {
        "posterior": (variables(theta_q.swapaxes(0, 1)[None], given.names), (*each, "simulation")),
        "prior": (variables(theta[None], given.names), each),
        "prior_predictive": ({"x": x[None]}, each),
    }


def variables(array: np.ndarray, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """Variables (..., shape) of columns (..., m): those of one name and all indices are one.

    Example:
        >>> parts = variables(np.zeros((5, 3)), ("mu", "beta[0]", "beta[1]"))
        >>> {name: array.shape for name, array in parts.items()}
        {'mu': (5,), 'beta': (5, 2)}
    """
    if names is None:
        return {"theta": array}
    own: dict[str, list[int]] = {}
    for j, name in enumerate(names):
        own.setdefault(name.partition("[")[0], []).append(j)
    parts: dict[str, np.ndarray] = {}
    for name, columns in own.items():
        shape = _shape(name, [names[j] for j in columns])
        if shape is None:
            parts |= {names[j]: array[..., j] for j in columns}
        else:
            parts[name] = array[..., columns].reshape((*array.shape[:-1], *shape))
    return parts


def _shape(name: str, names: list[str]) -> tuple[int, ...] | None:
    """The shape of a variable whose columns have these names; None if they are several."""
    last = names[-1][len(name) :].strip("[]").split(", ")
    if last == [""]:
        return () if names == [name] else None
    shape = tuple(int(part) + 1 for part in last) if all(map(str.isdigit, last)) else ()
    return shape if list(Layout(((name, shape),)).names) == names else None
