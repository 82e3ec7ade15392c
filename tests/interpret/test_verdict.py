import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay.interpret.notebook import drawing
from assay.interpret.trust import judged
from assay.interpret.verdict import _size
from assay.results import chosen
from assay.suite import Suite
from tests.conftest import Gaussian

# Fields of power curves with a row for each observation.
PARTS = ("rates", "mde", "mde_error", "scale", "shape")
QUICK = Suite(null=39, classifier=None, context=0, pairs=200)


@pytest.fixture(scope="module")
def found():
    """Wrong on one side; right, far out, and wrong by what six observations drown."""
    posterior = Gaussian()
    calibration = posterior.calibration(1500, k=8)
    shift = torch.where(calibration.x[:, :1] < 0, 1.2, 0.0)
    wrong = replace(calibration, theta_q=calibration.theta_q + shift[:, None])
    x_o = torch.tensor([[-1.5, 0.0], [1.5, 0.0], [9.0, 9.0]])
    labels = ["left", "right", "far"]
    return assay.check(
        wrong, x_o=posterior.draws(x_o), suite=QUICK, names=["mu", "nu"], labels=labels
    )


def test_words(found):
    assert found.verdicts == ("rejected", "passed", "outside")
    assert found.verdict.startswith("Of 3 observations: 1 rejected, 1 passed, 1 outside (local s")
    assert "left: Near x_o (nearest 20 %), q's mean of mu is" in found.verdict
    assert "too high" in found.verdict
    assert "At right: No error found. With probability 0.8 the test detects any" in found.verdict
    assert "far: It lies outside the simulated observations; nothing can" in found.verdict
    assert "SBC" in found.verdict


def test_at_one_observation(found):
    low = "p = 0.025, corrected for 3 observations, the smallest possible with 39 null copies"
    assert found.at(0).startswith(f"left: rejected ({low}). Near x_o (nearest 20 %), q's mean of ")
    assert found.at(1).startswith("right: passed. No error found. With probability 0.8")
    assert found.at(2) == (
        "far: outside. It lies outside the simulated observations; nothing can be said there."
    )


def judged_again(found, **changes):
    """The same with other verdicts."""
    trust = judged(found.local, found.detectable.weakest, changes.pop("relevant", 0.5), 0.05)
    return replace(found, trust=trust, **changes)


def test_where_too_little_is_detectable(found):
    blunt = judged_again(found, relevant=0.05)
    assert blunt.verdicts == ("rejected", "inconclusive", "outside")
    assert "right: No error found, but the test could not have detected a shift" in blunt.verdict


def test_few_simulations_near(found):
    support = replace(found.local.support, pairs=np.array([50, 3, 0]))
    few = judged_again(replace(found, local=replace(found.local, support=support)))
    assert few.verdicts[1] == "inconclusive"
    assert "right: No error found, but only 3 simulations are near" in few.verdict


def test_what_is_rejected_without_an_effect(found):
    local = replace(found.local, statistic=np.full(3, 1e6))
    wrong = judged_again(replace(found, local=local))
    assert wrong.verdicts == ("rejected", "rejected", "outside")
    assert "right: Neither bias, width, correlation nor coverage is off" in wrong.verdict


def test_the_summary_is_a_table(found):
    head, *rows = found.summary().splitlines()[:4]
    names = "observation verdict corr. p AUC shift wide narrow near"
    assert head.split() == names.split()
    assert [row.split()[0] for row in rows] == ["left", "right", "far"]
    assert all(len(row) == len(head) for row in rows)
    # Nothing is said of what lies outside.
    assert rows[2].split()[1:7] == ["outside", *["–"] * 5]
    assert "corr. p: p, corrected for 3 observations." in found.summary()


