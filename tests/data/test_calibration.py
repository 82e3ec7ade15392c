import jax.numpy as jnp
import numpy as np
import pytest
import torch

import assay
from assay import Calibration, Draws
from assay._support.random import stream
from assay.data.calibration import Latents
from assay.data.posterior import StandardNormal
from assay.neighbourhood import Distance, DistanceForQ, Nearest

N = 40
THETA = np.random.default_rng(0).normal(size=(N, 2))
X = np.random.default_rng(1).normal(size=(N, 3))
Q = np.random.default_rng(2).normal(size=(N, 5, 2))

LIBRARIES = {
    "numpy": np.asarray,
    "torch": torch.tensor,
    "jax": jnp.asarray,
    "lists": lambda array: array.tolist(),
}


@pytest.mark.parametrize("convert", LIBRARIES.values(), ids=LIBRARIES)
def test_arrays_of_every_library(convert):
    calibration = Calibration(convert(THETA), convert(X), convert(Q))
    assert isinstance(calibration.theta, torch.Tensor)
    np.testing.assert_allclose(calibration.theta_q, Q, rtol=1e-6)
    draws = Draws(convert(X[0]), convert(Q[0]))
    np.testing.assert_allclose(draws.theta, Q[0], rtol=1e-6)


def test_shapes_and_names():
    calibration = Calibration(THETA, X, Q[:, 0])
    assert (len(calibration), calibration.m, calibration.k) == (N, 2, 1)
    assert calibration.theta_q.shape == (N, 1, 2)
    assert calibration.space == "parameters"
    assert Calibration(THETA, X, Q).k == 5
    assert Calibration.from_base(THETA, X).space == "latent"


def test_precision_follows_what_is_given():
    single = [torch.tensor(a, dtype=torch.float32) for a in (THETA, X, Q)]
    assert Calibration(*single).theta.dtype == torch.float32
    assert Calibration(THETA, *single[1:]).x.dtype == torch.float64


def test_integers_become_floating_point_and_constant_columns_stay():
    x = np.concatenate([np.arange(N)[:, None], np.ones((N, 1), int)], 1)
    calibration = Calibration(THETA, x, Q)
    assert calibration.features.is_floating_point()
    assert calibration.features.shape == (N, 2)


def test_what_was_checked_does_not_change_afterwards():
    theta = torch.tensor(THETA)
    calibration = Calibration(theta, X, Q)
    theta[0, 0] = torch.nan
    assert calibration.theta.isfinite().all()
    with pytest.raises(AttributeError):
        calibration.theta = theta


def test_drop_invalid_keeps_the_finite_rows():
    theta, x, q = THETA.copy(), X.copy(), Q.copy()
    theta[3], x[7, 1], q[9, 4, 0] = np.nan, np.inf, -np.inf
    calibration = Calibration.drop_invalid(theta, x, q)
    kept = np.delete(np.arange(N), [3, 7, 9])
    np.testing.assert_array_equal(calibration.theta, THETA[kept])
    np.testing.assert_array_equal(calibration.theta_q, Q[kept])


