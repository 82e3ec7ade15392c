import math

import pytest
import scipy.stats
import torch

from assay._support.random import stream
from experiments.tasks import GaussianLinearUniform

TASK = GaussianLinearUniform()


def test_a_tenth_is_the_variance():
    x = TASK.simulate(torch.zeros(20_000, 10), stream(0, "noise"))
    assert float(x.var()) == pytest.approx(0.1, rel=0.02)
    assert torch.corrcoef(x.T).fill_diagonal_(0).abs().max() < 0.04


def test_the_evidence_by_draws_of_the_prior():
    x_o = torch.zeros(10)
    theta = TASK.prior.sample(200_000, stream(0, "evidence"))
    likelihood = TASK.log_posterior(theta, x_o) + 10 * math.log(2)
    found = torch.logsumexp(likelihood, 0) - math.log(len(theta))
    law = scipy.stats.norm(0, 0.1**0.5)
    expected = 10 * math.log((law.cdf(1) - law.cdf(-1)) / 2)
    assert float(found) == pytest.approx(expected, abs=0.05)
