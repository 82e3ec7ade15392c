import math

import pytest
from experiments.beyond import needed


def test_pairs_that_a_power_needs():
    assert needed([100, 1000], [0.9, 1.0]) == 100
    assert needed([100, 1000], [0.1, 0.5]) == math.inf
    assert needed([100, 10_000], [0.6, 1.0]) == pytest.approx(1000)
