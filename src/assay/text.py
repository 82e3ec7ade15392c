"""A verdict as text, as a table and as plain values.

One observation takes at most 16 lines: the answer, a table of the worst parameters, the context
and the next step. Many observations are counted, and take a line each, the most urgent first.
"""

import math
from itertools import product
from typing import Any

import numpy as np

from .answers.rows import Row
from .printing import as_frame, equals, laid_out, readable, shorten, wrapped
from .verdict import COLUMNS, OUTSIDE, REJECTED, VERDICTS, Verdict

# Lines on many observations, and on a single one, at most.
MOST_LINES, MOST_OF_ONE = 32, 16
# Parameters in a table, and letters of their names there, at most.
MOST_PARAMETERS, LETTERS = 8, 12
# The ends of a number in names; columns of a table, and what is right in each, where coverage is
# that of 90 % intervals.
ENDS = "", "_lower", "_upper"
HEADINGS = ("mean of q - true, sd", "width q / true", "90 % interval holds")
RIGHT = dict(zip(COLUMNS, (0.0, 1.0, 90.0), strict=True))


def text(found: Verdict, most: int = MOST_LINES) -> str:
    """What was found, for a terminal; of many observations so many lines at most."""
    step = wrapped(f"Next: {found.next_step(found.urgency[0])}", "  ")
    lines = _one(found, step) if len(found) == 1 else _many(found, most)
    return "\n".join([*lines, *(wrapped(remark, "  ") for remark in found.remarks), step])


def _one(found: Verdict, step: str) -> list[str]:
    """The answer, a table as long as there is room above the next step, and the context."""
    head = wrapped(found.headline(), "  ")
    if found.verdicts[0] == OUTSIDE:
        return [head]
    like = f"x_o is like the simulations (p {equals(float(found.typical.pvalue[0]))})."
    foot = wrapped(" ".join([like, *found.context]), "  ")
    for most in range(MOST_PARAMETERS, 0, -1):
        lines = [head, "", _table(found, most), "", foot]
        if "\n".join([*lines, step]).count("\n") < MOST_OF_ONE:
            break
    return lines


def _many(found: Verdict, most: int) -> list[str]:
    """A line that counts, and a line for each observation, the most urgent first."""
    words, rows = found.verdicts, []
    for i in found.urgency[:most]:
        p = "–" if words[i] == OUTSIDE else equals(float(found.pvalue[i])).lstrip("= ")
        rows.append([found.labels[i], f" {words[i]}", p, found.reason(i)])
    counts = ", ".join(f"{words.count(word)} {word}" for word in VERDICTS if word in words)
    pairs = f"{found.nearest(0)} of {found.settings['n']} pairs; corrected p"
    table = laid_out(["", " verdict", "p", pairs], rows, left=2, clip_last=True)
    lines = [wrapped(f"Of {len(found)} observations: {counts}.", "  "), "", *table, ""]
    if len(found) > most:
        lines.append(f"... and {len(found) - most} more")
    return [*lines, wrapped(" ".join(found.context), "  ")] if found.context else lines


def _table(found: Verdict, most: int) -> str:
    """Means, widths and coverage of the worst parameters, and other wrong rows, of one x_o."""
    wrong, order = found.wrong(), found.worst_parameters(0)
    chosen, rest = sorted(order[:most]), order[most:]
    names = [readable(found.names[j]) for j in chosen]
    short = [shorten(name, LETTERS) for name in names]
    names = short if len(set(short)) == len(names) else names
    cells = [[_cell(found, j, kind) for kind in COLUMNS] for j in chosen]
    rows = [[name, *row] for name, row in zip(names, cells, strict=True)]
    lines = laid_out(["parameter", *HEADINGS], rows)
    if rest:
        among = {row.parameters for row in wrong if row.kind in COLUMNS}
        count = len(among & {(found.names[j],) for j in rest})
        words = f"and {len(rest)} more" + (f", {count} of them wrong" if count else "")
        limits = found.limits(0, rest)
        lines.append(words if "nan" in limits else f"{words}: {limits}")
    if found.other_sentences():
        lines.append(f"Also: {'; '.join(found.other_sentences())}.")
    if found.verdicts[0] == REJECTED and not wrong:
        lines.append(f"No single number is wrong beyond its interval: {found.evidence(0)}.")
    if any(cell.endswith("*") for row in cells for cell in row):
        lines.append("* wrong. Intervals hold for all rows together with probability 0.95.")
    return "\n".join(wrapped(line, "  ") for line in lines)


def _cell(found: Verdict, j: int, kind: str) -> str:
    """A number with its interval, and a star where it is wrong."""
    parts = np.stack([getattr(found.bounds, kind + end)[0, j] for end in ENDS])
    value, lower, upper = 100 * parts[:, 1] if kind == "coverage" else parts
    if np.isnan(value + lower + upper):
        return "–"
    wrong = found.verdicts[0] == REJECTED and not lower <= RIGHT[kind] <= upper
    mark = " *" if wrong else "  "
    if kind == "coverage":
        return f"{value:.0f} % ({lower:.0f} to {upper:.0f}){mark}"
    return f"{value:.2f} ({lower:.2f} to {upper:.2f}){mark}"


def record(found: Verdict) -> dict[str, Any]:
    """All numbers and words as plain values, ready for JSON; what is not known is None."""
    observations = [
        {
            "label": found.labels[i],
            "verdict": word,
            "sentence": found.headline(i),
            "next_step": found.next_step(i),
            "pvalue": None if word == OUTSIDE else float(found.pvalue[i]),
            "pvalue_of_x_o": float(found.typical.pvalue[i]),
            "rows": [_plain_row(row) for row in found.bounds.rows[i]],
        }
        for i, word in enumerate(found.verdicts)
    ]
    return {
        "alpha": found.alpha,
        "tolerance": found.tolerance,
        "hypothesis": found.test.hypothesis,
        "parameters": list(found.names),
        "observations": observations,
        "over_all_x": found.over_all_x,
        "remarks": list(found.remarks),
        "settings": {key: _plain(value) for key, value in found.settings.items()},
    }


def frame(found: Verdict) -> Any:
    """One row for each observation, as a pandas frame; a list of dicts without pandas."""
    rows = []
    for i, word in enumerate(found.verdicts):
        row: dict[str, Any] = {"observation": found.labels[i], "verdict": word}
        row["pvalue"] = math.nan if word == OUTSIDE else float(found.pvalue[i])
        row |= {"pvalue_of_x_o": float(found.typical.pvalue[i]), "why": found.reason(i)}
        for kind, (j, name), end in product(("bias", "width"), enumerate(found.names), ENDS):
            number = getattr(found.bounds, kind + end)[i, j]
            row[f"{kind}{end}[{readable(name)}]"] = float(number)
        rows.append(row)
    return as_frame(rows)


def _plain_row(row: Row) -> dict[str, Any]:
    numbers = {name: getattr(row, name) for name in ("value", "lower", "upper", "right", "size")}
    return {"kind": row.kind, "parameters": list(row.parameters), **numbers}


def _plain(value: Any) -> Any:
    """A value that JSON knows."""
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
