"""What the pictures compute before anything is drawn."""

import subprocess
import sys

import numpy as np
import pytest

from assay.plots._numbers import bin_count, components, critical_value, one_observation
from tests.plots.cases import many


def test_components_do_not_depend_on_units():
    x = np.random.default_rng(0).normal(size=(30, 4)) @ np.diag([3, 1, 1, 1])
    x[:, 1] += x[:, 0]
    np.testing.assert_allclose(components(x), components(5 * x - 2))


def test_components_have_the_largest_variances():
    x = np.random.default_rng(0).normal(size=(30, 4))
    x[:, 1] += x[:, 0]
    variances = np.linalg.eigvalsh(np.corrcoef(x.T))[::-1]
    np.testing.assert_allclose(components(x).var(0), variances[:2])
    np.testing.assert_allclose(np.corrcoef(components(x).T)[0, 1], 0, atol=1e-12)


def test_a_null_without_spread_is_one_bar():
    assert bin_count(np.zeros(99)) == 1
    assert bin_count(np.arange(4.0)) == 5
    assert bin_count(np.arange(10_000.0)) == 30


def test_reports_do_without_matplotlib():
    code = "import sys, assay.report, assay.plots; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_threshold_is_what_a_rejected_statistic_exceeds():
    rng = np.random.default_rng(0)
    for h, alpha in ((99, 0.05), (199, 0.05), (118, 0.05), (57, 0.2)):
        null = rng.normal(size=(300, h))
        statistic = rng.normal(1, size=300)
        p = (1 + (null >= statistic[:, None]).sum(1)) / (1 + h)
        assert ((statistic > critical_value(null, alpha)) == (p <= alpha)).all()
    assert critical_value(np.arange(9.0), 0.05) == 8


def test_one_of_many_observations():
    one = many(1)
    assert one_observation(one).statistic.ndim == 0
    single = one[0]
    assert one_observation(single) is single
    with pytest.raises(ValueError, match=r"got 3. Choose one by its number, such as result\[0\]"):
        one_observation(many(3))
