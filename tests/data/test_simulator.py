import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import torch

from assay._support.random import stream
from assay.data.simulator import TOGETHER, Runner, form_of

X_O = torch.zeros(2)
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


def entangled(theta):
    """Every row depends on the others."""
    return batch(theta) + theta.mean()


GENERATOR = np.random.default_rng(0)


def selfish(theta):
    return theta[:, :2].numpy() + GENERATOR.standard_normal((len(theta), 2))


def failing(theta):
    x = batch(theta)
    x[torch.rand(len(x)) < 0.05] = torch.nan
    x[torch.rand(len(x)) < 0.05, 0] = torch.inf
    return x


def raising(theta):
    if (torch.rand(len(theta)) < 0.05).any():
        raise ArithmeticError("no\nsolution")
    return batch(theta)


def raising_row(theta):
    if theta[2] > 1.5:
        raise ArithmeticError("too large")
    return row(theta)


def made(simulator, n=N, seed=0, **how):
    form = form_of(simulator, draw, X_O, seed)
    return Runner(simulator, form, seed, **how).run("prior", draw, n)


def same(first, second):
    assert torch.equal(first.theta, second.theta)
    assert torch.equal(first.x, second.x)
    assert (first.failed, first.error) == (second.failed, second.error)


def mixed(theta):
    """As many numbers as parameters: three rows would be taken for three parameters."""
    a, b, c = theta
    return torch.stack([a + torch.randn(()), b * c, c])


FORMS = {
    "batch": (batch, X_O, (TOGETHER, False, "float32", True)),
    "batch_numpy": (batch_numpy, X_O, (TOGETHER, True, "float32", True)),
    "row": (row, X_O, (0, False, "float32", True)),
    "row_numpy": (row_numpy, X_O, (0, True, "float32", True)),
    "entangled": (entangled, X_O, (1, False, "float32", True)),
    "selfish": (selfish, X_O, (1, False, "float32", False)),
    "raising": (raising, X_O, (TOGETHER, False, "float32", True)),
    "mixed": (mixed, torch.zeros(3), (0, False, "float32", True)),
    "counts": (lambda theta: torch.zeros(len(theta), 2), X_O, (TOGETHER, False, "float32", True)),
    "many observations": (batch, torch.zeros(7, 2), (TOGETHER, False, "float32", True)),
    # The precision is the lesser of simulator and observation.
    "double x_o": (batch, X_O.double(), (TOGETHER, False, "float32", True)),
    "double both": (batch_numpy, X_O.double(), (TOGETHER, True, "float64", True)),
}


class TestForm:
    @pytest.mark.parametrize(("simulator", "x_o", "expected"), FORMS.values(), ids=FORMS)
    def test_it_is_found_out(self, simulator, x_o, expected):
        form = form_of(simulator, draw, x_o, 0)
        assert (form.rows, form.numpy, form.dtype, form.repeats) == expected
        assert form.shape == x_o.shape[-1:]

    @pytest.mark.parametrize("rows", [TOGETHER, 0])
    def test_failures_do_not_hide_it(self, rows):
        def often(theta):
            if torch.rand(()) < 0.2:
                raise ArithmeticError
            x = batch(theta) if rows else row(theta)
            return x if torch.rand(()) < 0.8 else torch.nan * x

        forms = [form_of(often, draw, X_O, seed) for seed in range(10)]
        assert all(bool(form.rows) == bool(rows) for form in forms)
        assert all(form.repeats for form in forms)

    @pytest.mark.parametrize("how", [batch, row])
    def test_fixed_noise_is_refused(self, how):
        def fixed(theta):
            torch.manual_seed(0)
            return how(theta)

        with pytest.raises(ValueError, match="simulator: expected other noise in every call"):
            form_of(fixed, draw, X_O, 0)

    @pytest.mark.parametrize(
        ("simulator", "words"),
        [
            (lambda theta: theta, r"From 4 vectors came: ValueError: shape \(4, 3\)"),
            (lambda theta: theta[..., :2] * torch.nan, "came: ValueError: NaN or infinity"),
            (lambda theta: 1 / 0, "From one came: ZeroDivisionError"),
            (lambda: 0, "TypeError"),
        ],
    )
    def test_what_cannot_be_called(self, simulator, words):
        with pytest.raises(ValueError, match=r"simulator: expected a function that takes") as said:
            form_of(simulator, draw, X_O, 0)
        said.match(words)
        said.match(r"x_o of shape \(2,\)")


class TestRun:
    @pytest.mark.parametrize("simulator", [batch, batch_numpy, row, row_numpy, entangled])
    def test_pairs_belong_together(self, simulator):
        found = made(simulator)
        assert found.theta.shape == (N, 3)
        assert found.x.shape == (N, 2)
        assert (found.failed, found.error) == (0, "")
        expected = found.theta.sum(1) if simulator is batch_numpy else found.theta[:, 1]
        correlation = np.corrcoef(found.x[:, 1].numpy(), expected.numpy())[0, 1]
        assert correlation > 0.5

    def test_noise_differs_between_rows_and_chunks_and_the_seed_decides(self):
        for simulator in (batch, row):
            found = made(simulator)
            noise = (found.x - found.theta[:, :2]).round(decimals=4)
            assert len(noise.unique(dim=0)) == N
        same(made(batch), made(batch))
        assert not torch.equal(made(batch).x, made(batch, seed=1).x)

    def test_global_generators_are_left_alone(self):
        states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
        for simulator in (batch, row_numpy):
            made(simulator)
        assert torch.equal(torch.get_rng_state(), states[0])
        np.testing.assert_array_equal(np.random.get_state()[1], states[1])
        assert random.getstate() == states[2]

    def test_parameters_cannot_be_changed(self):
        def spoil(theta):
            x = batch(theta)
            theta[:] = 0
            return x

        assert torch.equal(made(spoil).theta, made(batch).theta)


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


