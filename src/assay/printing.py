"""Numbers, names, sentences and tables as text for a terminal, and tables as HTML for notebooks.

No line is longer than the terminal is wide. P-values never have an exponent.
"""

import math
import re
import shutil
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

Rows = Sequence[Mapping[str, float]]
Table = list[list[str]]  # rows of cells, the headings first

# Headings that say more than the names of columns.
HEADINGS = {"p-value": "p", "adjusted": "corrected p", "± MC error": "± error"}
LONGEST, SHORTEST = 40, 12  # letters of a label, and as few as it may be cut to
READABLE = 100  # letters of a line that are read with ease
NO_BREAK = "\u00a0"  # a space at which no line is broken
MOST_ROWS, MOST_HTML = 20, 60  # rows on a terminal and in a notebook; the others are counted
# Without colours of its own, so that it can be read on dark and on light.
STYLE = (
    ".assay table{border-collapse:collapse;margin:.3em 0;color:inherit;font-size:inherit}"
    ".assay caption{caption-side:top;text-align:left;opacity:.75;padding:.2em 0}"
    ".assay td,.assay th{text-align:right;padding:.15em .6em;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}"
    ".assay thead th{border-bottom:1px solid currentColor}"
    ".assay td:first-child,.assay th:first-child{text-align:left}"
    ".assay p{max-width:60em;margin:.3em 0}"
)


