"""The figures and tables of the paper, each beside what this library makes of the same data."""
