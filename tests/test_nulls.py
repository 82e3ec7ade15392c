import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay import MLP, Exchange, FreePermutation, KnownBase

NULLS = {"exchange": Exchange, "free": FreePermutation, "base": KnownBase}
SMALL = MLP(hidden=(8,), epochs=2, batch=32)


@pytest.mark.parametrize("null", NULLS.values(), ids=NULLS.keys())
@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-3, ValueError), (2.5, TypeError)])
def test_the_number_of_nulls(null, n, error):
    with pytest.raises(error, match="n: expected"):
        null(n)


def test_exchange_picks_each_member_equally_often(gaussian):
    copies = Exchange(400).copies(gaussian().calibration(50, k=3), seed=0)
    counts = copies[1:].labels.sum((0, 1))
    assert counts.sum() == 400 * 50
    assert scipy.stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_exchange_keeps_sets_together_and_free_permutation_does_not(gaussian):
    calibration = gaussian().calibration(50, k=2)
    assert (Exchange(9).copies(calibration, 0).labels.sum(2) == 1).all()
    free = FreePermutation(9).copies(calibration, 0).labels
    assert (free[0].sum(1) == 1).all()
    assert (free[1:].sum(2) != 1).any()


def test_known_base_draws_the_base(gaussian):
    copies = KnownBase(200).copies(gaussian(width=2.0).latents(100), seed=0)
    z = copies.redrawn[1:].flatten().numpy()
    assert scipy.stats.kstest(z, "norm").pvalue > 1e-3
    assert scipy.stats.kstest(copies.redrawn[0].flatten().numpy(), "norm").pvalue < 1e-3


def test_a_known_base_refuses_parameters(gaussian):
    with pytest.raises(ValueError, match="null: expected a calibration in latent space"):
        KnownBase(9).copies(gaussian().calibration(50), 0)


def test_exchange_with_base_draws_in_latent_space(gaussian):
    calibration = gaussian(width=0.2).latents(2000)
    copies = Exchange(9).copies(calibration, 0)
    members, labels = copies.members, copies.labels
    assert members.shape == (2000, 5, 2)
    assert copies.base == calibration.base
    torch.testing.assert_close(members[labels[0]], calibration.theta)
    base = members[~labels[0]].flatten().numpy()
    assert scipy.stats.kstest(base, "norm").pvalue > 1e-3


@pytest.mark.parametrize("null", NULLS.values(), ids=NULLS.keys())
def test_the_same_seed_gives_the_same_copies(gaussian, null):
    calibration = gaussian().latents(50) if null is KnownBase else gaussian().calibration(50)
    first, again, other = (null(3).copies(calibration, seed).rows(2) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


class TestFittedNull:
    def test_is_the_same_bit_for_bit(self, gaussian):
        x_o = assay.Draws(torch.ones(2), n=100)
        fitted = KnownBase(9).fit(gaussian().latents(60), SMALL, seed=3)
        latents = gaussian(width=2.0).latents(60)
        reused = assay.lc2st(latents, SMALL, fitted, seed=3)(x_o)
        together = assay.lc2st(latents, SMALL, KnownBase(9), seed=3)(x_o)
        np.testing.assert_array_equal(reused.probabilities, together.probabilities)
        np.testing.assert_array_equal(reused.null, together.null)

    def test_refuses_what_it_was_not_fitted_for(self, gaussian):
        fitted = KnownBase(9).fit(gaussian().latents(60), SMALL, seed=3)
        latents = gaussian().latents(60)
        with pytest.raises(ValueError, match="seed: expected 3"):
            assay.lc2st(latents, SMALL, fitted)
        with pytest.raises(ValueError, match="classifier: expected MLP"):
            assay.lc2st(latents, MLP(), fitted, seed=3)
        with pytest.raises(ValueError, match="calibration: expected the observations x"):
            assay.lc2st(gaussian().latents(60, seed=1), SMALL, fitted, seed=3)

    def test_refuses_another_base(self, gaussian):
        fitted = KnownBase(9).fit(gaussian().latents(60), SMALL)
        latents = gaussian().latents(60)
        wide = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 3.0), 1)
        other = assay.Calibration.from_base(3 * latents.theta, latents.x, wide)
        with pytest.raises(ValueError, match="base: expected StandardNormal"):
            assay.lc2st(other, SMALL, fitted)

    def test_takes_the_same_recipe_in_other_chunks(self, gaussian):
        fitted = KnownBase(9).fit(gaussian().latents(60), SMALL)
        recipe = MLP(hidden=(8,), epochs=2, batch=32, chunk=3)
        assert assay.lc2st(gaussian().latents(60), recipe, fitted).null is fitted
