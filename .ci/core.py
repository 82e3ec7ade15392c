"""Runs what a wheel without extras must do, in an environment that has nothing else.

python -I .ci/core.py
"""

import importlib
import importlib.util
from collections.abc import Callable
from importlib import resources

import torch

import assay

EXTRAS = {
    "matplotlib": ("plots", lambda: assay.plots.pp),
    "sbi": ("sbi", lambda: importlib.import_module("assay.compat.sbi")),
    "zuko": ("zuko", lambda: importlib.import_module("assay.adapters.zuko")),
}


def installed() -> None:
    """The package is that of the wheel, with its types, and extras say what to install."""
    assert "site-packages" in assay.__file__, assay.__file__
    assert resources.files("assay").joinpath("py.typed").is_file()
    for package, (extra, use) in EXTRAS.items():
        assert importlib.util.find_spec(package) is None, f"{package} is installed"
        assert said(use).endswith(f"pip install 'assay[{extra}]'"), said(use)


def said(use: Callable[[], object]) -> str:
    """What is said where a package is missing."""
    try:
        use()
    except ImportError as error:
        return str(error)
    return "nothing"


def core() -> None:
    """A check finds what is wrong."""
    theta, noise = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(0))
    x = theta + noise

    def sample(x: torch.Tensor, n: int) -> torch.Tensor:
        return x / 2 + 0.4 * torch.randn(n, 2)  # 0.4 in place of 0.7

    found = assay.check(sample, theta, x, torch.ones(2), assay.Suite.quick())
    assert list(found.verdicts) == ["rejected"], found.verdicts
    print(found)  # noqa: T201


if __name__ == "__main__":
    installed()
    core()
