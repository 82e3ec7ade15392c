"""The README's examples run, in order, and print what it says they print."""

import re
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_examples_run_and_print_what_is_shown(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, "README.md", "exec"), namespace)
    shown = re.findall(r"```\n(x_o  .*?)```", TEXT, re.DOTALL)
    assert len(shown) == 2
    assert steady(capsys.readouterr().out) == steady("\n".join(text.strip() for text in shown))


def steady(text):
    """Without statistics, their nulls and approximations, which depend on the processor."""
    rows = re.sub(r"^(0 +)\S+ +\S+( +\S+ +\S+).*", r"\1\2", text.strip(), flags=re.MULTILINE)
    # However sentences are broken into lines, and tables are spaced.
    words = " ".join(rows.split())
    return re.sub(r"(parameter \d: ).*?(?=;|\.( |$))", r"\1", words)
