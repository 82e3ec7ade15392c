import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import assay
from assay.check import STAGES, enough_copies, some_rows
from tests.conftest import Gaussian

check = partial(assay.check, draws=8, nulls=39, classifier=None)
MODULE = sys.modules["assay.check"]
X_O = [0.3, 0.3]


@pytest.fixture(scope="module", autouse=True)
def _few_tests_at_other_x():
    """Half the time of a small check goes into these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "TESTED", 2)
        yield


def pairs(n, m=2, seed=0):
    """Parameters and observations (n, m) of the Gaussian model."""
    theta, noise = torch.randn(2, n, m, generator=torch.Generator().manual_seed(seed))
    return theta, theta + noise


@pytest.fixture(scope="module")
def usual():
    """A q that is right."""
    return check(Gaussian().sample, *pairs(250), X_O)


class TestVerdicts:
    @pytest.mark.parametrize(
        ("n", "m", "q", "x_o", "start"),
        [
            (250, 1, Gaussian(width=2.0, m=1), 0.3, "rejected. q is wrong near x_o (p = 0.0"),
            (400, 1, Gaussian(m=1), 0.3, "passed. On average over the nearest 20 %, every mean"),
            (150, 1, Gaussian(m=1), 0.3, "inconclusive. The test does not reject q, but a "),
            (250, 1, Gaussian(m=1), 9.0, "outside. x_o is unlike the simulations (p = 0.00"),
        ],
    )
    def test_a_design_for_each(self, n, m, q, x_o, start):
        found = check(q.sample, *pairs(n, m), [x_o])
        assert found.headline().startswith(f"x_o: {start}")
        assert found.passed.tolist() == [start.startswith("passed")]

    def test_many_pairs_reject_what_is_within_the_tolerance(self):
        q = Gaussian(shift=0.15, m=1)
        found = check(q.calibration(6000, k=4), x_o=q.draws([0.3], 100))
        assert found.headline().startswith("x_o: rejected, but within the tolerance. q is wrong")
        assert found.bounds.bias[0, 0] == pytest.approx(0.15 / 0.5**0.5, abs=0.1)
        strict = replace(found, tolerance=0.1)
        assert strict.headline().startswith("x_o: rejected. q is wrong near x_o")

    def test_several_observations_at_once(self):
        def one_sided(x, n):
            return Gaussian(shift=1.2 * float(x[0] < 0)).sample(x, n)

        places = [[1.5, 0.0], [9.0, 9.0], [-1.5, 0.0]]
        labels = ["right", "far", "left"]
        found = check(one_sided, *pairs(400, seed=1), places, labels=labels)
        assert found.verdicts[1:] == ("outside", "rejected")
        assert found.verdicts[0] != "rejected"
        assert found.urgency == [2, 1, 0]
        assert "too high" in found.wrong("left")[0].sentence
        # Nothing is said of q where x_o is outside.
        assert np.isnan(found.bounds.bias).all(1).tolist() == [False, True, False]
        assert np.isnan(found.bounds.at.width).all(1).tolist() == [False, True, False]
        assert found.bounds.wrong[1] == ()


class TestWaysIn:
    def test_it_is_made_of_its_answers(self):
        """The same numbers as of each answer by itself."""
        q = Gaussian(width=1.5)
        calibration, draws = q.calibration(250, k=8), q.draws(X_O, 100)
        found = check(calibration, x_o=draws, seed=3)
        test = assay.score(calibration, null=39, seed=3)(X_O)
        assert found.pvalue[0] == test.pvalue
        assert found.test.statistic[0] == test.statistic
        limits = assay.bounds(calibration, X_O, seed=3)
        np.testing.assert_array_equal(found.bounds.bias, limits.bias)
        np.testing.assert_array_equal(found.bounds.coverage_upper, limits.coverage_upper)
        like = assay.typical(calibration.x, X_O, seed=3)
        assert found.typical.pvalue == like.pvalue

    def test_a_calibration_of_latents(self):
        found = check(Gaussian(width=2.0).latents(250), x_o=X_O)
        assert found.verdicts == ("rejected",)
        assert found.names == ("latent[0]", "latent[1]")

    def test_a_flow_is_tested_in_latents_and_bounded_in_parameters(self, usual):
        found = check(Gaussian(), *pairs(250), X_O)
        assert (found.settings["space"], usual.settings["space"]) == ("latent", "parameters")
        assert found.names == ("theta[0]", "theta[1]")
        np.testing.assert_array_equal(found.bounds.width, usual.bounds.width)

    def test_one_observation_with_and_without_an_axis(self, usual):
        again = check(Gaussian().sample, *pairs(250), [X_O])
        assert again.labels == usual.labels == ("x_o",)
        assert values(again) == values(usual)

    def test_an_observation_among_others(self, usual):
        found = check(Gaussian().sample, *pairs(250), [X_O, [-1.0, 0.0]])
        assert found.labels == ("x_o[0]", "x_o[1]")
        assert len(found) == 2
        assert found.typical.pvalue[0] == usual.typical.pvalue[0]
        assert found.test.pvalue[0] == usual.test.pvalue[0]
        np.testing.assert_array_equal(found.bounds.bias[0], usual.bounds.bias[0])
        assert found.pvalue.max() <= 2 * found.test.pvalue.max()

    def test_draws_at_x_o_are_taken_as_they_are(self):
        draws = Gaussian().draws(X_O, 50)
        found = check(Gaussian().sample, *pairs(150), draws, classifier=assay.Ridge())
        np.testing.assert_array_equal(found.classified.draws[0], draws.theta)

    def test_latents_without_their_flow_are_classified_on_draws_of_the_base(self):
        theta, x = pairs(150)
        latents = assay.Calibration.from_base(theta - x / 2, x)
        found = check(latents, x_o=[X_O, X_O], classifier=assay.Ridge())
        assert found.classified.draws.shape[0] == 2
        assert found.names == ("latent[0]", "latent[1]")


class Normal:
    """The prior N(0, I)."""

    def sample(self, n, generator):
        return torch.randn(n, 2, generator=generator)

    def log_prob(self, theta):
        return -0.5 * (theta**2).sum(-1)


class Simulator:
    """The Gaussian model, which counts its calls and can be stopped."""

    def __init__(self, stop=None):
        self.calls, self.stop = 0, stop

    def __call__(self, theta):
        self.calls += 1
        if self.calls == self.stop:
            raise KeyboardInterrupt
        return theta + torch.randn(theta.shape)


simulate = partial(check, Gaussian(width=0.5).sample, prior=Normal(), simulations=300)


@pytest.fixture(scope="module")
def simulated():
    return simulate(simulator=Simulator(), x_o=X_O)


class TestSimulator:
    def test_most_simulations_are_made_around_x_o(self, simulated):
        found = simulated
        assert found.verdicts == ("rejected",)
        assert found.wrong()[0].kind == "width"
        assert "have parameters from the prior" in found.remarks[0]
        assert "x_o is typical of what the simulator makes" in " ".join(found.text().split())
        # Tests at other x would be those of other simulations.
        assert np.isnan(found.surroundings.pvalue).all()

    def test_observations_far_from_each_other(self):
        found = simulate(simulator=Simulator(), x_o=[X_O, [9.0, 9.0]], simulations=600)
        assert found.verdicts[1] == "outside"
        assert found.record["observations"][1]["rows"] == []

    def test_an_interrupted_check_goes_on(self, simulated, tmp_path):
        stopped, second, third = Simulator(stop=9), Simulator(), Simulator()
        with pytest.raises(KeyboardInterrupt):
            simulate(simulator=stopped, x_o=X_O, resume=tmp_path)
        assert list(tmp_path.iterdir())
        for simulator in (second, third):
            again = simulate(simulator=simulator, x_o=X_O, resume=tmp_path)
            assert values(again) == values(simulated)
        assert third.calls == 0 < second.calls
        with pytest.raises(ValueError, match="resume: expected a folder of the same call"):
            simulate(simulator=Simulator(), x_o=X_O, resume=tmp_path, seed=1)


def values(found):
    """Every number of a check, by the part that it belongs to, as text."""
    around, classified = found.surroundings, found.classified
    over_all_x = (found.sbc, found.coverage, found.tarp)
    parts = {
        "names": [found.names],
        "labels": [found.labels],
        "level": [found.alpha, found.tolerance],
        "typical": [found.typical.pvalue],
        "statistic": [found.test.statistic],
        "copies": [found.test.null],
        "bounds": [found.bounds.bias, found.bounds.width_upper, found.bounds.at.width],
        "over all x": [result.statistic for result in over_all_x if result is not None],
        "near": [found.test.near, around.near],
        "surroundings": [around.x],
        "classified": [] if classified is None else [classified.probabilities],
    }
    return {name: str([np.asarray(one).tolist() for one in part]) for name, part in parts.items()}


OPTIONS = {
    "words": (
        {"names": ["a", "b"], "labels": ["monday"], "alpha": 0.1, "tolerance": 0.3},
        {"names", "labels", "level"},
    ),
    "near": ({"near": 0.5}, {"near", "statistic", "copies", "bounds"}),
    "nulls": ({"nulls": 59}, {"statistic", "copies"}),
    "draws": ({"draws": 12}, {"statistic", "copies", "bounds", "over all x"}),
    "classifier": ({"classifier": assay.MLP(hidden=(8,), epochs=2)}, {"classified"}),
    # TARP's references depend on features of x.
    "embed": (
        {"embed": lambda x: x[:, :1]},
        {"typical", "near", "statistic", "copies", "bounds", "over all x"},
    ),
    "seed": ({"seed": 1}, {"typical", "statistic", "copies", "bounds", "over all x"}),
}


class TestOptions:
    @pytest.mark.parametrize("name", OPTIONS)
    def test_it_changes_what_it_should(self, usual, name):
        options, changed = OPTIONS[name]
        found = check(Gaussian().sample, *pairs(250), X_O, **options)
        before, after = values(usual), values(found)
        assert {part for part in before if before[part] != after[part]} == changed

    def test_the_same_seed_gives_the_same_check(self, usual):
        state = torch.get_rng_state()
        found = check(Gaussian().sample, *pairs(250), X_O)
        assert torch.equal(torch.get_rng_state(), state)
        assert values(found) == values(usual)
        assert repr(found) == repr(usual)

    def test_settings_are_kept(self, usual):
        expected = {"alpha": 0.05, "tolerance": 0.5, "nulls": 39, "draws": 8, "seed": 0, "n": 250}
        assert expected.items() <= dict(usual.settings).items()
        assert usual.settings["seconds"] > 0
        assert usual.settings["assay"] == assay.__version__

    def test_few_draws_tell_less(self):
        found = check(Gaussian().calibration(150, k=1), x_o=Gaussian().draws(X_O, 50))
        assert found.sbc is found.coverage is found.tarp is None
        assert found.over_all_x == {}
        assert found.verdicts == ("inconclusive",)

    def test_around_the_answers(self, usual):
        around = usual.surroundings
        assert around.near.shape == (1, len(around.x)) == (1, 250)
        assert np.isfinite(around.pvalue).sum() == MODULE.TESTED
        assert 0.1 < around.near.mean() < 0.3
        # Those that are tested are not the first ones, which may lie together.
        assert np.isfinite(around.pvalue).argmax() > 5
        rows = some_rows(1000, 10, torch.Generator().manual_seed(0))
        assert len(rows) == 10
        assert (rows.diff() > 0).all()


@pytest.mark.parametrize(
    ("o", "alpha", "copies"), [(1, 0.05, 39), (50, 0.05, 39), (20, 0.01, 1999), (60, 0.01, 39)]
)
def test_copies_are_enough_for_any_observation_to_be_rejected(o, alpha, copies):
    """After Holm's correction; 999 are made where p is small, and max-T needs no more."""
    assert enough_copies(o, alpha, 39) == copies
    assert (o if o <= 50 else 1) / (1 + max(copies, 999)) <= alpha


