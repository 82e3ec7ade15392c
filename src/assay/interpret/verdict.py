"""The verdict: all that a suite of tests says of a posterior, at the observations asked for.

One local test decides. Its hypothesis is that q is right throughout the neighbourhood of x_o, and
its p-values are adjusted for the number of observations. What else was run is reported beside it
and decides nothing, so that nothing need be adjusted for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..diagnostics.average.coverage import CoverageResult, TARPResult
from ..diagnostics.average.sbc import SBCResult
from ..diagnostics.local.lpit import LPITResult
from ..diagnostics.local.moments import MomentsResult
from ..results import LC2STResult, Readable, Result, holm, number, rows_of
from .effects import Effects
from .health import Health
from .power import PowerResult
from .trust import TrustMap

REJECTED, PASSED = "rejected", "not rejected"


@dataclass(frozen=True, eq=False, repr=False)
class Verdict(Readable):
    """What was found at o observations; arrays of its parts have a leading axis of length o.

    Args:
        names: Names of the m parameters.
        labels: Names of the o observations.
        local: The local test that decides.
        detectable, trust: The errors it would detect, and verdicts by both; None if not measured.
        context: The same at some simulated observations, to see x_o among them.
        effects: What is wrong at the observations, from truths near them or from the ratio.
        classifier: A classifier's probabilities at draws of q, with their nulls; None if not run.
        classifier_effects, health: What is wrong according to them, and what the classifier does
            on sets it has not seen.
        pits, sbc, coverage, tarp: Local PIT curves and, over all x, ranks, expected coverage and
            coverage of balls around references; None where q has too few draws at each x.
        remarks: What is to be said of the samples that were given.
        alpha: The level.
        settings: Settings, versions, and how to run it again.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    local: MomentsResult | LC2STResult
    detectable: PowerResult | None
    trust: TrustMap | None
    context: TrustMap | None
    effects: Effects
    classifier: LC2STResult | None
    classifier_effects: Effects | None
    health: Health | None
    pits: LPITResult | None
    sbc: SBCResult | None
    coverage: CoverageResult | None
    tarp: TARPResult | None
    remarks: tuple[str, ...]
    alpha: float
    settings: Mapping[str, Any]
    heading: ClassVar[str] = "observation"

    @property
    def hypothesis(self) -> str:
        """The hypothesis of the test that decides."""
        return self.local.hypothesis

    @property
    def sentence(self) -> str:
        """The verdict, as one paragraph."""
        return self.verdict

    @property
    def pvalue(self) -> np.ndarray:
        """P-values of the test that decides, (o,)."""
        return self.local.pvalue

    def _rows_to_frame(self) -> list[dict[str, Any]]:
        pairs = zip(super()._rows_to_frame(), self.verdicts, strict=True)
        return [{self.heading: row.pop(self.heading), "verdict": v, **row} for row, v in pairs]

    @property
    def rejected(self) -> np.ndarray:
        """Whether q is rejected at each observation, (o,)."""
        return np.asarray(self.local.adjusted <= self.alpha)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """A word for each observation: rejected, trusted or untested; or not rejected."""
        if self.trust is not None:
            return self.trust.verdicts
        return tuple(REJECTED if wrong else PASSED for wrong in self.rejected)

    @property
    def global_tests(self) -> dict[str, Result]:
        """The tests over all x, by name."""
        results = {"SBC": self.sbc, "coverage": self.coverage, "TARP": self.tarp}
        return {name: result for name, result in results.items() if result is not None}

    @property
    def global_pvalues(self) -> dict[str, float]:
        """The smallest p-value of each of them, adjusted for the number of its quantities."""
        results = self.global_tests.items()
        return {name: float(holm(np.atleast_1d(r.pvalue)).min()) for name, r in results}

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each observation: p-values, detectable effects, and pairs."""
        support = self.local.support
        assert support is not None
        columns = {"p-value": self.pvalue, "adjusted": self.local.adjusted}
        if self.classifier is not None:
            columns["classifier p"] = self.classifier.pvalue
        if self.detectable is not None:
            columns |= {f"sees {curve.error.name}": curve.mde for curve in self.detectable.curves}
        columns["pairs near"] = support.pairs
        return rows_of(columns)

    @property
    def statements(self) -> tuple[str, ...]:
        """Sentences on where q is wrong and how, where to trust it, and what else shows."""
        said = (self._counted, *self._wrong, *self._right, *self._blind, *self._elsewhere)
        return (*said, *self.remarks)

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
        lines.append(f"H0: {self.hypothesis}; adjusted p-values decide.")
        for name, p in self.global_pvalues.items():
            result = self.global_tests[name]
            lines.append(f"{name} over all x: p = {number(p)}. {result.sentence}")
        return "\n".join(lines)

    @property
    def record(self) -> dict[str, Any]:
        """All numbers and words as plain values, ready for JSON; what is not finite is None."""
        return {
            "verdict": self.verdict,
            "rejected": bool(self.rejected.any()),
            "alpha": self.alpha,
            "hypothesis": self.hypothesis,
            "adjusted_by": self.local.adjustment.words,
            "parameters": list(self.names),
            "observations": [self._record(i, row) for i, row in enumerate(self.table)],
            "over_all_x": {
                name: {"pvalue": p, "sentence": self.global_tests[name].sentence}
                for name, p in self.global_pvalues.items()
            },
            "settings": {k: _plain(v) for k, v in self.settings.items()},
        }

    def _record(self, which: int, row: Mapping[str, float]) -> dict[str, Any]:
        ratio = self.classifier_effects
        return {
            **{"label": self.labels[which], "verdict": self.verdicts[which], **_keyed(row)},
            "sentence": self.at(which),
            "effects": _effects(self.effects[which]),
            "ratio": None if ratio is None else _effects(ratio[which]),
        }

    def __repr__(self) -> str:
        return f"{self.summary()}\n\n{self.verdict}"

    def at(self, which: int) -> str:
        """What is to be said of one observation."""
        return f"{self._standing(which)} {self.effects[which].sentence}"

    def _standing(self, which: int) -> str:
        p = number(float(self.local.adjusted[which]))
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

    def _far(self, which: int) -> str:
        """A caution where the calibration has nothing like x_o."""
        caution = (
            " It lies outside the simulated observations: what is said is about the nearest "
            "pairs, which are far from it."
        )
        return caution if self.local.outside[which] else ""

    def _seen(self, which: int) -> str:
        assert self.detectable is not None
        return " or ".join(curve[which].words() for curve in self.detectable.curves)

    def _reason(self, which: int) -> str:
        """Why an observation is untested."""
        if self.local.outside[which]:
            return "it lies outside the simulated observations"
        p = float(self.pvalue[which])
        if p <= self.alpha:
            return f"its p-value of {number(p)} does not outweigh the number of observations"
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
        whose = [""] if len(self.labels) == 1 else [f"{label}: " for label in self.labels]
        said = [f"{whose[i]}{self._told(i)}{self._far(i)}" for i in which[:5]]
        return said + ([f"And so on, at {len(which) - 5} more."] if len(which) > 5 else [])

    def _told(self, which: int) -> str:
        """What is wrong where q is rejected."""
        effects = self.effects[which]
        if effects.wrong:
            return effects.sentence
        return (
            "Neither bias, width, correlation nor coverage is off by more than noise: what is "
            "wrong with q is its shape, or how parameters depend on each other."
        )

    @property
    def _right(self) -> list[str]:
        which = self._where("trusted")
        if not which or self.detectable is None:
            return []
        curves = self.detectable.curves
        worst = " and ".join(curve.error.words(float(curve.mde[which].max())) for curve in curves)
        return [
            f"At {self._named(which)} nothing was found, and {worst} would have been seen with "
            f"probability {self.detectable.target:g}: q can be trusted there as far as that."
        ]

    @property
    def _blind(self) -> list[str]:
        untested, passed = self._where("untested"), self._where(PASSED)
        said = [f"{self.labels[i]} is untested: {self._reason(i)}." for i in untested[:5]]
        if len(untested) > 5:
            said.append(f"So are {len(untested) - 5} more.")
        if passed:
            said.append(
                f"At {self._named(passed)} nothing was found; how much could have been seen was "
                "not measured."
            )
        far = [i for i in passed if self.local.outside[i]]
        if far:
            labels = self._named(far)
            said.append(f"Outside the simulated observations, and not to be judged: {labels}.")
        return said

    def _where(self, verdict: str) -> list[int]:
        return [i for i, word in enumerate(self.verdicts) if word == verdict]

    def _named(self, which: Iterable[int]) -> str:
        return _listed([self.labels[i] for i in which])

    @property
    def _elsewhere(self) -> list[str]:
        """What the tests say that decide nothing."""
        said = []
        if self.classifier is not None:
            also = np.flatnonzero((self.classifier.pvalue <= self.alpha) & ~self.rejected)
            if len(also):
                said.append(
                    f"The classifier, whose null is that q is right everywhere, sees an error "
                    f"through {self._named(also)} as well."
                )
        low = [name for name, p in self.global_pvalues.items() if p <= self.alpha]
        if low:
            said.append(f"Over all x, {_listed(low)} reject{'s' if len(low) == 1 else ''} q.")
        elif self.global_tests:
            said.append(f"Over all x, {_listed(list(self.global_tests))} find nothing.")
        return said


def _listed(words: list[str], most: int = 5) -> str:
    """Words in a row, with 'and' before the last."""
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _cell(value: float) -> str:
    """A number of a table; counts are whole."""
    return f"{value:.0f}" if value.is_integer() and value > 1 else number(value)


def _effects(effects: Effects) -> dict[str, dict[str, float | None]]:
    """Effects at one observation, a row for each number."""
    return {k: _keyed(row) for k, row in zip(effects.labels, effects.table, strict=True)}


def _keyed(row: Mapping[str, float]) -> dict[str, float | None]:
    """A row of a table with headings as keys."""
    words = (k.replace("p-value", "pvalue").replace("%", "percent") for k in row)
    return {k.replace(" ", "_"): _plain(v) for k, v in zip(words, row.values(), strict=True)}


def _plain(value: Any) -> Any:
    """A value that JSON knows."""
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
