import pytest
import scipy.stats
import torch

from assay._support.random import stream
from experiments.tasks.truncated import log_mass, truncated_normal

LIMITS = [(-1.0, 2.0), (3.0, 3.5), (-40.0, -39.0), (30.0, 60.0), (-0.1, 0.1)]


@pytest.mark.parametrize(("low", "high"), LIMITS)
def test_draws_follow_the_truncated_normal(low, high):
    limits = (torch.full((5000,), edge, dtype=torch.float64) for edge in (low, high))
    draws = truncated_normal(*limits, stream(0, "draws"))
    assert ((draws >= low) & (draws <= high)).all()
    assert scipy.stats.kstest(draws.numpy(), scipy.stats.truncnorm(low, high).cdf).pvalue > 1e-3


@pytest.mark.parametrize(("low", "high"), LIMITS)
def test_masses(low, high):
    found = log_mass(*(torch.tensor([edge], dtype=torch.float64) for edge in (low, high)))
    upper, lower = (
        scipy.stats.norm.logcdf([high, low]) if high < 0 else scipy.stats.norm.logsf([low, high])
    )
    exact = upper + torch.log1p(-torch.exp(torch.tensor(lower - upper, dtype=torch.float64)))
    torch.testing.assert_close(found[0], exact, rtol=1e-8, atol=1e-10)


def test_ends():
    low, high = torch.tensor([-1.0, 2.0]).double(), torch.tensor([1.0, 5.0]).double()
    torch.testing.assert_close(truncated_normal(low, high, torch.zeros(2).double()), low)
    torch.testing.assert_close(truncated_normal(low, high, torch.ones(2).double()), high)
