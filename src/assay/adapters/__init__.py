"""Adapters: the only code that knows foreign libraries, each imported on demand."""
