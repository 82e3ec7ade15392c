"""Libraries with an environment of their own: make test-adapters."""

from functools import partial
from importlib import import_module

import numpy as np
import pytest
import torch

import assay
from assay._support.random import isolated, stream
from assay.data.posterior import as_posterior, fresh_key, latents

pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("ignore")]
THETA = torch.randn(60, 2, generator=stream(0, "theta"))
X = THETA + torch.randn(60, 2, generator=stream(0, "x"))
check = partial(assay.check, nulls=39, classifier=None)


def sample(x, n):
    return x / 2 + 0.5**0.5 * torch.randn(n, 2)


def test_data_frames():
    pandas = import_module("pandas")
    theta = pandas.DataFrame(THETA.numpy(), columns=["a", "b"])
    x = pandas.DataFrame(X.numpy(), columns=["u", "v"])
    row = x[["v", "u"]].iloc[0]
    found = check(sample, theta, x, row)
    assert found.names == ("a", "b")
    np.testing.assert_allclose(found.test.x[0], X[0])
    draws = pandas.DataFrame(sample(X[0], 50).numpy(), columns=["a", "c"])
    with pytest.raises(ValueError, match="theta_o: expected columns"):
        assay.Calibration.of(sample, theta, x, 4).observe(assay.Draws(row, draws))


@pytest.mark.parametrize(
    ("values", "columns", "error", "words"),
    [
        ("a", ["mu", "nu"], TypeError, "theta: expected an array of real numbers"),
        (None, ["mu", "nu"], TypeError, "theta: expected an array of real numbers"),
        (0.0, ["mu", "mu"], ValueError, "names: expected a different one for each column"),
    ],
)
def test_data_frames_that_are_refused(values, columns, error, words):
    pandas = import_module("pandas")
    numbers = np.zeros((20, 2), dtype=object if values != 0.0 else float)
    numbers[3, 1] = values
    frame = pandas.DataFrame(numbers, columns=columns)
    with pytest.raises(error, match=words):
        assay.Calibration(frame, np.zeros((20, 1)), np.zeros((20, 2)))


def test_data_sets():
    xarray = import_module("xarray")
    theta = xarray.Dataset({"a": ("n", THETA[:, 0]), "b": ("n", THETA[:, 1])})
    x = xarray.DataArray(X, dims=("n", "feature"), coords={"feature": ["u", "v"]})
    calibration = assay.Calibration.of(sample, theta, x, 4)
    assert calibration.names == ("a", "b")
    assert calibration.layout.names == ("u", "v")


def test_inference_data():
    """Draws of chains are taken at random, with their names."""
    arviz = import_module("arviz")
    chains = [arviz.from_dict({"mu": sample(x, 200).reshape(2, 100, 2).numpy()}) for x in X]
    calibration = assay.Calibration({"mu": THETA}, X, chains)
    assert calibration.names == ("mu[0]", "mu[1]")
    assert calibration.k == 16
    found = check(calibration, x_o=assay.Draws(X[0] + 0.1, chains[0]))
    assert found.names == calibration.names


def test_a_data_tree():
    """What newer versions of ArviZ return."""
    xarray = import_module("xarray")
    arrays = [sample(x, 200).reshape(2, 100, 2).numpy() for x in X]
    sets = [xarray.Dataset({"mu": (("chain", "draw", "i"), array)}) for array in arrays]
    trees = [xarray.DataTree.from_dict({"posterior": each, "prior": each}) for each in sets]
    calibration = assay.Calibration({"mu": THETA}, X, trees)
    assert calibration.names == ("mu[0]", "mu[1]")
    found = check(calibration, x_o=assay.Draws(X[0] + 0.1, trees[0]))
    assert found.names == calibration.names


