"""Places: the observations on a map, among some of the calibration's own.

Coordinates are entries of x where there are at most two, or else the first two principal
components of standardised entries, over all points that are shown; others can be chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..findings import Findings
from .words import clipped, literal, number, probability, rounded

__all__ = ["SHAPES", "Places"]

# The shape and the colour of every verdict.
SHAPES = {
    "rejected": ("x", "@rejected"),
    "trusted": ("circle", "@trusted"),
    "untested": ("triangle-up", "@untested"),
    "not rejected": ("circle-open", "@blue"),
}
# Entries of x that can be chosen as coordinates, at most.
MOST_ENTRIES = 12
# Observations whose labels are written on the map, at most.
MOST_LABELS = 10


@dataclass(frozen=True, eq=False)
class Places:
    """The o observations, and after them those of the calibration at which q was judged.

    Args:
        found: What was found.
    """

    found: Findings

    @cached_property
    def x(self) -> np.ndarray:
        """Entries of all observations, with shape (o + c, d)."""
        own = np.asarray(self.found.local.x, float)
        own = own.reshape(len(self.found.labels), -1)
        if self.found.cloud is None:
            return own
        return np.concatenate([own, self.found.cloud.x.reshape(-1, own.shape[1]).astype(float)])

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """Names, and one number for each observation, with shape (o + c,)."""
        names = _entries(self.found.local.x.shape[1:])[:MOST_ENTRIES]
        entries = dict(zip(names, self.x.T, strict=False))
        parts = {} if self.x.shape[1] <= 2 else components(self.x)
        return {**parts, **entries, "p-value": self._joined("pvalue")}

    @property
    def words(self) -> str:
        """The map in words."""
        found = self.found
        each = [
            f"{label} {word} with p-value {probability(float(p))}"
            for label, word, p in zip(
                found.labels, found.verdicts, found.local.pvalue, strict=True
            )
        ]
        more = "" if found.cloud is None else f" {self._cloud_words}"
        return f"A map of {len(each)} observations: {'; '.join(each[:20])}.{more}"

    @property
    def _cloud_words(self) -> str:
        assert self.found.cloud is not None
        names = self.found.cloud.names
        counts = ", ".join(f"{names.count(kind)} {kind}" for kind in SHAPES if kind in names)
        return f"Of {len(names)} observations of the calibration, {counts}."

    @property
    def plain(self) -> dict[str, Any]:
        """The map as JSON can hold it."""
        coordinates = self.coordinates
        return {
            "names": [literal(name) for name in coordinates],
            "columns": [rounded(column) for column in coordinates.values()],
            "lines": {str(len(coordinates) - 1): self.found.alpha},
            "count": len(self.found.labels),
            "text": self._texts,
            "labels": self._labels,
            "groups": self._groups,
            "words": self.words,
        }

    @property
    def _labels(self) -> list[str]:
        few = len(self.found.labels) <= MOST_LABELS
        return [literal(clipped(label, 16)) for label in self.found.labels] if few else []

    @property
    def _groups(self) -> list[dict[str, Any]]:
        """Points of one kind each: those of the calibration first, so that they lie below."""
        o, cloud = len(self.found.labels), self.found.cloud
        parts = [] if cloud is None else [(cloud.names, o, "calibration: ")]
        parts.append((self.found.verdicts, 0, ""))
        return [
            {
                "name": f"{before}{kind}",
                "symbol": symbol,
                "color": colour,
                "faint": bool(before),
                "rows": [start + i for i, name in enumerate(names) if name == kind],
            }
            for names, start, before in parts
            for kind, (symbol, colour) in SHAPES.items()
            if kind in names
        ]

    @property
    def _texts(self) -> list[str]:
        """What is said of every observation under the pointer."""
        found, cloud = self.found, self.found.cloud
        own = [
            _text(literal(clipped(label, 40)), word, row)
            for label, word, row in zip(found.labels, found.verdicts, found.table, strict=True)
        ]
        if cloud is None:
            return own
        rows = zip(cloud.names, cloud.table, strict=True)
        return own + [_text("an observation of the calibration", *pair) for pair in rows]

    def _joined(self, name: str) -> np.ndarray:
        own = getattr(self.found.local, name)
        cloud = self.found.cloud
        return np.asarray(own if cloud is None else np.concatenate([own, getattr(cloud, name)]))


def components(x: np.ndarray) -> dict[str, np.ndarray]:
    """The first two principal components of standardised entries (n, d); none of too few points.

    Example:
        >>> found = components(np.array([[0.0, 1, 2], [1, 3, 4], [2, 5, 6]]))
        >>> list(found)
        ['first principal component of x', 'second principal component of x']
    """
    if len(x) < 3:
        return {}
    spread = x.std(0)
    table = (x - x.mean(0)) / np.where(spread > 0, spread, 1)
    directions = np.linalg.svd(table, full_matrices=False)[2][:2]
    # A direction's sign is arbitrary: its largest entry is made positive.
    largest = np.abs(directions).argmax(1)
    signs = np.sign(directions[np.arange(len(directions)), largest])
    names = (f"{which} principal component of x" for which in ("first", "second"))
    return dict(zip(names, (table @ (directions * signs[:, None]).T).T, strict=True))


def _entries(shape: tuple[int, ...]) -> list[str]:
    """Names of the entries of x."""
    return [f"x[{', '.join(map(str, at))}]" for at in np.ndindex(*shape)] if shape else ["x"]


def _text(label: str, word: str, row: dict[str, float]) -> str:
    chances = ("p-value", "adjusted", "classifier p")
    lines: Sequence[str] = [
        f"{_said(name)}: {probability(value) if name in chances else number(value)}"
        for name, value in row.items()
    ]
    return "<br>".join([f"<b>{label}</b>", word, *lines])


def _said(name: str) -> str:
    """What a column of a table says, in words."""
    kind = name.removeprefix("sees ")
    return f"would have seen, {kind}" if kind in ("shift", "too wide") else literal(name)
