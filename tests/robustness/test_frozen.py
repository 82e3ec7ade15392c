"""What claims to be frozen is: arrays and settings of results, and calibrations."""

import copy
import pickle

import numpy as np
import pytest
import torch

import assay
from tests.conftest import Gaussian

from .outcome import numbers
from .test_global_state import ENGINES, SLOW, log_q

REFUSED = "calibration: expected arrays as they were checked"


@pytest.mark.parametrize("name", sorted(ENGINES.keys() - SLOW - {"Calibration.of"}))
def test_results_cannot_be_written(name):
    found = ENGINES[name]()
    arrays = [array for array in numbers(found) if array.ndim]
    assert arrays
    assert not [array for array in arrays if array.flags.writeable]
    settings = getattr(found, "settings", None) or found.__dict__.get("table")
    if settings is None:
        return
    for write in (lambda: settings.__setitem__("test", 1), lambda: settings.update(test=1)):
        with pytest.raises(TypeError, match="settings: expected to be read"):
            write()


def test_settings_are_a_dict():
    found = ENGINES["sbc"]()
    for same in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert same.settings == found.settings
        with pytest.raises(TypeError, match="settings: expected to be read"):
            del same.settings["test"]
    assert dict(found.settings) | {"test": "mine"} != found.settings


def sets():
    return Gaussian().calibration(60, 5)


USES = {
    "score": lambda c: assay.score(c, null=9),
    "lc2st": lambda c: assay.lc2st(c, assay.MLP((4,), epochs=1), 9),
    "lhpd": lambda c: assay.lhpd(c, log_q, null=9),
    "lpit": lambda c: assay.lpit(c, null=9),
    "sbc": lambda c: assay.sbc(c, null=9),
    "coverage": lambda c: assay.coverage(c, null=9),
    "tarp": lambda c: assay.tarp(c, null=9),
    "bounds": lambda c: assay.bounds(c, torch.zeros(2)),
    "check": lambda c: assay.check(c, x_o=Gaussian().draws(torch.zeros(2))),
}


def by_numpy(array):
    array.numpy()[0] = 0


# Ways to write into a tensor; torch counts the first alone.
WAYS = {
    "torch": lambda array: array.__setitem__(0, torch.nan),
    "numpy": by_numpy,
    "one bit": lambda array: np.negative(array.numpy()[-1:], out=array.numpy()[-1:]),
    "rows in another order": lambda array: np.random.default_rng(0).shuffle(array.numpy()),
    "data": lambda array: array.data.mul_(2),
    "dlpack": lambda array: by_numpy(torch.from_dlpack(array)),
    "storage": lambda array: array.untyped_storage().fill_(0),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("field", ["theta", "x", "theta_q"])
def test_a_calibration_that_was_written(field, use):
    calibration = sets()
    by_numpy(getattr(calibration, field))
    with pytest.raises(ValueError, match=REFUSED):
        USES[use](calibration)


def doubled(calibration, **more):
    return assay.Calibration(
        calibration.theta, calibration.x, calibration.theta_q, lambda x: 2 * x, **more
    )


def strided(calibration):
    """The same numbers, with draws that came samples first."""
    theta_q = calibration.theta_q.swapaxes(0, 1).contiguous().swapaxes(0, 1)
    return assay.Calibration(calibration.theta, calibration.x, theta_q)


# Calibrations, each with the array that is written.
KINDS = {
    "own": (lambda c: c, "theta_q"),
    "strided": (strided, "theta_q"),
    "subset": (lambda c: c.subset(slice(20, 50)), "theta_q"),
    "other members": (lambda c: c.with_members(c.theta_q[:, 0], c.theta_q[:, 1:]), "theta_q"),
    "embedded": (doubled, "features"),
    "weighted": (lambda c: doubled(c, weights=torch.arange(1.0, 61.0)), "weights"),
    "of a proposal": (lambda c: doubled(c, plain_draws=c.theta_q), "plain_draws"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write(way, kind):
    make, field = KINDS[kind]
    calibration = make(sets())
    calibration.check_whole()
    WAYS[way](getattr(calibration, field))
    for use in (type(calibration).check_whole, copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ValueError, match=REFUSED):
            use(calibration)


def test_a_test_whose_calibration_was_written():
    test = assay.score(sets(), null=9)
    by_numpy(test.calibration.theta)
    with pytest.raises(ValueError, match=REFUSED):
        test(torch.zeros(2))


def test_what_was_given_may_change():
    calibration = sets()
    given = [getattr(calibration, name).clone() for name in ("theta", "x", "theta_q")]
    made = assay.Calibration(*given)
    for array in given:
        array[:] = 0
    assert np.array_equal(assay.sbc(made).ranks, assay.sbc(calibration).ranks)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_may_be_used(again):
    calibration = again(sets())
    assert np.isfinite(assay.sbc(calibration, null=9).pvalue).all()
    calibration.x[0] = 5
    with pytest.raises(ValueError, match=REFUSED):
        assay.sbc(calibration, null=9)
