import io
import random
import sys
import threading

import numpy as np
import pytest
import torch

from assay import Exchange, KnownBase, LocalExchange, _core
from assay._core import (
    Stages,
    as_device,
    as_null,
    as_tensors,
    check_count,
    check_finite,
    check_kind,
    check_number,
    check_share,
    isolated,
    mix_seed,
    one_thread,
    progress,
    seed_of,
    spread_over,
    stream,
    without_progress,
)
from assay.neighbourhood import Nearest


class TestArrays:
    def test_one_floating_type_for_all(self):
        single = as_tensors({"a": np.zeros(3, "f4"), "b": torch.zeros(2)})
        assert [array.dtype for array in single.values()] == [torch.float32] * 2
        mixed = as_tensors({"a": np.zeros(3, "f4"), "b": [1, 2]})
        assert [array.dtype for array in mixed.values()] == [torch.float64] * 2
        half = as_tensors({"a": torch.zeros(2, dtype=torch.float16)})
        assert half["a"].dtype == torch.float32

    def test_a_copy_that_does_not_change_afterwards(self):
        for given in (np.ones(3), torch.ones(3, requires_grad=True)):
            found = as_tensors({"a": given})["a"]
            with torch.no_grad():
                given[0] = 9
            assert found.tolist() == [1, 1, 1]
            assert not found.requires_grad

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                [[1.0], [1.0, 2.0]],
                "a: expected an array of numbers; got rows of different lengths. Pad",
            ),
            (["x"], "a: expected an array of real numbers; got <U1"),
            (None, "a: expected an array of real numbers; got object"),
            (np.ones(2) * 1j, "a: expected an array of real numbers; got complex128"),
            (torch.ones(2) * 1j, "a: expected a dense array of real numbers; got torch.complex64"),
            (torch.eye(2).to_sparse(), "a: expected a dense array .*torch.sparse_coo"),
        ],
    )
    def test_what_is_no_array(self, given, message):
        with pytest.raises(TypeError, match=message):
            as_tensors({"a": given})

    def test_what_has_no_numbers_here(self):
        with pytest.raises(ValueError, match=r"a: expected a non-empty array; got shape \(0, 3\)"):
            as_tensors({"a": np.ones((0, 3))})
        with pytest.raises(ValueError, match="device: expected all .*a on cpu, b on meta"):
            as_tensors({"a": torch.ones(2), "b": torch.ones(2, device="meta")})

    def test_what_is_not_finite_is_counted(self):
        table = torch.zeros(8, 2)
        check_finite("a", table)
        table[[1, 2, 3, 5, 6, 7], 1] = torch.nan
        message = r"a: .* in 6 of 8 rows, first at \[1, 2, 3, 5, 6\]. Leave them out"
        with pytest.raises(ValueError, match=message):
            check_finite("a", table, "Leave them out")
        with pytest.raises(ValueError, match="in 1 of 1 rows"):
            check_finite("a", torch.tensor(torch.inf))

    def test_devices(self):
        assert as_device("cpu") == torch.device("cpu")
        with pytest.raises(ValueError, match="device: expected one of .*'cpu'.*; got 'quantum'"):
            as_device("quantum")


class TestNumbers:
    def test_counts(self):
        assert check_count("n", np.int64(3)) == 3
        assert check_count("n", 0, least=0) == 0
        with pytest.raises(ValueError, match="n: expected at least 2; got 1"):
            check_count("n", 1, least=2)
        for bad in (True, 2.0, "2", None):
            with pytest.raises(TypeError, match=f"n: expected a whole.*got {type(bad).__name__}"):
                check_count("n", bad)

    def test_numbers(self):
        assert check_number("r", np.float32(0.5)) == 0.5
        assert check_number("r", 0, strict=False) == 0
        with pytest.raises(ValueError, match="r: expected a finite number above 0; got 0"):
            check_number("r", 0)
        with pytest.raises(ValueError, match="r: expected a finite number of at least 2; got 1"):
            check_number("r", 1, least=2, strict=False)
        for bad in (float("nan"), float("inf")):
            with pytest.raises(ValueError, match="r: expected a finite number"):
                check_number("r", bad)
        for bad in (False, "1", None, [1]):
            with pytest.raises(TypeError, match=f"r: expected a number; got {type(bad).__name__}"):
                check_number("r", bad)

    def test_shares(self):
        assert check_share("s", np.float64(0.25)) == 0.25
        for bad in (0, 1, -0.1, float("nan"), True, "half", None):
            with pytest.raises(ValueError, match="s: expected a number between 0 and 1; got"):
                check_share("s", bad)

    def test_kinds(self):
        check_kind("a", [], "a list", "append")
        with pytest.raises(TypeError, match="a: expected a list; got tuple"):
            check_kind("a", (), "a list", "append")
        with pytest.raises(TypeError, match="a: expected a list; got the class list"):
            check_kind("a", list, "a list", "append")


