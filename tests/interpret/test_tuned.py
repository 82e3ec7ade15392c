import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay import MLP, Calibration, Draws, Exchange, KnownBase, LocalExchange, Ridge, Tuned, lc2st
from assay._core import stream
from assay.classifiers.features import Conditional, Joint
from assay.interpret.errors import Shift

X_O = torch.tensor([0.3, -0.3])
GOOD, BAD = (Ridge(Joint(16, frame=Conditional(8)), penalties=p) for p in (0.1, 1e4))
BLIND = MLP((4,), epochs=1, rate=1e-6)
SMOOTH, ROUGH = (Ridge(Joint(8, bandwidth=b), penalties=0.1) for b in (0.5, 2.0))


def exchanged(calibration):
    """The same sets, with other members for truths."""
    members = torch.cat([calibration.theta[:, None], calibration.theta_q], 1)
    order = torch.rand(members.shape[:2], generator=stream(1, "order")).argsort(1)
    mixed = members.gather(1, order[..., None].expand_as(members))
    return Calibration(mixed[:, 0], calibration.x, mixed[:, 1:])


@pytest.mark.parametrize("k", [1, 4])
def test_the_choice_is_the_same_whoever_is_the_truth(gaussian, k):
    """Powers are equal to the last digit, though q is off by a standard deviation."""
    calibration = gaussian(shift=0.7).calibration(80, k=k)
    tuned = Tuned((SMOOTH, ROUGH), repetitions=1)
    first, second = (tuned.choose(c) for c in (calibration, exchanged(calibration)))
    assert first.powers == second.powers
    # The test of these labels is another one.
    draws = gaussian(shift=0.7).draws(X_O, n=50)
    results = [lc2st(c, tuned, Exchange(9))(draws) for c in (calibration, exchanged(calibration))]
    assert results[0].statistic != results[1].statistic


def test_in_latent_space_truths_have_no_say(gaussian):
    latents = gaussian().latents(80)
    other = Calibration.from_base(latents.theta * 3, latents.x)
    tuned = Tuned((SMOOTH, ROUGH), repetitions=1)
    assert tuned.choose(latents).powers == tuned.choose(other).powers


def test_row_order_has_no_say(gaussian):
    calibration = gaussian().calibration(80, k=2)
    tuned = Tuned((SMOOTH, ROUGH), repetitions=1)
    mixed = calibration.subset(torch.randperm(80, generator=stream(0)))
    assert tuned.choose(calibration).powers == tuned.choose(mixed).powers


@pytest.mark.parametrize("space", ["parameters", "latent"])
def test_it_chooses_the_one_that_sees_more(gaussian, space):
    q = gaussian()
    calibration = q.calibration(300, k=2) if space == "parameters" else q.latents(300)
    tuned = Tuned((BLIND, GOOD), repetitions=1).choose(calibration)
    assert tuned.chosen == GOOD
    assert tuned.powers[1] > tuned.powers[0] + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("width", [1.0, 0.3])
def test_level(gaussian, width):
    """1000 repetitions with an exact q, 99.9 %; both candidates are chosen, so a choice is made.

    With a q that is too narrow the choice meets other sets, and rejects.
    """
    q, tuned = gaussian(width=width), Tuned((SMOOTH, ROUGH), (Shift(),), 0.5, 1, nulls=9)
    found, chosen = [], []
    for i in range(1000 if width == 1.0 else 20):
        test = lc2st(q.calibration(60, seed=i), tuned, Exchange(19), seed=i)
        found.append(float(test(q.draws(X_O, n=30, seed=i)).pvalue))
        chosen.append(test.classifier.chosen == SMOOTH)
    rejected = np.array(found) <= 0.05 + 1e-9
    if width < 1:
        assert rejected.mean() > 0.3
        return
    assert 0.02 < np.mean(chosen) < 0.98
    for alpha in (0.05, 0.2):
        low, high = scipy.stats.binom(1000, alpha).interval(0.999)
        assert low <= (np.array(found) <= alpha + 1e-9).sum() <= high


def test_a_test_says_what_was_chosen(gaussian):
    test = lc2st(gaussian().calibration(300, k=2), Tuned((BLIND, GOOD), repetitions=1))
    assert test.null == GOOD.null == Exchange(999)
    assert test.classifier.chosen == GOOD
    said = test(gaussian().draws(X_O)).settings["classifier"]
    powers = ", ".join(f"{power:.2f}" for power in test.classifier.powers)
    assert said == f"Tuned({GOOD!r}, chosen among 2 by power [{powers}])"
    assert repr(Tuned((GOOD,))) == f"Tuned([{GOOD!r}])"


