"""Formulas as MathML, which browsers draw by themselves: no script, no network."""

from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_mathml(node, block=False))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    attribute = f' id="{escape(node["ids"][0])}"' if node["ids"] else ""
    body = _mathml(node, block=True)
    translator.body.append(f'<div class="math"{attribute}>{body}</div>\n')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, *, block: bool) -> str:
    """MathML of a formula; many lines, or columns, are aligned."""
    tex = node.astext()
    if block and ("\\\\" in tex or "&" in tex) and r"\begin" not in tex:
        tex = rf"\begin{{aligned}}{tex}\end{{aligned}}"
    try:
        found: str = tex2mathml(tex, as_block=block)
    except (MathError, SyntaxError) as error:
        LOG.warning("formula %r: %s", tex, error, location=node)
        return f"<code>{escape(tex)}</code>"
    # Braces of sets are as high as a letter; those that grow have other attributes.
    for brace in "{}":
        found = found.replace(f"<mo>{brace}</mo>", f'<mo stretchy="false">{brace}</mo>')
    return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
