"""Names of parameters as people read them; and names in the sources, which are plain words."""

import ast
import re
from pathlib import Path

import pytest

import assay
from assay.printing import readable

SOURCES = Path(assay.__file__).parent
# Words of no identifier: participles and metaphors that do not say what a thing is.
WORDS = set(
    "told said shown seen drawn judged landed foreign ripples stand standing planted".split()
)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("plain_1", "plain_1"),
        (r"$\alpha$", "α"),
        (r"$\Omega_m$", "Ωₘ"),
        (r"rate $\lambda^{2}$ / s", "rate λ² / s"),
        (r"$x_{\mathrm{obs}}$", "x_obs"),
        (r"$\sigma_{8,z}$", "σ_8,z"),
        (r"$\dot{M}_{\mathrm{wind}} / (M_\odot\,\mathrm{yr}^{-1})$", "Ṁ_wind / (M_⊙ yr⁻¹)"),
        (r"$\Omega_{\mathrm{m}}$, $\alpha_{\mathrm{a} \to b}$", "Ωₘ, α_a → b"),
        (r"$\hat{\theta}_1$ and $\langle v^2 \rangle$", "θ̂₁ and ⟨ v² ⟩"),
        (r"$\tau_{\mathrm{reionisation}}$", "τ_reionisation"),
        ("a $ of b", "a $ of b"),
        ("$$", "$$"),
    ],
)
def test_tex_is_read_as_people_do(name, read):
    assert readable(name) == read


def identifiers(source):
    """Names of functions, classes, arguments, attributes and variables, imported ones too."""
    fields = ("name", "arg", "attr", "id", "asname")
    nodes = ast.walk(ast.parse(source))
    values = (getattr(node, field, None) for node in nodes for field in fields)
    return {value for value in values if isinstance(value, str)}


def words(identifier):
    """The words of an identifier in lower case, split at underscores and capitals."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def _seen(x): pass", "_seen"),
        ("class ToldApart: pass", "ToldApart"),
        ("f = lambda drawn: 0", "drawn"),
        ("x.said_so = 1", "said_so"),
        ("f(shown=1)", "shown"),
        ("for NOT_SEEN in x: pass", "NOT_SEEN"),
        ("from a import b as standing", "standing"),
        ("withdrawn = unseen = understand = 'seen'  # seen", None),
    ],
)
def test_words_are_found_in_identifiers_alone(source, found):
    assert {name for name in identifiers(source) if words(name) & WORDS} == {found} - {None}


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=str(p.relative_to(SOURCES))) for p in sorted(SOURCES.rglob("*.py"))],
)
def test_identifiers_say_what_a_thing_is(path):
    bad = sorted(n for n in identifiers(path.read_text("utf-8")) if words(n) & WORDS)
    assert bad == []
