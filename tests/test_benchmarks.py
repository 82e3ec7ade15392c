"""Benchmarks run, and pages are written from their records."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import bars, page, smoke, speed_check
from benchmarks.speed import Size
from experiments import EXPERIMENTS

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
SHOWN = [
    (name, block)
    for name in page.PAGES
    for block in page.tables_of((page.DOCS / name).read_text(encoding="utf-8"))
]


# Prints a line for each benchmark that says what it does when it is asked for help.
HELP = """
import contextlib, importlib, io, sys
for name in sys.argv[1].split(","):
    module = importlib.import_module(f"benchmarks.{name}")
    if hasattr(module, "main"):
        sys.argv[1:] = ["--help"]
        with contextlib.redirect_stdout(io.StringIO()) as words, contextlib.suppress(SystemExit):
            module.main()
        print(name, words.getvalue().split()[0])
"""


def test_every_benchmark_can_be_imported_and_has_help():
    command = [sys.executable, "-c", HELP, ",".join(SCRIPTS)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split() for line in done.stdout.splitlines())
    assert set(lines.values()) == {"usage:"}
    without = {"data", "designs", "leak", "paper_samples", "record", "strange"}
    assert set(SCRIPTS) - set(lines) == without


def test_make_runs_benchmarks_that_are_there():
    called = re.findall(r"-m benchmarks\.(\w+)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert "bars" in called
    assert set(called) <= set(SCRIPTS)


def test_a_reproduction_that_is_killed_goes_on(tmp_path):
    """Here once: the record is of the small budget of all experiments."""
    out = tmp_path / "smoke.json"
    words = ["--name", "fig1", "--budget", "ci", "--kill", "1", "--workers", "1"]
    smoke.main([*words, "--out", str(out)])
    record = page.read(out)
    (found,) = record["results"]
    assert {"commit", "versions", "machine", "seed"} <= set(record)
    assert found["jobs"] == len(EXPERIMENTS[0].jobs("ci"))
    assert 0 <= found["kept"] <= found["jobs"]
    assert found["rest"] >= 1


def test_a_check_in_a_process_of_its_own():
    """Of today's sources, which stand in for those of the first edition."""
    size = Size(n=120, observations=2, m=1, k=4)
    found = speed_check.compared(size, {"now": ROOT / "src"}, 1)["now"]
    assert min(found["seconds"]) > 0
    assert min(found["gb"]) > 0.1
    sizes = {"pairs": 120, "parameters": 1, "draws": 4, "threads_used": 1}
    record = {"commit": "abc", "first": "def", "machine": {"processors": 2}, **sizes}
    each = {"2": {"now": found, "first": found}, "3": {"now": found}}
    made = page.check({**record, "check": each})
    two, three = made.splitlines()[-2:]
    assert two.startswith("| 2 | ")
    assert three.count("|") == two.count("|")


def test_sources_of_a_commit(tmp_path):
    assert (speed_check.sources("HEAD", tmp_path) / "assay" / "__init__.py").is_file()


# The cheapest design of each study that needs nothing but this repository.
CHEAPEST = {
    "bounds": "normal, m = 1",
    "tolerated": "m = 2, mean 0.5 sd",
    "wrong": "discrete",
    "level": "n = 20",
    "family": "2 observations, right",
    "typical-level": "coins",
    "typical-family": "one-hot codes, 10 among 1000",
    "typical-power": "gap",
    "held": "shift of all, constant, draws, m = 1, d = 2, n = 500",
    "leak": "gaussian, 2000 pairs, 0.6 sd",
}


@pytest.mark.parametrize("name", CHEAPEST)
def test_a_study_becomes_a_table(name):
    """One repetition of one design, as it is kept, summarised and shown."""
    study = bars.studies()[name]
    design = CHEAPEST[name]
    assert design in study.designs
    rows = json.loads(json.dumps([{"design": design, "seed": 0, **study.run(design, 0)}]))
    record = {"commit": "abc", "repetitions": 1, "designs": {design: study.summary(design, rows)}}
    made = page.BLOCKS[name](record)
    head, _, *lines = [line for line in made.splitlines() if line.startswith("|")]
    assert all(line.startswith(f"| {design} | ") for line in lines)
    assert {line.count("|") for line in lines} == {head.count("|")}


@pytest.mark.parametrize("name", page.PAGES)
def test_tables_are_those_of_the_records(name):
    text = (page.DOCS / name).read_text(encoding="utf-8")
    assert page.rewritten(text) == text


@pytest.mark.parametrize(("name", "block"), SHOWN)
def test_a_record_that_is_shown_says_where_it_comes_from(name, block):
    assert page.page_of(block) == page.DOCS / name
    record = page.read(page.path_of(block))
    assert {"versions", "machine", "seed"} <= set(record)
    assert "commit" in record or "commits" in record


def test_a_table_that_is_not_known():
    with pytest.raises(ValueError, match="page: expected a table of bounds"):
        page.rewritten("<!-- trust -->\n<!-- end -->")


def test_ages_of_records():
    found = page.ages()
    assert len(found) > 10
    assert {words for *_, words in found} <= {"of this code", "older than the code"}


def test_the_factor_in_the_readme_is_that_of_the_record():
    ratio = page.read(page.path_of("peer"))["peer"]["ratio"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"[{ratio:.0f} times less time](docs/performance.md)" in readme