def number(value: float, digits: int = 3) -> str:
    """Some significant digits, without an exponent where that is readable."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-4 or abs(value) >= 1e6:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def percent(share: float) -> str:
    """A share in percent, with two significant digits."""
    return f"{number(100 * share, 2)} %"


def probability(p: float) -> str:
    """A p-value: three decimals, two digits where it is smaller, and never an exponent."""
    if math.isnan(p):
        return "–"
    if p < 1e-6:
        return "< 0.000001"
    if p >= 0.0095:
        return f"{p:.3f}" if p < 0.9995 else "1"
    return f"{p:.{1 - math.floor(math.log10(p))}f}".removesuffix("0")


def equals(p: float) -> str:
    """A p-value behind 'p': '= 0.005', or '< 0.000001'."""
    text = probability(p)
    return text if text.startswith("<") else f"= {text}"


def terminal_width() -> int:
    """The letters that fit in a line of the terminal; 80 where that is unknown."""
    return max(40, shutil.get_terminal_size((80, 24)).columns)


def wrapped(text: str, indent: str = "") -> str:
    """A sentence in lines that fit, those after the first indented."""
    how: dict[str, Any] = {"subsequent_indent": indent, "break_on_hyphens": False}
    width = min(terminal_width(), READABLE)
    return textwrap.fill(keep_units(text), width, **how).replace(NO_BREAK, " ")


def keep_units(text: str) -> str:
    """The same with blanks that are not broken between numbers and what belongs to them."""
    return re.sub(r"(?<=\d) (?=%|sd\b|± )|(?<=[±=<]) ", NO_BREAK, text)


def rows_of(columns: Mapping[str, Any]) -> list[dict[str, float]]:
    """Rows of a table from columns of the same length; a number is a column of one."""
    flat = {name: np.atleast_1d(values) for name, values in columns.items()}
    rows = zip(*flat.values(), strict=True)
    return [dict(zip(flat, map(float, row), strict=True)) for row in rows]


def as_frame(rows: list[dict[str, Any]]) -> Any:
    """Rows of a table as a pandas DataFrame; as they are where pandas is not installed."""
    try:
        from pandas import DataFrame
    except ModuleNotFoundError:
        return rows
    return DataFrame(rows)


def text_table(heading: str, labels: Sequence[str], rows: Rows) -> list[str]:
    """Lines of a table with a row of numbers for each label, of which the first are printed."""
    head, *cells = _cells(heading, labels, rows)
    more = [f"... and {len(rows) - MOST_ROWS} more"] if len(rows) > MOST_ROWS else []
    return [*laid_out(head, cells[:MOST_ROWS]), *more]


def html_table(
    heading: str, labels: Sequence[str], rows: Rows, caption: str, sentence: str
) -> str:
    """The same table for a notebook, with a caption above it and a sentence below."""
    head, *cells = _cells(heading, labels, rows)
    top = "</th><th>".join(map(escape, head))
    lines = ("</td><td>".join(map(escape, row)) for row in cells[:MOST_HTML])
    body = "".join(f"<tr><td>{line}</td></tr>" for line in lines)
    more = f"<p>... and {len(rows) - MOST_HTML} more</p>" if len(rows) > MOST_HTML else ""
    return html_part(
        f"<table><caption>{escape(caption)}</caption><thead><tr><th>{top}</th></tr></thead>"
        f"<tbody>{body}</tbody></table>{more}<p>{escape(keep_units(sentence))}</p>"
    )


def html_part(inside: str) -> str:
    """A part of a notebook, with its style."""
    return f'<div class="assay"><style>{STYLE}</style>{inside}</div>'


def _cells(heading: str, labels: Sequence[str], rows: Rows) -> Table:
    """P-values, counts or other numbers of each column as text, with headings and labels."""
    columns = [[heading, *labels]]
    for name in rows[0]:
        values = [row[name] for row in rows]
        known = [value for value in values if math.isfinite(value)]
        whole = all(abs(value - round(value)) < 1e-6 for value in known)
        if re.search(r"^p\b|\bp$|^adjusted$", name):
            cells = [probability(value) for value in values]
        elif whole and max(known, default=0) > 1:
            cells = [f"{value:.0f}" for value in values]
        else:
            cells = [number(value) for value in values]
        columns.append([HEADINGS.get(name, name), *(cell.replace("nan", "–") for cell in cells)])
    return [list(row) for row in zip(*columns, strict=True)]


def laid_out(
    head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, *, clip_last: bool = False
) -> list[str]:
    """Lines of a table, no longer than the terminal is wide; the first columns are flush left.

    Where it does not fit, the last column, which is words, is clipped, or the first of these that
    helps is done: headings in two lines, labels cut as long as they differ, rows for columns, or
    tables of fewer columns below each other.
    """
    width = terminal_width()
    table = [list(head), *([_clipped(label, LONGEST), *cells] for label, *cells in rows)]
    if clip_last:
        table = _with_cut_labels(table, width // 4)
        lines = _lines([row[:-1] for row in table], left)
        room = max(SHORTEST, width - max(map(len, lines)) - 2)
        words = [_clipped(row[-1], room) for row in table]
        return _lines([[line, end] for line, end in zip(lines, words, strict=True)], 2)
    folded = [*map(list, zip(*map(_folded, head), strict=True)), *table[1:]]
    spare = width - max(map(len, _lines(folded, left))) + max(len(row[0]) for row in folded)
    tried = [(table, left), (folded, left), (_with_cut_labels(folded, spare), left)]
    if len(table) < len(head):
        tried.append(([list(column) for column in zip(*table, strict=True)], 1))
    for cells, flush in tried:
        lines = _lines(cells, flush)
        if max(map(len, lines)) <= width:
            return lines
    return _pieces(_with_cut_labels(folded, width // 3), left, width)


def _pieces(table: Table, left: int, width: int) -> list[str]:
    """Lines of tables below each other of as many columns as fit, each with the labels."""
    for count in range(len(table[0]), 1, -1):
        lines = _lines([row[:count] for row in table], left)
        if max(map(len, lines)) <= width or count == 2:
            break
    rest = [[row[0], *row[count:]] for row in table]
    return [*lines, "", *_pieces(rest, 1, width)] if len(rest[0]) > 1 else lines


def _with_cut_labels(table: Table, room: int) -> Table:
    """The same with labels that are cut to what there is room for, as long as they differ."""
    labels = [_clipped(row[0], max(SHORTEST, room)) for row in table]
    if len(set(labels)) < len({row[0] for row in table}):
        return table
    return [[label, *row[1:]] for label, row in zip(labels, table, strict=True)]


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _folded(name: str) -> tuple[str, str]:
    """A name of many words in two parts, about as long; one word is the second part."""
    halves = [(name[:i], name[i + 1 :]) for i, letter in enumerate(name) if i and letter == " "]
    return min(halves, key=lambda both: max(map(len, both)), default=("", name))


def _lines(table: Table, left: int) -> list[str]:
    """Rows with columns of one width, the first ones flush left, the others flush right."""
    columns = []
    for j, column in enumerate(zip(*filter(any, table), strict=True)):
        width = max(map(len, column))
        columns.append([cell.ljust(width) if j < left else cell.rjust(width) for cell in column])
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


# Names of parameters: TeX as people read it, where nothing typesets it.

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "varsigma sigma tau upsilon phi chi psi omega"
).split()
TEX = {name: chr(0x3B1 + i) for i, name in enumerate(GREEK)}
TEX |= {name.capitalize(): letter.upper() for name, letter in TEX.items()}
TEX |= {"varepsilon": "ε", "vartheta": "ϑ", "varphi": "φ", "ell": "ℓ", "infty": "∞"}
TEX |= {"to": "→", "odot": "⊙", "langle": "⟨", "rangle": "⟩", "pm": "±", "partial": "∂"}
TEX |= {"cdot": "·", "times": "×", "star": "*", "dagger": "†", "prime": "′"}
TEX |= {name: name for name in ("log", "exp", "ln", "sin", "cos", "max", "min")}
TEX |= {"hat": "\u0302", "tilde": "\u0303", "bar": "\u0304", "dot": "\u0307", "ddot": "\u0308"}
LOW = str.maketrans("0123456789+-=()aehijklmnoprstuvx ", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ ")
HIGH = str.maketrans("0123456789+-=()nij ", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱʲ ")
LONG_INDEX = 4  # letters of an index that can still be read as small as that


def readable(name: str) -> str:
    r"""A name with what stands between dollars as Unicode; other names as they are.

    Example:
        >>> readable(r"$\theta_{12}$"), readable(r"$\log_{10} \dot{M}$"), readable("a_1 in $")
        ('θ₁₂', 'log₁₀ Ṁ', 'a_1 in $')
    """
    return re.sub(r"\$([^$]+)\$", lambda found: _unicode(found[1]), name)


def shorten(name: str, most: int) -> str:
    """A name of so many letters at most: both of its ends, where it has more."""
    tail = most // 3
    return name if len(name) <= most else f"{name[: most - tail - 1].rstrip()}…{name[-tail:]}"


def _unicode(text: str) -> str:
    """TeX as Unicode; commands that only style are left out."""
    text = re.sub(r"\\(?:mathrm|mathbf|mathcal|text|boldsymbol)\s*\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\[,;:! ]", " ", text)
    text = re.sub(r"\\([A-Za-z]+)", lambda found: TEX.get(found[1], ""), text)
    text = re.sub(r"([\u0302-\u0308])\s*\{?(\w)\}?", r"\2\1", text)  # accents come second
    text = re.sub(r"([_^])(?:\{([^{}]*)\}|(\S))", _moved, text)
    return unicodedata.normalize("NFC", re.sub(r"[{}\\]", "", text).strip())


def _moved(found: re.Match[str]) -> str:
    """An index below or above the line, as far as there are letters for it."""
    table, index = LOW if found[1] == "_" else HIGH, found[2] if found[3] is None else found[3]
    known = all(ord(letter) in table for letter in index) and len(index) <= LONG_INDEX
    return index.translate(table) if known else f"{found[1]}{index}"
