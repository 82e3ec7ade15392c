"""Tables of the reproduction are those of the results, and words around them stay."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments import authors, fig3, fig6, reproduction, summary
from experiments.reproduction import BLOCKS, PAGES, main, rewritten

ROOT = Path(__file__).parents[2]
TRAIN = {"TPR_mean": {"mse": [1, 0.9, 0.6, 0.1]}, "TPR": {"mse": [1, 1, 0.4, 0]}}
CAL = {"TPR_mean": {"mse": [0.9] * 6}, "FPR_mean": {"mse": [0.05] * 6}}
TASK = {
    "vs_n_train": {"lc2st": {**TRAIN, "t_stat_mean": {"mse": [0.4, 0.3, 0.2, 0.1]}}},
    "vs_n_cal": {"lc2st": CAL},
}
NUMBERS = {"exp2": {"slcp": TASK}}


def row(method, pvalues, **given):
    start = {"task": "slcp", "train": 1000, "cal": 10_000, "right": False, "run": 0}
    return {**start, "method": method, "pvalue": pvalues, "statistic": [0.25, 0.35], **given}


FOUND = [
    row("C2ST", [0.01, 0.01]),
    row("published L-C2ST", [0.01, 0.5]),
    row("score-NF", [0.01, 0.01, 0.01, 0.5]),
    *(row("published L-C2ST", [0.5, 0.5], cal=500, run=run) for run in range(30)),
    row("score-NF", [0.5, 0.04], cal=500, right=True),
]


@pytest.fixture
def numbers(monkeypatch):
    for module in (authors, reproduction, summary, fig3, fig6):
        monkeypatch.setattr(module, "published_numbers", lambda: NUMBERS)


def page(name):
    return f"Before.\n\n<!-- {name} -->\nold\n<!-- end -->\nAfter.\n"


def made(name, found, folder):
    (folder / f"{BLOCKS[name][0]}.json").write_text(json.dumps({"results": found}))
    text = rewritten(page(name), folder)
    assert text.startswith("Before.\n\n<!-- ")
    assert text.endswith("<!-- end -->\nAfter.\n")
    assert rewritten(text, folder) == text
    return text


def test_rates_beside_the_printed_ones(numbers, tmp_path):
    text = made("figure 2 train", FOUND, tmp_path)
    assert "| published L-C2ST |  | 0.50 (1) / 0.90 |  |  |" in text
    assert "| score-NF |  | 0.75 (1) |  |  |" in text
    assert "old" not in text
    # Thirty runs without a rejection are not 0.9.
    assert "0.00 (30) / 0.90 †" in made("figure 2 power", FOUND, tmp_path)


def test_power_over_the_oracle(numbers, tmp_path):
    text = made("relative", FOUND, tmp_path)
    assert "| score-NF | 1 | 0.750 | 0.75 |" in text
    assert "| C2ST | 1 | 1.000 | 1.00 |" in text


def test_levels(numbers, tmp_path):
    assert "| score-NF | 1 | 0.500 |" in made("levels", FOUND, tmp_path)


def test_how_many_agree(numbers, tmp_path):
    text = made("agreement", FOUND, tmp_path)
    # One run is not judged, thirty without a rejection are not 0.9.
    assert "| published L-C2ST | 2 | 1 | 0 | 0.250 | 0.900 |" in text
    assert "| all | 2 | 1 | 0 | 0.250 | 0.900 |" in text


def test_the_authors_own_run(numbers, tmp_path):
    text = made("samples whole", FOUND, tmp_path)
    assert "| slcp | 1000 | published L-C2ST | 0.3000 | 0.3000 | 0.5 | 1.0 |" in text


def test_mass_outside_the_prior_by_gain(tmp_path):
    found = [{"gain": -5, "pvalue": 0.001, "outside": 0.07}]
    assert "| -5 | 0.001 | 7 % |\n" in made("figure 4", found, tmp_path)


def test_correlations_with_signs(monkeypatch, tmp_path):
    theirs = {"pearson_r": 0.4, "table3": "1e-3", "n_obs": 92}
    monkeypatch.setattr(fig6, "printed", lambda row, method: theirs)
    names = fig6.LOCALS
    each = [
        {"method": name, "oracle": oracle, "pearson_r": -0.25, "pearson_p": 0.04, "n": 100}
        for name in names
        for oracle in ("published C2ST", "Bayes")
    ]
    rows = [
        {"task": "slcp", "train": 100, "places": kind, "correlation": each}
        for kind in ("benchmark", "joint")
    ]
    text = made("table 3", rows, tmp_path)
    pair = "-0.25 (0.04) † | +0.40 | 1e-3"
    assert text.count("| slcp | 100 |") == 1
    assert f"| slcp | 100 | {pair} | {pair} | -0.25 (0.04) | -0.25 (0.04) |\n" in text


def test_seconds_beside_the_printed_ones(monkeypatch, tmp_path):
    keys = ("c2st", "lc2st", "lc2st_nf", "lhpd")
    theirs = {f"n_cal_{n}": {key: [1, 2, 3, 4] for key in keys} for n in (5000, 10_000)}
    numbers = {"table1_printed_runtime_slcp": theirs}
    monkeypatch.setattr(reproduction, "published_numbers", lambda: numbers)
    times = {"samples": 3.0, "without": 0.5, "with": 150.2}
    found = [
        {"method": "Ridge", "train": 1000, "cal": n, "nulls": 100, **times} for n in (5000, 10_000)
    ]
    text = made("table 1", found, tmp_path)
    assert "| Ridge | 3 | 0.5 | 150 | 3 | 0.5 | 150 |" in text
    assert "| printed local HPD (their machine) |  | 2 |  |  | 2 |  |" in text


def test_the_best_tests_of_a_task(tmp_path):
    one = {"method": "published L-C2ST", "power": 0.5, "level": 0.04, "alike": []}
    other = {"method": "Ridge", "power": 0.9, "level": None, "alike": ["score"]}
    task = {"task": "two_moons", "m": 2, "d": 2, "posterior": "crescents", "printed": "local HPD"}
    groups = {"cells": 3, "published": one, "ours": other, "ours, local null": None}
    text = made("table 2", [{"tasks": [{**task, **groups}]}], tmp_path)
    start = "| two moons | 2, 2 | crescents | 3 | local HPD | "
    assert f"{start}L-C2ST: 0.50, level 0.04 | Ridge, score: 0.90 |  |" in text


def test_both_nulls(tmp_path):
    cell = {"question": "permutation", "null": "all rows"}
    found = [
        row("", [0.01, 0.5], cal=500, **cell),
        row("", [0.01, 0.01], cal=500, **{**cell, "null": "within pairs"}),
        row("", [0.5, 0.5], cal=500, right=True, **cell),
        row("", [0.5, 0.5], cal=500, right=True, **{**cell, "null": "within pairs"}),
    ]
    text = made("permutation", found, tmp_path)
    assert "| slcp, power | all rows | 0.50 (1) |" in text
    assert "| slcp, power | within pairs | 1.00 (1) |" in text
    assert "| slcp, level | within pairs | 0.00 (1) |" in text


def test_mass_outside(tmp_path):
    found = {"share": [0.1, 0.3], "mse": [0.02, 0.06], "truncated": [0.01, 0.03]}
    rows = [{"question": "outside", "task": "slcp", "train": 100, **found}]
    text = made("outside", rows, tmp_path)
    assert "| slcp | 100 | 20.0 % | 0.0400 | 0.0200 | 50 % |" in text


def test_agreement_is_counted_where_it_could_fail(numbers):
    """Of informative cells alone; one run is not judged."""
    again = [row("published L-C2ST", [0.01, 0.5], draw=1)]
    text = summary._agreement(FOUND, FOUND, again)
    assert "| their samples, L-C2ST | 2 | 1 | 0 | 0 % | 0.90 |" in text
    assert "| zuko's flow, older, all | 2 | 1 | 0 | 0 % | 0.90 |" in text
    assert "| sbi's flows, L-C2ST | 1 | 0 | 0 | - | - | - |" in text
    assert "agree: 0 of 1 on their samples, 0 of 1 on zuko's flow, older." in text


def test_cells_that_differ(numbers):
    """Beside the rates on their samples and of sbi's flows."""
    theirs = [row("published L-C2ST", [0.01, 0.01], cal=500)]
    again = [row("published L-C2ST", [0.01, 0.01], cal=500, draw=i, run=i) for i in range(5)]
    text = summary._exceptions(theirs, FOUND, again, [])
    said = "| 0.90 | 1.00 (1) | 0.00 (30) † | 1.00 (5, 1.00 to 1.00 over 5 flows) |"
    assert f"| L-C2ST, slcp | 1000, 500 {said}" in text


