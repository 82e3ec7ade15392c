"""Imports go one way, along the flow of data: from arrays to nulls, tests, answers and words.

What is imported inside functions goes the same way, and what is imported for types alone, too.
"""

import ast
import subprocess
import sys
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "assay"
# The package itself, whose names are all of the others; `__version__` alone may be imported of it.
PACKAGE = "assay"
# A module belongs to the longest of these names that begins its own, and may import modules of the
# same name, as long as there is no cycle, and of those above.
LAYERS = (
    "_support",
    "printing",
    "results",
    "neighbourhood",
    "data",
    "nulls",
    "classifiers",
    "average",
    "local",
    "c2st",
    "answers",
    "verdict",
    "plots",
    "report",
    "io",
    "check",
    "adapters",
    "compat",
    "cli",
    "__main__",
    PACKAGE,
)
# What a check without a classifier loads: its four questions, their data, nulls and results, tests
# over all x, and the classifier that is the default.
LOADED = """
    _support.files _support.inputs _support.random _support.work printing results neighbourhood
    data.calibration data.draw data.guards data.posterior data.prepare data.proposal data.simulate
    data.tables nulls average.coverage average.ranks average.sbc local.features local.score
    answers.bounds answers.predictive answers.rows answers.typical classifiers.base classifiers.mlp
    check verdict
""".split()
# How many of all modules have a function that runs before the verdict is there. The aim is 20.
MOST_RUN = 21
# The longest way from module to module, by what is imported when it runs.
LONGEST = 10
QUICK = """
import sys, threading, torch, assay, assay.check
pairs = torch.randn(2, 200, 1, generator=torch.Generator().manual_seed(0))
run = set()

def note(frame, event, argument):
    name = frame.f_globals.get("__name__", "").removeprefix("assay.")
    if event == "call" and f"assay.{name}" in sys.modules and frame.f_code.co_name != "<module>":
        run.add(name)

for owner in (sys, threading):
    owner.setprofile(note)
assay.check(lambda x, n: torch.randn(n, 1), *pairs, [0.5], nulls=19, classifier=None).text()
sys.setprofile(None)
print(*(m.removeprefix("assay.") for m in sys.modules if m.startswith("assay.")))
print(*run)
"""


@dataclass(frozen=True)
class Module:
    """A module: the names of the folders that it is in, below the root, and its syntax."""

    package: tuple[str, ...]
    tree: ast.Module


def modules(root):
    """Modules by their names below the root, packages by those of their folders."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        *package, last = path.relative_to(root).with_suffix("").parts
        name = ".".join(package if last == "__init__" else [*package, last])
        found[name or PACKAGE] = Module(tuple(package), ast.parse(path.read_text("utf-8")))
    return found


def imports(known, name, *, types=True):
    """Modules of the package that a module imports; anything but these by its first name.

    What it imports for types alone is left out unless it is asked for.
    """
    module = known[name]
    return {
        target
        for node in _nodes(module.tree, types)
        for target in _targets(known, module.package, node)
    }


def _nodes(node, types):
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test) and not types:
            child = ast.Module(child.orelse, [])
        yield from _nodes(child, types)


def _targets(known, package, node):
    """What one statement imports."""
    if isinstance(node, ast.Import):
        return {_known(known, alias.name.split(".")) for alias in node.names}
    if not isinstance(node, ast.ImportFrom):
        return set()
    base = node.module.split(".") if node.module else []
    if node.level:
        base = [PACKAGE, *package[: len(package) - node.level + 1], *base]
    names = {_known(known, [*base, alias.name]) for alias in node.names}
    if base == [PACKAGE] and all(alias.name == "__version__" for alias in node.names):
        return set()
    return names


def _known(known, parts):
    """The module that is imported by a name of these parts, of which the last may be inside it."""
    if parts[0] != PACKAGE:
        return parts[0]
    whole, outer = ".".join(parts[1:]), ".".join(parts[1:-1])
    return next((n for n in (whole, outer) if n in known), PACKAGE)


def layer(name, layers=LAYERS):
    """The number of the layer of a module; None if it has none."""
    fits = [own for own in layers if name == own or name.startswith(f"{own}.")]
    return layers.index(max(fits, key=len)) if fits else None


def upward(known, layers=LAYERS):
    """Imports that go up, as pairs of modules."""
    return {
        (name, target)
        for name in known
        if name != PACKAGE
        for target in imports(known, name) & {*known, PACKAGE}
        if layer(target, layers) > layer(name, layers)
    }


def in_order(known):
    """The modules, each behind what it imports; raises where that cannot be.

    The package itself is left out, which imports everything, when it is asked for.
    """
    inside = set(known) - {PACKAGE}
    graph = {name: imports(known, name) & inside for name in sorted(inside)}
    return list(TopologicalSorter(graph).static_order())


def python(code):
    """What another interpreter prints, line by line."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


