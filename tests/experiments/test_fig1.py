import numpy as np
import pytest

from experiments.fig1 import closed_form, powers


@pytest.mark.parametrize("s", [0.1, 0.5, 1.0, 1.4])
def test_statistics_in_closed_form(s):
    """Against integrals over the squared radius; the accuracy is by the total variation."""
    found = closed_form(s)
    # Squared radii are exponential; the middle of many narrow cells is exact to 1e-6 or so.
    edges = np.linspace(0, 60, 2_000_001)
    r = (edges[1:] + edges[:-1]) / 2
    p, q = (np.exp(-r / (2 * v)) / (2 * v) * np.diff(edges) for v in (s, 1.0))
    square = (p / (p + q) - 0.5) ** 2
    assert found["accuracy"] == pytest.approx(0.5 + np.abs(p - q).sum() / 4, abs=1e-5)
    assert found["mse"] == pytest.approx((square * (p + q)).sum() / 2, abs=1e-5)
    assert found["mse0"] == pytest.approx((square * q).sum(), abs=1e-5)
    right = 0.5 if s == 1 else q[p < q].sum()
    assert found["acc0"] == pytest.approx(right, abs=1e-5)
    if s == 0.5:
        assert found["acc0"] == pytest.approx(0.5)


def test_the_published_null_serves_all_runs():
    zero = dict.fromkeys(("accuracy", "acc0", "mse", "mse0"), 0.0)
    rows = [{"kind": "null", "null": [zero] * 20}]
    for run, (value, p) in enumerate([(1.0, 0.01), (-1.0, 0.9)]):
        named = dict.fromkeys(zero, value)
        pvalue = dict.fromkeys(zero, p)
        rows.append({"kind": "power", "s": 0.5, "run": run, "statistic": named, "pvalue": pvalue})
    found = powers(rows)
    assert found["ours"]["mse"] == {0.5: 0.5}
    assert found["rerun"]["mse"] == {0.5: 0.5}
