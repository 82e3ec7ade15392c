"""All cases once, then mixtures of them and of random arrays, for as long as asked.

``make fuzz SECONDS=600``, or ``python -m tests.robustness.fuzz 600``, prints how many calls were
clear, right, obscure and wrong, with every one of the last two, and fails on these.
"""

import sys
import time
from collections import Counter
from contextlib import suppress

import numpy as np
import torch

from benchmarks.record import keep

from .calls import CALLS, Case, cases
from .outcome import BAD, CLEAR, OBSCURE, RIGHT, WRONG, outcome_of
from .values import ARRAY, Value

# Arguments that are replaced in one call, and changes to one array, at most.
MOST = 3
SPECIAL = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-300, 3e38, 1e300, 2.0**24, 2.0**53, np.inf, np.nan)
TYPES = ("f2", "f4", "f8", ">f8", "g", "i1", "i4", "i8", "u1", "u8", "?", "c8", "O", "U3")


def mixture(chance):
    """A random call with random values."""
    call = CALLS[chance.integers(len(CALLS))]
    count = int(chance.integers(1, 1 + min(MOST, len(call.replaced))))
    names = chance.choice(call.replaced, count, replace=False)
    case = Case(call, {str(name): _value(call.arguments[name].values, chance) for name in names})
    return mixture(chance) if call.slow and case.expected != "refused" else case


def _value(values, chance):
    if values[-1].name == ARRAY[-1].name and chance.random() < 0.5:
        seed = int(chance.integers(2**32))
        return Value(f"random array {seed}", lambda clean: random_array(clean, seed), "either")
    return values[chance.integers(len(values))]


def random_array(clean, seed):
    """A clean array with one to three random changes."""
    chance = np.random.default_rng(seed)
    array = clean.numpy().copy()
    for _ in range(chance.integers(1, 1 + MOST)):
        array = CHANGES[chance.integers(len(CHANGES))](array, chance)
    return WRAPS[chance.integers(len(WRAPS))](array)


def _special(array, chance):
    array = array.copy()
    if array.size and array.dtype.kind == "f":
        array.flat[chance.integers(array.size)] = chance.choice(SPECIAL)
    return array


def _typed(array, chance):
    # Words are no numbers: an array of them stays as it is.
    with np.errstate(all="ignore"), suppress(ValueError, TypeError):
        return array.astype(chance.choice(TYPES))
    return array


def _scaled(array, chance):
    with np.errstate(all="ignore"):
        return (
            array * array.dtype.type(chance.choice(SPECIAL)) if array.dtype.kind == "f" else array
        )


CHANGES = (
    _special,
    _special,
    _typed,
    _scaled,
    lambda array, chance: array[: chance.integers(len(array) + 1)] if array.ndim else array,
    lambda array, chance: array[..., : chance.integers(3)] if array.ndim else array,
    lambda array, chance: array[None],
    lambda array, chance: array[..., None],
    lambda array, chance: array.T,
    lambda array, chance: np.repeat(array[:1], len(array), 0) if array.ndim else array,
    lambda array, chance: chance.permutation(array) if array.ndim else array,
    lambda array, chance: np.round(array) if array.dtype.kind == "f" else array,
)


def _tensor(array):
    known = array.dtype.kind in "fiub" and array.dtype.isnative and array.dtype != np.longdouble
    return torch.from_numpy(np.ascontiguousarray(array)) if known else array


WRAPS = (
    lambda array: array,
    lambda array: array.tolist(),
    np.asfortranarray,
    lambda array: np.ma.masked_invalid(array) if array.dtype.kind == "f" else array,
    _tensor,
    lambda array: list(array) if array.ndim else array,
)


def main(seconds, seed=0):
    """Prints counts; the number of calls that were obscure or wrong."""
    counts, end, chance = Counter(), time.monotonic() + seconds, np.random.default_rng(seed)
    # In random order, so that a short time has some of all.
    todo = iter(chance.permutation(np.array(list(cases().values()), dtype=object)))
    while time.monotonic() < end:
        case = next(todo, None) or mixture(chance)
        outcome = outcome_of(case)
        counts[outcome.kind] += 1
        if outcome.kind in BAD:
            print(f"{outcome.kind}: {case.name}: {' '.join(outcome.words.split())[:300]}")  # noqa: T201
    words = ", ".join(f"{counts[kind]} {kind}" for kind in (CLEAR, RIGHT, OBSCURE, WRONG))
    print(f"{counts.total()} calls in {seconds:g} s, seed {seed}: {words}")  # noqa: T201
    keep(
        "fuzz", seed, {"seconds": seconds, **{kind: counts[kind] for kind in (CLEAR, RIGHT, *BAD)}}
    )
    return counts[OBSCURE] + counts[WRONG]


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
