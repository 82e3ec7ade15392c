"""Posteriors of sbi, trained for seconds, through a check in one line."""

import warnings
from functools import partial
from importlib import import_module

import pytest
import torch
import zuko
from torch.distributions import AffineTransform

import assay
from assay._support.random import stream
from assay._support.user_code import isolated
from assay.data.draw import draw_at
from assay.data.posterior import as_posterior, latents

sbi = import_module("sbi.inference")
DirectPosterior = import_module("sbi.inference.posteriors").DirectPosterior
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


@pytest.fixture(scope="module")
def npe(tmp_path_factory):
    """Neural posteriors, by prior and network."""
    # Where sbi leaves its logs.
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("sbi"))
        kept = {}

        def make(prior, model, **how):
            key = id(prior), model, bool(how)
            if key not in kept:
                with isolated(stream(0, "network")):
                    network = nets.posterior_nn(model, **SMALL, **how)
                    kept[key] = trained(
                        sbi.NPE(prior, network, show_progress_bars=False), prior
                    ).build_posterior()
            return kept[key]

        yield make


@pytest.fixture(scope="module")
def fmpe(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("sbi"))
        with isolated(stream(0, "network")):
            yield trained(sbi.FMPE(NORMAL, show_progress_bars=False), NORMAL).build_posterior()


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
    draws = draw_at(q, x, n, 0, "own").theta
    to_base = q.flow.theta_to_base if q.flow is not None else q.coordinates
    return latents(to_base, draws.flatten(0, 1), x.repeat_interleave(n, 0)).numpy()


def is_normal(z):
    from scipy.stats import kstest

    return min(kstest(column, "norm").pvalue for column in z.T) > 1e-4


class TestDirect:
    @pytest.mark.parametrize("model", ["maf", "zuko_nsf"])
    @pytest.mark.parametrize("embedded", [False, True])
    def test_latents_of_own_draws_are_normal(self, npe, model, embedded):
        how = {"embedding_net": torch.nn.Linear(2, 3)} if embedded else {}
        assert is_normal(own_latents(npe(NORMAL, model, **how)))

    @pytest.mark.parametrize("model", ["maf", "zuko_nsf"])
    @pytest.mark.parametrize("embedded", [False, True])
    def test_in_one_line(self, npe, model, embedded):
        how = {"embedding_net": torch.nn.Linear(2, 3)} if embedded else {}
        theta, x = pairs(NORMAL, 120, 1)
        found = check(npe(NORMAL, model, **how), theta, x, x[:1])
        assert found.settings["space"] == "latent"
        assert found.remarks == ()

    @pytest.mark.parametrize("model", ["maf", "zuko_nsf", "mdn"])
    def test_the_density_ranks_truncated_draws(self, npe, model):
        """It differs from that of sbi by a constant at each x."""
        posterior, (theta, x) = npe(BOX, model), pairs(BOX, 20, 1)
        made = assay.Calibration.of(posterior, theta, x, 8)
        log_q = as_posterior(posterior, x).log_density
        draws, at = made.theta_q[3], x[3].expand(8, -1)
        constant = log_q(draws, at) - posterior.log_prob(draws, x=x[3])
        assert constant.std() < 1e-3
        assert assay.coverage(made, log_q, null=19).pvalue > 0

    def test_a_box_truncates(self, npe):
        theta, x = pairs(BOX, 120, 1)
        found = check(npe(BOX, "maf"), theta, x, x[0])
        assert found.settings["space"] == "parameters"
        assert found.remarks[0].startswith("q is truncated: about")
        assert "exact for the truncated q" in found.remarks[1]

    @pytest.mark.parametrize("model", ["maf", "zuko_nsf"])
    def test_latents_of_truncated_draws_are_not_normal(self, npe, model):
        assert not is_normal(own_latents(npe(BOX, model)))

    def test_what_is_right_is_not_rejected(self):
        """An exact flow, which sbi truncates: at most two of ten seeds at level 0.05."""
        posterior = DirectPosterior(exact_estimator(), BOX)
        assert sum(self.pvalue(posterior, seed) <= 0.05 for seed in range(10)) <= 2

    @staticmethod
    def pvalue(posterior, seed):
        """Of truncated draws in the coordinates of the flow, in a corner of the prior."""
        theta, x = pairs(BOX, 300, seed)
        made = assay.Calibration.of(posterior, theta, x, 8, seed=seed)
        assert made.theta_q.abs().max() <= 2
        to_base = as_posterior(posterior, x).coordinates
        z = latents(to_base, made.members.flatten(0, 1), x.repeat_interleave(9, 0))
        z = z.reshape(made.members.shape)
        found = assay.score(made.with_members(z[:, 0], z[:, 1:]), null=39)
        return float(found(torch.full((2,), 1.9)).pvalue)

    def test_draws_stay_in_the_box(self, npe):
        theta, x = pairs(BOX, 60, 1)
        calibration = assay.Calibration.of(npe(BOX, "maf"), theta, x, 8)
        assert calibration.theta_q.abs().max() <= 2

    def test_a_mixture_has_no_latents(self, npe):
        posterior = as_posterior(npe(NORMAL, "mdn"), torch.zeros(1, 2))
        assert posterior.flow is posterior.coordinates is None

    def test_the_same_seed_gives_the_same_draws(self, npe):
        theta, x = pairs(BOX, 60, 1)
        first, again, other = (
            assay.Calibration.of(npe(BOX, "maf"), theta, x, 4, seed=seed).theta_q
            for seed in (0, 0, 1)
        )
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    @pytest.mark.parametrize("kind", [torch.float64, torch.int64])
    def test_data_of_another_precision(self, npe, kind):
        theta, x = (array.to(kind) for array in pairs(NORMAL, 60, 1))
        theta = theta + torch.rand(60, 2, generator=stream(0, "jitter"))
        calibration = assay.Calibration.of(npe(NORMAL, "zuko_nsf"), theta, x, 4)
        assert calibration.theta_q.dtype == torch.float64

    def test_a_bare_estimator_is_not_truncated(self, npe):
        estimator = npe(BOX, "maf").posterior_estimator
        assert as_posterior(estimator, torch.zeros(1, 2)).flow is not None
        assert is_normal(own_latents(estimator))


