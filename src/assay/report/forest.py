"""The forest plot: bias or width of every parameter, with stated bands over null bands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .traces import Figure, Trace, axis, layout, line, points, upright
from .words import between, brief, listed, number

if TYPE_CHECKING:
    from ..interpret.density_ratio import Estimate
    from ..interpret.verdict import Verdict

# Pixels of a row, and parameters that are drawn, the worst first.
ROW, MOST = 30, 12
# What an estimate is, and its bands.
BANDS = ("value", "lower", "upper", "null_lower", "null_upper")
# Where the second of two sources is drawn, below the first, and their symbols.
APART, SYMBOLS = 0.38, ("circle", "diamond-open")
# What is said of an estimate that is not wrong, and of one that is.
NOISE = ("within noise", "beyond noise")


@dataclass(frozen=True)
class Quantity:
    """What a forest plot shows of every parameter, and what that is if q is right.

    Its field of :class:`assay.interpret.effects.Effects`, and the label of the axis.
    """

    field: str
    title: str
    label: str
    right: float


BIAS = Quantity("bias", "Bias", "← low     bias / sd     high →", 0.0)
WIDTH = Quantity("dispersion", "Width", "← narrow     width     wide →", 1.0)


def forest(check: Verdict, which: int, quantity: Quantity) -> Figure:
    """One number of every parameter at one observation, by truths near x_o and by classifier."""
    both = {"near x_o": check.effects, "by the classifier": check.classifier_effects}
    estimates: dict[str, Estimate] = {
        source: getattr(effects, quantity.field)[which]
        for source, effects in both.items()
        if effects is not None
    }
    worst = check.effects[which].worst[:MOST]
    estimates = {source: _some(estimate, worst) for source, estimate in estimates.items()}
    names = tuple(check.effects.names[j] for j in worst)
    rows, ends = np.arange(len(names), dtype=float), (len(names) - 0.4, -0.6)
    ticks = {
        "tickvals": rows.tolist(),
        "ticktext": [brief(name) for name in names],
    }
    across = axis(quantity.label, _span(estimates, quantity.right), zeroline=False, nticks=6)
    up = axis("", ends, showgrid=False, zeroline=False, **ticks)
    return Figure(
        _traces(estimates, rows),
        layout(across, up, upright(quantity.right), height=80 + ROW * max(3, len(names))),
        f"{quantity.title} near x_o: {_words(estimates['near x_o'], names)}.",
    )


def _some(estimate: Estimate, which: np.ndarray) -> Estimate:
    """Some of the parameters."""
    parts = {name: part for name, part in vars(estimate).items() if part is not None}
    return replace(estimate, **{name: part[which] for name, part in parts.items()})


def _traces(estimates: dict[str, Estimate], rows: np.ndarray) -> tuple[Trace, ...]:
    """All that is drawn of each source, one above the other where there are two."""
    shifts = [0.0] if len(estimates) == 1 else [-APART / 2, APART / 2]
    parts = zip(estimates.items(), shifts, SYMBOLS, strict=False)
    return tuple(
        trace
        for (source, estimate), shift, symbol in parts
        for trace in _source(estimate, rows + shift, source, symbol)
    )


def _source(estimate: Estimate, rows: np.ndarray, source: str, symbol: str) -> list[Trace]:
    """Null bands as bars, and estimates with their stated bands."""
    bars = _sticks(estimate.null_lower, estimate.null_upper, rows, "@envelope", 9)
    bars |= {"name": "95 % null", "showlegend": symbol == SYMBOLS[0]}
    stated = [
        _sticks(estimate.lower[some], estimate.upper[some], rows[some], colour, 1.5)
        for colour, some in (("@curve", estimate.wrong), ("@ink", ~estimate.wrong))
        if some.any()
    ]
    colours = ["@curve" if wrong else "@ink" for wrong in estimate.wrong]
    dots = points(estimate.value, rows, source, color=colours, size=8, symbol=symbol)
    dots |= {"text": _texts(estimate), "key": "@ink"}
    dots["hovertemplate"] = "%{text}<extra>%{fullData.name}</extra>"
    return [bars, *stated, dots]


def _sticks(
    lower: np.ndarray, upper: np.ndarray, rows: np.ndarray, colour: str, width: float
) -> Trace:
    """Lines from one end to the other, in one trace, with nothing between them."""
    x = np.stack([lower, upper, np.full(len(rows), np.nan)], 1)
    drawn = line(x, np.repeat(rows, 3), "", color=colour, width=width)
    return drawn | {"hoverinfo": "skip", "hovertemplate": None, "showlegend": False}


def _texts(estimate: Estimate) -> list[str]:
    """What is said of each estimate under the pointer."""
    rows = zip(*(getattr(estimate, field) for field in (*BANDS, "wrong")), strict=True)
    return [
        f"{number(value)} ({between(lower, upper)})<br>{NOISE[int(wrong)]}: {between(low, high)}"
        for value, lower, upper, low, high, wrong in rows
    ]


def _words(estimate: Estimate, names: tuple[str, ...]) -> str:
    """An estimate of every parameter, in words."""
    each = zip(names, estimate.value, estimate.lower, estimate.upper, estimate.wrong, strict=True)
    return listed(
        f"{name} {number(value)} ({between(lower, upper)}), {NOISE[int(wrong)]}"
        for name, value, lower, upper, wrong in each
    )


def _span(estimates: dict[str, Estimate], right: float) -> tuple[float, float]:
    """Where all bands and what is right have room."""
    parts = [getattr(estimate, field) for estimate in estimates.values() for field in BANDS]
    ends = np.concatenate([[right], *parts])
    ends = ends[np.isfinite(ends)]
    room = 0.06 * np.ptp(ends)
    return float(ends.min() - room), float(ends.max() + room)
