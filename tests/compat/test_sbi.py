"""The drop-in for sbi's local tests, on a posterior in closed form.

Constructors, their refusals and warnings are sbi's own. What differs is in `TestWhatIsDifferent`.
"""

import inspect
import sys

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier

import assay
from assay.compat.sbi import LC2ST, LC2ST_NF, LC2STScores, LC2STState, theirs

WIDTH = 0.5**0.5  # of the posterior of a standard normal with noise of the same size
BASE = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
X_O = torch.tensor([0.5, -0.5])
RIGHT, WRONG = (0.0, 1.0), (0.8, 0.6)  # shift and scale of q in units of the posterior


def data(n=100, q=WRONG, seed=0):
    """Parameters, observations and draws of the posterior."""
    theta, noise, z = torch.randn(3, n, 2, generator=torch.Generator().manual_seed(seed))
    x = theta + noise
    return theta, x, x / 2 + WIDTH * (q[1] * z + q[0])


def build(method, given=None, q=WRONG, **options):
    """A test, and what it is asked with, x_o included."""
    options, at = {"num_trials_null": 2} | options, {"x_o": X_O}
    if method is LC2ST:
        _, x, theta_q = data(q=q, seed=1)
        at["theta_o"] = theta_q - x / 2 + X_O / 2
        return LC2ST(*(given or data()), **options), at
    flow = {"flow_inverse_transform": lambda t, x: ((t - x / 2) / WIDTH - q[0]) / q[1]}
    return LC2ST_NF(*(given or data()), **flow, flow_base_dist=BASE, num_eval=100, **options), at


def trained(test):
    return test.train_on_observed_data(verbosity=0).train_under_null_hypothesis(verbosity=0)


both = pytest.mark.parametrize("method", [LC2ST, LC2ST_NF])


class TestWhatSbiTests:
    @both
    def test_all_answers_and_states(self, method):
        test, at = build(method)
        assert test.state is LC2STState.INITIALIZED
        assert test.train_under_null_hypothesis() is test
        assert test.state is LC2STState.NULL_TRAINED
        assert test.train_on_observed_data().state is LC2STState.READY
        assert test.get_statistics_under_null_hypothesis(**at).scores.shape == (2,)
        assert test.p_value(**at) in (1 / 3, 2 / 3, 1)
        assert test.reject_test(**at) is False
        found = test.get_scores(trained_clfs=test.trained_clfs, **at)
        assert isinstance(found, LC2STScores)
        assert (found.scores.shape, found.probabilities.shape) == ((1,), (1, 100))
        first = test.get_statistic_on_observed_data(**at)
        assert test.train_on_observed_data(seed=5).state is LC2STState.READY
        assert 0 < test.get_statistic_on_observed_data(**at) != first

    def test_nulls_of_another_flow(self):
        nulls = build(LC2ST_NF)[0].train_under_null_hypothesis().trained_clfs_null
        test, _ = build(LC2ST_NF, data(q=RIGHT), RIGHT, trained_clfs_null=nulls)
        assert test.state is LC2STState.NULL_TRAINED
        assert test.train_on_observed_data().state is LC2STState.READY
        assert 0 < test.p_value(X_O) <= 1
        with pytest.raises(ValueError, match="already trained"):
            test.train_under_null_hypothesis()

    def test_what_cannot_be_asked(self):
        test, at = build(LC2ST, permutation=False)
        with pytest.raises(RuntimeError, match="not ready"):
            test.p_value(**at)
        with pytest.raises(ValueError, match="null_distribution"):
            test.train_on_observed_data().train_under_null_hypothesis()

    @pytest.mark.gpu
    @both
    def test_on_a_gpu(self, method):
        test, at = build(method, classifier="mlp", device="cuda", num_trials_null=19)
        assert trained(test).p_value(**at) == 0.05
        assert test.trained_clfs[0].stack.weights.is_cuda

    @both
    def test_a_wrong_posterior_is_rejected(self, method):
        test, at = build(method, data(1000), num_trials_null=100)
        assert trained(test).p_value(**at) == 1 / 101
        assert test.reject_test(**at) is True
        assert test.reject_test(**at | {"x_o": X_O[None]}, alpha=1 / 102) is False

    @pytest.mark.slow
    @both
    def test_a_right_posterior_is_not(self, method):
        """Among 200 data sets, 19 nulls: rejections at 0.1 are binomial, of 200 and 0.1."""
        rejected = 0
        for seed in range(200):
            test, at = build(method, data(100, RIGHT, seed), RIGHT, num_trials_null=19)
            rejected += trained(test).reject_test(alpha=0.1, **at)
        assert 8 <= rejected <= 34


