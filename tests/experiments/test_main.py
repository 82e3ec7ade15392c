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
