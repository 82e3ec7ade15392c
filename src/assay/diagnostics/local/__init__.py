"""Local tests: asked at an observation, they answer with a result and its null.

A calibration comes in, and a :class:`~assay.diagnostics.local.base.LocalTest` comes out; called
with x_o, or with draws of q there, it returns a :class:`~assay.results.LocalResult`. Ranks and
gains over guessing come from :mod:`~assay.diagnostics.average`. Otherwise imports what all
diagnostics may.
"""
