"""Every experiment runs, at the smallest budget."""

import json

import pytest

from experiments import EXPERIMENTS
from experiments.__main__ import main

# The others are run by their own tests: they share what they simulate, or read what others found.
HERE = [e for e in EXPERIMENTS if e.name in ("fig1", "fig2", "beyond")]


@pytest.mark.parametrize("experiment", HERE, ids=[e.name for e in HERE])
def test_the_smallest_budget(experiment, tmp_path, capsys):
    main([experiment.name, "--budget", "ci", "--out", str(tmp_path)])
    text = (tmp_path / f"{experiment.name}.json").read_text()
    found = json.loads(text)
    assert found["budget"] == "ci"
    assert len(found["results"]) == len(experiment.jobs("ci"))
    if experiment.draw is not None:
        assert (tmp_path / f"{experiment.name}.png").stat().st_size > 1000
    assert capsys.readouterr().out.strip()
    # A second run has nothing left to do, and changes nothing.
    main([experiment.name, "--budget", "ci", "--out", str(tmp_path)])
    assert (tmp_path / f"{experiment.name}.json").read_text() == text


def test_an_unknown_name(capsys):
    with pytest.raises(SystemExit):
        main(["fig99"])
    assert "name: expected one of" in capsys.readouterr().err


def test_a_part_that_is_no_part(capsys):
    with pytest.raises(SystemExit):
        main(["fig1", "--budget", "ci", "--only", "bayes"])
    assert "--only: expected KEY=VALUE" in capsys.readouterr().err


def test_a_part_without_a_table(tmp_path, capsys):
    """Figure 1 needs all its jobs: of some there are records alone."""
    main(["fig1", "--budget", "ci", "--out", str(tmp_path), "--only", "kind=bayes"])
    assert not capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"fig1.jsonl"}
