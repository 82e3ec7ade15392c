"""Calibrations, latents and observations: what they hold, what they refuse, and their seeds."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from assay import Calibration, Draws
from assay._support.random import stream
from assay.data.calibration import Latents, has_order, tied_ranks
from assay.data.posterior import StandardNormal

N = 40
THETA = np.random.default_rng(0).normal(size=(N, 2))
X = np.random.default_rng(1).normal(size=(N, 3))
Q = np.random.default_rng(2).normal(size=(N, 5, 2))
PAIRS = Calibration(THETA, X, Q)
NAN = np.where(np.arange(N)[:, None] == 4, np.nan, 0.0)  # in one row


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor, jnp.asarray, np.ndarray.tolist])
def test_arrays_of_every_library(convert):
    calibration = Calibration(convert(THETA), convert(X), convert(Q))
    assert isinstance(calibration.theta, torch.Tensor)
    np.testing.assert_allclose(calibration.theta_q, Q, rtol=1e-6)
    draws = Draws(convert(X[0]), convert(Q[0]))
    np.testing.assert_allclose(draws.theta, Q[0], rtol=1e-6)


def test_drop_invalid_keeps_the_finite_rows():
    theta, x, q = THETA.copy(), X.copy(), Q.copy()
    theta[3], x[7, 1], q[9, 4, 0] = np.nan, np.inf, -np.inf
    calibration = Calibration.drop_invalid(theta, x, q)
    kept = np.delete(np.arange(N), [3, 7, 9])
    np.testing.assert_array_equal(calibration.theta, THETA[kept])
    np.testing.assert_array_equal(calibration.theta_q, Q[kept])
    with pytest.raises(ValueError, match="x: expected rows that are finite; got none"):
        Calibration.drop_invalid(theta, np.nan * x, q)


BAD_CALIBRATIONS = [
    ((THETA[:, 0], X, Q), r"theta: expected shape \(n, m\); got \(40,\)"),
    ((THETA, X[:, 0], Q), r"x: expected shape \(40, ...\).*x.reshape\(-1, 1\)"),
    ((THETA, X, Q[:-1]), r"theta_q: expected shape \(40, 2\) or \(40, k, 2\)"),
    ((THETA, X, Q.swapaxes(0, 1)), r"theta_q.swapaxes\(0, 1\)"),
    ((THETA, X, None), r"theta_q: expected draws of q.*got None"),
    ((THETA[:9], X[:9], Q[:9]), r"theta: expected at least 10 rows; got 9"),
    ((THETA + NAN, X, Q), r"theta: expected finite.* in 1 of 40 rows, first at \[4\]"),
    ((THETA, X + NAN, Q), r"x: .* in 1 of 40 rows.*drop_invalid"),
    ((THETA, X + NAN, Q, lambda x: x[:, :2]), r"embed\(x\): expected finite numbers"),
    ((THETA, X, Q + np.inf), r"theta_q: .* in 40 of 40 rows, first at \[0, 1"),
]


@pytest.mark.parametrize(("given", "message"), BAD_CALIBRATIONS)
def test_bad_calibrations(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Calibration(*given)


def observe(x, *theta):
    return lambda: PAIRS.observe(Draws(x, *theta))


BAD_CALLS = [
    (observe(X[0, :2], Q[0]), r"x_o: .* \(3,\).*got \(2,\)"),
    (observe(X[:3], Q[:2]), r"theta_o: .* \(3, s, 2\)"),
    (observe(X[0], Q[0, :, :1]), r"theta_o: .* of 2 parameter"),
    (observe(X[0]), r"draws: expected Draws\(x_o, theta_o\)"),
    (observe(X[3:5] + NAN[3:5], Q[:2]), r"x_o: .* in 1 of 2 rows, first at .1"),
    (observe(X[:2], Q[:2]), "theta_o: expected fresh draws of q at x_o"),
    (observe(X[0], Q[0, 0]), r"theta: expected shape \(s, m\) or \(o, s, m\); got \(2,\)"),
    (lambda: PAIRS.subset([0.5] * 20), "rows: expected whole numbers, a slice or a mask"),
    (lambda: PAIRS.subset([1, 2, 2]), "rows: expected each row once.*one 2 times"),
    (lambda: Calibration(THETA, X, Q, weights=X), r"weights: expected shape \(40,\)"),
    (lambda: Calibration(THETA, X, Q, weights=np.zeros(N)), "weights: expected prior over"),
    (lambda: Latents(THETA, X, base=StandardNormal(3)), "base: expected dimension 2"),
]


@pytest.mark.parametrize(("call", "message"), BAD_CALLS)
def test_bad_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class TestOrder:
    def test_sorting_forgets_the_order_given(self):
        first = PAIRS.sorted()
        second = PAIRS.subset(np.random.default_rng(3).permutation(N)).sorted()
        assert torch.equal(first.theta_q, second.theta_q)
        assert first.own_seed(5) == second.own_seed(5) != PAIRS.own_seed(5)
        assert first.own_seed(5) == Calibration(THETA, 7 * X + 3, Q).sorted().own_seed(5)

    @pytest.mark.parametrize("x", [np.ones((N, 3)), np.arange(N)[:, None] % 2.0], ids=["1", "2"])
    def test_where_x_has_few_values_members_choose(self, x):
        """Whichever of them is the true parameter, in whatever order and units."""
        calibration, other = Calibration(THETA, x, Q), Calibration(THETA + Q[:, 0], x, Q)
        assert calibration.own_seed(5) != other.own_seed(5) != other.own_seed(6)
        flipped = Calibration(Q[:, 2], x, np.concatenate([THETA[:, None], Q[:, [0, 1, 3, 4]]], 1))
        assert flipped.own_seed(5) == calibration.own_seed(5)
        moved = Calibration(7 * THETA + 3, x, 7 * Q + 3)
        moved = moved.subset(np.random.default_rng(3).permutation(N))
        assert moved.own_seed(5) == calibration.own_seed(5)
        latents = [Calibration.from_base(z[:, :1], x).own_seed(5) for z in (THETA, Q[:, 0])]
        assert latents[0] != latents[1]

    def test_few_values_are_no_order(self):
        columns = [[1, 1, 2, 3]], [[1, 1, 2, 2]], [[1, 1, 2, 2], [1, 1, 2, 2]]
        ranks = [tied_ranks(np.array(each, float).T) for each in columns]
        assert ranks[0][:, 0].tolist() == [0, 0, 1, 2]
        assert list(map(has_order, ranks)) == [True, False, True]


def test_weights_and_plain_draws_go_with_their_rows():
    more = {"weights": torch.arange(N).double(), "plain_draws": torch.tensor(Q) + 1}
    whole = Calibration(THETA, X, Q, **more)
    rows = np.arange(N) % 2 == 0, range(12, 0, -1), slice(5, 20)
    for part in (*map(whole.subset, rows), whole.sorted(), whole.to("cpu")):
        assert torch.equal(part.theta, whole.theta[part.weights.long()])
        assert torch.equal(part.plain_draws, part.theta_q + 1)
    assert whole.subset(rows[0]).weights.tolist() == [*range(0, N, 2)]


def test_other_members_of_the_same_x():
    """Nothing is embedded again, and the kind stays."""
    theta = PAIRS.theta + 1
    other = PAIRS.with_members(theta, PAIRS.theta_q[:, :2])
    assert (other.k, other.m, len(other)) == (2, 2, N)
    assert other.features is PAIRS.features
    assert torch.equal(other.theta, theta)
    assert isinstance(Calibration.from_base(THETA, X).with_members(theta, None), Latents)


def test_images_are_embedded_or_flattened():
    """An embedding may read x that is padded with NaN."""
    images = np.random.default_rng(0).normal(size=(N, 4, 4))
    assert Calibration(THETA, images, Q).features.shape == (N, 16)
    images[:, 2:] *= np.nan
    embedded = Calibration(THETA, images, Q, embed=lambda x: x.nanmean(1))
    assert (embedded.features.shape, embedded.x.shape) == ((N, 4), (N, 4, 4))
    assert embedded.observe(Draws(images[:2], Q[2:4])).features.shape == (2, 4)


def test_one_observation_and_many():
    one, many = PAIRS.observe(Draws(X[0], Q[1])), PAIRS.observe(Draws(X[:3], Q[3:6]))
    assert (one.draws.shape, many.draws.shape) == ((1, 5, 2), (3, 5, 2))
    assert (one.shaped([4]), many.shaped([4, 5, 6])) == (4, [4, 5, 6])
    draws, bare = Draws(X[0], Q[0]), Draws.of(X[0])
    assert Draws.of(draws) is draws
    assert draws.many(one.x).theta.shape == (1, 5, 2)
    assert bare.many(PAIRS.observation(bare).x).theta is None
    assert repr(bare) == "Draws(x=(3,), theta=1000)"


def test_sets_begin_with_true_parameters(gaussian):
    assert torch.equal(PAIRS.sets(9, stream(0, "sets")), PAIRS.members)
    assert torch.equal(PAIRS.members, torch.tensor(np.concatenate([THETA[:, None], Q], 1)))
    latents = gaussian(width=0.1).latents(500)
    sets = latents.sets(3, stream(0, "sets"))
    assert torch.equal(sets[:, 0], latents.theta)
    assert torch.equal(sets, latents.sets(3, stream(0, "sets")))
    assert abs(float(sets[:, 1:].std()) - 1) < 0.05 < float(sets[:, 0].std()) / 100
    with pytest.raises(ValueError, match="calibration: expected draws theta_q .*got latents"):
        _ = latents.members


class TestLatents:
    def test_of_a_flow(self, gaussian):
        flow, x_o = gaussian(width=1.3), torch.ones(3, 2)
        calibration = flow.calibration(200)
        latents = calibration.to_latent(flow)
        assert torch.equal(latents.theta, flow.theta_to_base(calibration.theta, calibration.x))
        assert latents.parameter_names == ("theta[0]", "theta[1]")
        assert (type(latents.sorted()), latents.sorted().flow) == (Latents, flow)
        found = latents.observe(Draws(x_o, n=50))
        expected = flow.theta_to_base(found.theta, x_o[:, None].expand(-1, 50, -1))
        torch.testing.assert_close(found.draws, expected)
        with pytest.raises(ValueError, match="got latents already"):
            latents.to_latent(flow)

    def test_alone(self, gaussian):
        latents, x_o = gaussian().latents(50), torch.ones(3, 2)
        assert (latents.k, latents.theta_q, latents.base) == (None, None, StandardNormal(2))
        assert repr(latents) == "Calibration(n=50, m=2, k=None, x=(2,), space='latent')"
        assert latents.parameter_names == ("latent[0]", "latent[1]")
        found = latents.observe(Draws(x_o, n=50))
        assert found.theta is None
        assert torch.equal(found.draws[0], found.draws[2])
        with pytest.raises(ValueError, match="draws: expected no theta"):
            latents.observe(gaussian().draws(x_o))
