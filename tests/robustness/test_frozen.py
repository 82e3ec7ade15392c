"""What claims to be frozen is: arrays and settings of results, and calibrations."""

import copy
import pickle
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
import torch

import assay
from tests.conftest import Gaussian

from .test_defaults import ENGINES


def arrays(thing):
    """All NumPy arrays of a result and of its parts."""
    if isinstance(thing, np.ndarray):
        return [thing]
    if isinstance(thing, tuple):
        return [array for part in thing for array in arrays(part)]
    if is_dataclass(thing):
        return [array for field in fields(thing) for array in arrays(getattr(thing, field.name))]
    return []


@pytest.mark.parametrize("name", [name for name in ENGINES if name != "Calibration.of"])
def test_results_cannot_be_written(name):
    found = ENGINES[name]()
    assert arrays(found)
    assert not [array for array in arrays(found) if array.flags.writeable]
    with pytest.raises(TypeError, match="settings: expected to be read"):
        found.settings["test"] = "another"
    with pytest.raises(TypeError, match="settings: expected to be read"):
        found.settings.update(test="another")


def test_settings_are_a_dict():
    found = ENGINES["sbc"]()
    for same in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert same.settings == found.settings
        with pytest.raises(TypeError, match="settings: expected to be read"):
            del same.settings["test"]
    assert dict(found.settings) | {"test": "mine"} != found.settings


FIELDS = ("theta", "x", "theta_q")
USES = {
    "lc2st": lambda c: assay.lc2st(c, assay.MLP((4,), epochs=1), 9),
    "score": lambda c: assay.score(c, null=9),
    "moments": lambda c: assay.moments(c, null=9),
    "lpit": lambda c: assay.lpit(c, null=9),
    "sbc": lambda c: assay.sbc(c, null=9),
    "coverage": lambda c: assay.coverage(c, null=9),
    "tarp": lambda c: assay.tarp(c, null=9),
    "divergence": lambda c: assay.divergence(c, assay.MLP((4,), epochs=1), null=9),
    "health": lambda c: assay.health(c, assay.MLP((4,), epochs=1), 9, folds=2),
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
@pytest.mark.parametrize("field", FIELDS)
def test_a_calibration_that_was_written(field, use):
    calibration = Gaussian().calibration(60, 5)
    by_numpy(getattr(calibration, field))
    with pytest.raises(ValueError, match="calibration: expected arrays as they were checked"):
        USES[use](calibration)


def strided(calibration):
    """The same numbers, with draws that came samples first."""
    theta_q = calibration.theta_q.swapaxes(0, 1).contiguous().swapaxes(0, 1)
    return assay.Calibration(calibration.theta, calibration.x, theta_q)


KINDS = {
    "own": lambda c: c,
    "strided": strided,
    "subset": lambda c: c.subset(slice(20, 50)),
    "split": lambda c: c.split()[0],
    "other members": lambda c: c.with_members(c.theta_q[:, 0], c.theta_q[:, 1:]),
    "embedded": lambda c: assay.Calibration(c.theta, c.x, c.theta_q, lambda x: 2 * x),
    "features": lambda c: assay.Calibration(c.theta, c.x, c.theta_q, lambda x: 2 * x),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write(way, kind):
    calibration = KINDS[kind](Gaussian().calibration(60, 5))
    calibration.check_whole()
    WAYS[way](calibration.features if kind == "features" else calibration.theta_q)
    for use in (type(calibration).check_whole, copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ValueError, match="calibration: expected arrays as they were checked"):
            use(calibration)


def test_a_fitted_test_that_was_written():
    test = assay.score(Gaussian().calibration(60, 5), null=9)
    by_numpy(test.calibration.theta)
    with pytest.raises(ValueError, match="calibration: expected arrays as they were checked"):
        test(torch.zeros(2))


def test_what_was_given_may_change():
    calibration = Gaussian().calibration(60, 5)
    theta, x, theta_q = (getattr(calibration, name).clone() for name in FIELDS)
    made = assay.Calibration(theta, x, theta_q)
    theta[:], x[:], theta_q[:] = 0, 0, 0
    assert np.array_equal(assay.sbc(made).ranks, assay.sbc(calibration).ranks)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_may_be_used(again):
    calibration = again(Gaussian().calibration(60, 5))
    assert np.isfinite(assay.sbc(calibration, null=9).pvalue).all()
    calibration.x[0] = 5
    with pytest.raises(ValueError, match="calibration: expected arrays"):
        assay.sbc(calibration, null=9)
