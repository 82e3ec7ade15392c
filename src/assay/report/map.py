"""The map: the observations at their x, among some of the calibration's own.

Coordinates are entries of x where there are at most two, or else the first two principal
components of standardised entries, over all points that are shown; others can be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plots._shapes import COMPONENTS, components
from .words import clipped, listed, literal, number, probability, rounded

if TYPE_CHECKING:
    from ..interpret.verdict import Verdict

# The symbol and the colour of every verdict.
VERDICTS = {
    "rejected": ("x", "@rejected"),
    "passed": ("circle", "@passed"),
    "inconclusive": ("triangle-up", "@inconclusive"),
    "outside": ("square-open", "@outside"),
}
# Columns of tables that are p-values.
CHANCES = ("p-value", "corrected p", "adjusted", "classifier p")
# Entries of x that can be chosen as coordinates, observations whose labels are written on the map,
# and those that its words name, at most.
MOST_ENTRIES, MOST_LABELS, MOST_WORDS = 12, 10, 20


@dataclass(frozen=True, eq=False)
class Map:
    """The o observations of a check, and after them c of the calibration at which q was judged."""

    check: Verdict

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """Names, and one number for each observation, with shape (o + c,)."""
        x = self._with_context("x").reshape(len(self._with_context("pvalue")), -1).astype(float)
        names = _entries(self.check.local.x.shape[1:])[:MOST_ENTRIES]
        entries = dict(zip(names, x.T, strict=False))
        # Of one or two points there are no components to speak of.
        few = x.shape[1] <= 2 or len(x) < 3
        projected = {} if few else dict(zip(COMPONENTS, components(x).T, strict=True))
        return {**projected, **entries, "p-value": self._with_context("pvalue")}

    @property
    def words(self) -> str:
        """The map in words."""
        check = self.check
        rows = zip(check.labels, check.verdicts, check.local.pvalue, strict=True)
        each = (f"{label} {word} with p-value {probability(p)}" for label, word, p in rows)
        own = f"A map of {len(check.labels)} observations: {listed(each, MOST_WORDS)}."
        if check.context is None:
            return own
        names = check.context.verdicts
        counts = ", ".join(f"{names.count(kind)} {kind}" for kind in VERDICTS if kind in names)
        return f"{own} Of {len(names)} observations of the calibration, {counts}."

    @property
    def plain(self) -> dict[str, Any]:
        """The map as JSON can hold it."""
        labels, coordinates = self.check.labels, self.coordinates
        few = len(labels) <= MOST_LABELS
        return {
            "names": [literal(name) for name in coordinates],
            "columns": [rounded(column) for column in coordinates.values()],
            "lines": {str(len(coordinates) - 1): self.check.alpha},
            "count": len(labels),
            "text": self._texts,
            "labels": [literal(clipped(label)) for label in labels] if few else [],
            "groups": self._groups,
            "words": self.words,
        }

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
        labels = [literal(clipped(label, 40)) for label in check.labels]
        own = [_text(*row) for row in zip(labels, check.verdicts, check.table, strict=True)]
        if context is None:
            return own
        rows = zip(context.verdicts, context.table, strict=True)
        return own + [_text("an observation of the calibration", *row) for row in rows]

    def _with_context(self, name: str) -> np.ndarray:
        """An array of the local test, (o, ...), and that of the calibration after it."""
        own, context = np.asarray(getattr(self.check.local, name)), self.check.context
        return own if context is None else np.concatenate([own, getattr(context, name)])


def _entries(shape: tuple[int, ...]) -> list[str]:
    """Names of the entries of x."""
    return [f"x[{', '.join(map(str, at))}]" for at in np.ndindex(*shape)] if shape else ["x"]


def _text(label: str, verdict: str, row: dict[str, float]) -> str:
    lines = [
        f"{_heading(name)}: {probability(value) if name in CHANCES else number(value)}"
        for name, value in row.items()
    ]
    return "<br>".join([f"<b>{label}</b>", verdict, *lines])


def _heading(column: str) -> str:
    """What a column of a table says, in words."""
    return literal(column)
