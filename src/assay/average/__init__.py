"""Tests over all x: is q right on average?

A calibration with draws of q comes in; a :class:`~assay.results.Result` with a row for each
quantity comes out. Passing is necessary for a right q, not sufficient: errors at one x may cancel
those at another.
"""
