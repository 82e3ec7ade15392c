"""Samples: what every test looks at, checked once and then frozen.

Parameters, observations and draws of q come in as arrays of any library, or a posterior that makes
the draws; :class:`~assay.Calibration`, :class:`~assay.Draws`, neighbourhoods of x_o and its
support come out. What a posterior and a flow must offer is said here too.
"""
