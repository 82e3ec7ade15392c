import numpy as np
import pytest
import torch

from assay.levels import Levels
from assay.neighbourhoods import Nearest, Regressed, Smooth
from assay.randomness import stream
from assay.regressions import Linear
from assay.scaling import Robust

ALPHAS = np.array([0.1, 0.5, 0.9])
X = torch.randn(200, 2, generator=stream(0, "x"))
U = torch.rand(200, 2, generator=stream(0, "u"))


@pytest.mark.parametrize("where", [Nearest(), Smooth(), Regressed()])
def test_against_a_loop(where):
    """Every curve of every copy, counted one by one."""
    copies = Levels(U, X).copies(4, 0)
    x_o = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    found = Linear(where).fit(copies, ALPHAS, 0)(x_o)
    weights = where.weights(copies.levels.x, x_o).double().numpy()
    o, c, n = weights.shape
    assert found.shape == (c, o, 5, 2, 3)
    for h in range(5):
        u = copies(h, torch.arange(n)).numpy()
        for i in range(o):
            for s in range(c):
                for j in range(2):
                    for g, alpha in enumerate(ALPHAS):
                        w = weights[i, s]
                        expected = w[u[:, j] <= np.float32(alpha)].sum() / w.sum()
                        assert found[s, i, h, j, g] == pytest.approx(expected, abs=1e-6)


def test_the_nearest_alone_is_an_empirical_distribution():
    copies = Levels(U, X).copies(1, 0)
    found = Linear(Nearest((1.0,))).fit(copies, ALPHAS, 0)(X[:1])[0, 0, 0]
    expected = (U[..., None] <= torch.tensor(ALPHAS).float()).double().mean(0)
    np.testing.assert_allclose(found, expected)


def test_a_level_at_alpha_is_below_it():
    u = torch.full((50,), 0.1)
    copies = Levels(u, X[:50]).copies(1, 0)
    found = Linear(Nearest((1.0,))).fit(copies, ALPHAS, 0)(X[:1])[0, 0, 0, 0]
    np.testing.assert_allclose(found, 1)


def test_threads_change_nothing():
    copies = Levels(U, X).copies(20, 0)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(Linear().fit(copies, ALPHAS, 0)(X[:2]))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("where", [Nearest, 0.2, None])
def test_weights_of_another_kind(where):
    with pytest.raises(TypeError, match="where: expected weights such as Nearest"):
        Linear(where)


class TestRegressed:
    X_O = torch.tensor([[0.5, -1.0], [3.0, 3.0]])

    def test_against_ridge_regression(self):
        """Least squares with a penalty on all but the intercept, solved as one system."""
        where = Regressed((0.05,), n=16)
        weights = where.weights(X, self.X_O).double()[:, 0]
        robust = Robust.fit(X)
        table, there = (where._features(robust(part).double()) for part in (X, self.X_O))
        table, there = (np.insert(part.numpy(), 0, 1, 1) for part in (table, there))
        penalty = len(X) * 0.05 * np.diag(np.insert(np.ones(18), 0, 0))
        y = U[:, 0].double().numpy()
        slopes = np.linalg.solve(table.T @ table + penalty, table.T @ y)
        found = (weights / weights.sum(1, keepdim=True)).numpy() @ y
        np.testing.assert_allclose(found, there @ slopes, atol=1e-6)

    def test_weights_have_unit_norm_and_do_not_mind_units(self):
        weights = Regressed().weights(X, self.X_O)
        assert weights.shape == (2, 3, 200)
        torch.testing.assert_close(weights.norm(dim=2), torch.ones(2, 3))
        assert (weights.sum(2) > 0).all()
        moved = Regressed().weights(100 * X + 3, 100 * self.X_O + 3)
        torch.testing.assert_close(moved, weights, atol=1e-3, rtol=1e-2)

    def test_a_strong_penalty_is_the_mean(self):
        weights = Regressed((1e9,)).weights(X, self.X_O)
        torch.testing.assert_close(weights, torch.full_like(weights, 200**-0.5))

    def test_observations_that_are_all_the_same(self):
        weights = Regressed().weights(torch.ones(100, 2), torch.ones(1, 2))
        torch.testing.assert_close(weights, torch.full_like(weights, 0.1))

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"penalties": ()}, "penalties: expected at least one"),
            ({"penalties": (0.0,)}, "penalties: expected a finite number above 0"),
            ({"n": 0}, "n: expected at least 1"),
            ({"reach": -1.0}, "reach: expected"),
        ],
    )
    def test_bad_settings(self, bad, message):
        with pytest.raises(ValueError, match=message):
            Regressed(**bad)
