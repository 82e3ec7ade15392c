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


def test_every_module_is_in_the_tree_of_the_architecture():
    """And nothing else is."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    tree = text.split("src/assay/\n")[1].split("```")[0]
    source = DOCS.parent / "src" / "assay"
    paths = (path.relative_to(source) for path in source.rglob("*.py"))
    assert {path.as_posix() for path in paths if path.name != "__init__.py"} == modules_of(tree)


def modules_of(tree):
    """Modules of a tree whose folders are indented, by four at a time."""
    folders, found = [], set()
    for line in filter(None, tree.splitlines()):
        indent = (len(line) - len(line.lstrip())) // 4 - 1
        names = re.findall(r"^\s*([\w./]+(?:, [\w./]+)*)", line)[0].split(", ")
        if len(names) == 1 and names[0].endswith("/"):
            folders = [*folders[:indent], names[0]]
        else:
            found |= {"".join([*folders[:indent], name]) for name in names}
    return {name for name in found if name.endswith(".py") and "__init__" not in name}


@pytest.mark.parametrize("page", PAGES)
def test_code_that_the_site_does_not_run_says_why(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    assert re.findall(r"(?<!-->\n)```python\n", text) == []
