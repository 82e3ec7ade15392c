import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration, Exchange, moments
from assay._core import stream
from assay.classifiers.features import Whitened
from assay.diagnostics.local.moment_effects import Balls, Ellipsoids, residuals, still, tail


def sets(n, k, m=2, width=1.0, shift=0.0, seed=0):
    """Truths N(0, I), first, and draws of a q that is so many times as wide, and shifted."""
    noise = torch.randn(n, k + 1, m, generator=stream(seed, "sets", k))
    return torch.cat([noise[:, :1], width * noise[:, 1:] + shift], 1)


def everywhere(n):
    return torch.ones(1, 1, n) / n**0.5


def test_residuals_are_those_of_each_member_against_the_others():
    members = torch.randn(5, 9, 3, generator=stream(0, "members"), dtype=torch.double)
    others = torch.cat([members[:, :4], members[:, 5:]], 1)
    expected = (members[:, 4] - others.mean(1)) / others.std(1)
    torch.testing.assert_close(residuals(members)[:, 4], expected)


def test_sets_in_which_all_but_one_are_the_same():
    members = torch.tensor([[1.0, 1, 1, 1], [1, 1, 5, 1], [1, 2, 2, 2], [1, 1, 2, 2]])[..., None]
    assert still(members)[:, 0].tolist() == [True, True, True, False]


def test_few_draws_are_measured_parameter_by_parameter():
    members = sets(50, 3, m=5)
    assert not Whitened().enough(3, 5)
    found = Ellipsoids(members, Whitened()).distances
    torch.testing.assert_close(found, residuals(members).square().sum(2))


class TestTail:
    def test_latents(self):
        z = torch.zeros(10, 2)
        z[3] = 9.0
        near = torch.ones(1, 2, 10)
        near[0, 0, :5] = 0
        found = tail(Balls(z), near)
        np.testing.assert_array_equal(found.count, [[0, 1]])
        np.testing.assert_array_equal(found.truths, [[5, 10]])
        assert found.pvalue[0, 0] == 1
        assert found.pvalue[0, 1] == pytest.approx(1 - 0.999**10)

    def test_draws(self):
        members = sets(100, 20)
        members[:7, 0] = 50.0
        found = tail(Ellipsoids(members, Whitened()), everywhere(100))
        assert found.share == pytest.approx(1 / 21)
        assert found.count[0, 0] >= 7

    @pytest.mark.parametrize("k", [0, 20])
    def test_level(self, k):
        """1000 repetitions of a right q: p <= 0.05 within a 99.9 % binomial limit."""
        found = []
        for i in range(1000):
            members = sets(300, max(k, 1), seed=i)
            shells = Ellipsoids(members, Whitened()) if k else Balls(members[:, 0])
            found.append(tail(shells, everywhere(300)).pvalue[0, 0])
        assert 0 < np.sum(np.array(found) <= 0.05) <= scipy.stats.binom(1000, 0.05).ppf(0.999)

    def test_a_lost_mode_shows(self):
        """Half of the truths lie where q never draws."""
        members = sets(200, 20)
        theta = members[:, 0] + 8.0 * torch.randint(2, (200, 1), generator=stream(0, "modes"))
        x = torch.randn(200, 1, generator=stream(0, "x"))
        calibration = Calibration(theta, x, members[:, 1:])
        result = moments(calibration, null=Exchange(9))(torch.zeros(1))
        assert result.effects.tail.pvalue[-1] < 1e-6
