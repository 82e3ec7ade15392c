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
# What is printed of one observation.
PRINTED = {
    "rejected": """\
x_o: rejected. q is wrong near x_o (p = 0.005; 1000 pairs, nearest 20 %).

parameter     mean of q - true, sd         width q / true  90 % interval holds
theta[0]     0.60 (0.40 to 0.80) *  1.05 (0.86 to 1.28)      89 % (85 to 93)
theta[1]   -0.10 (-0.30 to 0.10)    0.60 (0.49 to 0.73) *    75 % (71 to 79) *
Also: q's correlation of theta[0] and theta[1] is too high by 0.40 (0.25 to
  0.55).
* wrong. Intervals hold for all rows together with probability 0.95.

x_o is like the simulations (p = 0.600). Over all x, SBC, coverage and TARP do
  not reject q.
Next: Train q longer or on more simulations, then check it with fresh pairs.""",
    WITHIN: """\
x_o: rejected, but within the tolerance. q is wrong near x_o (p = 0.005; 1000
  pairs, nearest 20 %), but every mean is right within 0.32 sd and every width
  within 35 % (95 %).

parameter     mean of q - true, sd         width q / true  90 % interval holds
theta[0]    0.12 (-0.08 to 0.32)    1.01 (0.83 to 1.23)      90 % (86 to 94)
theta[1]   -0.02 (-0.22 to 0.18)    0.90 (0.74 to 1.10)      87 % (83 to 91)
No single number is wrong beyond its interval: the error is in the shape of q,
  or in how it changes with x.

x_o is like the simulations (p = 0.600). Over all x, SBC, coverage and TARP do
  not reject q.
Next: Quote these bounds, if nothing but means and widths matters to you.""",
    "passed": """\
x_o: passed. On average over the nearest 20 %, every mean is right within
  0.32 sd and every width within 35 % (95 %).

parameter     mean of q - true, sd         width q / true  90 % interval holds
theta[0]    0.12 (-0.08 to 0.32)    1.01 (0.83 to 1.23)      90 % (86 to 94)
theta[1]   -0.02 (-0.22 to 0.18)    0.90 (0.74 to 1.10)      87 % (83 to 91)

x_o is like the simulations (p = 0.500). Over all x, SBC, coverage and TARP do
  not reject q.
Next: Quote this bound; nothing else is needed.""",
    "inconclusive": """\
x_o: inconclusive. The test does not reject q, but a width may be off by a
  factor of 2.0 (theta[1]). More pairs would settle it.

parameter     mean of q - true, sd         width q / true  90 % interval holds
theta[0]     0.60 (0.40 to 0.80)    1.05 (0.86 to 1.28)      89 % (85 to 93)
theta[1]   -0.10 (-0.30 to 0.10)    0.60 (0.49 to 0.73)      75 % (71 to 79)

x_o is like the simulations (p = 0.700). Over all x, SBC, coverage and TARP do
  not reject q.
Next: Check with more pairs, or let the simulator make them around x_o.""",
    "outside": """\
x_o: outside. x_o is unlike the simulations (p = 0.001): x[1] = 6 lies where no
  simulation does. Nothing is said of q.
Next: Look at these features: does the simulator make what was measured?""",
}
THREE = """\
Of 3 observations: 1 rejected, 1 outside, 1 passed.

         verdict       p  nearest 20 % of 1000 pairs; corrected p
x_o[2]   rejected  0.005  q's mean of theta[0] is 0.60 sd too high (0.40 to 0.8…
x_o[1]   outside       –  x[1] = 6 lies where no simulation does
x_o[0]   passed    0.200  means within 0.32 sd, widths within 35 %

Over all x, SBC, coverage and TARP do not reject q.
Next: Train q longer or on more simulations, then check it with fresh pairs."""


@pytest.fixture(autouse=True)
def _usual_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def sentences(text):
    """The sentences of a text, without its table."""
    prose = [line for line in text.splitlines() if not re.search(r"\S {2,}\S", line)]
    return re.split(r"(?<=[.?])\s+", " ".join(" ".join(prose).split()))


