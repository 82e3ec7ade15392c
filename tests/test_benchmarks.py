"""Benchmarks can be imported, and pages are written from their records."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import page, smoke
from experiments import EXPERIMENTS

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))


# These import each other by their package, others are run by their path.
IN_PACKAGE = (
    *("alternatives", "effects", "page", "power_mlp", "record", "simulator", "speed"),
    *("peers", "reach", "smoke", "speed_compat", "verdict"),
)


def test_every_benchmark_can_be_imported():
    scripts = [name for name in SCRIPTS if name not in IN_PACKAGE]
    lines = [
        f"import sys; sys.path[:0] = [{str(ROOT / 'benchmarks')!r}, {str(ROOT)!r}]",
        *(f"import {name}" for name in scripts),
        *(f"import benchmarks.{name}" for name in IN_PACKAGE),
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


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


@pytest.mark.parametrize("name", page.PAGES)
def test_tables_are_those_of_the_records(name):
    text = (page.DOCS / name).read_text(encoding="utf-8")
    assert page.MARK.search(text)
    assert page.rewritten(text) == text


@pytest.mark.parametrize("name", page.BLOCKS)
def test_a_record_that_is_shown_says_where_it_comes_from(name):
    path = page.path_of(name)
    assert f"<!-- {name} -->" in page.page_of(name).read_text(encoding="utf-8")
    record = page.read(path)
    assert {"versions", "machine", "seed"} <= set(record)
    assert "commit" in record or "commits" in record


def test_ages_of_records_are_told():
    found = page.ages()
    assert len(found) > 10
    assert {words for *_, words in found} <= {"of this code", "older than the code"}


def test_the_factor_in_the_readme_is_that_of_the_record():
    ratio = page.read(page.path_of("peer"))["peer"]["ratio"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"[{ratio:.0f} times less time](docs/performance.md)" in readme
