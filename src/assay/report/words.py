"""Words and numbers as the report prints them."""

import math
import re
from collections.abc import Callable, Iterable
from html import escape

import numpy as np

from ..names import readable, shorten
from ..printing import number as three_digits
from ..printing import probability

# Letters of a name that fit beside a figure, and things of a kind that words tell, at most.
LETTERS, MOST = 16, 12


def number(value: float) -> str:
    """A number with about three digits, and a minus as long as a plus.

    Example:
        >>> number(-0.12345), number(12345.0), number(float("inf"))
        ('−0.123', '12345', 'none')
    """
    if math.isinf(value):
        return "none"
    if math.isnan(value):
        return "–"
    shown = f"{value:.3f}" if abs(value) < 10 else three_digits(value)
    return shown.replace("-0.000", "0.000").replace("-", "\u2212")


def short(value: float) -> str:
    """A number with two decimals.

    Example:
        >>> short(-0.12345), short(12345.0)
        ('−0.12', '12345')
    """
    if not math.isfinite(value) or abs(value) >= 10:
        return number(value)
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "\u2212")


def between(lower: float, upper: float, number: Callable[[float], str] = number) -> str:
    """Two ends of a band.

    Example:
        >>> between(-0.1, 0.25), between(2.0, float("inf"))
        ('−0.100 to 0.250', 'above 2.000')
    """
    if math.isnan(lower):
        return "–"
    if math.isinf(lower) or math.isinf(upper):
        return f"below {number(upper)}" if math.isinf(lower) else f"above {number(lower)}"
    return f"{number(lower)} to {number(upper)}"


def share(value: float) -> str:
    """A share as a percentage.

    Example:
        >>> share(0.9)
        '90 %'
    """
    return f"{100 * value:.3g} %"


def listed(parts: Iterable[str], most: int = MOST) -> str:
    """The first of some parts of a sentence.

    Example:
        >>> listed(["a = 1", "b = 2"])
        'a = 1; b = 2'
    """
    return "; ".join(list(parts)[:most])


def each_pvalue(names: Iterable[str], pvalues: np.ndarray) -> str:
    """The p-value of each name.

    Example:
        >>> each_pvalue(["a", "b"], np.array([0.5, 0.001]))
        'a p = 0.500; b p = 0.001'
    """
    pairs = zip(names, pvalues, strict=True)
    return listed(f"{readable(name)} p = {probability(float(p))}" for name, p in pairs)


def brief(name: str, most: int = LETTERS) -> str:
    r"""A name beside a figure, as it is read, or both of its ends.

    Example:
        >>> brief("amplitude of mode 12"), brief(r"$\log_{10} M$")
        ('amplitude…de 12', 'log₁₀ M')
    """
    return literal(shorten(readable(name), most))


def literal(name: str) -> str:
    """A name that Plotly shows as it is read, though it reads tags and entities itself.

    TeX becomes Unicode: MathJax, which would typeset it, is not in the page.

    Example:
        >>> literal("<b>x</b> & y")
        '&lt;b&gt;x&lt;/b&gt; &amp; y'
    """
    name = readable(name)
    return escape(re.sub(r"[\s\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]+", " ", name), quote=False)


def rounded(values: np.ndarray, digits: int = 4) -> list[float | None]:
    """Numbers with as many digits as can be seen; None where there is none.

    Example:
        >>> rounded(np.array([0.123456, 1e4, np.nan]), 3)
        [0.123, 10000.0, None]
    """
    short = (float(f"{value:.{digits}g}") for value in np.asarray(values, float).ravel())
    return [value if math.isfinite(value) else None for value in short]
