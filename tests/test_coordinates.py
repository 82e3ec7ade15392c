import pytest
import torch

from assay.coordinates import Ranks, Whitened

SETS = torch.randn(6, 20, 3, generator=torch.Generator().manual_seed(0))
MAPS = {"whitened": Whitened(), "ranks": Ranks()}


@pytest.mark.parametrize("coordinates", MAPS.values(), ids=MAPS)
def test_they_do_not_know_who_is_the_truth(coordinates):
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        coordinates(SETS[:, order]), coordinates(SETS)[:, order], atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("coordinates", MAPS.values(), ids=MAPS)
def test_they_do_not_mind_units(coordinates):
    a, b = torch.tensor([1e3, 1e-2, 1.0]), torch.tensor([5.0, -1.0, 0.0])
    torch.testing.assert_close(coordinates(SETS * a + b), coordinates(SETS), atol=1e-2, rtol=1e-2)


def test_ranks_are_normal_scores():
    scores = Ranks()(torch.tensor([[[3.0], [1.0], [2.0], [2.0]]]))[0, :, 0]
    expected = torch.special.ndtri(torch.tensor([3.5, 0.5, 2.0, 2.0]) / 4)
    torch.testing.assert_close(scores, expected)


def test_a_parameter_that_does_not_vary():
    sets = SETS.clone()
    sets[..., 1] = 0.1
    assert Whitened()(sets).isfinite().all()


@pytest.mark.parametrize("coordinates", MAPS.values(), ids=MAPS)
def test_too_few_draws(coordinates):
    with pytest.raises(ValueError, match="theta_q: expected at least . draws of q at each x"):
        coordinates.check(k=1, m=2)
