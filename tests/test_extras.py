"""Extras: what is missing is told in one line that says what to install."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Packages that are blocked, the extra that brings them, and what needs them.
USES = {
    "matplotlib": ("plots", "assay.plots.pp"),
    "jinja2": ("report", "environment()"),
    "sbi": ("sbi", "import_module('assay.compat.sbi')"),
    "zuko": ("zuko", "import_module('assay.adapters.zuko')"),
    "arviz": ("arviz", "assay.adapters.arviz.inference_data(assay.Draws([0], [[0]]))"),
    "h5py": ("files", "read_arrays(Path(folder, 'a.h5'), len)"),
    "safetensors": ("files", "read_arrays(Path(folder, 'a.safetensors'), len)"),
    "pyarrow": ("files", "read_arrays(Path(folder, 'a.parquet'), len)"),
    "zarr": ("files", "read_arrays(Path(folder, 'z'), len)"),
}
CODE = """
import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path

blocked, folder, uses = set(sys.argv[2].split()), sys.argv[1], sys.argv[3:]

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition('.')[0] in blocked:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)

sys.meta_path.insert(0, Missing())
import assay.adapters
from assay.cli.formats import read_arrays
from assay.report.environment import environment
for use in uses:
    try:
        eval(use)
        print('nothing')
    except ImportError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What is said of each package where none of them is installed."""
    folder = tmp_path_factory.mktemp("files")
    for name in ("a.h5", "a.safetensors", "a.parquet"):
        (folder / name).touch()
    (folder / "z").mkdir()
    (folder / "z" / "zarr.json").write_text("{}")
    uses = [use for _, use in USES.values()]
    words = [sys.executable, "-c", CODE, str(folder), " ".join(USES), *uses]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(USES, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("package", USES)
def test_one_line_says_what_to_install(said, package):
    extra, _ = USES[package]
    assert package in said[package]
    assert f"pip install 'assay[{extra}]'" in said[package]


@pytest.mark.parametrize("package", USES)
def test_the_extra_brings_it(package):
    extra, _ = USES[package]
    assert package in {re.match(r"[\w-]+", need)[0] for need in EXTRAS[extra]}


def test_an_import_error_of_our_own_is_no_missing_extra():
    from assay._support.inputs import extra

    with pytest.raises(ImportError, match="no_such_name"), extra("plots"):
        from assay.results import no_such_name  # noqa: F401


def test_an_older_version_is_no_missing_extra():
    from assay._support.inputs import extra

    words = r"needs torch 99.0 or later, and there is 2\.\d.*: pip install 'torch>=99.0'"
    with pytest.raises(ImportError, match=words), extra("sbi", least="99.0"):
        from torch.nn import no_such_name  # noqa: F401


def test_all_is_everything_for_users():
    developers = {"adapters", "all", "demo", "docs", "experiments", "peers", "test"}
    (everything,) = EXTRAS["all"]
    assert set(re.search(r"\[(.*)\]", everything)[1].split(",")) == set(EXTRAS) - developers


def test_types_are_shipped():
    assert (ROOT / "src" / "assay" / "py.typed").exists()
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_versions_agree():
    import assay

    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {assay.__version__}\n" in citation
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {assay.__version__.removesuffix('.dev0')} " in changes
