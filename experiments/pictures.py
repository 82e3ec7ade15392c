"""Pictures: how every figure is kept, for a screen and for print."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

__all__ = ["save"]


def save(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Keeps a figure as an image, and beside it as a vector drawing; then it is closed.

    Neither says when it was drawn, so that the same figure is the same file.

    Args:
        figure: The figure.
        path: The image, a PNG; the drawing is a PDF of the same name.
        dpi: Dots to an inch of the image.
    """
    figure.savefig(path, dpi=dpi, metadata={"Software": None})
    with mpl.rc_context({"pdf.fonttype": 42}):
        figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None, "Creator": None})
    plt.close(figure)