def test_random_states_and_the_same_runs_by_scikit_learn(numbers):
    """The last column has the runs that both have: here one of two."""
    cell = {"question": "state", "cal": 500}
    found = [row("published L-C2ST", [p, 0.5], state=s, **cell) for s, p in ((1, 0.01), (2, 0.5))]
    found.append(row("published L-C2ST", [0.5, 0.5], question="scikit-learn", cal=500, run=1))
    theirs = [
        row("published L-C2ST", [p, 0.01], cal=500, run=i) for i, p in enumerate((0.01, 0.5))
    ]
    text = summary._states(theirs, found)
    assert (
        "| L-C2ST, slcp, 500 pairs | 0.75 (2) / 0.90 | 0.50 (1) | 0.00 (1) | 0.00, 0.50 (1) |"
        in text
    )


def test_pairs_that_are_needed(monkeypatch):
    """Between two sizes by logarithms, and over those of the printed test in latents."""
    printed = {"published L-C2ST": 0.1, "published L-C2ST-NF": 0.8}
    monkeypatch.setattr(
        summary, "printed_rate", lambda c: printed[c["method"]] if c["cal"] >= 1000 else 0.0
    )
    found = [
        row("score-NF", [0.01] * hits + [0.5] * (5 - hits), cal=n)
        for n, hits in ((100, 2), (400, 5))
    ]
    text = summary._pairs(found)
    assert "| printed L-C2ST | no | not reached |" in text
    assert "| printed L-C2ST-NF | no | 1000 |" in text
    assert "| our score-NF | yes | 252 (4.0 times fewer) |" in text


