"""The local test on all three paradigms of sbi: neural posteriors, likelihoods and ratios."""

from importlib import import_module

import pytest
import torch

import assay
from assay._support.random import isolated, stream
from experiments.tasks import ConjugateGaussian

TASK = ConjugateGaussian(2, 2)
K = 4
X_O = torch.tensor([0.5, 0.5])
SMALL = {"hidden_features": 16, "num_transforms": 2}
# Every draw is chosen among so many of the prior, by its weight: faster here than Markov chains.
RESAMPLED = {
    "sample_with": "importance",
    "importance_sampling_parameters": {"oversampling_factor": 500},
}


def npe(prior, sbi):
    return sbi.inference.NPE(prior, sbi.neural_nets.posterior_nn("maf", **SMALL)), {}


def nle(prior, sbi):
    network = sbi.neural_nets.likelihood_nn("maf", **SMALL)
    return sbi.inference.NLE(prior, network), RESAMPLED


def nre(prior, sbi):
    return sbi.inference.NRE(prior), RESAMPLED


def trained(method, theta, x):
    """The posterior of one of sbi's methods."""
    sbi = import_module("sbi")
    import_module("sbi.inference")
    prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    inference, how = method(prior, sbi)
    inference.append_simulations(theta, x).train(learning_rate=2e-3, max_num_epochs=40)
    return inference.build_posterior(**how)


def draws(posterior, x, n):
    return posterior.sample((n,), x=x, show_progress_bars=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", [npe, nle, nre])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_right_posteriors_pass_and_wrong_ones_do_not(method, shift, tmp_path, monkeypatch):
    """Trained on the right parameters, or on parameters that are one too high."""
    # Where sbi leaves its logs.
    monkeypatch.chdir(tmp_path)
    generator = stream(0, "paradigms")
    pairs = TASK.joint(8000, generator)
    theta, x = TASK.joint(300, generator)
    with isolated(generator):
        posterior = trained(method, pairs[0] + shift, pairs[1])
        theta_q = torch.stack([draws(posterior, at, K) for at in x])
        theta_o = draws(posterior, X_O, 500)
    calibration = assay.Calibration(theta, x, theta_q)
    test = assay.lc2st(calibration, assay.Ridge(), assay.Exchange(199))
    p = float(test(assay.Draws(X_O, theta_o)).pvalue)
    assert p == 0.005 if shift else p > 0.01
