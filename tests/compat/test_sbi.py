"""The drop-in for sbi's local tests.

The first part goes through what sbi 0.27 tests of its own classes, 24 functions and 36 cases, in
words of our own and on a posterior in closed form. What cannot pass is in `TestWhatIsDifferent`.
"""

import inspect
import sys
import warnings

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


class Posterior:
    """Of two parameters, each observed with noise; right if nothing is changed."""

    def __init__(self, shift=0.0, scale=1.0):
        self.shift, self.scale = shift, scale

    def sample(self, x, z):
        return x / 2 + WIDTH * (self.scale * z + self.shift)

    def inverse(self, theta, x):
        return ((theta - x / 2) / WIDTH - self.shift) / self.scale


RIGHT, WRONG = Posterior(), Posterior(shift=0.8, scale=0.6)


def data(n=100, posterior=WRONG, seed=0):
    """Parameters, observations and draws of the posterior."""
    theta, noise, z = torch.randn(3, n, 2, generator=torch.Generator().manual_seed(seed))
    return theta, theta + noise, posterior.sample(theta + noise, z)


def draws(n=100, posterior=WRONG, seed=1):
    z = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))
    return posterior.sample(X_O, z)


def build(method, given=None, posterior=WRONG, **options):
    """A test, and what it is asked with beside x_o."""
    options = {"num_trials_null": 2} | options
    if method is LC2ST:
        return LC2ST(*(given or data()), **options), {"theta_o": draws(posterior=posterior)}
    flow = {"flow_inverse_transform": posterior.inverse, "flow_base_dist": BASE, "num_eval": 100}
    return LC2ST_NF(*(given or data()), **flow, **options), {}


def trained(test):
    return test.train_on_observed_data(verbosity=0).train_under_null_hypothesis(verbosity=0)


both = pytest.mark.parametrize("method", [LC2ST, LC2ST_NF])