class TestOut:
    """Draws leave as InferenceData, and come back as they were."""

    NAMES = ("mu[0]", "mu[1]", "tau")
    THETA = torch.randn(4, 50, 3, generator=stream(0, "out"))

    @pytest.fixture(params=["InferenceData", "DataTree"])
    def out(self, request, monkeypatch):
        if request.param == "DataTree":
            monkeypatch.delattr("arviz.InferenceData")
        return import_module("assay.adapters.arviz").inference_data

    def test_one_observation(self, out):
        found = out(assay.Draws(X[0], self.THETA[0], names=self.NAMES))
        assert found["posterior"]["mu"].dims == ("chain", "draw", "mu_dim_0")
        assert found["posterior"]["tau"].shape == (1, 50)
        np.testing.assert_array_equal(found["observed_data"]["x"], X[0])
        again = assay.Draws(X[0], found)
        assert again.names == self.NAMES
        assert torch.equal(again.theta.sort(0).values, self.THETA[0].sort(0).values)

    def test_many_observations(self, out):
        found = out(assay.Draws(X[:4], self.THETA, names=("a", "b", "a[7]")))
        assert set(found["posterior"].data_vars) == {"a", "b", "a[7]"}
        assert found["posterior"]["b"].dims == ("chain", "draw", "observation")
        np.testing.assert_array_equal(found["posterior"]["b"][0, :, 2], self.THETA[2, :, 1])

    def test_a_calibration(self, out):
        calibration = assay.Calibration.of(sample, THETA, X, 4)
        found = out(calibration)
        assert found["posterior"]["theta"].shape == (1, 4, 60, 2)
        np.testing.assert_array_equal(found["prior"]["theta"][0], THETA)
        np.testing.assert_array_equal(found["prior_predictive"]["x"][0], X)

    def test_nothing_to_give(self, out):
        with pytest.raises(ValueError, match="expected draws of q in parameter space; got none"):
            out(assay.Draws(X[0]))


def test_numpyro_distributions():
    dist, jax = import_module("numpyro.distributions"), import_module("jax")
    q = as_posterior(lambda x: dist.Normal(jax.numpy.asarray(x) / 2, 0.5**0.5).to_event(1), X)
    assert q.way.words == "many x, to a batch of distributions"
    calibration = assay.Calibration.of(q, THETA, X, 8)
    assert torch.equal(calibration.theta_q, assay.Calibration.of(q, THETA, X, 8).theta_q)


def test_flowjax():
    """A flow that is trained for some epochs, in one line and by its latents."""
    from scipy.stats import kstest

    jax, flows = import_module("jax"), import_module("flowjax.flows")
    normal = import_module("flowjax.distributions").Normal(jax.numpy.zeros(2))
    network = {"base_dist": normal, "cond_dim": 2, "flow_layers": 2, "nn_width": 8}
    flow = flows.masked_autoregressive_flow(jax.random.key(0), **network)
    flow, _ = import_module("flowjax.train").fit_to_data(
        *(jax.random.key(1), flow, (THETA.numpy(), X.numpy())), max_epochs=3, show_progress=False
    )
    found = check(flow, THETA, X, X[:1])
    assert found.settings["space"] == "latent"
    q, calibration = as_posterior(flow, X), assay.Calibration.of(flow, THETA, X, 8)
    assert torch.equal(calibration.theta_q, assay.Calibration.of(flow, THETA, X, 8).theta_q)
    z = latents(q.flow.theta_to_base, calibration.theta_q.flatten(0, 1), X.repeat_interleave(8, 0))
    assert min(kstest(column, "norm").pvalue for column in z.numpy().T) > 1e-4
    slope = np.array(jax.jacfwd(q.distribution.bijection.inverse)(THETA[0].numpy(), X[0].numpy()))
    base = torch.distributions.Normal(0.0, 1.0).log_prob(q.theta_to_base(THETA[:1], X[:1]))
    expected = float(base.sum()) + np.log(np.linalg.det(slope))
    assert float(q.log_density(THETA[:1], X[:1])) == pytest.approx(expected, abs=1e-3)


