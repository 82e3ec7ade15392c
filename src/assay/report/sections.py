"""Sections: what the report says without any drawing, as HTML that is read without scripts."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..effects import TITLES
from ..findings import Findings
from ..ratios import DIVERGENCES, Estimate
from ..results import LEVELS, Tested
from ..version import versions
from .markup import Markup, Row, joined, table, tag
from .observed import MOST_PARAMETERS, Observed
from .places import Places
from .words import between, number, probability, share

__all__ = ["TITLES_OF_SECTIONS", "sections"]

TITLES_OF_SECTIONS = {
    "verdict": "Verdict",
    "where": "Where",
    "observation": "The selected observation",
    "overall": "Over all x",
    "classifier": "The classifier",
    "made": "How it was made",
}
# Sentences of a verdict that make one paragraph, at most.
MOST_SENTENCES = 4
# Shapes that tell verdicts apart without colour, in a box of 12 by 12.
SHAPES = {
    "rejected": tag("path", d="M1.5 1.5 10.5 10.5M10.5 1.5 1.5 10.5", class_="stroke"),
    "trusted": tag("circle", cx=6, cy=6, r=5),
    "untested": tag("path", d="M6 1 11.5 11H.5Z"),
    "not rejected": tag("circle", cx=6, cy=6, r="4.2", class_="stroke"),
}
NO_DRAWS = "they need at least 4 draws of q at each x, and there were fewer"
NO_PITS = (
    "they need latents of a flow, or at least two draws of q more than parameters at each x, and "
    "there were fewer"
)
NO_CLASSIFIER = "no classifier was run in this check"
NO_NULLS = "the nulls of this test are not fitted, so that they have no curves"
NO_POWER = (
    "it is measured for the moment test only, which asks for latents of a flow or for at least "
    "two draws of q more than parameters at each x"
)


def sections(found: Findings, observed: Observed) -> dict[str, Markup]:
    """The content of every section, by name."""
    return {
        "verdict": _verdict(found),
        "where": _where(found),
        "observation": _observation(found, observed),
        "overall": _overall(found),
        "classifier": _classifier(found),
        "made": _made(found),
    }


def _lead(statements: tuple[str, ...]) -> list[Markup]:
    """The verdict: a paragraph, or a list where there is much to say."""
    if len(statements) <= MOST_SENTENCES:
        return [tag("p", " ".join(statements), class_="lead")]
    first, *others = statements
    return [
        tag("p", first, class_="lead"),
        tag("ul", *(tag("li", said) for said in others), class_="lead"),
    ]


def _verdict(found: Findings) -> Markup:
    counts = [
        tag("li", _badge(kind, f"{found.verdicts.count(kind)} {kind}"))
        for kind in SHAPES
        if kind in found.verdicts
    ]
    head = ["observation", "verdict", "p-value", "adjusted p", "classifier p"]
    head += ["would have been seen", "pairs near", "p in the cloud"]
    rows = [_summary(found, i) for i in range(len(found.labels))]
    words = ("verdict", "would have been seen")
    return joined(
        [
            tag("ul", *counts, class_="counts", aria_label="Verdicts, counted"),
            *_lead(found.statements),
            table("Every observation; choose one to see it below.", head, rows, attributes=words),
            tag("p", f"H0: {found.local.hypothesis}. {_adjusted(found)}", class_="note"),
        ]
    )


def _summary(found: Findings, i: int) -> Row:
    """One observation in the table of verdicts."""
    surroundings = found.local.surroundings
    link = tag("a", found.labels[i], href=f"#observation-{i}", data_observation=i)
    classified = "–" if found.classified is None else _p(found.classified.pvalue[i])
    near = "–" if surroundings is None else f"{int(surroundings.pairs[i])}"
    inside = "–" if surroundings is None else _p(surroundings.pvalue[i])
    numbers = [_p(found.local.pvalue[i]), _p(found.local.adjusted[i]), classified]
    return [link, _badge(found.verdicts[i]), *numbers, _seen(found, i), near, inside]


def _seen(found: Findings, i: int) -> str:
    if found.seen is None:
        return "not measured"
    return "; ".join(curve[i].words() for curve in found.seen.curves)


def _badge(kind: str, words: str | None = None) -> Markup:
    """A verdict by its shape, its colour and its word."""
    shape = tag("svg", SHAPES[kind], viewBox="0 0 12 12", aria_hidden="true")
    return tag("span", shape, words or kind, class_=f"badge {kind.replace(' ', '-')}")


def _where(found: Findings) -> Markup:
    places = Places(found)
    said = (
        "Every observation at its x"
        + (
            ""
            if found.cloud is None
            else f", among {len(found.cloud.x)} observations of the calibration at which q was "
            "judged besides, fainter"
        )
        + ". Choose an observation to see it below."
    )
    if found.cloud is not None:
        words = found.cloud.sentence
        said = f"{said} Among those of the calibration: {words[0].lower()}{words[1:]}"
    options = joined(tag("option", name, value=i) for i, name in enumerate(places.coordinates))
    controls = tag(
        "div",
        *(
            tag("label", f"{axis} ", tag("select", options, id=f"axis-{key}"))
            for key, axis in (("x", "Across"), ("y", "Upwards"))
        ),
        class_="controls",
    )
    return joined(
        [tag("p", said), controls, _figure("places", "Trust map", "", places.words, kind="wide")]
    )


def _observation(found: Findings, observed: Observed) -> Markup:
    options = joined(
        tag("option", f"{label} ({word})", value=i)
        for i, (label, word) in enumerate(zip(found.labels, found.verdicts, strict=True))
    )
    controls = tag(
        "div",
        tag("button", "‹ Previous", type="button", id="previous"),
        tag("label", "Observation ", tag("select", options, id="chosen")),
        tag("button", "Next ›", type="button", id="next"),
        tag("span", "The arrow keys ← and → do the same.", class_="note keys"),
        class_="controls",
        hidden=len(found.labels) == 1,
    )
    articles = joined(_article(found, i) for i in range(len(found.labels)))
    return joined(
        [
            controls,
            tag("p", "", id="said", class_="hidden", aria_live="polite"),
            articles,
            tag("div", *_observed_figures(found, observed), class_="grid"),
        ]
    )


def _article(found: Findings, i: int) -> Markup:
    """What is known at one observation, without figures."""
    return tag(
        "article",
        tag("h3", found.labels[i], " ", _badge(found.verdicts[i]), tabindex=-1),
        tag("p", found.at(i), class_="lead"),
        _pvalues(found, i),
        _effects(found, i),
        id=f"observation-{i}",
        data_label=found.labels[i],
        data_said=f"{found.labels[i]}, {i + 1} of {len(found.labels)}. {found.at(i)}",
    )


def _pvalues(found: Findings, i: int) -> Markup:
    head = ["test", "p-value", "adjusted p", "H0: what a small p-value speaks against"]
    caption = f"P-values at {found.labels[i]}. The first decides; the others are beside it."
    return table(caption, head, _tests(found, i), attributes=head[-1:])


def _tests(found: Findings, i: int) -> Iterator[Row]:
    """A row for each test at one observation."""
    yield _row(found.local, i, f"{found.local.settings['test']} (decides)")
    if found.classified is not None:
        yield _row(found.classified, i, f"{found.classified.settings['test']}, classifier")
    if found.pits is not None:
        pits, hypothesis = found.pits, found.pits.hypothesis
        yield _row(pits, i, pits.settings["test"])
        yield ["PIT curves alone", _p(pits.pvalue_curves[i]), "–", hypothesis]
        if len(pits.names) > 1:
            alone = _p(pits.pvalue_independence[i])
            yield ["independence of PITs alone", alone, "–", hypothesis]
    tail = found.effects[i].tail
    if tail is not None:
        expected = float(tail.share * tail.truths[-1])
        words = (
            f"No more truths than {number(expected)} of {int(tail.truths[-1])} lie in the "
            f"outermost {share(float(tail.share))} of q ({int(tail.count[-1])} do)"
        )
        yield ["truths far out", _p(tail.pvalue[-1]), "–", words]
    if found.local.surroundings is not None:
        words = "x_o is one more observation like those of the calibration"
        yield ["lying in the cloud", _p(found.local.surroundings.pvalue[i]), "–", words]


def _row(result: Any, i: int, name: str) -> Row:
    error = f"{_p(result.pvalue[i])} ± {number(float(result.pvalue_error[i]))}"
    return [name, error, _p(result.adjusted[i]), result.hypothesis]


def _effects(found: Findings, i: int) -> Markup:
    """Numbers with their bands, from truths near x_o and from the classifier."""
    here = found.effects[i]
    others = None if found.ratio is None else found.ratio[i]
    names = (
        ("bias", [f"{name}: bias, in sd of q" for name in here.names]),
        ("dispersion", [f"{name}: width over the true one" for name in here.names]),
        ("region", [f"coverage of the {share(level)} region" for level in LEVELS]),
        *((kind, [TITLES[kind]]) for kind in DIVERGENCES),
    )
    levels = [f"{n}: coverage of {share(level)}" for n in here.names for level in LEVELS]
    source = "near x_o" if others is not None else "estimate"
    head = ["effect", source, "95 % band", "if q is right"]
    head += [] if others is None else ["by the classifier", "95 % band", "if q is right"]
    rows = [row for kind, given in names for row in _numbers(here, others, kind, given)]
    caption = f"Sizes of effects at {found.labels[i]}; in bold what lies beyond noise."
    more = table(
        f"Central intervals at {found.labels[i]}",
        head,
        _numbers(here, others, "intervals", levels),
    )
    inner = tag("details", tag("summary", "Coverage of every parameter’s intervals"), more)
    return joined([table(caption, head, rows), inner])


def _numbers(here: Any, others: Any, kind: str, names: list[str]) -> Iterator[Row]:
    """A row for each number of a kind; nothing where neither source has it."""
    parts = [getattr(source, kind) for source in (here, others) if source is not None]
    if all(part is None for part in parts):
        return
    for j, name in enumerate(names):
        yield [name, *(cell for part in parts for cell in _estimate(part, j))]


def _estimate(estimate: Estimate | None, j: int) -> list[str]:
    if estimate is None:
        return ["–", "–", "–"]
    value, lower, upper, low, high = (
        float(np.ravel(part)[j])
        for part in (
            estimate.value,
            estimate.lower,
            estimate.upper,
            estimate.null_lower,
            estimate.null_upper,
        )
    )
    wrong = tag("strong", number(value), tag("span", " (beyond noise)", class_="hidden"))
    shown = wrong if np.ravel(estimate.wrong)[j] else number(value)
    return [shown, between(lower, upper), between(low, high)]


def _observed_figures(found: Findings, observed: Observed) -> Iterator[Markup]:
    yield _figure(
        "null",
        "The null of the test that decides",
        "Statistics of null copies, in which q is right, and the one observed; the dashed line is "
        "what a share of them stays below.",
    )
    for key, title in (("bias", "Bias, in sd of q"), ("width", "Width, over the true one")):
        yield _figure(
            key,
            title,
            "Estimates with bands that are made to hold the true value 95 times in 100, in orange "
            "where beyond noise; wide bars show where 95 % lie if q is right.",
        )
    unfitted = NO_CLASSIFIER if observed.scored is None else NO_NULLS
    yield _either(
        "pp",
        "PP-plot of class probabilities",
        "Mass right of 1/2 marks draws where q has too much mass, mass left of it draws where q "
        "has too little.",
        None if observed.pp_curves is not None else unfitted,
    )
    yield _either(
        "pits",
        "Local PIT curves",
        "Above the diagonal q is too high, below it too low; steep in the middle q is too wide, "
        "flat too narrow. Each coordinate is given those before it; bands are the widest of all.",
        None if found.pits is not None else NO_PITS,
    )
    yield _either(
        "power",
        "What would have been seen",
        "How often the test rejects if an error of this size is planted; diamonds mark what is "
        "seen as often as the dashed line says. A shift is in sd of q, a width of 0.2 is 20 % too "
        "large.",
        None if found.seen is not None else NO_POWER,
    )
    yield _pairs(observed)


def _pairs(observed: Observed) -> Markup:
    title = "Draws of q, and what the classifier says of them"
    if observed.scored is None:
        return _either("pairs", title, "", NO_CLASSIFIER)
    if observed.scored.draws.shape[-1] == 1:
        return _figure("pairs", title, "q, and q as the classifier corrects it.", kind="wide")
    reach, s = observed.reach, observed.scored.draws.shape[-2]
    m, shown = observed.scored.draws.shape[-1], len(observed.shown)
    cut = [f"{shown} of {s} draws" if shown < s else f"all {s} draws"]
    cut += [f"the first {MOST_PARAMETERS} of {m} parameters"] if m > MOST_PARAMETERS else []
    scale = tag(
        "div",
        tag("span", f"q has too much mass here ({0.5 - reach:.2f})"),
        tag("span", class_="bar"),
        tag("span", f"q has too little ({0.5 + reach:.2f})"),
        class_="scale",
    )
    corrected = (
        ""
        if observed.weighted is None
        else " On the diagonal stands q, and q as the classifier corrects it."
    )
    said = (
        f"Shown are {' and '.join(cut)}, coloured by the probability of being a truth; at 1/2, in "
        f"grey, q is right.{corrected}"
    )
    return _figure("pairs", title, said, kind="wide", above=scale)


def _overall(found: Findings) -> Markup:
    if not found.global_tests:
        return tag("p", f"There are no tests over all x: {NO_DRAWS}.")
    said = {
        "SBC": ("sbc", "Ranks (SBC)", found.sbc),
        "coverage": ("coverage", "Expected coverage", found.coverage),
        "TARP": ("tarp", "TARP", found.tarp),
    }
    figures = [
        _figure(key, title, _sentence(result, found.global_pvalues[name]))
        for name, (key, title, result) in said.items()
        if result is not None
    ]
    intro = (
        "These tests look at all x together, where errors may cancel: they decide nothing here."
    )
    tables = [
        table(f"{title}: every quantity", *_table(result))
        for _, title, result in said.values()
        if result is not None
    ]
    more = tag("details", tag("summary", "The numbers"), *tables)
    return joined([tag("p", intro), tag("div", *figures, class_="grid"), more])


def _sentence(result: Tested, p: float) -> str:
    return (
        f"{result.sentence} Smallest adjusted p-value {probability(p)}. H0: {result.hypothesis}."
    )


def _table(result: Tested) -> tuple[list[str], list[Row]]:
    """The head and the rows of a result's own table."""
    kind, names = result.labels
    pairs = zip(names, result.table, strict=True)
    rows: list[Row] = [[name, *(_cell(k, v) for k, v in row.items())] for name, row in pairs]
    return [kind, *result.table[0]], rows


