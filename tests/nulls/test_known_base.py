from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay import MLP, Exchange, KnownBase, LocalExchange, Nearest, lc2st
from assay._support.random import stream
from assay.data.posterior import as_base
from assay.nulls.exchange import BaseCopies, global_null

N = 60
SMALL = MLP(hidden=(8,), epochs=2, batch=32)


def test_known_base_draws_the_base(gaussian):
    copies = KnownBase(200).copies(gaussian(width=2.0).latents(100), seed=0)
    z = copies.copy_truths[1:].flatten().numpy()
    assert scipy.stats.kstest(z, "norm").pvalue > 1e-3
    assert scipy.stats.kstest(copies.copy_truths[0].flatten().numpy(), "norm").pvalue < 1e-3


def test_a_known_base_refuses_parameters(gaussian):
    with pytest.raises(ValueError, match="null: expected a calibration in latent space"):
        KnownBase(9).copies(gaussian().calibration(50), 0)


def test_class_0_of_a_known_base_is_fresh_in_every_epoch_and_shared_by_copies(gaussian):
    copies = KnownBase(7).copies(gaussian().latents(N), seed=1)
    rows = torch.arange(N)
    first, again, second = (copies.batch(rows, e)[0][:, :, 0] for e in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(first[0], first[5])


def test_scaling_of_another_base(gaussian):
    base = torch.distributions.Independent(torch.distributions.Normal(torch.ones(2) * 5, 3.0), 1)
    latents = gaussian().latents(N)
    copies = BaseCopies(latents.theta, latents.features, as_base(base, 2), 0, range(2))
    torch.testing.assert_close(copies.scaling[0], torch.full((2,), 5.0), atol=0.1, rtol=0)
    torch.testing.assert_close(copies.scaling[1], torch.full((2,), 3.0), atol=0.1, rtol=0)


def test_copies_do_not_know_q(gaussian):
    """The same x, base and seed: the same null copies for every flow."""
    first, second = (KnownBase(3).copies(gaussian(width=w).latents(N), 0) for w in (1.0, 2.0))
    assert torch.equal(first.copy_truths[1:], second.copy_truths[1:])
    assert not torch.equal(first.copy_truths[0], second.copy_truths[0])
    other = KnownBase(3).copies(gaussian().latents(N, seed=1), 0)
    assert not torch.equal(first.copy_truths[1:], other.copy_truths[1:])


def test_nothing_is_shared_that_sums_could_use(gaussian):
    with pytest.raises(ValueError, match=r"null: expected Exchange\(n\).*got KnownBase"):
        KnownBase(3).copies(gaussian().latents(N), 0).sums([])


def test_the_usual_null(gaussian):
    parameters, latents = gaussian().calibration(N), gaussian().latents(N)
    assert global_null(parameters) == Exchange(199)
    assert global_null(latents) == KnownBase(199)
    assert global_null(latents, Exchange(5)) == Exchange(5)


class TestKeptNulls:
    """Nulls of a known base are those of x, the base, the classifier and the seed."""

    X_O = assay.Draws(torch.ones(2), n=100)

    def same(self, one, two):
        for name in ("statistic", "null", "probabilities", "null_probabilities"):
            np.testing.assert_array_equal(
                getattr(one(self.X_O), name), getattr(two(self.X_O), name)
            )

    def fitted(self, monkeypatch):
        """The numbers of copies that are fitted from now on."""
        counts, fit = [], MLP.fit

        def counted(classifier, copies, seed):
            counts.append(len(copies))
            return fit(classifier, copies, seed)

        monkeypatch.setattr(MLP, "fit", counted)
        return counts

    def test_another_flow_of_the_same_task(self, gaussian, monkeypatch):
        """Bit for bit what a test that fits everything says, for the price of one fit."""
        test = lc2st(gaussian().latents(60), SMALL, KnownBase(9), seed=3)
        wide, shifted = gaussian(width=2.0).latents(60), gaussian(shift=1.0).latents(60)
        counts = self.fitted(monkeypatch)
        kept = test.refit_on(wide)
        twice = kept.refit_on(shifted)
        assert counts == [1, 1]
        self.same(kept, lc2st(wide, SMALL, KnownBase(9), seed=3))
        self.same(twice, lc2st(shifted, SMALL, KnownBase(9), seed=3))
        assert kept.settings == lc2st(wide, SMALL, KnownBase(9), seed=3).settings

    def test_the_order_of_rows_does_not_matter(self, gaussian, monkeypatch):
        test = lc2st(gaussian().latents(60), SMALL, KnownBase(9))
        wide = gaussian(width=2.0).latents(60)
        counts = self.fitted(monkeypatch)
        order = torch.randperm(60, generator=stream(0, "order"))
        self.same(test.refit_on(wide), test.refit_on(wide.subset(order)))
        assert counts == [1, 1]

    def test_other_observations_are_fitted_anew(self, gaussian, monkeypatch):
        test = lc2st(gaussian().latents(60), SMALL, KnownBase(9), seed=3)
        for other in (gaussian().latents(60, seed=1), gaussian().latents(50)):
            counts = self.fitted(monkeypatch)
            again = test.refit_on(other)
            assert counts == [10]
            self.same(again, lc2st(other, SMALL, KnownBase(9), seed=3))
            assert not np.array_equal(again(self.X_O).null, test(self.X_O).null)
            monkeypatch.undo()

    def test_another_base_is_fitted_anew(self, gaussian, monkeypatch):
        latents = gaussian().latents(60)
        wide = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 3.0), 1)
        other = assay.Calibration.from_base(3 * latents.theta, latents.x, wide)
        test = lc2st(latents, SMALL, KnownBase(9))
        counts = self.fitted(monkeypatch)
        again = test.refit_on(other)
        assert counts == [10]
        self.same(again, lc2st(other, SMALL, KnownBase(9)))
        assert not np.array_equal(again(self.X_O).null, test(self.X_O).null)

    def test_another_seed_or_number_is_fitted_anew(self, gaussian):
        wide = gaussian(width=2.0).latents(60)
        test = lc2st(gaussian().latents(60), SMALL, KnownBase(9))
        reseeded, fewer = replace(test, seed=4), replace(test, null=KnownBase(5))
        for changed in (reseeded, fewer):
            with pytest.raises(ValueError, match="got a changed recipe"):
                changed(self.X_O)
        self.same(reseeded.refit_on(wide), lc2st(wide, SMALL, KnownBase(9), seed=4))
        self.same(fewer.refit_on(wide), lc2st(wide, SMALL, KnownBase(5)))

    @pytest.mark.parametrize("null", [Exchange(5), LocalExchange(5, Nearest(0.5))])
    def test_nulls_that_depend_on_q_are_fitted_anew(self, gaussian, null):
        test = lc2st(gaussian().latents(60), SMALL, null)
        wide = gaussian(width=2.0).latents(60)
        self.same(test.refit_on(wide), lc2st(wide, SMALL, null))

    def test_parameters_need_another_null(self, gaussian):
        test = lc2st(gaussian().latents(60), SMALL, KnownBase(9))
        with pytest.raises(ValueError, match="null: expected a calibration in latent space"):
            test.refit_on(gaussian().calibration(60))

    def test_of_a_test_that_was_saved(self, gaussian, tmp_path, monkeypatch):
        test = lc2st(gaussian().latents(60), SMALL, KnownBase(9), seed=3)
        wide, other = gaussian(width=2.0).latents(60), gaussian().latents(60, seed=1)
        assay.save(test, tmp_path / "test")
        assay.save(test.refit_on(wide), tmp_path / "kept")
        loaded, kept = (assay.load(tmp_path / name) for name in ("test", "kept"))
        self.same(kept, test.refit_on(wide))
        counts = self.fitted(monkeypatch)
        self.same(loaded.refit_on(wide), test.refit_on(wide))
        self.same(kept.refit_on(gaussian().latents(60)), test)
        assert counts == [1, 1, 1]
        self.same(loaded.refit_on(other), lc2st(other, SMALL, KnownBase(9), seed=3))
