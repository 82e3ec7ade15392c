"""Threads, and progress: a bar on a terminal, lines in a pipe, one bar for stages."""

import io
import sys
import threading

import numpy as np
import pytest
import torch
import tqdm.std

from assay._support.work import Stages, one_thread, progress, spread_over, without_progress


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
    first, second = spread_over(2), one_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.get_num_threads() == 1
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == before


def test_nothing_is_lost_and_a_pipe_is_silent(capsys):
    assert list(progress(range(5), "work")) == [0, 1, 2, 3, 4]
    assert len(list(progress(torch.zeros(3, 2), "work"))) == 3
    list(progress(range(3), "work", silent=True))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("inside", [without_progress, lambda: Stages("checking", {"a": 1.0})])
def test_none_inside_and_one_again_outside(capsys, inside):
    """Also after an error."""
    with pytest.raises(ZeroDivisionError), inside(), inside():
        _ = [1 // i for i in progress(range(3), "hidden")]
    with progress(desc="outer", silent=False, total=4) as bar:
        bar.update(4)
        assert bar.n == 4
    words = capsys.readouterr().err
    assert "hidden" not in words
    assert "outer" in words


class TestLines:
    @pytest.fixture
    def clock(self, monkeypatch):
        """Ten seconds more, each time it is called."""
        now = [0.0]
        monkeypatch.setattr(tqdm.std, "time", lambda: now[0])
        return lambda: now.append(now.pop() + 10)

    def test_at_most_every_thirty_seconds(self, capsys, clock):
        for _ in progress(range(10), "work"):
            clock()
        assert capsys.readouterr().err.splitlines() == [
            "work: 30%, 00:30, about 01:10 left",
            "work: 60%, 01:00, about 00:40 left",
            "work: 90%, 01:30, about 00:10 left",
        ]

    def test_without_a_total(self, capsys, clock):
        with progress() as bar:
            for _ in range(3):
                clock()
                bar.update(5)
        assert capsys.readouterr().err == "working: 00:30, 15 done\n"

    def test_stages_are_named(self, capsys, clock):
        with Stages("checking", {"a": 1, "b": 3}) as stages:
            stages.enter("a")
            stages.enter("b")
            for _ in progress(range(6), "hidden"):
                clock()
        assert capsys.readouterr().err.splitlines() == [
            "checking, b: 55%, 00:30, about 00:24 left",
            "checking, b: 85%, 01:00, about 00:10 left",
        ]


class TestStages:
    shares = {"a": 1.0, "b": 3.0}  # noqa: RUF012

    def test_one_bar_for_all(self, monkeypatch):
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stderr", terminal)
        with Stages("checking", self.shares) as stages:
            stages.enter("a")
            list(progress(range(5), "inner"))
            stages.enter("b")
            with progress(desc="by hand", total=2) as bar:
                bar.update(2)
        words = terminal.getvalue()
        assert "checking, a" in words
        assert "checking, b" in words
        assert "inner" not in words
        assert "by hand" not in words
        # No line is left behind, and no other bar is below.
        assert "\n" not in words
        assert not words.split("\r")[-1].strip()

    def test_bars_inside_move_it_and_never_leave_the_stage(self):
        """Each takes four fifths of what is left; one inside of another does nothing."""
        with Stages("checking", self.shares) as stages:
            stages.enter("a")
            stages.enter("b")
            assert stages.done == 1
            reached = []
            for _ in range(4):
                for _ in progress(range(3), "inner"):
                    list(progress(range(7), "innermost"))
                    reached.append(stages.done)
        np.testing.assert_allclose(reached[:4], [1, 1.8, 2.6, 3.4])
        assert 3.4 < reached[-1] <= 4

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
