from dataclasses import dataclass

import pytest
import torch

import assay


@dataclass(frozen=True)
class Wrapped:
    """A right flow with one member replaced."""

    flow: object
    inverse: object = None
    sampler: object = None

    @property
    def base(self):
        return self.flow.base

    def theta_to_base(self, theta, x):
        return (self.inverse or self.flow.theta_to_base)(theta, x)

    def sample(self, x, n):
        return (self.sampler or self.flow.sample)(x, n)


def truncated(flow, x, n):
    """Draws that a prior on [-0.3, 0.3]^2 would leave."""
    theta = flow.sample(x, 200 * n)
    return theta[(theta.abs() < 0.3).all(1)][:n]


WRONG = {
    "forward in place of inverse": lambda f: Wrapped(f, lambda t, x: x / 2 + t * f.scale),
    "another x": lambda f: Wrapped(f, lambda t, x: f.theta_to_base(t, 0 * x)),
    "one latent twice": lambda f: Wrapped(f, lambda t, x: f.theta_to_base(t, x)[:, [0, 0]]),
    "truncated samples": lambda f: Wrapped(f, sampler=lambda x, n: truncated(f, 0 * x, n)),
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG.keys())
def test_a_flow_that_does_not_invert_its_samples(gaussian, make):
    flow = gaussian()
    with pytest.raises(ValueError, match="flow: expected theta_to_base to map the flow's own"):
        flow.calibration(200).to_latent(make(flow))


def test_draws_of_another_q_are_refused(gaussian):
    calibration = gaussian(width=0.3).calibration(500)
    with pytest.raises(ValueError, match="theta_q: expected draws of this flow"):
        calibration.to_latent(gaussian())


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
def test_a_wrong_posterior_is_still_a_right_flow(gaussian, width):
    for seed in range(20):
        gaussian(width=width).calibration(100, seed=seed).to_latent(gaussian(width=width), seed)


SHAPES = {
    "inverse": (lambda f: Wrapped(f, lambda t, x: t[:, :1]), "flow.theta_to_base: expected shape"),
    "sample": (lambda f: Wrapped(f, sampler=lambda x, n: torch.zeros(2)), "flow.sample: expected"),
    "too many": (
        lambda f: Wrapped(f, sampler=lambda x, n: torch.zeros(n, 3)),
        "flow.sample: expected draws of 2 parameters; got 3",
    ),
    "nan": (
        lambda f: Wrapped(f, lambda t, x: t * torch.nan),
        r"flow.theta_to_base\(theta, x\): expected finite numbers",
    ),
}


@pytest.mark.parametrize(("make", "message"), SHAPES.values(), ids=SHAPES.keys())
def test_bad_members(gaussian, make, message):
    with pytest.raises(ValueError, match=message):
        gaussian().calibration(100).to_latent(make(gaussian()))


def test_the_global_generator_is_untouched(gaussian):
    state = torch.get_rng_state()
    latent = gaussian().calibration(100).to_latent(gaussian())
    latent.observe(assay.Draws(torch.zeros(2)))
    assert torch.equal(torch.get_rng_state(), state)


def test_draws_at_an_observation_must_be_the_flows(gaussian):
    latent = gaussian().calibration(100).to_latent(gaussian())
    with pytest.raises(ValueError, match="theta_o: expected draws of this flow"):
        latent.observe(assay.Draws(torch.zeros(2), torch.full((50, 2), 4.0)))