class TestPrinted:
    @pytest.mark.parametrize("word", VERDICTS)
    def test_one_observation(self, word):
        assert repr(made((word,))) == PRINTED[word]

    def test_several_observations(self):
        assert repr(made(("passed", "outside", "rejected"))) == THREE

    @pytest.mark.parametrize("word", VERDICTS)
    @pytest.mark.parametrize(
        ("m", "names"), [(1, None), (2, None), (8, None), (40, None), (3, LATEX), (8, LONG)]
    )
    def test_it_fits_on_a_screen(self, word, m, names):
        lines = made((word,), m, names).text().splitlines()
        assert len(lines) <= 16
        assert max(map(len, lines)) <= 80
        assert lines[0].startswith(f"x_o: {word}")
        assert lines[-1] == f"Next: {NEXT[word]}"

    @pytest.mark.parametrize("words", [tuple(VERDICTS) * 6, ("passed",) * 30])
    def test_thirty_observations(self, words):
        lines = made(words).text().splitlines()
        assert len(lines) <= 36
        assert max(map(len, lines)) <= 80
        rows = [line.split() for line in lines if line.startswith("x_o[")]
        urgent = ("rejected", "outside", "inconclusive", "passed")
        assert sorted(range(30), key=lambda i: urgent.index(rows[i][1])) == list(range(30))
        counts = dict(zip(*np.unique([row[1] for row in rows], return_counts=True), strict=True))
        assert lines[0].count(",") == len(counts) - 1
        assert all(f"{count} {word}" in lines[0] for word, count in counts.items())

    def test_more_than_are_asked_for(self):
        lines = made(("rejected",) + ("passed",) * 39).text(most=5).splitlines()
        assert [line.split()[0] for line in lines if line.startswith("x_o[")][0] == "x_o[0]"
        assert sum(line.startswith("x_o[") for line in lines) == 5
        assert "... and 35 more" in lines

    @pytest.mark.parametrize("width", [50, 80, 120])
    @pytest.mark.parametrize("words", [("rejected",), ("passed", "rejected", "outside")])
    def test_any_terminal(self, monkeypatch, width, words):
        monkeypatch.setenv("COLUMNS", str(width))
        labels = (f"left {'of all ' * 9}", "right", "far")[: len(words)]
        assert max(map(len, repr(made(words, labels=labels)).splitlines())) <= width

    @pytest.mark.parametrize("words", [*[(word,) for word in VERDICTS], tuple(VERDICTS)])
    def test_nothing_is_said_twice(self, words):
        remarks = ("A remark on the samples.", "Another one.")
        each = sentences(made(words, remarks=remarks, predictive=None).text())
        assert set(remarks) <= set(each)
        assert len(set(each)) == len(each)

    def test_remarks_stand_before_the_next_step(self):
        lines = made(("passed",), remarks=("A remark on the samples.",)).text().splitlines()
        assert lines[-2:] == ["A remark on the samples.", f"Next: {NEXT['passed']}"]

    def test_names_are_read_as_unicode(self):
        for words in (("rejected",), ("rejected", "inconclusive")):
            text = made(words, 3, LATEX).text()
            assert "θ₁₂" in text
            assert "$" not in text

    def test_parameters_that_are_left_out_are_counted(self):
        found = made(("rejected",), 40)
        wrong = {"width": np.exp(cases.interval(np.full((1, 40), np.log(1.5)), 0.2))}
        found = replace(found, bounds=replace(found.bounds, table={**found.bounds.table, **wrong}))
        (line,) = [line for line in found.text().splitlines() if line.startswith("and")]
        shown = found.text().count("\ntheta[")
        assert line == (
            f"and {40 - shown} more, {40 - shown} of them wrong: means within 0.20 sd, widths "
            "within 83 %"
        )

    def test_a_star_in_a_name_marks_nothing(self):
        assert "* wrong" not in made(("passed",), 2, ("a * b", "c *")).text()


