"""What came of a call with a bad or an odd value: clear, right, obscure or wrong.

*Clear*: a ValueError or a TypeError that a check of this library raised; it names the argument,
and says what was expected. *Right*: an answer, the same as for the clean value that the odd one
stands for. *Obscure*: any other error. *Wrong*: an answer where there is none, or another one, or
no end.
"""

import dis
import os
import resource
import signal
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import assay
from assay.results import Result

HOME = str(Path(assay.__file__).parent)
# Seconds that a call may take, and bytes that it may ask for.
PATIENCE, ROOM = 10, 3 * 2**30
CLEAR, RIGHT, OBSCURE, WRONG = "clear", "right", "obscure", "wrong"
BAD = (OBSCURE, WRONG)


@dataclass(frozen=True)
class Outcome:
    """What came of a call, and why."""

    kind: str
    words: str = ""


class _Endless(BaseException):
    """A call took too long."""


def outcome_of(case):
    """What comes of one case."""
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                answer = case.run()
            except Exception as error:
                return _of_error(case, error)
            return _of_answer(case, answer)
    except _Endless:
        return Outcome(WRONG, f"no end within {PATIENCE} s")


def _of_error(case, error):
    words = f"{type(error).__name__}: {error}"
    if case.expected == "same":
        return Outcome(WRONG, f"refused, but it is right: {words}")
    if not isinstance(error, case.errors):
        return Outcome(OBSCURE, words)
    # The system says what is wrong with which file.
    if isinstance(error, OSError) and error.filename is not None and ".part" not in words:
        return Outcome(CLEAR, words)
    if not _own(error):
        return Outcome(OBSCURE, f"not raised by a check: {words}")
    if not any(name in str(error) for name in case.names):
        return Outcome(OBSCURE, f"none of {case.names} is named: {words}")
    if "expected" not in str(error):
        return Outcome(OBSCURE, f"without what was expected: {words}")
    return Outcome(CLEAR, words)


def _own(error):
    """Whether a statement of this library raised it, rather than a library that it called."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    raised = dis.opname[code.co_code[last.tb_lasti]] == "RAISE_VARARGS"
    return raised and code.co_filename.startswith(HOME)


def _of_answer(case, answer):
    if case.expected == "refused":
        return Outcome(WRONG, f"accepted: {_short(answer)}")
    flaw = _flaw(answer)
    if flaw:
        return Outcome(WRONG, flaw)
    if not case.comparable:
        return Outcome(RIGHT)
    clean = case.run_clean()
    if all(_equal(*pair) for pair in zip(numbers(answer), numbers(clean), strict=True)):
        return Outcome(RIGHT)
    return Outcome(WRONG, f"not the answer for the clean value: {_short(answer)}, {_short(clean)}")


def _equal(one, other):
    nan = one.dtype.kind == "f"
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=nan)


def _short(answer):
    try:
        return " ".join(repr(answer).split())[:200]
    except Exception as error:
        return f"{type(answer).__name__}, which cannot be printed: {error!r}"


def _flaw(answer):
    """What is wrong with an answer; nothing if it is empty."""
    if isinstance(answer, Result):
        p = np.asarray(answer.pvalue)
        if not ((p > 0) & (p <= 1)).all():
            return f"p-values {p}"
    if isinstance(answer, assay.Calibration) and not all(
        np.isfinite(a).all() for a in numbers(answer)
    ):
        return "a calibration that is not finite"
    try:
        repr(answer)
    except Exception as error:
        return f"an answer that cannot be printed: {error!r}"
    return ""


def numbers(answer):
    """All arrays of an answer, one after the other; not those of settings, which hold times."""
    if isinstance(answer, torch.Tensor):
        kept = answer.detach().cpu()
        return [(kept.float() if kept.dtype == torch.bfloat16 else kept).numpy()]
    if isinstance(answer, np.ndarray) and answer.dtype == object:
        return numbers(answer.tolist())
    if isinstance(answer, np.ndarray | np.generic | bool | int | float):
        return [np.asarray(answer)]
    if isinstance(answer, Mapping):
        return [array for part in answer.values() if is_dataclass(part) for array in numbers(part)]
    if isinstance(answer, list | tuple):
        return [array for part in answer for array in numbers(part)]
    if is_dataclass(answer) and not isinstance(answer, type):
        each = (getattr(answer, field.name) for field in fields(answer))
        return [array for part in each for array in numbers(part)]
    return []


@contextmanager
def limited():
    """Time that the processor spends, and memory, have an end; pictures are closed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + ROOM, hard))

    def stop(number, frame):
        raise _Endless

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        plt.close("all")
