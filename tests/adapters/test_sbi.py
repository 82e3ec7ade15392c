"""Posteriors of sbi, trained for seconds, through a check in one line."""

import warnings
from functools import cache, partial
from importlib import import_module

import pytest
import torch
import zuko
from torch.distributions import AffineTransform

import assay
from assay._support.random import isolated, stream
from assay.data.draw import Sampler
from assay.data.posterior import as_posterior, latents

sbi = import_module("sbi.inference")
DirectPosterior = import_module("sbi.inference.posteriors").DirectPosterior
EnsemblePosterior = import_module("sbi.inference.posteriors").EnsemblePosterior
utils = import_module("sbi.utils")
nets = import_module("sbi.neural_nets")

pytestmark = pytest.mark.filterwarnings("ignore")
NORMAL = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
BOX = utils.BoxUniform(-2 * torch.ones(2), 2 * torch.ones(2))
check = partial(assay.check, nulls=39, draws=8, classifier=None)
SMALL = {"hidden_features": 8, "num_transforms": 2}


def pairs(prior, n, seed=0):
    with isolated(stream(seed, "pairs")):
        theta = prior.sample((n,))
        return theta, theta + 0.5 * torch.randn(n, 2)


def trained(inference, prior, epochs=3, n=200):
    """A posterior of one of sbi's methods."""
    with isolated(stream(0, "training")), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inference.append_simulations(*pairs(prior, n)).train(max_num_epochs=epochs)
    return inference


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory):
    """Where sbi leaves its logs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("sbi"))
        yield


@cache
def npe(model, prior=NORMAL, *, embedded=False):
    """A neural posterior, trained once."""
    with isolated(stream(0, "network")):
        how = {"embedding_net": torch.nn.Linear(2, 3)} if embedded else {}
        network = nets.posterior_nn(model, **SMALL, **how)
        return trained(sbi.NPE(prior, network, show_progress_bars=False), prior).build_posterior()


@cache
def other(method, epochs=3):
    """What another of sbi's methods has trained, once."""
    with isolated(stream(0, "network")):
        return trained(method(NORMAL, show_progress_bars=False), NORMAL, epochs)


def amortized():
    posterior = other(sbi.NLE, 2).build_posterior(sample_with="vi")
    few = {"max_num_iters": 5, "n_particles": 16, "batch_size": 16}
    with isolated(stream(0, "training")):
        return posterior.train_amortized(*pairs(NORMAL, 100), **few, show_progress_bar=False)


class Noise(zuko.lazy.LazyTransform):
    """Latents of x = theta + noise: the noise, in units of its deviation."""

    def forward(self, x):
        scale = torch.full_like(x, 2.0)
        return zuko.transforms.DependentTransform(AffineTransform(-2 * x, scale), 1)


def exact_estimator():
    """The posterior for a flat prior without bounds, as a density estimator of sbi."""
    base = zuko.lazy.UnconditionalDistribution(
        zuko.distributions.DiagNormal, torch.zeros(2), torch.ones(2), buffer=True
    )
    two = torch.Size((2,))
    return nets.estimators.ZukoFlow(zuko.lazy.Flow([Noise()], base), torch.nn.Identity(), two, two)


def own_latents(posterior, n=16, b=60):
    """Latents (b, n, m) of the posterior's own draws, by its flow or its coordinates."""
    theta, x = pairs(NORMAL, b)
    q = as_posterior(posterior, x)
    draws = Sampler(q).draw(x, n, "own").theta
    to_base = q.flow.theta_to_base if q.flow is not None else q.coordinates
    return latents(to_base, draws.flatten(0, 1), x.repeat_interleave(n, 0)).numpy()


def is_normal(z):
    from scipy.stats import kstest

    return min(kstest(column, "norm").pvalue for column in z.T) > 1e-4


# All draws of these are q, and they have latents.
FLOWS = {
    "maf": partial(npe, "maf"),
    "zuko_nsf": partial(npe, "zuko_nsf"),
    "maf, embedded": partial(npe, "maf", embedded=True),
    "zuko_nsf, embedded": partial(npe, "zuko_nsf", embedded=True),
    "flow matching": lambda: other(sbi.FMPE).build_posterior(),
    "score matching": lambda: other(sbi.NPSE).build_posterior(sample_with="ode"),
    "amortized variational": amortized,
}


