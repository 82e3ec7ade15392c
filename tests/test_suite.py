import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay._core import stream
from assay.diagnostics.local.score import ScoreResult
from assay.suite import Check, Suite
from tests.conftest import Gaussian
from tests.test_core import Terminal
from tests.test_results import with_pandas

QUICK = Suite(null=39, classifier=None, context=0, pairs=200)
X_O = torch.tensor([[0.5, -0.5], [8.0, 8.0]])


class Boxed(Gaussian):
    """x = theta + noise with theta uniform in [-1, 1]^2; its inverse knows nothing of the box."""

    def theta_to_base(self, theta, x):
        return (theta - x) / self.scale

    def sample(self, x, n):
        ends = torch.special.ndtr((torch.tensor([[-1.0], [1.0]]) - x).double() / self.scale)
        level = ends[0] + torch.rand(n, 2).double() * (ends[1] - ends[0])
        return (x + self.scale * torch.special.ndtri(level)).to(x)


@pytest.fixture(scope="module")
def narrow():
    return Gaussian(width=0.6)


@pytest.fixture(scope="module")
def full(narrow):
    """Everything that can be run, with draws."""
    suite = Suite(
        null=39, classifier=assay.MLP(epochs=3), classifier_null=19, context=5, pairs=200
    )
    return assay.check(
        narrow.calibration(400, k=8), x_o=narrow.draws(X_O), suite=suite, names=["mu", "nu"]
    )


def test_every_part_is_there(full):
    assert isinstance(full, Check)
    assert isinstance(full.local, ScoreResult)
    assert len(full.context.x) == 5
    assert full.classifier.statistic.shape == (2,)
    assert full.sbc.names == full.coverage.names == ("mu", "nu")
    assert full.labels == ("x_o[0]", "x_o[1]")
    assert full.health.auc.value > 0.5


