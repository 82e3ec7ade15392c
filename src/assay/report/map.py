"""The map: the observations at their x, among simulated ones, and which of those are near.

Coordinates are entries of x where there are at most two, or else the first two principal
components of standardised entries of what was simulated; others can be chosen. Axes end where most
points lie, and what lies farther out is put at their edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plots._shapes import COMPONENTS, components
from ..results import number, probability
from .words import brief, listed, literal, rounded

if TYPE_CHECKING:
    from ..interpret.verdict import Verdict

# The symbol and the colour of every verdict.
VERDICTS = {
    "rejected": ("x", "@rejected"),
    "passed": ("circle", "@passed"),
    "inconclusive": ("triangle-up", "@inconclusive"),
    "outside": ("square-open", "@outside"),
}
# Entries of x that can be chosen as coordinates, observations whose labels are written on the map,
# and those that its words name, at most.
MOST_ENTRIES, MOST_LABELS, MOST_WORDS = 12, 10, 20
# How far beyond the quartiles an axis goes at most, in interquartile ranges.
FAR = 2.0


@dataclass(frozen=True, eq=False)
class Map:
    """The o observations of a check, then c at which q was judged besides, then s simulated."""

    check: Verdict

    @cached_property
    def _parts(self) -> list[np.ndarray]:
        """The observations of each kind, with shapes (o, d), (c, d) and (s, d).

        What is padded with NaN is in the middle.
        """
        check = self.check
        own = np.asarray(check.local.x, float).reshape(len(check.labels), -1)
        others = (None if p is None else p.x for p in (check.context, check.simulated))
        each = (own[:0] if x is None else np.asarray(x, float) for x in others)
        parts = [own, *(x.reshape(-1, own.shape[1]) for x in each)]
        middle = np.ma.masked_invalid(np.concatenate(parts)).mean(0).filled(0.0)
        return [np.where(np.isnan(part), middle, part) for part in parts]

    @cached_property
    def coordinates(self) -> dict[str, np.ndarray]:
        """Names, and one number for each observation, with shape (o + c + s,); or NaN."""
        x, shape = np.concatenate(self._parts), self.check.local.x.shape[1:]
        entries = dict(zip(_entries(shape)[:MOST_ENTRIES], x.T, strict=False))
        # Of one or two points there are no components to speak of.
        few = x.shape[1] <= 2 or len(x) < 3
        projected = {} if few else dict(zip(COMPONENTS, self._components(x).T, strict=True))
        return {**projected, **entries, "p-value": self._pvalues}

    def _components(self, x: np.ndarray) -> np.ndarray:
        """Components (o + c + s, 2) of what was simulated, whatever the observations are."""
        known = self._parts[2] if len(self._parts[2]) > 2 else x
        spread = known.std(0)
        table = (x - known.mean(0)) / np.where(spread > 0, spread, 1)
        own = (known - known.mean(0)) / np.where(spread > 0, spread, 1)
        return np.asarray(table @ np.linalg.lstsq(own, components(known))[0])

    @property
    def _pvalues(self) -> np.ndarray:
        """P-values (o + c + s,); of what lies outside, and was not judged, there are none."""
        judged = [part for part in (self.check.trust, self.check.context) if part is not None]
        known = [np.where(part.outside, np.nan, part.pvalue) for part in judged]
        return np.concatenate([*known, np.full(len(self._parts[2]), np.nan)])

    @property
    def words(self) -> str:
        """The map in words."""
        check = self.check
        each = (self._said(i) for i in range(len(check.labels)))
        own = f"A map of {len(check.labels)} observations: {listed(each, MOST_WORDS)}."
        if check.context is None:
            return own
        names = check.context.verdicts
        counts = ", ".join(f"{names.count(kind)} {kind}" for kind in VERDICTS if kind in names)
        return f"{own} Of {len(names)} observations of the calibration, {counts}."

    def _said(self, which: int) -> str:
        check = self.check
        p = probability(float(check.local.pvalue[which]))
        said = "" if check.outside(which) else f" with p-value {p}"
        return f"{check.labels[which]} {check.verdicts[which]}{said}"

    @property
    def plain(self) -> dict[str, Any]:
        """The map as JSON can hold it."""
        labels, coordinates = self.check.labels, self.coordinates
        few, last = len(labels) <= MOST_LABELS, len(coordinates) - 1
        columns = list(coordinates.values())
        return {
            "names": [literal(name) for name in coordinates],
            "columns": [rounded(column) for column in columns],
            "ends": [*map(_ends, columns[:-1]), [_least(columns[-1], self.check.alpha), 1.0]],
            "logarithmic": last,
            "line": self.check.alpha,
            "count": len(labels),
            "text": self._texts,
            "labels": [brief(label) for label in labels] if few else [],
            "groups": self._groups,
            "simulated": list(range(len(columns[0]) - len(self._parts[2]), len(columns[0]))),
            "near": self._near,
            "words": self.words,
        }

    @property
    def _near(self) -> list[list[int]]:
        """The simulated observations that are near each; none is near what lies outside."""
        check, first = self.check, len(self._parts[0]) + len(self._parts[1])
        if check.simulated is None:
            return [[] for _ in check.labels]
        inside = ~check.trust.outside[:, None]
        return [(first + np.flatnonzero(row)).tolist() for row in check.simulated.near & inside]

    @property
    def _groups(self) -> list[dict[str, Any]]:
        """Points of one kind each: those of the calibration first, so that they lie below."""
        context, start = self.check.context, len(self.check.labels)
        parts = [] if context is None else [(context.verdicts, start, "calibration: ")]
        parts.append((self.check.verdicts, 0, ""))
        return [
            {
                "name": f"{before}{kind}",
                "symbol": symbol,
                "color": colour,
                "faint": bool(before),
                "rows": [start + i for i, name in enumerate(names) if name == kind],
            }
            for names, start, before in parts
            for kind, (symbol, colour) in VERDICTS.items()
            if kind in names
        ]

    @property
    def _texts(self) -> list[str]:
        """What is said of every observation under the pointer."""
        check, context = self.check, self.check.context
        labels = [brief(label, 40) for label in check.labels]
        own = [_text(*row) for row in zip(labels, check.verdicts, check.table, strict=True)]
        if context is None:
            return own
        rows = zip(context.verdicts, context.table, strict=True)
        return own + [_text("a simulated observation", *row) for row in rows]


def _entries(shape: Sequence[int]) -> list[str]:
    """Names of the entries of x."""
    return [f"x[{', '.join(map(str, at))}]" for at in np.ndindex(*shape)] if shape else ["x"]


def _ends(column: np.ndarray) -> list[float | None]:
    """Both ends of where most of a column (n,) lie."""
    low, high = np.quantile(column, [0.25, 0.75])
    # Where half of the numbers are the same, nothing is known of the others.
    room = FAR * (high - low) or np.inf
    most = column[(column >= low - room) & (column <= high + room)]
    return rounded(np.array([most.min(), most.max()]))


def _least(pvalues: np.ndarray, alpha: float) -> float:
    """The smallest p-value that is drawn."""
    return float(np.nanmin([alpha, *pvalues]))


def _text(label: str, verdict: str, row: dict[str, float]) -> str:
    """What is known of an observation, with two digits; of one outside, how many are near."""
    known = [name for name in row if verdict != "outside" or name == "simulations near"]
    shown = (f"{literal(name)}: {_number(name, row[name])}" for name in known)
    return "<br>".join([f"<b>{label}</b>", verdict, *shown])


def _number(name: str, value: float) -> str:
    shown = f"{value:.0f}" if name == "simulations near" else number(value, 2)
    return shown.replace("inf", "none")