class TestNulls:
    def test_a_number_is_that_many_of_the_default(self):
        assert as_null(None, Exchange(7), Exchange) == Exchange(7)
        assert as_null(39, Exchange(7), Exchange) == Exchange(39)
        local = LocalExchange(5, Nearest(0.3))
        assert as_null(9, local, LocalExchange) == LocalExchange(9, Nearest(0.3))
        null = KnownBase(3)
        assert as_null(null, Exchange(7), Exchange, KnownBase) is null

    @pytest.mark.parametrize("bad", [KnownBase(3), Exchange, True, 9.0, "many", 0])
    def test_what_is_none_of_the_kinds(self, bad):
        message = "null: expected (at least 1; got 0|a number .* such as Own; got)"
        with pytest.raises((TypeError, ValueError), match=message):
            as_null(bad, Exchange(7), Exchange, hint="Own")
        with pytest.raises(TypeError, match=r"such as Exchange\(99\); got"):
            as_null("many", Exchange(7), Exchange)


def test_a_seed_depends_on_content_too():
    content = np.arange(6)
    mixed = mix_seed(3, content)
    assert mixed == mix_seed(3, content.tobytes())
    assert mixed != mix_seed(4, content)
    assert mixed != mix_seed(3, content[::-1])
    assert mixed != 3
    assert 0 <= mix_seed(2**62 - 1, b"any") < 2**62
    assert seed_of(mixed) == mixed
    # Other seeds stay other seeds: the mix is one to one in the seed.
    assert len({mix_seed(seed, content) for seed in range(1000)}) == 1000


