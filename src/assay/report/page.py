"""The page: one HTML file that holds everything it needs, and asks no network for anything.

A content security policy allows the two scripts that are in the file, by their hashes, and nothing
else: whatever names may contain, no other script can run, and no address is ever asked. What is
drawn, and the code that draws it, are compressed.
"""

import base64
import gzip
import hashlib
import json
import os
from typing import Any

from .. import __version__
from .._support.files import atomic_write
from .._support.inputs import check_kind, check_path
from ..verdict import OUTSIDE, Verdict
from .bounds import forest, near
from .classifier import pairs, pp
from .environment import environment, read, required
from .nulls import average_figures, null
from .places import places
from .sections import sections

TITLE = "Local check of a posterior"


def write(check: Verdict, path: str | os.PathLike[str], title: str | None = None) -> None:
    """Writes the report of a check as one HTML file that works without a network.

    The file appears whole or not at all. The usual ending of its path is ``.html``.
    """
    target = check_path(path)
    if title is not None:
        check_kind("title", title, "a text, or None", str)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path: expected a folder that exists; got {target.parent}. Make it first."
        )
    if target.is_dir():
        raise IsADirectoryError(
            f"path: expected a file to write; got the folder {target}. Add a name, such as "
            "report.html."
        )
    content = page(check, TITLE if title is None else title).encode()
    with atomic_write(target) as file:
        file.write(content)


def page(check: Verdict, title: str = TITLE) -> str:
    """The report of a check as HTML."""
    offline = required("plotly.offline", "whose drawing code is put into the file")
    plotly, script = offline.get_plotlyjs().replace("\r\n", "\n"), read("script.js")
    values = {
        "version": __version__,
        "title": title,
        "date": check.settings.get("date", ""),
        "policy": _policy([plotly, script]),
        "plotly": _compressed(plotly),
        "data": _compressed(json.dumps(_data(check), separators=(",", ":"), allow_nan=False)),
        "script": script,
    }
    return environment().get_template("page.html").render(**values, **sections(check))


def _data(check: Verdict) -> dict[str, Any]:
    """What scripts draw."""
    return {
        "start": check.urgency[0],
        "places": places(check),
        "average": {name: figure.plain for name, figure in average_figures(check).items()},
        "own": ["forest", "near", "null", "pp", "pairs"],
        "record": _short(check.record),
        "observations": [_figures(check, i) for i in range(len(check))],
    }


def _figures(check: Verdict, i: int) -> dict[str, Any]:
    """The figures of one observation; none where it is outside."""
    if check.verdicts[i] == OUTSIDE:
        return {}
    figures = {"forest": forest(check, i), "near": near(check, i), "null": null(check, i)}
    if check.classified is not None:
        figures |= {"pp": pp(check, i), "pairs": pairs(check, i)}
    return {name: figure.plain for name, figure in figures.items() if figure is not None}


def _short(value: Any) -> Any:
    """A record with as many digits as are of use."""
    if isinstance(value, dict):
        return {key: _short(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_short(part) for part in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _compressed(text: str) -> str:
    """Compressed text, in letters that a page can hold."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _policy(scripts: list[str]) -> str:
    """What the page may do: run these scripts, be styled, and nothing else."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
