"""Writes the tables of docs/verdict.md from the records in results/verdict.

python -m benchmarks.page
"""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE, RECORDS = ROOT / "docs" / "verdict.md", ROOT / "results" / "verdict"
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


BLOCKS: dict[str, Callable[[Record], str]] = {
    "level": level,
    "alternatives": alternatives,
    "samples": samples,
    "features": rates,
    "one": rates,
    "detectable": detectable,
    "corrected": detectable,
    "exact": exact,
    "claims": claims,
    "planted": planted,
    "at": at,
    "simulator": simulator,
}
# Records that more than one table is made of.
OF = {"planted": "claims"}


def read(path: Path) -> Record:
    """A record."""
    found: Record = json.loads(path.read_text(encoding="utf-8"))
    return found


def path_of(block: str) -> Path:
    """The record that a table is made of."""
    return RECORDS / f"{OF.get(block, block)}.json"


def rewritten(text: str) -> str:
    """The page with all its tables made anew."""

    def made(found: re.Match[str]) -> str:
        record = read(path_of(found[2]))
        return f"{found[1]}\n{BLOCKS[found[2]](record)}\n{found[3]}"

    return MARK.sub(made, text)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
