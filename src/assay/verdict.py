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
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from .answers.bounds import Bounds
from .answers.predictive import PredictiveResult
from .answers.rows import Row
from .answers.typical import Typical
from .local.score import ScoreResult
from .names import readable, shorten
from .results import Frozen, Result, equals, holm, html_part, laid_out, number, position, wrapped

if TYPE_CHECKING:
    from .check import Surroundings

# The most urgent first.
VERDICTS = REJECTED, OUTSIDE, INCONCLUSIVE, PASSED = (
    "rejected",
    "outside",
    "inconclusive",
    "passed",
)
# The share of the level that tests over all x have together.
OVER_ALL_X = 0.1
# Parameters in a table, and other rows that are wrong, at most.
MOST_PARAMETERS, MOST_OTHERS = 8, 2
# Letters of a name in a table.
LETTERS = 12
# Observations that are printed, and lines on a single one, at most.
MOST_LINES, MOST_LINES_OF_ONE = 32, 16
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


@dataclass(frozen=True, eq=False, repr=False)
class Verdict(Frozen):
    """What was found at o observations with m parameters.

    Args:
        names: Names of the parameters.
        labels: Names of the observations.
        alpha: The level.
        tolerance: How far off q may be where it passes.
        typical: Whether the observations are like the simulations.
        test: The exact test of q near them.
        bounds: How far off q can be near them.
        remarks: What is to be said of the samples.
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
    surroundings: "Surroundings | None" = None
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

    @property
    def verdicts(self) -> tuple[str, ...]:
        """A word for each observation."""
        within = np.where(self.bounds.within(self.tolerance), PASSED, INCONCLUSIVE)
        words = np.where(self.pvalue <= self.alpha + 1e-12, REJECTED, within)
        return tuple(map(str, np.where(self.typical.outside, OUTSIDE, words)))

    @property
    def passed(self) -> np.ndarray:
        """Whether q passed at each observation, (o,)."""
        return np.array([word == PASSED for word in self.verdicts])

    @property
    def over_all_x(self) -> dict[str, float]:
        """The smallest p-value of each test over all x, corrected for all their quantities."""
        results: dict[str, Result] = {
            "SBC": self.sbc,
            "coverage": self.coverage,
            "TARP": self.tarp,
        }
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

    def other_sentences(self, which: int | str = 0) -> list[str]:
        """What is wrong besides means, widths and coverage of parameters, the worst first.

        Coverage of regions follows from the rest, and counts where nothing else is wrong.
        """
        rows = self.wrong(which)
        alone = all(row.kind == "region_coverage" for row in rows)
        left_out = COLUMNS if alone else (*COLUMNS, "region_coverage")
        return [row.sentence for row in rows if row.kind not in left_out][:MOST_OTHERS]

    # Sentences.

    def headline(self, which: int | str = 0) -> str:
        """The answer at one observation, in one or two sentences."""
        i = position(self.labels, which)
        words = {
            OUTSIDE: self._outside,
            REJECTED: self._rejected,
            INCONCLUSIVE: self._inconclusive,
            PASSED: self._passed,
        }
        return f"{self.labels[i]}: {words[self.verdicts[i]](i)}"

    def next_step(self, which: int | str = 0) -> str:
        """What to do about it, in one sentence."""
        i = position(self.labels, which)
        verdict = self.verdicts[i]
        if verdict == REJECTED and self.bounds.within(self.tolerance)[i]:
            return "Quote these bounds, if errors of this size do not matter to you."
        if verdict == INCONCLUSIVE and self.bounds.draws < 2:
            return "Check with more draws of q at each x; 16 are good."
        return {
            REJECTED: "Train q longer or on more simulations, then check it with fresh pairs.",
            OUTSIDE: "Look at these features: does the simulator make what was measured?",
            INCONCLUSIVE: "Check with more pairs, or let the simulator make them around x_o.",
            PASSED: "Quote this bound; nothing else is needed.",
        }[verdict]

    def _rejected(self, i: int) -> str:
        p = f"p {equals(float(self.pvalue[i]))}"
        corrected = f", corrected for {len(self)} observations" if len(self) > 1 else ""
        near = f"{self.settings['n']} pairs, {self._nearest(i)}"
        if self.bounds.within(self.tolerance)[i]:
            return (
                f"rejected, but within the tolerance. q is wrong near x_o ({p}{corrected}; "
                f"{near}), but {self._limits(i)}."
            )
        return f"rejected. q is wrong near x_o ({p}{corrected}; {near})."

    def _passed(self, i: int) -> str:
        return f"passed. On average over the {self._nearest(i)}, {self._limits(i)}."

    def _limits(self, i: int) -> str:
        """How far off means and widths can be at most."""
        bias, width = self._farthest_ends(i)
        return f"every mean is right within {bias} and every width within {width} (95 %)"

    def _farthest_ends(self, i: int, some: Any = slice(None)) -> tuple[str, str]:
        """How far off the means and widths of some parameters can be at most, in words."""
        bias, ratio = (part[some].max() for part in self._ends(i))
        return f"{number(float(bias), 2)} sd", f"{100 * (ratio - 1):.2g} %"

    def _ends(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """The farther ends (m,) of means, and of widths as factors above one."""
        b = self.bounds
        ratio = np.maximum(1 / b.width_lower[i], b.width_upper[i])
        return np.maximum(-b.bias_lower[i], b.bias_upper[i]), ratio

    def _inconclusive(self, i: int) -> str:
        p = float(self.test.pvalue[i])
        found = "No error was found"
        if p <= self.alpha:
            found = f"p {equals(p)} is not significant, corrected for {len(self)} observations"
        words = f"inconclusive. {found}, but {self._left_open(i)}."
        pairs = float(self.bounds.pairs_for(self.tolerance)[i])
        if self.bounds.draws < 2 or not math.isfinite(pairs):
            return words
        enough = f"About {_rounded_up(pairs)}" if pairs > self.bounds.n else "More"
        return f"{words} {enough} pairs would settle it."

    def _left_open(self, i: int) -> str:
        """Why q does not pass where it is not rejected."""
        if self.bounds.draws < 2:
            return "widths cannot be bounded with one draw of q at each x"
        bias, ratio = self._ends(i)
        unknown = np.isnan(bias + ratio)
        if unknown.any():
            names = [readable(self.names[j]) for j in np.flatnonzero(unknown)[:MOST_OTHERS]]
            return f"errors of {_listed(names)} cannot be bounded"
        sizes = np.concatenate([bias / self.tolerance, np.log(ratio) / math.log1p(self.tolerance)])
        worst, m = int(sizes.argmax()), len(self.names)
        name = readable(self.names[worst % m])
        if worst < m:
            return f"a mean may be off by {number(float(bias[worst]), 2)} sd ({name})"
        return f"a width may be off by a factor of {number(float(ratio[worst - m]), 2)} ({name})"

    def _outside(self, i: int) -> str:
        p = equals(float(self.typical.adjusted[i]))
        corrected = f", corrected for {len(self)} observations" if len(self) > 1 else ""
        return (
            f"outside. x_o is unlike the simulations (p {p}{corrected}): "
            f"{self.typical.sentences[i]}. Nothing is said of q."
        )

    def _nearest(self, i: int) -> str:
        share = self.test.near[i] / self.settings["n"]
        return f"nearest {100 * share:.2g} %"

    def _context(self, i: int) -> str:
        """What stands beside the answer."""
        like = f"x_o is like the simulations (p {equals(float(self.typical.pvalue[i]))})."
        return " ".join([like, *self._elsewhere])

    @property
    def _elsewhere(self) -> list[str]:
        """What tests over all x, and simulations of a draw of q, say."""
        said = []
        known = [word != OUTSIDE for word in self.verdicts]
        if self.predictive is not None and any(known):
            said.append(self.predictive.said(self.alpha, self.labels, known))
        pvalues = self.over_all_x
        low = [name for name, p in pvalues.items() if p <= OVER_ALL_X * self.alpha]
        if low:
            said.append(f"Over all x, {_listed(low)} reject{'s' * (len(low) == 1)} q.")
        elif pvalues:
            said.append(f"Over all x, {_listed(list(pvalues))} do not reject q.")
        return said

    # Text.

    def text(self, most: int = MOST_LINES) -> str:
        """What was found, for a terminal; of many observations so many lines at most."""
        remarks = [wrapped(remark, "  ") for remark in self.remarks]
        step = wrapped(f"Next: {self.next_step(self.urgency[0])}", "  ")
        lines = self._one(step) if len(self) == 1 else self._many(most)
        return "\n".join([*lines, *remarks, step])

    def _one(self, step: str) -> list[str]:
        """The answer, a table as long as there is room above the next step, and the context."""
        head = wrapped(self.headline(), "  ").split("\n")
        if self.verdicts[0] == OUTSIDE:
            return head
        foot = wrapped(self._context(0), "  ").split("\n")
        room = MOST_LINES_OF_ONE - len([*head, "", "", *foot, *step.split("\n")])
        for most in range(MOST_PARAMETERS, 0, -1):
            table = self._table(0, most)
            if len(table) <= room:
                break
        return [*head, "", *table, "", *foot]

    def _table(self, i: int, most: int) -> list[str]:
        """Means, widths and coverage of the parameters that matter most, and other wrong rows."""
        rejected = self.verdicts[i] == REJECTED
        chosen = self.shown_parameters(i, most)
        head = ["parameter", "mean of q - true, sd", "width q / true", "90 % interval holds"]
        names = [readable(self.names[j]) for j in chosen]
        if len({shorten(name, LETTERS) for name in names}) == len(names):
            names = [shorten(name, LETTERS) for name in names]
        rows = [
            [name, *(self._cell(i, j, kind, rejected) for kind in COLUMNS)]
            for name, j in zip(names, chosen, strict=True)
        ]
        lines = laid_out(head, rows)
        rest = [j for j in range(len(self.names)) if j not in chosen]
        if rest:
            lines.append(self._of_the_rest(i, rest))
        others = self.other_sentences(i)
        if others:
            lines.append(f"Also: {'; '.join(others)}.")
        if rejected and not self.wrong(i):
            lines.append(f"No single number is wrong beyond its interval: {self._evidence(i)}.")
        if any(cell.endswith("*") for row in rows for cell in row[1:]):
            lines.append("* wrong. Intervals hold for all rows together with probability 0.95.")
        return [part for line in lines for part in wrapped(line, "  ").split("\n")]

    def _of_the_rest(self, i: int, rest: list[int]) -> str:
        """Parameters that a table leaves out."""
        names = {name for row in self.wrong(i) for name in row.parameters if row.kind in COLUMNS}
        wrong = len(names & {self.names[j] for j in rest})
        words = f"and {len(rest)} more" + (f", {wrong} of them wrong" if wrong else "")
        bias, width = self._farthest_ends(i, rest)
        if "nan" in (bias + width):
            return words
        return f"{words}: means within {bias}, widths within {width}"

    def _evidence(self, i: int) -> str:
        """Where the test found its evidence."""
        kind = self.test.kinds[int(self.test.evidence[i].argmin())]
        return f"the error is {KINDS[kind]}"

    def shown_parameters(self, which: int, most: int = MOST_PARAMETERS) -> list[int]:
        """The parameters that a table shows: the wrong ones and the widest, in their order."""
        b, m = self.bounds, len(self.names)
        sizes = np.maximum(-b.bias_lower[which], b.bias_upper[which])
        ends = np.abs(np.log([b.width_lower[which], b.width_upper[which]])).max(0)
        sizes = np.nan_to_num(np.maximum(sizes / 0.5, ends / math.log(1.5)), nan=0.0)
        wrong = {name for row in self.wrong(which) for name in row.parameters}
        sizes += 1e6 * np.array([name in wrong for name in self.names])
        return sorted(np.argsort(-sizes, kind="stable")[:most].tolist() if m > most else range(m))

    def _cell(self, i: int, j: int, kind: str, rejected: bool) -> str:  # noqa: FBT001
        parts = [getattr(self.bounds, kind + end)[i, j] for end in ("", "_lower", "_upper")]
        if kind == "coverage":
            parts = [part[1] for part in parts]
        if np.isnan(parts).any():
            return "–"
        value, lower, upper = (float(part) for part in parts)
        right = {"bias": 0.0, "width": 1.0, "coverage": 0.9}[kind]
        mark = " *" if rejected and not lower <= right <= upper else "  "
        if kind == "coverage":
            return f"{100 * value:.0f} % ({100 * lower:.0f} to {100 * upper:.0f}){mark}"
        return f"{value:.2f} ({lower:.2f} to {upper:.2f}){mark}"

    def _many(self, most: int) -> list[str]:
        """A line that counts, and a line for each observation, the most urgent first."""
        words = self.verdicts
        counts = ", ".join(f"{words.count(word)} {word}" for word in VERDICTS if word in words)
        lines = [wrapped(f"Of {len(self)} observations: {counts}.", "  ")]
        order = self.urgency[:most]
        cells = [[self.labels[i], f" {words[i]}", self._p(i), self.reason(i)] for i in order]
        pairs = f"{self._nearest(0)} of {self.settings['n']} pairs; corrected p"
        lines += ["", *laid_out(["", " verdict", "p", pairs], cells, left=2, clip_last=True), ""]
        if len(self) > most:
            lines.append(f"... and {len(self) - most} more")
        return lines + [wrapped(" ".join(self._elsewhere), "  ")] * bool(self._elsewhere)

    @property
    def urgency(self) -> list[int]:
        """The observations, the most urgent first."""
        words = self.verdicts
        return sorted(
            range(len(self)), key=lambda i: (VERDICTS.index(words[i]), float(self.pvalue[i]))
        )

    def reason(self, which: int | str) -> str:
        """The verdict at an observation in a few words."""
        i = position(self.labels, which)
        match self.verdicts[i]:
            case "rejected":
                rows = self.wrong(i)
                return rows[0].sentence if rows else self._evidence(i)
            case "outside":
                return self.typical.sentences[i]
            case "inconclusive":
                return self._left_open(i)
        bias, width = self._farthest_ends(i)
        return f"means within {bias}, widths within {width}"

    def _p(self, i: int) -> str:
        return "–" if self.verdicts[i] == OUTSIDE else equals(float(self.pvalue[i])).lstrip("= ")

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return html_part(f"<pre>{escape(self.text())}</pre>")

    # Plain values.

    def to_frame(self) -> Any:
        """One row for each observation, as a pandas frame; a list of dicts without pandas."""
        rows = [self._plain_row(i) for i in range(len(self))]
        try:
            from pandas import DataFrame
        except ModuleNotFoundError:
            return rows
        return DataFrame(rows)

    def _plain_row(self, i: int) -> dict[str, Any]:
        known = self.verdicts[i] != OUTSIDE
        row = {
            "observation": self.labels[i],
            "verdict": self.verdicts[i],
            "pvalue": float(self.pvalue[i]) if known else math.nan,
            "pvalue_of_x_o": float(self.typical.pvalue[i]),
            "why": self.reason(i),
        }
        for kind in ("bias", "width"):
            for j, name in enumerate(self.names):
                for end in ("", "_lower", "_upper"):
                    value = float(getattr(self.bounds, kind + end)[i, j])
                    row[f"{kind}{end}[{readable(name)}]"] = value if known else math.nan
        return row

    @property
    def record(self) -> dict[str, Any]:
        """All numbers and words as plain values, ready for JSON; what is not known is None."""
        return {
            "alpha": self.alpha,
            "tolerance": self.tolerance,
            "hypothesis": self.test.hypothesis,
            "parameters": list(self.names),
            "observations": [self._record(i) for i in range(len(self))],
            "over_all_x": self.over_all_x,
            "remarks": list(self.remarks),
            "settings": {key: plain(value) for key, value in self.settings.items()},
        }

    def _record(self, i: int) -> dict[str, Any]:
        known = self.verdicts[i] != OUTSIDE
        return {
            "label": self.labels[i],
            "verdict": self.verdicts[i],
            "sentence": self.headline(i),
            "next_step": self.next_step(i),
            "pvalue": plain(float(self.pvalue[i])) if known else None,
            "pvalue_of_x_o": float(self.typical.pvalue[i]),
            "rows": [_plain_of(row) for row in self.bounds.rows[i]] if known else [],
        }


COLUMNS = ("bias", "width", "coverage")


def _plain_of(row: Row) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "parameters": list(row.parameters),
        **{key: plain(getattr(row, key)) for key in ("value", "lower", "upper", "right", "size")},
    }


def plain(value: Any) -> Any:
    """A value that JSON knows."""
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _listed(words: Sequence[str]) -> str:
    """Words in a row, with 'and' before the last."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _rounded_up(value: float) -> int:
    """A number with two digits, rounded up."""
    unit = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit) * unit
