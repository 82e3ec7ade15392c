import numpy as np
import pytest

import assay
from assay.interpret.pp import GRID
from tests.test_results import result


def with_probabilities(data, null):
    base = result(np.zeros(data.shape[:-1]), np.zeros(null.shape[:-1]), s=data.shape[-1])
    fields = {**vars(base), "probabilities": data, "null_probabilities": null}
    return type(base)(**fields)


def beta(rng, shape, a=20):
    return rng.beta(a, a, size=shape).astype(np.float32)


def test_the_grid_contains_one_half_and_the_ends():
    assert {0.0, 0.5, 1.0} <= set(GRID.tolist())
    assert (np.diff(GRID) > 0).all()


def test_the_curve_is_the_distribution_of_class_0():
    d = np.array([0.2, 0.5, 0.5, 0.9])
    curve = assay.pp_curve(with_probabilities(d, np.full((9, 4), 0.5)))
    at = dict(zip(curve.levels.tolist(), curve.ecdf, strict=True))
    assert at[0.0] == 0
    assert at[0.5] == 0.75
    assert at[1.0] == 1.0


def test_shapes_for_one_and_for_many():
    rng = np.random.default_rng(0)
    one = assay.pp_curve(with_probabilities(beta(rng, 50), beta(rng, (19, 50))))
    many = assay.pp_curve(with_probabilities(beta(rng, (3, 50)), beta(rng, (3, 19, 50))))
    assert one.ecdf.shape == one.lower.shape == (201,)
    assert many.ecdf.shape == many.envelope_upper.shape == (3, 201)
    assert one.pvalue.shape == ()
    assert many.pvalue.shape == (3,)


def test_the_envelope_contains_the_pointwise_band():
    rng = np.random.default_rng(0)
    curve = assay.pp_curve(with_probabilities(beta(rng, 50), beta(rng, (199, 50))))
    assert (curve.envelope_lower <= curve.lower + 1e-9).all()
    assert (curve.envelope_upper >= curve.upper - 1e-9).all()


def test_bands_have_their_coverage():
    """400 repetitions under the null: pointwise at 1/2, and the whole curve at once."""
    rng = np.random.default_rng(0)
    shift = rng.normal(scale=0.03, size=(400, 40, 1))
    d = np.clip(beta(rng, (400, 40, 60)) + shift, 0, 1)
    curve = assay.pp_curve(with_probabilities(d[:, 0], d[:, 1:]), alpha=0.1)
    outside = (curve.ecdf < curve.envelope_lower - 1e-9) | (
        curve.ecdf > curve.envelope_upper + 1e-9
    )
    leaves = outside.any(1)
    np.testing.assert_array_equal(leaves, curve.pvalue <= 0.1)
    # Within four standard errors of 0.1.
    assert abs(leaves.mean() - 0.1) < 4 * np.sqrt(0.09 / 400)


def test_an_extreme_curve_leaves_the_band():
    rng = np.random.default_rng(0)
    curve = assay.pp_curve(with_probabilities(beta(rng, 100, a=1), beta(rng, (99, 100))))
    assert curve.pvalue == 0.01


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 2])
def test_bad_levels(alpha):
    with pytest.raises(ValueError, match="alpha: expected a number between 0 and 1"):
        assay.pp_curve(result(1.0, np.zeros(9)), alpha)


def test_nulls_that_were_not_fitted_have_no_curves():
    fields = vars(result(1.0, np.zeros(9))) | {"null_probabilities": None}
    with pytest.raises(ValueError, match="expected one whose nulls were fitted.* no null curves"):
        assay.pp_curve(type(result(1.0, np.zeros(9)))(**fields))
