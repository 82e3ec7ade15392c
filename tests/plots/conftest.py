"""Pictures without a screen, and as matplotlib itself would have them, whatever a user prefers."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

plt.switch_backend("Agg")


@pytest.fixture(autouse=True)
def _clean():
    with mpl.rc_context():
        mpl.rcdefaults()
        yield
        plt.close("all")