class TestExecutors:
    @pytest.mark.parametrize("simulator", [failing, raising, row_numpy])
    def test_numbers_are_the_same_anywhere(self, simulator, processes):
        here = made(simulator)
        with ThreadPoolExecutor(3) as threads:
            same(here, made(simulator, executor=threads))
        same(here, made(simulator, executor=processes))

    def test_what_workers_cannot_import(self, processes):
        with pytest.raises(RuntimeError, match="executor: expected one that runs the simulator"):
            made(lambda theta: batch(theta), executor=processes)


class TestFailures:
    @pytest.mark.parametrize(
        ("simulator", "n", "rows", "least", "most", "error"),
        [
            (failing, 1000, TOGETHER, 60, 140, ""),
            (raising, 300, 1, 3, 33, "ArithmeticError: no solution"),
            (raising_row, 300, 0, 5, 40, "ArithmeticError: too large"),
        ],
    )
    def test_they_are_left_out(self, simulator, n, rows, least, most, error):
        found = made(simulator, n)
        assert least < found.failed < most
        assert len(found.x) == n - found.failed
        assert found.x.isfinite().all()
        assert (found.error, found.form.rows) == (error, rows)
        if simulator is raising_row:
            assert found.theta[:, 2].max() <= 1.5

    def test_a_batch_that_raises_is_drawn_anew_one_at_a_time(self):
        assert form_of(raising, draw, X_O, 0).rows == TOGETHER
        kept = set(map(tuple, made(batch, 300).theta.tolist()))
        assert not kept & set(map(tuple, made(raising, 300).theta.tolist()))

    def test_what_is_kept_is_conditioned_on_success(self):
        """Uniform parameters that succeed with chance (1 + theta) / 2: their mean is 5 / 9."""

        def uniform(n, seed):
            return torch.rand(n, 1, generator=stream(seed, "uniform"))

        def simulator(theta):
            if (torch.rand(len(theta), 1) > (1 + theta) / 2).any():
                raise ArithmeticError
            return theta + torch.randn(theta.shape)

        form = form_of(simulator, uniform, torch.zeros(1), 0)
        found = Runner(simulator, form, 0).run("prior", uniform, 800)
        # It is more than 4 standard errors from 1 / 2.
        assert abs(float(found.theta.mean()) - 5 / 9) < 3 * 0.29 / 600**0.5
        assert abs(found.failed - 200) < 3 * (800 * 3 / 16) ** 0.5

    @pytest.mark.parametrize("usual", [batch, row])
    @pytest.mark.parametrize("error", ["NaN or infinity", "ArithmeticError: never"])
    def test_most_fail(self, usual, error):
        def simulator(theta):
            if error.startswith("Arithmetic"):
                raise ArithmeticError("never")
            return usual(theta).log()

        form = form_of(usual, draw, X_O, 0)
        with pytest.raises(ValueError, match="simulations most of which succeed") as said:
            Runner(simulator, form, 0).run("prior", draw, N)
        said.match(f"failed, the first with: {error}$")

    def test_another_shape_is_a_failure(self):
        def simulator(theta):
            return row(theta)[: 1 + (theta[2] < 1.5)]

        found = made(simulator)
        assert 0 < found.failed < N / 4
        assert "an observation of shape (2,)" in found.error


class Interrupted:
    """Stops in the middle of a run."""

    def __init__(self, at):
        self.at, self.calls = at, 0

    def __call__(self, theta):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return row(theta)


class TestResume:
    FORM = form_of(row, draw, X_O, 0)

    def run(self, simulator, folder, seed=0, n=N):
        return Runner(simulator, self.FORM, seed, folder=folder).run("prior", draw, n)

    def test_only_what_is_missing_is_simulated(self, tmp_path):
        first, second, third = (Interrupted(at) for at in (TOGETHER + 7, -1, 1))
        with pytest.raises(KeyboardInterrupt):
            self.run(first, tmp_path)
        assert len(list(tmp_path.iterdir())) == 1
        for again, calls in ((second, N - TOGETHER), (third, 0)):
            same(self.run(again, tmp_path), self.run(row, None))
            assert again.calls == calls

    def test_batches_that_failed_stay_failed(self, tmp_path):
        form = form_of(raising, draw, X_O, 0)
        first = Runner(raising, form, 0, folder=tmp_path).run("prior", draw, N)
        # All is there, so that nothing is simulated, whatever it would give.
        again = Runner(batch, form, 0, folder=tmp_path).run("prior", draw, N)
        same(first, again)

    def test_another_call_is_refused(self, tmp_path):
        self.run(row, tmp_path)
        with pytest.raises(ValueError, match="resume: expected simulations of the same param"):
            self.run(row, tmp_path, seed=1)

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a file"])
    def test_a_file_that_cannot_be_read(self, tmp_path, content):
        self.run(row, tmp_path)
        (tmp_path / "prior-0-00001.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"00001.npz cannot be read. Delete it"):
            self.run(row, tmp_path)
