"""The version of this library, and of what it stands on."""

import platform

import numpy as np
import torch

__all__ = ["__version__", "versions"]

__version__ = "0.1.0"


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    return {
        "assay": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }
