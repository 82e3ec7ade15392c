"""The verdict: rejected, passed, inconclusive or outside; its rules, and its sentences.

* **outside**: x_o is unlike the simulations, at a corrected p-value of 0.01. Nothing is said of q.
* **rejected**: the exact test rejects q near x_o, corrected for the number of observations. Only
  then is a row of the bounds called wrong.
* **passed**: not rejected, and all means and widths are right within the tolerance, with a
  probability of 95 %. The sentence is that bound.
* **inconclusive**: not rejected, but q may be off by more than the tolerance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .answers.predictive import PredictiveResult
from .answers.rows import UNITS, Bounds, Row
from .answers.typical import Typical
from .local.score import ScoreResult
from .printing import equals, number, percent, readable
from .results import LEVELS, Frozen, holm, position

REJECTED, OUTSIDE, INCONCLUSIVE, PASSED = "rejected", "outside", "inconclusive", "passed"
# The most urgent first.
VERDICTS = REJECTED, OUTSIDE, INCONCLUSIVE, PASSED
# The share of the level that tests over all x have together.
OVER_ALL_X = 0.1
# Sentences on rows that are wrong besides those of parameters, and parameters that are named.
MOST_OTHERS = 2
# What a table says of each parameter.
COLUMNS = "bias", "width", "coverage"
WITHIN = "means within {}, widths within {}"
# Where the evidence lies, for each kind of feature of the test.
KINDS = {
    "smooth": "in the shape of q, or in how it changes with x",
    "fine": "in the fine structure of q",
    "finest": "in the finest structure of q",
    "one parameter": "in the shape of single parameters",
    "distances": "in where q has draws and where it has none",
    "pairs": "in how two parameters depend on each other",
    "near": "in the shape of q very near x_o",
    "learned": "in what is wrong elsewhere, too",
}
NEXT_STEPS = {
    REJECTED: "Train q longer or on more simulations, then check it with fresh pairs.",
    OUTSIDE: "Look at these features: does the simulator make what was measured?",
    INCONCLUSIVE: "Check with more pairs, or let the simulator make them around x_o.",
    PASSED: "Quote this bound; nothing else is needed.",
}


@dataclass(frozen=True, eq=False)
class Surroundings(Frozen):
    """Simulated observations around the o that are checked.

    Args:
        x: Some of the simulated observations, at random, (s, ...).
        near: Which of them are near each observation, (o, s).
        pvalue: The p-value of the test at a few of them; NaN where q was not tested, (s,).
    """

    x: np.ndarray
    near: np.ndarray
    pvalue: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Verdict(Frozen):
    """What was found at o observations with m parameters.

    Args:
        names, labels: Names of the parameters and of the observations.
        alpha, tolerance: The level, and how far off q may be where it passes.
        typical: Whether the observations are like the simulations.
        test: The exact test of q near them.
        bounds: How far off q can be near them; NaN where an observation is outside.
        remarks, settings: Sentences about the samples; settings, versions, how long it took.
        predictive: Where x_o lies among simulations of a draw of q; None without a simulator.
        surroundings: Simulated observations around them.
        classified: A classifier's probabilities at draws of q; None if it was left out.
        sbc, coverage, tarp: Tests over all x; None where q has too few draws at each x.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    alpha: float
    tolerance: float
    typical: Typical
    test: ScoreResult
    bounds: Bounds
    remarks: tuple[str, ...]
    settings: Mapping[str, Any]
    predictive: PredictiveResult | None = None
    surroundings: Surroundings | None = None
    classified: Any = None
    sbc: Any = None
    coverage: Any = None
    tarp: Any = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def pvalue(self) -> np.ndarray:
        """P-values of the exact test, corrected for the number of observations, (o,)."""
        return self.test.adjusted

    @cached_property
    def verdicts(self) -> tuple[str, ...]:
        """A word for each observation."""
        rejected, within = self.pvalue <= self.alpha + 1e-12, self.bounds.within(self.tolerance)
        rules = {OUTSIDE: self.typical.outside, REJECTED: rejected, PASSED: within}
        return tuple(np.select(list(rules.values()), list(rules), INCONCLUSIVE).tolist())

    @property
    def passed(self) -> np.ndarray:
        """Whether q passed at each observation, (o,)."""
        return np.array(self.verdicts) == PASSED

    @property
    def urgency(self) -> list[int]:
        """The observations, the most urgent first."""
        words = np.array([VERDICTS.index(word) for word in self.verdicts])
        return [int(i) for i in np.lexsort((self.pvalue, words))]

    @property
    def over_all_x(self) -> dict[str, float]:
        """The smallest p-value of each test over all x, corrected for all their quantities."""
        results = {"SBC": self.sbc, "coverage": self.coverage, "TARP": self.tarp}
        each = {name: np.atleast_1d(r.pvalue) for name, r in results.items() if r is not None}
        if not each:
            return {}
        ends = np.cumsum([len(p) for p in each.values()])[:-1]
        adjusted = np.split(holm(np.concatenate(list(each.values()))), ends)
        return {name: float(p.min()) for name, p in zip(each, adjusted, strict=True)}

    def wrong(self, which: int | str = 0) -> tuple[Row, ...]:
        """The rows of the bounds that are wrong at an observation; none if q is not rejected."""
        i = position(self.labels, which)
        return self.bounds.wrong[i] if self.verdicts[i] == REJECTED else ()

    def worst_parameters(self, i: int) -> list[int]:
        """All parameters: those of wrong rows, the worst first, then those farthest off."""
        bias, ratio = self._farthest(i)
        sizes = np.stack([bias / UNITS["bias"], np.log(ratio) / UNITS["width"]])
        by_size = np.argsort(-np.nan_to_num(sizes).max(0), kind="stable").tolist()
        wrong = [self.names.index(name) for row in self.wrong(i) for name in row.parameters]
        return list(dict.fromkeys([*wrong, *by_size]))

    def _farthest(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """How far off means (m,) and widths (m,) may be, the latter as factors above one."""
        b = self.bounds
        bias = np.maximum(-b.bias_lower[i], b.bias_upper[i])
        return bias, np.maximum(1 / b.width_lower[i], b.width_upper[i])

    def headline(self, which: int | str = 0) -> str:
        """The answer at one observation, in one or two sentences."""
        i = position(self.labels, which)
        word, near = self.verdicts[i], self.nearest(i)
        corrected = f", corrected for {len(self)} observations" if len(self) > 1 else ""
        limits = self.limits(i, form="every mean is right within {} and every width within {}")
        if word == OUTSIDE:
            why = self.typical.explanation(i)
            words = f"x_o is unlike the simulations {why}. Nothing is said of q"
        elif word == PASSED:
            words = f"On average over the {near}, {limits} (95 %)"
        elif word == REJECTED:
            test = f"p {equals(float(self.pvalue[i]))}{corrected}"
            words = f"q is wrong near x_o ({test}; {self.settings['n']} pairs, {near})"
            if self.tolerable(i):
                word, words = f"{word}, but within the tolerance", f"{words}, but {limits} (95 %)"
        else:
            p, found = float(self.test.pvalue[i]), "No error was found"
            if self.bounds.wrong[i]:
                found = "The test does not reject q"
            if p <= self.alpha:
                found = f"p {equals(p)} is not significant{corrected}"
            words = f"{found}, but {self.reason(i)}"
            enough = float(self.bounds.pairs_for(self.tolerance)[i])
            if self.bounds.draws > 1 and math.isfinite(enough):
                more, things = enough > self.bounds.n, "pairs"
                if "simulations" in self.settings:  # of which not all are pairs
                    things = "simulations"
                    enough *= self.settings["simulations"] / self.bounds.n
                unit = 10 ** max(0, math.floor(math.log10(enough)) - 1)  # for two digits
                about = f"About {math.ceil(enough / unit) * unit}" if more else "More"
                words += f". {about} {things} would settle it"
        return f"{self.labels[i]}: {word}. {words}."

    def next_step(self, which: int | str = 0) -> str:
        """What to do about it, in one sentence."""
        i = position(self.labels, which)
        if self.verdicts[i] == REJECTED and self.tolerable(i):
            return "Quote these bounds, if nothing but means and widths matters to you."
        if self.verdicts[i] == INCONCLUSIVE:
            if self.bounds.draws < 2:
                return "Check with more draws of q at each x; 16 are good."
            if np.isnan(self.bounds.bias[i] + self.bounds.width[i]).any():
                return (
                    "Check with more draws of q at each x, or without parameters that cannot be "
                    "bounded."
                )
            if "simulations" in self.settings:
                return "Check with more simulations."
        return NEXT_STEPS[self.verdicts[i]]

    def tolerable(self, i: int) -> bool:
        """Whether all means and widths are within the tolerance, and nothing else is far off."""
        # A size of one is an error of half a standard deviation, which is a tolerance of 0.5.
        far = any(row.size >= self.tolerance for row in self.bounds.wrong[i])
        return bool(self.bounds.within(self.tolerance)[i]) and not far

    def reason(self, which: int | str) -> str:
        """The verdict at an observation in a few words."""
        i = position(self.labels, which)
        if self.verdicts[i] == OUTSIDE:
            return self.typical.sentences[i]
        if self.verdicts[i] == REJECTED:
            return self.wrong(i)[0].sentence if self.wrong(i) else self.evidence(i)
        if self.verdicts[i] == PASSED:
            return self.limits(i)
        if self.bounds.draws < 2:
            return "widths cannot be bounded with one draw of q at each x"
        bias, ratio = self._farthest(i)
        names = [readable(name) for name in self.names]
        unknown = [names[j] for j in np.flatnonzero(np.isnan(bias + ratio))]
        if unknown:
            return f"errors of {_listed(unknown[:MOST_OTHERS])} cannot be bounded"
        in_means, in_widths = bias / self.tolerance, np.log(ratio) / math.log1p(self.tolerance)
        j = in_means.argmax()
        if in_means[j] >= in_widths.max():
            return f"a mean may be off by {number(float(bias[j]), 2)} sd ({names[j]})"
        j = in_widths.argmax()
        return f"a width may be off by a factor of {number(float(ratio[j]), 2)} ({names[j]})"

    def other_sentences(self, which: int | str = 0) -> list[str]:
        """What is wrong besides the numbers of a table, the worst first.

        Coverage follows from means, widths and shapes. It counts for a parameter that no table
        calls wrong, and for regions that hold too few true parameters, or where nothing is wrong.
        """
        rows = self.wrong(which)
        in_table = [row for row in rows if _in_table(row)]
        named = {row.parameters for row in in_table}
        others = [
            row
            for row in rows
            if row not in in_table
            and not (row.kind == "coverage" and row.parameters in named)
            and not (row.kind == "region_coverage" and row.value > row.right and named)
        ]
        # One region, or one interval of a parameter, is enough.
        each = {(row.kind, row.parameters): row.sentence for row in reversed(others)}
        return list(reversed(each.values()))[:MOST_OTHERS]

    def nearest(self, i: int) -> str:
        """The share of the pairs that is near an observation."""
        return f"nearest {percent(self.test.near[i] / self.settings['n'])}"

    def limits(self, i: int, some: Any = slice(None), form: str = WITHIN) -> str:
        """How far off the means and the widths of some parameters can be at most, in words."""
        bias, ratio = (float(part[some].max()) for part in self._farthest(i))
        return form.format(f"{number(bias, 2)} sd", percent(ratio - 1))

    def evidence(self, i: int) -> str:
        """Where the test found its evidence."""
        return f"the error is {KINDS[self.test.kinds[int(self.test.evidence[i].argmin())]]}"

    @property
    def context(self) -> list[str]:
        """Sentences on simulations of a draw of q, and on tests over all x."""
        sentences, pvalues = [], self.over_all_x
        known = [word != OUTSIDE for word in self.verdicts]
        if self.predictive is not None and any(known):
            sentences.append(self.predictive.describe(self.alpha, self.labels, known))
        low = [name for name, p in pvalues.items() if p <= OVER_ALL_X * self.alpha]
        if low:
            sentences.append(f"Over all x, {_listed(low)} reject{'' if low[1:] else 's'} q.")
        elif pvalues:
            sentences.append(f"Over all x, {_listed(list(pvalues))} do not reject q.")
        return sentences


def _in_table(row: Row) -> bool:
    """Whether a table has the number of a row: of coverage, that of 90 % intervals."""
    return row.kind in ("bias", "width") or (row.kind == "coverage" and row.right == LEVELS[1])


def _listed(words: Sequence[str]) -> str:
    """Words in a row, with 'and' before the last."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
