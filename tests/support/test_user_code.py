import random

import numpy as np
import pytest
import torch

from assay._support.random import stream
from assay._support.user_code import isolated


def test_isolated_leaves_global_generators_alone():
    """Also after an error."""

    def numbers():
        return torch.rand(1), np.random.rand(), random.random()

    def seeded():
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)

    seeded()
    before = numbers()
    seeded()
    with isolated(stream(0, "inside")):
        inside = numbers()
    with pytest.raises(ZeroDivisionError), isolated(stream(0, "inside")):
        torch.rand(3) / (1 // 0)
    assert numbers() == before
    with isolated(stream(0, "inside")):
        assert numbers() == inside
