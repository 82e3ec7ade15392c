"""Diagnostics: samples in, a frozen result with its null inside out.

Tests at an observation are in :mod:`~assay.diagnostics.local`, tests over all x in
:mod:`~assay.diagnostics.average`; :mod:`~assay.diagnostics.c2st` needs reference draws of the
truth. A calibration, and what scores it, come in; a test that can be asked, or a result, comes
out. Imports ``_core``, ``samples``, ``nulls``, ``classifiers`` and ``results``.
"""
