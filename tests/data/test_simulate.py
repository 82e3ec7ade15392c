"""How a simulator is called and run: forms, failures, executors, resumption."""

import random
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from assay._support.random import stream
from assay.data.simulate import TOGETHER, Runner, Simulations

ORIGIN, GENERATOR = torch.zeros(2), np.random.default_rng(0)
N = 2 * TOGETHER + 20


def draw(n, seed):
    return torch.randn(n, 3, generator=stream(seed, "theta"))


def batch(theta):
    return theta[:, :2] + torch.randn(len(theta), 2)


def batch_numpy(theta):
    """Products of tensors with arrays are refused."""
    return theta @ np.ones((3, 2), np.float32) + np.random.randn(len(theta), 2)


def row(theta):
    a, b, _ = theta.tolist()
    return torch.tensor([a, b]) + torch.randn(2)


def row_numpy(theta):
    assert isinstance(theta, np.ndarray)
    return [theta[0] + random.gauss(0, 1), float(theta[1])]


def often(simulator):
    """Fails often, by an error or NaN, and changes what it is given."""

    def fails(theta):
        x, u = simulator(theta), torch.rand(())
        theta[:] = 0
        return 1 / 0 if u < 0.2 else x * (torch.nan if u > 0.8 else 1)

    return fails


def failing(theta):
    x = batch(theta)
    x[torch.rand(len(x)) < 0.1, 0] = random.choice([torch.nan, torch.inf])
    return x


def raising(theta):
    if (torch.rand(len(theta)) < 0.05).any():
        raise ArithmeticError("no\nsolution")
    return batch(theta)


def raising_row(theta):
    if theta[2] > 1.5:
        raise ArithmeticError("too large")
    return row(theta)


def never(theta):
    raise AssertionError("everything is kept")


def run(simulator, n=N, seed=0, x_o=ORIGIN, draw=draw, **how):
    runner = Runner.of(simulator, draw, x_o, seed)
    return Runner(**vars(runner) | how).run("prior", draw, n)


def same(first, second):
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert (first[2].failed, first[2].error) == (second[2].failed, second[2].error)


SINGLE = (False, "float32", True)
FORMS = {
    "batch": (batch, ORIGIN, (TOGETHER, *SINGLE)),
    "batch_numpy": (batch_numpy, ORIGIN, (TOGETHER, True, "float32", True)),
    "row": (row, ORIGIN, (0, *SINGLE)),
    "row_numpy": (row_numpy, ORIGIN, (0, True, "float32", True)),
    "rows that depend on others": (lambda t: batch(t) + t.mean(), ORIGIN, (1, *SINGLE)),
    "a generator of its own": (
        lambda t: t[:, :2].numpy() + GENERATOR.standard_normal((len(t), 2)),
        ORIGIN,
        (1, False, "float32", False),
    ),
    "raising": (raising, ORIGIN, (TOGETHER, *SINGLE)),
    "often": (often(batch), ORIGIN, (TOGETHER, *SINGLE)),
    "often a row": (often(row), ORIGIN, (0, *SINGLE)),
    # Three rows would be taken for three parameters.
    "mixed": (
        lambda t: torch.stack([t[0], t[1] * t[2], t[2] + torch.randn(())]),
        torch.zeros(3),
        (0, *SINGLE),
    ),
    "counts": (lambda t: torch.zeros(len(t), 2), ORIGIN, (TOGETHER, *SINGLE)),
    "many observations": (batch, torch.zeros(7, 2), (TOGETHER, *SINGLE)),
    # The precision is the lesser of simulator and observation.
    "double x_o": (batch, ORIGIN.double(), (TOGETHER, *SINGLE)),
    "double both": (batch_numpy, ORIGIN.double(), (TOGETHER, True, "float64", True)),
}
UNUSABLE = [
    (lambda theta: theta, r"From 4 vectors came: ValueError: shape \(4, 3\).* From one came"),
    (lambda theta: theta[..., :2] * torch.nan, "came: ValueError: NaN or infinity"),
    (lambda theta: 1 / 0, r"x_o of shape \(2,\).* From one came: ZeroDivisionError"),
    (lambda: 0, "expected a function that takes parameters .* TypeError"),
    (lambda theta: 0.1 + theta[:, :2], "expected other noise in every call"),
    (lambda theta: [0.1, float(theta[0])], "expected other noise in every call"),
]


class TestForm:
    @pytest.mark.parametrize(("simulator", "x_o", "expected"), FORMS.values(), ids=FORMS)
    def test_it_is_found_out(self, simulator, x_o, expected):
        runner = Runner.of(simulator, draw, x_o, 0)
        assert (runner.rows, runner.numpy, runner.dtype, runner.repeats) == expected
        assert runner.shape == x_o.shape[-1:]

    @pytest.mark.parametrize(("simulator", "words"), UNUSABLE)
    def test_what_cannot_be_called(self, simulator, words):
        with pytest.raises(ValueError, match=f"simulator: .*{words}"):
            Runner.of(simulator, draw, ORIGIN, 0)


