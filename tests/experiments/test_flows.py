"""On theta = 3 + 0.2 u, u ~ N(0, I), and x = 100 + 10 (u + e), e ~ N(0, I).

Neither is of a size that a network likes, and the posterior is known: u ~ N(y / 2, I / 2) with
y = (x - 100) / 10.
"""

import math

import numpy as np
import pytest
import torch

import assay
from assay._support.random import stream
from experiments import flows
from experiments.flows import MAF, NSF, Flow, SbiMAF, SbiNSF, Training, train

SD = 0.2 * math.sqrt(0.5)
SMALL = MAF(2, (16,))
ARCHITECTURES = {
    "nsf": NSF(3, 8, (32, 32)),
    "maf": MAF(3, (32, 32)),
    "sbi_nsf": SbiNSF(3, 8, 32),
    "sbi_maf": SbiMAF(3, 32),
}


def joint(n, name="joint"):
    generator = stream(0, name)
    u = torch.randn(n, 2, generator=generator)
    return 3 + 0.2 * u, 100 + 10 * (u + torch.randn(n, 2, generator=generator))


def posterior_mean(x):
    return 3 + 0.2 * (x - 100) / 20


def same(one, other):
    a, b = one.network.state_dict(), other.network.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def flow(request):
    how = Training(rate=3e-3, patience=10, epochs=30)
    return train(*joint(2000), ARCHITECTURES[request.param], how)


@pytest.fixture(scope="module")
def small():
    return train(*joint(500), SMALL, Training(rate=5e-3, epochs=5))


def test_it_recovers_the_posterior(flow):
    """At ordinary x, means within 0.25 and deviations within 20 % of a posterior deviation."""
    _, x = joint(20, "x")
    draws = flow.sample_each(x, 2000, stream(0, "draws"))
    off = (draws.mean(1) - posterior_mean(x)) / SD
    assert off.square().mean().sqrt() < 0.25
    assert (draws.std(1) / SD - 1).abs().mean() < 0.2


def test_its_density_is_right_in_the_units_of_theta(flow):
    theta, x = joint(2000, "fresh")
    exact = torch.distributions.Normal(posterior_mean(x), SD).log_prob(theta).sum(1)
    gap = (exact - flow.log_prob(theta, x)).mean()
    assert -0.03 < gap < 0.15
    # The validation loss speaks of the same quantity.
    assert abs(min(flow.losses) + float(exact.mean())) < 0.3


def test_its_density_integrates_to_one(flow):
    x = torch.tensor([110.0, 95.0])
    centre, reach, n = posterior_mean(x), 10 * SD, 250
    steps = (torch.arange(n) + 0.5) / n * 2 * reach - reach
    grid = centre + torch.cartesian_prod(steps, steps)
    mass = flow.log_prob(grid, x).double().exp().sum() * (2 * reach / n) ** 2
    assert abs(mass - 1) < 0.02


def test_latents_are_what_the_draws_were_made_of(flow):
    """The trap: x of size 100, whose scaling must not be lost on the way to latents."""
    _, x = joint(300, "x")
    theta = flow.sample_each(x, 1, stream(0, "draws"))[:, 0]
    z = torch.randn(300, 2, generator=stream(0, "draws"))
    torch.testing.assert_close(flow.theta_to_base(theta, x), z, atol=2e-3, rtol=2e-3)


def test_the_library_takes_it_for_a_flow(flow):
    """And finds that latents of the truths are about standard normal."""
    theta, x = joint(1000, "calibration")
    theta_q = flow.sample_each(x, 1, stream(0, "theta_q"))[:, 0]
    z = assay.Calibration(theta, x, theta_q).to_latent(flow).theta
    assert z.mean(0).abs().max() < 0.2
    assert (z.std(0) - 1).abs().max() < 0.2


def test_a_file_brings_it_back_bit_by_bit(flow, tmp_path):
    theta, x = joint(50, "points")
    path = tmp_path / "flow.safetensors"
    flow.save(path)
    before = torch.get_rng_state()
    loaded = Flow.load(path)
    assert torch.equal(torch.get_rng_state(), before)
    assert loaded.architecture == flow.architecture
    assert loaded.losses == flow.losses
    assert torch.equal(loaded.theta_to_base(theta, x), flow.theta_to_base(theta, x))
    assert torch.equal(loaded.log_prob(theta, x), flow.log_prob(theta, x))
    draws = [f.sample(x[0], 20, stream(0, "draws")) for f in (flow, loaded)]
    assert torch.equal(*draws)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_parameters_of_the_papers_networks():
    networks = SbiNSF().build(2, 2), SbiMAF().build(4, 33)
    counts = [sum(p.numel() for p in network.parameters()) for network in networks]
    assert counts == [60_925, 76_580]