class TestFlows:
    @pytest.mark.parametrize("make", FLOWS.values(), ids=FLOWS)
    def test_latents_of_own_draws_are_normal(self, make):
        assert is_normal(own_latents(make()))

    @pytest.mark.parametrize("make", FLOWS.values(), ids=FLOWS)
    def test_in_one_line(self, make):
        theta, x = pairs(NORMAL, 60, 1)
        found = check(make(), theta, x, assay.Draws(x[:1], n=50))
        assert found.settings["space"] == "latent"
        assert found.remarks == ()

    def test_density_of_a_vector_field(self):
        (theta, x), fmpe = pairs(NORMAL, 4), FLOWS["flow matching"]()
        log_q = as_posterior(fmpe, x).log_density(theta, x)
        own = [fmpe.log_prob(t[None], x=at[None])[0] for t, at in zip(theta, x, strict=True)]
        torch.testing.assert_close(log_q, torch.stack(own), atol=0.01, rtol=0)

    def test_a_bare_estimator_is_not_truncated(self):
        estimator = npe("maf", BOX).posterior_estimator
        assert as_posterior(estimator, torch.zeros(1, 2)).flow is not None
        assert is_normal(own_latents(estimator))

    def test_a_mixture_has_no_latents(self):
        posterior = as_posterior(npe("mdn"), torch.zeros(1, 2))
        assert posterior.flow is posterior.coordinates is None


class TestTruncated:
    @pytest.mark.parametrize("model", ["maf", "zuko_nsf", "mdn"])
    def test_the_density_ranks_truncated_draws(self, model):
        """It differs from that of sbi by a constant at each x."""
        posterior, (theta, x) = npe(model, BOX), pairs(BOX, 20, 1)
        calibration = assay.Calibration.of(posterior, theta, x, 8)
        log_q = as_posterior(posterior, x).log_density
        draws, at = calibration.theta_q[3], x[3].expand(8, -1)
        constant = log_q(draws, at) - posterior.log_prob(draws, x=x[3])
        assert constant.std() < 1e-3
        assert assay.coverage(calibration, log_q, null=19).pvalue > 0

    def test_a_box_truncates(self):
        theta, x = pairs(BOX, 120, 1)
        found = check(npe("maf", BOX), theta, x, x[0])
        assert found.settings["space"] == "parameters"
        assert found.remarks[0].startswith("q is truncated: about")
        assert "exact for the truncated q" in found.remarks[1]

    @pytest.mark.parametrize("model", ["maf", "zuko_nsf"])
    def test_latents_of_truncated_draws_are_not_normal(self, model):
        assert not is_normal(own_latents(npe(model, BOX)))

    def test_what_is_right_is_not_rejected(self):
        """An exact flow, which sbi truncates: at most two of ten seeds at level 0.05."""
        posterior = DirectPosterior(exact_estimator(), BOX)
        assert sum(self.pvalue(posterior, seed) <= 0.05 for seed in range(10)) <= 2

    @staticmethod
    def pvalue(posterior, seed):
        """Of truncated draws in the coordinates of the flow, in a corner of the prior."""
        theta, x = pairs(BOX, 300, seed)
        calibration = assay.Calibration.of(posterior, theta, x, 8, seed=seed)
        assert calibration.theta_q.abs().max() <= 2
        to_base = as_posterior(posterior, x).coordinates
        z = latents(to_base, calibration.members.flatten(0, 1), x.repeat_interleave(9, 0))
        z = z.reshape(calibration.members.shape)
        found = assay.score(calibration.with_members(z[:, 0], z[:, 1:]), null=39)
        return float(found(torch.full((2,), 1.9)).pvalue)

    def test_the_same_seed_gives_the_same_draws_in_the_box(self):
        theta, x = pairs(BOX, 60, 1)
        first, again, other = (
            assay.Calibration.of(npe("maf", BOX), theta, x, 4, seed=seed).theta_q
            for seed in (0, 0, 1)
        )
        assert first.abs().max() <= 2
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


