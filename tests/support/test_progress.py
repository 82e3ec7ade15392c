import io
import sys
import threading

import numpy as np
import pytest
import torch

from assay._support import work as module
from assay._support.work import Stages, progress, without_progress


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
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(ticks)))


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
