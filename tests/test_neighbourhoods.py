import numpy as np
import pytest
import torch

from assay.neighbourhoods import Nearest, Smooth

X = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
X_O = torch.zeros(2, 3)


@pytest.mark.parametrize("where", [Nearest(), Smooth(), Nearest((1.0,))])
def test_weights_have_unit_norm_and_do_not_mind_units(where):
    weights = where.weights(X, X_O)
    assert weights.shape == (2, len(where.shares), 200)
    torch.testing.assert_close(weights.square().sum(2), torch.ones(weights.shape[:2]))
    moved = where.weights(100 * X + 3, 100 * X_O + 3)
    torch.testing.assert_close(moved, weights, atol=1e-4, rtol=1e-3)


def test_the_nearest_are_the_nearest():
    weights = Nearest((0.1, 0.2)).weights(X, X_O)[0]
    assert (weights != 0).sum(1).tolist() == [20, 40]
    assert ((weights[0] != 0) <= (weights[1] != 0)).all()


def test_a_kernel_falls_with_distance():
    line = torch.linspace(-1, 1, 101)[:, None]
    weights = Smooth((0.2,)).weights(line, line[50:51])[0, 0]
    assert weights.argmax() == 50
    assert (weights[50:].diff() <= 0).all()


@pytest.mark.parametrize("where", [Nearest(), Smooth()])
def test_observations_that_are_all_the_same(where):
    weights = where.weights(torch.ones(100, 2), torch.ones(1, 2))
    assert weights.isfinite().all()
    torch.testing.assert_close(weights.norm(dim=2), torch.ones(1, 3))


@pytest.mark.parametrize("shares", [(), (0.0,), (1.5,), (-0.1, 0.2)])
def test_bad_shares(shares):
    with pytest.raises(ValueError, match="shares: expected .*number"):
        Nearest(shares)


def test_hypotheses_differ():
    assert "nearest 20%" in Nearest().hypothesis(0.2)
    assert "almost every x" in Smooth().hypothesis(0.2)


def test_ties_are_all_in_or_all_out():
    x = torch.arange(10.0).repeat_interleave(10)[:, None]
    inside = Nearest((0.15,)).weights(x, torch.tensor([[0.0]]))[0, 0] > 0
    assert inside.nonzero().flatten().tolist() == list(range(20))


def test_shares_of_any_kind():
    assert Nearest(np.array([0.2, 0.1])).shares == Nearest([0.1, 0.2]).shares == (0.1, 0.2)
    with pytest.raises(TypeError, match="shares: expected a number"):
        Nearest("a")