def test_one_bar_with_named_stages(narrow, monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    suite = Suite(null=39, classifier=assay.MLP(epochs=2), classifier_null=9, context=3, pairs=100)
    theta = narrow.calibration(200)
    assay.check(narrow, theta.theta, theta.x, X_O[0], suite)
    frames = [frame.strip() for frame in shown.getvalue().split("\r") if frame.strip()]
    assert all(frame.startswith("checking") for frame in frames)
    assert "\n" not in shown.getvalue()
    stages = list(dict.fromkeys(frame.split(":")[0] for frame in frames))
    named = ["drawing", "local test", "detectable errors", "classifier", "global tests"]
    assert stages == ["checking", *(f"checking, {name}" for name in named)]
    done = [int(frame.split("%")[0].split()[-1]) for frame in frames]
    assert done == sorted(done)


def test_a_short_check_says_nothing_in_a_pipe(narrow, capsys):
    given = narrow.calibration(200, k=8)
    assay.check(given, x_o=narrow.draws(X_O[0]), suite=QUICK)
    assert capsys.readouterr().err == ""


def test_it_says_what_is_wrong_and_where(full):
    assert full.verdicts[0] == "rejected"
    assert "q's sd of mu is 0." in full.effects[0].sentence
    assert "times the true sd" in full.verdict
    assert "x_o[0]: Near x_o" in full.verdict


def test_a_verdict_is_the_trust_map_s(full):
    assert full.verdicts == full.trust.verdicts
    low = (full.local.adjusted <= 0.05) & ~full.local.outside
    np.testing.assert_array_equal(full.rejected, low)


def test_the_same_seed_gives_the_same_check(full, narrow):
    suite = Suite(
        null=39, classifier=assay.MLP(epochs=3), classifier_null=19, context=5, pairs=200
    )
    again = assay.check(
        narrow.calibration(400, k=8), x_o=narrow.draws(X_O), suite=suite, names=["mu", "nu"]
    )
    assert repr(again) == repr(full)
    np.testing.assert_array_equal(again.classifier.null, full.classifier.null)


def test_saved_and_loaded(full, tmp_path):
    full.save(tmp_path / "check.npz")
    again = assay.load(tmp_path / "check.npz")
    assert isinstance(again, Check)
    assert repr(again) == repr(full)
    assert again.record == full.record


def test_the_suite_that_is_not_decided_by_the_data_is_said(full):
    call = full.settings["call"]
    assert call.startswith("assay.check(calibration, x_o=draws, suite=Suite(null=39")
    assert call.endswith("seed=0)")
    assert full.settings["torch"] == torch.__version__


class TestWhatCanBeGiven:
    def test_a_flow(self, narrow):
        calibration = narrow.calibration(400)
        found = assay.check(narrow, calibration.theta, calibration.x, X_O[0], QUICK)
        assert found.settings["space"] == "latent"
        assert found.names == ("theta[0]", "theta[1]")
        assert len(found.detectable.curves) == 3 * 2 + 1
        assert found.labels == ("x_o",)
        assert found.verdicts == ("rejected",)
        assert found.sbc.settings["n"] == 200

    def test_a_function(self, narrow):
        calibration = narrow.calibration(400)
        found = assay.check(narrow.sample, calibration.theta, calibration.x, X_O[0], QUICK)
        assert found.settings["space"] == "parameters"
        assert found.settings["k"] == 16
        assert found.verdicts == ("rejected",)

    def test_a_flow_whose_draws_are_truncated(self):
        """Exactly right: q is what is sampled, and its inverse is another q's."""
        boxed = Boxed()
        theta = 2 * torch.rand(300, 2, generator=stream(0, "boxed")) - 1
        x = theta + boxed.scale * torch.randn(300, 2, generator=stream(1, "boxed"))
        found = assay.check(boxed, theta, x, torch.tensor([0.9, 0.0]), QUICK)
        assert found.settings["space"] == "parameters"
        assert found.settings["n"] == 300
        assert not found.rejected
        assert "The flow's inverse does not belong to the draws" in found.verdict

    def test_one_observation_with_or_without_an_axis(self, narrow):
        calibration, draws = narrow.calibration(200, k=8), narrow.draws(X_O[:1])
        theta = draws.theta
        shapes = [(X_O[0], theta[0]), (X_O[0], theta), (X_O[:1], theta), (X_O[:1], theta[0])]
        found = [
            repr(assay.check(calibration, x_o=assay.Draws(*shape), suite=QUICK))
            for shape in shapes
        ]
        assert len(set(found)) == 1

    def test_it_leaves_the_global_generator_alone(self, narrow):
        calibration = narrow.calibration(100)
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        assay.check(narrow.sample, calibration.theta, calibration.x, X_O[0], QUICK)
        assert torch.rand(1) == expected

    def test_latents_without_their_flow(self, narrow):
        found = assay.check(narrow.latents(400), x_o=X_O, suite=QUICK)
        assert found.names == ("latent[0]", "latent[1]")
        assert found.sbc.names == found.names
        assert found.verdicts[0] == "rejected"

    @pytest.mark.parametrize("count", [1, 3])
    def test_one_draw_at_each_x(self, narrow, count):
        """The test that sets the verdict needs no more; PITs and tests over all x do."""
        x_o = X_O[:1].expand(count, -1) + 0.01 * torch.arange(count)[:, None]
        found = assay.check(narrow.calibration(400), x_o=narrow.draws(x_o), suite=QUICK)
        assert found.verdicts == ("rejected",) * count
        assert found.sbc is found.pits is None


def test_where_q_is_right():
    right = Gaussian()
    suite = Suite.quick(pairs=200)
    found = assay.check(right.calibration(2000, k=8), x_o=right.draws(X_O[:1]), suite=suite)
    assert found.verdicts == ("passed",)
    assert "No error found. With probability 0.8 the test detects any single" in found.verdict


def test_a_place_that_nothing_is_known_of(full):
    """Far out, whatever the nearest pairs say, nothing is claimed."""
    assert full.local.support.outside.tolist() == [False, True]
    assert full.verdicts[1] == "outside"
    assert "x_o[1]: It lies outside the simulated observations; nothing can be" in full.verdict
    assert full.at(1).endswith("nothing can be said there.")


def test_pvalues_are_those_of_the_test_that_decides(full):
    np.testing.assert_array_equal(full.pvalue, full.local.pvalue)
    assert full.hypothesis == full.local.hypothesis
    assert full.sentence == full.verdict
    assert len(full) == 2


class TestFrame:
    """A row for each observation, its verdict beside its label."""

    def test_without_pandas(self, full, monkeypatch):
        monkeypatch.setitem(sys.modules, "pandas", None)
        rows = full.to_frame()
        assert [row["observation"] for row in rows] == ["x_o[0]", "x_o[1]"]
        assert tuple(row["verdict"] for row in rows) == full.verdicts
        assert list(rows[0])[:4] == ["observation", "verdict", "p-value", "corrected p"]
        assert [row["p-value"] for row in rows] == full.pvalue.tolist()
        assert [row["classifier p"] for row in rows] == full.classifier.pvalue.tolist()

    def test_with_pandas(self, full, monkeypatch):
        pandas = with_pandas(monkeypatch)
        frame = full.to_frame()
        assert isinstance(frame, pandas.DataFrame)
        assert frame.rows[0]["verdict"] == "rejected"


def test_draws_of_another_place_are_remarked(narrow):
    draws = narrow.draws(X_O[:1])
    strange = assay.Draws(draws.x, draws.theta + 100)
    calibration = narrow.calibration(300, k=8)
    assert assay.check(calibration, x_o=draws, suite=QUICK).remarks == ()
    (remark,) = assay.check(calibration, x_o=strange, suite=QUICK).remarks
    assert remark.startswith("The draws theta_o at x_o lie outside those of q at the nearest x")


def test_few_draws_are_remarked(narrow):
    found = assay.check(narrow.calibration(300, k=2), x_o=narrow.draws(X_O[:1]), suite=QUICK)
    assert "There are only 2 draws of q at each x: with 4 or more" in found.verdict


def test_a_quick_suite():
    """The part without a classifier and without context; all else may be told."""
    quick = Suite.quick(null=39, pairs=200)
    assert quick == QUICK
    assert Suite.quick(context=3).context == 3
    with pytest.raises(TypeError, match="nulls"):
        Suite.quick(nulls=39)


def test_a_quick_check_runs_no_classifier(narrow):
    found = assay.check(narrow.calibration(300, k=8), x_o=narrow.draws(X_O[:1]), suite=QUICK)
    assert found.classifier is found.classifier_effects is found.health is found.context is None
    assert found.verdicts == ("rejected",)
    assert "classifier p" not in found.table[0]


@pytest.mark.parametrize("word", ["rejected", "passed", "inconclusive", "outside"])
def test_what_is_printed_fits_into_80_columns(narrow, word, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = [r"$\theta_1$", "the conductance of the sodium channel"]
    labels = ["the patient of the second session, left hemisphere", "far"]
    draws = narrow.draws(X_O)
    found = assay.check(
        narrow.calibration(200, k=8), x_o=draws, suite=QUICK, names=names, labels=labels
    )
    found = replace(found, trust=replace(found.trust, verdicts=(word,) * 2))
    lines = found.text().splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("$" in line for line in lines)
    assert word in lines[0]


class TestSimulator:
    """theta ~ N(0, I), x = theta + N(0, I), as in the calibrations above."""

    PRIOR = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))

    @staticmethod
    def simulate(theta):
        return theta + torch.randn(theta.shape)

    def check(self, q, x_o=X_O[0], suite=QUICK, **how):
        given = {"simulator": self.simulate, "prior": self.PRIOR, "simulations": 200}
        return assay.check(q, x_o=x_o, suite=suite, **{**given, **how})

    def test_it_says_how_pairs_were_made(self, narrow, tmp_path):
        suite = Suite(null=39, classifier=assay.MLP(epochs=2), classifier_null=19, context=5)
        found = self.check(narrow, X_O, suite, resume=tmp_path / "made", simulations=400)
        assert found.verdicts[0] == "rejected"
        assert "80 simulations have parameters from the prior, 280 have" in found.verdict
        assert "times the true sd" in found.verdict
        assert found.hypothesis.endswith("throughout the nearest 40% of x around x_o")
        assert found.local.settings["n"] == found.classifier.settings["n"] == 280
        assert found.sbc.settings["n"] == 80
        assert found.context is None
        # A q that follows x_o anywhere has simulations around it, where the prior has none.
        assert found.local.outside.tolist() == [False, True]
        call = "assay.check(posterior, simulator=simulator, prior=prior, x_o=x_o, simulations=400"
        assert found.settings["call"].startswith(f"{call}, suite=Suite(null=39, ")
        found.save(tmp_path / "check.npz")
        assert repr(assay.load(tmp_path / "check.npz")) == repr(found)
        found.report(tmp_path / "report.html")
        assert "drawn around q at the 2 observations" in (tmp_path / "report.html").read_text()
        with pytest.raises(ValueError, match="made with another seed"):
            self.check(narrow, X_O, resume=tmp_path / "made", simulations=400, seed=1)

    def test_where_q_is_right(self):
        assert self.check(Gaussian(), simulations=600).verdicts == ("passed",)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"theta": torch.zeros(20, 2)}, "simulator: expected it in place of pairs; got both"),
            ({"prior": None}, "prior: expected a torch distribution"),
            ({"simulator": None}, "prior: expected None without a simulator"),
            ({"simulator": None, "prior": None, "resume": "here"}, "resume: expected None"),
            ({"simulations": 3}, "simulations: expected at least 50"),
            ({"x_o": None}, "x_o: expected the observation"),
        ],
    )
    def test_what_does_not_fit(self, narrow, given, message):
        with pytest.raises((ValueError, TypeError), match=message):
            self.check(narrow, **given)

    def test_a_calibration_has_pairs(self, narrow):
        with pytest.raises(ValueError, match="simulator: expected it in place of pairs"):
            self.check(narrow.calibration(100, k=8), narrow.draws(X_O[0]))


