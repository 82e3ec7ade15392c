import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from assay.report import TITLE, write
from assay.report.page import page
from tests.checks import made

from .conftest import LABELS, READ, WORDS

SECTIONS = ["list", "answer", "picture", "context", "more"]
OUTSIDE = WORDS.index("outside")


class Elements(HTMLParser):
    """Every element of a page, and its texts, but for scripts, styles and its title."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.inside = [], [], ""
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        self.inside = name

    def handle_endtag(self, name):
        self.inside = ""

    def handle_data(self, data):
        if self.inside not in ("script", "style", "title"):
            self.texts.append(data)

    def of(self, name):
        return [attributes for element, attributes in self.elements if element == name]

    @property
    def text(self):
        return "".join(self.texts)


@pytest.fixture(scope="module")
def whole(check):
    return page(check)


@pytest.fixture(scope="module")
def parsed(whole):
    return Elements(whole)


def unpacked(text, key):
    """What is stored under a key."""
    stored = re.search(rf'<script type="application/gzip" id="{key}">(.*?)</script>', text)[1]
    return gzip.decompress(base64.b64decode(stored)).decode()


def articles(text):
    """The part of the page that each observation has."""
    return re.findall(r"<article .*?</article>", text)


class TestMarkup:
    def test_sections_come_in_order(self, parsed):
        assert [a["id"] for a in parsed.of("section")] == SECTIONS
        assert all(a["aria-label"] for a in parsed.of("section"))

    def test_headings_are_never_skipped(self, parsed):
        levels = [int(e[1]) for e, _ in parsed.elements if re.fullmatch(r"h\d", e)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert max(np.diff(levels)) <= 1

    def test_the_page_can_be_read_without_seeing(self, parsed):
        assert parsed.of("html")[0]["lang"] == "en"
        assert all(a["scope"] in ("col", "row") for a in parsed.of("th"))
        plots = [a for a in parsed.of("div") if a.get("class") == "plot"]
        assert len(plots) == 9
        assert all(a["role"] == "img" and a["aria-label"] for a in plots)
        assert sum("aria-live" in a for _, a in parsed.elements) == 1
        ids = [a["id"] for _, a in parsed.elements if "id" in a]
        assert len(set(ids)) == len(ids)

    def test_names_are_text_and_nothing_else(self, parsed, whole):
        for name in (*READ, *LABELS):
            assert name in parsed.text
        assert len(parsed.of("script")) == 3
        assert "<script" not in whole.split('<script type="application/gzip"')[0]

    def test_the_title_is_text_too(self, bare):
        parsed = Elements(page(bare, "<b>&"))
        assert parsed.text.count("<b>&") == 1
        assert TITLE in page(bare)


class TestOneFile:
    def test_it_loads_nothing(self, parsed):
        assert not [a for name in ("img", "iframe", "object", "embed") for a in parsed.of(name)]
        links = [a[key] for _, a in parsed.elements for key in ("href", "src") if key in a]
        assert links
        assert all(link.startswith(("#", "data:")) for link in links)

    def test_it_runs_its_own_scripts_alone(self, parsed, whole):
        (policy,) = [a["content"] for a in parsed.of("meta") if "http-equiv" in a]
        own = whole.rsplit("<script>", 1)[1].split("</script>")[0]
        expected = [
            base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
            for code in (unpacked(whole, "plotly"), own)
        ]
        assert re.findall(r"'sha256-(.*?)'", policy) == expected
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
        assert "connect-src" not in rules

    def test_the_same_check_gives_the_same_file(self, check, whole):
        assert page(check) == whole

    def test_thirty_observations_are_a_small_file(self):
        text = page(made(("rejected",) * 30, 3, classifier=True))
        assert len(text) < 4e6


class TestWords:
    def test_answers_are_read_without_scripts(self, parsed, check):
        for i, label in enumerate(LABELS):
            sentence = check.headline(i).removeprefix(f"{label}: ").partition(". ")[2]
            assert sentence in parsed.text
            assert check.next_step(i) in parsed.text
        assert parsed.of("noscript")
        assert check.test.hypothesis in parsed.text
        assert "A remark." in parsed.text
        assert "assay check <a>" in parsed.text

    def test_the_most_urgent_is_first(self, check, whole):
        rows = [int(row) for row in re.findall(r'<tr data-observation="(\d)"', whole)]
        assert rows == check.urgency
        assert [check.verdicts[row] for row in rows] == [
            *("rejected", "rejected", "outside", "inconclusive", "passed")
        ]
        assert json.loads(unpacked(whole, "data"))["start"] == rows[0]
        counts = re.findall(r"</svg>(\d \w+)</span></li>", whole)
        assert counts == ["2 rejected", "1 outside", "1 inconclusive", "1 passed"]

    def test_no_sentence_appears_twice(self, bare):
        for found in (bare, made(("rejected",), 8, classifier=True), made(("outside",))):
            parts = [text.strip() for text in Elements(page(found)).texts]
            sentences = [
                one
                for part in parts
                for one in re.split(r"(?<=[.?:])\s+", part)
                if len(one.split()) > 4
            ]
            assert len(sentences) > 10
            assert sorted(set(sentences)) == sorted(sentences)

    def test_no_sentence_on_q_where_x_o_is_outside(self, check, whole):
        parts = articles(whole)
        text = Elements(parts[OUTSIDE]).text
        assert "Nothing is said of q." in text
        assert "exact test of q" not in text
        assert "exact test of q" in Elements(parts[0]).text
        data = json.loads(unpacked(whole, "data"))
        assert data["observations"][OUTSIDE] == {}
        assert data["record"]["observations"][OUTSIDE]["rows"] == []
        tables = re.findall(r'<div class="rows" data-row="(\d)" hidden>(.*?)</table>', whole)
        numbers = {int(which): table.count('scope="row"') for which, table in tables}
        assert numbers[OUTSIDE] == 0
        assert min(count for which, count in numbers.items() if which != OUTSIDE) > 10

    def test_the_verdict_has_its_tolerance(self, whole):
        heading = re.search(r"<h2.*?</h2>", articles(whole)[4])[0]
        assert Elements(heading).text.strip() == f"rejected {LABELS[4]}, but within the tolerance"


class TestData:
    def test_it_holds_the_record(self, check, whole):
        data = json.loads(unpacked(whole, "data"))
        record = check.record
        assert data["record"]["parameters"] == record["parameters"]
        for own, expected in zip(
            data["record"]["observations"], record["observations"], strict=True
        ):
            assert own["sentence"] == expected["sentence"]
            for row, other in zip(own["rows"], expected["rows"], strict=True):
                assert row["value"] == pytest.approx(other["value"], rel=1e-3, abs=1e-9)

    def test_every_observation_has_its_figures(self, whole):
        data = json.loads(unpacked(whole, "data"))
        own = {"forest", "near", "pp", "pairs", "null"}
        assert set(data["own"]) == own
        figures = [set(one) for one in data["observations"]]
        assert figures == [set() if word == "outside" else own for word in WORDS]
        assert set(data["average"]) == {"sbc", "coverage", "tarp"}

    def test_parts_that_are_not_there_are_left_out(self, bare):
        text = page(bare)
        parsed = Elements(text)
        assert [a["id"] for a in parsed.of("section")] == SECTIONS[1:]
        plots = {a["id"] for a in parsed.of("div") if a.get("class") == "plot"}
        assert plots == {f"plot-{name}" for name in ("forest", "near", "places", "null")}
        data = json.loads(unpacked(text, "data"))
        assert data["average"] == {}
        assert set(data["observations"][0]) == {"forest", "near", "null"}


class TestWrite:
    def test_it_writes_the_page(self, check, whole, tmp_path):
        write(check, tmp_path / "r.html")
        assert (tmp_path / "r.html").read_text(encoding="utf-8") == whole

    def test_an_old_report_survives_what_cannot_be_written(self, bare, tmp_path, monkeypatch):
        (tmp_path / "r.html").write_text("old")
        monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            write(bare, tmp_path / "r.html")
        assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]

    @pytest.mark.parametrize(
        ("path", "error", "words"),
        [
            ("none/r.html", FileNotFoundError, "path: expected a folder that exists; got .*none"),
            ("", IsADirectoryError, "path: expected a file to write; got the folder"),
        ],
    )
    def test_bad_paths(self, bare, tmp_path, path, error, words):
        with pytest.raises(error, match=words):
            write(bare, tmp_path / path)
