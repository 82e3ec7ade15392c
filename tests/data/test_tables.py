"""Names travel, and columns are matched by them."""

from functools import partial

import numpy as np
import pytest
import torch

import assay
from assay._support.random import stream
from assay.data.tables import Layout, as_observed, as_table

THETA = torch.randn(60, 2, generator=stream(0, "theta"))
X = THETA + torch.randn(60, 2, generator=stream(0, "x"))
Q = X[:, None] / 2 + torch.randn(60, 4, 2, generator=stream(0, "q"))
check = partial(assay.check, nulls=19, classifier=None)


class Frame:
    """A data frame, as far as it is looked at."""

    def __init__(self, array, names):
        self.array, self.names = np.asarray(array), list(names)

    ndim = property(lambda self: self.array.ndim)
    columns = index = property(lambda self: self.names)

    def to_numpy(self):
        return self.array


Frame.__module__ = "pandas.core.frame"


def frame(array, names="ab"):
    return Frame(array, names)


def swapped(array, names="ba"):
    return Frame(array.flip(-1), names)


class TestFrames:
    def test_columns_are_matched_by_name(self):
        plain = assay.Calibration(THETA, X, Q[:, 0])
        named = assay.Calibration(frame(THETA), frame(X, "uv"), swapped(Q[:, 0]))
        assert named.names == ("a", "b")
        assert torch.equal(named.theta_q, plain.theta_q)
        draws = assay.Draws(swapped(X[:3], "vu"), Q[:3])
        assert torch.equal(named.observation(draws).x, X[:3])

    def test_draws_at_the_observation_too(self):
        named = assay.Calibration(frame(THETA), X, Q)
        there = named.observe(assay.Draws(X[0] + 1, swapped(Q[0])))
        assert torch.equal(there.draws[0], Q[0])

    def test_a_single_row(self):
        named = assay.Calibration(THETA, frame(X), Q)
        assert torch.equal(named.observation(assay.Draws(swapped(X[0]))).x[0], X[0])

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (
                lambda: assay.Calibration(frame(THETA), X, frame(Q[:, 0], "ac")),
                "theta_q: expected",
            ),
            (
                lambda: assay.Calibration(THETA, frame(X), Q).observation(
                    assay.Draws(frame(X[:1], "ac"))
                ),
                r"x_o: expected columns \['a', 'b'\], as in x; got \['a', 'c'\]",
            ),
        ],
    )
    def test_other_names_are_refused(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()

    def test_in_a_check(self):
        q = (lambda x, n: x / 2 + torch.randn(n, 2)), frame(THETA), frame(X), swapped(X[0])
        found = check(*q)
        assert found.names == ("a", "b")
        assert np.allclose(found.test.x[0], X[0])


class TestDicts:
    def test_structured_parameters(self):
        theta = {"mu": THETA[:, 0], "beta": torch.cat([THETA, X], 1).reshape(60, 2, 2)}
        table = as_table("theta", theta)
        names = ("mu", "beta[0, 0]", "beta[0, 1]", "beta[1, 0]", "beta[1, 1]")
        assert table.layout.names == names
        parts = table.layout.unpack(table.array)
        assert all(torch.equal(parts[name], theta[name]) for name in theta)

    def test_draws_as_bayesflow_gives_them(self):
        """Variables (n, k, d), or (n, k) where they are single numbers."""
        theta = {"a": THETA[:, 0], "b": THETA[:, 1]}
        found = assay.Calibration(theta, X, {"b": Q[..., 1], "a": Q[..., 0]})
        assert found.names == ("a", "b")
        assert torch.equal(found.theta_q, Q)
        one = assay.Calibration(theta, X, {"b": Q[:, 0, 1], "a": Q[:, 0, 0]})
        assert torch.equal(one.theta_q, Q[:, :1])

    def test_observations_go_through_an_embedding(self):
        x = {"u": X[:, 0], "v": X[:, 1:]}
        found = assay.Calibration(THETA, x, Q, lambda x: x["u"][:, None] + x["v"])
        assert found.features.shape == (60, 1)
        torch.testing.assert_close(found.features[:, 0], X.sum(1))

    def test_an_embedding_in_a_check(self):
        """It is given dicts, as the posterior is."""
        x, x_o = {"u": X[:, 0], "v": X[:, 1:]}, {"u": X[0, 0], "v": X[0, 1:]}

        def both(x):
            return torch.cat([x["u"][..., None], x["v"]], -1)

        def sample(x, n):
            return both(x) / 2 + torch.randn(n, 2)

        found = check(sample, THETA, x, x_o, embed=both)
        assert found.pvalue == check(sample, THETA, x, x_o).pvalue

    @pytest.mark.parametrize("axis", [False, True])
    def test_in_a_check(self, axis):
        x_o = {"v": X[0, 1:], "u": X[0, 0]}
        x_o = {name: value[None] for name, value in x_o.items()} if axis else x_o

        def sample(x, n):
            return torch.stack([x["u"], x["v"][0]]) / 2 + torch.randn(n, 2)

        theta = {"a": THETA[:, 0], "b": THETA[:, 1]}
        found = check(sample, theta, {"u": X[:, 0], "v": X[:, 1:]}, x_o)
        assert found.names == ("a", "b")
        assert np.allclose(found.test.x[0], X[0])

    @pytest.mark.parametrize(
        ("given", "message"),
        [({}, "an empty dict"), ({"a": X, "b": X[:5]}, "arrays with as many rows each")],
    )
    def test_bad_dicts(self, given, message):
        with pytest.raises(ValueError, match=f"theta: expected .*{message}"):
            as_table("theta", given)


class TestPadded:
    """Sets of different lengths, padded with NaN, go through an embedding."""

    X = torch.where(
        torch.arange(5) < torch.randint(1, 6, (60, 1), generator=stream(0, "lengths")),
        X[:, :1] + torch.randn(60, 5, generator=stream(0, "padded")),
        torch.nan,
    )

    @staticmethod
    def embed(x):
        return torch.stack([x.nanmean(1), x.isfinite().sum(1)], 1)

    @staticmethod
    def sample(x, n):
        return x.nanmean() / 2 + torch.randn(n, 2)

    @pytest.mark.parametrize("x_o", [X[:2], torch.ones(5)], ids=["padded", "whole"])
    def test_in_a_check(self, x_o):
        found = check(self.sample, THETA, self.X, x_o, embed=self.embed)
        assert found.settings["d"] == 2

    def test_without_an_embedding(self):
        with pytest.raises(ValueError, match="x: expected .* x padded with NaN needs embed="):
            check(self.sample, THETA, self.X, self.X[:2])

    def test_an_embedding_that_leaves_nan(self):
        with pytest.raises(ValueError, match=r"embed\(x\): expected finite numbers"):
            assay.Calibration(THETA, self.X, Q, lambda x: x.mean(1, keepdim=True))


def test_layouts_of_observations():
    layout = Layout((("u", ()), ("v", (2,))), packed=True)
    one = as_observed({"u": 1.0, "v": np.ones(2)}, layout)
    many = as_observed({"u": np.ones(3), "v": np.ones((3, 2))}, layout)
    assert (one.array.shape, many.array.shape) == ((3,), (3, 3))
    assert one.layout.names == many.layout.names == layout.names