class TestWhatSbiTests:
    @both
    def test_all_answers(self, method):
        test, at = build(method)
        test.train_under_null_hypothesis().train_on_observed_data()
        assert test.get_statistic_on_observed_data(x_o=X_O, **at) > 0
        assert test.get_statistics_under_null_hypothesis(x_o=X_O, **at).scores.shape == (2,)
        assert test.p_value(x_o=X_O, **at) in (1 / 3, 2 / 3, 1)
        assert test.reject_test(x_o=X_O, **at) is False

    @pytest.mark.parametrize(
        ("method", "classifier", "z_score", "folds"),
        [
            (LC2ST, "mlp", True, 2),
            (LC2ST, "random_forest", False, 1),
            (LC2ST, MLPClassifier, True, 1),
            (LC2ST_NF, "mlp", False, 2),
        ],
    )
    def test_options(self, method, classifier, z_score, folds):
        test, at = build(method, classifier=classifier, z_score=z_score, num_folds=folds)
        test.train_on_observed_data()
        assert len(test.trained_clfs) == folds
        assert test.get_statistic_on_observed_data(x_o=X_O, **at) > 0

    def test_scores(self):
        test, at = build(LC2ST)
        test.train_on_observed_data()
        found = test.get_scores(x_o=X_O, trained_clfs=test.trained_clfs, **at)
        assert isinstance(found, LC2STScores)
        assert found.scores.shape == (1,)
        assert found.probabilities.shape == (1, 100)

    def test_return_probs_is_deprecated(self):
        test, at = build(LC2ST)
        at |= {"x_o": X_O, "return_probs": True}
        trained(test)
        with pytest.warns(FutureWarning, match="return_probs"):
            probabilities, scores = test.get_scores(trained_clfs=test.trained_clfs, **at)
        assert (probabilities.shape, scores.shape) == ((1, 100), (1,))
        with pytest.warns(FutureWarning, match="return_probs"):
            probabilities, scores = test.get_statistics_under_null_hypothesis(**at)
        assert (probabilities.shape, scores.shape) == ((2, 1, 100), (2,))

    def test_states(self):
        test, _ = build(LC2ST)
        assert test.state is LC2STState.INITIALIZED
        assert test.train_on_observed_data() is test
        assert test.state is LC2STState.OBSERVED_TRAINED
        assert test.train_under_null_hypothesis() is test
        assert test.state is LC2STState.READY

    def test_states_in_the_other_order(self):
        test, _ = build(LC2ST)
        assert test.train_under_null_hypothesis().state is LC2STState.NULL_TRAINED
        assert test.train_on_observed_data().state is LC2STState.READY

    def test_data_may_be_trained_again(self):
        test, at = build(LC2ST)
        first = trained(test).get_statistic_on_observed_data(x_o=X_O, **at)
        assert test.train_on_observed_data(seed=5).state is LC2STState.READY
        assert test.get_statistic_on_observed_data(x_o=X_O, **at) != first

    def test_nulls_of_another_flow(self):
        nulls = build(LC2ST_NF)[0].train_under_null_hypothesis().trained_clfs_null
        test, _ = build(LC2ST_NF, data(posterior=RIGHT), RIGHT, trained_clfs_null=nulls)
        assert test.state is LC2STState.NULL_TRAINED
        assert test.train_on_observed_data().state is LC2STState.READY
        assert 0 < test.p_value(X_O) <= 1
        with pytest.raises(ValueError, match="already trained"):
            test.train_under_null_hypothesis()

    def test_a_constant_parameter(self):
        theta, x, theta_q = data()
        theta_q[:, 0] = 3.0
        test, _ = build(LC2ST, (theta, x, theta_q), z_score=True)
        assert test.theta_p_std[0] == 1
        assert trained(test).state is LC2STState.READY

    @pytest.mark.parametrize("missing", ["prior_samples", "xs", "posterior_samples"])
    def test_missing_arguments(self, missing):
        given = dict(zip(("prior_samples", "xs", "posterior_samples"), data(), strict=True))
        with pytest.raises(ValueError, match=f"{missing} is required"):
            LC2ST(**given | {missing: None})

    def test_another_dimension(self):
        theta, x, theta_q = data()
        with pytest.raises(ValueError, match="Dimension mismatch"):
            LC2ST(theta, x, theta_q[:, :1])

    def test_another_size(self):
        theta, x, theta_q = data()
        with pytest.raises(ValueError, match="Sample size mismatch"):
            LC2ST(theta, x[:50], theta_q)

    @pytest.mark.parametrize(("folds", "words"), [(0, "must be >= 1"), (101, "cannot exceed")])
    def test_folds(self, folds, words):
        with pytest.raises(ValueError, match=words):
            LC2ST(*data(), num_folds=folds)

    def test_an_unknown_classifier(self):
        with pytest.raises(ValueError, match="Invalid classifier"):
            LC2ST(*data(), classifier="unknown")

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("p_value", "not ready"),
            ("get_statistic_on_observed_data", r"train_on_observed_data\(\)"),
            ("get_statistics_under_null_hypothesis", r"train_under_null_hypothesis\(\)"),
        ],
    )
    def test_nothing_is_answered_before_training(self, name, words):
        test, at = build(LC2ST)
        with pytest.raises(RuntimeError, match=words):
            getattr(test, name)(x_o=X_O, **at)

    def test_no_nulls_without_permutation(self):
        test, _ = build(LC2ST, permutation=False)
        with pytest.raises(ValueError, match="null_distribution"):
            test.train_on_observed_data().train_under_null_hypothesis()

    def test_thetas_is_deprecated(self):
        theta, x, theta_q = data()
        with pytest.warns(FutureWarning, match="'thetas' is deprecated"):
            test = LC2ST(thetas=theta, xs=x, posterior_samples=theta_q)
        assert test.theta_q is not None

    def test_both_names_of_parameters(self):
        theta, x, theta_q = data()
        with (
            pytest.warns(FutureWarning, match="thetas"),
            pytest.raises(ValueError, match="Cannot specify both"),
        ):
            LC2ST(theta, x, theta_q, thetas=theta)

    def test_keywords_of_the_classifier(self):
        test, _ = build(LC2ST, classifier_kwargs={"max_iter": 60})
        assert test.clf_class is MLPClassifier
        assert test.clf_kwargs["max_iter"] == 60
        assert test.clf_kwargs["hidden_layer_sizes"] == (20, 20)

    def test_an_alias_of_a_device(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            test, _ = build(LC2ST, classifier="mlp", device="gpu")
        assert test.clf_class is MLPClassifier
        assert trained(test).state is LC2STState.READY

    @pytest.mark.gpu
    @both
    def test_on_a_gpu(self, method):
        test, at = build(method, classifier="mlp", device="cuda", num_trials_null=19)
        assert trained(test).p_value(x_o=X_O, **at) == 0.05
        assert test.trained_clfs[0].stack.weights.is_cuda

    @both
    def test_a_wrong_posterior_is_rejected(self, method):
        test, at = build(method, data(1000), num_trials_null=100)
        assert trained(test).p_value(x_o=X_O, **at) == 1 / 101
        assert test.reject_test(x_o=X_O, **at) is True
        assert test.reject_test(x_o=X_O[None], alpha=1 / 102, **at) is False

    @pytest.mark.slow
    @both
    def test_a_right_posterior_is_not(self, method):
        """Among 200 data sets, 19 nulls: rejections at 0.1 are binomial, of 200 and 0.1."""
        rejected = 0
        for seed in range(200):
            test, at = build(method, data(100, RIGHT, seed), RIGHT, num_trials_null=19)
            rejected += trained(test).reject_test(x_o=X_O, alpha=0.1, **at)
        assert 8 <= rejected <= 34


class TestWhatIsDifferent:
    def test_data_are_not_normalised_once_for_each_null(self):
        """sbi counts calls of a private method for it; a stack is scaled once."""
        test, _ = build(LC2ST, z_score=True)
        test._normalize_theta = None
        assert trained(test).state is LC2STState.READY

    @both
    def test_p_values_are_those_of_the_test(self, method):
        """Those of lc2st with networks of the same widths."""
        theta, x, theta_q = data(100, RIGHT)
        test, at = build(method, (theta, x, theta_q), RIGHT, num_trials_null=19)
        found = trained(test).p_value(x_o=X_O, **at)
        latents = assay.Calibration.from_base(test.theta_q, x, BASE)
        samples = assay.Calibration(theta, x, theta_q) if method is LC2ST else latents
        scores = assay.lc2st(samples, assay.MLP((20, 20)), null=19, seed=1).scores
        d = scores(at.get("theta_o", getattr(test, "theta_o", None))[None], X_O[None])[0]
        observed, *null = ((d.double() - 0.5) ** 2).mean(1)
        assert found == (1 + sum(t >= observed for t in null)) / 20

    @both
    @pytest.mark.parametrize("options", [{"num_folds": 3}, {"num_ensemble": 2}])
    def test_folds_and_ensembles(self, method, options):
        test, at = build(method, data(300), num_trials_null=19, **options)
        assert trained(test).p_value(x_o=X_O, **at) == 0.05
        assert {len(folds) for folds in test.trained_clfs_null.values()} == {test.num_folds}

    def test_folds_of_a_null_are_of_one_copy(self):
        """Otherwise the mean over folds would vary less in nulls than in the data."""
        test, _ = build(LC2ST_NF, num_folds=2)
        whole = test._copies()
        parts = test._folds(whole)
        truths, labels, _ = whole.rows(1)
        assert labels.shape == (200, 2)
        kept = [part.rows(1)[0] for part in parts]
        assert {tuple(row) for part in kept for row in part.tolist()} == {
            tuple(row) for row in truths.tolist()
        }

    @both
    @pytest.mark.parametrize("classifier", ["mlp", "random_forest"])
    def test_the_seed_is_enough_and_nothing_global_is_changed(self, method, classifier):
        found = []
        for _ in range(2):
            before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
            test, at = build(method, classifier=classifier)
            found.append(trained(test).get_statistic_on_observed_data(x_o=X_O, **at))
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
    def test_other_classifiers_are_those_asked_for(self, options, kind):
        test, at = build(LC2ST, **options)
        trained(test)
        assert [type(fit) for fit in test.trained_clfs] == [kind]
        assert [type(fit) for folds in test.trained_clfs_null.values() for fit in folds] == [
            *(kind, kind)
        ]
        assert test.p_value(x_o=X_O, **at) in (1 / 3, 2 / 3, 1)

    def test_other_classifiers_have_nulls_that_keep_the_pairs(self):
        """Both classes have the same x, in the data and in nulls."""
        test, _ = build(LC2ST, classifier="random_forest")
        observations = []
        original = theirs.train_lc2st

        def watched(theta_p, theta_q, x_p, x_q, clf):
            observations.append((x_p, x_q))
            return original(theta_p, theta_q, x_p, x_q, clf)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(theirs, "train_lc2st", watched)
            trained(test)
        assert len(observations) == 3
        assert all(torch.equal(x_p, x_q) for x_p, x_q in observations)

    def test_widths_and_random_state_keep_the_stack(self):
        options = {"hidden_layer_sizes": (48,), "random_state": 7}
        test, _ = build(LC2ST, classifier_kwargs=options)
        assert trained(test).trained_clfs[0].stack.widths == (16, 48, 1)

    def test_probabilities_are_of_the_posterior(self):
        """They are high where it has too much mass."""
        test, _ = build(LC2ST, data(1000))
        test.train_on_observed_data()
        at = torch.stack([draws(1)[0] + 2, draws(1)[0] - 3])
        high, low = test.get_scores(at, X_O, test.trained_clfs).probabilities[0]
        assert high > 0.5 > low

    def test_invalid_rows_are_left_out_with_a_warning(self):
        theta, x, theta_q = data()
        x[3] = torch.nan
        with pytest.warns(UserWarning, match="1 NaNs"):
            test, at = build(LC2ST, (theta, x, theta_q))
        assert len(test.theta_p) == 99
        assert 0 < trained(test).p_value(x_o=X_O, **at) <= 1

    def test_rows_of_several_observations(self):
        test, _ = build(LC2ST)
        network = test.train_on_observed_data().trained_clfs[0]
        rows = np.random.default_rng(0).normal(size=(5, 4))
        one_by_one = [network.predict_proba(row[None])[0] for row in rows]
        np.testing.assert_allclose(network.predict_proba(rows), one_by_one, rtol=1e-5)

    @pytest.mark.parametrize("ours", [LC2ST, LC2ST_NF])
    def test_signatures_are_those_of_sbi(self, ours):
        other = getattr(theirs, ours.__name__)
        for name in ("__init__", "get_scores", "p_value", "reject_test"):
            mine, their = (inspect.signature(getattr(c, name)) for c in (ours, other))
            assert list(mine.parameters) == list(their.parameters)
        assert issubclass(ours, other)

    def test_without_sbi_one_line_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "sbi.diagnostics", None)
        monkeypatch.delitem(sys.modules, "assay.compat.sbi")
        with pytest.raises(ImportError, match=r"pip install 'assay\[sbi\]'$"):
            import assay.compat.sbi  # noqa: F401
