import matplotlib.pyplot as plt
import numpy as np
import pytest

import assay
from assay import plots
from tests.interpret.test_pp import beta, with_probabilities


@pytest.fixture
def result():
    rng = np.random.default_rng(0)
    return with_probabilities(beta(rng, 80, a=3), beta(rng, (99, 80)))


def test_it_draws_the_curve_and_its_bands(result):
    ax = plots.pp(result)
    curve = assay.pp_curve(result)
    ideal, line = ax.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), curve.ecdf)
    np.testing.assert_array_equal(ideal.get_xdata(), [0, 0.5, 0.5, 1])
    envelope, band = (c.get_paths()[0].vertices[:, 1] for c in ax.collections)
    assert envelope.max() == curve.envelope_upper.max()
    assert {round(v, 6) for v in band} <= {round(v, 6) for v in [*curve.lower, *curve.upper]}
    assert ax.get_xlabel() == "probability of class 0 (q)"


def test_it_draws_where_it_is_told(result):
    _, ax = plt.subplots()
    assert plots.pp(result, ax) is ax


def test_one_observation_at_a_time():
    rng = np.random.default_rng(0)
    many = with_probabilities(beta(rng, (2, 50)), beta(rng, (2, 19, 50)))
    with pytest.raises(ValueError, match="result: expected one observation; got 2"):
        plots.pp(many)
