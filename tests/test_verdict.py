"""The verdict: its rules, its sentences, and how they are laid out."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from assay.results import holm
from tests.checks import FEATURE, VERDICTS, WITHIN, made
from tests.plots import cases

LONG = tuple(f"a rather long name of parameter {i}" for i in range(8))
LATEX = (r"$\theta_{12}$", r"$\log_{10} M_\odot$", "a")
NEXT = {
    "rejected": "Train q longer or on more simulations, then check it with fresh pairs.",
    WITHIN: "Quote these bounds, if nothing but means and widths matters to you.",
    "outside": "Look at these features: does the simulator make what was measured?",
    "inconclusive": "Check with more pairs, or let the simulator make them around x_o.",
    "passed": "Quote this bound; nothing else is needed.",
}
LIMITS = "every mean is right within 0.32 sd and every width within 35 % (95 %)"
HEADLINES = {
    "rejected": "q is wrong near x_o (p = 0.005; 1000 pairs, nearest 20 %).",
    WITHIN: "the tolerance. q is wrong near x_o (p = 0.005; 1000 pairs, nearest 20 %), but "
    f"{LIMITS}.",
    "outside": f"x_o is unlike the simulations (p = 0.001): {FEATURE}. Nothing is said of q.",
    "inconclusive": "The test does not reject q, but a width may be off by a factor of 2.0 "
    "(theta[1]). More pairs would settle it.",
    "passed": f"On average over the nearest 20 %, {LIMITS}.",
}
PRINTED = """\
x_o: rejected. q is wrong near x_o (p = 0.005; 1000 pairs, nearest 20 %).

parameter     mean of q - true, sd         width q / true  90 % interval holds
theta[0]     0.60 (0.40 to 0.80) *  1.05 (0.86 to 1.28)      89 % (85 to 93)
theta[1]   -0.10 (-0.30 to 0.10)    0.60 (0.49 to 0.73) *    75 % (71 to 79) *
Also: q's correlation of theta[0] and theta[1] is too high by 0.40 (0.25 to
  0.55).
* wrong. Intervals hold for all rows together with probability 0.95.

x_o is like the simulations (p = 0.600). Over all x, SBC, coverage and TARP do
  not reject q.
Next: Train q longer or on more simulations, then check it with fresh pairs."""
THREE = """\
Of 3 observations: 1 rejected, 1 outside, 1 passed.

         verdict       p  nearest 20 % of 1000 pairs; corrected p
x_o[2]   rejected  0.005  q's mean of theta[0] is 0.60 sd too high (0.40 to 0.8…
x_o[1]   outside       –  x[1] = 6 lies where no simulation does
x_o[0]   passed    0.200  means within 0.32 sd, widths within 35 %

