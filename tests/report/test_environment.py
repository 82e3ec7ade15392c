import sys

import pytest
from jinja2 import UndefinedError

from assay.report.environment import environment

NASTY = "<script>alert(1)</script>"


def rendered(source, **values):
    return environment().from_string(source).render(**values)


def macro(call, **values):
    return rendered(f'{{% import "macros.html" as macros %}}{{{{ macros.{call} }}}}', **values)


def test_text_is_escaped():
    assert rendered("<p>{{ name }}</p>", name=NASTY) == (
        "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"
    )
    joined = rendered("<p>{{ 'a ' ~ name }}</p>", name=NASTY)
    assert "<script" not in joined


def test_attributes_cannot_be_left():
    page = rendered('<a title="{{ name }}">x</a>', name='"><img src=x>')
    assert page == '<a title="&#34;&gt;&lt;img src=x&gt;">x</a>'


@pytest.mark.parametrize("bad", ["\x00", "\x1b", "\u202e", "\ud800", "\ufeff"])
def test_what_html_does_not_allow_is_replaced(bad):
    assert rendered("<p>{{ name }}</p>", name=f"a{bad}b") == "<p>a\ufffdb</p>"
    page = macro("plain_table(name, [name], [[name]])", name=f"a{bad}b")
    assert bad not in page
    assert page.count("a\ufffdb") == 4


def test_values_are_not_read_as_templates():
    assert rendered("{{ a }} {{ b }}", a="{{ b }}", b=1) == "{{ b }} 1"


def test_a_missing_value_is_an_error():
    with pytest.raises(UndefinedError, match="missing"):
        rendered("{{ missing }}")
    with pytest.raises(UndefinedError, match="missing"):
        rendered("{{ part.missing }}", part={})


def test_a_table_has_caption_and_scopes():
    rows = [["a", "1"], ["b", "2"]]
    page = macro("plain_table(name, ['name', 'value'], rows, ['value'])", name=NASTY, rows=rows)
    assert page.count('scope="row"') == 2
    assert page.count('scope="col"') == 2
    assert "<caption>&lt;script" in page
    assert '<td class="words">2</td>' in page
    assert 'tabindex="0"' in page


def test_line_breaks_of_templates_are_not_in_the_page():
    page = macro("badge('passed', 'words <')")
    assert page == (
        '<span class="badge passed"><svg viewBox="0 0 12 12" aria-hidden="true">'
        '<circle cx="6" cy="6" r="5"/></svg>words &lt;</span>'
    )


def test_missing_jinja_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"jinja2, .* pip install 'assay\[report\]'"):
        environment()