class TestProgress:
    def test_nothing_is_lost_and_a_pipe_is_silent(self, capsys):
        assert list(progress(range(5), "work")) == [0, 1, 2, 3, 4]
        assert len(list(progress(torch.zeros(3, 2), "work"))) == 3
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize(("silent", "shown"), [(False, True), (True, False)])
    def test_a_bar_where_it_is_asked_for(self, capsys, silent, shown):
        list(progress(range(3), "work", silent=silent))
        assert ("work" in capsys.readouterr().err) == shown

    @pytest.mark.parametrize("inside", [without_progress, lambda: Stages("checking", {"a": 1.0})])
    def test_none_inside_and_one_again_outside(self, capsys, inside):
        """Also after an error."""
        with pytest.raises(ZeroDivisionError), inside(), inside():
            _ = [1 // i for i in progress(range(3), "hidden")]
        list(progress(range(3), "outer", silent=False))
        shown = capsys.readouterr().err
        assert "hidden" not in shown
        assert "outer" in shown

    def test_a_bar_that_is_moved_by_hand(self, capsys):
        with progress(desc="work", silent=False, total=4) as bar:
            bar.update(4)
            assert bar.n == 4
        assert "work" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that each look moves on by ten seconds."""
    ticks = iter(range(0, 10**6, 10))
    monkeypatch.setattr(_core.time, "monotonic", lambda: float(next(ticks)))


class TestLines:
    def test_at_most_every_thirty_seconds(self, capsys, clock):
        list(progress(range(10), "work"))
        lines = capsys.readouterr().err.splitlines()
        assert lines == [
            "work: 30%, 00:30, about 01:10 left",
            "work: 60%, 01:00, about 00:40 left",
            "work: 90%, 01:30, about 00:10 left",
        ]

    def test_without_a_total(self, capsys, clock):
        with progress(desc="work") as bar:
            for _ in range(3):
                bar.update(5)
        assert capsys.readouterr().err == "work: 00:30, 15 done\n"

    def test_stages_are_named(self, capsys, clock):
        with Stages("checking", {"a": 1, "b": 3}) as stages:
            stages.enter("a")
            stages.enter("b")
            list(progress(range(4), "hidden"))
        lines = capsys.readouterr().err.splitlines()
        assert all(line.startswith("checking, b: ") for line in lines)
        assert len(lines) == 2


class TestStages:
    shares = {"a": 1.0, "b": 3.0}  # noqa: RUF012

    def test_one_bar_for_all(self, monkeypatch):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        with Stages("checking", self.shares) as stages:
            stages.enter("a")
            list(progress(range(5), "inner"))
            stages.enter("b")
            with progress(desc="by hand", total=2) as bar:
                bar.update(2)
        shown = terminal.getvalue()
        assert "checking, a" in shown
        assert "checking, b" in shown
        assert "inner" not in shown
        assert "by hand" not in shown
        # No line is left behind, and no other bar stands below.
        assert "\n" not in shown
        assert not shown.split("\r")[-1].strip()

    def test_bars_inside_move_it(self):
        with Stages("checking", self.shares) as stages:
            stages.enter("a")
            stages.enter("b", 4)
            assert stages.done == 1
            seen = []
            for _ in range(4):
                for _ in progress(range(3), "inner"):
                    list(progress(range(7), "innermost"))
                seen.append(stages.done)
        np.testing.assert_allclose(seen, [1.75, 2.5, 3.25, 3.25 + 0.8 * 0.75])

    def test_more_than_expected_never_leave_the_stage(self):
        with Stages("checking", self.shares) as stages:
            stages.enter("a")
            before = 0.0
            for _ in range(50):
                list(progress(range(3), "inner"))
                assert before <= stages.done <= 1
                before = stages.done

    def test_silent_ones_do_not_count(self):
        with Stages("checking", self.shares) as stages:
            stages.enter("a")
            list(progress(range(3), "inner", silent=True))
            with without_progress():
                list(progress(range(3), "inner"))
            assert stages.done == 0

    def test_threads_may_move_it(self):
        with Stages("checking", self.shares) as stages, progress(desc="x", total=8) as bar:
            workers = [threading.Thread(target=bar.update) for _ in range(8)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            assert bar.n == 8
        assert stages.done == 0


def test_one_thread_to_a_product():
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_streams_differ_by_key_and_seed():
    keys = [(0, "null", 1), (0, "null", 2), (0, "order", 1), (1, "null", 1)]
    numbers = [torch.rand(4, generator=stream(*key)) for key in keys]
    assert all(not torch.equal(a, b) for i, a in enumerate(numbers) for b in numbers[:i])


def test_a_generator_gives_a_seed_and_moves_on():
    generator = torch.Generator().manual_seed(3)
    first, second = seed_of(generator), seed_of(generator)
    assert first != second
    assert first == seed_of(torch.Generator().manual_seed(3))


def test_isolated_leaves_global_generators_alone():
    """Also after an error."""

    def numbers():
        return torch.rand(1), np.random.rand(), random.random()

    def seeded():
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)

    seeded()
    before = numbers()
    seeded()
    with isolated(stream(0, "inside")):
        inside = numbers()
    with pytest.raises(ZeroDivisionError), isolated(stream(0, "inside")):
        torch.rand(3) / (1 // 0)
    assert numbers() == before
    with isolated(stream(0, "inside")):
        assert numbers() == inside


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True, None])
def test_bad_seeds(seed):
    with pytest.raises((TypeError, ValueError), match="seed: expected"):
        seed_of(seed)


@pytest.mark.parametrize("workers", [1, 3])
def test_order_is_kept_and_threads_are_given_back(workers):
    before = torch.get_num_threads()
    with spread_over(workers) as apply:
        inside = torch.get_num_threads()
        assert list(apply(lambda i: i**2, range(50))) == [i**2 for i in range(50)]
    assert torch.get_num_threads() == before
    assert inside == (before if workers == 1 else 1)
    with pytest.raises(ZeroDivisionError), spread_over(workers) as apply:
        list(apply(lambda i: 1 / i, [1, 0, 2]))
    assert torch.get_num_threads() == before


def test_overlapping_users_give_all_threads_back():
    before = torch.get_num_threads()
    first, second = spread_over(2), spread_over(2)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.get_num_threads() == 1
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == before
