"""Code of the site's pages can be compiled and names what exists; links lead somewhere.

Cells are run when the site is made (``make docs``).
"""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import assay

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.glob("**/*.md")
    if "_build" not in path.parts
)
BLOCK = re.compile(r"```(?:python|\{code-cell\} python)\n(.*?)```", re.DOTALL)
# Links within the site: a page, a heading, or both.
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")


def blocks(page):
    """Code of a page, without options of cells."""
    for code in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        yield "\n".join(line for line in code.splitlines() if not line.startswith(":"))


CODE = [(page, i, code) for page in PAGES for i, code in enumerate(blocks(page))]


@pytest.mark.parametrize(("page", "code"), [pytest.param(p, c, id=f"{p}-{i}") for p, i, c in CODE])
def test_code_can_be_compiled_and_names_what_exists(page, code):
    tree = ast.parse(code, page)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found = dotted(node)
            if found and found.startswith("assay."):
                assert resolved(found) is not None, found
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("assay"):
            for alias in node.names:
                assert hasattr(import_module(node.module), alias.name)
        elif isinstance(node, ast.Call):
            check_call(node)


def dotted(node):
    """The name of an attribute, such as assay.plots.pp; None of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else None
    return None if inner is None else f"{inner}.{node.attr}"


def resolved(name):
    """What a name stands for; None where it stands for nothing."""
    value = assay
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    return value


def check_call(node):
    """Arguments by name are those of the function."""
    name = dotted(node.func)
    if not name or not name.startswith("assay."):
        return
    parameters = inspect.signature(resolved(name)).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    assert {k.arg for k in node.keywords} <= set(parameters), name


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_pages_and_their_headings(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    for target, heading in LINK.findall(text):
        path = (DOCS / page).parent / target if target else DOCS / page
        assert path.is_file(), target
        if heading:
            assert heading in anchors(path), f"{target}#{heading}"


def anchors(path):
    """Anchors of the headings of a page."""
    lines = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", lines, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_plot_is_in_the_gallery():
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    assert [name for name in assay.plots.__all__ if f"plots.{name}(" not in text] == []


def test_every_public_name_is_in_the_reference():
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.glob("api/*.rst"))
    modules = {"__version__", "adapters", "plots", "tasks"}
    names = [name for name in assay.__all__ if name not in modules]
    assert [name for name in names if f":: assay.{name}\n" not in text] == []


def test_lines_that_the_page_of_the_architecture_quotes_are_in_the_code():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    code = "".join(path.read_text("utf-8") for path in (DOCS.parent / "src").rglob("*.py"))
    (quoted,) = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    assert [line for line in quoted.splitlines() if code.count(line) != 1] == []
    assert len(text.split()) <= 600


def test_every_name_on_the_page_of_the_architecture_exists():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8").split("## Glossary")[0]
    names = re.findall(r"`(?!assay\.)([a-z_0-9]+(?:\.\w+)+)(?<!\.py)`", text)
    assert len(names) > 12
    assert [name for name in names if not there(name)] == []


def there(name):
    """Whether a dotted name is a module of the package, or something in one."""
    try:
        import_module(f"assay.{name}")
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        first = import_module(f"assay.{module.split('.')[0]}")
        found = getattr(first, module.partition(".")[2], first) if "." in module else first
        return hasattr(found, last)
    return True


@pytest.mark.parametrize("page", PAGES)
def test_code_that_the_site_does_not_run_says_why(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    assert re.findall(r"(?<!-->\n)```python\n", text) == []
