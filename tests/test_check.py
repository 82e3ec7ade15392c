"""The check: its verdicts, its ways in, each of its options, and what goes on around it."""

import sys
from functools import partial

import numpy as np
import pytest
import torch

import assay
from assay.check import STAGES, enough_copies
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


def values(found):
    """Every number of a check, by the part that it belongs to, as text."""
    around, classified, limits = found.surroundings, found.classified, found.bounds
    over_all_x = (found.sbc, found.coverage, found.tarp)
    parts = {
        "words": [found.names, found.labels, found.alpha, found.tolerance],
        "typical": [found.typical.pvalue],
        "test": [found.test.statistic, found.test.null],
        "bounds": [limits.bias, limits.width_upper, limits.at.width],
        "over all x": [result.statistic for result in over_all_x if result is not None],
        "near": [found.test.near, around.near],
        "surroundings": [around.x],
        "classified": [] if classified is None else [classified.probabilities],
    }
    return {name: str([np.asarray(one).tolist() for one in part]) for name, part in parts.items()}


@pytest.mark.parametrize(
    ("n", "q", "x_o", "start"),
    [
        (250, {"width": 2.0}, 0.3, "rejected. q is wrong near x_o (p = 0.0"),
        (400, {}, 0.3, "passed. On average over the nearest 20 %, every mean"),
        (150, {}, 0.3, "inconclusive. The test does not reject q, but a "),
        (250, {}, 9.0, "outside. x_o is unlike the simulations (p = 0.00"),
    ],
)
def test_a_design_for_each_verdict(n, q, x_o, start):
    found = check(Gaussian(m=1, **q).sample, *pairs(n, 1), [x_o])
    assert found.headline().startswith(f"x_o: {start}")
    assert found.passed.tolist() == [start.startswith("passed")]


def test_many_pairs_reject_what_is_within_the_tolerance():
    q = Gaussian(shift=0.15, m=1)
    found = check(q.calibration(6000, k=4), x_o=q.draws([0.3], 100))
    assert found.headline().startswith("x_o: rejected, but within the tolerance. q is wrong")


def test_several_observations_at_once():
    def one_sided(x, n):
        return Gaussian(shift=1.2 * float(x[0] < 0)).sample(x, n)

    places, labels = [[1.5, 0.0], [9.0, 9.0], [-1.5, 0.0]], ["right", "far", "left"]
    found = check(one_sided, *pairs(400, seed=1), places, labels=labels)
    assert found.verdicts[1:] == ("outside", "rejected")
    assert found.verdicts[0] != "rejected"
    assert found.urgency == [2, 1, 0]
    assert "too high" in found.wrong("left")[0].sentence
    # Nothing is said of q where x_o is outside.
    for numbers in (found.bounds.bias, found.bounds.at.width):
        assert np.isnan(numbers).all(1).tolist() == [False, True, False]
    assert found.bounds.wrong[1] == ()


def test_it_is_made_of_its_answers():
    """The same numbers as of each answer by itself."""
    q = Gaussian(width=1.5)
    calibration, draws = q.calibration(250, k=8), q.draws(X_O, 100)
    found = check(calibration, x_o=draws, seed=3)
    test = assay.score(calibration, null=39, seed=3)(X_O)
    assert (found.pvalue[0], found.test.statistic[0]) == (test.pvalue, test.statistic)
    limits = assay.bounds(calibration, X_O, seed=3).table
    for kind, numbers in found.bounds.table.items():
        np.testing.assert_array_equal(numbers, limits[kind])
    assert found.typical.pvalue == assay.typical(calibration.x, X_O, seed=3).pvalue


def test_latents(usual):
    """A flow is tested in latents and bounded in parameters; without it, all is in latents."""
    found = check(Gaussian(), *pairs(250), X_O)
    assert (found.settings["space"], usual.settings["space"]) == ("latent", "parameters")
    assert found.names == ("theta[0]", "theta[1]")
    np.testing.assert_array_equal(found.bounds.width, usual.bounds.width)
    latents = Gaussian(width=2.0).latents(250)
    found = check(latents, x_o=[X_O, X_O], classifier=assay.Ridge())
    assert found.verdicts == ("rejected", "rejected")
    assert found.names == ("latent[0]", "latent[1]")
    assert found.classified.draws.shape[0] == 2


