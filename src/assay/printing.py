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

# Headings that say more than the names of columns.
HEADINGS = {"p-value": "p", "adjusted": "corrected p", "± MC error": "± error"}
# Letters of a label: at most, and as few as it may be cut to.
LONGEST, SHORTEST = 40, 12
# Letters of a line that are read with ease, and a space at which no line is broken.
READABLE, NO_BREAK = 100, "\u00a0"
# Rows of a table on a terminal and in a notebook; the others are counted.
MOST_ROWS, MOST_HTML = 20, 60
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
    """Some significant digits, without an exponent where that is readable.

    Example:
        >>> number(0.0411), number(1234.5), number(0.612, 2)
        ('0.0411', '1234', '0.61')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-4 or abs(value) >= 1e6:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def percent(share: float) -> str:
    """A share in percent, with two significant digits.

    Example:
        >>> percent(0.2), percent(0.0512), percent(1.3)
        ('20 %', '5.1 %', '130 %')
    """
    return f"{number(100 * share, 2)} %"


def probability(p: float) -> str:
    """A p-value: three decimals, two digits where it is smaller, and never an exponent.

    Example:
        >>> probability(0.635), probability(0.005), probability(0.00012), probability(2.7e-304)
        ('0.635', '0.005', '0.00012', '< 0.000001')
    """
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
    width = min(terminal_width(), READABLE)
    how: dict[str, Any] = {"subsequent_indent": indent, "break_on_hyphens": False}
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
    head, cells = _head_and_cells(heading, labels, rows)
    more = [f"... and {len(rows) - MOST_ROWS} more"] if len(rows) > MOST_ROWS else []
    return [*laid_out(head, cells[:MOST_ROWS]), *more]


def html_table(
    heading: str, labels: Sequence[str], rows: Rows, caption: str, sentence: str
) -> str:
    """The same table for a notebook, with a caption above it and a sentence below."""
    head, cells = _head_and_cells(heading, labels, rows)
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in cells[:MOST_HTML])
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    more = f"<p>... and {len(rows) - MOST_HTML} more</p>" if len(rows) > MOST_HTML else ""
    return html_part(
        f"<table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{body}</tbody></table>{more}<p>{escape(keep_units(sentence))}</p>"
    )


def html_part(inside: str) -> str:
    """A part of a notebook, with its style."""
    return f'<div class="assay"><style>{STYLE}</style>{inside}</div>'


def _head_and_cells(
    heading: str, labels: Sequence[str], rows: Rows
) -> tuple[list[str], list[list[str]]]:
    columns = [_column_cells(name, [row[name] for row in rows]) for name in rows[0]]
    head = [heading, *(HEADINGS.get(name, name) for name in rows[0])]
    return head, [list(row) for row in zip(labels, *columns, strict=True)]


def _column_cells(name: str, values: Sequence[float]) -> list[str]:
    """The cells of one column: p-values, counts, or other numbers."""
    if re.search(r"^p\b|\bp$|^adjusted$", name):
        return [probability(value) for value in values]
    known = [value for value in values if math.isfinite(value)]
    whole = all(abs(value - round(value)) < 1e-6 for value in known) and max(known, default=0) > 1
    cells = [f"{value:.0f}" if whole else number(value) for value in values]
    return ["–" if math.isnan(value) else cell for value, cell in zip(values, cells, strict=True)]


def laid_out(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int = 1,
    *,
    clip_last: bool = False,
) -> list[str]:
    """Lines of a table, no longer than the terminal is wide; the first columns are flush left.

    Of a table that does not fit, the first of these that helps: headings in two lines, labels cut
    as long as they differ, rows for columns, or tables of fewer columns below each other. To clip
    the last column, which is words, comes before all of them.
    """
    table = [list(head), *([_clipped(label), *cells] for label, *cells in rows)]
    if clip_last:
        return _with_clipped_words(table, left)
    folded = [*map(list, zip(*map(_folded, head), strict=True)), *table[1:]]
    spare = terminal_width() - _width(folded) + max(len(row[0]) for row in folded)
    tried = [(table, left), (folded, left), (_with_cut_labels(folded, spare), left)]
    if len(table) < len(head):
        tried.append(([list(column) for column in zip(*table, strict=True)], 1))
    for cells, flush in tried:
        if _width(cells) <= terminal_width():
            return _lines(cells, flush)
    return _pieces(_with_cut_labels(folded, terminal_width() // 3), left)


def _pieces(table: list[list[str]], left: int) -> list[str]:
    """Lines of a table in pieces of as many columns as fit, each with the labels."""
    pieces = [[0]]
    for j in range(1, len(table[0])):
        wider = [[row[i] for i in (*pieces[-1], j)] for row in table]
        if len(pieces[-1]) > 1 and _width(wider) > terminal_width():
            pieces.append([0])
        pieces[-1].append(j)
    lines = []
    for piece in pieces:
        cells = [[row[j] for j in piece] for row in table]
        lines += ["", *_lines(cells, left if 1 in piece else 1)]
    return lines[1:]


def _with_clipped_words(table: list[list[str]], left: int) -> list[str]:
    """Lines whose last column is flush left, in what the others leave of the line."""
    table = _with_cut_labels(table, terminal_width() // 4)
    body = _lines([row[:-1] for row in table], left)
    width = max(map(len, body))
    room = max(SHORTEST, terminal_width() - width - 2)
    words = (_clipped(row[-1], room) for row in table)
    return [f"{line.ljust(width)}  {end}".rstrip() for line, end in zip(body, words, strict=True)]


def _with_cut_labels(table: list[list[str]], room: int) -> list[list[str]]:
    """The same with labels that are cut to what there is room for, as long as they differ."""
    labels = [_clipped(row[0], max(SHORTEST, room)) for row in table]
    if len(set(labels)) < len({row[0] for row in table}):
        return table
    return [[label, *row[1:]] for label, row in zip(labels, table, strict=True)]


def _clipped(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _folded(name: str) -> tuple[str, str]:
    """A name of many words in two parts, about as long; one word is the second part.

    Example:
        >>> _folded("simulations near x_o"), _folded("p")
        (('simulations', 'near x_o'), ('', 'p'))
    """
    blanks = [i for i, letter in enumerate(name) if letter == " " and i]
    if not blanks:
        return "", name
    middle = min(blanks, key=lambda i: max(i, len(name) - i - 1))
    return name[:middle], name[middle + 1 :]


def _width(table: list[list[str]]) -> int:
    """The letters of a line of a table, with two between columns."""
    columns = zip(*table, strict=True)
    return sum(2 + max(map(len, column)) for column in columns) - 2


def _lines(table: list[list[str]], left: int) -> list[str]:
    """Rows with columns of one width, the first ones flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in filter(any, table):
        sized = list(zip(row, widths, strict=True))
        cells = [cell.ljust(width) for cell, width in sized[:left]]
        cells += [cell.rjust(width) for cell, width in sized[left:]]
        lines.append("  ".join(cells).rstrip())
    return lines


