import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, Uniform

from assay.bases import Foreign, StandardNormal, as_base
from assay.randomness import stream

STANDARD = {
    "independent": Independent(Normal(torch.zeros(3), torch.ones(3)), 1),
    "multivariate": MultivariateNormal(torch.zeros(3), torch.eye(3)),
    "own": StandardNormal(3),
}
OTHER = {
    "shifted": Independent(Normal(torch.ones(3), torch.ones(3)), 1),
    "wide": MultivariateNormal(torch.zeros(3), 2 * torch.eye(3)),
    "uniform": Independent(Uniform(torch.zeros(3), torch.ones(3), validate_args=False), 1),
}


@pytest.mark.parametrize("base", STANDARD.values(), ids=STANDARD.keys())
def test_standard_normals_are_recognised(base):
    assert as_base(base, 3) == StandardNormal(3)


@pytest.mark.parametrize("base", OTHER.values(), ids=OTHER.keys())
def test_other_bases_keep_their_distribution_and_leave_the_global_generator(base):
    found = as_base(base, 3)
    assert isinstance(found, Foreign)
    state = torch.get_rng_state()
    draws = found.sample(4000, stream(0, "a"))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(draws, found.sample(4000, stream(0, "a")))
    assert torch.allclose(draws.mean(0), base.mean, atol=0.1)
    assert torch.allclose(draws.var(0), base.variance, atol=0.2)


def test_a_base_of_another_dimension_is_refused():
    with pytest.raises(ValueError, match="base: expected dimension 2, that of theta; got 3"):
        as_base(StandardNormal(3), 2)


def test_something_else_is_refused():
    with pytest.raises(TypeError, match="base: expected a torch.distributions.Distribution"):
        as_base("normal", 2)
