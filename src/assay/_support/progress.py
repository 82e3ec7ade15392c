"""Progress bars on a terminal, and a line now and then in a log."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

from tqdm import tqdm

_SILENT: ContextVar[bool] = ContextVar("silent", default=False)
_STAGES: ContextVar["Stages | None"] = ContextVar("stages", default=None)
# Seconds between two lines on work that goes on where there is no terminal.
PATIENCE = 30.0
# The share of a stage that a part of unknown weight is taken for.
SHARE_OF_A_STAGE = 0.8


def progress(
    items: Iterable[Any] | None = None, desc: str = "", *, silent: bool | None = None, **how: Any
) -> Any:
    """A :class:`tqdm.tqdm` bar on a terminal, which leaves nothing behind.

    In a pipe it is a line every 30 seconds, and nothing for what takes less; inside of
    :class:`Stages` it moves their bar. Without items it is moved by hand. Whether it is `silent`
    is left to the terminal if None.
    """
    silent, stages = True if _SILENT.get() else silent, _STAGES.get()
    if stages is not None and not silent:
        return _Part(items, how.get("total"), stages)
    if silent is None and (sys.stderr is None or not sys.stderr.isatty()):
        return _Lines(items, how.get("total"), desc)
    return tqdm(items, desc, disable=silent, leave=False, dynamic_ncols=True, **how)


@contextmanager
def without_progress() -> Iterator[None]:
    """Runs work many times over without a bar for each."""
    token = _SILENT.set(True)  # noqa: FBT003
    try:
        yield
    finally:
        _SILENT.reset(token)


class _Counted:
    """How much of some work is done, with the methods of a bar: by items, or by hand."""

    def __init__(self, items: Iterable[Any] | None, total: float | None) -> None:
        self.items, self.n = items, 0.0
        self.total = len(items) if total is None and isinstance(items, Sized) else total

    def __iter__(self) -> Iterator[Any]:
        with self:
            for item in () if self.items is None else self.items:
                yield item
                self.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def update(self, n: float = 1) -> None:
        self.n += n

    def close(self) -> None:
        pass


class _Lines(_Counted):
    """Progress as a whole line now and then, for logs."""

    def __init__(self, items: Iterable[Any] | None, total: float | None, desc: str) -> None:
        super().__init__(items, total)
        self.desc, self.start = desc, time.monotonic()
        self.last = self.start

    def set_description_str(self, desc: str) -> None:
        self.desc = desc

    def update(self, n: float = 1) -> None:
        super().update(n)
        now = time.monotonic()
        if now - self.last < PATIENCE:
            return
        self.last, elapsed = now, now - self.start
        words = tqdm.format_interval(elapsed)
        if self.total and self.n:
            left = tqdm.format_interval(elapsed * max(0.0, self.total / self.n - 1))
            words = f"{self.n / self.total:.0%}, {words}, about {left} left"
        elif self.n:
            words = f"{words}, {self.n:g} done"
        sys.stderr.write(f"{self.desc or 'working'}: {words}\n")
        sys.stderr.flush()


class Stages:
    """One bar for work in named stages; bars inside of it move it, and are not displayed.

    Args:
        desc: What is done.
        shares: The time that each stage takes, about, in any unit.
    """

    def __init__(self, desc: str, shares: Mapping[str, float]) -> None:
        self.desc, self.shares = desc, dict(shares)
        self.done, self.end, self.parts, self.busy = 0.0, 0.0, 0, False
        form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left"
        total = float(sum(self.shares.values()))
        # Shares are rough: the mean pace tells more than the last one.
        self.bar = progress(desc=desc, total=total, bar_format=form, smoothing=0, miniters=0)

    def __enter__(self) -> Self:
        self.token = _STAGES.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _STAGES.reset(self.token)
        self.bar.close()

    def enter(self, stage: str, parts: int = 1) -> None:
        """Ends the stage before; this one has so many bars, about alike, and perhaps more."""
        self.move(self.end)
        self.end += self.shares[stage]
        self.parts = parts
        self.bar.set_description_str(f"{self.desc}, {stage}")

    def move(self, to: float) -> None:
        """Moves the bar, never back."""
        step = max(0.0, to - self.done)
        self.done += step
        self.bar.update(step)


class _Part(_Counted):
    """A bar inside of stages, which moves theirs; one inside of another does nothing."""

    def __init__(self, items: Iterable[Any] | None, total: float | None, stages: Stages) -> None:
        super().__init__(items, total)
        self.stages, self.start, self.end, self.moves = stages, 0.0, 0.0, False

    def __enter__(self) -> Self:
        stages = self.stages
        if not stages.busy:
            share = 1 / stages.parts if stages.parts > 1 else SHARE_OF_A_STAGE
            stages.parts -= 1
            self.start, self.end = stages.done, stages.done + share * (stages.end - stages.done)
            self.moves = stages.busy = True
        return self

    def update(self, n: float = 1) -> None:
        super().update(n)
        if self.moves and self.total:
            share = min(1.0, self.n / self.total)
            self.stages.move(self.start + share * (self.end - self.start))

    def close(self) -> None:
        if self.moves:
            self.stages.move(self.end)
            self.moves = self.stages.busy = False
