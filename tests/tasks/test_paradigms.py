"""The local test on all three paradigms: neural posteriors, likelihoods and ratios."""

from dataclasses import replace

import pytest
import torch

import assay
from assay.randomness import stream
from assay.tasks import ConjugateGaussian
from assay.tasks.nle_nre import train_nle, train_nre
from assay.tasks.npe import MAF, train

TASK = ConjugateGaussian(2, 2)
SMALL = MAF(transforms=2, hidden=(16, 16))


def npe(theta, x):
    return train(theta, x, SMALL, rate=5e-3, epochs=40)


def nle(theta, x):
    return replace(train_nle(theta, x, TASK.prior, SMALL, rate=5e-3, epochs=40), steps=100)


def nre(theta, x):
    return replace(train_nre(theta, x, TASK.prior, rate=5e-3, epochs=40), steps=100)


@pytest.mark.slow
@pytest.mark.parametrize("method", [npe, nle, nre])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_right_posteriors_pass_and_wrong_ones_do_not(method, shift):
    """Trained on the right parameters, or on parameters that are one too high."""
    generator = stream(0, "paradigms")
    theta, x = TASK.joint(4000, generator)
    posterior = method(theta + shift, x)
    theta, x = TASK.joint(300, generator)
    x_o = torch.tensor([0.5, 0.5])
    draws = torch.stack([posterior.sample(x_n, 4, generator) for x_n in x])
    test = assay.lc2st(assay.Calibration(theta, x, draws), assay.Ridge(), assay.Exchange(199))
    p = float(test(assay.Draws(x_o, posterior.sample(x_o, 500, generator))).pvalue)
    assert p == 0.005 if shift else p > 0.01
