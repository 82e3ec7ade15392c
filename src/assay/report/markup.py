"""Markup: elements of HTML whose text is escaped unless it is markup already.

Text that comes from outside, such as the names of parameters, cannot become markup by mistake:
only :func:`tag` and :func:`joined` make :class:`Markup`, and both escape what is plain.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["Markup", "Row", "filled", "joined", "scrolled", "table", "tag"]

# Elements that have neither content nor an end.
EMPTY = frozenset({"path", "circle", "br"})
# Bytes that HTML does not allow, or that would change the direction of the text around them.
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

# Cells of a table, the first of which is the head of its row.
Row = Sequence["str | Markup"]


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def joined(parts: Iterable[str], between: str = "") -> Markup:
    """Parts one after the other, escaped unless they are markup.

    Example:
        >>> joined(["<b>", tag("i", "x")])
        '&lt;b&gt;<i>x</i>'
    """
    return Markup(between.join(map(_escaped, parts)))


def tag(name: str, /, *inner: str, **attributes: str | int | None) -> Markup:
    """An element.

    Args:
        name: Its name.
        inner: What it contains.
        attributes: Its attributes; an underscore stands for a hyphen, one at the end for nothing.
            None and False are left out, and True has no value.

    Example:
        >>> tag("a", "1 < 2", href="#x", class_="link", aria_label='"')
        '<a href="#x" class="link" aria-label="&quot;">1 &lt; 2</a>'
    """
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in EMPTY:
        return Markup(f"<{name}{said}/>")
    return Markup(f"<{name}{said}>{joined(inner)}</{name}>")


def table(
    caption: str, head: Sequence[str], rows: Iterable[Row], *, attributes: Sequence[str] = ()
) -> Markup:
    """A table that scrolls by itself where it is too wide.

    Args:
        caption: What it shows.
        head: The heads of its columns.
        rows: Its cells.
        attributes: The columns whose cells are words, and are set flush left.
    """
    words = {i for i, name in enumerate(head) if name in attributes}
    cells = joined(
        tag("th", name, scope="col", class_=_kind(i, words)) for i, name in enumerate(head)
    )
    body = joined(tag("tr", _cells(row, words)) for row in rows)
    parts = (
        tag("caption", tag("span", caption)),
        tag("thead", tag("tr", cells)),
        tag("tbody", body),
    )
    return scrolled(tag("table", *parts), caption)


def scrolled(content: Markup, name: str) -> Markup:
    """A region that scrolls sideways, by keyboard as well."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=name)


def filled(template: str, parts: dict[str, str]) -> str:
    """A template with its ``{{names}}`` replaced, once: what is put in is not read again.

    Example:
        >>> filled("<p>{{a}}</p>", {"a": "{{b}}"})
        '<p>{{b}}</p>'
    """
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _cells(row: Row, words: set[int]) -> Markup:
    first, *others = row
    rest = (tag("td", cell, class_=_kind(i, words)) for i, cell in enumerate(others, 1))
    return joined([tag("th", first, scope="row"), *rest])


def _kind(i: int, words: set[int]) -> str | None:
    return "words" if i == 0 or i in words else None


def _attribute(key: str, value: str | int | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{_escaped(str(value))}"'


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else escape(FORBIDDEN.sub("\ufffd", text))