def test_many_observations_at_a_small_level():
    x_o = torch.linspace(-1, 1, 20)[:, None]
    found = check(Gaussian(width=3.0, m=1).sample, *pairs(250, 1), x_o, alpha=0.01, nulls=99)
    assert "rejected" in found.verdicts


THETA, X = pairs(60)
CALIBRATION = Gaussian().calibration(60, k=4)
GIVEN = {"posterior": Gaussian().sample, "theta": THETA, "x": X, "x_o": X_O}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"x_o": None}, ValueError, "x_o: expected the observation to be checked; got None"),
        ({"theta": None}, ValueError, "theta, x: expected calibration pairs that the posterior"),
        ({"x": None}, ValueError, "theta, x: expected calibration pairs"),
        ({"posterior": CALIBRATION}, ValueError, "theta: expected None with a calibration"),
        (
            {"simulator": Simulator(), "prior": Normal()},
            ValueError,
            "simulator: expected it in place of pairs",
        ),
        ({"prior": Normal()}, ValueError, "prior: expected None without a simulator"),
        ({"resume": "folder"}, ValueError, r"resume: expected None.*drawing=Drawing\(resume="),
        ({"alpha": 0.7}, ValueError, "alpha: expected a number between 0 and 0.5; got 0.7"),
        ({"alpha": "a"}, (TypeError, ValueError), "alpha: expected"),
        ({"tolerance": -1}, ValueError, "tolerance: expected"),
        ({"nulls": 9}, ValueError, "nulls: expected at least 19 for level 0.05; got 9"),
        ({"alpha": 0.001}, ValueError, "nulls: expected at least 999 for level 0.001; got 39"),
        ({"classifier": "MLP"}, TypeError, r"classifier: expected a classifier such as MLP\(\)"),
        ({"near": 2.0}, ValueError, "near: expected"),
        ({"draws": 0}, ValueError, "draws: expected"),
        ({"drawing": 3}, TypeError, r"drawing: expected a Drawing\(\), or None"),
        ({"names": ["a"]}, ValueError, "names: expected 2"),
        ({"names": ["a", "a"]}, ValueError, "names: expected"),
        ({"labels": ["a", "b"]}, ValueError, "labels: expected 1"),
        ({"x_o": [0.3]}, ValueError, "x_o: expected shape"),
        ({"x_o": [0.3, np.nan]}, ValueError, "x_o: expected"),
        ({"theta": THETA[:-1]}, ValueError, "x: expected shape"),
        ({"posterior": 3}, TypeError, "posterior: expected"),
        (
            {"posterior": lambda x, n: torch.full((n, 2), np.nan)},
            ValueError,
            "posterior: expected",
        ),
        ({"posterior": lambda x, n: 1 / 0}, TypeError, "posterior: .*ZeroDivisionError"),
        ({"posterior": lambda x, n: torch.randn(n, 3)}, ValueError, "theta_q: expected shape"),
    ],
)
def test_bad_input(change, error, words):
    with pytest.raises(error, match=f"(?s){words}"):
        check(**GIVEN | change)


