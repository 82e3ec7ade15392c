"""The verdict: rejected, passed, inconclusive or outside; its rules, and the words about a check.

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
from html import escape
from itertools import product
from typing import Any

import numpy as np

from .answers.bounds import Bounds
from .answers.predictive import PredictiveResult
from .answers.rows import UNITS, Row
from .answers.typical import Typical
from .local.score import ScoreResult
from .names import readable, shorten
from .results import Frozen, as_frame, equals, holm, html_part, laid_out, number, position, wrapped

REJECTED, OUTSIDE, INCONCLUSIVE, PASSED = "rejected", "outside", "inconclusive", "passed"
# The most urgent first.
VERDICTS = REJECTED, OUTSIDE, INCONCLUSIVE, PASSED
# The share of the level that tests over all x have together.
OVER_ALL_X = 0.1
# At most: parameters in a table, other rows that are wrong, letters of a name in a table,
# observations that are printed, and lines on a single one.
MOST_PARAMETERS, MOST_OTHERS, LETTERS, MOST_LINES, MOST_LINES_OF_ONE = 8, 2, 12, 32, 16
# The columns of a table: heading, what is right, and how a number is printed with its interval.
COLUMNS = {
    "bias": ("mean of q - true, sd", 0.0, "{:.2f} ({:.2f} to {:.2f})"),
    "width": ("width q / true", 1.0, "{:.2f} ({:.2f} to {:.2f})"),
    "coverage": ("90 % interval holds", 90.0, "{:.0f} % ({:.0f} to {:.0f})"),
}
ENDS = ("", "_lower", "_upper")
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
    """Simulated observations around o of them.

    Args:
        x: Some of the simulated observations, at random, (s, ...).
        near: Which of them are near each observation, (o, s).
        pvalue: The p-value of the test at the first of them; NaN where q was not tested, (s,).
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
        remarks: Sentences about the samples.
        settings: Settings, versions, and how long it took.
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

    # Rules.

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
        return np.array([word == PASSED for word in self.verdicts])

    @property
    def urgency(self) -> list[int]:
        """The observations, the most urgent first."""
        order = [VERDICTS.index(word) for word in self.verdicts]
        return [int(i) for i in np.lexsort([self.pvalue, order])]

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

    # Sentences.

    def headline(self, which: int | str = 0) -> str:
        """The answer at one observation, in one or two sentences."""
        i = position(self.labels, which)
        word, near = self.verdicts[i], self._nearest(i)
        corrected = f", corrected for {len(self)} observations" if len(self) > 1 else ""
        limits = self._limits(i, form="every mean is right within {} and every width within {}")
        if word == OUTSIDE:
            why = self._explanation(i, corrected)
            words = f"x_o is unlike the simulations {why}. Nothing is said of q"
        elif word == PASSED:
            words = f"On average over the {near}, {limits} (95 %)"
        elif word == REJECTED:
            p = f"p {equals(float(self.pvalue[i]))}{corrected}"
            words = f"q is wrong near x_o ({p}; {self.settings['n']} pairs, {near})"
            if self.bounds.within(self.tolerance)[i]:
                word, words = f"{word}, but within the tolerance", f"{words}, but {limits} (95 %)"
        else:
            p, found = float(self.test.pvalue[i]), "No error was found"
            if p <= self.alpha:
                found = f"p {equals(p)} is not significant{corrected}"
            words = f"{found}, but {self.reason(i)}"
            enough = float(self.bounds.pairs_for(self.tolerance)[i])
            if self.bounds.draws > 1 and math.isfinite(enough):
                # Rounded up to two digits.
                unit = 10 ** max(0, math.floor(math.log10(enough)) - 1)
                about = f"About {math.ceil(enough / unit) * unit}"
                words += f". {about if enough > self.bounds.n else 'More'} pairs would settle it"
        return f"{self.labels[i]}: {word}. {words}."

    def next_step(self, which: int | str = 0) -> str:
        """What to do about it, in one sentence."""
        i = position(self.labels, which)
        if self.verdicts[i] == REJECTED and self.bounds.within(self.tolerance)[i]:
            return "Quote these bounds, if errors of this size do not matter to you."
        if self.verdicts[i] == INCONCLUSIVE and self.bounds.draws < 2:
            return "Check with more draws of q at each x; 16 are good."
        return NEXT_STEPS[self.verdicts[i]]

    def reason(self, which: int | str) -> str:
        """The verdict at an observation in a few words."""
        i = position(self.labels, which)
        if self.verdicts[i] == OUTSIDE:
            return self.typical.sentences[i]
        if self.verdicts[i] == REJECTED:
            return self.wrong(i)[0].sentence if self.wrong(i) else self._evidence(i)
        if self.verdicts[i] == PASSED:
            return self._limits(i)
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
        """What is wrong besides means, widths and coverage of parameters, the worst first.

        Coverage of regions follows from the rest, and counts where nothing else is wrong.
        """
        rows = self.wrong(which)
        if not all(row.kind == "region_coverage" for row in rows):
            rows = tuple(row for row in rows if row.kind not in (*COLUMNS, "region_coverage"))
        return [row.sentence for row in rows[:MOST_OTHERS]]

    def _explanation(self, i: int, corrected: str) -> str:
        """Why x_o is unlike the simulations, behind these words."""
        p = equals(float(self.typical.adjusted[i]))
        return f"(p {p}{corrected}): {self.typical.sentences[i]}"

    def _nearest(self, i: int) -> str:
        return f"nearest {100 * self.test.near[i] / self.settings['n']:.2g} %"

    def _limits(
        self, i: int, some: Any = slice(None), form: str = "means within {}, widths within {}"
    ) -> str:
        """How far off the means and the widths of some parameters can be at most, in words."""
        bias, ratio = (float(part[some].max()) for part in self._farthest(i))
        return form.format(f"{number(bias, 2)} sd", f"{100 * (ratio - 1):.2g} %")

    def _evidence(self, i: int) -> str:
        """Where the test found its evidence."""
        return f"the error is {KINDS[self.test.kinds[int(self.test.evidence[i].argmin())]]}"

    @property
    def _context(self) -> list[str]:
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

    # Text.

    def text(self, most: int = MOST_LINES) -> str:
        """What was found, for a terminal; of many observations so many lines at most."""
        step = wrapped(f"Next: {self.next_step(self.urgency[0])}", "  ")
        lines = self._one(step) if len(self) == 1 else self._many(most)
        return "\n".join([*lines, *(wrapped(remark, "  ") for remark in self.remarks), step])

    def _one(self, step: str) -> list[str]:
        """The answer, a table as long as there is room above the next step, and the context."""
        head = wrapped(self.headline(), "  ")
        if self.verdicts[0] == OUTSIDE:
            return [head]
        like = f"x_o is like the simulations (p {equals(float(self.typical.pvalue[0]))})."
        foot = wrapped(" ".join([like, *self._context]), "  ")
        for most in range(MOST_PARAMETERS, 0, -1):
            lines = [head, "", self._table(most), "", foot]
            if "\n".join([*lines, step]).count("\n") < MOST_LINES_OF_ONE:
                break
        return lines

    def _many(self, most: int) -> list[str]:
        """A line that counts, and a line for each observation, the most urgent first."""
        words, rows = self.verdicts, []
        for i in self.urgency[:most]:
            p = "–" if words[i] == OUTSIDE else equals(float(self.pvalue[i])).lstrip("= ")
            rows.append([self.labels[i], f" {words[i]}", p, self.reason(i)])
        counts = ", ".join(f"{words.count(word)} {word}" for word in VERDICTS if word in words)
        pairs = f"{self._nearest(0)} of {self.settings['n']} pairs; corrected p"
        table = laid_out(["", " verdict", "p", pairs], rows, left=2, clip_last=True)
        lines = [wrapped(f"Of {len(self)} observations: {counts}.", "  "), "", *table, ""]
        if len(self) > most:
            lines.append(f"... and {len(self) - most} more")
        return [*lines, wrapped(" ".join(self._context), "  ")] if self._context else lines

    def _table(self, most: int) -> str:
        """Means, widths and coverage of the worst parameters, and other wrong rows, of one x_o."""
        wrong, order = self.wrong(), self.worst_parameters(0)
        chosen, rest = sorted(order[:most]), order[most:]
        names = [readable(self.names[j]) for j in chosen]
        short = [shorten(name, LETTERS) for name in names]
        names = short if len(set(short)) == len(names) else names
        cells = [[self._cell(j, kind) for kind in COLUMNS] for j in chosen]
        rows = [[name, *row] for name, row in zip(names, cells, strict=True)]
        lines = laid_out(["parameter", *(heading for heading, *_ in COLUMNS.values())], rows)
        if rest:
            among = {row.parameters for row in wrong if row.kind in COLUMNS}
            count = len(among & {(self.names[j],) for j in rest})
            words = f"and {len(rest)} more" + (f", {count} of them wrong" if count else "")
            limits = self._limits(0, rest)
            lines.append(words if "nan" in limits else f"{words}: {limits}")
        if self.other_sentences():
            lines.append(f"Also: {'; '.join(self.other_sentences())}.")
        if self.verdicts[0] == REJECTED and not wrong:
            lines.append(f"No single number is wrong beyond its interval: {self._evidence(0)}.")
        if any(cell.endswith("*") for row in cells for cell in row):
            lines.append("* wrong. Intervals hold for all rows together with probability 0.95.")
        return "\n".join(wrapped(line, "  ") for line in lines)

    def _cell(self, j: int, kind: str) -> str:
        """A number with its interval, and a star where it is wrong."""
        _, right, form = COLUMNS[kind]
        parts = np.stack([getattr(self.bounds, kind + end)[0, j] for end in ENDS])
        value, lower, upper = 100 * parts[:, 1] if kind == "coverage" else parts
        if np.isnan(value + lower + upper):
            return "–"
        wrong = self.verdicts[0] == REJECTED and not lower <= right <= upper
        return form.format(value, lower, upper) + (" *" if wrong else "  ")

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return html_part(f"<pre>{escape(self.text())}</pre>")

    # Plain values.

    @property
    def record(self) -> dict[str, Any]:
        """All numbers and words as plain values, ready for JSON; what is not known is None."""
        observations = [
            {
                "label": self.labels[i],
                "verdict": word,
                "sentence": self.headline(i),
                "next_step": self.next_step(i),
                "pvalue": None if word == OUTSIDE else float(self.pvalue[i]),
                "pvalue_of_x_o": float(self.typical.pvalue[i]),
                "rows": [_plain_row(row) for row in self.bounds.rows[i]],
            }
            for i, word in enumerate(self.verdicts)
        ]
        return {
            "alpha": self.alpha,
            "tolerance": self.tolerance,
            "hypothesis": self.test.hypothesis,
            "parameters": list(self.names),
            "observations": observations,
            "over_all_x": self.over_all_x,
            "remarks": list(self.remarks),
            "settings": {key: _plain(value) for key, value in self.settings.items()},
        }

    def to_frame(self) -> Any:
        """One row for each observation, as a pandas frame; a list of dicts without pandas."""
        rows = []
        for i, known in enumerate(self.record["observations"]):
            row = {"observation": known["label"], "verdict": known["verdict"]}
            row["pvalue"] = math.nan if known["pvalue"] is None else known["pvalue"]
            row |= {"pvalue_of_x_o": known["pvalue_of_x_o"], "why": self.reason(i)}
            for kind, (j, name), end in product(("bias", "width"), enumerate(self.names), ENDS):
                row[f"{kind}{end}[{readable(name)}]"] = float(
                    getattr(self.bounds, kind + end)[i, j]
                )
            rows.append(row)
        return as_frame(rows)


def _plain_row(row: Row) -> dict[str, Any]:
    numbers = {name: getattr(row, name) for name in ("value", "lower", "upper", "right", "size")}
    return {"kind": row.kind, "parameters": list(row.parameters), **numbers}


def _plain(value: Any) -> Any:
    """A value that JSON knows."""
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _listed(words: Sequence[str]) -> str:
    """Words in a row, with 'and' before the last."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
