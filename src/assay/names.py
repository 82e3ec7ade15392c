"""Names of parameters: TeX as people read it, where nothing typesets it."""

import re
import unicodedata

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "varsigma sigma tau upsilon phi chi psi omega"
).split()
LETTERS = {name: chr(0x3B1 + i) for i, name in enumerate(GREEK)}
LETTERS |= {name.capitalize(): letter.upper() for name, letter in LETTERS.items()}
LETTERS |= {"varepsilon": "ε", "vartheta": "ϑ", "varphi": "φ", "ell": "ℓ", "infty": "∞"}
LETTERS |= {"to": "→", "odot": "⊙", "langle": "⟨", "rangle": "⟩", "pm": "±", "partial": "∂"}
# Accents stand behind their letter.
LETTERS |= {"dot": "\u0307", "ddot": "\u0308", "hat": "\u0302", "bar": "\u0304", "tilde": "\u0303"}
ACCENTED = re.compile(r"([\u0302-\u0308])\s*\{?(\w)\}?")
STYLED = re.compile(r"\\(?:mathrm|mathbf|mathcal|text|boldsymbol)\s*\{([^{}]*)\}")
LETTERS |= {"cdot": "·", "times": "×", "star": "*", "dagger": "†", "prime": "′"}
LOW = str.maketrans("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")
HIGH = str.maketrans("0123456789+-=()nij", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱʲ")
# Letters of an index that can still be read as small as that.
SHORT = 4
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
    if name in LETTERS:
        return LETTERS[name]
    return name if name in {"log", "exp", "ln", "sin", "cos", "max", "min"} else ""


def _moved(found: re.Match[str]) -> str:
    """An index below or above the line, as far as there are letters for it."""
    table = LOW if found[1] == "_" else HIGH
    index = found[2] if found[2] is not None else found[3]
    moved = index.translate(table)
    known = all(letter == " " or ord(letter) in table for letter in index) and len(index) <= SHORT
    return moved if known else f"{found[1]}{index}"
