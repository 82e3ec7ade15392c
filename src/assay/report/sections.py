"""Sections: the words and numbers that templates show, as plain values, some for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..interpret.density_ratio import DIVERGENCES, TITLES, Estimate
from ..results import LEVELS, probability, versions
from .at_observation import ObservationFigures
from .correlation import FEWEST, MOST
from .map import VERDICTS, Map
from .pairs import MOST_PARAMETERS, PairPlot
from .words import between, number, share, short

if TYPE_CHECKING:
    from ..diagnostics.local.lpit import LPITResult
    from ..diagnostics.local.moment_effects import Tail
    from ..interpret.effects import Effects
    from ..interpret.health import Health
    from ..interpret.trust import TrustMap
    from ..interpret.verdict import Verdict
    from ..samples.neighbourhoods import Support

Values = dict[str, Any]
# Cells of a table, the first of which is the head of its row.
Row = list[str]
# Parameters that a table shows, the worst first; the rest is folded. Wrong pairs, at most.
MOST_ROWS, MOST_PAIRS = 6, 50


def sections(check: Verdict, figures: ObservationFigures) -> dict[str, Any]:
    """All values by name; None where there is nothing to show."""
    return {
        "verdict": _verdict(check),
        "where": _where(check),
        "observations": [_observation(check, i) for i in range(len(check.labels))],
        "near": check.effects.truths is not None,
        "shares": check.effects.sizes is not None,
        "correlation": _correlation(check),
        "noise": figures.noise,
        "pp": figures.pp_curves is not None,
        "pairs": _known(_pairs, figures.pair_plot),
        "overall": [_over_all_x(check, name) for name in check.global_tests],
        "classifier": _known(_classifier, check.health),
        "made": _made(check),
    }


def _known(make: Callable[..., Any], part: Any, *more: Any) -> Any:
    """What is made of a part of a check; None where the part is not there."""
    return None if part is None else make(part, *more)


def _verdict(check: Verdict) -> Values:
    words = check.local.adjustment.words
    return {
        "counts": {kind: n for kind in VERDICTS if (n := check.verdicts.count(kind))},
        "statements": check.statements,
        "hypothesis": check.local.hypothesis,
        "adjustment": f"{words[0].upper()}{words[1:]}.",
        "alpha": f"{check.alpha:g}",
        "target": f"{check.detectable.target:g}",
        "tested": _tested(check),
    }


def _tested(check: Verdict) -> str:
    """What was tested, in one sentence."""
    o, own = len(check.labels), check.local.settings
    where = "at one observation" if o == 1 else f"at {o} observations"
    what = "parameter" if len(check.names) == 1 else "parameters"
    return (
        f"Tested {where}: whether q is right {own['scope']} around it, in {len(check.names)} "
        f"{what}, by {own['n']} calibration pairs."
    )


def _where(check: Verdict) -> Values:
    drawn = Map(check)
    return {
        "context": _known(_context, check.context),
        "near": None if check.simulated is None else share(check.simulated.share),
        "coordinates": list(drawn.coordinates),
        "words": drawn.words,
    }


def _context(context: TrustMap) -> Values:
    """What is said of the observations of the calibration, within a sentence."""
    words = context.sentence
    return {"count": len(context.x), "sentence": f"{words[0].lower()}{words[1:]}"}


def _pairs(plot: PairPlot) -> Values:
    """What the caption of a pair plot says."""
    _, s, m = plot.result.draws.shape
    return {
        "shown": len(plot.shown),
        "draws": s,
        "parameters": m,
        "most": MOST_PARAMETERS,
        "ends": [f"{0.5 - plot.colour_range:.2f}", f"{0.5 + plot.colour_range:.2f}"],
        "corrected": plot.weights is not None,
    }


def _correlation(check: Verdict) -> Values | None:
    """What the caption of correlations says; None where there is no figure."""
    m, known = len(check.names), check.effects.correlation is not None
    return {"parameters": m, "most": MOST} if known and m >= FEWEST else None


def _observation(check: Verdict, i: int) -> Values:
    """What is known at one observation, without figures."""
    both = [e[i] for e in (check.effects, check.classifier_effects) if e is not None]
    return {
        "label": check.labels[i],
        "verdict": check.verdicts[i],
        "words": check.at(i),
        "local": _test(check.local, i),
        "classifier": _known(_test, check.classifier, i),
        "pits": _known(_pits, check.pits, i),
        "tail": _known(_tail, both[0].tail),
        "support": _known(_support, check.local.support, i),
        "cells": _cells(check, i),
        "sources": len(both),
        **_effects(both),
    }


def _test(result: Any, i: int) -> Values:
    return {
        "name": result.settings["test"],
        "pvalue": _p(result.pvalue[i]),
        "adjusted": _p(result.adjusted[i]),
        "hypothesis": result.hypothesis,
    }


def _pits(pits: LPITResult, i: int) -> Values:
    alone = _p(pits.pvalue_independence[i]) if len(pits.names) > 1 else None
    return _test(pits, i) | {"curves": _p(pits.pvalue_curves[i]), "independence": alone}


def _tail(tail: Tail) -> Values:
    """How many truths lie far out, over the largest neighbourhood."""
    return {
        "pvalue": _p(tail.pvalue[-1]),
        "expected": number(float(tail.share * tail.truths[-1])),
        "truths": int(tail.truths[-1]),
        "share": share(float(tail.share)),
        "count": int(tail.count[-1]),
    }


def _support(support: Support, i: int) -> Values:
    return {"pvalue": _p(support.pvalue[i]), "near": int(support.pairs[i])}


def _cells(check: Verdict, i: int) -> list[str]:
    """A row of the table of observations; nothing is claimed of one that is outside."""
    near = "–" if check.local.support is None else str(int(check.local.support.pairs[i]))
    pvalues = [check.local.pvalue, *([check.local.adjusted] if len(check.labels) > 1 else [])]
    kinds = ("shift", "too wide", "too narrow")
    if check.outside(i):
        return [*["–"] * (len(pvalues) + 1 + len(kinds)), near]
    sizes = check.detected_at(i)
    auc = f"{float(check.auc[i]):.2f}"
    return [*(_p(p[i]) for p in pvalues), auc, *(sizes[kind] for kind in kinds), near]


def _effects(sources: list[Effects]) -> dict[str, list[Values]]:
    """Numbers from truths near x_o and from the classifier, the worst parameters first."""
    first, names = sources[0], sources[0].names
    bias = [f"{name}: bias, in sd of q" for name in names]
    width = [f"{name}: width over the true one" for name in names]
    rows = {
        "correlation": [f"{a} and {b}: correlation too high" for a, b in first.pairs],
        "region": [f"coverage of the {share(level)} region" for level in LEVELS],
        **{kind: [TITLES[kind]] for kind in DIVERGENCES},
    }
    levels = [f"{name}: coverage of {share(level)}" for name in names for level in LEVELS]
    each = zip(
        _numbers(sources, "bias", bias), _numbers(sources, "dispersion", width), strict=True
    )
    parameters = list(each)
    ordered = [row for j in first.worst for row in parameters[j]]
    others = [row for kind in rows for row in _numbers(sources, kind, rows[kind])]
    return {
        "effects": [*ordered[: 2 * MOST_ROWS], *others],
        "more": ordered[2 * MOST_ROWS :],
        "intervals": list(_numbers(sources, "intervals", levels)),
    }


def _numbers(sources: list[Effects], kind: str, names: list[str]) -> Iterator[Values]:
    """A row for each number of a kind; nothing where no source has it."""
    parts: list[Estimate | None] = [getattr(source, kind) for source in sources]
    known = [part for part in parts if part is not None]
    if not known:
        return
    rows = np.arange(len(names))
    if kind == "correlation":
        # Of pairs there are many: those that are wrong are shown, of which there may be many, too.
        rows = np.flatnonzero(np.any([part.wrong for part in known], 0))[:MOST_PAIRS]
    for j in rows.tolist():
        own, other = (_estimate(part, j) for part in (parts[0], (*parts, None)[1]))
        yield {"name": names[j], "own": own, "other": other}


def _estimate(estimate: Estimate | None, j: int) -> Values:
    if estimate is None:
        return dict.fromkeys(("shown", "band", "null", "at", "both"), "–") | {"wrong": False}
    parts = {name: part for name, part in vars(estimate).items() if part is not None}
    one = {name: np.ravel(part)[j] for name, part in parts.items()}
    shown = "not identifiable" if np.isnan(one["value"]) else short(one["value"])
    band = between(one["lower"], one["upper"], short)
    known = "at" in one and np.isfinite(one["at"])
    ends = f" ({between(one['at_lower'], one['at_upper'], short)})" if known else ""
    return {
        "shown": shown,
        "band": band,
        "null": between(one["null_lower"], one["null_upper"], short),
        "at": f"{short(one['at'])}{ends}" if known else "–",
        "both": f"{shown} ({band})",
        "wrong": bool(one["wrong"]),
    }


def _over_all_x(check: Verdict, name: str) -> Values:
    """A test over all x, with a table of every quantity."""
    result = check.global_tests[name]
    return {
        "key": name.lower(),
        "sentence": check.over_all_x(name),
        "pvalue": probability(check.global_pvalues[name]),
        "hypothesis": result.hypothesis,
        "head": [result.heading, *result.table[0]],
        "rows": _rows(result),
    }


def _classifier(health: Health) -> Values:
    return {"sentence": health.sentence, "rows": _rows(health)}


def _rows(result: Any) -> list[Row]:
    """The rows of a result's own table."""
    rows = zip(result.labels, result.table, strict=True)
    return [[name, *(_cell(k, v) for k, v in row.items())] for name, row in rows]


def _cell(column: str, value: float) -> str:
    chance = column.startswith("p ") or column in ("p-value", "adjusted")
    return probability(value) if chance else number(value)


def _made(check: Verdict) -> Values:
    own, known = check.settings, versions()
    calls = {key: str(own[key]) for key in ("call", "command") if key in own}
    tests = {
        "The local test that decides": check.local,
        "The classifier": check.classifier,
        "Local PITs": check.pits,
        **check.global_tests,
    }
    run: dict[str, Any] = {name: test for name, test in tests.items() if test is not None}
    return {
        "calls": list(calls.values()),
        "decides": check.local.settings["test"],
        "hypotheses": {name: test.hypothesis for name, test in run.items()},
        "settings": _settings(own, {*known, *calls}),
        "versions": [[name, str(own[name])] for name in known if name in own],
        "tests": {name: _settings(test.settings, {*known}) for name, test in run.items()},
    }


def _settings(settings: Mapping[str, Any], without: set[str]) -> list[Row]:
    return [[name, _value(value)] for name, value in settings.items() if name not in without]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_value, value)) if isinstance(value, tuple | list) else str(value)


def _p(value: Any) -> str:
    return probability(float(value))
