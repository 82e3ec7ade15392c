"""Words and numbers that the templates show, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..names import readable
from ..printing import number, probability
from ..results import versions
from ..verdict import OUTSIDE, VERDICTS
from .pairs import PairPlot

if TYPE_CHECKING:
    from ..answers.rows import Row
    from ..verdict import Verdict

Values = dict[str, Any]


def sections(check: Verdict, pairs: PairPlot | None) -> Values:
    """All values by name."""
    words = check.verdicts
    return {
        "counts": {word: n for word in VERDICTS if (n := words.count(word))},
        "tested": _tested(check),
        "observations": [_observation(check, i) for i in range(len(check))],
        "urgency": check.urgency,
        "pairs": None if pairs is None else _pairs(pairs),
        "average": [_average(check, name) for name in check.over_all_x],
        "remarks": check.remarks,
        "made": _made(check),
    }


def _tested(check: Verdict) -> str:
    o, m = len(check), len(check.names)
    where = "one observation" if o == 1 else f"{o} observations"
    what = "one parameter" if m == 1 else f"{m} parameters"
    return f"{where[0].upper()}{where[1:]}, {what}, {check.settings['n']} calibration pairs"


def _observation(check: Verdict, i: int) -> Values:
    known = check.verdicts[i] != OUTSIDE
    label = check.labels[i]
    word, _, sentence = check.headline(i).removeprefix(f"{label}: ").partition(". ")
    return {
        "label": label,
        "verdict": check.verdicts[i],
        "within": word.partition(", ")[2],
        "sentence": sentence,
        "why": check.reason(i),
        "next": check.next_step(i),
        "pvalue": probability(float(check.pvalue[i])) if known else "–",
        "own": probability(float(check.typical.pvalue[i])),
        "near": int(check.test.near[i]),
        "others": check.other_sentences(i),
        "rows": [_row(row) for row in check.bounds.rows[i]] if known else [],
        "evidence": _evidence(check, i) if known else [],
        "predictive": _predictive(check, i) if known else "",
    }


def _row(row: Row) -> list[str]:
    ends = f"{number(row.lower, 2)} to {number(row.upper, 2)}"
    kind = row.kind.replace("_", " ")
    about = " and ".join(map(readable, row.parameters)) or "all"
    return [kind, about, number(row.value, 2), ends, "wrong" if row.wrong else ""]


def _evidence(check: Verdict, i: int) -> list[list[str]]:
    pairs = zip(check.test.kinds, check.test.evidence[i], strict=True)
    return [[kind, probability(float(p))] for kind, p in pairs]


def _predictive(check: Verdict, i: int) -> str:
    return "" if check.predictive is None else probability(float(check.predictive.pvalue[i]))


def _pairs(plot: PairPlot) -> Values:
    return {"ends": [f"{0.5 - plot.colour_range:.2f}", f"{0.5 + plot.colour_range:.2f}"]}


def _average(check: Verdict, name: str) -> Values:
    result = {"SBC": check.sbc, "coverage": check.coverage, "TARP": check.tarp}[name]
    return {
        "key": name.lower(),
        "name": name,
        "pvalue": probability(check.over_all_x[name]),
        "sentence": result.sentence,
    }


def _made(check: Verdict) -> Values:
    own, known = check.settings, versions()
    call = str(own.get("call", ""))
    rows = [[k, _value(v)] for k, v in own.items() if k not in {*known, "call"}]
    return {
        "hypothesis": check.test.hypothesis,
        "call": call,
        "settings": rows,
        "versions": [[name, str(own[name])] for name in known if name in own],
        "tests": {"The exact test": _settings(check.test.settings, {*known})},
    }


def _settings(settings: Mapping[str, Any], without: set[str]) -> list[list[str]]:
    return [[name, _value(value)] for name, value in settings.items() if name not in without]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_value, value)) if isinstance(value, tuple | list) else str(value)
