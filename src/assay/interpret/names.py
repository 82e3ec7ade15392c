"""Names of parameters: TeX as people read it, where nothing typesets it."""

import re

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "varsigma sigma tau upsilon phi chi psi omega"
).split()
LETTERS = {name: chr(0x3B1 + i) for i, name in enumerate(GREEK)}
LETTERS |= {name.capitalize(): letter.upper() for name, letter in LETTERS.items()}
LETTERS |= {"varepsilon": "ε", "vartheta": "ϑ", "varphi": "φ", "ell": "ℓ", "infty": "∞"}
LETTERS |= {"cdot": "·", "times": "×", "star": "*", "dagger": "†", "prime": "′"}
LOW = str.maketrans("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")
HIGH = str.maketrans("0123456789+-=()nij", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱʲ")
INDEX = re.compile(r"([_^])(?:\{([^{}]*)\}|(\S))")


def readable(name: str) -> str:
    r"""A name with what stands between dollars as Unicode; other names as they are.

    Example:
        >>> readable(r"$\theta_{12}$"), readable(r"$\log_{10} \dot{M}$"), readable("a_1 in $")
        ('θ₁₂', 'log₁₀ M', 'a_1 in $')
    """
    return re.sub(r"\$([^$]+)\$", lambda found: _unicode(found[1]), name)


def _unicode(text: str) -> str:
    text = re.sub(r"\\([A-Za-z]+)", lambda found: _command(found[1]), text)
    text = INDEX.sub(_moved, text)
    return re.sub(r"[{}\\]", "", text).strip()


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
    known = all(letter == " " or ord(letter) in table for letter in index)
    return moved if known else f"{found[1]}{index}"
