"""The report: what a check found, as one HTML file that works without a network.

A :class:`~assay.verdict.Verdict` goes in and a file comes out; nothing is trained or
sampled here. Words come from templates, figures are plain numbers that the page draws. It imports
``results``, ``verdict`` and the shapes of ``plots``; Jinja2 and Plotly when a report is
written.
"""

from .page import TITLE, write

__all__ = ["TITLE", "write"]
