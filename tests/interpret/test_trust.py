from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay import Draws, moments, power
from assay._core import stream
from assay.interpret.errors import Shift, Wide
from assay.interpret.power import Planting, PowerCurve, PowerResult
from assay.interpret.trust import INCONCLUSIVE, OUTSIDE, PASSED, REJECTED, judged, trust_map
from assay.results import Holm
from assay.samples.neighbourhoods import Support
from tests.test_results import result


def half(n=3000):
    """Latents that are right for x_1 > 0 and shifted elsewhere."""
    z, x = torch.randn(2, n, 2, generator=stream(0, "trust"))
    return assay.Calibration.from_base(z + 0.8 * (x[:, :1] < 0), x)


PLACES = torch.tensor([[-1.6, 0.0], [1.6, 0.0], [1.6, 0.5], [9.0, 9.0]])


@pytest.fixture(scope="module")
def found():
    return trust_map(assay.moments(half()), assay.Draws(PLACES), errors=(Shift(),))


def test_verdicts(found):
    assert found.verdicts == (REJECTED, PASSED, PASSED, OUTSIDE)
    assert found.outside.tolist() == [False, False, False, True]
    assert (found.adjusted >= found.pvalue).all()


def test_few_pairs_are_inconclusive():
    test = assay.moments(half(60))
    blind = trust_map(test, assay.Draws(PLACES[1:3]), relevant=0.1, errors=(Shift(),))
    assert blind.verdicts == (INCONCLUSIVE, INCONCLUSIVE)
    assert (blind.effects > 0.1).all()


def test_what_is_printed(found):
    assert "Of 4 observations: 1 rejected, 2 passed, 0 inconclusive, 1 outside." in found.sentence
    assert "0 rejected" in repr(found)
    assert "<table>" in found._repr_html_()
    assert found.labels == ("0 rejected", "1 passed", "2 passed", "3 outside")
    assert list(found.table[0]) == ["p-value", "adjusted", "shift"]


def test_what_decides():
    """Corrected p-values reject; plain ones, sharpness and simulations near let q pass."""
    pairs = np.array([50.0] * 6 + [9.0])
    support = Support(pairs, np.ones(7), np.where(np.arange(7) == 3, 0.002, 0.5))
    null = np.tile(np.arange(199.0), (7, 1))
    statistic = np.array([500.0, 1.0, 1.0, 500.0, 195.5, 188.5, 1.0])
    local = replace(
        result(statistic, null), support=support, adjustment=Holm(), settings={"n": 1000}
    )
    mde = np.array([0.1, 0.5, 0.6, 0.1, 0.1, 0.1, 0.1])
    said = {"hypothesis": "q = p", "settings": {}}
    detectable = PowerResult(
        curves=(curve(mde),), x=np.zeros((7, 2)), alpha=0.05, target=0.8, repetitions=8, **said
    )
    found = judged(local, detectable, relevant=0.5, alpha=0.05)
    # Low; as sharp as asked for; too blunt; outside; low, but one of seven; just above; few near.
    open_ = (INCONCLUSIVE, OUTSIDE, INCONCLUSIVE)
    expected = (REJECTED, PASSED, *open_, PASSED, INCONCLUSIVE)
    assert found.verdicts == expected
    assert found.pvalue[4] <= 0.05 < found.adjusted[4]
    assert found.settings["adjusted by"] == Holm().words


def curve(mde):
    law = {"scale": np.ones_like(mde), "shape": np.ones_like(mde), "level": 0.05}
    found = {"rates": mde[:, None], "mde": mde, "mde_error": mde}
    return PowerCurve(error=Shift(), sizes=np.ones(1), **found, **law)


def test_save(found, tmp_path):
    assay.save(found, tmp_path / "m.npz")
    again = assay.load(tmp_path / "m.npz")
    assert repr(again) == repr(found)
    assert again.verdicts == found.verdicts
    np.testing.assert_array_equal(again.effects, found.effects)


def test_bad_input():
    test = assay.moments(half(60))
    with pytest.raises(ValueError, match="expected many observations"):
        trust_map(test, assay.Draws(PLACES[0]))
    with pytest.raises(ValueError, match="relevant: expected"):
        trust_map(test, assay.Draws(PLACES), relevant=0.0)
    with pytest.raises(TypeError, match="test: expected"):
        trust_map(None, assay.Draws(PLACES))


def test_a_picture(found):
    import matplotlib.pyplot as plt

    ax = assay.plots.trust_map(found)
    points = {c.get_label(): c.get_offsets().data for c in ax.collections}
    np.testing.assert_allclose(points["rejected"], PLACES[:1].numpy())
    assert len(points["passed"]) == 2
    line = assay.plots.trust_map(found, coordinates=PLACES[:, 0].numpy())
    assert line.get_ylabel() == "p-value"
    wide = assay.plots.trust_map(found, coordinates=None)
    assert wide.get_xlabel() == "x[0] (units of x)"
    with pytest.raises(ValueError, match="coordinates: expected"):
        assay.plots.trust_map(found, coordinates=np.zeros((4, 3)))
    plt.close("all")


class TestManyObservations:
    """Errors are planted at some of them, which tell of the others."""

    def test_sizes_are_about_those_of_planting_everywhere(self, gaussian):
        """Of 40 observations, at which errors could have been planted as well."""
        test = moments(gaussian().latents(1500), null=39)
        x_o = 1.4 * torch.randn(40, 2, generator=stream(0, "many"))
        whole = power(test, Draws(x_o), repetitions=60)
        some = Planting.at_some(test, Draws(x_o), 0, 0.05)([Shift(), Wide()], 60)
        assert some.settings["planted_at"] == sorted(some.settings["planted_at"])
        assert len(some.settings["planted_at"]) <= 32
        for one, other in zip(whole.curves, some.curves, strict=True):
            assert other.mde.shape == other.scale.shape == (40,)
            ratio = other.mde / one.mde
            assert (ratio > 0.75).mean() >= 0.95
            assert np.median(ratio) < 1.35

    def test_parts_are_put_together(self, gaussian):
        test = moments(gaussian(width=1.4).latents(400), null=19)
        x_o = torch.randn(150, 2, generator=stream(1, "many"))
        whole, parts = test.decided(Draws(x_o)), trust_map(test, x_o)
        np.testing.assert_array_equal(parts.pvalue, whole.pvalue)
        np.testing.assert_array_equal(parts.adjusted, whole.adjusted)
        assert len(parts.verdicts) == 150
