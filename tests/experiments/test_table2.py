import json

import pytest

from experiments.runs import Context, conduct
from experiments.table2 import TABLE2, best, rejections, shared


def row(method, pvalues, **given):
    start = {"task": "slcp", "train": 100, "cal": 50, "right": False, "run": 0}
    return {**start, "method": method, "pvalue": pvalues, "statistic": [0.0], **given}


FOUND = [
    row("published C2ST", [0.01, 0.01]),
    row("published L-C2ST", [0.01, 0.5, 0.5, 0.5]),
    row("published L-C2ST", [0.01, 0.01, 0.01, 0.5], train=1000),
    row("published L-C2ST-NF", [0.5, 0.5]),
    row("L-C2ST-NF", [0.01, 0.01]),
    row("L-C2ST-NF", [0.5, 0.01], right=True),
    row("score-NF", [0.01, 0.01, 0.5, 0.5]),
    row("score-NF", [0.5, 0.5], right=True),
]


def write(folder, found, budget="ci"):
    folder.mkdir(exist_ok=True)
    (folder / "fig2.json").write_text(json.dumps({"budget": budget, "results": found}))


def test_power_is_a_mean_over_cells_not_over_rows():
    extra = [row("published L-C2ST", [0.5], run=i) for i in range(1, 4)]
    found = [r for r in FOUND + extra if not r["right"]]
    # (0.25 + 0 + 0 + 0) / 4 at one N_train and 0.75 at the other.
    assert rejections(found)["published L-C2ST"] == pytest.approx((0.0625 + 0.75) / 2)


def test_the_best_comes_with_its_level():
    found = best(FOUND, ["L-C2ST-NF", "score-NF", "absent"])
    assert found == {"method": "L-C2ST-NF", "power": 1.0, "level": 0.5, "alike": []}
    assert best(FOUND, ["published C2ST"])["level"] is None
    assert best(FOUND, ["absent"]) is None


def test_ties_are_named():
    found = [*FOUND, row("Ridge", [0.01, 0.01])]
    assert best(found, ["L-C2ST-NF", "Ridge", "score-NF"])["alike"] == ["Ridge"]


def test_the_table_of_the_results(tmp_path):
    write(tmp_path, FOUND)
    (found,) = conduct(TABLE2, "ci", Context(tmp_path))
    (line,) = found["tasks"]
    assert (line["m"], line["d"], line["posterior"]) == (5, 8, "four symmetrical modes")
    assert line["published"]["method"] == "published L-C2ST"
    # At N_train 1000, where it is better, no other was run.
    assert (line["published"]["power"], line["cells"]) == (0.25, 1)
    assert line["ours"]["method"] == "L-C2ST-NF"
    assert line["ours, local null"]["method"] == "score-NF"
    assert line["oracle"]["method"] == "published C2ST"
    assert "0.250 (-)  published L-C2ST" in TABLE2.table([found])


def test_new_results_are_read_again(tmp_path):
    write(tmp_path, FOUND)
    conduct(TABLE2, "ci", Context(tmp_path))
    write(tmp_path, [*FOUND, row("Ridge", [0.01]), row("L-C2ST-NF", [0.5], run=1)])
    (found,) = conduct(TABLE2, "ci", Context(tmp_path))
    assert found["tasks"][0]["ours"]["method"] == "Ridge"


def test_cells_without_all_methods_are_left_out():
    every = [row(m, [0.5], train=n) for m in ("Ridge", "score") for n in (10, 20)]
    assert shared(every) == {(10, 50), (20, 50)}
    assert shared(every[:-1]) == {(10, 50)}
    # Levels do not count.
    assert shared([*every, row("L-C2ST", [0.5], right=True)]) == {(10, 50), (20, 50)}
    assert shared([]) == set()


def test_without_the_results(tmp_path):
    with pytest.raises(ValueError, match="python -m experiments fig2 --budget smoke"):
        conduct(TABLE2, "smoke", Context(tmp_path))
