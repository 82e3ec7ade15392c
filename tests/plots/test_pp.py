from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest

from assay import plots
from tests.plots.cases import local


def beta(rng, shape, a=20):
    return rng.beta(a, a, size=shape).astype(np.float32)


def with_probabilities(data, null):
    """A result with probabilities (..., s) of data and (..., H, s) of copies."""
    parts = {"statistic": np.zeros(data.shape[:-1]), "null": np.zeros(null.shape[:-1])}
    return replace(local(), probabilities=data, null_probabilities=null, **parts)


@pytest.fixture
def result():
    rng = np.random.default_rng(0)
    return with_probabilities(beta(rng, 80, a=3), beta(rng, (99, 80)))


def test_it_draws_the_curve_and_its_bands(result):
    ax = plots.pp(result)
    curve = result.pp_curve()
    ideal, line = ax.get_lines()
    # Shares of draws whose probability of class 1 lies below.
    shares = [(result.probabilities < level).mean() for level in line.get_xdata()]
    np.testing.assert_allclose(line.get_ydata(), shares, atol=1e-9)
    np.testing.assert_allclose(line.get_ydata(), 1 - curve.ecdf[::-1])
    np.testing.assert_array_equal(ideal.get_xdata(), [0, 0.5, 0.5, 1])
    envelope, band = (c.get_paths()[0].vertices[:, 1] for c in ax.collections)
    assert envelope.max() == 1 - curve.envelope_lower.min()
    assert {round(v, 6) for v in band} <= {round(1 - v, 6) for v in [*curve.lower, *curve.upper]}
    assert ax.get_xlabel() == "probability of class 1 (truth)"
    assert ax.get_title() == f"whole curve: p = {float(curve.pvalue):.3g}"


def test_too_much_mass_lies_on_the_left():
    """A q whose every draw is told to be no truth: all of the curve rises left of 1/2."""
    rng = np.random.default_rng(0)
    low = with_probabilities(0.1 + 0.2 * rng.uniform(size=80), beta(rng, (99, 80)))
    line = plots.pp(low).get_lines()[1]
    at = dict(zip(line.get_xdata().round(6), line.get_ydata(), strict=True))
    assert at[0.5] == 1


def test_it_draws_in_the_axes_given(result):
    _, ax = plt.subplots()
    assert plots.pp(result, ax) is ax


def test_one_observation_at_a_time():
    rng = np.random.default_rng(0)
    many = with_probabilities(beta(rng, (2, 50)), beta(rng, (2, 19, 50)))
    with pytest.raises(ValueError, match="result: expected one observation; got 2"):
        plots.pp(many)
