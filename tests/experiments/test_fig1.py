import pytest
from experiments.fig1 import closed_form, powers


@pytest.mark.parametrize("s", [0.1, 0.5, 1.0, 1.4])
def test_statistics_in_closed_form(s):
    """The accuracy of the Bayes classifier is one half plus half the total variation."""
    found = closed_form(s)
    assert 0.5 <= found["accuracy"] < 1
    assert 0 <= found["mse"] < 0.25
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
    assert found["as published"]["mse"] == {0.5: 0.5}
