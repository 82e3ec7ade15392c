"""Global state of torch and NumPy has no say in results, and is as it was afterwards."""

import ast
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.naive_bayes import GaussianNB

import assay
from assay.classifiers.features import Joint
from assay.data.posterior import StandardNormal

from .outcome import numbers

N, M, K = 60, 2, 5
SMALL = assay.MLP((4,), epochs=1)
RIDGE = assay.Ridge((Joint(8),))
RANDOM = np.random.default_rng(0)
THETA = RANDOM.normal(size=(N, M)).astype("float32")
X = (THETA + RANDOM.normal(size=(N, M))).astype("float32")
THETA_Q = (X[:, None] / 2 + 0.7 * RANDOM.normal(size=(N, K, M))).astype("float32")
X_O = np.array([0.1, -0.2], dtype="float32")
THETA_O = (X_O / 2 + 0.7 * RANDOM.normal(size=(40, M))).astype("float32")


def pairs():
    return assay.Calibration(THETA, X, THETA_Q)


def latents():
    return assay.Calibration.from_base(2**0.5 * (THETA - X / 2), X)


def draws():
    return assay.Draws(X_O, THETA_O)


def simulate(theta):
    return theta + torch.randn(theta.shape, dtype=theta.dtype, device=theta.device)


def sample(x, n):
    return x / 2 + 0.7 * torch.randn(n, M, dtype=x.dtype, device=x.device)


def log_q(theta, x):
    return -(theta - x / 2).square().sum(-1)


class Flow:
    base = StandardNormal(M)
    sample = staticmethod(sample)

    def theta_to_base(self, theta, x):
        return (theta - x / 2) / 0.7


def check():
    return assay.check(sample, THETA, X, X_O, draws=K, nulls=19, classifier=SMALL)


ENGINES = {
    "Calibration.of": lambda: assay.Calibration.of(sample, THETA, X, K),
    "score": lambda: assay.score(pairs(), null=9)(draws()),
    "score of a flow": lambda: assay.score(pairs().to_latent(Flow()), null=9)(X_O),
    "MLP": lambda: assay.lc2st(pairs(), SMALL, 9)(draws()),
    "MLP of latents": lambda: assay.lc2st(latents(), SMALL, 9)(X_O),
    "Ridge": lambda: assay.lc2st(pairs(), RIDGE, 9)(draws()),
    "Sklearn": lambda: assay.lc2st(pairs(), assay.Sklearn(GaussianNB()), 9)(draws()),
    "local": lambda: assay.lc2st(pairs(), RIDGE, assay.LocalExchange(9))(draws()),
    "free": lambda: assay.lc2st(pairs(), SMALL, assay.FreePermutation(9))(draws()),
    "lhpd": lambda: assay.lhpd(pairs(), log_q, null=9)(X_O),
    "lpit": lambda: assay.lpit(pairs(), null=9)(X_O),
    "sbc": lambda: assay.sbc(pairs(), null=9),
    "coverage": lambda: assay.coverage(pairs(), log_q, null=9),
    "tarp": lambda: assay.tarp(pairs(), null=9),
    "c2st": lambda: assay.c2st(THETA, THETA_Q[:, 0], SMALL, null=3),
    "typical": lambda: assay.typical(X, X_O),
    "bounds": lambda: assay.bounds(pairs(), X_O),
    "predictive": lambda: assay.predictive(THETA_O, simulate, X_O, 19),
    "check": check,
}
SLOW = {"check"}


@contextmanager
def changed(function, value, before):
    function(value)
    try:
        yield
    finally:
        function(before)


STATES = {
    "float64": lambda: changed(torch.set_default_dtype, torch.float64, torch.float32),
    # A device that holds no numbers takes the part of any other.
    "another device": lambda: changed(torch.set_default_device, "meta", None),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference mode": torch.inference_mode,
    "no gradients": torch.no_grad,
    "deterministic": lambda: changed(torch.use_deterministic_algorithms, True, False),
    "NumPy raises": lambda: np.errstate(all="raise"),
}


def state():
    """All that is set for the whole process, or thread."""
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "inference": torch.is_inference_mode_enabled(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "torch": torch.default_generator.get_state().tolist(),
        "numpy": np.random.get_state()[1].tolist(),  # noqa: NPY002
        "errors": np.geterr(),
    }


def answers(make):
    return [(array.dtype, array.shape, array.tobytes()) for array in numbers(make())]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in ENGINES],
)
def test_the_same_bits(name):
    clean = answers(ENGINES[name])
    assert clean
    for how, enter in STATES.items():
        with enter():
            before = state()
            assert answers(ENGINES[name]) == clean, how
            assert state() == before, how


def test_made_in_inference_mode_and_used_outside():
    with torch.inference_mode():
        calibration = pairs()
    assert not calibration.theta.is_inference()
    found = assay.lc2st(calibration, SMALL, 9)(draws())
    assert np.array_equal(found.null, ENGINES["MLP"]().null)


# Torch's defaults are read nowhere: factories name the type and the device of what they make.

# Whole numbers and truth values have a type of their own.
WHOLE = {"arange", "randint", "randperm", "tril_indices", "triu_indices", "as_tensor", "asarray"}
FLOATING = {"zeros", "ones", "empty", "full", "eye", "linspace", "logspace", "rand", "randn"}
FLOATING |= {"tensor", "normal", "scalar_tensor", "hann_window"}


def incomplete(source):
    """Calls of torch's factories that leave something to torch's defaults."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, given = node.func.attr, {keyword.arg for keyword in node.keywords}
        needed = (
            {"device"} if name in WHOLE else {"device", "dtype"} if name in FLOATING else set()
        )
        if getattr(node.func.value, "id", "") == "torch" and needed - given:
            yield f"{node.lineno}: {ast.unparse(node)} lacks {sorted(needed - given)}"


def test_every_factory_names_type_and_device():
    for path in Path(assay.__file__).parent.rglob("*.py"):
        assert not list(incomplete(path.read_text(encoding="utf-8"))), path


def test_a_factory_that_does_not_is_found():
    found = list(incomplete("torch.zeros(3, device='cpu'); torch.arange(3); x.new_zeros(3)"))
    assert [line.rpartition(" lacks ")[2] for line in found] == ["['dtype']", "['device']"]
