"""A check of four parameters, made to what a check of many would be."""

from dataclasses import fields, is_dataclass, replace

import numpy as np

FOUR, PAIRS = 4, 6


def spread(part, m):
    """Arrays with an axis of parameters, or of pairs of them, with more of them, which repeat."""
    if is_dataclass(part):
        own = {f.name: getattr(part, f.name) for f in fields(part)}
        return replace(part, **{name: spread(one, m) for name, one in own.items()})
    if not isinstance(part, np.ndarray):
        return part
    for axis in range(part.ndim - 1, max(-1, part.ndim - 3), -1):
        if part.shape[axis] == FOUR:
            return part.take(np.arange(m) % FOUR, axis)
        if part.shape[axis] == PAIRS:
            return part.take(np.arange(m * (m - 1) // 2) % PAIRS, axis)
    return part


def widened(check, m):
    """The same check at m parameters, in what tells of single parameters."""
    names = tuple(f"parameter {j}" for j in range(m))
    parts = ("bias", "dispersion", "correlation", "intervals", "sizes", "truths", "drawn")
    found = check.effects
    wide = replace(found, names=names, **{k: spread(getattr(found, k), m) for k in parts})
    return replace(check, names=names, effects=wide, detectable=detectable(check.detectable, m))


def detectable(found, m):
    """Detectable errors of four parameters, as of m."""
    curves = []
    for kind in ("shift", "too wide", "too narrow"):
        own = [curve for curve in found.curves if curve.error.kind == kind]
        each = (own[j % FOUR] for j in range(m))
        curves += [replace(c, error=type(c.error)(j)) for j, c in enumerate(each)]
    fading = [curve for curve in found.curves if curve.error.kind == "fading shift"]
    return replace(found, curves=(*curves, *fading))
