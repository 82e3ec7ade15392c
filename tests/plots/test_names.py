"""Plots are called alike, and are functions wherever they are imported."""

import inspect
from pathlib import Path

import pytest

from assay import plots

OPTIONS = {"alpha", "label", "marks", "names", "quantity", "tolerance", "values", "which"}


@pytest.mark.parametrize("name", sorted({*plots.__all__} - {"summary"}))
def test_a_result_then_axes_then_options(name):
    first, second, *others = inspect.signature(getattr(plots, name)).parameters.values()
    assert first.name in {"result", "calibration", "check"}
    assert (second.name, second.default) == ("ax", None)
    assert {option.name for option in others} <= OPTIONS


def test_a_summary_takes_a_check_and_an_observation():
    assert list(inspect.signature(plots.summary).parameters) == ["check", "which"]


def test_no_module_has_the_name_of_a_plot():
    modules = {path.stem for path in Path(plots.__file__).parent.glob("*.py")}
    assert not modules & set(plots.__all__)
    assert dir(plots) == sorted(plots.__all__)


def test_an_unknown_plot():
    with pytest.raises(AttributeError, match="no attribute 'pie'"):
        _ = plots.pie
