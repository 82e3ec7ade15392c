"""Figures at one observation: null, effects, PP-plot, pairs, PITs and power."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..interpret.pp import pp_curve
from ..plots._shapes import bin_count, closed, mirrored, null_bands, size_grid
from ..results import LC2STResult, PPCurve, probability
from .correlation import correlation_figure
from .forest import BIAS, WIDTH, forest
from .near import near_figure
from .pairs import PairPlot
from .shares import shares_figure
from .traces import (
    COLOURS,
    Figure,
    Trace,
    axis,
    ideal,
    layout,
    level,
    line,
    named,
    null_band,
    points,
    upright,
)
from .words import each_pvalue, literal, number, rounded, share

if TYPE_CHECKING:
    from ..interpret.power import PowerCurve
    from ..interpret.verdict import Verdict

# The figures of an observation.
FIGURES = (
    *("near", "null", "bias", "width", "bias-shares", "width-shares", "correlation"),
    *("pp", "pits", "power", "pairs"),
)
# Colours of the null bands of a curve, the wider one first.
BANDS = ("@envelope", "@band")
# How far beyond the null copies a statistic is drawn, in their range.
FAR = 2.0
# Takes an edge of a band at all observations, and how to choose among several, to one edge.
Shaped = Callable[[np.ndarray, Callable[..., np.ndarray]], np.ndarray]


@dataclass(frozen=True, eq=False)
class ObservationFigures:
    """The figures of every observation of a check."""

    check: Verdict

    def at(self, which: int) -> dict[str, Figure]:
        """All figures at one observation that can be drawn, by name; none for one outside."""
        if self.check.outside(which):
            return {}
        effects = self.check.effects[which]
        figures = {
            "near": near_figure(effects),
            "null": self.null(which),
            "bias": forest(self.check, which, BIAS),
            "width": forest(self.check, which, WIDTH),
            "bias-shares": shares_figure(effects, BIAS),
            "width-shares": shares_figure(effects, WIDTH),
            "correlation": correlation_figure(effects),
            "pp": self.pp(which),
            "pits": self.pits(which),
            "power": self.power(which),
            "pairs": None if self.pair_plot is None else self.pair_plot.figure(which),
        }
        return {name: figure for name, figure in figures.items() if figure is not None}

    @property
    def scored(self) -> LC2STResult | None:
        """Draws of q with probabilities, of the classifier or else of the test that decides."""
        check = self.check
        result = check.local if check.classifier is None else check.classifier
        return result if isinstance(result, LC2STResult) else None

    @cached_property
    def pair_plot(self) -> PairPlot | None:
        """Pair plots at all observations; None where no draws have probabilities."""
        own, other = self.check.effects, self.check.classifier_effects
        weights = own.weights if other is None else other.weights
        result = self.scored
        if result is None:
            return None
        weights = None if self.noise else weights
        return PairPlot(result, self.check.names, weights, own.worst, self.noise)

    @property
    def noise(self) -> bool:
        """Whether the classifier knows nothing that shows, so that its pictures are of noise."""
        return self.check.health is not None and not self.check.health.learned

    @cached_property
    def pp_curves(self) -> PPCurve | None:
        """PP-curves at all observations; None where no nulls were fitted."""
        if self.scored is None or self.scored.null_probabilities is None:
            return None
        return mirrored(pp_curve(self.scored, self.check.alpha))

    @cached_property
    def pit_curves(self) -> PPCurve | None:
        """Local PIT curves at all observations; None where there are none."""
        return None if self.check.pits is None else self.check.pits.bands(self.check.alpha)

    def null(self, which: int) -> Figure:
        """The null of the test that decides, with the observed statistic."""
        local, held = self.check.local, 1 - self.check.alpha
        null, value = local.null[which], float(local.statistic[which])
        threshold, p = float(np.quantile(null, held)), probability(float(local.pvalue[which]))
        keys = (
            _key(f"{share(held)} of the null", color="@ink", dash="dash"),
            _key("observed", color="@curve", dash="solid"),
        )
        low, high = float(null.min()), float(null.max())
        # A statistic far beyond the nulls would press them together: an arrow points to it.
        end = high + FAR * (high - low)
        far = value > end
        span = low - 0.05 * (high - low), (end if far else max(high, value)) + 0.1 * (high - low)
        axes = axis("statistic", span), axis("null copies", rangemode="tozero")
        observed = upright(min(value, end), color="@curve", width=2.5)
        more: Trace = {"annotations": [_arrow(value, end)]} if far else {}
        return Figure(
            (_histogram(null), *keys),
            layout(*axes, upright(threshold), *([] if far else [observed]), bargap=0, **more),
            f"Histogram of {len(null)} null statistics, {share(held)} of which lie below "
            f"{number(threshold)}. The observed statistic is {number(value)}, p = {p}.",
        )

    def pp(self, which: int) -> Figure | None:
        """The PP-plot of the classifier."""
        curve = self.pp_curves
        if curve is None:
            return None
        # Bands are step functions: levels but the last stand twice, values but the first.
        levels = np.repeat(curve.levels, 2)[:-1]
        bands = _bands(curve, levels, lambda edge, _: np.repeat(edge[which], 2)[1:])
        style = {"color": "@curve", "width": 2, "shape": "vh"}
        drawn = line(curve.levels, curve.ecdf[which], "draws of q at x_o", **style)
        across = axis("probability of class 1 (the truth)", (0, 1))
        return Figure(
            # Both bands have the same abscissa, which is stored once.
            (*(one | {"x": 0} for one in bands), ideal([0, 0.5, 0.5, 1], [0, 0, 1, 1]), drawn),
            layout(across, axis("share of draws below", (0, 1.01))),
            "PP-plot: the distribution of class probabilities at the draws of q. The curve as a "
            f"whole has p = {probability(float(curve.pvalue[which]))}; {_sides(curve, which)}.",
            (bands[0]["x"],),
        )

    def pits(self, which: int) -> Figure | None:
        """Local PIT curves of every coordinate."""
        curve, result = self.pit_curves, self.check.pits
        if curve is None or result is None:
            return None
        grid, names = closed(curve.levels), self._coordinates(result.names)
        bands = _bands(curve, grid, lambda edge, far: closed(far(edge[which], axis=0)))
        lines = np.stack([closed(one) for one in curve.ecdf[which]])
        return Figure(
            (*bands, ideal([0, 1], [0, 1]), *named(grid, lines, names, grid)),
            layout(axis("level", (0, 1)), axis("share of truths below, near x_o", (0, 1.01))),
            f"Local PIT curves: {each_pvalue(names, result.pvalues[which])}.",
        )

    def _coordinates(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the PITs: those of the parameters where they are parameters."""
        theirs = given[0].startswith("theta[") and len(given) == len(self.check.names)
        return self.check.names if theirs else given

    def power(self, which: int) -> Figure:
        """Rejection rates against the size of planted errors."""
        detectable = self.check.detectable.weakest
        curves, target = [curve[which] for curve in detectable.curves], detectable.target
        traces = zip(curves, COLOURS[:4], strict=False)
        words = " or ".join(curve.words() for curve in curves)
        size = axis("size of the error", type="log", dtick="D2", tickformat="~g")
        rate = axis(f"rejection rate at {self.check.alpha:g}", (0, 1.03))
        by_chance = level(curves[0].level, color="@band", width=1, dash="dot")
        return Figure(
            tuple(trace for curve, colour in traces for trace in _rates(curve, colour, target)),
            layout(size, rate, level(target), by_chance),
            f"Power: with probability {target:g} the test detects {words}.",
        )


