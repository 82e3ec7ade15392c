"""Writes the tables of pages in docs from the records in results.

    python -m benchmarks.page [--ages]

With ``--ages`` it says which records are older than the code they measure, and writes nothing.
"""

import argparse
import json
import re
import statistics
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS, RECORDS = ROOT / "docs", ROOT / "results"
MARK = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
RIVALS = ("energy", "MMD", "AD", "ranks")

Record = dict[str, Any]


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown; numbers have three digits."""
    head = list(head)
    lines = [head, ["---"] * len(head), *([_cell(v) for v in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _studied(record: Record) -> str:
    """How often a study of :mod:`benchmarks.bars` was repeated, and when."""
    return f"{record['repetitions']} repetitions, {_commit(record)}.\n\n"


def _rates(head: str, *keys: str) -> Callable[[Record], str]:
    """A table of a study: a line for each design, and a rate for each key."""

    def made(record: Record) -> str:
        rows = (
            [name, *(_rate_between(found.get(key)) for key in keys)]
            for name, found in record["designs"].items()
        )
        return _studied(record) + table(head.split("; "), rows)

    return made


def _rate_between(found: Any) -> str:
    """A rate, with its interval if it has one."""
    if found is None:
        return ""
    if not isinstance(found, dict):
        return f"{found:.3f}"
    return f"{found['rate']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def bounds(record: Record) -> str:
    head = ("design", "all hold", "mean at x_o holds", "width at x_o holds")
    head += ("half-width of a mean, sd", "of a log width", "over the oracle's")
    keys = ("hold", "at_mean", "at_width", "half_mean", "half_width")
    rows = (
        [
            name,
            *(_rate_between(found[key]) for key in keys),
            " and ".join(f"{ratio:.2f}" for ratio in found["over_oracle"]),
        ]
        for name, found in record["designs"].items()
    )
    return _studied(record) + table(head, rows)


def samples(record: Record) -> str:
    """Means over tasks and flows, and each of them."""
    means = "; ".join(f"{kind} {rate:.2f}" for kind, rate in record["means"].items())
    each = _rates("samples; rejected; corrected for ten observations", "each", "corrected")
    return f"Rejected on average, by the number of pairs: {means}.\n\n{each(record)}"


def beside_first(record: Record) -> str:
    """Power beside that of the first edition."""
    words = ""
    if "mean" in record:
        words = (
            f"On average {record['mean']:.3f}, the first edition {record['mean_first']:.3f}; in "
            f"no design more than {-record['most_below']:.2f} below it.\n\n"
        )
    return words + _rates("error; rejected; first edition", "rejected", "first")(record)


def settled(record: Record) -> str:
    rows = (
        [name, found["open"], _rate_between(found.get("settled")), f"{found.get('pairs', 0):.0f}"]
        for name, found in record["designs"].items()
    )
    return _studied(record) + table(("design", "inconclusive", "then settled", "pairs"), rows)


def levels(record: Record) -> str:
    """Rejections where q is right, and the most that a right level allows with 99 %."""
    each = record["designs"]
    at = list(next(iter(each.values())))
    head = ["design", *(name for level in at for name in (f"rejected {level}", "at most"))]
    rows = (
        [name, *(found[level][key] for level in at for key in ("rate", "highest"))]
        for name, found in each.items()
    )
    return _studied(record) + table(head, rows)


def family(record: Record) -> str:
    rows = (
        [name, _rate_between(found), found["highest"]] for name, found in record["designs"].items()
    )
    return _studied(record) + table(("design", "any false rejection", "at most"), rows)


def alternatives(record: Record) -> str:
    """The rivals and the oracle, beside the score test on the same data."""
    own = {
        name: found["rejected"]["rate"]
        for half in ("held", "chosen")
        for path in [RECORDS / "bars" / f"{half}.json"]
        if path.exists()
        for name, found in read(path)["designs"].items()
    }
    head = ("error", "where", "space", "m", "d", "n", "score test", "best rival", "oracle")
    return table(head, (_alternative(d, own.get(d["name"])) for d in record["designs"]))


def _alternative(design: Record, own: float | None) -> list[Any]:
    rates = design["rejected"]
    where = [design[k] for k in ("kind", "extent", "space", "m", "d", "n")]
    best = max(rates[name] for name in RIVALS)
    oracle = "" if design["right"] else rates["oracle"]
    return [*where, "" if own is None else own, best, oracle]


def leaks(record: Record) -> str:
    kinds = ("leak", "power", "auc")
    rows = []
    for name, found in record["designs"].items():
        low, high = found["exact"]
        tests = {test: each for test, each in found.items() if test != "exact"}
        exact = f"{low:.3f} to {high:.3f}"
        rows += [[name, t, *(each[k] for k in kinds), exact] for t, each in tests.items()]
    head = ("design", "test", "where q is right", "where it is wrong", "AUC", "of an exact level")
    return _studied(record) + table(head, rows)


def simulator(record: Record) -> str:
    rows = ([r["design"], r["way"], _many(r)] for r in record["power"])
    return table(("design", "pairs", "simulations for power 0.8"), rows)


def _many(row: Record) -> str:
    return "more" if row["needed"] is None else f"{row['needed']:.0f}"


def check(record: Record) -> str:
    """A whole check beside that of the first edition."""
    rows = []
    for observations, found in record["check"].items():
        took = [statistics.median(each["seconds"]) for each in found.values()]
        memory = [_three(max(each["gb"])) for each in found.values()]
        if len(found) == 1:  # the first edition was left out
            rows.append([observations, _three(took[0]), "", "", *memory, ""])
        else:
            ratio = _three(took[1] / took[0])
            rows.append([observations, *map(_three, took), ratio, *memory])
    sizes = "{pairs} pairs, {parameters} parameters, {draws} draws at each x".format(**record)
    head = ("observations", "seconds", "first edition", "times faster", "GB", "first edition, GB")
    said = f"{_machine(record)} {sizes}; the first edition is commit {record['first'][:7]}."
    return f"{said}\n\n" + table(head, rows)


def peer(record: Record) -> str:
    found = record["peer"]
    rate = statistics.mean(found["sbi"])
    own = statistics.mean(found["MLP"])
    each = {"sbi.diagnostics.LC2ST": ("", rate), "lc2st with MLP": (99, own)}
    each |= {f"{k}, ten observations": (999, t / 1000) for k, t in found["closed"].items()}
    rows = [[k, n, _three(1000 * t), _three(rate / t)] for k, (n, t) in each.items()]
    said = (
        f"{_machine(record)} Products of the network alone reach {found['share of peak']:.0%} of "
        f"what large products of matrices reach in the same run, "
        f"{statistics.median(found['peak']) / 1e9:.0f} GFLOP/s; the time of all else that "
        "training does is counted in.\n\n"
    )
    return said + table(("test", "nulls", "milliseconds a null", "times faster"), rows)


def _three(value: float) -> str:
    """A number with three digits, in plain."""
    return f"{float(f'{value:.3g}'):g}" if value < 1e5 else f"{value:.0f}"


def threads(record: Record) -> str:
    found = record["threads"]
    names = list(next(iter(found.values())))
    rows = ([name, *(f"{found[count][name]:.2f}" for count in found)] for name in names)
    return f"{_machine(record)}\n\n" + table(("seconds", *(f"{c} threads" for c in found)), rows)


def peers(record: Record) -> str:
    rows = []
    for kind, found in record["peers"].items():
        own = min(t for name, t in found.items() if name.startswith("assay"))
        rows += [[kind, name, _three(1000 * t), _three(t / own)] for name, t in found.items()]
    head = ("", "call", "milliseconds of a processor", "times ours")
    return table(head, rows)


def gpu(record: Record) -> str:
    found = record["gpu"]
    rows = [["the first call in a process (MLP, 99 nulls)", found["first"]]]
    rows += [[f"{name}", took] for name, took in found["tests"].items()]
    rows += [[name, found[name]] for name in ("MLP, 999 nulls", "MLP, 10^5 pairs")]
    rows += [[f"{name}, one observation", t] for name, t in found["one observation"].items()]
    said = f"{found['device']}, 10^4 pairs; 99 nulls of networks, 999 of others, ten observations"
    words = f"{said} unless it says otherwise, {_commit(record)}."
    return f"{words}\n\n" + table(("", "seconds"), rows)


def sizes(record: Record) -> str:
    rows = []
    for axis, found in record["sizes"].items():
        for name, each in found.items():
            if name != "values":
                took = ", ".join(f"{t:.2g}" for t in each["seconds"])
                at = ", ".join(map(str, found["values"]))
                rows.append([axis, name, at, took, f"{each['exponent']:.2f}"])
    return table(("axis", "test", "values", "seconds", "exponent"), rows)


def memory(record: Record) -> str:
    rows = [
        [name, f"{f['seconds']:.0f}", _whole(f, "processor"), _whole(f, "load"), f"{f['gb']:.1f}"]
        for name, f in record["memory"].items()
        if "gb" in f
    ]
    head = ("", "seconds", "of a processor", "load", "GB at most")
    commits = {f["commit"][:7] for f in record["memory"].values()}
    said = (
        f"{_machine(record)} The load is how many processes wanted the cores; cases are of "
        f"commits {', '.join(sorted(commits))}."
    )
    return f"{said}\n\n" + table(head, rows)


def _whole(found: Record, key: str) -> str:
    return f"{found[key]:.0f}" if key in found else ""


def reach(record: Record) -> str:
    kinds = ("clock", "processor")
    took = (
        [r["posterior"], r["observations"], *(_three(r[k]) for k in kinds)] for r in record["rows"]
    )
    said = f"{record['draws']} draws at each x, on one thread but for what JAX does.\n\n"
    return said + table(("posterior", "x", "seconds", "of the processor"), took)


def compat(record: Record) -> str:
    head = ("parameters", "sbi, seconds", "assay, seconds", "times faster", "of the processor")
    said = f"{record['pairs']} pairs, {record['nulls']} nulls, one thread.\n\n"
    return said + table(head, (_compat(case) for case in record["cases"]))


def _compat(case: Record) -> list[Any]:
    took = (statistics.mean(clock for clock, _ in each) for each in case["seconds"].values())
    return [case["parameters"], *map(_three, took), *map(_three, case["ratio"].values())]


def kills(record: Record) -> str:
    found = record["kills"]
    each = Counter[str]()
    for name, count in found["kills"].items():
        each[name.split()[0]] += count
    names = ", ".join(f"{name} {count}" for name, count in each.items())
    return (
        f"{each.total()} kills ({names}), a third each by SIGKILL, SIGTERM and SIGINT, "
        f"{_commit(record)}: {len(found['wrong'])} files torn, lost or left; "
        f"{found['parts that were left and removed']} parts were left by kills and removed by the "
        "next write.\n"
    )


def fuzz(record: Record) -> str:
    found = record["fuzz"]
    kinds = ("clear", "right", "obscure", "wrong")
    counts = ", ".join(f"{found[kind]} {kind}" for kind in kinds)
    total = sum(found[kind] for kind in kinds)
    return f"{total} calls in {found['seconds']} s, {_commit(record)}: {counts}.\n"


def mutants(record: Record) -> str:
    found = record["mutants"]
    return f"{found['caught']} of {found['mutations']} mutations are caught, {_commit(record)}.\n"


def coverage(record: Record) -> str:
    found = record["coverage"]
    share = 1 - found["missed"] / found["statements"]
    words = f"{found['passed']} everyday tests run {share:.1%} of {found['statements']} statements"
    return f"{words} of `src/assay`, {_commit(record)}.\n"


# Columns of the table of recipes: a half, a number of pairs or a place, and its heading.
RECIPES = (
    *(("chosen", 1000, "chosen, 10³"), ("chosen", 10_000, "chosen, 10⁴")),
    *(("held", 1000, "held, 10³"), ("held", 10_000, "held, 10⁴")),
    *(("samples", 2000, "samples, 2000"), ("samples", 10_000, "samples, 10⁴")),
    *(("leak", "at 2", "leak at 2"), ("leak", "at 1", "leak at 1")),
)


def recipes(record: Record) -> str:
    found = {(r["recipe"], r["half"], r["n"]): r["rejected"] for r in record["rows"]}
    names = dict.fromkeys(r["recipe"] for r in record["rows"])
    rows = ([name, *(_rate(found.get((name, *c[:2]))) for c in RECIPES)] for name in names)
    return table(("layers", *(heading for *_, heading in RECIPES)), rows)


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _machine(record: Record) -> str:
    machine = record["machine"]
    return f"{machine['processors']} cores ({record['threads_used']} threads), {_commit(record)}."


def _commit(record: Record) -> str:
    """The code that was measured."""
    return f"commit {record['commit'][:7]}"


REJECTED = _rates("error; rejected", "rejected")
# Tables of studies.
STUDIES: dict[str, Callable[[Record], str]] = {
    "bounds": bounds,
    "tolerated": _rates("error; called within the tolerance", "within"),
    "exact": _rates(
        "exact q; passed; within the tolerance; rejected; outside; rejected over all x",
        *("passed", "within", "rejected", "outside", "over_all_x"),
    ),
    "wrong": _rates(
        "exact q; anything called wrong; rejected; outside; over all x; a row",
        *("anything", "rejected", "outside", "over_all_x", "named"),
    ),
    "settled": settled,
    "level": levels,
    "family": family,
    "typical-level": levels,
    "typical-family": _rates("observations; any false outside", "outside"),
    "typical-power": _rates("x_o; outside; by the density", "found", "oracle"),
    "one": REJECTED,
    "held": beside_first,
    "chosen": REJECTED,
    "samples": samples,
    "leak": leaks,
    "leak-networks": leaks,
    "alternatives": alternatives,
    "simulator": simulator,
}
SPEEDS: dict[str, Callable[[Record], str]] = {
    "check": check,
    "peer": peer,
    "peers": peers,
    "threads": threads,
    "gpu": gpu,
    "sizes": sizes,
    "memory": memory,
    "reach": reach,
    "compat": compat,
}
RELIABLE: dict[str, Callable[[Record], str]] = {
    "kills": kills,
    "fuzz": fuzz,
    "mutants": mutants,
    "coverage": coverage,
}
BLOCKS = STUDIES | SPEEDS | RELIABLE | {"recipes": recipes}
# Pages with the folders of their records, and their tables.
PAGES = {
    "measured.md": "bars",
    "performance.md": "speed",
    "defaults.md": "defaults",
    "reliability.md": "reliability",
}
ON = {
    **dict.fromkeys(STUDIES, "measured.md"),
    **dict.fromkeys(SPEEDS, "performance.md"),
    **dict.fromkeys(RELIABLE, "reliability.md"),
    "recipes": "defaults.md",
}
# Records that lie elsewhere.
OF = {"reach": "reach/draws", "compat": "compat/speed"}


def read(path: Path) -> Record:
    """A record."""
    found: Record = json.loads(path.read_text(encoding="utf-8"))
    return found


def path_of(block: str) -> Path:
    """The record that a table is made of."""
    return RECORDS / f"{OF.get(block, f'{PAGES[page_of(block).name]}/{block}')}.json"


def page_of(block: str) -> Path:
    """The page that shows a table."""
    return DOCS / ON[block]


def tables_of(text: str) -> list[str]:
    """The names of a page's tables, in their order."""
    return [found[2] for found in MARK.finditer(text)]


def rewritten(text: str) -> str:
    """A page with all its tables made anew."""

    def made(found: re.Match[str]) -> str:
        if found[2] not in BLOCKS:
            raise ValueError(f"page: expected a table of {', '.join(BLOCKS)}; got {found[2]}.")
        record = read(path_of(found[2]))
        return f"{found[1]}\n{BLOCKS[found[2]](record)}\n{found[3]}"

    return MARK.sub(made, text)


def ages() -> list[tuple[str, str, str]]:
    """Records with their commits, and whether the code has changed since."""
    found = []
    for path in sorted(RECORDS.glob("*/*.json")):
        record = read(path)
        commit = str(record.get("commit", "") if isinstance(record, dict) else "").split("-")[0]
        git = ["git", "-C", str(ROOT), "diff", "--quiet", commit, "--", "src/assay"]
        same = bool(commit) and subprocess.run(git, capture_output=True).returncode == 0
        words = "of this code" if same else "older than the code"
        found.append((str(path.relative_to(RECORDS)), commit[:9], words))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ages", action="store_true")
    if parser.parse_args().ages:
        for row in ages():
            print("{:32}{:12}{}".format(*row))
        return
    for name in PAGES:
        page = DOCS / name
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
