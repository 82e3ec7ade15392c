import pytest
import torch

from assay import Calibration
from assay._core import stream
from assay.classifiers.features import Whitened
from assay.diagnostics.local.moment_effects import residuals
from assay.diagnostics.local.seen import _law, carried_to, expected_under_q, source_of, usable
from assay.samples.calibration import Draws


def normal(n, k, m=1, seed=0):
    return torch.randn(n, k + 1, m, generator=stream(seed, "members"), dtype=torch.double)


@pytest.mark.parametrize("k", [6, 8, 16, 32])
@pytest.mark.parametrize("width", [1.0, 0.4])
def test_the_law_of_residuals_is_that_of_a_right_truth(k, width):
    """By draws against other draws, brought to their number, however wrong the truth is."""
    members = normal(40_000, k)
    expected = residuals(members)[:, 0].square().mean()
    members[:, 1:] *= width
    torch.testing.assert_close(_law(members).second.mean(), expected, rtol=0.03, atol=0)


def test_means_under_q_are_constants_of_a_regression():
    """Exact for what the features explain, and plain means with few draws."""
    z = torch.randn(200, 1, generator=stream(0, "under q"), dtype=torch.double)
    values = 3 + 5 * z
    torch.testing.assert_close(expected_under_q(values, z), torch.tensor([3.0]).double())
    assert abs(float(values.mean()) - 3) > 1e-3
    torch.testing.assert_close(expected_under_q(values[:5], z[:5]), values[:5].mean(0))


def test_latents_are_carried_through_an_affine_flow():
    draws = torch.randn(500, 2, generator=stream(0, "draws"), dtype=torch.double)
    z = torch.randn(20, 2, generator=stream(0, "z"), dtype=torch.double)
    gain = torch.tensor([[2.0, 1.0], [0.0, 0.5]]).double()
    found = carried_to(z, draws, draws @ gain + 7)
    torch.testing.assert_close(found, z @ gain + 7, atol=0.05, rtol=0)


def seen_of(calibration, rows):
    draws = Draws(torch.zeros(calibration.x.shape[1]))
    source = source_of(usable(calibration, 0), Whitened(), draws, 0)
    return source.seen(torch.arange(rows), 0, stream(0, "chance"))


def test_sets_without_a_deviation_are_left_out_while_they_are_few():
    """Counts of which most are zero: a set of k zeros has no standard deviation."""
    for rate, known in ((0.5, True), (0.05, False)):
        counts = torch.poisson(torch.full((400, 17, 1), rate), generator=stream(0, "counts"))
        x = torch.randn(400, 1, generator=stream(0, "x"))
        found = seen_of(Calibration(counts[:, 0], x, counts[:, 1:]), 400)
        assert bool(found.known) == known
        assert found.z.abs().max() < 50


def test_estimates_need_four_draws_and_claims_three():
    members, x = normal(50, 4), torch.randn(50, 1, generator=stream(0, "x"))
    for k, known in ((3, False), (4, True)):
        calibration = Calibration(members[:, 0], x, members[:, 1 : 1 + k])
        assert bool(seen_of(calibration, 50).known) == known
    with pytest.raises(ValueError, match="theta_q: expected at least 3 draws of q at each x; got"):
        usable(Calibration(members[:, 0], x, members[:, 1:3]), 0)


def test_another_base_is_measured_by_draws():
    base = torch.distributions.Independent(torch.distributions.Laplace(torch.zeros(2), 1.0), 1)
    z, x = torch.randn(2, 100, 2, generator=stream(0, "laplace"))
    found = usable(Calibration.from_base(z, x, base), 0)
    assert found.k == 16