class TestProgress:
    def test_stages_come_in_order(self, monkeypatch):
        entered = []

        class Noted(MODULE.Stages):
            def enter(self, stage):
                entered.append((stage, self.done))
                super().enter(stage)

        monkeypatch.setattr(MODULE, "Stages", Noted)
        check(**GIVEN)
        assert [stage for stage, _ in entered] == list(STAGES)
        done = [so_far for _, so_far in entered]
        assert done == sorted(done)
        assert done[0] == 0 < done[-1] < sum(STAGES.values())

    def test_nothing_is_printed_on_the_way(self, capfd):
        check(**GIVEN)
        assert capfd.readouterr() == ("", "")


class TestTakenAlong:
    def test_saved_and_loaded(self, usual, tmp_path):
        usual.save(tmp_path / "check.npz")
        loaded = assay.load(tmp_path / "check.npz")
        assert repr(loaded) == repr(usual)
        assert values(loaded) == values(usual)

    def test_a_report(self, usual, tmp_path):
        usual.report(tmp_path / "report.html", title="My check")
        text = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "<title>My check</title>" in text

    def test_a_figure(self, usual):
        plt = pytest.importorskip("matplotlib.pyplot")
        figure = usual.plot("x_o")
        assert figure.get_suptitle() == f"x_o: {usual.verdicts[0]}"
        plt.close(figure)
