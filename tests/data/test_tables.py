"""Names travel, and columns are matched by them."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import assay
from assay._support.random import stream
from assay.data.posterior import as_table
from assay.data.tables import Layout

THETA = torch.randn(60, 2, generator=stream(0, "theta"))
X = THETA + torch.randn(60, 2, generator=stream(0, "x"))
CHAINS = X[:, None, None] + torch.randn(60, 2, 50, 2, generator=stream(0, "chains"))
Q = X[:, None] / 2 + torch.randn(60, 4, 2, generator=stream(0, "q"))
PARTS = {"a": THETA[:, 0], "b": THETA[:, 1]}
check = partial(assay.check, nulls=19, classifier=None)


class Frame:
    """A data frame, as far as it is looked at."""

    def __init__(self, array, names):
        self.array, self.ndim, self.columns = np.asarray(array), array.ndim, list(names)
        self.index = self.columns  # of a series

    def to_numpy(self):
        return self.array


Frame.__module__ = "pandas.core.frame"


def test_columns_of_frames_are_matched_by_name():
    frames = Frame(THETA, "ab"), Frame(X, "uv"), Frame(Q[:, 0].flip(1), "ba")
    named = assay.Calibration(*frames)
    assert named.names == ("a", "b")
    assert torch.equal(named.theta_q, Q[:, :1])
    for x_o in (X[:3], X[0]):
        found = named.observation(assay.Draws(Frame(x_o.flip(-1), "vu")))
        assert torch.equal(found.x, x_o.reshape(-1, 2))
    found = named.observe(assay.Draws(X[0], Frame(Q[3].flip(1), "ba")))
    assert torch.equal(found.draws[0], Q[3])
    with pytest.raises(ValueError, match=r"x_o: .* \['u', 'v'\], as in x; got \['a', 'c'\]"):
        named.observation(assay.Draws(Frame(X[:1], "ac")))
    with pytest.raises(ValueError, match="theta_q: expected columns"):
        assay.Calibration(frames[0], X, Frame(Q[:, 0], "ac"))
    with pytest.raises(ValueError, match="names: expected a different one for each"):
        assay.Calibration(THETA, Frame(X, "uu"), Q)


class InferenceData(dict):
    """Draws of two chains by name, as far as they are looked at."""

    def __init__(self, **draws):
        arrays = {name: SimpleNamespace(values=array.numpy()) for name, array in draws.items()}
        group = type("Dataset", (dict,), {"data_vars": tuple(arrays)})
        super().__init__(posterior=group(arrays))


InferenceData.__module__ = "arviz.data"


def test_draws_of_chains_are_taken_at_random():
    chains = [InferenceData(mu=draws) for draws in CHAINS]
    found = assay.Calibration({"mu": THETA}, X, chains)
    assert (found.names, found.k) == (("mu[0]", "mu[1]"), 16)
    draws = assay.Draws(X[0], chains[0])
    given = CHAINS[0].reshape(100, 2)
    assert torch.equal(draws.theta.sort(0).values, given.sort(0).values)
    assert not torch.equal(draws.theta, given)
    chains[7] = InferenceData(mu=CHAINS[7, :, :5])
    with pytest.raises(ValueError, match="theta_q: expected at least 16 draws at every x"):
        assay.Calibration({"mu": THETA}, X, chains)


def test_structured_parameters():
    theta = {"mu": THETA[:, 0], "beta": torch.cat([THETA, X], 1).reshape(60, 2, 2)}
    table = as_table("theta", theta)
    names = ("mu", "beta[0, 0]", "beta[0, 1]", "beta[1, 0]", "beta[1, 1]")
    assert table.layout.names == names
    parts = table.layout.unpack(table.array)
    assert all(torch.equal(parts[name], theta[name]) for name in theta)
    with pytest.raises(ValueError, match=r"theta: expected arrays by name; got an empty dict"):
        as_table("theta", {})
    with pytest.raises(ValueError, match=r"theta: expected arrays with as many rows each; got"):
        as_table("theta", {"a": X, "b": X[:5]})


@pytest.mark.parametrize("theta", [PARTS, THETA], ids=["named", "plain"])
def test_draws_as_bayesflow_gives_them(theta):
    """Variables (n, k, d), or (n, k) where they are single numbers."""
    found = assay.Calibration(theta, X, {"a": Q[..., 0], "b": Q[..., 1]})
    assert found.names == ("a", "b")
    assert torch.equal(found.theta_q, Q)
    one = assay.Calibration(PARTS, X, {"b": Q[:, 0, 1], "a": Q[:, 0, 0]})
    assert torch.equal(one.theta_q, Q[:, :1])


@pytest.mark.parametrize("axis", [False, True])
def test_dicts_in_a_check(axis):
    """An embedding is given dicts, as the posterior is."""
    x = {"u": X[:, 0], "v": X[:, 1:]}
    x_o = {name: x[name][:1] if axis else x[name][0] for name in ("v", "u")}

    def both(x):
        return torch.cat([x["u"][..., None], x["v"]], -1)

    def sample(x, n):
        return both(x) / 2 + torch.randn(n, 2)

    found = check(sample, PARTS, x, x_o)
    assert found.names == ("a", "b")
    assert np.allclose(found.test.x[0], X[0])
    assert check(sample, PARTS, x, x_o, embed=both).pvalue == found.pvalue


def test_one_observation_and_many():
    layout = Layout((("u", ()), ("v", (2,))), packed=True)
    one = assay.Draws({"u": 1.0, "v": np.ones(2)}, layout=layout)
    many = assay.Draws({"u": np.ones(3), "v": np.ones((3, 2))}, layout=layout)
    assert (one.x.shape, many.x.shape) == ((3,), (3, 3))
    assert one.layout.names == many.layout.names == layout.names