class TestPackage:
    known = modules(ROOT)

    def test_every_module_has_a_layer_and_every_layer_a_module(self):
        found = {name: layer(name) for name in self.known}
        assert [name for name, own in found.items() if own is None] == []
        assert set(found.values()) == set(range(len(LAYERS)))

    def test_imports_go_one_way(self):
        assert upward(self.known) == set()

    def test_there_is_no_cycle(self):
        assert set(in_order(self.known)) == set(self.known) - {PACKAGE}

    def test_no_chain_of_imports_is_long(self):
        length = {}
        for name in in_order(self.known):
            below = imports(self.known, name, types=False) & set(length)
            length[name] = 1 + max((length[each] for each in below), default=0)
        assert 5 < max(length.values()) <= LONGEST

    @pytest.mark.parametrize("foreign", ["experiments", "tests", "benchmarks"])
    def test_nothing_is_imported_from_outside(self, foreign):
        assert [n for n in self.known if foreign in imports(self.known, n)] == []


def test_the_package_alone_imports_nothing_heavy():
    """Not one other module of its own, and nothing that Python does not bring."""
    (names,) = python("import assay, sys; print(*sys.modules)")
    assert [name for name in names if name.startswith("assay")] == ["assay"]
    assert {name.split(".")[0] for name in names} & {"numpy", "torch", "scipy", "sklearn"} == set()


def test_what_a_check_without_a_classifier_loads():
    loaded, run = python(QUICK)
    packages = {name for name in loaded if (ROOT / name).is_dir()}
    assert set(loaded) - packages <= set(LOADED) <= set(TestPackage.known)
    assert "classifiers.mlp" not in run
    assert len(run) <= MOST_RUN, sorted(run)


class TestTheTests:
    """Each of them fails where it should, on packages that are made for it."""

    LAYERS = ("low", "part.low", "part", "high", PACKAGE)

    @pytest.fixture
    def package(self, tmp_path):
        """Modules of some sources; all others are empty."""

        def make(**sources):
            (tmp_path / "part").mkdir(exist_ok=True)
            for name in ("__init__", "low", "high", "part/__init__", "part/low", "part/high"):
                (tmp_path / f"{name}.py").write_text(sources.get(name.replace("/", "_"), ""))
            return modules(tmp_path)

        return make

    def test_names_and_layers(self, package):
        assert set(package()) == {PACKAGE, "low", "high", "part", "part.low", "part.high"}
        names = ("part.low", "part.high", "part", "high", "partial")
        assert [layer(n, self.LAYERS) for n in names] == [1, 2, 2, 3, None]

    @pytest.mark.parametrize(
        ("source", "target"),
        [
            ("from . import high", "high"),
            ("from .high import x", "high"),
            ("from assay import high", "high"),
            ("import assay.high as other", "high"),
            ("class A:\n    def f(self):\n        import assay.high", "high"),
            ("if TYPE_CHECKING:\n    from .high import x", "high"),
            ("try:\n    from .high import x\nexcept ImportError:\n    x = None", "high"),
            ("import assay", PACKAGE),
            ("from . import check", PACKAGE),
        ],
    )
    def test_an_import_that_goes_up(self, package, source, target):
        assert upward(package(low=source), self.LAYERS) == {("low", target)}
        down = source.replace("high", "low").replace("import check", "import __version__")
        if target == "high" or "__version__" in down:
            assert upward(package(high=down), self.LAYERS) == set()

    def test_from_inside_a_package(self, package):
        known = package(part_low="from .high import x", part_high="from ..low import y")
        assert upward(known, self.LAYERS) == {("part.low", "part.high")}
        assert imports(known, "part.high") == {"low"}

    def test_a_cycle(self, package):
        with pytest.raises(CycleError):
            in_order(package(part_high="from . import other", part___init__="from .high import x"))
        known = package(low="import assay.high", high="if TYPE_CHECKING:\n    import assay.low")
        with pytest.raises(CycleError):
            in_order(known)

    def test_every_statement_counts(self, package):
        source = (
            "import a\ntry:\n    import b\nexcept ImportError:\n    import c\n"
            "if TYPE_CHECKING:\n    import d\nelse:\n    import e\n"
            "def f():\n    import g\nclass A:\n    import h\nfrom experiments import j"
        )
        known = package(low=source)
        assert imports(known, "low") == {*"abcdegh", "experiments"}
        assert imports(known, "low", types=False) == {*"abcegh", "experiments"}
