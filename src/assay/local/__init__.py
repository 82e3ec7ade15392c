"""Local tests: at one observation or many, not on average over x."""