class TestRules:
    @pytest.mark.parametrize(
        ("alpha", "tolerance", "word"),
        [
            (0.05, 0.5, "rejected"),
            (0.05, 1.5, WITHIN),
            (0.004, 0.5, "inconclusive"),
            (0.004, 1.5, "passed"),
        ],
    )
    def test_level_and_tolerance(self, alpha, tolerance, word):
        found = made(("rejected",), alpha=alpha, tolerance=tolerance)
        assert found.verdicts == (word.split(",")[0],)
        assert found.next_step() == NEXT[word]
        assert found.passed.tolist() == [word == "passed"]
        # A row is wrong only where the test rejects.
        assert bool(found.wrong()) == found.verdicts[0].startswith("rejected")
        assert ("*" in found.text()) == bool(found.wrong())

    def test_p_values_are_corrected_for_the_number_of_observations(self):
        raw = np.array([0.02, 0.04, 0.3])
        found = made(("passed",) * 3, test=cases.scores(raw))
        np.testing.assert_allclose(found.pvalue, holm(raw))
        assert found.verdicts == ("passed",) * 3
        narrow = replace(found, tolerance=0.1)
        assert narrow.headline(0).startswith(
            "x_o[0]: inconclusive. p = 0.020 is not significant, corrected for 3 observations, "
        )
        assert not narrow.bounds.wrong[2]
        assert narrow.headline(2).startswith("x_o[2]: inconclusive. No error was found, but ")

    def test_outside_comes_before_everything(self):
        found = made(("outside",), test=cases.scores([0.001]))
        assert found.verdicts == ("outside",)
        assert found.wrong() == ()

    def test_one_draw_never_passes(self):
        found = made(("passed",))
        one = replace(found, bounds=replace(found.bounds, draws=1))
        assert one.verdicts == ("inconclusive",)
        assert one.headline() == (
            "x_o: inconclusive. No error was found, but widths cannot be bounded with one draw of "
            "q at each x."
        )
        assert one.next_step() == "Check with more draws of q at each x; 16 are good."
        rejected = replace(one, test=cases.scores([0.001]))
        assert rejected.headline().startswith("x_o: rejected. ")

    def test_what_is_not_known_is_named(self):
        found = made(("passed",), 3)
        width = found.bounds.width.copy()
        width[0, 1] = np.nan
        table = {**found.bounds.table, "width": cases.interval(width, 0.0)}
        found = replace(found, bounds=replace(found.bounds, table=table))
        assert found.headline() == (
            "x_o: inconclusive. The test does not reject q, but errors of theta[1] cannot be "
            "bounded."
        )
        assert found.next_step() == (
            "Check with more draws of q at each x, or without parameters that cannot be bounded."
        )
        assert "–" in found.text()
        assert json.dumps(found.record, allow_nan=False)

    def test_how_many_pairs_would_settle_it(self):
        found = made(("inconclusive",), tolerance=0.1)
        pairs = float(found.bounds.pairs_for(0.1)[0])
        (number,) = re.findall(r"About (\d+) pairs would settle it", found.headline())
        assert pairs <= int(number) <= 1.1 * pairs

    def test_regions_count_where_nothing_else_is_wrong(self):
        found = made(("rejected",))
        assert all("region" not in words for words in found.other_sentences())
        table = {**made((WITHIN,)).bounds.table}
        table["region_coverage"] = cases.interval(np.array([[0.3, 0.7, 0.8]]), 0.04)
        found = replace(found, bounds=replace(found.bounds, table=table))
        assert [words.split(" holds")[0] for words in found.other_sentences()] == [
            "q's 50 % region",
        ]

    def test_observations_are_chosen_by_number_or_label(self):
        found = made(("passed", "rejected"), labels=("night 1: east", "night 2. west"))
        assert found.headline("night 1: east") == found.headline(0)
        assert found.wrong(-1) == found.wrong("night 2. west")
        with pytest.raises(KeyError, match="expected one of night 1: east, night 2. west"):
            found.headline("night 3")
        with pytest.raises(IndexError, match="expected one of 2 rows; got 2"):
            found.next_step(2)