def test_one_observation_and_many(usual):
    again = check(Gaussian().sample, *pairs(250), [X_O])
    assert again.labels == usual.labels == ("x_o",)
    assert values(again) == values(usual)
    found = check(Gaussian().sample, *pairs(250), [X_O, [-1.0, 0.0]])
    assert (len(found), found.labels) == (2, ("x_o[0]", "x_o[1]"))
    for part in ("typical", "test"):
        assert getattr(found, part).pvalue[0] == getattr(usual, part).pvalue[0]
    np.testing.assert_array_equal(found.bounds.bias[0], usual.bounds.bias[0])
    assert found.pvalue.max() <= 2 * found.test.pvalue.max()


PRIOR = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))


class Simulator:
    """The Gaussian model, which counts its calls and can be stopped."""

    def __init__(self, stop=None):
        self.calls, self.stop = 0, stop

    def __call__(self, theta):
        self.calls += 1
        if self.calls == self.stop:
            raise KeyboardInterrupt
        return theta + torch.randn(theta.shape)


simulate = partial(check, Gaussian(width=0.5).sample, prior=PRIOR, simulations=300)


class TestSimulator:
    def test_an_interrupted_check_goes_on(self, tmp_path):
        stopped, second, third = Simulator(stop=9), Simulator(), Simulator()
        found = simulate(simulator=Simulator(), x_o=X_O)
        with pytest.raises(KeyboardInterrupt):
            simulate(simulator=stopped, x_o=X_O, resume=tmp_path)
        for simulator in (second, third):
            again = simulate(simulator=simulator, x_o=X_O, resume=tmp_path)
            assert values(again) == values(found)
        assert third.calls == 0 < second.calls
        with pytest.raises(ValueError, match="resume: expected a folder of the same call"):
            simulate(simulator=Simulator(), x_o=X_O, resume=tmp_path, seed=1)
        # Most simulations are made around x_o. Tests at other x would be those of other ones.
        assert (found.verdicts, found.wrong()[0].kind) == (("rejected",), "width")
        assert "have parameters from the prior" in found.remarks[0]
        assert "x_o is typical of what the simulator makes" in " ".join(found.text().split())
        assert np.isnan(found.surroundings.pvalue).all()

    def test_observations_far_from_each_other(self):
        found = simulate(simulator=Simulator(), x_o=[X_O, [4.0, 4.0]], simulations=600)
        assert found.verdicts[1] == "outside"
        assert found.record["observations"][1]["rows"] == []


