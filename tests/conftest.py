"""A conjugate Gaussian model, and approximations of its posterior that are right or wrong.

theta ~ N(0, I), x = theta + N(0, I), so that p(theta | x) = N(x / 2, I / 2). The approximation
q(theta | x) = N(x / 2 + shift, width^2 I / 2) is exact for width 1, conservative for a larger one
and overconfident for a smaller one.
"""

import math
from dataclasses import dataclass

import pytest
import torch

import assay
from assay._support.random import stream
from assay.classifiers.base import Scores
from assay.data.posterior import StandardNormal


@dataclass(frozen=True)
class Gaussian:
    width: float = 1.0
    shift: float = 0.0
    m: int = 2

    @property
    def base(self):
        return StandardNormal(self.m)

    @property
    def scale(self):
        return self.width * math.sqrt(0.5)

    def theta_to_base(self, theta, x):
        return (theta - x / 2 - self.shift) / self.scale

    def sample(self, x, n):
        return x / 2 + self.shift + self.scale * torch.randn(n, self.m)

    def draw(self, x, k, generator):
        noise = torch.randn(len(x), k, self.m, generator=generator)
        return x[:, None] / 2 + self.shift + self.scale * noise

    def calibration(self, n, k=1, seed=0):
        generator = stream(seed, "calibration")
        theta = torch.randn(n, self.m, generator=generator)
        x = theta + torch.randn(n, self.m, generator=generator)
        return assay.Calibration(theta, x, self.draw(x, k, generator))

    def latents(self, n, seed=0):
        calibration = self.calibration(n, seed=seed)
        return assay.Calibration.from_base(
            self.theta_to_base(calibration.theta, calibration.x), calibration.x
        )

    def draws(self, x, n=500, seed=0):
        x = torch.as_tensor(x)
        theta = self.draw(x.reshape(-1, self.m), n, stream(seed, "draws"))
        return assay.Draws(x, theta if x.ndim == 2 else theta[0])

    def bayes(self, theta, x):
        """The Bayes classifier d* = p / (p + q)."""
        p = torch.distributions.Normal(x / 2, math.sqrt(0.5)).log_prob(theta).sum(-1)
        q = torch.distributions.Normal(x / 2 + self.shift, self.scale).log_prob(theta).sum(-1)
        return torch.sigmoid(p - q)


class FunctionScores(Scores):
    """A function of theta (o, s, m) and features of x (o, d) as scores (o, H + 1, s)."""

    def __init__(self, function):
        self.function = function

    def __call__(self, theta, x):
        return self.function(theta, x)


@pytest.fixture
def gaussian():
    return Gaussian
