"""Simulators with a prior, observations and an exact or nearly exact posterior."""