def test_images_are_seen_through_the_embedding_net(npe):
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


class TestVectorField:
    def test_latents_of_own_draws_are_normal(self, fmpe):
        assert is_normal(own_latents(fmpe, b=30))

    def test_density(self, fmpe):
        theta, x = pairs(NORMAL, 4)
        log_q = as_posterior(fmpe, x).log_density(theta, x)
        own = [fmpe.log_prob(t[None], x=at[None])[0] for t, at in zip(theta, x, strict=True)]
        torch.testing.assert_close(log_q, torch.stack(own), atol=0.01, rtol=0)

    def test_in_one_line(self, fmpe):
        theta, x = pairs(NORMAL, 60, 1)
        found = check(fmpe, theta, x, assay.Draws(x[0], n=50))
        assert found.settings["space"] == "latent"


class TestScores:
    """Score matching: the equation without noise is a flow, the one with noise has draws alone."""

    @pytest.fixture(scope="class")
    def npse(self, tmp_path_factory):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path_factory.mktemp("sbi"))
            with isolated(stream(0, "network")):
                yield trained(sbi.NPSE(NORMAL, show_progress_bars=False), NORMAL)

    def test_latents_of_own_draws_are_normal(self, npse):
        assert is_normal(own_latents(npse.build_posterior(sample_with="ode"), b=30))

    @pytest.mark.parametrize(("way", "space"), [("ode", "latent"), ("sde", "parameters")])
    def test_in_one_line(self, npse, way, space):
        theta, x = pairs(NORMAL, 40, 1)
        posterior = npse.build_posterior(sample_with=way)
        found = check(posterior, theta, x, assay.Draws(x[:1], n=50))
        assert found.settings["space"] == space


