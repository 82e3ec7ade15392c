"""Words and numbers that the templates show, as plain values."""

from collections.abc import Mapping
from typing import Any

from ..answers.rows import Row
from ..printing import number, probability, readable
from ..results import versions
from ..verdict import OUTSIDE, VERDICTS, Verdict
from .classifier import colour_range

Values = dict[str, Any]


def sections(check: Verdict) -> Values:
    """All values by name."""
    o, m, words = len(check), len(check.names), check.verdicts
    where = "One observation" if o == 1 else f"{o} observations"
    what = "one parameter" if m == 1 else f"{m} parameters"
    half = None if check.classified is None else colour_range(check.classified)
    return {
        "counts": {word: n for word in VERDICTS if (n := words.count(word))},
        "tested": f"{where}, {what}, {check.settings['n']} calibration pairs",
        "observations": [_observation(check, i) for i in range(o)],
        "urgency": check.urgency,
        "pairs": half and {"ends": [f"{0.5 - half:.2f}", f"{0.5 + half:.2f}"]},
        "average": [_average(check, name) for name in check.over_all_x],
        "remarks": check.remarks,
        "origin": _origin(check),
    }


def _observation(check: Verdict, i: int) -> Values:
    known, label = check.verdicts[i] != OUTSIDE, check.labels[i]
    word, _, sentence = check.headline(i).removeprefix(f"{label}: ").partition(". ")
    kinds = zip(check.test.kinds, check.test.evidence[i], strict=True)
    predictive = "" if check.predictive is None else probability(float(check.predictive.pvalue[i]))
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
        "evidence": [[kind, probability(float(p))] for kind, p in kinds] if known else [],
        "predictive": predictive if known else "",
    }


def _row(row: Row) -> list[str]:
    ends = f"{number(row.lower, 2)} to {number(row.upper, 2)}"
    names = " and ".join(map(readable, row.parameters)) or "all"
    wrong = "wrong" if row.wrong else ""
    return [row.kind.replace("_", " "), names, number(row.value, 2), ends, wrong]


def _average(check: Verdict, name: str) -> Values:
    result = {"SBC": check.sbc, "coverage": check.coverage, "TARP": check.tarp}[name]
    pvalue = probability(check.over_all_x[name])
    return {"key": name.lower(), "name": name, "pvalue": pvalue, "sentence": result.sentence}


def _origin(check: Verdict) -> Values:
    """How the check was run: its call, settings and versions."""
    own, known = check.settings, versions()
    return {
        "hypothesis": check.test.hypothesis,
        "call": str(own.get("call", "")),
        "settings": _settings(own, {*known, "call"}),
        "versions": [[name, str(own[name])] for name in known if name in own],
        "tests": {"The exact test": _settings(check.test.settings, {*known})},
    }


def _settings(settings: Mapping[str, Any], without: set[str]) -> list[list[str]]:
    return [[name, _value(value)] for name, value in settings.items() if name not in without]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_value, value)) if isinstance(value, tuple | list) else str(value)
