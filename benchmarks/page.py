"""Writes the tables of pages in docs from the records in results.

``python -m benchmarks.page`` writes them; with ``--ages`` it says which records are older than the
code they measure.
"""

import json
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS, RECORDS = ROOT / "docs", ROOT / "results"
MARK = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
RIVALS = ("energy", "MMD", "AD", "ranks")
SHAPES = {"normal": (), "skewed": ("skewed",), "discrete": ("counts",), "heavy": ("heavy tails",)}

Record = dict[str, Any]


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown; numbers have three digits."""
    head = list(head)
    lines = [head, ["---"] * len(head), *([_cell(v) for v in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def level(record: Record) -> str:
    low, high = record["rows"][0]["interval"]
    said = f"99 % of runs of {record['repetitions']} lie between {low:.3f} and {high:.3f}.\n\n"
    return said + table(
        ("design", "rejected"), ([r["design"], r["rejected"]] for r in record["rows"])
    )


def alternatives(record: Record) -> str:
    head = ("error", "where", "space", "m", "d", "n", "score test", "best rival", "oracle")
    return table(head, (_alternative(d) for d in record["designs"]))


def _alternative(design: Record) -> list[Any]:
    rate = design["rejected"]
    where = [design[k] for k in ("kind", "extent", "space", "m", "d", "n")]
    best = max(rate[name] for name in RIVALS)
    return [*where, rate["score"], best, "" if design["right"] else rate["oracle"]]


def samples(record: Record) -> str:
    means = [r for r in record["rows"] if "mean" in r]
    return table(
        ("space", "pairs", "rejected"), ([r["space"], r["pairs"], r["mean"]] for r in means)
    )


def rates(record: Record) -> str:
    return table(("error", "rejected"), ([r["design"], r["rejected"]] for r in record["rows"]))


def detectable(record: Record) -> str:
    rows = ([r["m"], r["parameter"], r["kind"], r["found"]] for r in record["rows"])
    return table(("m", "parameter", "error", "found"), rows)


def exact(record: Record) -> str:
    kinds = ("anything", "at an observation", "over all x", "effects")
    rows = (
        [_words(r["design"]), r["data sets"], *(r[k] for k in kinds), _interval(*r["interval"])]
        for r in record["rows"]
    )
    return table(("design", "data sets", *kinds, "95 % interval of anything"), rows)


def _words(design: str) -> str:
    """A design of Right(m=, n=, k=, o=, space=, shape=) in plain words; 'all' is of no design."""
    given = dict(re.findall(r"(\w+)='?(\w+)", design))
    if not given:
        return design
    samples = f"{given['k']} draws" if given["space"] == "draws" else "latents"
    sizes = [_counted(given["m"], "parameter"), f"{given['n']} pairs", samples]
    more = [_counted(given["o"], "observation")] * (given["o"] != "1")
    return ", ".join([*sizes, *more, *SHAPES[given["shape"]]])


def _counted(number: str, noun: str) -> str:
    return f"{number} {noun}{'' if number == '1' else 's'}"


def claims(record: Record) -> str:
    rows = ([name, found["any"]] for name, found in record["designs"].items() if "any" in found)
    return table(("design", "any effect named"), rows)


def planted(record: Record) -> str:
    each = record["designs"].items()
    rows = ([name, found["named"], found["else"]] for name, found in each if "named" in found)
    return table(("error", "named", "anything else named"), rows)


def at(record: Record) -> str:
    kinds = ("bias", "dispersion", "correlation", "region", "near")
    head = ("error; samples", "bias", "width", "correlation", "90 % region", "average near x_o")
    rows = (
        [name, *(found.get(k, "") for k in kinds)] for name, found in record["designs"].items()
    )
    return table(head, rows)


def simulator(record: Record) -> str:
    rows = ([r["design"], r["way"], _many(r)] for r in record["power"])
    return table(("design", "pairs", "simulations for power 0.8"), rows)


def _many(row: Record) -> str:
    return "more" if row["needed"] is None else f"{row['needed']:.0f}"


def _interval(low: float, high: float) -> str:
    return f"{low:.3f} to {high:.3f}"


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


def shares(record: Record) -> str:
    found = record["shares"]
    counts = list(next(iter(found.values()))["follows"])
    rows = (
        [name, *(f"{v:.2f}" for v in (each["serial"], each["shared"], *each["follows"].values()))]
        for name, each in found.items()
    )
    head = ("seconds", "done once", "shared", *(f"{count} threads" for count in counts))
    return table(head, rows)


def sequential(record: Record) -> str:
    found = record["sequential"]
    copies, share = (statistics.mean(found[key]) for key in ("copies", "share"))
    return (
        f"`Sequential({found['most']})` ends when {found['enough']} copies reach the data. In "
        f"{len(found['copies'])} data sets with a right q it made {copies:.0f} copies on average, "
        f"and took {share:.0%} of the time of all {found['most']}.\n"
    )


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
    rows += [[f"{name}", took] for name, took in found["engines"].items()]
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
    return table(("axis", "engine", "values", "seconds", "exponent"), rows)


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


BLOCKS: dict[str, Callable[[Record], str]] = {
    "level": level,
    "alternatives": alternatives,
    "samples": samples,
    "features": rates,
    "one": rates,
    "detectable": detectable,
    "exact": exact,
    "claims": claims,
    "planted": planted,
    "at": at,
    "simulator": simulator,
    "peer": peer,
    "threads": threads,
    "shares": shares,
    "peers": peers,
    "sequential": sequential,
    "gpu": gpu,
    "sizes": sizes,
    "memory": memory,
    "recipes": recipes,
    "reach": reach,
    "compat": compat,
    "kills": kills,
    "fuzz": fuzz,
    "mutants": mutants,
    "coverage": coverage,
}
# Pages with the folders of their records, and their tables; others are of the first.
PAGES = {
    "verdict.md": "verdict",
    "performance.md": "speed",
    "defaults.md": "defaults",
    "reliability.md": "reliability",
}
ON = {
    **dict.fromkeys(
        ("peer", "peers", "threads", "shares", "sequential", "gpu", "sizes", "memory"),
        "performance.md",
    ),
    **dict.fromkeys(("reach", "compat"), "performance.md"),
    "recipes": "defaults.md",
    **dict.fromkeys(("kills", "fuzz", "mutants", "coverage"), "reliability.md"),
}
# Records that are not called as their tables are, or lie elsewhere.
OF = {"planted": "verdict/claims", "reach": "reach/draws", "compat": "compat/speed"}


def read(path: Path) -> Record:
    """A record."""
    found: Record = json.loads(path.read_text(encoding="utf-8"))
    return found


def path_of(block: str) -> Path:
    """The record that a table is made of."""
    return RECORDS / f"{OF.get(block, f'{PAGES[page_of(block).name]}/{block}')}.json"


def page_of(block: str) -> Path:
    """The page that shows a table."""
    return DOCS / ON.get(block, "verdict.md")


def rewritten(text: str) -> str:
    """A page with all its tables made anew."""

    def made(found: re.Match[str]) -> str:
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


if __name__ == "__main__":
    if "--ages" in sys.argv:
        for row in ages():
            print("{:32}{:12}{}".format(*row))
    else:
        for name in PAGES:
            page = DOCS / name
            page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
