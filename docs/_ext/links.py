"""Follows every link of the finished site that stays on it; one that leads nowhere is named."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)


class _Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps where a tag leads to, and how it is called."""
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.add(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


@cache
def _page(path: Path) -> _Page:
    return _Page(path.read_text(encoding="utf-8"))


def _follow(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    for path in sorted(Path(app.outdir).glob("**/*.html")):
        for link in sorted(_page(path).links):
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc and not _leads(path, parts):
                LOG.warning("%s: %s leads nowhere", path.relative_to(app.outdir), link)


def _leads(path: Path, parts: Any) -> bool:
    """Whether a link of a page leads to a file, and to an anchor there if it names one."""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return False
    if not parts.fragment or target.suffix != ".html":
        return True
    return unquote(parts.fragment) in _page(target).anchors


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers what is done at the end."""
    app.connect("build-finished", _follow)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