def test_it_is_the_chosen_one(gaussian):
    calibration, draws = gaussian(width=1.5).calibration(100), gaussian(width=1.5).draws(X_O)
    tuned = Tuned((GOOD, BAD), repetitions=1)
    test = lc2st(calibration, tuned, Exchange(19), seed=3)
    alone = lc2st(calibration, test.classifier.chosen, Exchange(19), seed=3)
    np.testing.assert_array_equal(test(draws).null, alone(draws).null)
    # Without a test around it, it chooses when it is fitted, and chooses the same.
    copies = Exchange(3).copies(calibration.sorted(), 3)
    there = draws.theta[None], draws.x[None]
    scores = tuned.fit(copies, 3)(*there), alone.classifier.fit(copies, 3)(*there)
    assert torch.equal(*scores)


def test_nulls_and_sizes_are_those_of_the_candidates(gaussian):
    network = MLP((4,), epochs=1)
    assert Tuned((GOOD, network)).null == GOOD.null == Exchange(999)
    assert Tuned((network, GOOD)).null is None
    assert Tuned((GOOD, network)).several_sizes
    assert not Tuned((network, GOOD)).several_sizes
    # As soon as there is a choice, it says.
    chosen = Tuned((BLIND, GOOD), repetitions=1).choose(gaussian().calibration(300, k=2))
    assert chosen.chosen == GOOD
    assert chosen.null == Exchange(999)
    assert chosen.several_sizes
    assert lc2st(gaussian().latents(60), Tuned((network,), repetitions=1)).null == KnownBase(199)
    tuned = Tuned((BLIND, GOOD), repetitions=1)
    region = assay.region(gaussian().calibration(300, k=2), tuned, null=Exchange(19))
    assert region.classifier.chosen == GOOD


@pytest.mark.parametrize("share", [0.5, (0.3, 0.6)])
def test_refits_are_those_of_the_chosen_one(gaussian, share):
    calibration, draws = gaussian(width=1.5).calibration(100), gaussian(width=1.5).draws(X_O)
    local = LocalExchange(19, share)
    tuned = Tuned((GOOD, BAD), repetitions=1).choose(calibration)
    results = [lc2st(calibration, c, local)(draws) for c in (tuned, tuned.chosen)]
    np.testing.assert_array_equal(results[0].null, results[1].null)
    assert results[0].statistic == results[1].statistic
    with pytest.raises(ValueError, match="chosen: expected a choice; got none yet"):
        Tuned((GOOD, BAD)).refit(None, None, None, 0)


def test_a_choice_is_kept(gaussian):
    first = Tuned((GOOD, BAD), repetitions=1).choose(gaussian().calibration(60))
    assert first.choose(gaussian().calibration(90)) is first


def test_it_can_be_saved(gaussian, tmp_path):
    test = lc2st(gaussian().calibration(60), Tuned((GOOD, BAD), repetitions=1), Exchange(5))
    assay.save(test, tmp_path / "test.npz")
    again = assay.load(tmp_path / "test.npz")
    assert again.classifier == test.classifier
    draws = gaussian().draws(X_O)
    np.testing.assert_array_equal(again(draws).null, test(draws).null)


def test_the_power_of_a_tuned_test(gaussian):
    test = lc2st(gaussian().calibration(100), Tuned((GOOD, BAD), repetitions=1), Exchange(19))
    result = assay.power(test, gaussian().draws(X_O, n=50), Shift(), repetitions=8)
    assert result["shift"].mde > 0.05


def test_bad_input(gaussian):
    with pytest.raises(ValueError, match="candidates: expected at least one"):
        Tuned(())
    with pytest.raises(TypeError, match="candidates: expected classifiers such as MLP"):
        Tuned((MLP,))
    with pytest.raises(ValueError, match="sizes: expected a finite number above 0"):
        Tuned((GOOD,), sizes=(0.0,))
    with pytest.raises(ValueError, match="sizes: expected at least one"):
        Tuned((GOOD,), sizes=())
    with pytest.raises(TypeError, match="errors: expected errors such as Shift"):
        Tuned((GOOD,), errors=("shift",))
    with pytest.raises(ValueError, match="chosen: expected a choice; got none yet"):
        _ = Tuned((GOOD,)).chosen
    with pytest.raises(TypeError, match="calibration: expected a Calibration"):
        Tuned((GOOD,)).choose(Draws(X_O))