# Names of parameters: TeX as people read it, where nothing typesets it.

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "varsigma sigma tau upsilon phi chi psi omega"
).split()
TEX = {name: chr(0x3B1 + i) for i, name in enumerate(GREEK)}
TEX |= {name.capitalize(): letter.upper() for name, letter in TEX.items()}
TEX |= {"varepsilon": "ε", "vartheta": "ϑ", "varphi": "φ", "ell": "ℓ", "infty": "∞"}
TEX |= {"to": "→", "odot": "⊙", "langle": "⟨", "rangle": "⟩", "pm": "±", "partial": "∂"}
# Accents stand behind their letter.
TEX |= {
    "dot": "\u0307",
    "ddot": "\u0308",
    "hat": "\u0302",
    "bar": "\u0304",
    "tilde": "\u0303",
}
ACCENTED = re.compile(r"([\u0302-\u0308])\s*\{?(\w)\}?")
STYLED = re.compile(r"\\(?:mathrm|mathbf|mathcal|text|boldsymbol)\s*\{([^{}]*)\}")
TEX |= {"cdot": "·", "times": "×", "star": "*", "dagger": "†", "prime": "′"}
LOW = str.maketrans("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")
HIGH = str.maketrans("0123456789+-=()nij", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱʲ")
# Letters of an index that can still be read as small as that.
LONG_INDEX = 4
INDEX = re.compile(r"([_^])(?:\{([^{}]*)\}|(\S))")


def readable(name: str) -> str:
    r"""A name with what stands between dollars as Unicode; other names as they are.

    Example:
        >>> readable(r"$\theta_{12}$"), readable(r"$\log_{10} \dot{M}$"), readable("a_1 in $")
        ('θ₁₂', 'log₁₀ Ṁ', 'a_1 in $')
    """
    return re.sub(r"\$([^$]+)\$", lambda found: _unicode(found[1]), name)


def shorten(name: str, most: int) -> str:
    """A name of so many letters at most: both of its ends, where it has more.

    Example:
        >>> shorten("amplitude of mode 12", 16), shorten("mu", 16)
        ('amplitude…de 12', 'mu')
    """
    tail = most // 3
    return name if len(name) <= most else f"{name[: most - tail - 1].rstrip()}…{name[-tail:]}"


def _unicode(text: str) -> str:
    text = re.sub(r"\\[,;:! ]", " ", STYLED.sub(r"\1", text))
    text = re.sub(r"\\([A-Za-z]+)", lambda found: _command(found[1]), text)
    text = INDEX.sub(_moved, ACCENTED.sub(r"\2\1", text))
    return unicodedata.normalize("NFC", re.sub(r"[{}\\]", "", text).strip())


def _command(name: str) -> str:
    """A letter, the name of a function, or nothing for a command that only styles."""
    if name in TEX:
        return TEX[name]
    return name if name in {"log", "exp", "ln", "sin", "cos", "max", "min"} else ""


def _moved(found: re.Match[str]) -> str:
    """An index below or above the line, as far as there are letters for it."""
    table = LOW if found[1] == "_" else HIGH
    index = found[2] if found[2] is not None else found[3]
    moved = index.translate(table)
    known = (
        all(letter == " " or ord(letter) in table for letter in index) and len(index) <= LONG_INDEX
    )
    return moved if known else f"{found[1]}{index}"