WORDS = {"names": ["a", "b"], "labels": ["monday"], "alpha": 0.1, "tolerance": 0.3}
DATA = {"test", "bounds", "over all x"}
OPTIONS = {
    "words": (WORDS, {"words"}),
    "near": ({"near": 0.5}, {"near", "test", "bounds"}),
    "nulls": ({"nulls": 59}, {"test"}),
    "draws": ({"draws": 12}, DATA),
    "classifier": ({"classifier": assay.MLP(hidden=(8,), epochs=2)}, {"classified"}),
    # TARP's references depend on features of x.
    "embed": ({"embed": lambda x: x[:, :1]}, {"typical", "near", *DATA}),
    "seed": ({"seed": 1}, {"typical", *DATA}),
    "nothing": ({}, set()),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_changes_what_it_should(usual, name):
    (options, changed), state = OPTIONS[name], torch.get_rng_state()
    found = check(Gaussian().sample, *pairs(250), X_O, **options)
    before, after = values(usual), values(found)
    assert {part for part in before if before[part] != after[part]} == changed
    assert torch.equal(torch.get_rng_state(), state)


def test_around_the_answers(usual):
    expected = {"alpha": 0.05, "tolerance": 0.5, "nulls": 39, "draws": 8, "seed": 0, "n": 250}
    assert expected.items() <= dict(usual.settings).items()
    assert usual.settings["seconds"] > 0
    assert usual.settings["assay"] == assay.__version__
    around = usual.surroundings
    assert around.near.shape == (1, len(around.x)) == (1, 250)
    assert np.isfinite(around.pvalue).sum() == MODULE.TESTED
    assert 0.1 < around.near.mean() < 0.3
    # Those that are tested are not the first ones, which may lie together.
    assert np.isfinite(around.pvalue).argmax() > 5


def test_one_draw_at_each_x():
    draws = Gaussian().draws(X_O, 50)
    one = Gaussian().calibration(150, k=1)
    found = check(one, x_o=draws, classifier=assay.Ridge())
    assert found.sbc is found.coverage is found.tarp is None
    assert (found.over_all_x, found.verdicts) == ({}, ("inconclusive",))
    # Draws at x_o are taken as they are.
    np.testing.assert_array_equal(found.classified.draws[0], draws.theta)


@pytest.mark.parametrize(
    ("o", "alpha", "copies"), [(1, 0.05, 39), (50, 0.05, 39), (20, 0.01, 1999), (60, 0.01, 39)]
)
def test_copies_are_enough_for_any_observation_to_be_rejected(o, alpha, copies):
    """After Holm's correction; 999 are made where p is small, and max-T needs no more."""
    assert enough_copies(o, alpha, 39) == copies
    assert (o if o <= 50 else 1) / (1 + max(copies, 999)) <= alpha


THETA, X = pairs(60)
GIVEN = {"posterior": Gaussian().sample, "theta": THETA, "x": X, "x_o": X_O}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_o": None}, "x_o: expected the observation to be checked; got None"),
        ({"simulator": Simulator(), "prior": PRIOR}, "simulator: expected it in place of pairs"),
        ({"prior": PRIOR}, "prior: expected None without a simulator"),
        ({"resume": "folder"}, r"resume: expected None.*drawing=Drawing\(resume="),
        ({"alpha": 0.7}, "alpha: expected a number between 0 and 0.5; got 0.7"),
        ({"alpha": "a"}, "alpha: expected"),
        ({"tolerance": -1}, "tolerance: expected"),
        ({"nulls": 9}, "nulls: expected at least 19 for level 0.05; got 9"),
        ({"alpha": 0.001}, "nulls: expected at least 999 for level 0.001; got 39"),
        ({"classifier": "MLP"}, r"classifier: expected a classifier such as MLP\(\)"),
        ({"near": 2.0}, "near: expected"),
        ({"names": ["a", "a"]}, "names: expected"),
        ({"posterior": lambda x, n: 1 / 0}, "posterior: .*ZeroDivisionError"),
    ],
)
def test_bad_input(change, words):
    with pytest.raises((TypeError, ValueError), match=f"(?s){words}"):
        check(**GIVEN | change)


def test_stages_come_in_order_and_print_nothing(monkeypatch, capfd):
    entered = {}

    class Noted(MODULE.Stages):
        def enter(self, stage):
            entered[stage] = self.done
            super().enter(stage)

    monkeypatch.setattr(MODULE, "Stages", Noted)
    check(**GIVEN)
    assert list(entered) == list(STAGES)
    assert 0 == entered["drawing from q"] < entered["looking at other x"] < sum(STAGES.values())
    assert capfd.readouterr() == ("", "")


def test_it_is_saved_reported_and_drawn(usual, tmp_path):
    usual.save(tmp_path / "check.npz")
    loaded = assay.load(tmp_path / "check.npz")
    assert (repr(loaded), values(loaded)) == (repr(usual), values(usual))
    usual.report(tmp_path / "report.html", title="My check")
    assert "<title>My check</title>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    plt = pytest.importorskip("matplotlib.pyplot")
    figure = usual.plot("x_o")
    assert figure.get_suptitle() == f"x_o: {usual.verdicts[0]}"
    plt.close(figure)