class TestBeside:
    def test_tests_over_all_x(self):
        found = made(("passed",), alpha=0.05)
        raw = np.concatenate(
            [np.atleast_1d(r.pvalue) for r in (found.sbc, found.coverage, found.tarp)]
        )
        assert min(found.over_all_x.values()) == holm(raw).min()
        low = replace(found, alpha=0.49, sbc=None, coverage=None)
        assert low.over_all_x == {"TARP": found.tarp.pvalue.item()}
        assert "Over all x, TARP rejects q." in low.text()
        assert "Over all x" not in replace(low, tarp=None).text()

    def test_simulations_of_a_draw(self):
        far = made(("passed",), predictive=cases.predicted(9.0))
        assert "x_o is unusual even for what the simulator makes of" in " ".join(
            far.text().split()
        )
        assert far.verdicts == ("passed",)

    def test_simulations_of_a_draw_where_nothing_is_said(self):
        arrays = ("statistic", "null", "x", "theta")
        three = cases.repeated(cases.predicted(0.2), arrays, 3)
        found = made(("passed", "outside", "passed"), predictive=three)
        assert "Every other x_o is typical of what" in found.text()
        assert "typical" not in made(("outside",) * 3, predictive=three).text()


class TestOutside:
    """Nothing is said of q where x_o is outside: not in words, and not in numbers."""

    @pytest.fixture
    def found(self):
        return made(("outside", "passed"))

    def test_in_words(self, found):
        assert made(("outside",)).text().count("q") == 1
        (row,) = [line for line in found.text().splitlines() if " outside  " in line]
        assert row.split("outside")[1].split() == ["–", *FEATURE.split()]

    def test_in_tables(self, found):
        row, other = plain(found.to_frame())
        assert (row["verdict"], row["why"]) == ("outside", FEATURE)
        numbers = {name for name in row if "[" in name} | {"pvalue"}
        assert all(np.isnan(row[name]) for name in numbers)
        assert not any(np.isnan(other[name]) for name in numbers)
        assert row["pvalue_of_x_o"] == 0.001

    def test_in_records(self, found):
        record, other = found.record["observations"]
        assert (record["pvalue"], record["rows"]) == (None, [])
        assert other["rows"]
        assert "Nothing is said of q." in record["sentence"]

    def test_in_notebooks(self):
        page = made(("outside",))._repr_html_()
        assert "theta" not in page
        assert "mean" not in page


def plain(frame):
    """The rows of a frame, with pandas or without."""
    return frame if isinstance(frame, list) else frame.to_dict("records")


class TestPlainValues:
    def test_a_row_for_each_observation(self):
        found = made(("passed", "rejected"), 3, LATEX)
        first, second = plain(found.to_frame())
        assert first["observation"] == "x_o[0]"
        assert second["pvalue"] == pytest.approx(0.005)
        assert second["bias[θ₁₂]"] == pytest.approx(0.6)
        assert first["width_lower[a]"] < first["width[a]"] < first["width_upper[a]"]
        assert second["why"] == found.wrong(1)[0].sentence

    @pytest.mark.parametrize("word", VERDICTS)
    def test_json(self, word):
        found = made((word,), settings={"n": 1000, "near": None, "odd": {1}, "bad": np.nan})
        record = json.loads(json.dumps(found.record, allow_nan=False))
        (own,) = record["observations"]
        assert own["label"] == "x_o"
        assert own["verdict"] == found.verdicts[0]
        assert own["sentence"] == found.headline()
        assert own["next_step"] == NEXT[word]
        assert record["settings"] == {"n": 1000, "near": None, "odd": "{1}", "bad": None}
        kinds = {row["kind"] for row in own["rows"]}
        assert (kinds >= {"bias", "width", "coverage"}) == (word != "outside")

    def test_html(self):
        bad = "<script>alert('&')</script>"
        page = made(("rejected", "passed"), 2, (bad, "nu"), labels=(bad, "b"))._repr_html_()
        tree = ElementTree.fromstring(page)
        assert "<script" not in page
        assert "http" not in page
        assert bad in "".join(tree.itertext())
        assert "".join(next(tree.iter("pre")).itertext()).endswith(NEXT["rejected"])
