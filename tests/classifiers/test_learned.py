import numpy as np
import pytest
import torch

import assay
from assay import MLP, Exchange, Ridge, lc2st
from assay.classifiers.features import Hermite
from assay.classifiers.learned import Learned
from assay.classifiers.maps import Product

X_O = torch.tensor([0.5, -0.5])
SMALL = MLP((16, 16), epochs=10, batch=64)


def ridge(learned):
    return Ridge(Product(Hermite(1), n=0, frame=learned))


@pytest.mark.parametrize("latent", [False, True])
def test_it_sees_what_its_network_has_learned(gaussian, latent):
    posterior = gaussian(width=1.5)
    calibration = posterior.latents(2000) if latent else posterior.calibration(2000)
    first, second = calibration.split()
    learned = Learned.train(first, SMALL)
    draws = assay.Draws(X_O) if latent else posterior.draws(X_O)
    assert lc2st(second, ridge(learned), Exchange(99))(draws).pvalue == 0.01


def test_it_refuses_pairs_it_has_seen(gaussian):
    calibration = gaussian().calibration(200)
    learned = Learned.train(calibration.subset(slice(0, 100)), SMALL)
    with pytest.raises(ValueError, match=r"other pairs.*got 50 that it has seen.*split\(\)"):
        lc2st(calibration.subset(slice(50, 200)), ridge(learned), Exchange(9))


def test_it_can_be_saved(gaussian, tmp_path):
    first, second = gaussian(shift=0.5).calibration(400).split()
    test = lc2st(second, ridge(Learned.train(first, SMALL)), Exchange(19))
    assay.save(test, tmp_path / "test.npz")
    draws = gaussian(shift=0.5).draws(X_O)
    again = assay.load(tmp_path / "test.npz")
    np.testing.assert_array_equal(test(draws).null, again(draws).null)


def test_it_says_what_it_is(gaussian):
    assert repr(Learned.train(gaussian().calibration(100), SMALL)) == (
        "Learned(widths=(16, 16), pairs=100)"
    )


def test_it_knows_pairs_again_in_another_precision(gaussian):
    calibration = gaussian().calibration(200)
    learned = Learned.train(calibration, SMALL)
    names = ("theta", "x", "theta_q")
    doubled = assay.Calibration(*(getattr(calibration, name).double() for name in names))
    with pytest.raises(ValueError, match="got 200 that it has seen"):
        lc2st(doubled, ridge(learned), Exchange(9))


def test_a_classifier_of_another_kind(gaussian):
    with pytest.raises(TypeError, match="classifier: expected an MLP"):
        Learned.train(gaussian().calibration(50), Ridge())
