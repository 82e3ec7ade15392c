"""The report: what a check found, as one HTML file that works without a network.

A verdict goes in and a file comes out; nothing is trained or sampled here. Figures are plain
values (`traces`), and templates (`environment`) read the check. Jinja2 and Plotly are needed.

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
from ..printing import number, probability, readable
from ..results import versions
from ..verdict import OUTSIDE, VERDICTS, Verdict
from .bounds import forest, near
from .classifier import colour_range, pairs, pp
from .environment import environment, read, required
from .nulls import average_figures, null
from .places import places

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
    digests = (hashlib.sha256(code.encode()).digest() for code in (plotly, script))
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    own, test, known = check.settings, check.test, versions()
    template = environment().get_template("page.html")
    return template.render(
        version=__version__,
        title=title,
        policy=f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'",
        plotly=_compressed(plotly),
        data=_compressed(json.dumps(_data(check), separators=(",", ":"), allow_nan=False)),
        script=script,
        check=check,
        kinds=VERDICTS,
        half=None if check.classified is None else colour_range(check),
        rows=[_rows(check, i) for i in range(len(check))],
        evidence=[dict(zip(test.kinds, map(probability, p), strict=True)) for p in test.evidence],
        settings={key: _text(own[key]) for key in own if key not in {*known, "call"}},
        settings_of_test={k: _text(test.settings[k]) for k in test.settings if k not in known},
        versions={key: str(own[key]) for key in known if key in own},
    )


def _compressed(text: str) -> str:
    """Compressed text, in letters that a page can hold."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _data(check: Verdict) -> dict[str, Any]:
    """What scripts draw and save: all numbers, and figures unless an observation is outside."""
    observations = []
    for i, word in enumerate(check.verdicts):
        figures: dict[str, Any] = {}
        if word != OUTSIDE:
            figures = {"forest": forest(check, i), "near": near(check, i), "null": null(check, i)}
            if check.classified is not None:
                figures |= {"pp": pp(check, i), "pairs": pairs(check, i)}
        observations.append({name: one for name, one in figures.items() if one is not None})
    # With as many digits as are of use.
    plain = json.dumps(check.record)
    return {
        "start": check.urgency[0],
        "places": places(check),
        "average": average_figures(check),
        "own": ["forest", "near", "null", "pp", "pairs"],
        "record": json.loads(plain, parse_float=lambda text: float(f"{float(text):.4g}")),
        "observations": observations,
    }


def _rows(check: Verdict, i: int) -> list[list[str]]:
    """Each number at an observation with its interval, in words; none where it is outside."""
    rows = []
    for row in check.bounds.rows[i] if check.verdicts[i] != OUTSIDE else ():
        names = " and ".join(map(readable, row.parameters)) or "all"
        ends = f"{number(row.lower, 2)} to {number(row.upper, 2)}"
        words = [row.kind.replace("_", " "), names, number(row.value, 2), ends]
        rows.append([*words, "wrong" if row.wrong else ""])
    return rows


def _text(value: Any) -> str:
    """A setting as text."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_text, value)) if isinstance(value, tuple | list) else str(value)