def _cell(column: str, value: float) -> str:
    chance = column.startswith("p ") or column in ("p-value", "adjusted")
    return probability(value) if chance else number(value)


def _classifier(found: Findings) -> Markup:
    if found.health is None:
        return tag("p", f"There is nothing to show: {NO_CLASSIFIER}.")
    health = found.health
    pairs = zip(health.labels[1], health.table, strict=True)
    rows: list[Row] = [[name, *(number(v) for v in row.values())] for name, row in pairs]
    head = ["held out", "value", "± error", "ideal"]
    return joined(
        [
            tag("p", health.sentence),
            table("What the classifier does on sets it has not seen", head, rows),
            tag(
                "div",
                _figure(
                    "reliability",
                    "Reliability",
                    "Of members with a probability, such a share should be truths.",
                ),
                _figure(
                    "roc", "ROC", "From x alone nothing must be told: both classes share their x."
                ),
                class_="grid",
            ),
        ]
    )


def _made(found: Findings) -> Markup:
    own, known = dict(found.settings), versions()
    calls = [own.pop(key) for key in ("call", "command") if key in own]
    codes = [tag("pre", tag("code", str(call)), tabindex=0) for call in calls]
    settings = {k: v for k, v in own.items() if k not in known}
    parts: dict[str, Any] = {
        "The local test that decides": found.local,
        "The classifier": found.classified,
        "Local PITs": found.pits,
        **found.global_tests,
    }
    tests = [
        _settings(name, {k: v for k, v in part.settings.items() if k not in known})
        for name, part in parts.items()
        if part is not None
    ]
    return joined(
        [
            tag("h3", "To run it again"),
            tag("p", "With the same samples and versions, this call gives the same numbers:"),
            *codes,
            tag("h3", "Hypotheses"),
            tag("dl", *_hypotheses(found)),
            _settings("Settings", settings),
            _settings("Versions", {k: own[k] for k in known if k in own}),
            tag("details", tag("summary", "Settings of every test"), *tests),
        ]
    )


