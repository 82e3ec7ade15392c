"""The report: what a check found, as one HTML file that works without a network.

A :class:`~assay.verdict.Verdict` goes in and a file comes out; nothing is trained or sampled here.
`sections` reads words and numbers for the templates; `bounds`, `classifier`, `nulls` and `places`
make figures, which are plain values (`traces`); `page` writes the file, with `environment`. Jinja2
and Plotly are needed when a report is written.
"""

from .page import TITLE, write

__all__ = ["TITLE", "write"]