class TestWhatIsDifferent:
    @both
    def test_p_values_are_those_of_the_test(self, method):
        """Those of lc2st with networks of the same widths."""
        theta, x, theta_q = data(100, RIGHT)
        test, at = build(method, (theta, x, theta_q), RIGHT, num_trials_null=19)
        found = trained(test).p_value(**at)
        latents = assay.Calibration.from_base(test.theta_q, x, BASE)
        samples = assay.Calibration(theta, x, theta_q) if method is LC2ST else latents
        scores = assay.lc2st(samples, assay.MLP((20, 20)), null=19, seed=1).scores
        d = scores(at.get("theta_o", getattr(test, "theta_o", None))[None], X_O[None])[0]
        observed, *null = ((d.double() - 0.5) ** 2).mean(1)
        assert found == (1 + sum(t >= observed for t in null)) / 20

    @both
    @pytest.mark.parametrize("options", [{"num_folds": 3, "z_score": True}, {"num_ensemble": 2}])
    def test_folds_and_ensembles(self, method, options):
        test, at = build(method, data(300), num_trials_null=19, device="gpu", **options)
        assert trained(test).p_value(**at) == 0.05
        assert {len(folds) for folds in test.trained_clfs_null.values()} == {test.num_folds}

    @both
    @pytest.mark.parametrize("classifier", ["mlp", "random_forest"])
    def test_the_seed_is_enough_and_nothing_global_is_changed(self, method, classifier):
        found = []
        for _ in range(2):
            before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
            test, at = build(method, classifier=classifier)
            found.append(trained(test).get_statistic_on_observed_data(**at))
            assert torch.equal(torch.get_rng_state(), before[0])
            assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
            torch.manual_seed(3)
            np.random.seed(3)  # noqa: NPY002
        assert found[0] == found[1]

    @pytest.mark.parametrize(
        ("options", "kind"),
        [
            ({"classifier": "random_forest"}, RandomForestClassifier),
            ({"classifier_kwargs": {"max_iter": 300, "alpha": 0.1}}, MLPClassifier),
        ],
    )
    def test_other_classifiers_are_sbi_s_with_nulls_that_keep_the_pairs(
        self, options, kind, monkeypatch
    ):
        """Both classes have the same x, in the data and in nulls."""
        test, at = build(LC2ST, **options)
        original, places = theirs.train_lc2st, []

        def watched(theta_p, theta_q, x_p, x_q, clf):
            places.append(torch.equal(x_p, x_q))
            return original(theta_p, theta_q, x_p, x_q, clf)

        monkeypatch.setattr(theirs, "train_lc2st", watched)
        fits = sum(trained(test).trained_clfs_null.values(), test.trained_clfs)
        assert [type(fit) for fit in fits] == [kind] * 3
        assert places == [True] * 3
        assert test.p_value(**at) in (1 / 3, 2 / 3, 1)

    def test_widths_and_random_state_keep_the_stack(self):
        """Data are not normalised once for each null, as sbi tests."""
        options = {"hidden_layer_sizes": (48,), "random_state": 7}
        test, _ = build(LC2ST, classifier_kwargs=options, z_score=True)
        test._normalize_theta = None
        assert trained(test).trained_clfs[0].stack.widths == (16, 48, 1)

    def test_probabilities_are_of_the_posterior(self):
        """They are high where it has too much mass."""
        test, at = build(LC2ST, data(1000))
        at = at["theta_o"][:1] + torch.tensor([[2.0], [-3.0]])
        test.train_on_observed_data()
        high, low = test.get_scores(at, X_O, test.trained_clfs).probabilities[0]
        assert high > 0.5 > low
        rows, (network,) = np.random.default_rng(0).normal(size=(5, 4)), test.trained_clfs
        one_by_one = [network.predict_proba(row[None])[0] for row in rows]
        np.testing.assert_allclose(network.predict_proba(rows), one_by_one, rtol=1e-5)

    @pytest.mark.parametrize("ours", [LC2ST, LC2ST_NF])
    def test_signatures_are_those_of_sbi(self, ours):
        other = getattr(theirs, ours.__name__)
        assert issubclass(ours, other)
        for name in ("__init__", "get_scores", "p_value", "reject_test"):
            mine, their = (inspect.signature(getattr(c, name)) for c in (ours, other))
            assert list(mine.parameters) == list(their.parameters)

    def test_without_sbi_one_line_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "sbi.diagnostics", None)
        monkeypatch.delitem(sys.modules, "assay.compat.sbi")
        with pytest.raises(ImportError, match=r"pip install 'assay\[sbi\]'$"):
            import assay.compat.sbi  # noqa: F401
