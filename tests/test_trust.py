import numpy as np
import pytest
import torch

import assay
from assay.planted import Shift
from assay.randomness import stream
from assay.trust import REJECTED, TRUSTED, UNTESTED, trust_map


def half(n=3000):
    """Latents that are right for x_1 > 0 and shifted elsewhere."""
    z, x = torch.randn(2, n, 2, generator=stream(0, "trust"))
    return assay.Calibration.from_base(z + 0.8 * (x[:, :1] < 0), x)


PLACES = torch.tensor([[-1.6, 0.0], [1.6, 0.0], [1.6, 0.5], [9.0, 9.0]])


@pytest.fixture(scope="module")
def found():
    return trust_map(assay.moments(half()), assay.Draws(PLACES), errors=(Shift(),))


def test_verdicts(found):
    assert found.verdicts.tolist() == [REJECTED, TRUSTED, TRUSTED, UNTESTED]
    assert found.outside.tolist() == [False, False, False, True]
    assert (found.adjusted >= found.pvalue).all()


def test_few_pairs_leave_places_untested():
    test = assay.moments(half(60))
    blind = trust_map(test, assay.Draws(PLACES[1:3]), smallest=0.1, errors=(Shift(),))
    assert (blind.verdicts == UNTESTED).all()
    assert (blind.effects > 0.1).all()


def test_what_is_printed(found):
    assert "rejected at 1, trusted at 2" in found.sentence
    assert "0 rejected" in repr(found)
    assert "<table>" in found._repr_html_()


def test_save(found, tmp_path):
    assay.save(found, tmp_path / "m.npz")
    again = assay.load(tmp_path / "m.npz")
    assert repr(again) == repr(found)
    np.testing.assert_array_equal(again.verdicts, found.verdicts)


def test_bad_input():
    test = assay.moments(half(60))
    with pytest.raises(ValueError, match="expected many observations"):
        trust_map(test, assay.Draws(PLACES[0]))
    with pytest.raises(ValueError, match="smallest: expected"):
        trust_map(test, assay.Draws(PLACES), smallest=0.0)
    with pytest.raises(TypeError, match="test: expected"):
        trust_map(None, assay.Draws(PLACES))


def test_a_picture(found):
    import matplotlib.pyplot as plt

    ax = assay.plots.trust_map(found)
    points = {c.get_label(): c.get_offsets().data for c in ax.collections}
    np.testing.assert_allclose(points["rejected"], PLACES[:1].numpy())
    assert len(points["trusted"]) == 2
    line = assay.plots.trust_map(found, coordinates=PLACES[:, 0].numpy())
    assert line.get_ylabel() == "p-value"
    wide = assay.plots.trust_map(found, coordinates=None)
    assert wide.get_xlabel() == "x[0]"
    with pytest.raises(ValueError, match="coordinates: expected"):
        assay.plots.trust_map(found, coordinates=np.zeros((4, 3)))
    plt.close("all")
