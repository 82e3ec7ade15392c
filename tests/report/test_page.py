import base64
import gzip
import json
import re
import stat
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

import assay
from assay import Suite
from assay.report import write
from assay.report.page import page
from tests.conftest import Gaussian

from .conftest import LABELS, READ

SECTIONS = ["verdict", "where", "observation", "overall", "classifier", "made"]


class Elements(HTMLParser):
    """Every element and all text of a page, but for scripts and styles."""

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
        if self.inside not in ("script", "style"):
            self.texts.append(data)

    def of(self, name):
        return [attributes for element, attributes in self.elements if element == name]

    @property
    def text(self):
        return "".join(self.texts)


@pytest.fixture(scope="module")
def made(check):
    return page(check)


@pytest.fixture(scope="module")
def parsed(made):
    return Elements(made)


def packed(text, key):
    """What is stored under a key, in the letters that it is stored in."""
    return re.search(rf'<script type="application/gzip" id="{key}">(.*?)</script>', text)[1]


def data_of(text):
    return json.loads(gzip.decompress(base64.b64decode(packed(text, "data"))))


def test_sections_come_in_order_with_headings(parsed):
    assert [a["id"] for a in parsed.of("section")] == SECTIONS
    headings = {a["id"] for a in parsed.of("h2")}
    assert {a["aria-labelledby"] for a in parsed.of("section")} == headings
    links = {a["href"] for a in parsed.of("a") if a["href"].startswith("#")}
    assert {f"#{name}" for name in SECTIONS} <= links


def test_headings_are_never_skipped(parsed):
    levels = [int(e[1]) for e, _ in parsed.elements if re.fullmatch(r"h\d", e)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert max(np.diff(levels)) <= 1


def test_the_page_can_be_read_without_seeing(parsed):
    assert parsed.of("html")[0]["lang"] == "en"
    assert len(parsed.of("main")) == len(parsed.of("nav")) == 1
    assert len(parsed.of("caption")) == len(parsed.of("table"))
    assert all(a["scope"] in ("col", "row") for a in parsed.of("th"))
    plots = [a for a in parsed.of("div") if a.get("class") == "plot"]
    assert len(plots) == 17
    assert all(a["role"] == "img" and a["aria-label"] for a in plots)
    assert len(parsed.of("label")) == len(parsed.of("select")) == 3
    assert sum("aria-live" in a for _, a in parsed.elements) == 1
    ids = [a["id"] for _, a in parsed.elements if "id" in a]
    assert len(set(ids)) == len(ids)


def test_names_are_text_and_nothing_else(parsed, made):
    for name in (*READ, *LABELS):
        assert name in parsed.text
    assert len(parsed.of("script")) == 3
    assert not parsed.of("b")
    before = made.split('<script type="application/gzip"')[0]
    assert "<script" not in before


def test_verdicts_are_read_without_scripts(parsed, check):
    for said in check.statements:
        assert said in parsed.text
    for i in range(3):
        assert check.at(i) in parsed.text
    assert parsed.text.count(check.local.hypothesis) >= 3
    assert parsed.of("noscript")


def test_every_test_at_an_observation_has_a_row(parsed):
    for name in (
        *("(decides)", ", classifier", "PIT curves alone", "independence of PITs alone"),
        *("true parameters in the extreme tail of q", "is x_o typical of the simulations?"),
    ):
        assert parsed.text.count(name) >= 2, name
    # Nothing is said of the one that lies outside.
    assert parsed.text.count("is x_o typical of the simulations?") == 2


def test_numbers_of_effects_are_those_found(parsed, check):
    bias = check.effects.bias[0]
    assert f"{bias.value[0]:.2f}".replace("-", "−") in parsed.text


def test_settings_versions_and_call(parsed, check):
    assert check.settings["call"] in parsed.text
    assert check.settings["torch"] in parsed.text
    assert check.local.adjustment.words[1:] in parsed.text


def test_only_known_scripts_may_run(parsed):
    policy = next(a["content"] for a in parsed.of("meta") if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe" not in policy
    assert "http" not in policy.replace("http-equiv", "")


def test_nothing_is_loaded_from_elsewhere(parsed):
    for _, attributes in parsed.elements:
        assert "src" not in attributes
        assert not any(key.startswith("on") for key in attributes)
        assert attributes.get("href", "#").startswith(("#", "data:"))


def test_data_cannot_end_its_block(made):
    for key in ("data", "plotly"):
        assert re.fullmatch(r"[A-Za-z0-9+/=]+", packed(made, key))
    data = data_of(made)
    assert len(data["observations"]) == 3
    assert data["start"] == 0


def test_data_starts_at_the_first_rejection(check):
    words = ("passed", "rejected", "outside")
    changed = replace(check, trust=replace(check.trust, verdicts=words))
    assert data_of(page(changed))["start"] == 1


def test_missing_parts_say_why(bare, scored):
    text = Elements(page(bare)).text
    assert "There are no tests over all x: they need at least 4 draws of q at each x" in text
    assert "There is nothing to show: no classifier was run in this check." in text
    assert text.count("Not shown: ") == 3
    text = Elements(page(scored)).text
    assert text.count("Not shown: ") == 3


def reported(calibration, draws, path, **parts):
    """A report on ten observations and eight parameters, and what it draws."""
    suite = Suite(classifier=assay.MLP(epochs=1), classifier_null=9, null=39, **parts)
    assay.check(calibration, x_o=draws, suite=suite).report(path)
    assert path.stat().st_size < 3e6
    text = path.read_text(encoding="utf-8")
    assert "400 of 1000 draws and the first 6 of 8 parameters" in text
    return data_of(text)["observations"]


def many(q):
    return q.draws(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)), 1000)


def test_the_size_is_bounded(tmp_path):
    q = Gaussian(m=8)
    drawn = reported(q.calibration(200), many(q), tmp_path / "r.html")
    assert [len(figures) for figures in drawn] == [6] * 4


@pytest.mark.slow
def test_the_size_is_bounded_with_every_part(tmp_path):
    q = Gaussian(m=8)
    drawn = reported(q.calibration(300, k=10), many(q), tmp_path / "r.html", context=60)
    assert [len(figures) for figures in drawn] == [11] * 4


def test_the_file_appears_whole_or_not_at_all(check, tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    path.write_text("before")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write(check, path)
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_the_file_is_one_like_any_other(check, tmp_path):
    check.report(tmp_path / "r.html")
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert len(modes) == 1


def test_the_same_findings_make_the_same_file(check):
    assert page(check) == page(check)


def test_a_missing_folder_is_named(check, tmp_path):
    with pytest.raises(FileNotFoundError, match="path: expected a folder that exists; got .*none"):
        write(check, tmp_path / "none" / "r.html")
    with pytest.raises(IsADirectoryError, match="path: expected a file to write"):
        write(check, tmp_path)


def test_missing_plotly_is_named(check, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r"pip install 'assay\[report\]'"):
        write(check, tmp_path / "r.html")
    assert not list(tmp_path.iterdir())