@pytest.mark.parametrize("kind", [torch.float64, torch.int64])
def test_data_of_another_precision(kind):
    theta, x = (array.to(kind) for array in pairs(NORMAL, 60, 1))
    theta = theta + torch.rand(60, 2, generator=stream(0, "jitter"))
    calibration = assay.Calibration.of(npe("zuko_nsf"), theta, x, 4)
    assert calibration.theta_q.dtype == torch.float64


def test_images_go_through_the_embedding_net():
    """x of two axes, by the network's own features."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    theta, x = pairs(NORMAL, 200)
    images = torch.stack([x, x**2], 2)
    with isolated(stream(0, "network")):
        built = nets.posterior_nn("maf", embedding_net=network, z_score_x="structured", **SMALL)
        inference = sbi.NPE(NORMAL, built, show_progress_bars=False)
        inference.append_simulations(theta, images).train(max_num_epochs=2)
    calibration = assay.Calibration.of(inference.build_posterior(), theta, images, 4)
    assert calibration.features.shape == (200, 3)


def test_score_matching_with_noise_has_draws_alone():
    theta, x = pairs(NORMAL, 40, 1)
    posterior = other(sbi.NPSE).build_posterior(sample_with="sde")
    found = check(posterior, theta, x, assay.Draws(x[:1], n=50))
    assert found.settings["space"] == "parameters"


def test_variational_of_a_single_x():
    """It is refused, and a function that trains it at each x is not."""
    posterior = other(sbi.NLE, 2).build_posterior(sample_with="vi")
    theta, x = pairs(NORMAL, 12, 1)
    words = "VIPosterior of sbi, which is trained at a single one. .*retrain_from_scratch=True"
    with pytest.raises(TypeError, match=words):
        check(posterior, theta, x, x[:1])
    few = {"max_num_iters": 2, "warm_up_rounds": 1, "quality_control": False}

    def sample(x, n):
        how = {"retrain_from_scratch": True, "show_progress_bar": False, **few}
        return posterior.train(x[None], **how).sample((n,), x=x[None])

    calibration = assay.Calibration.of(sample, theta, x, 3)
    assert calibration.theta_q.shape == (12, 3, 2)


@pytest.mark.parametrize("method", ["sir", "importance"])
def test_importance_weights_are_resampled(method):
    """A posterior that returns draws with weights is asked for draws."""
    how = {"sample_with": "importance", "importance_sampling_parameters": {"method": method}}
    theta, x = pairs(NORMAL, 60, 1)
    found = check(other(sbi.NLE, 2).build_posterior(**how), theta, x, x[:1])
    assert found.settings["space"] == "parameters"


def test_an_ensemble_chooses_members_for_every_draw():
    """sbi's own batches take the same members at every x."""
    ensemble = EnsemblePosterior([npe("maf"), npe("zuko_nsf")])
    theta, x = pairs(NORMAL, 100, 1)
    calibration = assay.Calibration.of(ensemble, theta, x, 8)
    assert calibration.theta_q.shape == (100, 8, 2)
    assert as_posterior(ensemble, x).flow is None


@pytest.mark.parametrize("kind", [sbi.NRE, pytest.param(sbi.NLE, marks=pytest.mark.slow)])
def test_markov_chains_in_one_line(kind):
    """A chain for each draw, at many x at once."""
    few = {"warmup_steps": 2, "num_chains": 2, "init_strategy": "proposal"}
    posterior = other(kind).build_posterior(sample_with="mcmc", mcmc_parameters=few)
    theta, x = pairs(NORMAL, 20, 1)
    found = check(posterior, theta, x, assay.Draws(x[:1], n=20), draws=4)
    assert found.settings["space"] == "parameters"
    assert "a chain for each draw at x, after 2 steps of warm-up" in "".join(found.remarks)


@pytest.mark.parametrize(
    "method", ["importance", pytest.param("rejection", marks=pytest.mark.slow)]
)
def test_ratios_without_chains(method):
    theta, x = pairs(NORMAL, 10, 1)
    posterior = other(sbi.NRE).build_posterior(sample_with=method)
    calibration = assay.Calibration.of(posterior, theta, x, 3)
    assert calibration.theta_q.shape == (10, 3, 2)
    assert calibration.remarks == ()