def test_numpyro_chains():
    """Draws of NUTS at many x at once, by name, as numpyro returns them."""
    numpyro, jax = import_module("numpyro"), import_module("jax")
    dist, infer = import_module("numpyro.distributions"), import_module("numpyro.infer")

    def model(x):
        mu = numpyro.sample("mu", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("x", dist.Normal(mu, 1).to_event(1), obs=x)

    def posterior(x, n):
        chain = infer.MCMC(
            infer.NUTS(model), num_warmup=30, num_samples=4 * n, thinning=4, progress_bar=False
        )

        def run(key, x):
            chain.run(key, x)
            return chain.get_samples()

        keys = jax.random.split(jax.random.PRNGKey(fresh_key()), len(x))
        return jax.vmap(run)(keys, jax.numpy.asarray(x))

    found = check(posterior, {"mu": THETA}, X, X[:1])
    assert found.names == ("mu[0]", "mu[1]")
    assert found.settings["k"] == 16


@pytest.fixture(scope="module", params=["CouplingFlow", "FlowMatching"])
def workflow(request):
    bayesflow = import_module("bayesflow")
    settings = {"CouplingFlow": {"depth": 2}, "FlowMatching": {"subnet_kwargs": {"widths": (16,)}}}
    network = getattr(bayesflow.networks, request.param)(**settings[request.param])
    adapter = (
        bayesflow.Adapter()
        .to_array()
        .convert_dtype("float64", "float32")
        .concatenate(["mu", "tau"], into="inference_variables")
        .rename("x", "inference_conditions")
    )
    built = bayesflow.BasicWorkflow(
        simulator=bayesflow.make_simulator([_prior, _noise]),
        adapter=adapter,
        inference_network=network,
    )
    with isolated(stream(0, "training")):
        built.fit_offline(built.simulator.sample(128), epochs=1, batch_size=64, verbose=0)
    return built


def _prior():
    return {"mu": np.random.normal(size=2), "tau": np.random.normal(size=1)}


def _noise(mu, tau):
    return {"x": np.concatenate([mu, tau]) + 0.5 * np.random.normal(size=3)}


def test_bayesflow(workflow, capfd):
    from scipy.stats import kstest

    data = workflow.simulator.sample(60)
    theta, x = {"tau": data["tau"], "mu": data["mu"]}, {"x": data["x"]}
    capfd.readouterr()
    calibration = assay.Calibration.of(workflow, theta, x, 8)
    assert "Sampling" not in capfd.readouterr().err
    # In the order of the posterior, whatever that of theta is.
    assert calibration.names == ("mu[0]", "mu[1]", "tau")
    np.testing.assert_allclose(calibration.theta[:, 2], data["tau"][:, 0], rtol=1e-5)
    assert torch.equal(calibration.theta_q, assay.Calibration.of(workflow, theta, x, 8).theta_q)
    q = as_posterior(workflow, calibration.x, calibration.layout)
    rows = calibration.x.repeat_interleave(8, 0)
    z = latents(q.flow.theta_to_base, calibration.theta_q.flatten(0, 1), rows).numpy()
    assert min(kstest(column, "norm").pvalue for column in z.T) > 1e-4
    # The density is that of the latents, by the slopes of the inverse.
    steps = 0.01 * torch.eye(3)
    ends = (calibration.theta[:1] + sign * steps for sign in (1, -1))
    high, low = (q.flow.theta_to_base(end, calibration.x[:1].expand(3, -1)) for end in ends)
    base = torch.distributions.Normal(0.0, 1.0).log_prob((high + low) / 2).mean(0).sum()
    expected = base + ((high - low) / 0.02).det().abs().log()
    found = q.log_density(calibration.theta[:1], calibration.x[:1])
    torch.testing.assert_close(found, expected[None], atol=0.05, rtol=0, check_dtype=False)
    # With torch as its backend BayesFlow turns autograd off; networks are trained all the same.
    small = assay.MLP((8,), epochs=2)
    found = check(workflow, theta, x, {"x": data["x"][:1]}, classifier=small)
    assert found.names == calibration.names
    assert found.settings["space"] == "latent"


def test_bayesflow_with_a_summary_network_says_nothing(capfd):
    """A set of rows is near as the summary network has it, and bars are not shown."""
    bayesflow = import_module("bayesflow")
    adapter = (
        bayesflow.Adapter()
        .to_array()
        .convert_dtype("float64", "float32")
        .as_set("y")
        .concatenate(["mu", "tau"], into="inference_variables")
        .rename("y", "summary_variables")
    )
    built = bayesflow.BasicWorkflow(
        simulator=bayesflow.make_simulator([_prior, _rows]),
        adapter=adapter,
        inference_network=bayesflow.networks.CouplingFlow(depth=2),
        summary_network=bayesflow.networks.DeepSet(summary_dim=2, depth=1),
    )
    with isolated(stream(0, "training")):
        built.fit_offline(built.simulator.sample(128), epochs=1, batch_size=64, verbose=0)
        data = built.simulator.sample(60)
    capfd.readouterr()
    theta = {name: data[name] for name in ("mu", "tau")}
    x = {"y": data["y"]}
    assert check(built, theta, x, {"y": data["y"][0]}).names[0] == "mu[0]"
    assert "Summarizing" not in capfd.readouterr().err
    assert assay.Calibration.of(built, theta, x, 4).features.shape == (60, 2)


def _rows(mu, tau):
    return {"y": mu[:1] + tau + np.random.normal(size=8)}


def test_bayesflow_asks_for_names(workflow):
    with pytest.raises(ValueError, match="x: expected the conditions of BayesFlow"):
        assay.Calibration.of(workflow, THETA, X)
