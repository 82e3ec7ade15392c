"""Threads, and progress: a bar on a terminal, lines in a pipe, one bar for stages."""

import io
import sys
import threading

import numpy as np
import pytest
import torch
import tqdm.std

from assay._support.work import Stages, one_thread, progress, spread_over, without_progress

SHARES = {"a": 1.0, "b": 3.0}


@pytest.mark.parametrize("workers", [1, 3])
def test_order_is_kept_and_threads_are_given_back(workers):
    before = torch.get_num_threads()
    with spread_over(workers) as apply:
        assert torch.get_num_threads() == (before if workers == 1 else 1)
        assert list(apply(lambda i: i**2, range(50))) == [i**2 for i in range(50)]
    assert torch.get_num_threads() == before
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


@pytest.mark.parametrize("inside", [without_progress, lambda: Stages("checking", SHARES)])
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


def test_lines_at_most_every_thirty_seconds(capsys, monkeypatch):
    """At ten seconds to an item; with stages, with a total, and without one."""
    now = [0]
    monkeypatch.setattr(tqdm.std, "time", lambda: 10.0 * now[0])
    with Stages("checking", SHARES) as stages:
        stages.enter("a")
        stages.enter("b")
        for _ in progress(range(6), "hidden"):
            now[0] += 1
    for _ in progress(range(7), "work"):
        now[0] += 1
    with progress() as bar:
        for _ in range(3):
            now[0] += 1
            bar.update(5)
    assert capsys.readouterr().err.splitlines() == [
        "checking, b: 55%, 00:30, about 00:24 left",
        "checking, b: 85%, 01:00, about 00:10 left",
        "work: 43%, 00:30, about 00:40 left",
        "work: 86%, 01:00, about 00:10 left",
        "working: 00:30, 15 done",
    ]


class TestStages:
    def test_one_bar_for_all(self, monkeypatch):
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stderr", terminal)
        with Stages("checking", SHARES) as stages:
            stages.enter("a")
            list(progress(range(5), "inner"))
            stages.enter("b")
            with progress(desc="by hand", total=2) as bar:
                bar.update(2)
        words = terminal.getvalue()
        there = [name in words for name in ("checking, a", "checking, b", "inner", "by hand")]
        assert there == [True, True, False, False]
        # No line is left behind, and no other bar is below.
        assert "\n" not in words
        assert not words.split("\r")[-1].strip()

    def test_bars_inside_move_it_and_never_leave_the_stage(self):
        """Each takes four fifths of what is left; one inside of another or silent does nothing."""
        reached = []
        with Stages("checking", SHARES) as stages:
            stages.enter("a")
            stages.enter("b")
            list(progress(range(3), "inner", silent=True))
            with without_progress():
                list(progress(range(3), "inner"))
            for _ in range(4):
                for _ in progress(range(3), "inner"):
                    list(progress(range(7), "innermost"))
                    reached.append(stages.done)
        np.testing.assert_allclose(reached[:4], [1, 1.8, 2.6, 3.4])
        assert 3.4 < reached[-1] <= 4

    def test_threads_may_move_it(self):
        with Stages("checking", SHARES), progress(desc="x", total=8) as bar:
            workers = [threading.Thread(target=bar.update) for _ in range(8)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            assert bar.n == 8
