"""The page: one HTML file that holds everything it needs, and asks no network for anything.

A content security policy allows the two scripts that are in the file, by their hashes, and nothing
else: whatever names may contain, no other script can run, and no address is ever asked.
"""

import base64
import hashlib
import json
import os
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from ..findings import Findings
from ..version import __version__
from ..whole import whole
from .markup import Markup, filled, joined, tag
from .observed import Observed
from .overall import overall
from .places import Places
from .sections import TITLES_OF_SECTIONS, sections

__all__ = ["page", "write"]

# What could end a block of data within a page, or a line within a script.
ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def write(found: Findings, path: str | os.PathLike[str]) -> None:
    """Writes the report as one HTML file that works without a network.

    The file appears whole or not at all.

    Args:
        found: What was found, such as what :func:`assay.check` returns.
        path: The file to write; the usual ending is ``.html``.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path: expected a folder that exists; got {target.parent}. Make it first."
        )
    if target.is_dir():
        raise IsADirectoryError(
            f"path: expected a file to write; got the folder {target}. Add a name, such as "
            "report.html."
        )
    content = page(found).encode()
    with whole(target) as file:
        file.write(content)


def page(found: Findings) -> str:
    """The report as HTML.

    Args:
        found: What was found.
    """
    observed = Observed(found)
    scripts = {"plotly": _plotly(), "script": _read("script.js")}
    parts = {
        "policy": _policy(list(scripts.values())),
        "style": _read("style.css"),
        "navigation": _navigation(),
        "main": _main(found, observed),
        "data": _json(_data(found, observed)),
        "version": __version__,
        **scripts,
    }
    return filled(_read("page.html"), parts)


def _navigation() -> Markup:
    titles = TITLES_OF_SECTIONS.items()
    return tag("ul", *(tag("li", tag("a", title, href=f"#{name}")) for name, title in titles))


def _main(found: Findings, observed: Observed) -> Markup:
    made = sections(found, observed)
    return joined(
        tag(
            "section",
            tag("h2", title, id=f"heading-{name}"),
            made[name],
            id=name,
            aria_labelledby=f"heading-{name}",
        )
        for name, title in TITLES_OF_SECTIONS.items()
    )


def _data(found: Findings, observed: Observed) -> dict[str, Any]:
    """What scripts draw."""
    rejected = [i for i, wrong in enumerate(found.rejected) if wrong]
    each = [observed.figures(i) for i in range(len(found.labels))]
    return {
        "start": rejected[0] if rejected else 0,
        "places": Places(found).plain,
        "overall": {name: figure.plain for name, figure in overall(found).items()},
        "observations": [{k: f.plain for k, f in figures.items()} for figures in each],
    }


def _json(value: Any) -> str:
    """JSON that can stand within a page."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(ESCAPES)


def _policy(scripts: list[str]) -> str:
    """What the page may do: run these scripts, be styled, and nothing else."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _read(name: str) -> str:
    """A file of this package, with the line ends that a browser makes of them."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")


def _plotly() -> str:
    """The code that draws figures."""
    try:
        offline = import_module("plotly.offline")
    except ImportError as error:
        raise ImportError(
            "report: expected the package plotly, whose drawing code is put into the file; got "
            "none. Install it by pip install 'assay[report]'."
        ) from error
    code: str = offline.get_plotlyjs()
    # Nothing in a script may look like its end.
    return code.replace("\r\n", "\n").replace("</script", "<\\/script")
