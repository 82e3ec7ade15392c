"""Figures at one observation: null, effects, PP-plot, pairs, PITs and power."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..curves import PPCurve, pp_curve
from ..effects import Effects
from ..findings import Findings
from ..ratios import Estimate
from ..results import LocalResult
from .traces import HEIGHT, Figure, axis, band, level, line, named, points, upright
from .words import between, clipped, literal, number, probability, rounded, share

__all__ = ["Observed"]

# Draws and parameters of a pair plot, and points in all of its panels together, at most; draws in
# those of all observations together, at most, but so many in each.
MOST_DRAWS, MOST_PARAMETERS, MOST_POINTS = 600, 6, 6000
MOST_STORED, FEWEST_DRAWN = 10_000, 100
# Bins of marginal distributions, and the least range of probabilities around 1/2.
BINS, LEAST_RANGE = 24, 0.05
# Pixels of a panel of a pair plot, and of a row of a forest plot.
PANEL, ROW = 150, 30

# Takes edges of bands at all observations, and how to choose among several, to one edge.
Shaped = Callable[[np.ndarray, Callable[..., np.ndarray]], np.ndarray]


@dataclass(frozen=True, eq=False)
class Observed:
    """The figures of every observation.

    Args:
        found: What was found.
    """

    found: Findings

    def figures(self, which: int) -> dict[str, Figure]:
        """All figures at one observation that can be drawn, by name."""
        makers: dict[str, Callable[[int], Figure | None]] = {
            "null": self.null,
            "bias": self.bias,
            "width": self.width,
            "pp": self.pp,
            "pits": self.pits,
            "power": self.power,
            "pairs": self.pairs,
        }
        made = {name: make(which) for name, make in makers.items()}
        return {name: figure for name, figure in made.items() if figure is not None}

    @property
    def scored(self) -> LocalResult | None:
        """Draws of q with probabilities, of the classifier or else of the test that decides."""
        if self.found.classified is not None:
            return self.found.classified
        return self.found.local if isinstance(self.found.local, LocalResult) else None

    @property
    def weighted(self) -> Effects | None:
        """Effects that come with weights of the draws, of the same test."""
        if self.found.ratio is not None:
            return self.found.ratio
        return self.found.effects if self.found.effects.weights is not None else None

    @cached_property
    def pp_curves(self) -> PPCurve | None:
        """PP-curves at all observations; None where no nulls were fitted."""
        if self.scored is None or self.scored.null_probabilities is None:
            return None
        return pp_curve(self.scored, self.found.alpha)

    @cached_property
    def pit_curves(self) -> PPCurve | None:
        """Local PIT curves at all observations; None where there are none."""
        return None if self.found.pits is None else self.found.pits.bands(self.found.alpha)

    @cached_property
    def reach(self) -> float:
        """The largest distance of a probability from 1/2 at any observation, rounded up."""
        assert self.scored is not None
        far = float(np.abs(self.scored.probabilities - 0.5).max())
        return min(0.5, max(LEAST_RANGE, float(np.ceil(20 * far) / 20)))

    @cached_property
    def shown(self) -> np.ndarray:
        """Which draws a pair plot shows: evenly spaced ones, at most so many."""
        assert self.scored is not None
        s, m = self.scored.draws.shape[-2:]
        m = min(m, MOST_PARAMETERS)
        stored = max(FEWEST_DRAWN, MOST_STORED // len(self.found.labels))
        most = min(s, MOST_DRAWS, stored, MOST_POINTS // max(1, m * (m - 1) // 2))
        return np.unique(np.linspace(0, s - 1, most).round().astype(int))

    def null(self, which: int) -> Figure:
        """The null of the test that decides, with the observed statistic."""
        local, alpha = self.found.local, self.found.alpha
        null, value = local.null[which], float(local.statistic[which])
        threshold = float(np.quantile(null, 1 - alpha))
        count = min(30, max(5, round(1.5 * len(null) ** 0.5))) if np.ptp(null) > 0 else 1
        heights, edges = np.histogram(null, count)
        p = probability(float(local.pvalue[which]))
        bars = {
            "type": "bar",
            "x": rounded((edges[1:] + edges[:-1]) / 2),
            "y": heights.tolist(),
            "width": rounded(np.diff(edges)),
            "marker": {"color": "@band", "line": {"width": 0}},
            "name": f"{len(null)} nulls",
            "hovertemplate": "%{y} nulls near %{x:.3~g}<extra></extra>",
        }
        return Figure(
            (
                bars,
                _key(f"{share(1 - alpha)} of the null", "@ink", "dash"),
                _key("observed", "@curve", "solid"),
            ),
            {
                "xaxis": axis("statistic"),
                "yaxis": axis("null copies", rangemode="tozero"),
                "shapes": [
                    upright(threshold),
                    upright(value, "@curve", "solid")
                    | {"line": {"color": "@curve", "width": 2.5}},
                ],
                "bargap": 0,
                "height": HEIGHT,
            },
            f"Histogram of {len(null)} null statistics, {share(1 - alpha)} of which lie below "
            f"{number(threshold)}. The observed statistic is {number(value)}, p = {p}.",
        )

    def bias(self, which: int) -> Figure:
        """Bias of every parameter."""
        label = "← low     bias / sd     high →"
        return self._forest(which, "bias", label, 0.0)

    def width(self, which: int) -> Figure:
        """Width of every parameter."""
        label = "← narrow     width     wide →"
        return self._forest(which, "dispersion", label, 1.0)

    def pp(self, which: int) -> Figure | None:
        """The PP-plot of the classifier."""
        if self.pp_curves is None:
            return None
        curve, ideal = self.pp_curves, np.array([0, 0.5, 0.5, 1])
        bands = self._bands(curve, _steps(curve.levels), lambda edge, _: _held(edge[which]))
        p = probability(float(curve.pvalue[which]))
        step = line(curve.levels, curve.ecdf[which], "draws of q at x_o", color="@curve", width=2)
        step["line"]["shape"] = "hv"
        return Figure(
            # Both bands have the same abscissa, which is stored once.
            (
                *(one | {"x": 0} for one in bands),
                line(ideal, np.array([0, 0, 1, 1]), "if q = p", **DASHED),
                step,
            ),
            {
                "xaxis": axis("probability of class 0 (q)", (0, 1)),
                "yaxis": axis("share of draws below", (0, 1.01)),
                "height": HEIGHT,
            },
            f"PP-plot: the distribution of class probabilities at the draws of q. The curve as a "
            f"whole has p = {p}; {_side(curve.levels, curve.ecdf[which])}.",
            (bands[0]["x"],),
        )

    def pits(self, which: int) -> Figure | None:
        """Local PIT curves of every coordinate."""
        curve, found = self.pit_curves, self.found.pits
        if curve is None or found is None:
            return None
        grid = np.concatenate([[0], curve.levels, [1]])
        bands = self._bands(curve, grid, lambda edge, far: _closed(far(edge[which], axis=0)))
        names = self.coordinates
        lines = np.stack([_closed(one) for one in curve.ecdf[which]])
        each = [
            f"{name} p = {probability(float(p))}"
            for name, p in zip(names, found.pvalues[which], strict=True)
        ]
        return Figure(
            (*bands, line(grid[[0, -1]], grid[[0, -1]], "if q = p", **DASHED))
            + tuple(named(grid, lines, names, grid)),
            {
                "xaxis": axis("level", (0, 1)),
                "yaxis": axis("share of truths below, near x_o", (0, 1.01)),
                "height": HEIGHT,
            },
            f"Local PIT curves: {'; '.join(each[:12])}.",
        )

    def _bands(self, curve: PPCurve, grid: np.ndarray, shaped: Shaped) -> list[dict[str, Any]]:
        """The simultaneous band and above it the pointwise one, their edges shaped to the grid."""
        kinds = (("envelope_", "whole curve", "@envelope"), ("", "each level", "@band"))
        return [
            band(
                grid,
                shaped(getattr(curve, f"{kind}lower"), np.min),
                shaped(getattr(curve, f"{kind}upper"), np.max),
                f"{share(1 - curve.alpha)} null, {words}",
                colour,
            )
            for kind, words, colour in kinds
        ]

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the PITs: those of the parameters where they are parameters."""
        assert self.found.pits is not None
        given, names = self.found.pits.names, self.found.names
        if not given[0].startswith("theta[") or len(given) != len(names):
            return given
        return names

    def power(self, which: int) -> Figure | None:
        """Rejection rates against the size of planted errors."""
        seen = self.found.seen
        if seen is None:
            return None
        traces, words = [], []
        for curve, colour in zip(
            seen.curves, ("@curve", "@blue", "@green", "@pink"), strict=False
        ):
            one = curve[which]
            name = literal(curve.error.name)
            grid = np.geomspace(curve.sizes[0] / 2, curve.sizes[-1] * 1.1, 60)
            traces += [
                line(grid, one.fitted(grid), name, color=colour, width=2),
                points(curve.sizes, one.rates, name, color=colour, size=6) | {"showlegend": False},
            ]
            if np.isfinite(one.mde):
                at = np.array([float(one.mde)]), np.array([seen.target])
                mark = points(*at, f"{name}: {number(float(one.mde))}", color=colour, size=12)
                mark["marker"] |= {"symbol": "diamond", "line": {"color": "@paper", "width": 1}}
                traces.append(mark | {"showlegend": False})
            words.append(one.words())
        return Figure(
            tuple(traces),
            {
                "xaxis": axis("size of the error", type="log", dtick="D2", tickformat="~g"),
                "yaxis": axis(f"rejection rate at {self.found.alpha:g}", (0, 1.03)),
                "shapes": [level(seen.target), level(seen.curves[0].level, "@band", "dot")],
                "height": HEIGHT,
            },
            f"Power: with probability {seen.target:g} the test would have seen "
            f"{' or '.join(words)}.",
        )

    def pairs(self, which: int) -> Figure | None:
        """Draws of q, coloured by the probability of being a truth."""
        if self.scored is None:
            return None
        theta = self.scored.draws if self.scored.theta is None else self.scored.theta
        m = min(theta.shape[-1], MOST_PARAMETERS)
        d, names = self.scored.probabilities[which], self.found.names[:m]
        columns = theta[which, :, :m].T
        dots = tuple(rounded(column[self.shown]) for column in columns)
        traces: list[dict[str, Any]] = []
        layout: dict[str, Any] = {"height": 90 + PANEL * max(2, m)}
        for row in range(m):
            traces += self._marginal(which, columns[row], row * m + row)
            layout |= self._panel(names, row, row)
            for column in range(row):
                layout |= self._panel(names, row, column)
                traces.append(_cloud(column, row, row * m + column, len(dots)))
        low, high = (d < 0.5).mean(), (d > 0.5).mean()
        colours = rounded(d[self.shown], 3)
        return Figure(
            tuple(traces),
            layout | {"coloraxis": self._scale},
            f"Pair plot of {len(self.shown)} draws of q in {', '.join(names)}. By the classifier, "
            f"q has too much mass at {share(low)} of its draws and too little at {share(high)}; "
            f"probabilities of being a truth run from {number(float(d.min()))} to "
            f"{number(float(d.max()))}.",
            (*dots, colours),
        )

    @property
    def _scale(self) -> dict[str, Any]:
        """The same colours in all figures, with 1/2 in the middle."""
        colours = [[0, "@much"], [0.5, "@middle"], [1, "@little"]]
        ends = {"cmin": 0.5 - self.reach, "cmax": 0.5 + self.reach}
        return {"colorscale": colours, **ends, "showscale": False}

    def _panel(self, names: tuple[str, ...], row: int, column: int) -> dict[str, Any]:
        """The axes of one panel, in a triangle without gaps that are not needed."""
        m, gap = len(names), 0.03 / len(names) * 2
        suffix = "" if not row * m + column else str(row * m + column + 1)
        low, up = column / m + gap, 1 - (row + 1) / m + gap
        outer_x, outer_y = row == m - 1, column == 0 and row > 0
        x = axis(literal(clipped(names[column], 14)) if outer_x else "")
        y = axis(literal(clipped(names[row], 14)) if outer_y else "")
        anchors = (f"y{suffix}", f"x{suffix}")
        # Panels of one column share their abscissa, and those of one row their ordinate.
        if row != column:
            first = column * m + column
            x["matches"] = f"x{'' if not first else first + 1}"
        if 0 < column < row:
            y["matches"] = f"y{row * m + 1}"
        spans = ([low, (column + 1) / m - gap], [up, 1 - row / m - gap])
        return {
            f"{kind}axis{suffix}": given
            | {"anchor": anchor, "domain": span, "showticklabels": outer, "nticks": 4}
            for kind, given, anchor, span, outer in zip(
                "xy", (x, y), anchors, spans, (outer_x, outer_y), strict=True
            )
        }

    def _marginal(self, which: int, column: np.ndarray, at: int) -> list[dict[str, Any]]:
        """The distribution of a parameter under q, and as the weights correct it."""
        edges = np.linspace(column.min(), column.max() + 1e-12, BINS + 1)
        kinds = [("q", None, "@ink", 1.2)]
        if self.weighted is not None and self.weighted.weights is not None:
            kinds.append(
                ("corrected by the classifier", self.weighted.weights[which], "@green", 2)
            )
        suffix = "" if not at else str(at + 1)
        return [
            line(edges, _heights(column, edges, weights), name, color=colour, width=width)
            | {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
            | {"line": {"color": colour, "width": width, "shape": "hv"}}
            for name, weights, colour, width in kinds
        ]

    def _forest(self, which: int, kind: str, label: str, right: float) -> Figure:
        """One number of every parameter: null bands, stated bands and estimates."""
        sources = [("near x_o", self.found.effects)]
        if self.found.ratio is not None:
            sources.append(("by the classifier", self.found.ratio))
        names = self.found.effects.names
        rows = np.arange(len(names), dtype=float)
        traces: list[dict[str, Any]] = []
        for i, (source, effects) in enumerate(sources):
            estimate: Estimate = getattr(effects, kind)[which]
            # One above the other where there are two.
            shifted = rows + (0.0 if len(sources) == 1 else 0.38 * i - 0.19)
            traces += _estimates(estimate, shifted, source, ("circle", "diamond-open")[i])
        bands = [getattr(effects, kind)[which] for _, effects in sources]
        ticks = {"tickvals": rows.tolist(), "ticktext": [literal(clipped(name)) for name in names]}
        span = (len(names) - 0.4, -0.6)
        return Figure(
            tuple(traces),
            {
                "xaxis": axis(label, _span(bands, right), zeroline=False, nticks=6),
                "yaxis": axis("", span, showgrid=False, zeroline=False, **ticks),
                "shapes": [upright(right)],
                "height": 80 + ROW * max(3, len(names)),
            },
            f"{'Bias' if kind == 'bias' else 'Width'} near x_o: "
            f"{_said(getattr(self.found.effects, kind)[which], names)}.",
        )


DASHED = {"color": "@ink", "dash": "dash", "width": 1}


def _key(name: str, colour: str, dash: str) -> dict[str, Any]:
    """An entry of the legend for a line that is a shape."""
    nothing = np.array([np.nan])
    return line(nothing, nothing, name, color=colour, dash=dash, width=2)


def _estimates(
    estimate: Estimate, rows: np.ndarray, source: str, symbol: str
) -> list[dict[str, Any]]:
    """Null bands as bars, and estimates with their stated bands."""
    colours = ["@curve" if wrong else "@ink" for wrong in estimate.wrong]
    x, null = np.full((len(rows), 3), np.nan), np.full((len(rows), 3), np.nan)
    null[:, 0], null[:, 1] = estimate.null_lower, estimate.null_upper
    bars = line(null, np.repeat(rows, 3), f"95 % null, {source}", color="@envelope", width=9)
    x[:, 0], x[:, 1] = estimate.lower, estimate.upper
    bars |= {"hoverinfo": "skip", "hovertemplate": None, "showlegend": symbol == "circle"}
    bars["name"] = "95 % null"
    sticks = [
        line(x[some], np.repeat(rows[some], 3), "", color=colour, width=1.5)
        | {"hoverinfo": "skip", "hovertemplate": None, "showlegend": False}
        for colour in ("@curve", "@ink")
        if (some := np.array([c == colour for c in colours])).any()
    ]
    dots = points(estimate.value, rows, source, color=colours, size=8, symbol=symbol)
    dots["text"] = [
        f"{number(v)} ({between(a, b)})<br>{'beyond' if w else 'within'} noise: "
        f"{between(low, high)}"
        for v, a, b, low, high, w in zip(
            estimate.value,
            estimate.lower,
            estimate.upper,
            estimate.null_lower,
            estimate.null_upper,
            estimate.wrong,
            strict=True,
        )
    ]
    dots["key"] = "@ink"
    dots["hovertemplate"] = "%{text}<extra>%{fullData.name}</extra>"
    return [bars, *sticks, dots]


def _span(estimates: list[Estimate], right: float) -> tuple[float, float]:
    """Where all bands and what is right have room."""
    parts = ("value", "lower", "upper", "null_lower", "null_upper")
    ends = [right, *(float(v) for e in estimates for part in parts for v in getattr(e, part))]
    room = 0.06 * (max(ends) - min(ends))
    return min(ends) - room, max(ends) + room


def _said(estimate: Estimate, names: tuple[str, ...]) -> str:
    """An estimate of every parameter, in words."""
    each = zip(names, estimate.value, estimate.lower, estimate.upper, estimate.wrong, strict=True)
    return "; ".join(
        f"{name} {number(v)} ({between(a, b)}), {'beyond' if w else 'within'} noise"
        for name, v, a, b, w in list(each)[:12]
    )


def _side(levels: np.ndarray, ecdf: np.ndarray) -> str:
    """Where the draws lie, in words."""
    below = float(ecdf[np.searchsorted(levels, 0.5)])
    return (
        f"{share(below)} of the draws lie where the classifier says that q has too little mass "
        f"and {share(1 - below)} where it has too much"
    )


def _cloud(x: int, y: int, at: int, colours: int) -> dict[str, Any]:
    """One panel of draws; x, y and colours are columns of the figure."""
    suffix = "" if not at else str(at + 1)
    said = "%{x:.3~g}, %{y:.3~g}<br>P(truth) = %{marker.color:.3f}<extra></extra>"
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": y,
        "xaxis": f"x{suffix}",
        "yaxis": f"y{suffix}",
        "marker": {"color": colours, "coloraxis": "coloraxis", "size": 4},
        "hovertemplate": said,
    }


def _heights(column: np.ndarray, edges: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Densities over bins, with the last one twice, as steps ask for."""
    found, _ = np.histogram(column, edges, weights=weights, density=True)
    return np.append(found, found[-1])


def _steps(levels: np.ndarray) -> np.ndarray:
    """Levels of a step function, each but the first twice."""
    return np.asarray(np.repeat(levels, 2)[1:])


def _held(values: np.ndarray) -> np.ndarray:
    """Values of a step function, each but the last twice."""
    return np.asarray(np.repeat(values, 2)[:-1])


def _closed(curve: np.ndarray) -> np.ndarray:
    """A curve with its known ends."""
    return np.concatenate([[0.0], curve, [1.0]])
