"""Samples: what every test looks at, checked once and then frozen.

Parameters, observations and draws of q come in as arrays of any library, or as a posterior, pairs
and a simulator; :class:`~assay.Calibration` and :class:`~assay.Draws` come out.
"""
