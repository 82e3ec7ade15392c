"""Imports go one way, along the flow of data: from samples to nulls, classifiers, tests and words.

What is imported inside functions, or for types alone, goes the same way.
"""

import ast
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
    "_core",
    "samples.chunks",
    "samples.tables",
    "samples.posterior",
    "samples.neighbourhoods",
    "samples",
    "adapters",
    "nulls.copies",
    "nulls.turns",
    "nulls.exchange",
    "nulls",
    "results",
    "nulls.ranks",
    "classifiers.base",
    "classifiers.features",
    "classifiers",
    "compat",
    "diagnostics.average.ranks",
    "diagnostics.average",
    "diagnostics.local.base",
    "diagnostics.local",
    "diagnostics",
    "interpret.errors",
    "interpret",
    "interpret.verdict",
    "tasks",
    "io",
    "plots._shapes",
    "plots",
    "report",
    "suite",
    "cli",
    "__main__",
    PACKAGE,
)
# Modules one behind the other, each of which imports the one before; and files and folders.
LONGEST, MOST_ENTRIES = 12, 17


@dataclass(frozen=True)
class Module:
    """A module of a package.

    Args:
        package: The names of the folders that it is in, below the root.
        tree: Its syntax.
    """

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


def imports(known, name, at_once=False):
    """Modules of the package that a module imports; anything but these by its first name.

    Args:
        known: All modules.
        name: Which of them.
        at_once: Whether only what is imported along with the module counts: not what functions
            import, nor what types need.
    """
    module = known[name]
    nodes = _at_once(module.tree.body) if at_once else ast.walk(module.tree)
    return {target for node in nodes for target in _targets(known, module.package, node)}


