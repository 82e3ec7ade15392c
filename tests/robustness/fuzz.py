"""All cases once, then mixtures of them and of random arrays, for as long as asked.

``make fuzz SECONDS=600``, or ``python -m tests.robustness.fuzz 600``, prints how many calls were
clear, right, obscure and wrong, with every one of the last two, and fails on these.
"""

import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from benchmarks.record import keep

from .calls import Call, cases
from .judge import BAD, CLEAR, OBSCURE, RIGHT, WRONG, judged
from .values import ARRAY, Value

# Arguments that are replaced in one call, and changes to one array, at most.
MOST = 3
SPECIAL = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-300, 3e38, 1e300, 2.0**24, 2.0**53, np.inf, np.nan)
TYPES = ("f2", "f4", "f8", ">f8", "g", "i1", "i4", "i8", "u1", "u8", "?", "c8", "O", "U3")


@dataclass(frozen=True)
class Mixture:
    """One call with some of its arguments replaced."""

    call: Call
    values: dict[str, Value]

    @property
    def name(self):
        return f"{self.call.name}: " + ", ".join(f"{k}={v.name}" for k, v in self.values.items())

    @property
    def names(self):
        own = self.call.aliases
        return tuple(word for k in self.values for word in (k, *own.get(k, ())))

    @property
    def errors(self):
        return self.call.errors

    @property
    def value(self):
        """The values together: one that is refused spoils all; all that are the same are."""
        kinds = {value.expected for value in self.values.values()}
        expected = "refused" if "refused" in kinds else "either" if "either" in kinds else "same"
        told = all(value.same_as is not None for value in self.values.values())
        return Value(self.name, self._made, expected, self._clean if told else None)

    def clean(self):
        return self.call.given()

    def run(self, given):
        return self.call.function(**given)

    def _made(self, clean):
        return clean | {k: value.make(clean[k]) for k, value in self.values.items()}

    def _clean(self, clean):
        return clean | {k: value.same_as(clean[k]) for k, value in self.values.items()}


def mixture(calls, chance):
    """A random one."""
    call = calls[chance.integers(len(calls))]
    count = int(chance.integers(1, 1 + min(MOST, len(call.roles))))
    arguments = chance.choice(list(call.roles), count, replace=False)
    values = {str(name): _value(call, str(name), chance) for name in arguments}
    if call.slow and all(value.expected != "refused" for value in values.values()):
        return mixture(calls, chance)
    return Mixture(call, values)


def _value(call, argument, chance):
    kinds = call.roles[argument]
    if kinds and kinds[0].make is ARRAY[0].make and chance.random() < 0.5:
        seed = int(chance.integers(2**32))
        return Value(f"random array {seed}", lambda clean: random_array(clean, seed), "either")
    return kinds[chance.integers(len(kinds))]


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
    known, counts, end = cases(), Counter(), time.monotonic() + seconds
    calls = list({case.call.name: case.call for case in known.values()}.values())
    chance = np.random.default_rng(seed)
    todo = iter(known.values())
    while time.monotonic() < end:
        case = next(todo, None) or mixture(calls, chance)
        found = judged(case)
        counts[found.verdict] += 1
        if found.verdict in BAD:
            print(f"{found.verdict}: {case.name}: {' '.join(found.words.split())[:300]}")  # noqa: T201
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (CLEAR, RIGHT, OBSCURE, WRONG))
    print(f"{counts.total()} calls in {seconds:g} s, seed {seed}: {words}")  # noqa: T201
    keep("fuzz", seed, {"seconds": seconds, **{v: counts[v] for v in (CLEAR, RIGHT, *BAD)}})
    return counts[OBSCURE] + counts[WRONG]


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
