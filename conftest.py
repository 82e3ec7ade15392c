"""Names that the examples in docstrings take for granted."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import assay


@pytest.fixture(autouse=True)
def _names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(assay=assay, np=np, torch=torch, Path=Path, tempfile=tempfile)
