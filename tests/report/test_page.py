"""The page: safe markup, the words of the check, its data, its colours, and what is refused."""

import base64
import gzip
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest
from jinja2 import UndefinedError

from assay.report import TITLE, page, write
from assay.report.environment import environment
from tests.checks import made

from .conftest import LABELS, OUTSIDE, READ, REJECTED, WORDS

SECTIONS = ["list", "answer", "picture", "context", "more"]
NASTY = "<script>alert(1)</script>"


class Elements(HTMLParser):
    """Every element of a page, and its texts, but for scripts, styles and its title."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.inside = [], [], ""
        self.feed(text)
        self.text = "".join(self.texts)

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        self.inside = name

    def handle_endtag(self, name):
        self.inside = ""

    def handle_data(self, data):
        if self.inside not in ("script", "style", "title"):
            self.texts.append(data)

    def of(self, name, key=None):
        """The attributes of all elements of a name, or one of them."""
        found = [attributes for element, attributes in self.elements if element == name]
        return found if key is None else [attributes[key] for attributes in found]


@pytest.fixture(scope="module")
def whole(check):
    return page(check)


@pytest.fixture(scope="module")
def parsed(whole):
    return Elements(whole)


def unpacked(text, key="data"):
    """What is stored under a key."""
    stored = re.search(rf'<script type="application/gzip" id="{key}">(.*?)</script>', text)[1]
    found = gzip.decompress(base64.b64decode(stored)).decode()
    return json.loads(found) if key == "data" else found


def test_the_page_can_be_read_without_seeing(parsed):
    assert parsed.of("section", "id") == SECTIONS
    assert all(parsed.of("section", "aria-label"))
    levels = [int(name[1]) for name, _ in parsed.elements if re.fullmatch(r"h\d", name)]
    assert levels[0] == levels.count(1) == max(np.diff(levels)) == 1
    assert parsed.of("html", "lang") == ["en"]
    assert {*parsed.of("th", "scope")} == {"col", "row"}
    plots = [a for a in parsed.of("div") if a.get("class") == "plot"]
    assert len(plots) == 9
    assert all(a["role"] == "img" and a["aria-label"] for a in plots)
    assert sum("aria-live" in a for _, a in parsed.elements) == 1
    ids = [a["id"] for _, a in parsed.elements if "id" in a]
    assert len(set(ids)) == len(ids)


def test_names_and_titles_are_text_and_nothing_else(parsed, whole, bare):
    assert all(name in parsed.text for name in (*READ, *LABELS))
    assert len(parsed.of("script")) == 3
    assert "<script" not in whole.split('<script type="application/gzip"')[0]
    assert Elements(page(bare, "<b>&")).text.count("<b>&") == 1


def test_it_loads_nothing_and_runs_its_own_scripts_alone(parsed, whole, check):
    assert not [
        name for name, _ in parsed.elements if name in ("img", "iframe", "object", "embed")
    ]
    links = [a[key] for _, a in parsed.elements for key in ("href", "src") if key in a]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    (policy,) = [a["content"] for a in parsed.of("meta") if "http-equiv" in a]
    own = whole.rsplit("<script>", 1)[1].split("</script>")[0]
    digests = [hashlib.sha256(code.encode()).digest() for code in (unpacked(whole, "plotly"), own)]
    hashes = re.findall(r"'sha256-(.*?)'", policy)
    assert hashes == [base64.b64encode(digest).decode() for digest in digests]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "connect-src" not in rules
    assert page(check) == whole


def test_answers_are_read_without_scripts_the_most_urgent_first(parsed, check, whole):
    for i, label in enumerate(LABELS):
        sentence = check.headline(i).removeprefix(f"{label}: ").partition(". ")[2]
        assert sentence in parsed.text
        assert check.next_step(i) in parsed.text
    assert parsed.of("noscript")
    for words in (check.test.hypothesis, "A remark.", "assay check <a>", TITLE):
        assert words in parsed.text
    rows = [int(row) for row in re.findall(r'<tr data-observation="(\d)"', whole)]
    assert rows == check.urgency
    words = ["rejected", "rejected", "outside", "inconclusive", "passed"]
    assert [check.verdicts[row] for row in rows] == words
    counts = re.findall(r"</svg>(\d \w+)</span></li>", whole)
    assert counts == ["2 rejected", "1 outside", "1 inconclusive", "1 passed"]


def test_no_sentence_on_q_where_x_o_is_outside_and_the_tolerance_where_it_is_within(whole):
    articles = re.findall(r"<article .*?</article>", whole)
    parts = [Elements(article).text for article in articles]
    assert "Nothing is said of q." in parts[OUTSIDE]
    assert ["exact test of q" in part for part in parts] == [word != "outside" for word in WORDS]
    tables = re.findall(r'<div class="rows" data-row="(\d)" hidden>(.*?)</table>', whole)
    numbers = {int(which): table.count('scope="row"') for which, table in tables}
    assert numbers.pop(OUTSIDE) == 0
    assert min(numbers.values()) > 10
    heading = Elements(re.search(r"<h2.*?</h2>", articles[4])[0]).text.strip()
    assert heading == f"rejected {LABELS[4]}, but within the tolerance"


def test_the_data_are_the_record_and_the_figures_of_every_observation(check, whole):
    data, record = unpacked(whole), check.record
    assert data["start"] == check.urgency[0]
    assert data["record"]["parameters"] == record["parameters"]
    assert data["record"]["observations"][OUTSIDE]["rows"] == []
    own, expected = (part["observations"][REJECTED] for part in (data["record"], record))
    assert own["sentence"] == expected["sentence"]
    values = [[row["value"] for row in part["rows"]] for part in (own, expected)]
    assert values[0] == pytest.approx(values[1], rel=1e-3, abs=1e-9)
    assert set(data["own"]) == {"forest", "near", "pp", "pairs", "null"}
    figures = [set(one) for one in data["observations"]]
    assert figures == [set() if word == "outside" else set(data["own"]) for word in WORDS]
    assert set(data["average"]) == {"sbc", "coverage", "tarp"}


def test_parts_that_are_not_there_are_left_out_and_many_observations_are_small(bare):
    parsed, data = Elements(page(bare)), unpacked(page(bare))
    assert parsed.of("section", "id") == SECTIONS[1:]
    plots = {a["id"] for a in parsed.of("div") if a.get("class") == "plot"}
    assert plots == {f"plot-{name}" for name in ("forest", "near", "places", "null")}
    assert data["average"] == {}
    assert set(data["observations"][0]) == {"forest", "near", "null"}
    assert len(page(made(("rejected",) * 30, 3, classifier=True))) < 4e6


def test_an_old_report_survives_what_cannot_be_written(check, whole, tmp_path, monkeypatch):
    write(check, tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == whole
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write(check, tmp_path / "r.html", "Other")
    assert [path.read_text("utf-8") == whole for path in tmp_path.iterdir()] == [True]
    with pytest.raises(FileNotFoundError, match="path: expected a folder that exists; got .*none"):
        write(check, tmp_path / "none/r.html")
    with pytest.raises(IsADirectoryError, match="path: expected a file to write; got the folder"):
        write(check, tmp_path)


def rendered(source, **values):
    macros = '{% import "macros.html" as macros %}'
    return environment().from_string(macros + source).render(**values)


def test_text_is_never_markup_nor_a_template():
    source = "<p title=\"{{ a }}\">{{ 'b ' ~ a }}{{ c }}</p>"
    text, escaped = rendered(source, a=f'">{NASTY}', c="{{ a }}"), "&#34;&gt;&lt;script&gt;alert"
    assert (
        text
        == f'<p title="{escaped}(1)&lt;/script&gt;">b {escaped}(1)&lt;/script&gt;{{{{ a }}}}</p>'
    )
    # Line breaks of templates are not in the page.
    assert ">\n" not in (badge := rendered("{{ macros.badge('passed', 'words <') }}"))
    assert badge.endswith("</svg>words &lt;</span>")


@pytest.mark.parametrize("bad", ["\x00", "\x1b", "\u202e", "\ud800", "\ufeff"])
def test_tables_have_captions_and_scopes_and_what_html_allows(bad):
    call = "{{ macros.plain_table(name, [name, 'value'], [[name, '1']], ['value']) }}"
    text = rendered(call, name=f"{NASTY}{bad}")
    assert bad not in text
    parts = ("&lt;/script&gt;\ufffd", 'scope="row"', 'scope="col"', '<td class="words">1</td>')
    assert [text.count(part) for part in parts] == [4, 1, 2, 1]


def test_what_is_missing_is_named(monkeypatch):
    with pytest.raises(UndefinedError, match="missing"):
        rendered("{{ part.missing }}", part={})
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"jinja2, .* pip install 'assay\[report\]'"):
        environment()


# How eyes without some cones see linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.0.
PROTANOPIA = ".152286 1.052583 -.204868 .114503 .786281 .099216 -.003882 -.048116 1.051998"
DEUTERANOPIA = ".367322 .860646 -.227968 .280085 .672501 .047413 -.011820 .042940 .968881"
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
CURVES = ("curve", "blue", "green", "pink", "sky", "amber")


@pytest.mark.parametrize("names", [CURVES, ("rejected", "passed", "inconclusive", "outside")])
@pytest.mark.parametrize("vision", ["1 0 0 0 1 0 0 0 1", PROTANOPIA, DEUTERANOPIA])
def test_colours_are_different_to_every_eye(vision, names):
    text = files("assay.report").joinpath("templates/style.css").read_text(encoding="utf-8")
    matrix = np.array(vision.split(), float).reshape(3, 3)
    for scheme in (text.split("{% endset %}")[0], text.split("{% endset %}")[1].split("}")[0]):
        colours = dict(re.findall(r"--(\w+): #([0-9a-f]{6})", scheme))
        rgb = np.array([list(bytes.fromhex(colours[name])) for name in names]) / 255
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        xyz = (linear @ matrix.T).clip(0, 1) @ TO_XYZ.T / [0.9505, 1.0, 1.089]
        x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
        places = np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1)
        # Distances in CIE Lab, where about 2 can just be seen.
        assert min(np.linalg.norm(a - b) for a, b in combinations(places, 2)) > 12
