"""On theta = 3 + 0.2 u, u ~ N(0, I), and x = 100 + 10 (u + e), e ~ N(0, I).

Neither is of a size that a network likes, and the posterior is known: u ~ N(y / 2, I / 2) with
y = (x - 100) / 10.
"""

import json
import math
import sys

import numpy as np
import pytest
import torch

import assay
from assay.randomness import isolated, stream
from assay.tasks import npe, training
from assay.tasks.npe import MAF, NSF, SbiMAF, SbiNSF, Trained, Truncated, train
from assay.tasks.priors import Box

SD = 0.2 * math.sqrt(0.5)
SMALL = MAF(2, (16,))
ARCHITECTURES = {
    "nsf": NSF(3, 8, (32, 32)),
    "maf": MAF(3, (32, 32)),
    "sbi_nsf": SbiNSF(3, 8, 32),
    "sbi_maf": SbiMAF(3, 32),
    "sbi_maf_bn": SbiMAF(3, 32, batch_norm=True),
}


def joint(n, name="joint"):
    generator = stream(0, name)
    u = torch.randn(n, 2, generator=generator)
    return 3 + 0.2 * u, 100 + 10 * (u + torch.randn(n, 2, generator=generator))


def posterior_mean(x):
    return 3 + 0.2 * (x - 100) / 20


def state(flow):
    return flow.network.state_dict()


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def flow(request):
    theta, x = joint(2000)
    return train(theta, x, ARCHITECTURES[request.param], rate=3e-3, patience=10, epochs=30)


@pytest.fixture(scope="module")
def small():
    return train(*joint(500), SMALL, rate=5e-3, epochs=5)


def test_it_recovers_the_posterior(flow):
    """At ordinary x, means within 0.25 and deviations within 20 % of a posterior deviation."""
    _, x = joint(20, "x")
    draws = flow.sample_each(x, 2000, stream(0, "draws"))
    assert draws.shape == (20, 2000, 2)
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
    theta, x = joint(1000, "calibration")
    theta_q = flow.sample_each(x, 1, stream(0, "theta_q"))[:, 0]
    latent = assay.Calibration(theta, x, theta_q).to_latent(flow)
    z = latent.theta
    assert latent.base == assay.bases.StandardNormal(2)
    assert z.mean(0).abs().max() < 0.2
    assert (z.std(0) - 1).abs().max() < 0.2


def test_log_prob_is_the_base_and_the_jacobian(flow):
    theta, x = joint(20, "points")
    jacobian = torch.autograd.functional.jacobian(
        lambda t: flow.theta_to_base(t, x).sum(0), theta
    ).permute(1, 0, 2)
    base = torch.distributions.Normal(0.0, 1.0).log_prob(flow.theta_to_base(theta, x)).sum(1)
    expected = base + jacobian.det().abs().log()
    torch.testing.assert_close(flow.log_prob(theta, x), expected, atol=2e-3, rtol=2e-3)


def test_a_file_brings_it_back_bit_by_bit(flow, tmp_path):
    theta, x = joint(50, "points")
    flow.save(tmp_path / "flow.safetensors")
    before = torch.get_rng_state()
    loaded = Trained.load(tmp_path / "flow.safetensors")
    assert torch.equal(torch.get_rng_state(), before)
    assert loaded.architecture == flow.architecture
    assert loaded.losses == flow.losses
    assert torch.equal(loaded.theta_to_base(theta, x), flow.theta_to_base(theta, x))
    assert torch.equal(loaded.log_prob(theta, x), flow.log_prob(theta, x))
    draws = [f.sample(x[0], 20, stream(0, "draws")) for f in (flow, loaded)]
    assert torch.equal(*draws)


def test_a_file_says_what_it_is(small, tmp_path):
    path = tmp_path / "flow.safetensors"
    small.save(path)
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    flow = json.loads(header["__metadata__"]["assay"])["flow"]
    assert (flow["architecture"], flow["fields"]["hidden"], flow["m"], flow["d"]) == (
        ("MAF", [16], 2, 2)
    )
    assert flow["x_scale"][0] == small.x_scale.location.tolist()
    assert [p.name for p in tmp_path.iterdir()] == ["flow.safetensors"]


def test_files_that_are_none(small, tmp_path):
    (tmp_path / "text").write_text("no flow")
    with pytest.raises(ValueError, match="path: expected the file of a flow"):
        Trained.load(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        Trained.load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="path: expected a folder that exists"):
        small.save(tmp_path / "nowhere" / "flow")


def test_parameters_of_the_papers_networks():
    with isolated(stream(0, "networks")):
        networks = SbiNSF().build(2, 2), SbiMAF(batch_norm=True).build(4, 33)
    counts = [sum(p.numel() for p in network.parameters()) for network in networks]
    assert counts == [60_925, 76_580]


