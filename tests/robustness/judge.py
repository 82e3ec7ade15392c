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
class Judged:
    verdict: str
    words: str = ""


class _Endless(BaseException):
    """A call took too long."""


def judged(case):
    """The verdict on one case."""
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = case.value.make(case.clean())
            found = _called(case, given)
            if isinstance(found, BaseException):
                return _error(case, found)
            return _answer(case, found)
    except _Endless:
        return Judged(WRONG, f"no end within {PATIENCE} s")


def _called(case, given):
    try:
        return case.run(given)
    except Exception as error:
        return error


def _error(case, error):
    said = f"{type(error).__name__}: {error}"
    if case.value.expected == "same":
        return Judged(WRONG, f"refused, but it is right: {said}")
    if not isinstance(error, case.errors):
        return Judged(OBSCURE, said)
    # The system says what is wrong with which file.
    if isinstance(error, OSError) and error.filename is not None and ".part" not in said:
        return Judged(CLEAR, said)
    if not _own(error):
        return Judged(OBSCURE, f"not raised by a check: {said}")
    if not any(name in str(error) for name in case.names):
        return Judged(OBSCURE, f"none of {case.names} is named: {said}")
    if "expected" not in str(error):
        return Judged(OBSCURE, f"what was expected is not said: {said}")
    return Judged(CLEAR, said)


def _own(error):
    """Whether a statement of this library raised it, rather than a library that it called."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    raised = dis.opname[code.co_code[last.tb_lasti]] == "RAISE_VARARGS"
    return raised and code.co_filename.startswith(HOME)


def _answer(case, found):
    if case.value.expected == "refused":
        return Judged(WRONG, f"accepted: {_short(found)}")
    flaw = _flaw(found)
    if flaw:
        return Judged(WRONG, flaw)
    if case.value.same_as is None:
        return Judged(RIGHT)
    clean = case.run(case.value.same_as(case.clean()))
    pairs = list(zip(numbers(found), numbers(clean), strict=True))
    if all(_equal(one, other) for one, other in pairs):
        return Judged(RIGHT)
    return Judged(WRONG, f"not the answer for the clean value: {_short(found)}, {_short(clean)}")


def _equal(one, other):
    nan = one.dtype.kind == "f"
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=nan)


def _short(found):
    try:
        return " ".join(repr(found).split())[:200]
    except Exception as error:
        return f"{type(found).__name__}, which cannot be shown: {error!r}"


def _flaw(found):
    """What is wrong with an answer; nothing if it is empty."""
    if isinstance(found, Result):
        p = np.asarray(found.pvalue)
        if not ((p > 0) & (p <= 1)).all():
            return f"p-values {p}"
    if isinstance(found, assay.Calibration) and not all(
        np.isfinite(a).all() for a in numbers(found)
    ):
        return "a calibration that is not finite"
    try:
        repr(found)
    except Exception as error:
        return f"an answer that cannot be shown: {error!r}"
    return ""


def numbers(found):
    """All arrays of an answer, one after the other."""
    if isinstance(found, torch.Tensor):
        return [found.detach().cpu().numpy()]
    if isinstance(found, np.ndarray) and found.dtype == object:
        return numbers(found.tolist())
    if isinstance(found, np.ndarray | np.generic | bool | int | float):
        return [np.asarray(found)]
    if isinstance(found, Mapping):
        return []
    if isinstance(found, list | tuple):
        return [array for part in found for array in numbers(part)]
    if is_dataclass(found):
        return [array for field in fields(found) for array in numbers(getattr(found, field.name))]
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