class TestBadInput:
    def test_numbers_that_are_none(self, narrow):
        given = narrow.calibration(40)
        x, x_o = given.x.clone(), X_O[0].clone()
        x[17, 1] = x_o[1] = torch.nan
        with pytest.raises(ValueError, match=r"^x: expected finite.* 1 of 40 rows, first at .17."):
            assay.check(narrow.sample, given.theta, x, X_O[0], QUICK)
        with pytest.raises(ValueError, match="^x_o: expected finite numbers"):
            assay.check(narrow.sample, given.theta, given.x, x_o, QUICK)

    def test_draws_that_are_none(self, narrow):
        """A plain function is not called a flow."""
        given = narrow.calibration(40)

        def sample(x, n):
            draws = narrow.sample(x, n)
            return draws * torch.nan if torch.equal(x, given.x[7]) else draws

        with pytest.raises(
            ValueError, match=r"posterior: .* none at x.7. .NaN or infinity"
        ) as told:
            assay.check(sample, given.theta, given.x, X_O[0], QUICK)
        assert "flow" not in str(told.value)
        drawing = assay.Drawing(failures=0.05)
        found = assay.check(sample, given.theta, given.x, X_O[0], QUICK, drawing=drawing)
        assert found.settings["n"] == 39
        assert "No draws of q could be made at 1 of 40 x: x[7]" in found.verdict

    @pytest.mark.parametrize("kind", [torch.float64, torch.int64])
    def test_an_embedding_in_single_precision(self, kind):
        x = (100 * torch.randn(40, 2, generator=stream(0, "x"))).to(kind)
        theta_q = torch.randn(40, 4, 2, generator=stream(0, "q"), dtype=torch.float64)
        embed = torch.nn.Linear(2, 1)
        assert assay.Calibration(theta_q[:, 0], x, theta_q, embed).features.shape == (40, 1)

    def test_no_observation(self, narrow):
        with pytest.raises(ValueError, match="x_o: expected the observation"):
            assay.check(narrow.calibration(100))

    def test_no_draws_there(self, narrow):
        with pytest.raises(ValueError, match="draws: expected Draws"):
            assay.check(narrow.calibration(100), x_o=X_O[0], suite=QUICK)

    def test_pairs_beside_a_calibration(self, narrow):
        with pytest.raises(ValueError, match="theta: expected None with a calibration"):
            assay.check(narrow.calibration(100), torch.zeros(3), x_o=X_O)

    def test_no_pairs(self, narrow):
        with pytest.raises(ValueError, match="theta, x: expected calibration pairs"):
            assay.check(narrow, x_o=X_O)

    def test_pairs_that_do_not_fit(self, narrow):
        with pytest.raises(ValueError, match="x: expected shape .20, ....*got .19, 2."):
            assay.check(narrow, torch.zeros(20, 2), torch.zeros(19, 2), X_O)

    def test_no_posterior(self):
        with pytest.raises(TypeError, match="posterior: expected an object with sample"):
            assay.check(3, torch.zeros(20, 2), torch.zeros(20, 2), X_O)

    def test_a_posterior_that_is_called_otherwise(self, narrow):
        def sample(n, x):
            return torch.randn(n, 2) + x

        pairs = torch.zeros(20, 2), torch.zeros(20, 2)
        with pytest.raises(TypeError, match=r"posterior: expected sample\(x, n\)"):
            assay.check(sample, *pairs, X_O, QUICK)

    def test_names_that_do_not_fit(self, narrow):
        with pytest.raises(ValueError, match="names: expected 2 different names"):
            assay.check(narrow.latents(100), x_o=X_O, suite=QUICK, names=["a"])
        with pytest.raises(ValueError, match="labels: expected 2 different names"):
            assay.check(narrow.latents(100), x_o=X_O, suite=QUICK, labels=["a", "a"])

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"alpha": 0.7}, "alpha: expected a number between 0 and 0.5"),
            ({"null": 9}, "null: expected at least 19"),
            ({"classifier_null": 3}, "classifier_null: expected at least 9"),
            ({"classifier": "MLP"}, "classifier: expected a classifier"),
            ({"relevant": -1.0}, "relevant: expected a finite number above 0"),
            ({"context": -1}, "context: expected at least 0"),
            ({"pairs": 3}, "pairs: expected at least 10"),
        ],
    )
    def test_a_suite_that_cannot_be(self, given, message):
        with pytest.raises((ValueError, TypeError), match=message):
            Suite(**given)


def test_many_observations(monkeypatch):
    """Errors are planted at some of them, and it is said so."""
    for place in ("interpret.power", "suite"):
        monkeypatch.setattr(f"assay.{place}.MOST_PLANTED", 4)
    theta, noise = torch.randn(2, 200, 1, generator=stream(0, "many"))
    z = torch.randn(200, 8, 1, generator=stream(1, "many"))
    x = theta + noise
    calibration = assay.Calibration(theta, x, x[:, None] / 2 + 0.5**0.5 * z)
    x_o = 1.4 * torch.randn(7, 1, generator=stream(2, "many"))
    draws = x_o[:, None] / 2 + 0.5**0.5 * torch.randn(7, 50, 1, generator=stream(3, "many"))
    suite = assay.Suite.quick(null=39, pairs=40)
    found = assay.check(calibration, x_o=assay.Draws(x_o, draws), suite=suite)
    assert len(found.verdicts) == len(found.detectable["shift 0"].mde) == 7
    assert len(found.detectable.settings["planted_at"]) == 4
    assert any("planted at 4 of the 7 observations" in said for said in found.remarks)
