"""Imports go one way: a module may import only modules of the layers before its own."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "assay"
LAYERS = [
    {"version", "randomness", "door", "statistics", "scaling", "workers", "pareto", "whole"},
    {"bases", "surroundings"},
    {"flows"},
    {"samples", "tasks.priors", "tasks.truncated", "tasks.training"},
    {"copies", "results", "coordinates", "ranks", "tasks.task", "zoom"},
    {"neighbourhoods"},
    {"nulls", "curves", "classifiers.scaling", "classifiers.features", "levels", "uniformity"}
    | {"ratios"},
    {"effects", "tasks.two_moons", "tasks.gaussian_mixture", "tasks.gaussian_linear_uniform"}
    | {"tasks.slcp", "tasks.bernoulli_glm", "tasks.linear_gaussian", "tasks.gamma_poisson"}
    | {"tasks.jansen_rit", "tasks.npe", "tasks.mcmc"}
    | {"regressions.regression", "regressions.linear", "regressions.monotone"},
    {"classifiers.mlp", "classifiers.sklearn", "classifiers.frames", "classifiers.discriminant"}
    | {"tasks.perturbed", "tasks.nle_nre"},
    {"classifiers.maps", "classifiers.learned", "regressions.per_level", "health"} | {"planted"},
    {"classifiers.ridge"},
    {"classifiers", "regressions", "diagnostics.level_curves", "diagnostics.local_coverage"},
    {"diagnostics.c2st", "diagnostics.lc2st", "diagnostics.moments", "diagnostics.divergence"},
    {"diagnostics.sbc", "diagnostics.coverage"},
    {"diagnostics.region", "diagnostics.lhpd", "diagnostics.lpit", "diagnostics.tarp"}
    | {"replays", "tuned"},
    {"power"},
    {"trust"},
    {"findings"},
    {"diagnostics", "io", "plots.canvas", "adapters", "adapters.zuko", "tasks"}
    | {"report.markup", "report.words"},
    {"report.traces"},
    {"report.places", "report.observed", "report.overall"},
    {"report.sections"},
    {"report.page"},
    {"plots.c2st", "plots.effects", "plots.health", "plots.levels", "plots.ranks"}
    | {"plots.power", "plots.trust", "plots.pp", "plots.coverage", "plots.pairs"}
    | {"plots.observations"},
    {"plots", "report"},
    {"check", "files"},
    {"__init__"},
    {"demo"},
    {"cli"},
    {"__main__"},
]
LAYER = {name: i for i, names in enumerate(LAYERS) for name in names}


def modules():
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        package = parts[:-1]
        name = ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)
        yield name, package, ast.parse(path.read_text())


def imported(package, node):
    """Modules of this library that an import statement names."""
    if isinstance(node, ast.Import):
        names = [a.name.split(".") for a in node.names]
        return {".".join(n[1:]) or "__init__" for n in names if n[0] == "assay"}
    if not isinstance(node, ast.ImportFrom):
        return set()
    if not node.level and node.module.split(".")[0] != "assay":
        return set()
    base = package[: len(package) - node.level + 1] if node.level else ()
    target = [*base, *(node.module.split(".") if node.module else [])]
    target = target if node.level else target[1:]
    whole = ".".join(target)
    inside = {".".join([*target, a.name]) for a in node.names}
    return {name for name in inside if name in LAYER} or {whole or "__init__"}


def test_every_module_has_a_layer():
    assert {name for name, _, _ in modules()} == set(LAYER)


def test_imports_go_one_way():
    upward = [
        f"{name} imports {target}"
        for name, package, tree in modules()
        for node in ast.walk(tree)
        for target in imported(package, node)
        if LAYER[target] >= LAYER[name]
    ]
    assert upward == []
