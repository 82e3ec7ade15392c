from pathlib import Path

import pytest

import assay

from .mutations import MUTATIONS

SOURCES = Path(assay.__file__).parent


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.says)
def test_its_text_stands_exactly_once(mutation):
    source = (SOURCES / mutation.file).read_text()
    assert source.count(mutation.text) == 1
    assert mutation.text != mutation.instead
    file, *names = mutation.test.partition("[")[0].split("::")
    tests = Path(file).read_text(encoding="utf-8")
    assert all(f"def {name}(" in tests or f"class {name}:" in tests for name in names)


def test_there_are_enough():
    assert len({mutation.says for mutation in MUTATIONS}) == len(MUTATIONS) >= 25