def test_one_more_flow_agrees_and_another_recipe_does_not():
    """800 printed rates each: beyond the interval in at most 7.5 %; and in at least 60 %."""
    rng = np.random.default_rng(0)

    def drawn(mean, flows, runs):
        """Rates of runs at ten observations, on flows whose power varies by 0.1."""
        power = np.clip(rng.normal(mean, 0.1, (flows, 1)), 0, 1)
        return rng.binomial(10, np.broadcast_to(power, (flows, runs))) / 10

    for mean, low, high in ((0.5, 0.925, 1.0), (0.1, 0.0, 0.4)):
        printed = [drawn(mean, 1, 50).mean() for _ in range(800)]
        same = [
            authors.difference_over_flows("published L-C2ST", list(drawn(0.5, 8, 2)), p).agrees
            for p in printed
        ]
        assert low <= np.mean(same) <= high


def test_power_is_that_of_all_pairs(numbers):
    text = summary._figure2([row("published L-C2ST", [0.01, 0.5]), row("L-C2ST", [0.01])])
    assert "| L-C2ST | 1 | 0.90 | 0.50 | 1.00 |" in text


@pytest.mark.parametrize(
    ("whole", "some", "word"),
    [(True, True, "holds"), (False, True, "holds in part"), (False, False, "does not hold")],
)
def test_verdicts(whole, some, word):
    assert summary._verdict(whole, some) == word


@pytest.mark.skipif(not authors.FOLDER.is_dir(), reason="needs the authors' numbers")
@pytest.mark.parametrize("name", PAGES)
def test_the_pages_are_those_of_the_records(name):
    """Byte for byte; and what a figure needs is read within a few rows."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert rewritten(text, ROOT / "results" / "paper") == text
    assert text.count("<!-- end -->") == len(reproduction.MARK.findall(text))


def test_the_page_is_short():
    """Words beside tables."""
    lines = (ROOT / "docs" / PAGES[0]).read_text(encoding="utf-8").splitlines()
    assert sum(len(line.split()) for line in lines if not line.startswith("|")) <= 2500


def test_an_unknown_table(tmp_path):
    with pytest.raises(ValueError, match="page: expected a table of claims"):
        rewritten(page("figure 9"), tmp_path)


def test_without_the_printed_numbers(monkeypatch, capsys):
    monkeypatch.setattr(reproduction, "published_numbers", dict)
    with pytest.raises(SystemExit):
        main([])
    assert "expected the authors' numbers" in capsys.readouterr().err
