"""Runs the command line as ``python -m assay``."""

from .cli import main

main()
