import numpy as np
import torch

from assay._support.random import stream
from experiments.tasks import BernoulliGLM, BernoulliGLMRaw
from experiments.tasks.bernoulli_glm import _bound, _design, _Proposal, _Target


def test_the_design_by_hand():
    stimulus = np.random.RandomState(42).randn(100)
    design = _design().numpy()
    assert (design[:, 0] == 1).all()
    np.testing.assert_allclose(design[:, 1], stimulus, atol=1e-6)
    np.testing.assert_allclose(design[5:, 6], stimulus[:-5], atol=1e-6)
    assert (design[:5, 6] == 0).all()


def test_the_summary_is_that_of_the_raw_spikes():
    raw, summary = (
        BernoulliGLMRaw().observations.x.double(),
        BernoulliGLM().observations.x.double(),
    )
    torch.testing.assert_close(raw @ _design(), summary, atol=1e-4, rtol=0)


def test_both_tasks_have_the_same_posterior():
    raw, summary = BernoulliGLMRaw(), BernoulliGLM()
    first = raw.posterior(raw.observations.x[3].double(), 500, stream(0, "a")).theta
    second = summary.posterior(
        raw.observations.x[3].double() @ _design(), 500, stream(0, "a")
    ).theta
    torch.testing.assert_close(first, second, atol=1e-6, rtol=0)


def test_the_simulator_spikes_as_often_as_it_should():
    theta = BernoulliGLM().observations.theta[:1]
    x = BernoulliGLMRaw().simulate(theta.expand(20_000, -1), stream(0, "x"))
    chances = torch.sigmoid(theta.double() @ _design().mT)[0]
    error = (chances * (1 - chances) / 20_000).sqrt()
    assert ((x.double().mean(0) - chances).abs() < 4.5 * error).all()
    assert set(x.unique().tolist()) == {0.0, 1.0}


def test_the_mode_is_flat_and_the_bound_holds():
    target = _Target(BernoulliGLM().observations.x[0].double())
    mode = target.mode
    assert target.slope(mode).abs().max() < 1e-8
    slope = torch.autograd.functional.jacobian(
        lambda t: target.log_density(t[None])[0], mode + 0.1
    )
    torch.testing.assert_close(slope, target.slope(mode + 0.1))
    proposal = _Proposal.around(mode, target.curvature(mode))
    bound = _bound(target, proposal, stream(0, "pilots"))
    theta = proposal.sample(200_000, stream(0, "many"))
    assert (target.log_density(theta) - proposal.log_density(theta) <= bound).all()


def test_the_slope_of_the_proposal():
    proposal = _Proposal.around(torch.zeros(10).double(), 2 * torch.eye(10).double())
    point = torch.linspace(-1, 1, 10).double()
    slope = torch.autograd.functional.jacobian(lambda t: proposal.log_density(t[None])[0], point)
    torch.testing.assert_close(slope, proposal.slope(point))
