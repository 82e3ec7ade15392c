"""Findings: all that a suite of tests says of a posterior, at the observations asked for.

One local test decides. Its hypothesis is that q is right throughout the neighbourhood of x_o, and
its p-values are adjusted for the number of observations. What else was run is reported beside it
and decides nothing, so that nothing need be adjusted for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .diagnostics.coverage import CoverageResult
from .diagnostics.lpit import PITResult
from .diagnostics.sbc import SBCResult
from .diagnostics.tarp import TARPResult
from .effects import Effects
from .health import Health
from .power import PowerResult
from .results import LocalResult, MomentResult, Tested, _number, adjusted
from .trust import TrustMap

__all__ = ["Findings"]

REJECTED, PASSED = "rejected", "not rejected"


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """What was found at o observations; arrays of its parts have a leading axis of length o.

    Args:
        names: Names of the m parameters.
        labels: Names of the o observations.
        local: The local test that decides.
        seen: What it would have seen; None where that was not measured.
        trust: Verdicts by both; None likewise.
        cloud: The same at some observations of the calibration, to see q in the large.
        effects: What is wrong at the observations, from truths near them or from the ratio.
        classified: A classifier's probabilities at draws of q, with their nulls; None if not run.
        ratio: What is wrong according to them.
        health: What the classifier does on sets it has not seen.
        pits: Local PIT curves; None where q has too few draws at each x.
        sbc: Ranks over all x; None likewise.
        coverage: Expected coverage over all x; None likewise.
        tarp: Coverage of balls around references over all x; None likewise.
        remarks: What is to be said of the samples that were given.
        alpha: The level.
        settings: Settings, versions, and how to run it again.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    local: MomentResult | LocalResult
    seen: PowerResult | None
    trust: TrustMap | None
    cloud: TrustMap | None
    effects: Effects
    classified: LocalResult | None
    ratio: Effects | None
    health: Health | None
    pits: PITResult | None
    sbc: SBCResult | None
    coverage: CoverageResult | None
    tarp: TARPResult | None
    remarks: tuple[str, ...]
    alpha: float
    settings: Mapping[str, Any]

    @property
    def rejected(self) -> np.ndarray:
        """Whether q is rejected at each observation, (o,)."""
        return np.asarray(self.local.adjusted <= self.alpha)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """A word for each observation: rejected, trusted or untested; or not rejected."""
        if self.trust is not None:
            return self.trust.names
        return tuple(REJECTED if wrong else PASSED for wrong in self.rejected)

    @property
    def global_tests(self) -> dict[str, Tested]:
        """The tests over all x, by name."""
        found = {"SBC": self.sbc, "coverage": self.coverage, "TARP": self.tarp}
        return {name: result for name, result in found.items() if result is not None}

    @property
    def global_pvalues(self) -> dict[str, float]:
        """The smallest p-value of each of them, adjusted for the number of its quantities."""
        found = self.global_tests.items()
        return {name: float(adjusted(np.atleast_1d(r.pvalue)).min()) for name, r in found}

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each observation: p-values, effects that would have been seen, and pairs."""
        surroundings = self.local.surroundings
        assert surroundings is not None
        columns = {"p-value": self.local.pvalue, "adjusted": self.local.adjusted}
        if self.classified is not None:
            columns["classifier p"] = self.classified.pvalue
        if self.seen is not None:
            columns |= {f"sees {curve.error.name}": curve.mde for curve in self.seen.curves}
        columns["pairs near"] = surroundings.pairs
        return [{k: float(v[i]) for k, v in columns.items()} for i in range(len(self.labels))]

    @property
    def statements(self) -> tuple[str, ...]:
        """Sentences on where q is wrong and how, where to trust it, and what else shows."""
        found = (self._counted, *self._wrong, *self._right, *self._blind, *self._elsewhere)
        return (*found, *self.remarks)

    @property
    def verdict(self) -> str:
        """The same as one paragraph."""
        return " ".join(self.statements)

    def summary(self) -> str:
        """A table with a line for each observation, and the tests over all x."""
        rows = self.table
        first = max(len("observation"), *(len(label) for label in self.labels))
        widths = [max(8, len(name)) for name in rows[0]]
        head = [name.rjust(width) for name, width in zip(rows[0], widths, strict=True)]
        lines = ["  ".join(["observation".ljust(first), "verdict".ljust(12), *head])]
        for label, word, row in zip(self.labels, self.verdicts, rows, strict=True):
            numbers = zip(row.values(), widths, strict=True)
            cells = [_cell(value).rjust(width) for value, width in numbers]
            lines.append("  ".join([label.ljust(first), word.ljust(12), *cells]))
        lines.append(f"H0: {self.local.hypothesis}; adjusted p-values decide.")
        for name, result in self.global_tests.items():
            p = _number(self.global_pvalues[name])
            lines.append(f"{name} over all x: p = {p}. {result.sentence}")
        return "\n".join(lines)

    @property
    def record(self) -> dict[str, Any]:
        """All numbers and words as plain values, ready for JSON; what is not finite is None."""
        observations = [
            {
                "label": label,
                "verdict": word,
                **{_key(name): _plain(value) for name, value in row.items()},
                "sentence": self.at(i),
                "effects": _effects(self.effects[i]),
                "ratio": None if self.ratio is None else _effects(self.ratio[i]),
            }
            for i, (label, word, row) in enumerate(
                zip(self.labels, self.verdicts, self.table, strict=True)
            )
        ]
        return {
            "verdict": self.verdict,
            "rejected": bool(self.rejected.any()),
            "alpha": self.alpha,
            "hypothesis": self.local.hypothesis,
            "adjusted_by": self.local.family.words,
            "parameters": list(self.names),
            "observations": observations,
            "over_all_x": {
                name: {"pvalue": self.global_pvalues[name], "sentence": result.sentence}
                for name, result in self.global_tests.items()
            },
            "settings": {k: _plain(v) for k, v in self.settings.items()},
        }

    def __repr__(self) -> str:
        return f"{self.summary()}\n\n{self.verdict}"

    def at(self, which: int) -> str:
        """What is to be said of one observation."""
        return f"{self._standing(which)} {self.effects[which].sentence}"

    def _standing(self, which: int) -> str:
        p = _number(float(self.local.adjusted[which]))
        label = self.labels[which]
        match self.verdicts[which]:
            case "rejected":
                return f"{label}: rejected (adjusted p = {p}).{self._far(which)}"
            case "trusted":
                return f"{label}: trusted; {self._seen(which)} would have been seen."
            case "untested":
                return f"{label}: untested, since {self._reason(which)}."
        return (
            f"{label}: not rejected (adjusted p = {p}); how much could have been seen was not "
            "measured."
        )

    def _outside(self, which: int) -> bool:
        assert self.local.surroundings is not None
        return bool(self.local.surroundings.outside[which])

    def _far(self, which: int) -> str:
        """A caution where the calibration has nothing like x_o."""
        if not self._outside(which):
            return ""
        return (
            " It lies outside the calibration cloud: what is said is about the nearest pairs, "
            "which are far from it."
        )

    def _seen(self, which: int) -> str:
        assert self.seen is not None
        return " or ".join(curve[which].words() for curve in self.seen.curves)

    def _reason(self, which: int) -> str:
        """Why an observation is untested."""
        if self._outside(which):
            return "it lies outside the calibration cloud"
        if self.local.pvalue[which] <= self.alpha:
            return (
                f"its p-value of {_number(float(self.local.pvalue[which]))} does not outweigh the "
                f"number of observations"
            )
        return f"nothing smaller than {self._seen(which)} would have been seen"

    @property
    def _counted(self) -> str:
        bad, o = int(self.rejected.sum()), len(self.labels)
        test = (
            f"({self.local.settings['test']}, {self.local.settings['n']} calibration pairs, "
            f"level {self.alpha:g})"
        )
        if o == 1:
            return f"At {self.labels[0]} q is {'' if bad else 'not '}rejected {test}."
        if not bad:
            return f"At none of {o} observations is q rejected {test}."
        return f"At {bad} of {o} observations q is rejected {test}."

    @property
    def _wrong(self) -> list[str]:
        which = np.flatnonzero(self.rejected)
        found = [f"{self._there(i)}, {self._told(i)}{self._far(i)}" for i in which[:5]]
        return found + ([f"And so on, at {len(which) - 5} more."] if len(which) > 5 else [])

    def _there(self, which: int) -> str:
        return "There" if len(self.labels) == 1 else f"At {self.labels[which]}"

    def _told(self, which: int) -> str:
        """What is wrong where q is rejected."""
        effects = self.effects[which]
        if effects.wrong:
            return effects.sentence
        return (
            "neither bias nor width nor coverage is off by more than noise: what is wrong with q "
            "is its shape, or how parameters depend on each other."
        )

    @property
    def _right(self) -> list[str]:
        which = [i for i, word in enumerate(self.verdicts) if word == "trusted"]
        if not which or self.seen is None:
            return []
        worst = " and ".join(
            curve.error.words(float(curve.mde[which].max())) for curve in self.seen.curves
        )
        labels = _listed([self.labels[i] for i in which])
        return [
            f"At {labels} nothing was found, and {worst} would have been seen with probability "
            f"{self.seen.target:g}: q can be trusted there as far as that."
        ]

    @property
    def _blind(self) -> list[str]:
        words = self.verdicts
        untested = [i for i, word in enumerate(words) if word == "untested"]
        found = [f"{self.labels[i]} is untested: {self._reason(i)}." for i in untested[:5]]
        if len(untested) > 5:
            found.append(f"So are {len(untested) - 5} more.")
        if PASSED in words:
            passed = [i for i, word in enumerate(words) if word == PASSED]
            labels = _listed([self.labels[i] for i in passed])
            found.append(
                f"At {labels} nothing was found; how much could have been seen was not measured."
            )
            far = [self.labels[i] for i in passed if self._outside(i)]
            if far:
                found.append(
                    f"Outside the calibration cloud, and not to be judged: {_listed(far)}."
                )
        return found

    @property
    def _elsewhere(self) -> list[str]:
        """What the tests say that decide nothing."""
        found = []
        if self.classified is not None:
            also = np.flatnonzero((self.classified.pvalue <= self.alpha) & ~self.rejected)
            if len(also):
                found.append(
                    f"The classifier, whose null is that q is right everywhere, sees an error "
                    f"through {_listed([self.labels[i] for i in also])} as well."
                )
        low = [name for name, p in self.global_pvalues.items() if p <= self.alpha]
        if low:
            found.append(f"Over all x, {_listed(low)} reject{'s' if len(low) == 1 else ''} q.")
        elif self.global_tests:
            found.append(f"Over all x, {_listed(list(self.global_tests))} find nothing.")
        return found


def _listed(words: list[str], most: int = 5) -> str:
    """Words in a row, with 'and' before the last."""
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _cell(value: float) -> str:
    """A number of a table; counts are whole."""
    return f"{value:.0f}" if value.is_integer() and value > 1 else _number(value)


def _effects(found: Effects) -> dict[str, dict[str, float | None]]:
    """Effects at one observation, a row for each number."""
    rows = zip(found.labels[1], found.table, strict=True)
    return {name: {_key(k): _plain(v) for k, v in row.items()} for name, row in rows}


def _key(name: str) -> str:
    """A heading as a key."""
    return name.replace("p-value", "pvalue").replace("%", "percent").replace(" ", "_")


def _plain(value: Any) -> Any:
    """A value that JSON knows."""
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
