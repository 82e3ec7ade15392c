"""The verdict: rejected, passed, inconclusive or outside; its rules, its sentences and its text.

* **outside**: x_o is unlike the simulations, at a corrected p-value of 0.01. Nothing is said of q.
* **rejected**: the exact test rejects q near x_o. Only then is a row of the bounds called wrong.
* **passed**: not rejected, and all means and widths are right within the tolerance (95 %).
* **inconclusive**: not rejected, but q may be off by more than the tolerance.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from .answers.rows import UNITS, Bounds, Row
from .printing import as_frame, equals, laid_out, number, percent, readable, shorten, wrapped
from .results import LEVELS, Frozen, holm, position

if TYPE_CHECKING:
    from .answers.predictive import PredictiveResult
    from .answers.typical import Typical
    from .local.score import ScoreResult

REJECTED, OUTSIDE, INCONCLUSIVE, PASSED = "rejected", "outside", "inconclusive", "passed"
VERDICTS = REJECTED, OUTSIDE, INCONCLUSIVE, PASSED  # the most urgent first
OVER_ALL_X = 0.1  # the share of the level that tests over all x have together
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
WITHIN = "means within {}, widths within {}"
# What a table has of each parameter: its heading, what is right, and how it is written.
COLUMNS = {
    "bias": ("mean of q - true, sd", 0.0, "{:.2f} ({:.2f} to {:.2f})"),
    "width": ("width q / true", 1.0, "{:.2f} ({:.2f} to {:.2f})"),
    "coverage": ("90 % interval holds", 90.0, "{:.0f} % ({:.0f} to {:.0f})"),
}
# At most: lines of many and of one; parameters in a table, letters of names, other rows or names.
MOST_LINES, MOST_OF_ONE = 32, 16
MOST_PARAMETERS, LETTERS, MOST_OTHERS = 8, 12, 2


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
        typical, test: Whether the observations are like the simulations; q's test near them.
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
    typical: "Typical"
    test: "ScoreResult"
    bounds: Bounds
    remarks: tuple[str, ...]
    settings: Mapping[str, Any]
    predictive: "PredictiveResult | None" = None
    surroundings: Surroundings | None = None
    classified: Any = None
    sbc: Any = None
    coverage: Any = None
    tarp: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = [len(part) for part in (self.labels, self.typical, self.test, self.bounds)]
        if len(set(sizes)) > 1 or len(self.names) != len(self.bounds.names):
            raise ValueError(f"check: expected parts that belong together; got {sizes} rows.")

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
        words, p = self.verdicts, self.pvalue
        return sorted(range(len(self)), key=lambda i: (VERDICTS.index(words[i]), p[i]))

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
        bias, factor = self.bounds.farthest
        sizes = np.fmax(bias[i] / UNITS["bias"], np.log(factor[i]) / UNITS["width"])
        by_size = np.argsort(-np.nan_to_num(sizes), kind="stable").tolist()
        wrong = [self.names.index(name) for row in self.wrong(i) for name in row.parameters]
        return list(dict.fromkeys([*wrong, *by_size]))

    def headline(self, which: int | str = 0) -> str:
        """The answer at one observation, in one or two sentences."""
        i = position(self.labels, which)
        word, near = self.verdicts[i], f"nearest {percent(self.test.near[i] / self.settings['n'])}"
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
            p, wrong = float(self.test.pvalue[i]), self.bounds.wrong[i]
            found = "The test does not reject q" if wrong else "No error was found"
            if p <= self.alpha:
                found = f"p {equals(p)} is not significant{corrected}"
            words = f"{found}, but {self.reason(i)}"
            enough = float(self.bounds.pairs_for(self.tolerance)[i])
            if self.bounds.draws > 1 and math.isfinite(enough):
                more, n, things = enough > self.bounds.n, self.bounds.n, "pairs"
                if "simulations" in self.settings:  # of which not all are pairs
                    enough, things = enough * self.settings["simulations"] / n, "simulations"
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
                other = "without parameters that cannot be bounded"
                return f"Check with more draws of q at each x, or {other}."
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
        bias, factor = (part[i] for part in self.bounds.farthest)
        names = [readable(name) for name in self.names]
        unknown = [names[j] for j in np.flatnonzero(np.isnan(bias + factor))]
        if unknown:
            return f"errors of {' and '.join(unknown[:MOST_OTHERS])} cannot be bounded"
        in_means, in_widths = bias / self.tolerance, np.log(factor) / math.log1p(self.tolerance)
        j, k = in_means.argmax(), in_widths.argmax()
        if in_means[j] >= in_widths[k]:
            return f"a mean may be off by {number(float(bias[j]), 2)} sd ({names[j]})"
        return f"a width may be off by a factor of {number(float(factor[k]), 2)} ({names[k]})"

    def other_sentences(self, which: int | str = 0) -> list[str]:
        """What is wrong besides the numbers of a table, the worst first."""
        rows = self.wrong(which)
        # Coverage follows from means, widths and shapes. It counts for a parameter that no table
        # calls wrong, and for regions that hold too few true ones, or where nothing is wrong.
        in_table = [row for row in rows if row.kind in COLUMNS and row.right in (0, 1, LEVELS[1])]
        named = {row.parameters for row in in_table}
        each: dict[Any, str] = {}
        for row in rows:
            follows = row.kind == "coverage" and row.parameters in named
            follows |= row.kind == "region_coverage" and row.value > row.right and bool(named)
            if row not in in_table and not follows:
                # One region, or one interval or slope of a parameter, is enough: the worst.
                each.setdefault((row.kind, row.parameters), row.sentence)
        return list(each.values())[:MOST_OTHERS]

    def limits(self, i: int, some: Any = slice(None), form: str = WITHIN) -> str:
        """How far off the means and the widths of some parameters can be at most, in words."""
        bias, factor = (float(part[i, some].max()) for part in self.bounds.farthest)
        return form.format(f"{number(bias, 2)} sd", percent(factor - 1))

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
        if names := low or list(pvalues):
            tests = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
            reject = ("reject" if low[1:] else "rejects") if low else "do not reject"
            sentences.append(f"Over all x, {tests} {reject} q.")
        return sentences

    def text(self, most: int = MOST_LINES) -> str:
        """What was found, for a terminal; of many observations so many lines at most."""
        step = wrapped(f"Next: {self.next_step(self.urgency[0])}", "  ")
        if len(self) > 1:
            lines = text_of_many(self, most)
        elif self.verdicts[0] == OUTSIDE:
            lines = [wrapped(self.headline(), "  ")]
        else:
            like = f"x_o is like the simulations (p {equals(float(self.typical.pvalue[0]))})."
            foot = wrapped(" ".join([like, *self.context]), "  ")
            for rows in range(MOST_PARAMETERS, 0, -1):  # as many as there is room for
                lines = [wrapped(self.headline(), "  "), "", table_of_one(self, rows), "", foot]
                if "\n".join([*lines, step]).count("\n") < MOST_OF_ONE:
                    break
        return "\n".join([*lines, *(wrapped(remark, "  ") for remark in self.remarks), step])

    __repr__ = text

    @property
    def record(self) -> dict[str, Any]:
        """All numbers and words as plain values, ready for JSON; what is not known is None."""
        observations = []
        for i, word in enumerate(self.verdicts):
            one: dict[str, Any] = {"label": self.labels[i], "verdict": word}
            one |= {"sentence": self.headline(i), "next_step": self.next_step(i)}
            one["pvalue"] = None if word == OUTSIDE else float(self.pvalue[i])
            one["pvalue_of_x_o"] = float(self.typical.pvalue[i])
            rows = (vars(row) | {"parameters": [*row.parameters]} for row in self.bounds.rows[i])
            one["rows"] = [{k: v for k, v in row.items() if k != "sentence"} for row in rows]
            observations.append(one)
        about: dict[str, Any] = {"alpha": self.alpha, "tolerance": self.tolerance}
        about |= {"hypothesis": self.test.hypothesis, "parameters": list(self.names)}
        about |= {"observations": observations, "over_all_x": self.over_all_x}
        about["remarks"] = list(self.remarks)
        return about | {"settings": {name: plain(v) for name, v in self.settings.items()}}

    def to_frame(self) -> Any:
        """One row for each observation, as a pandas frame; a list of dicts without pandas."""
        rows = []
        for i, word in enumerate(self.verdicts):
            row: dict[str, Any] = {"observation": self.labels[i], "verdict": word}
            row["pvalue"] = math.nan if word == OUTSIDE else float(self.pvalue[i])
            row |= {"pvalue_of_x_o": float(self.typical.pvalue[i]), "why": self.reason(i)}
            for kind, (j, name) in product(("bias", "width"), enumerate(self.names)):
                ends = zip(("", "_lower", "_upper"), self.bounds.table[kind][i, :, j], strict=True)
                row |= {f"{kind}{end}[{readable(name)}]": float(value) for end, value in ends}
            rows.append(row)
        return as_frame(rows)


def text_of_many(found: Verdict, most: int) -> list[str]:
    """A line that counts, and a line for each observation, the most urgent first."""
    words, rows = found.verdicts, []
    for i in found.urgency[:most]:
        p = "–" if words[i] == OUTSIDE else equals(float(found.pvalue[i])).lstrip("= ")
        rows.append([found.labels[i], f" {words[i]}", p, found.reason(i)])
    counts = ", ".join(f"{words.count(word)} {word}" for word in VERDICTS if word in words)
    n = found.settings["n"]
    pairs = f"nearest {percent(found.test.near[0] / n)} of {n} pairs; corrected p"
    table = laid_out(["", " verdict", "p", pairs], rows, left=2, clip_last=True)
    lines = [wrapped(f"Of {len(found)} observations: {counts}.", "  "), "", *table, ""]
    if len(found) > most:
        lines.append(f"... and {len(found) - most} more")
    return [*lines, wrapped(" ".join(found.context), "  ")] if found.context else lines


def table_of_one(found: Verdict, most: int) -> str:
    """Means, widths and coverage of the worst parameters, and other wrong rows, of one x_o."""
    wrong, order = found.wrong(), found.worst_parameters(0)
    chosen, rest = sorted(order[:most]), order[most:]
    names = [readable(found.names[j]) for j in chosen]
    short = [shorten(name, LETTERS) for name in names]
    names = short if len(set(short)) == len(names) else names
    cells = [[cell(found, j, kind) for kind in COLUMNS] for j in chosen]
    rows = [[name, *row] for name, row in zip(names, cells, strict=True)]
    lines = laid_out(["parameter", *(heading for heading, _, _ in COLUMNS.values())], rows)
    if rest:
        among = {row.parameters for row in wrong if row.kind in COLUMNS}
        count = len(among & {(found.names[j],) for j in rest})
        words = f"and {len(rest)} more" + (f", {count} of them wrong" if count else "")
        limits = found.limits(0, rest)
        lines.append(words if "nan" in limits else f"{words}: {limits}")
    if found.other_sentences():
        lines.append(f"Also: {'; '.join(found.other_sentences())}.")
    if found.verdicts[0] == REJECTED and not wrong:
        lines.append(f"No single number is wrong beyond its interval: {found.evidence(0)}.")
    if any(text.endswith("*") for row in cells for text in row):
        lines.append("* wrong. Intervals hold for all rows together with probability 0.95.")
    return "\n".join(wrapped(line, "  ") for line in lines)


def cell(found: Verdict, j: int, kind: str) -> str:
    """A number with its interval, and a star where it is wrong."""
    _, right, form = COLUMNS[kind]
    numbers = found.bounds.table[kind][0, :, j]
    numbers = 100 * numbers[:, 1] if kind == "coverage" else numbers
    if np.isnan(numbers).any():
        return "–"
    wrong = found.verdicts[0] == REJECTED and not numbers[1] <= right <= numbers[2]
    return form.format(*numbers) + (" *" if wrong else "  ")


def plain(value: Any) -> Any:
    """A value that JSON knows."""
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