class TestVariational:
    @pytest.fixture
    def likelihood(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with isolated(stream(0, "network")):
            return trained(sbi.NLE(NORMAL, show_progress_bars=False), NORMAL, 2)

    def test_amortized(self, likelihood):
        """All draws of its flow are q."""
        posterior = likelihood.build_posterior(sample_with="vi")
        few = {"max_num_iters": 5, "n_particles": 16, "batch_size": 16}
        with isolated(stream(0, "training")):
            posterior.train_amortized(*pairs(NORMAL, 100), **few, show_progress_bar=False)
        assert is_normal(own_latents(posterior))
        theta, x = pairs(NORMAL, 60, 1)
        found = check(posterior, theta, x, x[:1])
        assert found.settings["space"] == "latent"

    def test_of_a_single_x(self, likelihood):
        """It is refused, and a function that trains it at each x is not."""
        posterior = likelihood.build_posterior(sample_with="vi")
        theta, x = pairs(NORMAL, 12, 1)
        words = "VIPosterior of sbi, which is trained at a single one. .*retrain_from_scratch=True"
        with pytest.raises(TypeError, match=words):
            check(posterior, theta, x, x[:1])
        few = {"max_num_iters": 2, "warm_up_rounds": 1, "quality_control": False}

        def sample(x, n):
            how = {"retrain_from_scratch": True, "show_progress_bar": False, **few}
            return posterior.train(x[None], **how).sample((n,), x=x[None])

        made = assay.Calibration.of(sample, theta, x, 3)
        assert made.theta_q.shape == (12, 3, 2)


@pytest.mark.parametrize("method", ["sir", "importance"])
def test_importance_weights_are_resampled(method, tmp_path, monkeypatch):
    """A posterior that returns draws with weights is asked for draws."""
    monkeypatch.chdir(tmp_path)
    with isolated(stream(0, "network")):
        inference = trained(sbi.NLE(NORMAL, show_progress_bars=False), NORMAL, 2)
        posterior = inference.build_posterior(
            sample_with="importance", importance_sampling_parameters={"method": method}
        )
    theta, x = pairs(NORMAL, 60, 1)
    found = check(posterior, theta, x, x[:1])
    assert found.settings["space"] == "parameters"


def test_an_ensemble_chooses_members_for_every_draw(npe):
    """sbi's own batches take the same members at every x."""
    from sbi.inference.posteriors import EnsemblePosterior

    ensemble = EnsemblePosterior([npe(NORMAL, "maf"), npe(NORMAL, "zuko_nsf")])
    theta, x = pairs(NORMAL, 100, 1)
    calibration = assay.Calibration.of(ensemble, theta, x, 8)
    assert calibration.theta_q.shape == (100, 8, 2)
    assert as_posterior(ensemble, x).flow is None


@pytest.mark.parametrize("kind", [sbi.NRE, pytest.param(sbi.NLE, marks=pytest.mark.slow)])
def test_markov_chains_in_one_line(kind, tmp_path, monkeypatch):
    """A chain for each draw, at many x at once."""
    monkeypatch.chdir(tmp_path)
    few = {"warmup_steps": 2, "num_chains": 2, "init_strategy": "proposal"}
    with isolated(stream(0, "network")):
        inference = trained(kind(NORMAL, show_progress_bars=False), NORMAL)
        posterior = inference.build_posterior(sample_with="mcmc", mcmc_parameters=few)
    theta, x = pairs(NORMAL, 20, 1)
    found = check(posterior, theta, x, assay.Draws(x[:1], n=20), draws=4)
    assert found.settings["space"] == "parameters"
    assert "a chain for each draw at x, after 2 steps of warm-up" in "".join(found.remarks)


@pytest.mark.parametrize(
    "method", ["importance", pytest.param("rejection", marks=pytest.mark.slow)]
)
def test_ratios_without_chains(method, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with isolated(stream(0, "network")):
        inference = trained(sbi.NRE(NORMAL, show_progress_bars=False), NORMAL)
    theta, x = pairs(NORMAL, 10, 1)
    calibration = assay.Calibration.of(inference.build_posterior(sample_with=method), theta, x, 3)
    assert calibration.theta_q.shape == (10, 3, 2)
    assert calibration.remarks == ()
