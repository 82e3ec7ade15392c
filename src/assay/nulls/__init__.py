"""Nulls: what the data could have been if q were right.

A calibration and a seed come in; copies come out, of which copy 0 is the data and the others are
null copies. Every null says which hypothesis its copies stand for. Imports ``_support`` and
``samples``; ranks, whose null is known, take their p-values from ``results``.
"""
