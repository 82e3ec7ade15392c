import subprocess
import sys

import numpy as np

from assay.plots._shapes import bin_count, components, near_shares


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


def test_shares_of_true_parameters_and_of_draws():
    truths, draws = np.array([[-9.0, 0.1], [np.nan, 0.1]]), np.array([[0.1, 9.0], [0.1, 9.0]])
    edges, of_q, of_truths = near_shares(truths, draws, [1, 0])
    middle = len(edges) // 2 - 1
    assert edges[middle] < 0.1 < edges[middle + 1]
    # What lies beyond is in the outermost bins; what is not known is left out.
    assert (of_truths[0, middle], of_truths[1, 0]) == (1, 1)
    assert (of_q[0, -1], of_q[1, middle]) == (1, 1)
    assert of_q.sum() == of_truths.sum() == 2


def test_reports_do_without_matplotlib():
    code = "import sys, assay.report, assay.plots; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