def test_the_embedding_of_a_network_is_applied():
    """Against nflows' own density, with an embedding that matters."""
    network = SbiNSF(2, 4, 8).build(2, 2).eval()
    network.net._embedding_net = torch.nn.Linear(2, 2)
    scale = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    flow = Flow(SbiNSF(2, 4, 8), network, scale, scale, ())
    theta, x = (torch.randn(50, 2, generator=stream(0, name)) for name in ("theta", "x"))
    with torch.no_grad():
        expected = network.net.log_prob(theta, context=x)
        torch.testing.assert_close(flow.log_prob(theta, x), expected)


@pytest.mark.parametrize("architecture", [SMALL, SbiNSF(2, 4, 8)])
def test_one_seed_one_flow_and_no_trace(architecture):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, again, other = (
        train(*joint(100), architecture, Training(epochs=2, seed=seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    assert same(first, again)
    assert first.losses == again.losses
    assert not same(first, other)


def test_patience_ends_training_and_the_best_weights_are_kept():
    theta, x = joint(100)
    how = Training(rate=3e-2, batch=20, patience=3)
    flow = train(theta, x, SMALL, how)
    assert len(flow.losses) == flow.losses.index(min(flow.losses)) + 4
    held = how.order(theta, "split")[:10]
    validation = -flow.log_prob(theta[held], x[held]).mean()
    assert validation == pytest.approx(min(flow.losses), abs=1e-4)


@pytest.mark.parametrize("architecture", [MAF(5, (16,)), SbiNSF(3, 8, 16)])
def test_divergence_is_noticed(architecture):
    with pytest.raises(ValueError, match=r"rate: .* at which it diverged"):
        train(*joint(200), architecture, Training(rate=1e6, clip=math.inf))


def test_a_constant_observation_does_no_harm():
    theta, x = joint(100)
    x[:, 1] = 7.0
    flow = train(theta, x, SMALL, Training(epochs=2))
    assert flow.log_prob(theta, x + torch.tensor([0.0, 1.0])).isfinite().all()


def test_chunks_change_nothing(small, monkeypatch):
    theta, x = joint(100)
    asked = [small.log_prob(theta, x), small.sample_each(x[:9], 7, stream(0, "draws"))]
    sizes = []
    small.network.register_forward_pre_hook(lambda _, rows: sizes.append(len(rows[0])))
    monkeypatch.setattr(flows, "ROWS", 16)
    again = [small.log_prob(theta, x), small.sample_each(x[:9], 7, stream(0, "draws"))]
    assert max(sizes) == 16
    assert sum(sizes) == 100 + 63
    for one, other in zip(asked, again, strict=True):
        torch.testing.assert_close(one, other)


def test_double_precision_comes_back(small):
    theta, x = joint(10)
    assert small.theta_to_base(theta.double(), x.double()).dtype == torch.float64
    assert small.sample(x[0].double(), 3).dtype == torch.float64


def test_training_learns_though_gradients_are_off():
    with torch.no_grad():
        flow = train(*joint(100), SMALL, Training(epochs=2))
    assert flow.losses == train(*joint(100), SMALL, Training(epochs=2)).losses


@pytest.mark.gpu
@pytest.mark.parametrize("architecture", ARCHITECTURES.values())
def test_on_a_gpu(architecture, tmp_path):
    theta, x = joint(500)
    flow = train(theta, x, architecture, Training(epochs=2), "cuda")
    assert flow.device.type == "cuda"
    draws = flow.sample(x[0], 100, stream(0, "draws"))
    flow.save(tmp_path / "flow")
    there, here = (Flow.load(tmp_path / "flow", device) for device in ("cuda", "cpu"))
    assert torch.equal(there.sample(x[0], 100, stream(0, "draws")), draws)
    torch.testing.assert_close(
        flow.theta_to_base(theta, x), here.theta_to_base(theta, x), atol=1e-3, rtol=1e-3
    )
    assert flow.log_prob(theta.cuda(), x.cuda()).is_cuda
