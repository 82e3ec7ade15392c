"""The package: what it shows is what it has, and nothing is imported before it is asked for."""

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


def test_what_is_shown_is_what_is_public():
    assert dir(assay) == sorted(assay.__all__)
    assert len(set(assay.__all__)) == len(assay.__all__)
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
def test_no_function_has_the_name_of_a_module(name):
    """It would be a module or a function, by what was imported before."""
    found = importlib.util.find_spec(f"assay.{name}")
    assert (found is not None) == inspect.ismodule(getattr(assay, name))


def test_types_are_told_of_the_same_names():
    """What a type checker sees, and what is imported."""
    (block,) = (node for node in SOURCE.body if isinstance(node, ast.If))
    told = {
        alias.asname: node.module or ""
        for node in block.body
        for alias in node.names
        if alias.name == alias.asname
    }
    assert told == assay._NAMES


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="module 'assay' has no attribute 'verdict'"):
        _ = assay.verdict


def test_nothing_is_imported_before_it_is_asked_for():
    python("-c", "import assay, sys; assert 'torch' not in sys.modules")
    loaded = "import assay, sys; print(*(m for m in sys.modules if m.startswith('assay')))"
    assert python("-c", loaded).split() == ["assay"]


def test_what_is_asked_for_is_imported():
    """The test before can fail: a name brings its module, and torch."""
    asked = "import assay, sys; assay.Draws; assert 'torch' in sys.modules"
    python("-c", f"{asked}; assert 'assay.suite' not in sys.modules")


def test_dir_imports_nothing():
    python("-c", "import assay, sys; dir(assay); assert 'torch' not in sys.modules")


def test_the_command_line_waits_for_torch():
    python("-c", "import sys; from assay.cli import main; assert 'torch' not in sys.modules")


@pytest.mark.parametrize(
    ("word", "said"),
    [("--help", "Can you trust your posterior"), ("--version", assay.__version__)],
)
def test_help_and_version_do_without_torch(word, said):
    """A module that is None cannot be imported."""
    code = (
        "import runpy, sys; sys.modules.update(torch=None, numpy=None); "
        f"sys.argv = ['assay', {word!r}]; runpy.run_module('assay', run_name='__main__')"
    )
    assert said in python("-c", code)


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
        if isinstance(node, ast.Assign) and node.targets[0].id == "__version__"
    )
    assert assay.__version__ == version
    assert python("-m", "assay", "--version").strip().endswith(version)