@pytest.mark.parametrize("simulator", [batch, batch_numpy, row, row_numpy])
def test_pairs_belong_together_and_the_seed_decides(simulator):
    states = torch.get_rng_state(), random.getstate()
    theta, x, runner = run(simulator)
    assert (theta.shape, x.shape, runner.failed, runner.error) == ((N, 3), (N, 2), 0, "")
    expected = theta.sum(1) if simulator is batch_numpy else theta[:, 1]
    assert np.corrcoef(x[:, 1].numpy(), expected.numpy())[0, 1] > 0.5
    # Noise differs between rows and chunks.
    assert len((x - theta[:, :2]).round(decimals=4)[:, 0].unique()) == N
    same((theta, x, runner), run(simulator))
    assert not torch.equal(x, run(simulator, seed=1)[1])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]


def test_numbers_are_the_same_anywhere():
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        for simulator in (failing, raising, row_numpy):
            with ThreadPoolExecutor(3) as threads:
                same(run(simulator), run(simulator, executor=threads))
            same(run(simulator), run(simulator, executor=processes))
        with pytest.raises(RuntimeError, match="executor: expected one that runs the simulator"):
            run(lambda theta: batch(theta), executor=processes)


class TestFailures:
    @pytest.mark.parametrize(
        ("simulator", "rows", "error"),
        [
            (failing, TOGETHER, ""),
            (raising, 1, "ArithmeticError: no solution"),
            (raising_row, 0, "ArithmeticError: too large"),
            (lambda t: row(t)[: 1 + (t[2] < 1.5)], 0, "ValueError: expected an observation of sh"),
        ],
    )
    def test_they_are_left_out(self, simulator, rows, error):
        """All parameters of a batch that raises an error are replaced."""
        theta, x, runner = run(simulator, 300)
        assert 3 < runner.failed < 60
        assert len(theta) == len(x) == 300 - runner.failed
        assert x.isfinite().all()
        assert runner.error.startswith(error)
        assert runner.rows == rows
        assert rows or theta[:, 2].max() <= 1.5
        same_theta = set(map(tuple, theta.tolist())) & set(map(tuple, run(batch, 300)[0].tolist()))
        assert bool(same_theta) == (simulator is failing)

    def test_what_is_kept_is_conditioned_on_success(self):
        """Uniform parameters that succeed with chance (1 + theta) / 2: their mean is 5 / 9."""

        def simulator(theta):
            success = (torch.rand(len(theta), 1) < (1 + theta) / 2).all()
            return theta + torch.randn(theta.shape) if success else 1 / 0

        uniform = lambda n, seed: torch.rand(n, 1, generator=stream(seed, "uniform"))  # noqa: E731
        theta, _, runner = run(simulator, 800, x_o=torch.zeros(1), draw=uniform)
        # It is more than 4 standard errors from 1 / 2.
        assert abs(float(theta.mean()) - 5 / 9) < 3 * 0.29 / 600**0.5
        assert abs(runner.failed - 200) < 3 * (800 * 3 / 16) ** 0.5

    @pytest.mark.parametrize("usual", [batch, row])
    def test_most_fail(self, usual):
        runner, nothing = vars(Runner.of(usual, draw, ORIGIN, 0)), lambda t: usual(t) / 0 - 9
        for simulator, words in ((never, "AssertionError: everything"), (nothing, "NaN or inf")):
            few = Runner(**runner | {"simulator": simulator})
            with pytest.raises(ValueError, match=f"most of which succeed; .* with: {words}"):
                few.run("prior", draw, N)
            assert few.repeat("predictive", torch.zeros(3), 19)[2].failed == 19


def test_only_what_is_missing_is_simulated(tmp_path):
    calls, stop = [], TOGETHER + 7

    def counted(theta):
        calls.append(1)
        if len(calls) == stop:
            raise KeyboardInterrupt
        return row(theta)

    runner = vars(Runner.of(row, draw, ORIGIN, 0)) | {"folder": tmp_path, "simulator": counted}
    with pytest.raises(KeyboardInterrupt):
        Runner(**runner).run("prior", draw, N)
    assert len(list(tmp_path.iterdir())) == 1
    for more in (N - TOGETHER, 0):
        calls, stop = [], -1
        same(Runner(**runner).run("prior", draw, N), run(row))
        assert len(calls) == more
    with pytest.raises(ValueError, match="resume: expected simulations of the same param"):
        Runner(**runner | {"seed": 1}).run("prior", draw, N)
    for content in (b"", b"PK\x03\x04 half a file"):
        (tmp_path / "prior-0-00001.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"00001.npz cannot be read. Delete it"):
            Runner(**runner).run("prior", draw, N)
    # Batches that failed stay failed: nothing is simulated, whatever it would give.
    runner = vars(Runner.of(raising, draw, ORIGIN, 0)) | {"folder": tmp_path / "raising"}
    (tmp_path / "raising").mkdir()
    first = Runner(**runner).run("prior", draw, N)
    same(first, Runner(**runner | {"simulator": never}).run("prior", draw, N))


BAD = {
    "simulator: expected a function": {"simulator": 3},
    "prior: expected a torch distribution": {"prior": None},
    "simulations: expected at least 50": {"n": 20},
    "executor: expected a concurrent": {"executor": 3},
    "resume: expected a folder": {"resume": ""},
}


@pytest.mark.parametrize(("message", "given"), BAD.items())
def test_bad_input(message, given):
    prior = MultivariateNormal(torch.zeros(1), torch.eye(1))
    with pytest.raises((TypeError, ValueError), match=message):
        Simulations(**{"simulator": batch, "prior": prior} | given)
