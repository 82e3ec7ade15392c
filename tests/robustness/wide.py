"""A check of four parameters at two observations, made to what one of many would be."""

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


def lengthened(check, o):
    """The same check at o observations, which repeat the two that it has."""
    labels = tuple(f"observation {i}" for i in range(o))
    parts = ("local", "detectable", "trust", "effects", "simulated", "pits")
    return replace(check, labels=labels, **{k: _repeated(getattr(check, k), o) for k in parts})


def _repeated(part, o):
    if isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str):
        return tuple(part[i % 2] for i in range(o))
    if isinstance(part, tuple):
        return tuple(_repeated(one, o) for one in part)
    if is_dataclass(part):
        own = {f.name: getattr(part, f.name) for f in fields(part)}
        return replace(part, **{name: _repeated(one, o) for name, one in own.items()})
    rows = isinstance(part, np.ndarray) and part.ndim and len(part) == 2
    return part[np.arange(o) % 2] if rows else part
