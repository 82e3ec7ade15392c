"""Torch's defaults are read nowhere: factories name the type and the device of what they make."""

import ast
from pathlib import Path

import assay

# Whole numbers and truth values have a type of their own.
WHOLE = {"arange", "randint", "randperm", "tril_indices", "triu_indices", "as_tensor", "asarray"}
NUMBERS = {"zeros", "ones", "empty", "full", "eye", "linspace", "logspace", "rand", "randn"}
NUMBERS |= {"tensor", "normal", "scalar_tensor", "hann_window"}


def factories(tree):
    """Calls of torch's factories."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    named = (node for node in calls if isinstance(node.func, ast.Attribute))
    return [
        node
        for node in named
        if getattr(node.func.value, "id", "") == "torch" and node.func.attr in WHOLE | NUMBERS
    ]


def missing(node):
    """What a call leaves to torch's defaults."""
    said = {keyword.arg for keyword in node.keywords}
    return ({"device"} if node.func.attr in WHOLE else {"device", "dtype"}) - said


def test_every_factory_names_type_and_device():
    left = [
        f"{path.name}:{node.lineno}: {ast.unparse(node)} lacks {sorted(missing(node))}"
        for path in Path(assay.__file__).parent.rglob("*.py")
        for node in factories(ast.parse(path.read_text(encoding="utf-8")))
        if missing(node)
    ]
    assert not left, "\n".join(left)


def test_it_would_be_seen():
    found = factories(ast.parse("torch.zeros(3, device='cpu'); torch.arange(3); x.new_zeros(3)"))
    assert [missing(node) for node in found] == [{"dtype"}, {"device"}]
