"""Checked input, random streams, threads, progress, and whole files."""
