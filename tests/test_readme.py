"""The README's example runs, and prints what it says it prints; its links lead somewhere.

So do the workflows beside it.
"""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
# Two screens.
MOST_LINES = 100


def test_examples_run_and_print_what_is_shown(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, "README.md", "exec"), namespace)
    (shown,) = re.findall(r"```\n(x_o: .*?)\.\.\.\n```", TEXT, re.DOTALL)
    words, numbers = steady(capsys.readouterr().out)
    expected, values = steady(shown)
    assert words[: len(expected)] == expected
    # Digits depend on the processor.
    assert numbers[: len(values)] == pytest.approx(values, rel=0.1, abs=0.05)
    assert (tmp_path / "report.html").exists()


def steady(text):
    """Words and numbers of a text, however it is broken into lines and tables are spaced."""
    number = r"\d+(?:\.\d+)?"
    return re.sub(number, "#", text).split(), [float(v) for v in re.findall(number, text)]


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)", TEXT))))
def test_links_lead_to_files(link):
    assert (ROOT / link).is_file()


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
