"""The README's examples run, in order, and print what it says they print."""

import re
from pathlib import Path

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_examples_run_and_print_what_is_shown(capsys):
    namespace = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, "README.md", "exec"), namespace)
    shown = re.search(r"print\(result\)\n```\n\n```\n(.*?)```", TEXT, re.DOTALL).group(1)
    assert steady(capsys.readouterr().out) == steady(shown)


def steady(text):
    """Without the statistic and its null, whose last digits depend on the processor."""
    return re.sub(r"^(  0) +\S+ +\S+", r"\1", text.strip(), flags=re.MULTILINE)