def _at_once(body):
    """Statements that are run when a module is imported."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _at_once(node.orelse)
            continue
        yield node
        for part in ("body", "orelse", "finalbody"):
            yield from _at_once(getattr(node, part, []))
        for handler in getattr(node, "handlers", []):
            yield from _at_once(handler.body)


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
    """Imports that go up."""
    return [
        f"{name} imports {target}"
        for name in known
        if name != PACKAGE
        for target in sorted(imports(known, name) & {*known, PACKAGE})
        if layer(target, layers) > layer(name, layers)
    ]


def in_order(known, at_once=False):
    """The modules, each behind what it imports, with what it imports; raises where it cannot be.

    The package itself is left out, which imports everything, when it is asked for.
    """
    inside = set(known) - {PACKAGE}
    graph = {name: imports(known, name, at_once) & inside for name in sorted(inside)}
    return {name: graph[name] for name in TopologicalSorter(graph).static_order()}


def longest(known):
    """The longest chain of modules that import each other when the last one is imported."""
    chains = {}
    for name, before in in_order(known, at_once=True).items():
        chains[name] = [*max((chains[b] for b in before), key=len, default=[]), name]
    return max(chains.values(), key=len)


def entries(root):
    """Files and folders at the root, but for what Python writes and the mark of types."""
    return sorted(p.name for p in root.iterdir() if p.name not in ("__pycache__", "py.typed"))


class TestPackage:
    known = modules(ROOT)

    def test_every_module_has_a_layer_and_every_layer_a_module(self):
        found = {name: layer(name) for name in self.known}
        assert [name for name, own in found.items() if own is None] == []
        assert set(found.values()) == set(range(len(LAYERS)))

    def test_imports_go_one_way(self):
        assert upward(self.known) == []

    def test_there_is_no_cycle(self):
        assert set(in_order(self.known)) == set(self.known) - {PACKAGE}

    def test_chains_are_short(self):
        chain = longest(self.known)
        assert len(chain) <= LONGEST, " <- ".join(chain)

    def test_the_root_is_tidy(self):
        assert len(entries(ROOT)) <= MOST_ENTRIES, entries(ROOT)

    def test_the_package_imports_nothing_of_its_own(self):
        """Its names are imported when they are asked for."""
        assert imports(self.known, PACKAGE, at_once=True) == {"importlib", "typing"}

    @pytest.mark.parametrize("foreign", ["experiments", "tests", "benchmarks"])
    def test_nothing_is_imported_from_outside(self, foreign):
        assert [n for n in self.known if foreign in imports(self.known, n)] == []


class TestTheTests:
    """Each of them fails where it should, on made-up packages."""

    LAYERS = ("low", "part.low", "part", "high", PACKAGE)

    @pytest.fixture
    def made(self, tmp_path):
        """Modules of made-up sources; those that are not told are empty."""

        def make(**sources):
            (tmp_path / "part").mkdir(exist_ok=True)
            names = ("__init__", "low", "high", "part/__init__", "part/low", "part/high")
            for name in names:
                source = sources.get(name.replace("/", "_"), "")
                (tmp_path / f"{name}.py").write_text(source)
            return modules(tmp_path)

        return make

    def test_names_and_layers(self, made):
        assert set(made()) == {PACKAGE, "low", "high", "part", "part.low", "part.high"}
        assert [layer(n, self.LAYERS) for n in ("part.low", "part.high", "part", "high")] == [
            *(1, 2, 2, 3)
        ]
        assert layer("partial", self.LAYERS) is None

    @pytest.mark.parametrize(
        "source",
        [
            "from . import high",
            "from .high import x",
            "from assay.high import x",
            "from assay import high",
            "import assay.high",
            "import assay.high as other",
            "def f():\n    from .high import x",
            "class A:\n    def f(self):\n        import assay.high",
            "if TYPE_CHECKING:\n    from .high import x",
            "try:\n    from .high import x\nexcept ImportError:\n    x = None",
        ],
    )
    def test_an_import_that_goes_up(self, made, source):
        assert upward(made(low=source), self.LAYERS) == ["low imports high"]
        assert upward(made(high=source.replace("high", "low")), self.LAYERS) == []

    @pytest.mark.parametrize(
        "source", ["import assay", "from assay import check", "from . import check"]
    )
    def test_the_package_may_not_be_imported_as_a_whole(self, made, source):
        assert upward(made(low=source), self.LAYERS) == ["low imports assay"]
        assert upward(made(low="from . import __version__"), self.LAYERS) == []

    def test_from_inside_a_package(self, made):
        known = made(part_low="from .high import x", part_high="from ..low import y")
        assert upward(known, self.LAYERS) == ["part.low imports part.high"]
        assert imports(known, "part.high") == {"low"}
        assert upward(made(part_high="from ..high import y"), self.LAYERS) == [
            "part.high imports high"
        ]

    def test_a_cycle_in_one_layer(self, made):
        known = made(part_high="from . import other", part___init__="from .high import x")
        assert upward(known, self.LAYERS) == []
        with pytest.raises(CycleError):
            in_order(known)

    def test_a_cycle_through_a_function(self, made):
        known = made(low="import assay.high", high="def f():\n    import assay.low")
        with pytest.raises(CycleError):
            in_order(known)
        assert in_order(known, at_once=True) == {
            **{"part": set(), "part.high": set(), "part.low": set()},
            **{"high": set(), "low": {"high"}},
        }

    def test_the_longest_chain(self, made):
        known = made(
            high="from .part import high",
            part_high="from . import low",
            part_low="from .. import low\nif TYPE_CHECKING:\n    from ..other import x",
        )
        assert longest(known) == ["low", "part.low", "part.high", "high"]
        later = made(high="def f():\n    from .part import high", part_high="from . import low")
        assert longest(later) == ["part.low", "part.high"]

    def test_what_is_imported_at_once(self, made):
        source = (
            "import a\ntry:\n    import b\nexcept ImportError:\n    import c\n"
            "if TYPE_CHECKING:\n    import d\nelse:\n    import e\n"
            "def f():\n    import g\n"
            "class A:\n    import h\n    def f(self):\n        import i\n"
            "with x:\n    import j"
        )
        known = made(low=source)
        assert imports(known, "low", at_once=True) == set("abcehj")
        assert imports(known, "low") == set("abcdeghij")

    def test_entries(self, made, tmp_path):
        made()
        for name in ("__pycache__", "py.typed"):
            (tmp_path / name).mkdir()
        assert entries(tmp_path) == ["__init__.py", "high.py", "low.py", "part"]

    def test_outside(self, made):
        assert imports(made(low="from experiments.fig1 import x"), "low") == {"experiments"}
