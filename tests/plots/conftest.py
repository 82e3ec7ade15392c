"""Pictures without a screen, and as matplotlib itself would have them, whatever a user prefers."""

import matplotlib as mpl
import pytest

mpl.use("Agg")

import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def _clean():
    with mpl.rc_context():
        mpl.rcdefaults()
        yield
        plt.close("all")