def test_the_embedding_of_a_network_is_applied():
    """Against nflows' own density, with an embedding that matters."""
    with isolated(stream(0, "network")):
        network = SbiNSF(2, 4, 8).build(2, 2).eval()
        network.net._embedding_net = torch.nn.Linear(2, 2)
    theta, x = (torch.randn(50, 2, generator=stream(0, name)) for name in ("theta", "x"))
    with torch.no_grad():
        expected = network.net.log_prob(theta, context=x)
        torch.testing.assert_close(network.log_prob(theta, x), expected)
        torch.testing.assert_close(
            network.inverse(network(theta, x)[0], x), theta, atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize("architecture", [NSF(2, 4, (8,)), MAF(2, (8,)), SbiNSF(2, 4, 8)])
def test_one_parameter(architecture):
    theta, x = joint(300)
    flow = train(theta[:, :1], x, architecture, rate=1e-2, epochs=10)
    grid = torch.linspace(1, 5, 4001)[:, None]
    assert abs(flow.log_prob(grid, x[0]).exp().sum() * 1e-3 - 1) < 0.02
    assert flow.sample(x[0], 7).shape == (7, 1)


@pytest.mark.parametrize("architecture", [SMALL, SbiNSF(2, 4, 8)])
def test_one_seed_one_flow_and_no_trace(architecture):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, again, other = (
        train(*joint(100), architecture, epochs=2, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    assert same(state(first), state(again))
    assert first.losses == again.losses
    assert not same(state(first), state(other))


def test_patience_ends_training_and_the_best_weights_are_kept():
    theta, x = joint(100)
    flow = train(theta, x, SMALL, rate=3e-2, batch=20, patience=3)
    best = flow.losses.index(min(flow.losses))
    assert len(flow.losses) == best + 4
    (held, held_x), (known, _) = training._split((theta, x), training.Training())
    assert (len(held), len(known)) == (10, 90)
    assert -flow.log_prob(held, held_x).mean() == pytest.approx(min(flow.losses), abs=1e-4)


def interrupted(monkeypatch, after):
    """Lets Ctrl-C come in the middle of an epoch."""
    original = training._Run._step
    calls = iter(range(10_000))

    def step(self, loss):
        if next(calls) == after:
            raise KeyboardInterrupt
        original(self, loss)

    monkeypatch.setattr(training._Run, "_step", step)


def test_an_interrupted_training_goes_on_where_it_was(tmp_path, monkeypatch):
    theta, x = joint(200)
    how = {"batch": 30, "rate": 5e-3, "seed": 3}
    whole = train(theta, x, SMALL, epochs=6, **how)
    path = tmp_path / "state"
    with monkeypatch.context() as patched:
        interrupted(patched, after=3 * 6 + 2)
        with pytest.raises(KeyboardInterrupt):
            train(theta, x, SMALL, epochs=6, checkpoint=path, **how)
    steps = []
    original = training._Run._step
    monkeypatch.setattr(
        training._Run, "_step", lambda run, loss: (steps.append(0), original(run, loss))
    )
    resumed = train(theta, x, SMALL, epochs=6, checkpoint=path, **how)
    assert len(steps) == 3 * 6
    assert resumed.losses == whole.losses
    assert same(state(resumed), state(whole))
    # What is finished is only read.
    assert same(state(train(theta, x, SMALL, epochs=6, checkpoint=path, **how)), state(whole))
    assert len(steps) == 3 * 6
    longer = train(theta, x, SMALL, epochs=8, checkpoint=path, **how)
    assert longer.losses[:6] == whole.losses
    assert min(longer.losses) <= min(whole.losses)


def test_a_checkpoint_knows_no_units(tmp_path):
    theta, x = joint(60)
    train(theta, x, SMALL, epochs=1, checkpoint=tmp_path / "state")
    resumed = train(4 * theta, x, SMALL, epochs=2, checkpoint=tmp_path / "state")
    assert resumed.losses == train(4 * theta, x, SMALL, epochs=2).losses


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    theta, x = joint(60)
    path = tmp_path / "state"
    train(theta, x, SMALL, epochs=1, checkpoint=path)
    for other, changed in {
        "rate": {"rate": 1e-3},
        "seed": {"seed": 7},
        "data": {"x": x + theta},
        "network": {"architecture": MAF(3, (16,))},
    }.items():
        given = {"theta": theta, "x": x, "architecture": SMALL, "checkpoint": path, **changed}
        with pytest.raises(ValueError, match=f"checkpoint: .* got one of other {other}"):
            train(**given)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="checkpoint: expected the file of a training"):
        train(theta, x, SMALL, checkpoint=path)


@pytest.mark.parametrize("architecture", [MAF(5, (16,)), SbiNSF(3, 8, 16)])
def test_divergence_is_noticed(architecture):
    with pytest.raises(ValueError, match=r"rate: .* training diverged at epoch 0"):
        train(*joint(200), architecture, rate=1e6, clip=None)


def test_data_that_cannot_be():
    theta, x = joint(100)
    holed = x.clone()
    holed[3, 1] = torch.nan
    constant = theta.clone()
    constant[:, 1] = 2.0
    for given, message in [
        ((theta[:, 0], x), r"theta: expected theta \(n, m\) and x \(n, d\)"),
        ((theta, x[:50]), r"x: expected theta \(n, m\) and x \(n, d\)"),
        ((theta, x[:, None]), r"x: expected theta \(n, m\) and x \(n, d\)"),
        ((theta, holed), "x: expected finite numbers"),
        ((theta[:19], x[:19]), "theta: expected at least 20 rows; got 19"),
        ((constant, x), r"theta: expected columns that vary.*\[1\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            train(*given, SMALL)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch": 1}, "batch"),
        ({"rate": 0.0}, "rate"),
        ({"patience": 0}, "patience"),
        ({"validation": 0.95}, "validation: expected a share up to 0.9"),
        ({"clip": -1.0}, "clip"),
        ({"epochs": 0}, "epochs"),
        ({"device": "abacus"}, "device"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ValueError, match=message):
        train(*joint(50), SMALL, **settings)


def test_architectures_that_cannot_be():
    for make in (
        lambda: NSF(0),
        lambda: NSF(bins=1),
        lambda: MAF(hidden=()),
        lambda: SbiNSF(5, 0),
    ):
        with pytest.raises(ValueError, match="expected at least"):
            make()


def test_a_constant_observation_does_no_harm():
    theta, x = joint(100)
    x[:, 1] = 7.0
    flow = train(theta, x, SMALL, epochs=2)
    assert flow.log_prob(theta, x + torch.tensor([0.0, 1.0])).isfinite().all()


def test_shapes_that_cannot_be(small):
    theta, x = joint(10)
    for given in ((theta[:, :1], x), (theta, x[:5]), (theta, x[0, :1])):
        with pytest.raises(ValueError, match="expected shape"):
            small.log_prob(*given)
    with pytest.raises(ValueError, match="n: expected at least 1"):
        small.sample(x[0], 0)


def test_large_batches_go_through_in_pieces(small, monkeypatch):
    theta, x = joint(100)
    whole = small.log_prob(theta, x)
    monkeypatch.setattr(npe, "PIECE", 30)
    torch.testing.assert_close(small.log_prob(theta, x), whole)


def test_double_precision_comes_back(small):
    theta, x = joint(10)
    assert small.theta_to_base(theta.double(), x.double()).dtype == torch.float64
    assert small.sample(x[0].double(), 3).dtype == torch.float64


def test_truncated_draws_stay_inside(small):
    prior = Box((2.9, 2.0), (3.2, 4.0))
    cut = Truncated(small, prior)
    x = torch.tensor([100.0, 100.0])
    theta = cut.sample(x, 500, stream(0, "draws"))
    assert theta.shape == (500, 2)
    assert prior.inside(theta).all()
    inside = prior.inside(small.sample(x, 20_000, stream(0, "leak"))).double().mean()
    assert abs(cut.leakage(x, 20_000) - (1 - float(inside))) < 0.02
    assert not hasattr(cut, "theta_to_base")


def test_a_flow_that_misses_the_prior(small):
    cut = Truncated(small, Box((50.0, 50.0), (51.0, 51.0)))
    with pytest.raises(ValueError, match="x: expected an observation at which the flow keeps to"):
        cut.sample(torch.tensor([100.0, 100.0]), 10)


@pytest.mark.parametrize(
    ("module", "architecture", "extra"),
    [("zuko.flows", NSF(), "demo"), ("sbi.neural_nets.net_builders", SbiNSF(), "peers")],
)
def test_a_missing_library_is_named(module, architecture, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'assay\[{extra}\]'"):
        architecture.build(2, 2)


def test_training_learns_though_gradients_are_off():
    with torch.no_grad():
        flow = train(*joint(100), SMALL, epochs=2)
    assert flow.losses == train(*joint(100), SMALL, epochs=2).losses


@pytest.mark.gpu
@pytest.mark.parametrize("architecture", ARCHITECTURES.values())
def test_on_a_gpu(architecture, tmp_path):
    theta, x = joint(500)
    path = tmp_path / "state"
    flow = train(theta, x, architecture, epochs=2, device="cuda", checkpoint=path)
    flow = train(theta, x, architecture, epochs=4, device="cuda", checkpoint=path)
    assert next(flow.network.parameters()).is_cuda
    draws = flow.sample(x[0], 100, stream(0, "draws"))
    flow.save(tmp_path / "flow")
    there, here = (Trained.load(tmp_path / "flow", device) for device in ("cuda", "cpu"))
    assert torch.equal(there.sample(x[0], 100, stream(0, "draws")), draws)
    torch.testing.assert_close(
        flow.theta_to_base(theta, x), here.theta_to_base(theta, x), atol=1e-3, rtol=1e-3
    )
    assert flow.log_prob(theta.cuda(), x.cuda()).is_cuda
