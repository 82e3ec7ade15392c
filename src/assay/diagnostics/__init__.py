"""Diagnostics: samples in, a frozen result with its null inside out."""
