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

SOURCE = ast.parse(Path(assay.__file__).read_text(encoding="utf-8"))


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


@pytest.mark.parametrize("name", assay.__all__)
def test_every_name_resolves(name):
    value = getattr(assay, name)
    assert value is getattr(assay, name)
    if inspect.isfunction(value) or inspect.isclass(value):
        assert value.__name__ == name
        assert value.__module__ == f"assay.{assay._NAMES[name]}"
        assert value.__doc__
    elif name != "__version__":
        assert value is importlib.import_module(f"assay.{name}")


@pytest.mark.parametrize("name", assay.__all__)
def test_a_module_does_not_hide_a_function_of_its_name(name):
    """Whichever is imported first."""
    if importlib.util.find_spec(f"assay.{name}") is None:
        return
    code = f"import assay, inspect; import assay.{name}; print(inspect.ismodule(assay.{name}))"
    assert python("-c", code).strip() == str(not assay._NAMES[name])


def test_type_checkers_know_the_same_names():
    blocks = (node for node in SOURCE.body if isinstance(node, ast.If))
    (block,) = (node for node in blocks if "TYPE_CHECKING" in ast.dump(node.test))
    known = {
        alias.asname: node.module or ""
        for node in block.body
        for alias in node.names
        if alias.name == alias.asname
    }
    assert known == assay._NAMES


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="module 'assay' has no attribute 'moments'"):
        _ = assay.moments


def test_a_name_brings_its_module_and_no_more():
    code = "import assay, sys; dir(assay); {}; assert 'torch' {} sys.modules"
    python("-c", code.format("assay.__version__", "not in"))
    python("-c", code.format("assay.Draws", "in") + "; assert 'assay.check' not in sys.modules")


def test_the_command_line_waits_for_torch():
    python("-c", "import sys; from assay.cli import main; assert 'torch' not in sys.modules")


@pytest.mark.parametrize(
    ("word", "answer"),
    [("--help", "Can you trust your posterior"), ("--version", assay.__version__)],
)
def test_help_and_version_do_without_torch(word, answer):
    """A module that is None cannot be imported."""
    code = (
        "import runpy, sys; sys.modules.update(torch=None, numpy=None); "
        f"sys.argv = ['assay', {word!r}]; runpy.run_module('assay', run_name='__main__')"
    )
    assert answer in python("-c", code)


def test_the_commands_themselves_need_it():
    """The test before can fail."""
    code = (
        "import runpy, sys; sys.modules.update(torch=None); "
        "sys.argv = ['assay', 'check', 'none.npz', '-o', 'none.npz']; "
        "runpy.run_module('assay', run_name='__main__')"
    )
    with pytest.raises(AssertionError, match="torch"):
        python("-c", code)


def test_the_version_is_that_of_the_file():
    (version,) = (
        ast.literal_eval(node.value)
        for node in SOURCE.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    )
    assert assay.__version__ == version
    assert python("-m", "assay", "--version").strip().endswith(version)
