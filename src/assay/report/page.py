"""The page: one HTML file that holds everything it needs, and asks no network for anything.

A content security policy allows the two scripts that are in the file, by their hashes, and nothing
else: whatever names may contain, no other script can run, and no address is ever asked. What is
drawn, and the code that draws it, are compressed.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from .. import __version__
from .._support.files import atomic_write
from .._support.inputs import check_kind, check_path
from ..text import record
from ..verdict import OUTSIDE
from .answer import forest, near
from .context import average_figures, places
from .environment import environment, read, required
from .pairs import PairPlot
from .picture import null, pp, pp_curves
from .sections import sections
from .traces import Figure

if TYPE_CHECKING:
    from ..verdict import Verdict

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
    pairs = None if check.classified is None else PairPlot(check.classified, check.names)
    drawing, script = _plotly(), read("script.js")
    values = {
        "version": __version__,
        "title": title,
        "date": check.settings.get("date", ""),
        "policy": _policy([drawing, script]),
        "plotly": _packed(drawing),
        "data": _packed(_json(_data(check, pairs))),
        "script": script,
    }
    return environment().get_template("page.html").render(**values, **sections(check, pairs))


def _data(check: Verdict, pairs: PairPlot | None) -> dict[str, Any]:
    """What scripts draw."""
    curves = pp_curves(check)
    each = []
    for i in range(len(check)):
        figures: dict[str, Figure | None] = {}
        if check.verdicts[i] != OUTSIDE:
            figures = {"forest": forest(check, i), "near": near(check, i), "null": null(check, i)}
            if pairs is not None and curves is not None:
                figures["pp"] = pp(curves, i)
                figures["pairs"] = pairs.figure(i, check.worst_parameters(i))
        each.append({name: figure.plain for name, figure in figures.items() if figure is not None})
    return {
        "start": check.urgency[0],
        "places": None if check.surroundings is None else places(check),
        "average": {name: figure.plain for name, figure in average_figures(check).items()},
        "own": ["forest", "near", "null", "pp", "pairs"],
        "record": _short(record(check)),
        "observations": each,
    }


def _short(value: Any) -> Any:
    """A record with as many digits as are of use."""
    if isinstance(value, dict):
        return {key: _short(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_short(part) for part in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _packed(text: str) -> str:
    """Text that is compressed, in letters that can stand within a page."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _policy(scripts: list[str]) -> str:
    """What the page may do: run these scripts, be styled, and nothing else."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _plotly() -> str:
    """The code that draws figures."""
    what = "whose drawing code is put into the file"
    code: str = required("plotly.offline", what).get_plotlyjs()
    return code.replace("\r\n", "\n")
