"""The README's example runs, and prints what it says it prints; its links lead somewhere.

So do the workflows beside it.
"""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
# Two screens, and ten lines of code.
MOST_LINES, MOST_CODE = 100, 10


def test_the_example_runs_and_prints_what_stands_below_it(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    namespace = {}
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert sum(map(bool, block.splitlines())) <= MOST_CODE
    exec(compile(block, "README.md", "exec"), namespace)
    (printed,) = re.findall(r"```\n(x_o: .*?)\n```", TEXT, re.DOTALL)
    words, numbers = steady(capsys.readouterr().out)
    expected, values = steady(printed)
    assert words == expected
    # Digits depend on the processor.
    assert numbers == pytest.approx(values, rel=0.1, abs=0.05)
    assert (tmp_path / "report.html").exists()


def steady(text):
    """Words and numbers of a text, however it is broken into lines and tables are spaced."""
    number = r"\d+(?:\.\d+)?"
    return re.sub(number, "#", text).split(), [float(v) for v in re.findall(number, text)]


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)", TEXT))))
def test_links_lead_to_files(link):
    assert (ROOT / link).is_file()


def test_commands_are_those_of_the_command_line():
    from assay.cli import app

    known = {command.name for command in app.registered_commands}
    assert set(re.findall(r"`assay (\w+)", TEXT)) == known


def test_it_fits_two_screens():
    assert len(TEXT.splitlines()) <= MOST_LINES


@pytest.mark.parametrize("name", ["tests", "docs", "release"])
def test_workflows_run_what_there_is_and_need_no_secrets(name):
    text = (ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert all(job["runs-on"] and job["steps"] for job in jobs.values())
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"make ([\w-]+)", text)) <= set(targets)
    assert "secrets" not in text
