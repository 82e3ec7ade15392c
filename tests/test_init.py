"""The package: its public names, and nothing is imported before it is asked for."""

import ast
import importlib
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import assay


def python(*arguments):
    """Runs another interpreter, so that nothing is imported yet."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_public_names():
    assert dir(assay) == sorted(assay.__all__)
    assert len(set(assay.__all__)) == len(assay.__all__) <= 31
    assert not [name for name in assay.__all__ if name.startswith("_") and name != "__version__"]
    with pytest.raises(AttributeError, match="module 'assay' has no attribute 'moments'"):
        _ = assay.moments
    assert python("-m", "assay", "--version").strip().endswith(assay.__version__)


@pytest.mark.parametrize("name", assay._NAMES)
def test_every_name_resolves(name):
    """A module does not hide a function of its name, whichever is imported first."""
    value, module = getattr(assay, name), assay._NAMES[name]
    assert value is getattr(assay, name)
    if inspect.isfunction(value) or inspect.isclass(value):
        assert (value.__name__, value.__module__) == (name, f"assay.{module}")
        assert value.__doc__
    else:
        assert value is importlib.import_module(f"assay.{name}")
    if module and importlib.util.find_spec(f"assay.{name}"):
        code = f"import assay, inspect; import assay.{name}; print(inspect.ismodule(assay.{name}))"
        assert python("-c", code).strip() == "False"


def test_type_checkers_know_the_same_names():
    body = ast.parse(Path(assay.__file__).read_text(encoding="utf-8")).body
    (block,) = (node for node in body if isinstance(node, ast.If))
    known = {a.name: node.module for node in block.body for a in node.names if a.name == a.asname}
    assert known == {name: module or None for name, module in assay._NAMES.items()}


def test_a_name_brings_its_module_and_no_more():
    code = "import assay, sys; dir(assay); {}; assert 'torch' {} sys.modules"
    python("-c", code.format("assay.__version__", "not in"))
    python("-c", code.format("assay.Draws", "in") + "; assert 'assay.check' not in sys.modules")
    python("-c", "import sys; from assay.cli import main; assert 'torch' not in sys.modules")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--help"], "Can you trust your posterior"),
        (["--version"], assay.__version__),
        (["check", "none.npz", "-o", "none.npz"], None),
    ],
)
def test_help_and_version_do_without_torch(words, answer):
    """A module that is None cannot be imported; the commands themselves need it."""
    code = (
        "import runpy, sys; sys.modules.update(torch=None, numpy=None); "
        f"sys.argv = {['assay', *words]}; runpy.run_module('assay', run_name='__main__')"
    )
    if answer:
        assert answer in python("-c", code)
    else:
        with pytest.raises(AssertionError, match="torch|numpy"):
            python("-c", code)
