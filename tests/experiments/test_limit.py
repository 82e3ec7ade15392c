from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments import limit
from experiments.limit import bayes, log_constant
from experiments.material import Recipe, Setting, flow
from experiments.runs import Context


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    recipe = Recipe("two_moons", 200, 2)
    trained = flow(recipe, Context(tmp_path_factory.mktemp("flows")))
    return Setting(recipe, trained, 100, 0, 40)


def test_the_constant_of_the_posterior():
    """N(1, 1) against N(0, 1): the log-ratio is theta - 1/2, and the constant what was added."""
    q, p = torch.randn(2, 20_000, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    found = log_constant(q - 0.5 + 7.0, p + 0.5 + 7.0)
    assert found == pytest.approx(7.0, abs=0.05)


def test_the_constant_where_q_leaks():
    """Where p is zero at all draws of q, the classes are told apart whatever it is."""
    of_q, of_p = torch.full((10,), -torch.inf), torch.linspace(0, 1, 10)
    constant = log_constant(of_q, of_p)
    assert torch.sigmoid(of_p - constant).min() > 0.999


def test_the_bayes_classifier_of_a_right_q_knows_nothing(setting):
    """And that of a wrong one knows something at every observation, not all at all of them."""

    class Right:
        """q = p, whatever its constant."""

        def log_prob(self, theta, x):
            return setting.task.log_posterior(theta, x) - 3.0

        def sample_each(self, x, n, generator):
            return torch.stack([setting.task.posterior(row, n, generator).theta for row in x])

    right = replace(setting, flow=Right())
    assert max(bayes(right)) < 1e-9
    wrong = bayes(setting)
    assert min(wrong) > 0.01
    assert np.mean(wrong) < 0.249


def test_a_wrong_q_is_rejected_by_its_accuracy(setting):
    found = limit.tested(setting)
    assert max(found["pvalue"]) < 1e-6
    np.testing.assert_allclose(found["statistic"], bayes(setting), atol=0.03)


@pytest.mark.parametrize("tied", [False, True])
def test_the_accuracy_has_its_level(setting, tied):
    """Where q = p and the classifier is any: 500 tests, within a 99.9 % binomial interval."""

    class Drawn:
        """Draws of p, with the density of something else, or of p itself."""

        def log_prob(self, theta, x):
            right = setting.task.log_posterior(theta, x)
            return right if tied else right + 0.1 * theta[:, 0].sin()

        def sample_each(self, x, n, generator):
            return torch.stack([setting.task.posterior(row, n, generator).theta for row in x])

    wrong = replace(setting, flow=Drawn())
    found = [p for run in range(50) for p in limit.tested(replace(wrong, run=run))["pvalue"]]
    assert np.mean(np.array(found) <= 0.05) <= 0.086
    assert tied or np.mean(np.array(found) <= 0.5) > 0.38
