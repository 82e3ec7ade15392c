"""Interpretation: what a p-value means, and what the test could not have detected.

Tests and their results come in; effect sizes, detectable errors, the trust map, the health of a
classifier and the verdict come out. Effects, PP-curves and verdicts are read from results; power,
health and tuning run tests or classifiers again. Imports ``diagnostics`` and all that they import.
"""
