"""Runs the command line as ``python -m assay``."""

from .cli import main

if __name__ == "__main__":
    main()