@pytest.mark.parametrize("width", [50, 80, 120])
def test_it_is_printed_verdict_first_and_fits(found, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    labels = (f"left {'of all ' * 9}", "right", "far")
    for made in (found, replace(found, labels=labels)):
        lines = repr(made).splitlines()
        assert lines[0].startswith("Of 3 observations: 1 rejected, 1 passed, 1 outside")
        assert max(map(len, lines)) <= width
        assert any(line.startswith("observation ") for line in lines)
        assert "\x1b" not in repr(made)
        said = " ".join(repr(made).split())
        assert all(" ".join(each.split()) in said for each in made.statements)


def test_one_observation_is_not_corrected(found):
    one = single(found)
    assert "corr. p" not in one.summary()
    assert "1 observations" not in repr(one)
    assert one.summary().split()[2] == "p"


def test_the_printed_table_is_cut_and_the_whole_one_is_not(found):
    many = repeated(found, 30)
    assert "... and 10 more" in repr(many)
    assert "more" not in many.summary().split("\n\n")[0]
    assert many.text() != repr(many)


def test_a_notebook_page(found):
    page = found._repr_html_()
    tree = ElementTree.fromstring(page.replace("<details open>", "<details>"))
    assert [each.text for each in tree.iter("summary")][1] == "Columns, and tests over all x"
    badges = [each.text for each in tree.iter("span")]
    assert badges == ["1 rejected", "1 passed", "1 outside", "rejected", "passed", "outside"]
    # None of what lies outside.
    assert len(list(tree.iter("svg"))) == 2
    assert "<caption>H0: " in page
    assert "http" not in page


def test_a_notebook_page_draws_the_first_few(found):
    assert repeated(found, 30)._repr_html_().count("<svg") == 6


def test_names_in_a_notebook_are_escaped(found):
    bad = "<script>alert('&')</script>"
    hostile = replace(found, labels=(bad, "right", "far"), names=(bad, "nu"))
    for page in (hostile._repr_html_(), hostile.effects._repr_html_()):
        assert "<script" not in page
        ElementTree.fromstring(page.replace("<details open>", "<details>"))


@pytest.mark.parametrize("statistic", [-1e9, 0.0, 0.5, 1e9])
@pytest.mark.parametrize("null", [np.linspace(0, 1, 50), np.zeros(9)], ids=["spread", "constant"])
def test_a_null_is_drawn_inside_its_frame(null, statistic):
    tree = ElementTree.fromstring(drawing(null, statistic, "rejected"))
    (dot,) = tree.iter("circle")
    assert 0 <= float(dot.get("cx")) <= float(tree.get("width"))
    for bar in tree.iter("rect"):
        assert float(bar.get("x")) >= 0
        assert float(bar.get("x")) + float(bar.get("width")) <= float(tree.get("width")) + 0.5


def test_the_record_is_json(found):
    text = json.dumps(found.record, allow_nan=False)
    record = json.loads(text)
    row = record["observations"][0]
    assert row["label"] == "left"
    assert row["pvalue"] == pytest.approx(float(found.local.pvalue[0]))
    assert row["corrected_p"] == pytest.approx(float(found.local.adjusted[0]))
    assert row["effects"]["mu bias"]["estimate"] == pytest.approx(
        float(found.effects.bias.value[0, 0])
    )
    assert record["over_all_x"]["SBC"]["pvalue"] == found.global_pvalues["SBC"]
    assert record["settings"]["seed"] == 0


def test_global_pvalues_are_adjusted_for_all_quantities(found):
    """Two of SBC, two of coverage and one of TARP: five together."""
    results = found.sbc, found.coverage, found.tarp
    assert min(found.global_pvalues.values()) == pytest.approx(
        min(1, 5 * min(float(result.pvalue.min()) for result in results))
    )
    alone = replace(found, coverage=None, tarp=None)
    assert alone.global_pvalues == {"SBC": pytest.approx(min(1, 2 * found.sbc.pvalue.min()))}
    assert replace(alone, sbc=None).global_pvalues == {}


@pytest.mark.slow
def test_a_right_q_is_seldom_rejected_over_all_x(found):
    """300 repetitions: any of the three in at most 5 % of them, within a 99.9 % interval."""
    wrong = 0
    for seed in range(300):
        given = Gaussian().calibration(200, k=16, seed=seed)
        tests = {"sbc": assay.sbc, "coverage": assay.coverage, "tarp": assay.tarp}
        made = replace(found, **{name: test(given, seed=seed) for name, test in tests.items()})
        wrong += "reject" in made._elsewhere[-1]
    assert wrong <= scipy.stats.binom(300, 0.05).ppf(0.999)


def single(found):
    """The first observation alone."""
    return repeated(found, 1)


def repeated(found, count):
    """The first observation, so many times."""
    curves = tuple(
        replace(c, **{k: np.repeat(getattr(c, k)[:1], count, 0) for k in PARTS})
        for c in found.detectable.curves
    )
    return replace(
        found,
        labels=tuple(f"x{i}" for i in range(count)),
        local=chosen(found.local, [0] * count, found.local.shared),
        detectable=replace(found.detectable, curves=curves),
        effects=chosen(found.effects, [0] * count),
        trust=replace(found.trust, verdicts=("rejected",) * count),
    )


def test_many_observations_are_counted(found):
    many = repeated(found, 8)
    assert many.verdicts == ("rejected",) * 8
    assert many._counted.startswith("Of 8 observations: 8 rejected")


def test_sizes_of_a_table():
    assert [_size("shift", v) for v in (0.1234, 1.0, np.inf)] == ["0.12", "1.0", "none"]
    assert [_size("wide", v) for v in (0.1234, 0.05, 4.1, np.inf)] == [
        "12 %",
        "5 %",
        "410 %",
        "none",
    ]
    assert [_size("narrow", v) for v in (0.17, 1.0)] == ["17 %", "none"]