def _hypotheses(found: Findings) -> Iterator[Markup]:
    parts = {
        f"{found.local.settings['test']}, which decides": found.local,
        "The classifier": found.classified,
        "Local PITs": found.pits,
        **found.global_tests,
    }
    for name, part in parts.items():
        if part is not None:
            yield tag("dt", name)
            yield tag("dd", f"H0: {part.hypothesis}.")
    yield tag("dt", "Adjustment for the number of observations")
    yield tag("dd", f"{_adjusted(found)} The level is {found.alpha:g}.")


def _adjusted(found: Findings) -> str:
    words = found.local.family.words
    return f"{words[0].upper()}{words[1:]}."


def _settings(caption: str, values: Mapping[str, Any]) -> Markup:
    rows: list[Row] = [[name, _value(value)] for name, value in values.items()]
    return table(caption, ["setting", "value"], rows, attributes=["value"])


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_value, value)) if isinstance(value, tuple | list) else str(value)


def _either(key: str, title: str, said: str, absent: str | None) -> Markup:
    """A figure, or one sentence on why there is none."""
    if absent is None:
        return _figure(key, title, said)
    return tag("figure", tag("h3", title), tag("p", f"Not shown: {absent}."), class_="absent")


def _figure(
    key: str,
    title: str,
    said: str,
    words: str | None = None,
    *,
    kind: str | None = None,
    above: Markup | None = None,
) -> Markup:
    """A place for a figure, with its title and how to read it.

    Args:
        key: The name of the figure.
        title: Its title.
        said: How to read it.
        words: What it shows, until scripts say more.
        kind: "wide" if it is as wide as the page.
        above: What stands between title and figure.
    """
    plot = tag(
        "div", class_="plot", id=f"plot-{key}", role="img", aria_label=words or f"{title}. {said}"
    )
    parts = [above, plot, tag("figcaption", said) if said else None]
    inner = (part for part in parts if part is not None)
    return tag("figure", tag("h3", title), *inner, class_=kind)


def _p(value: Any) -> str:
    return probability(float(value))
