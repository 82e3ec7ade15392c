import pytest

from assay.report.markup import Markup, filled, joined, table, tag

NASTY = "<script>alert(1)</script>"


def test_text_is_escaped_and_markup_is_not():
    assert tag("p", NASTY) == "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"
    assert tag("p", tag("b", "x")) == "<p><b>x</b></p>"
    assert isinstance(joined([NASTY]), Markup)
    assert "<script" not in joined([NASTY])


def test_attributes_cannot_be_left():
    made = tag("a", "x", title='"><img src=x>')
    assert made == '<a title="&quot;&gt;&lt;img src=x&gt;">x</a>'
    assert tag("td", hidden=True, class_=None, tabindex=0) == '<td hidden tabindex="0"></td>'


@pytest.mark.parametrize("bad", ["\x00", "\x1b", "\u202e", "\ud800", "\ufeff"])
def test_what_html_does_not_allow_is_replaced(bad):
    assert tag("p", f"a{bad}b") == "<p>a\ufffdb</p>"


def test_a_table_has_caption_and_scopes():
    made = table(NASTY, ["name", "value"], [["a", "1"], ["b", tag("i", "2")]])
    assert made.count('scope="row"') == 2
    assert made.count('scope="col"') == 2
    assert "<caption><span>&lt;script" in made
    assert "<td><i>2</i></td>" in made
    assert 'tabindex="0"' in made


def test_templates_are_read_once():
    assert filled("{{a}} {{b}}", {"a": "{{b}}", "b": "1"}) == "{{b}} 1"
    with pytest.raises(KeyError):
        filled("{{missing}}", {})