Over all x, SBC, coverage and TARP do not reject q.
A remark.
Next: Train q longer or on more simulations, then check it with fresh pairs."""


@pytest.fixture(autouse=True)
def _usual_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def plain(frame):
    """The rows of a frame, with pandas or without."""
    return frame if isinstance(frame, list) else frame.to_dict("records")


def with_table(found, **parts):
    """The same check with other numbers of some kinds."""
    return replace(found, bounds=replace(found.bounds, table={**found.bounds.table, **parts}))


def test_what_is_printed():
    assert repr(made(("rejected",))) == PRINTED
    assert repr(made(("passed", "outside", "rejected"), remarks=("A remark.",))) == THREE
    within = (
        "No single number is wrong beyond its interval: the error is in the shape of q,\n  or in"
    )
    assert within in made((WITHIN,)).text()
    found = made(tuple(VERDICTS) * 6)
    lines = found.text().splitlines()
    assert lines[0] == "Of 30 observations: 12 rejected, 6 outside, 6 inconclusive, 6 passed."
    assert len(lines) <= 36
    words = [line.split()[1].rstrip(",") for line in lines if line.startswith("x_o[")]
    assert words == sorted(words, key=["rejected", "outside", "inconclusive", "passed"].index)
    few = found.text(most=5).splitlines()
    assert sum(line.startswith("x_o[") for line in few) == 5
    assert "... and 25 more" in few


@pytest.mark.parametrize("width", [50, 80, 120])
@pytest.mark.parametrize("word", [*VERDICTS, "passed outside"])
@pytest.mark.parametrize(("m", "names"), [(1, None), (40, None), (3, LATEX), (8, LONG)])
def test_it_fits_on_a_screen(monkeypatch, width, word, m, names):
    monkeypatch.setenv("COLUMNS", str(width))
    words = (word,) if word in VERDICTS else tuple(word.split())
    labels = ("x_o", f"left {'of all ' * 9}")[: len(words)]
    text = made(words, m, names, labels=labels).text()
    assert max(map(len, text.splitlines())) <= width
    assert len(text.splitlines()) <= 16 or width == 50
    assert "$" not in text
    assert text.endswith(NEXT[word].split()[-1]) if word in NEXT else "passed" in text


def test_parameters_that_are_left_out_are_counted():
    wide = np.exp(cases.interval(np.full((1, 40), np.log(1.5)), 0.2))
    text = with_table(made(("rejected",), 40), width=wide).text()
    (line,) = [line for line in text.splitlines() if line.startswith("and")]
    rest = 40 - text.count("\ntheta[")
    words = "of them wrong: means within 0.20 sd, widths within 83 %"
    assert line == f"and {rest} more, {rest} {words}"
    # A star in a name marks nothing.
    assert "* wrong" not in made(("passed",), 2, ("a * b", "c *")).text()


@pytest.mark.parametrize("word", VERDICTS)
def test_headlines(word):
    found = made((word,))
    assert found.headline() == f"x_o: {word}{' ' if word == WITHIN else '. '}{HEADLINES[word]}"
    assert found.next_step() == NEXT[word]
    # A row is wrong only where the test rejects.
    assert bool(found.wrong()) == (word == "rejected") == ("*" in found.text())


@pytest.mark.parametrize(
    ("alpha", "tolerance", "word"),
    [
        (0.05, 0.5, "rejected"),
        (0.05, 1.5, WITHIN),
        (0.004, 0.5, "inconclusive"),
        (0.004, 1.5, "passed"),
    ],
)
def test_level_and_tolerance(alpha, tolerance, word):
    found = made(("rejected",), alpha=alpha, tolerance=tolerance)
    assert (found.verdicts, found.next_step()) == ((word.split(",")[0],), NEXT[word])
    assert found.passed.tolist() == [word == "passed"]
    assert bool(found.wrong()) == (alpha == 0.05)


def test_p_values_are_corrected_for_the_number_of_observations():
    raw = np.array([0.02, 0.04, 0.3])
    found = made(("passed",) * 3, test=cases.scores(raw))
    np.testing.assert_allclose(found.pvalue, holm(raw))
    assert found.verdicts == ("passed",) * 3
    narrow = replace(found, tolerance=0.1)
    words = "inconclusive. p = 0.020 is not significant, corrected for 3 observations, but a mean"
    assert narrow.headline(0).startswith(f"x_o[0]: {words}")
    assert narrow.headline(2).startswith("x_o[2]: inconclusive. No error was found, but a mean")


def test_outside_comes_before_everything():
    found = made(("outside",), test=cases.scores([0.001]))
    assert (found.verdicts, found.wrong()) == (("outside",), ())


def test_what_cannot_be_bounded():
    """Widths from one draw of q at each x, and a width that is not known."""
    found, test = made(("passed",), 3), "x_o: inconclusive. No error was found, but"
    one = replace(found, bounds=replace(found.bounds, draws=1))
    assert one.headline() == f"{test} widths cannot be bounded with one draw of q at each x."
    assert one.next_step() == "Check with more draws of q at each x; 16 are good."
    assert replace(one, test=cases.scores([0.001])).verdicts == ("rejected",)
    width = np.where(np.arange(3) == 1, np.nan, 1.0)[None]
    unknown = with_table(found, width=cases.interval(width, 0.0))
    assert unknown.headline() == f"{test} errors of theta[1] cannot be bounded."
    other = "without parameters that cannot be bounded"
    assert unknown.next_step() == f"Check with more draws of q at each x, or {other}."
    assert "–" in unknown.text()
    assert json.dumps(unknown.record, allow_nan=False)


@pytest.mark.parametrize("things", ["pairs", "simulations"])
def test_how_many_pairs_would_settle_it(things):
    settings = {"n": 1000} | ({"simulations": 2000} if things == "simulations" else {})
    found = made(("inconclusive",), tolerance=0.1, settings=settings)
    enough = float(found.bounds.pairs_for(0.1)[0]) * settings.get("simulations", 1000) / 1000
    (number,) = re.findall(rf"About (\d+) {things} would settle it", found.headline())
    assert enough <= int(number) <= 1.1 * enough
    step = NEXT["inconclusive"] if things == "pairs" else "Check with more simulations."
    assert found.next_step() == step


def test_regions_count_where_nothing_else_is_wrong():
    found = made(("rejected",))
    assert all("region" not in words for words in found.other_sentences())
    region = cases.interval(np.array([[0.3, 0.7, 0.8]]), 0.04)
    table = made((WITHIN,)).bounds.table
    (words,) = with_table(found, **{**table, "region_coverage": region}).other_sentences()
    assert words.startswith("q's 50 % region holds")


def test_the_worst_of_several_slopes_comes_first():
    """It keeps the place of the worst, whatever other slopes of the parameter are."""
    found = made(("rejected",))
    table = {kind: part * np.nan for kind, part in found.bounds.table.items()}
    slopes, skewness = np.array([[[2.0, 0.3], [0.0, 0.0]]]), np.array([[0.0, 0.4]])
    table |= {"slope": cases.interval(slopes, 0.1), "skewness": cases.interval(skewness, 0.1)}
    first, second = with_table(found, **table).other_sentences()
    assert "changes with x: by 2.0 sd" in first
    assert "skewed" in second


def test_parts_belong_together_and_are_chosen_by_label():
    found = made(("passed", "rejected"), labels=("night 1: east", "night 2. west"))
    assert found.headline("night 1: east") == found.headline(0)
    assert found.wrong(-1) == found.wrong("night 2. west")
    with pytest.raises(ValueError, match="expected parts that belong together"):
        replace(found, test=cases.scores([0.5]))


def test_tests_over_all_x():
    found = made(("passed",), alpha=0.05)
    parts = (found.sbc, found.coverage, found.tarp)
    raw = np.concatenate([np.atleast_1d(part.pvalue) for part in parts])
    assert min(found.over_all_x.values()) == holm(raw).min()
    low = replace(found, alpha=0.49, sbc=None, coverage=None)
    assert low.over_all_x == {"TARP": found.tarp.pvalue.item()}
    assert "Over all x, TARP rejects q." in low.text()
    assert "Over all x" not in replace(low, tarp=None).text()


def test_simulations_of_a_draw():
    far = made(("passed",), predictive=cases.predicted(9.0))
    words = "x_o is unusual even for what the simulator makes of"
    assert words in " ".join(far.text().split())
    assert far.verdicts == ("passed",)
    three = cases.repeated(cases.predicted(0.2), ("statistic", "null", "x", "theta"), 3)
    found = made(("passed", "outside", "passed"), predictive=three)
    assert "Every other x_o is typical of what" in found.text()
    assert "typical" not in made(("outside",) * 3, predictive=three).text()


def test_nothing_is_said_of_q_where_x_o_is_outside():
    """Not in words, and not in numbers."""
    found, alone = made(("outside", "passed")), made(("outside",))
    assert alone.text().count("q") == 1
    assert not re.search("theta|mean", alone._repr_html_())
    (row,) = [line for line in found.text().splitlines() if " outside  " in line]
    assert row.split("outside")[1].split() == ["–", *FEATURE.split()]
    row, other = plain(found.to_frame())
    assert (row["verdict"], row["why"], row["pvalue_of_x_o"]) == ("outside", FEATURE, 0.001)
    numbers = {name for name in row if "[" in name} | {"pvalue"}
    assert all(np.isnan(row[name]) for name in numbers)
    assert not any(np.isnan(other[name]) for name in numbers)
    record, other = found.record["observations"]
    assert (record["pvalue"], record["rows"], bool(other["rows"])) == (None, [], True)


@pytest.mark.parametrize("word", VERDICTS)
def test_plain_values(word):
    settings = {"n": 1000, "near": None, "odd": {1}, "bad": np.nan}
    found = made((word, "rejected"), 3, LATEX, settings=settings)
    record = json.loads(json.dumps(found.record, allow_nan=False))
    first, second = record["observations"]
    assert (first["label"], first["verdict"]) == ("x_o[0]", found.verdicts[0])
    assert (first["sentence"], first["next_step"]) == (found.headline(), NEXT[word])
    assert record["settings"] == {"n": 1000, "near": None, "odd": "{1}", "bad": None}
    row = second["rows"][0]
    names = ["kind", "parameters", "value", "lower", "upper", "right", "size"]
    assert list(row) == names
    assert (row["kind"], row["parameters"]) == ("bias", [LATEX[0]])
    _, last = plain(found.to_frame())
    assert (last["observation"], last["bias[θ₁₂]"]) == ("x_o[1]", pytest.approx(0.6))
    assert last["width_lower[a]"] < last["width[a]"] < last["width_upper[a]"]
    assert last["why"] == found.wrong(1)[0].sentence


def test_html():
    bad = "<script>alert('&')</script>"
    page = made(("rejected", "passed"), 2, (bad, "nu"), labels=(bad, "b"))._repr_html_()
    assert not re.search("<script|http", page)
    text = "".join(ElementTree.fromstring(page).itertext())
    assert bad in text
    assert text.endswith(NEXT["rejected"])
