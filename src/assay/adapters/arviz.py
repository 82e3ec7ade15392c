"""Draws for ArviZ, by their names; :mod:`assay.data.tables` reads what ArviZ has."""

from collections.abc import Sequence
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
    of_q = given.theta if isinstance(given, Draws) else given.theta_q
    if given.theta is None or of_q is None:
        raise ValueError("given: expected draws of q in parameter space; got none.")
    theta, x, draws = (part.cpu().numpy() for part in (given.theta, given.x, of_q))
    each, names = ("chain", "draw"), given.names
    # Arrays by name, and the names of their first dimensions.
    groups: dict[str, tuple[dict[str, np.ndarray], tuple[str, ...]]]
    if isinstance(given, Draws):
        many = ("observation",) * (draws.ndim - 2)
        posterior = draws.swapaxes(0, 1)[None] if many else draws[None]
        groups = {
            "posterior": (variables(posterior, names), (*each, *many)),
            "observed_data": ({"x": x}, many),
        }
    else:
        posterior = draws.swapaxes(0, 1)[None]
        groups = {
            "posterior": (variables(posterior, names), (*each, "simulation")),
            "prior": (variables(theta[None], names), each),
            "prior_predictive": ({"x": x[None]}, each),
        }
    sets = {}
    for group, (arrays, dims) in groups.items():
        sets[group] = xarray.Dataset(
            {
                name: ((*dims, *(f"{name}_dim_{i}" for i in range(array.ndim - len(dims)))), array)
                for name, array in arrays.items()
            }
        )
    if hasattr(arviz, "InferenceData"):
        return arviz.InferenceData(**sets)
    return xarray.DataTree.from_dict(sets)


def variables(array: np.ndarray, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """Variables (..., shape) of columns (..., m): those of one name and all indices are one.

    Example:
        >>> parts = variables(np.zeros((5, 3)), ("mu", "beta[0]", "beta[1]"))
        >>> {name: array.shape for name, array in parts.items()}
        {'mu': (5,), 'beta': (5, 2)}
    """
    if names is None:
        return {"theta": array}
    columns: dict[str, list[int]] = {}
    for j, name in enumerate(names):
        columns.setdefault(name.partition("[")[0], []).append(j)
    parts: dict[str, np.ndarray] = {}
    for name, places in columns.items():
        given = [names[j] for j in places]
        last = given[-1][len(name) :].strip("[]").split(", ")
        shape = tuple(int(part) + 1 for part in last) if all(map(str.isdigit, last)) else ()
        if list(Layout(((name, shape),)).names) == given:
            parts[name] = array[..., places].reshape((*array.shape[:-1], *shape))
        else:  # several variables
            parts |= {names[j]: array[..., j] for j in places}
    return parts