def _histogram(null: np.ndarray) -> Trace:
    heights, edges = np.histogram(null, bin_count(null))
    return {
        "type": "bar",
        "x": rounded((edges[1:] + edges[:-1]) / 2),
        "y": heights.tolist(),
        "width": rounded(np.diff(edges)),
        "marker": {"color": "@band", "line": {"width": 0}},
        "name": f"{len(null)} nulls",
        "hovertemplate": "%{y} nulls near %{x:.3~g}<extra></extra>",
    }


def _arrow(value: float, end: float) -> Trace:
    """An arrow at the end of an axis, with the number that lies beyond it."""
    colours = {"arrowcolor": "@curve", "font": {"color": "@curve"}}
    place = {"x": end, "y": 0.5, "yref": "paper", "ax": -60, "ay": 0, "xanchor": "right"}
    words = f"observed: {number(value)}"
    return {"text": words, "showarrow": True, "arrowhead": 2, "arrowwidth": 2, **place, **colours}


def _key(name: str, **style: str) -> Trace:
    """An entry of the legend for a line that is a shape."""
    nothing = np.array([np.nan])
    return line(nothing, nothing, name, **style, width=2)


def _bands(curve: PPCurve, grid: np.ndarray, shaped: Shaped) -> list[Trace]:
    """The simultaneous band and above it the pointwise one, their edges shaped to the grid."""
    return [
        null_band(grid, (shaped(lower, np.min), shaped(upper, np.max)), curve.alpha, held, colour)
        for (lower, upper, held), colour in zip(null_bands(curve), BANDS, strict=True)
    ]


def _sides(curve: PPCurve, which: int) -> str:
    """Where the draws lie, in words."""
    below = float(curve.ecdf[which][np.searchsorted(curve.levels, 0.5)])
    return (
        f"{share(below)} of the draws lie where the classifier says that q has too much mass "
        f"and {share(1 - below)} where it has too little"
    )


def _rates(curve: PowerCurve, colour: str, target: float) -> list[Trace]:
    """The fitted curve of an error at one observation, its rates, and what is detectable."""
    name, grid, mde = literal(curve.error.any.name), size_grid(curve.sizes, 60), float(curve.mde)
    fitted = line(grid, curve.fitted(grid), name, color=colour, width=2)
    others = [points(curve.sizes, curve.rates, name, color=colour, size=6)]
    if np.isfinite(mde):
        edge = {"color": "@paper", "width": 1}
        mark: Trace = {"color": colour, "size": 12, "symbol": "diamond", "line": edge}
        x, y = np.array([mde]), np.array([target])
        others.append(points(x, y, f"{name}: {number(mde)}") | {"marker": mark})
    return [fitted, *(one | {"showlegend": False} for one in others)]
