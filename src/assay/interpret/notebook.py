"""A check in a notebook: badges, a table, the null of each of the first observations, the verdict.

It is HTML with drawings in it: no scripts, no network, and no colour that needs a light page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from ..results import LocalResult, html_part, html_table, together

# White letters can be read on all of them, and all of them be seen on dark and on light.
COLOURS = {
    "rejected": "#c0392b",
    "passed": "#1e8449",
    "inconclusive": "#9a6a00",
    "outside": "#6b7280",
}
STYLE = (
    ".check .badge{color:#fff;border-radius:.7em;padding:.05em .6em;font-size:.9em}"
    ".check summary{cursor:pointer}"
    ".check td:nth-child(2),.check th:nth-child(2){text-align:left}"
    ".check svg{vertical-align:middle}"
)
# Observations whose nulls are drawn; the size of a drawing, and its bars.
MOST_DRAWN = 6
WIDTH, HEIGHT, BARS = 150, 34, 24
# How far beyond the null, in widths of it, a statistic is drawn where it is.
BEYOND = 1.5


@dataclass(frozen=True)
class Compact:
    """A small table of a check as words: observations, verdicts and numbers.

    Args:
        head, rows: Its headings and its rows.
        notes: What is tested, what its columns are, and what else there is to say.
    """

    head: list[str]
    rows: list[list[str]]
    notes: list[str]


def page(said: Sequence[str], compact: Compact, local: LocalResult) -> str:
    """A check as HTML: its statements, its table, and the result of the test that decides."""
    first, *others = (escape(together(each)) for each in said)
    tested, *notes = (escape(together(note)) for note in compact.notes)
    rows = [_row(row, local[i] if i < MOST_DRAWN else None) for i, row in enumerate(compact.rows)]
    table = html_table([*map(escape, compact.head), "null and x_o"], rows, tested)
    badges = " ".join(_counted([row[1] for row in compact.rows]))
    verdict = _folded(f"{badges} {first}", others, " open")
    return html_part(f"{verdict}{table}{_folded('Columns, and tests over all x', notes)}", STYLE)


def _folded(head: str, lines: list[str], how: str = "") -> str:
    """Lines that can be folded below the first."""
    inside = "".join(f"<p>{line}</p>" for line in lines)
    return f"<details{how}><summary>{head}</summary>{inside}</details>"


def badge(word: str, count: str = "") -> str:
    """A verdict on its colour."""
    return f'<span class="badge" style="background:{COLOURS[word]}">{count}{escape(word)}</span>'


def _counted(verdicts: list[str]) -> list[str]:
    """A badge for each kind of verdict, with its number where there are many."""
    words = [word for word in COLOURS if word in verdicts]
    if len(verdicts) == 1:
        return [badge(word) for word in words]
    return [badge(word, f"{verdicts.count(word)} ") for word in words]


def _row(cells: list[str], at: LocalResult | None) -> list[str]:
    """A row of the table, with a drawing where there is a result and something to say of it."""
    label, word, *numbers = cells
    figure = ""
    if at is not None and word != "outside":
        figure = drawing(at.null, float(at.statistic), word)
    return [escape(label), badge(word), *map(escape, numbers), figure]


def drawing(null: np.ndarray, statistic: float, word: str) -> str:
    """The null (H,) as bars, its 95 % quantile dashed, and the statistic as a line with a dot."""
    low, high = float(null.min()), float(null.max())
    width = max(high - low, 1e-12)
    at = min(max(statistic, low - BEYOND * width), high + BEYOND * width)
    left, right = min(low, at), max(high, at)

    def across(value: float) -> float:
        return 4 + (WIDTH - 8) * (value - left) / max(right - left, 1e-12)

    counts, edges = np.histogram(null, BARS, (low, low + width))
    tall = (HEIGHT - 6) * counts / counts.max()
    bars = "".join(
        f'<rect x="{across(a):.1f}" y="{HEIGHT - 2 - t:.1f}" '
        f'width="{max(0.5, across(b) - across(a) - 0.5):.1f}" height="{t:.1f}"/>'
        for a, b, t in zip(edges[:-1], edges[1:], tall, strict=True)
        if t
    )
    edge, line, colour = across(float(np.quantile(null, 0.95))), across(at), COLOURS[word]
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        "<title>null copies of the statistic, their 95 % quantile (dashed), and x_o</title>"
        f'<g fill="currentColor" fill-opacity="0.4">{bars}</g>'
        f'<path d="M{edge:.1f} 2V{HEIGHT - 2}" stroke="currentColor" stroke-dasharray="2 2"/>'
        f'<path d="M{line:.1f} 6V{HEIGHT - 2}" stroke="{colour}" stroke-width="2"/>'
        f'<circle cx="{line:.1f}" cy="5" r="3.5" fill="{colour}"/></svg>'
    )