ODD = {
    "reversed": THETA[::-1],
    "big endian": THETA.astype(">f8"),
    "extended": THETA.astype(np.longdouble),
    "half": THETA.astype("f2"),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_arrays_that_torch_does_not_like(odd):
    found = Calibration(odd, X, Q).theta
    np.testing.assert_allclose(found, odd.astype(float), rtol=1e-3)


def test_sorting_forgets_the_order_given():
    calibration = Calibration(THETA, X, Q)
    order = np.random.default_rng(3).permutation(N)
    first, second = calibration.sorted(), calibration.subset(order).sorted()
    assert torch.equal(first.theta_q, second.theta_q)
    assert first.own_seed(5) == second.own_seed(5) != calibration.own_seed(5)
    assert first.own_seed(5) == Calibration(THETA, 7 * X + 3, Q).sorted().own_seed(5)


CONSTANT = {"constant": np.ones((N, 3)), "two values": np.arange(N)[:, None] % 2.0}


@pytest.mark.parametrize("x", CONSTANT.values(), ids=CONSTANT)
def test_where_x_has_no_order_members_choose_the_nulls(x):
    """Whichever of them is the true parameter, in whatever order and units."""
    calibration, other = Calibration(THETA, x, Q), Calibration(THETA + Q[:, 0], x, Q)
    assert calibration.own_seed(5) != other.own_seed(5) != other.own_seed(6)
    flipped = Calibration(Q[:, 2], x, np.concatenate([THETA[:, None], Q[:, [0, 1, 3, 4]]], 1))
    assert flipped.own_seed(5) == calibration.own_seed(5)
    order = np.random.default_rng(3).permutation(N)
    moved = Calibration(7 * THETA + 3, x, 7 * Q + 3).subset(order)
    assert moved.own_seed(5) == calibration.own_seed(5)
    latents = [Calibration.from_base(z[:, :1], x).own_seed(5) for z in (THETA, Q[:, 0])]
    assert latents[0] != latents[1]


def test_split_is_disjoint_and_complete():
    calibration = Calibration(np.arange(2.0 * N).reshape(N, 2), X, Q)
    first, second = calibration.split(0.25, seed=1)
    assert (len(first), len(second)) == (10, 30)
    rows = torch.cat([first.theta, second.theta])[:, 0].sort().values
    assert torch.equal(rows, calibration.theta[:, 0])
    assert not torch.equal(first.theta, calibration.split(0.25, seed=2)[0].theta)


def test_subset_by_index_and_by_mask():
    calibration = Calibration(THETA, X, Q)
    mask = np.arange(N) % 2 == 0
    by_mask, by_index = calibration.subset(mask), calibration.subset(np.flatnonzero(mask))
    assert torch.equal(by_mask.theta_q, by_index.theta_q)
    assert len(by_mask) == N // 2


def test_weights_and_plain_draws_go_with_their_rows():
    weights = torch.arange(N).double()
    other = Calibration(THETA, X, Q, weights=weights, plain_draws=torch.tensor(Q) + 1)
    for part in (
        other.subset(range(12, 0, -1)),
        other.sorted(),
        *other.split(0.5),
        other.to("cpu"),
    ):
        assert torch.equal(part.theta, other.theta[part.weights.long()])
        assert torch.equal(part.plain_draws, part.theta_q + 1)


BAD_CALIBRATIONS = {
    "theta of one axis": ((THETA[:, 0], X, Q), r"theta: expected shape \(n, m\); got \(40,\)"),
    "fewer x": ((THETA, X[:-1], Q), r"x: expected shape \(40, ...\).*got \(39, 3\)"),
    "x of one axis": ((THETA, X[:, 0], Q), r"x: expected shape \(40, ...\)"),
    "fewer draws": ((THETA, X, Q[:-1]), r"theta_q: expected shape \(40, 2\) or \(40, k, 2\)"),
    "draws of other parameters": ((THETA, X, Q[..., :1]), r"theta_q: expected.*got \(40, 5, 1\)"),
    "samples first": ((THETA, X, Q.swapaxes(0, 1)), r"theta_q.swapaxes\(0, 1\)"),
    "no draws": ((THETA, X, Q[:, :0]), r"theta_q: expected a non-empty array"),
    "None": ((THETA, X, None), r"theta_q: expected draws of q.*got None"),
    "too few rows": ((THETA[:9], X[:9], Q[:9]), r"theta: expected at least 10 rows; got 9"),
    "empty": ((THETA[:0], X[:0], Q[:0]), r"theta: expected a non-empty array"),
    "complex": ((THETA + 1j, X, Q), r"theta: expected an array of real numbers; got complex"),
    "complex tensor": ((torch.tensor(THETA + 1j), X, Q), r"theta: expected.*got torch.complex128"),
    "objects": ((THETA, np.full((N, 3), None), Q), r"x: expected an array of real numbers"),
    "words": ((THETA, np.full((N, 3), "a"), Q), r"x: expected an array of real numbers"),
    "ragged": ((THETA, [[1.0], [1.0, 2.0]], Q), r"x: expected an array of numbers"),
    "an embedding": ((THETA, X, Q, torch.mean), r"embed: expected .* \(40, d\)"),
}


@pytest.mark.parametrize(("given", "message"), BAD_CALIBRATIONS.values(), ids=BAD_CALIBRATIONS)
def test_bad_calibrations(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Calibration(*given)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_non_finite_rows_are_counted(which, bad):
    given = [THETA.copy(), X.copy(), Q.copy()]
    given[which][[4, 17]] = bad
    name = ("theta", "x", "theta_q")[which]
    with pytest.raises(ValueError, match=rf"{name}: .* in 2 of 40 rows, first at \[4, 17\]"):
        Calibration(*given)


PAIRS = Calibration(THETA, X, Q)
NOT_FINITE = Draws(X[:2] * [[1.0], [np.nan]], Q[:2])
BAD_CALLS = {
    "another x": (lambda: PAIRS.observe(Draws(X[0, :2], Q[0])), r"x_o: .* \(3,\).*got \(2,\)"),
    "fewer draws": (lambda: PAIRS.observe(Draws(X[:3], Q[:2])), r"theta_o: .* \(3, s, 2\)"),
    "fewer parameters": (
        lambda: PAIRS.observe(Draws(X[0], Q[0, :, :1])),
        r"theta_o: .* of 2 parameter",
    ),
    "many for one": (lambda: PAIRS.observe(Draws(X[0], Q[:2])), r"theta_o: .* \(1, s, 2\)"),
    "no draws": (lambda: PAIRS.observe(Draws(X[0])), r"draws: expected Draws\(x_o, theta_o\)"),
    "not finite": (lambda: PAIRS.observe(NOT_FINITE), r"x_o: .* in 1 of 2 rows, first at .1"),
    "draws of one axis": (
        lambda: Draws(X[0], Q[0, 0]),
        r"theta: expected shape \(s, m\) or \(o, s, m\); got \(2,\)",
    ),
    "draws not finite": (lambda: Draws(X[0], Q[0] * np.nan), r"theta: expected finite numbers"),
    "no number": (lambda: Draws(X[0], None, 0), r"n: expected at least 1; got 0"),
    "cuda": (lambda: PAIRS.to("cuda:99"), r"device: expected one of .*got 'cuda:99'"),
    "quantum": (lambda: PAIRS.to("quantum"), r"device: expected one of .*got 'quantum'"),
    "share": (lambda: PAIRS.split(1.5), "share: expected a number between 0 and 1; got 1.5"),
    "half rows": (lambda: PAIRS.subset([0.5] * 20), "rows: expected"),
    "far rows": (lambda: PAIRS.subset([100]), "rows: expected"),
    "one row": (lambda: PAIRS.subset(5), "rows: expected"),
    "a short mask": (lambda: PAIRS.subset(np.ones(7, bool)), "rows: expected"),
    "rows twice": (lambda: PAIRS.subset([1, 2, 2]), "rows: expected each row once.*one 2 times"),
}


@pytest.mark.parametrize(("call", "message"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_bad_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_to_latent_is_the_inverse(gaussian):
    flow = gaussian(width=1.3)
    calibration = flow.calibration(200)
    latent = calibration.to_latent(flow)
    expected = flow.theta_to_base(calibration.theta, calibration.x)
    assert torch.equal(latent.theta, expected)
    assert latent.space == "latent"
    assert latent.flow is flow


def test_latent_observations_with_and_without_a_flow(gaussian):
    flow = gaussian()
    latent = flow.calibration(200).to_latent(flow)
    x_o = torch.ones(3, 2)
    observed = latent.observe(Draws(x_o, n=50))
    assert observed.theta.shape == (3, 50, 2)
    torch.testing.assert_close(
        observed.draws, flow.theta_to_base(observed.theta, x_o[:, None].expand(-1, 50, -1))
    )
    bare = flow.latents(200).observe(Draws(x_o, n=50))
    assert bare.theta is None
    assert torch.equal(bare.draws[0], bare.draws[2])
    with pytest.raises(ValueError, match="draws: expected no theta"):
        flow.latents(200).observe(flow.draws(x_o))


def test_latents_are_not_transformed_twice(gaussian):
    with pytest.raises(ValueError, match="got latents already"):
        gaussian().latents(100).to_latent(gaussian())


def test_repr_says_what_it_is():
    assert repr(Calibration(THETA, X, Q)) == (
        "Calibration(n=40, m=2, k=5, x=(3,), space='parameters')"
    )
    assert repr(assay.Draws(X[0])) == "Draws(x=(3,), theta=1000)"


class TestMembers:
    def test_the_true_parameter_comes_first(self):
        calibration = Calibration(THETA, X, Q)
        assert calibration.members.shape == (N, 6, 2)
        np.testing.assert_array_equal(calibration.members[:, 0], THETA)
        np.testing.assert_array_equal(calibration.members[:, 1:], Q)
        assert torch.equal(calibration.sets(9, stream(0, "sets")), calibration.members)

    def test_latents_have_base_draws(self, gaussian):
        latents = gaussian(width=0.1).latents(500)
        with pytest.raises(ValueError, match="calibration: expected draws theta_q .*got latents"):
            _ = latents.members
        sets = latents.sets(3, stream(0, "sets"))
        assert sets.shape == (500, 4, 2)
        assert torch.equal(sets[:, 0], latents.theta)
        assert torch.equal(sets, latents.sets(3, stream(0, "sets")))
        assert abs(float(sets[:, 1:].std()) - 1) < 0.05 < float(sets[:, 0].std()) / 100

    def test_other_members_of_the_same_x(self):
        """Nothing is checked or embedded again, and the kind stays."""
        calls = []

        def embed(x):
            calls.append(len(x))
            return x[:, :2]

        calibration = Calibration(THETA, X, Q, embed)
        count = len(calls)
        theta, theta_q = calibration.theta + 1, calibration.theta_q[:, :2]
        other = calibration.with_members(theta, theta_q)
        assert (other.k, other.m, len(other)) == (2, 2, N)
        assert torch.equal(other.theta, theta)
        assert other.features is calibration.features
        assert len(calls) == count
        assert torch.equal(calibration.theta, torch.tensor(THETA))
        latents = Calibration.from_base(THETA, X).with_members(theta, None)
        assert isinstance(latents, Latents)
        assert latents.base == StandardNormal(2)


class TestLatents:
    def test_what_they_are(self, gaussian):
        latents = gaussian().latents(50)
        assert isinstance(latents, Latents)
        assert (latents.k, latents.theta_q, latents.base) == (None, None, StandardNormal(2))
        assert latents.parameter_names == ("latent[0]", "latent[1]")
        latents_of_flow = gaussian().calibration(200).to_latent(gaussian())
        assert latents_of_flow.parameter_names == ("theta[0]", "theta[1]")
        assert Calibration(THETA, X, Q).base is Calibration(THETA, X, Q).flow is None
        assert repr(latents) == "Calibration(n=50, m=2, k=None, x=(2,), space='latent')"

    def test_parts_of_them_stay_latents(self, gaussian):
        flow = gaussian()
        latents = flow.calibration(200).to_latent(flow)
        for part in (latents.subset([*range(20)]), *latents.split(0.5), latents.sorted()):
            assert isinstance(part, Latents)
            assert part.flow is flow
        with pytest.raises(ValueError, match="base: expected dimension 2"):
            Latents(THETA, X, base=StandardNormal(3))


class TestNearest:
    """A distance that fits, unless one is given."""

    @pytest.mark.parametrize(("d", "kind"), [(4, Distance), (5, DistanceForQ)])
    def test_in_x_or_for_q(self, gaussian, d, kind):
        calibration = gaussian(m=d).calibration(100, k=4)
        assert type(calibration.nearest().distance) is kind
        assert calibration.nearest(0.3).share == 0.3
        assert calibration.nearest(Nearest(0.1)).share == 0.1
        # Latents say nothing of q.
        assert type(gaussian(m=d).latents(100).nearest().distance) is Distance

    def test_a_distance_of_ones_own(self, gaussian):
        own = Nearest(distance=Distance(torch.sin))
        assert gaussian(m=5).calibration(100).nearest(own) is own
