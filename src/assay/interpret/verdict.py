"""The verdict: all that a suite of tests says of a posterior, at the observations asked for.

Only one local test sets the verdict. Its hypothesis is that q is right throughout the
neighbourhood of x_o, and its p-values are corrected for the number of observations. Effects are
called wrong only where it rejects. Tests over all x are corrected for all their quantities, and
are said to reject at a tenth of the level: where q is right, anything at all is said to be wrong
with probability 1.1 alpha at most. With a simulator, x_o is said to be unusual for the model with
probability alpha at most, where it is not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from ..diagnostics.average.coverage import CoverageResult, TARPResult
from ..diagnostics.average.sbc import SBCResult
from ..diagnostics.local.lpit import LPITResult
from ..diagnostics.local.score import ScoreResult
from ..results import (
    MOST_ROWS,
    LC2STResult,
    Readable,
    Result,
    equals,
    holm,
    laid_out,
    number,
    probability,
    rows_of,
    wrapped,
)
from .effects import Effects
from .errors import percent
from .health import Health
from .names import readable
from .notebook import Compact, page
from .power import PowerResult
from .predictive import PredictiveResult
from .trust import INCONCLUSIVE, OUTSIDE, PASSED, REJECTED, VERDICTS, Simulated, TrustMap, few_near

# The share of the level that tests over all x have.
OVER_ALL_X = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class Verdict(Readable):
    """What was found at o observations; arrays of its parts have a leading axis of length o.

    Args:
        names: Names of the m parameters.
        labels: Names of the o observations.
        local: The local test that decides.
        detectable, trust: The errors it detects, parameter by parameter, and verdicts by both.
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
        predictive: Where x_o lies among simulations of a draw of q; None without a simulator.
        simulated: Some simulated observations, and which of them are near; None if not known.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    local: ScoreResult
    detectable: PowerResult
    trust: TrustMap
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
    predictive: PredictiveResult | None = None
    simulated: Simulated | None = None
    heading: ClassVar[str] = "observation"

    @property
    def readable(self) -> Self:
        """The same with names of parameters as people read them, where nothing typesets TeX."""
        parts = {
            key: getattr(self, key)
            for key in ("effects", "classifier_effects", "sbc", "coverage")
            if getattr(self, key) is not None
        }
        short = {key: replace(part, names=_renamed(part.names)) for key, part in parts.items()}
        return replace(self, names=_renamed(self.names), **short)

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
        """P-values of the test that decides, (o,), each by itself; see :attr:`adjusted`."""
        return self.local.pvalue

    @property
    def adjusted(self) -> np.ndarray:
        """The same corrected for the number of observations, (o,); these set the verdict."""
        return self.local.adjusted

    def _rows_to_frame(self) -> list[dict[str, Any]]:
        pairs = zip(super()._rows_to_frame(), self.verdicts, strict=True)
        return [{self.heading: row.pop(self.heading), "verdict": v, **row} for row, v in pairs]

    @property
    def rejected(self) -> np.ndarray:
        """Whether q is rejected at each observation, (o,)."""
        return np.array([word == REJECTED for word in self.verdicts])

    @property
    def verdicts(self) -> tuple[str, ...]:
        """A word for each observation: rejected, passed, inconclusive or outside."""
        return self.trust.verdicts

    def outside(self, which: int) -> bool:
        """Whether an observation lies outside the simulated ones, so that nothing is said."""
        return self.verdicts[which] == OUTSIDE

    def detected_at(self, which: int) -> dict[str, str]:
        """The error that is detected at an observation, by its kind: in sd of q, or in percent."""
        sizes = {c.error.kind: float(c.mde[which]) for c in self.detectable.weakest.curves}
        sizes["too narrow"] = sizes["too narrow"] / (1 + sizes["too narrow"])
        return {
            kind: "none" if not np.isfinite(size) else percent(size) if wide else f"{size:.2g}"
            for kind, size in sizes.items()
            for wide in [kind.startswith("too")]
        }

    @property
    def global_tests(self) -> dict[str, Result]:
        """The tests over all x, by name."""
        results = {"SBC": self.sbc, "coverage": self.coverage, "TARP": self.tarp}
        return {name: result for name, result in results.items() if result is not None}

    @property
    def global_pvalues(self) -> dict[str, float]:
        """The smallest p-value of each of them, adjusted for all quantities of all of them."""
        each = {name: np.atleast_1d(r.pvalue) for name, r in self.global_tests.items()}
        if not each:
            return {}
        ends = np.cumsum([len(p) for p in each.values()])[:-1]
        adjusted = np.split(holm(np.concatenate(list(each.values()))), ends)
        return {name: float(p.min()) for name, p in zip(each, adjusted, strict=True)}

    def over_all_x(self, name: str) -> str:
        """What one of them says."""
        if self.global_pvalues[name] <= OVER_ALL_X * self.alpha:
            return self.global_tests[name].sentence
        return "No error found."

    @property
    def auc(self) -> np.ndarray:
        """How well truths are told from draws near observations, with shape (o,)."""
        assert self.local.auc is not None
        return self.local.auc.value

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each observation: p-values, detectable effects, and pairs."""
        support = self.local.support
        assert support is not None
        columns = {"p-value": self.pvalue}
        if len(self.labels) > 1:
            columns["corrected p"] = self.local.adjusted
        if self.classifier is not None:
            columns["classifier p"] = self.classifier.pvalue
        columns["AUC"] = self.auc
        for curve in self.detectable.weakest.curves:
            columns[f"detectable {curve.error.kind}"] = curve.mde
        columns["simulations near"] = support.pairs
        return rows_of(columns)

    @property
    def statements(self) -> tuple[str, ...]:
        """Sentences on where q is wrong and how, where it passed, and what else shows."""
        said = (self._counted, *self._wrong, *self._passed, *self._open, *self._elsewhere)
        return (*said, *self.remarks)

    @property
    def verdict(self) -> str:
        """The same as one paragraph."""
        return " ".join(self.statements)

    def summary(self) -> str:
        """A table with a line for each observation, what it means, and the tests over all x."""
        return self._summary(len(self.labels))

    def _summary(self, most: int) -> str:
        """The same with so many lines of the table."""
        compact = self._compact
        # Another blank before verdicts, for a symbol.
        table = [[row[0], f" {row[1]}", *row[2:]] for row in (compact.head, *compact.rows)]
        lines = laid_out(table[0], table[1 : most + 1], left=2)
        if len(self.labels) > most:
            lines.append(f"... and {len(self.labels) - most} more")
        return "\n".join([*lines, "", *(wrapped(note, "  ") for note in compact.notes)])

    @property
    def _compact(self) -> Compact:
        """The table that is printed; nothing is said of what lies outside."""
        support, detectable = self.local.support, self._detectable
        assert support is not None
        columns = [
            [probability(float(p)) for p in self.local.adjusted],
            [f"{auc:.2f}" for auc in self.auc],
            *([_size(name, size) for size in sizes] for name, sizes in detectable.items()),
            [f"{count:.0f}" for count in support.pairs],
        ]
        rows = [list(row) for row in zip(self.labels, self.verdicts, *columns, strict=True)]
        said = [[*row[:2], *["–"] * 5, row[-1]] if row[1] == OUTSIDE else row for row in rows]
        p = "p" if len(self.labels) == 1 else "corr. p"
        head = [self.heading, "verdict", p, "AUC", *detectable, "near"]
        return Compact(head, said, self._notes)

    @property
    def _detectable(self) -> dict[str, np.ndarray]:
        """Detectable sizes (o,): of a shift in sd, and by how much widths are wrong."""
        mde = {curve.error.kind: curve.mde for curve in self.detectable.weakest.curves}
        narrow = 1 - 1 / (1 + mde["too narrow"])
        return {"shift": mde["shift"], "wide": mde["too wide"], "narrow": narrow}

    @property
    def _notes(self) -> list[str]:
        """What is tested, what the columns are, and the tests over all x."""
        o = len(self.labels)
        corrected = f"corr. p: p, corrected for {o} observations. " if o > 1 else ""
        columns = (
            f"{corrected}AUC: 0.5 if q is right. Detectable in any single parameter with "
            f"probability {self.detectable.target:g}: a shift, in sd of q; an sd too wide or too "
            "narrow by so much. near: simulations as close to x_o as 5 % of all are to a "
            "typical x."
        )
        tested = f"H0: {self.hypothesis}. Only this test sets the verdict."
        over_all_x = (
            f"{name} over all x: p {equals(p)}. {self.over_all_x(name)}"
            for name, p in self.global_pvalues.items()
        )
        return [tested, columns, *over_all_x]

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
                name: {"pvalue": p, "sentence": self.over_all_x(name)}
                for name, p in self.global_pvalues.items()
            },
            "settings": {k: _plain(v) for k, v in self.settings.items()},
        }

    def _record(self, which: int, row: Mapping[str, float]) -> dict[str, Any]:
        ratio, there = self.classifier_effects, self.predictive
        return {
            **{"label": self.labels[which], "verdict": self.verdicts[which], **_keyed(row)},
            "sentence": self.at(which),
            "effects": _effects(self.effects[which]),
            "ratio": None if ratio is None else _effects(ratio[which]),
            "predictive_pvalue": None if there is None else float(there.pvalue[which]),
        }

    def __repr__(self) -> str:
        return self.text(MOST_ROWS)

    def text(self, most: int | None = None) -> str:
        """The verdict and the table, with so many lines at most; as wide as the terminal."""
        shown = self.readable
        said = "\n".join(wrapped(statement, "  ") for statement in shown.statements)
        return f"{said}\n\n{shown._summary(len(self.labels) if most is None else most)}"

    def _repr_html_(self) -> str:
        shown = self.readable
        return page(shown.statements, shown._compact, self.local)

    def at(self, which: int) -> str:
        """What is to be said of one observation."""
        if self.verdicts[which] == OUTSIDE:
            return self._standing(which)
        return f"{self._standing(which)} {self.effects[which].sentence}"

    def _standing(self, which: int) -> str:
        label, word = self.labels[which], self.verdicts[which]
        match word:
            case "rejected":
                return f"{label}: rejected ({self._p(which)})."
            case "passed":
                return f"{label}: passed. No error found. {self._detected([which])}"
        return f"{label}: {word}. {self._reason(which)}"

    def _p(self, which: int) -> str:
        """The p-value in words, with what it could be at least."""
        p, nulls = float(self.local.adjusted[which]), self.local.null.shape[-1]
        least = p <= (1 + 1e-9) / (1 + nulls)
        said = [f"p {equals(p)}"]
        if len(self.labels) > 1:
            said.append(f"corrected for {len(self.labels)} observations")
        if least:
            said.append(f"the smallest possible with {nulls} null copies")
        return ", ".join(said)

    def _detected(self, which: list[int]) -> str:
        """What is detected at some observations, in the parameter where it is hardest."""
        sizes = {
            curve.error.kind: float(np.max(curve.mde[which]))
            for curve in self.detectable.weakest.curves
        }
        fading = sizes.get("fading shift", np.inf)
        confined = (
            f"; a shift that fades over the nearest 5 % from {fading:.2g} sd on"
            if np.isfinite(fading)
            else "; not a shift that fades over the nearest 5 %"
        )
        narrow = sizes["too narrow"] / (1 + sizes["too narrow"])
        return (
            f"With probability {self.detectable.target:g} the test detects any single parameter "
            f"shifted by {sizes['shift']:.2g} sd, any single width {percent(sizes['too wide'])} "
            f"too large or {percent(narrow)} too small, if the error is there "
            f"{self.local.settings['scope']} around x_o{confined}. Not checked: smaller errors, "
            "and errors in a smaller part of x."
        )

    def _reason(self, which: int) -> str:
        """Why nothing is said of an observation."""
        if self.verdicts[which] == OUTSIDE:
            return "It lies outside the simulated observations; nothing can be said there."
        p = float(self.pvalue[which])
        if p <= self.alpha:
            return (
                f"p {equals(p)} is not significant after correction for {len(self.labels)} "
                "observations."
            )
        if few_near(self.local)[which]:
            support = self.local.support
            assert support is not None
            return (
                f"No error found, but only {int(support.pairs[which])} simulations are near, "
                "where a typical x has more than five times as many."
            )
        missed = " or ".join(
            curve.error.any.words(self.trust.relevant)
            for curve in self.detectable.weakest.curves
            if curve.mde[which] > self.trust.relevant and curve.error.kind != "fading shift"
        )
        return (
            f"No error found, but the test could not have detected {missed} in a single parameter."
        )

    @property
    def _counted(self) -> str:
        o = len(self.labels)
        test = (
            f"({self.local.settings['test']}, {self.local.settings['n']} calibration pairs, "
            f"level {self.alpha:g})"
        )
        if o == 1:
            return f"{self.labels[0]}: {self.verdicts[0]} {test}."
        words = dict.fromkeys(sorted(self.verdicts, key=VERDICTS.index))
        counts = ", ".join(f"{self.verdicts.count(word)} {word}" for word in words)
        return f"Of {o} observations: {counts} {test}."

    @property
    def _wrong(self) -> list[str]:
        which = np.flatnonzero(self.rejected)
        whose = [""] if len(self.labels) == 1 else [f"{label}: " for label in self.labels]
        said = [f"{whose[i]}{self._told(i)}" for i in which[:5]]
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
    def _passed(self) -> list[str]:
        which = self._where(PASSED)
        if not which:
            return []
        at = "" if len(self.labels) == 1 else f"At {self._named(which)}: "
        return [f"{at}No error found. {self._detected(which)}"]

    @property
    def _open(self) -> list[str]:
        which = [*self._where(INCONCLUSIVE), *self._where(OUTSIDE)]
        one = len(self.labels) == 1
        said = [f"{'' if one else f'{self.labels[i]}: '}{self._reason(i)}" for i in which[:5]]
        return said + ([f"So are {len(which) - 5} more."] if len(which) > 5 else [])

    def _where(self, verdict: str) -> list[int]:
        return [i for i, word in enumerate(self.verdicts) if word == verdict]

    def _named(self, which: Iterable[int]) -> str:
        return _listed([self.labels[i] for i in which])

    @property
    def _elsewhere(self) -> list[str]:
        """What tests over all x and simulations of a draw of q say."""
        there = self.predictive
        said = [] if there is None else [there.said(self.alpha, self.labels)]
        return [*said, *self._over_all_x]

    @property
    def _over_all_x(self) -> list[str]:
        low = [n for n, p in self.global_pvalues.items() if p <= OVER_ALL_X * self.alpha]
        if low:
            return [f"Over all x, {_listed(low)} reject{'s' if len(low) == 1 else ''} q."]
        if not self.global_tests:
            return []
        return [f"Over all x, {_listed(list(self.global_tests))} do not reject q."]


def _renamed(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(readable, names))


def _listed(words: list[str], most: int = 5) -> str:
    """Words in a row, with 'and' before the last."""
    if len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _size(name: str, size: float) -> str:
    """A detectable size in two digits: of a shift, or by how much a width is wrong."""
    if not size < np.inf or (name == "narrow" and size >= 1):
        return "none"
    return number(size, 2) if name == "shift" else percent(size)


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
