"""Kinds of bad and odd values, by the role of an argument.

A value is *refused*, is the *same* as a clean one, or may be *either*: refused clearly, or the
same as the clean one that it stands for, if it stands for one.
"""

import decimal
import fractions
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

import assay


@dataclass(frozen=True)
class Value:
    """One value, made from a clean one, and what is expected of it."""

    name: str
    make: Callable[[Any], Any]
    expected: str = "refused"
    same_as: Callable[[Any], Any] | None = None


def constants(**values):
    """Values that do not depend on the clean one, to be refused."""
    return [Value(_words(name), lambda clean, v=value: v) for name, value in values.items()]


def made(**functions):
    """Values made from the clean one, to be refused."""
    return [Value(_words(name), function) for name, function in functions.items()]


def same(expected="same", **pairs):
    """Pairs of odd values and the clean ones that they stand for, from the clean one."""
    return [Value(_words(name), *(pair[0], expected, pair[1])) for name, pair in pairs.items()]


def _words(name):
    return name.replace("_", " ")


def but(values, *names, expected="either"):
    """The same, where some may be accepted."""
    _check_names(values, names)
    return [replace(v, expected=expected) if v.name in names else v for v in values]


def without(values, *names):
    _check_names(values, names)
    return [value for value in values if value.name not in names]


def only(values, expected="refused"):
    """Those of which one thing is expected."""
    return [value for value in values if value.expected == expected]


def _check_names(values, names):
    missing = set(names) - {value.name for value in values}
    assert not missing, missing


def identity(clean):
    return clean


# What is no number, array, function, name or path.
JUNK = [
    *constants(none=None, text="a", a_number_as_text="3", empty_text="", bytes=b"3"),
    *constants(true=True, numpy_true=np.bool_(True), nan=float("nan"), infinity=float("inf")),
    *constants(complex=1j, an_empty_list=[], an_empty_tuple=(), an_empty_dict={}, a_dict={"a": 1}),
    *constants(a_set={1.0, 2.0}, an_object=object(), a_class=dict, a_function=len, ellipsis=...),
    *constants(an_exception=ValueError("a"), the_library=assay, a_module=torch.nn.Linear(2, 2)),
    *made(a_generator=lambda c: (i for i in range(2)), recursive=lambda c: _recursive()),
]


def _recursive():
    found = []
    found.append(found)
    return found


# An array of real numbers, from a tensor in single precision that is clean.


class NoArray:
    """Says that it is an array, and is none."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array after all")


class Subclass(np.ndarray):
    """A subclass that adds nothing."""


def _with(clean, value):
    changed = clean.clone()
    changed.view(-1)[0] = value
    return changed


def _object(clean, value):
    found = clean.numpy().astype(object)
    found.flat[0] = value
    return found


def _masked(clean, *, any):
    mask = np.zeros(clean.shape, bool)
    mask.flat[0] = any
    return np.ma.masked_array(clean.numpy(), mask)


def _ragged(clean):
    rows = clean.tolist()
    return [*rows[:-1], rows[-1][:-1]] if isinstance(rows[-1], list) else [*rows[:-1], [rows[-1]]]


def _in_inference_mode(clean):
    with torch.inference_mode():
        return clean.clone()


def _read_only(clean):
    array = clean.numpy().copy()
    array.setflags(write=False)
    return array


def _jax(clean):
    import jax.numpy

    return jax.numpy.asarray(clean.numpy())


def _float8(clean):
    return clean.to(torch.float8_e4m3fn).float()


def _numpy_float8(clean):
    import ml_dtypes

    return _float8(clean).numpy().astype(ml_dtypes.float8_e4m3fn)


def _quantized(clean):
    return torch.quantize_per_tensor(clean, 0.5, 0, torch.qint8)


def _beyond_int64(clean):
    return (2**63 + 2.0**58 * clean.abs().double().numpy()).astype(np.uint64)


def _decimals(clean):
    return [[decimal.Decimal(float(v)) for v in row] for row in clean.reshape(len(clean), -1)]


ARRAY = [
    *JUNK,
    *constants(no_array=NoArray()),
    *made(
        texts=lambda c: np.full(c.shape, "a"),
        numbers_as_text=lambda c: c.numpy().astype(str),
        empty_tensor=lambda c: c[:0],
        no_columns=lambda c: c[..., :0],
        nan_in_it=lambda c: _with(c, torch.nan),
        infinity_in_it=lambda c: _with(c, torch.inf),
        minus_infinity_in_it=lambda c: _with(c, -torch.inf),
        all_nan=lambda c: torch.full_like(c, torch.nan),
        nan_as_None=lambda c: _object(c, None),
        complex_tensor=lambda c: c.to(torch.complex64),
        complex_numpy=lambda c: c.numpy() + 0j,
        text_object=lambda c: _object(c, "a"),
        huge_integers=lambda c: _object(c, 2**70),
        ragged=_ragged,
        rows_of_a_generator=lambda c: (row for row in c),
        sparse=lambda c: c.to_sparse(),
        sparse_csr=lambda c: torch.eye(5).to_sparse_csr(),
        meta=lambda c: c.to("meta"),
        dates=lambda c: np.zeros(c.shape, "datetime64[s]"),
        structured=lambda c: np.zeros(len(c), dtype=[("a", float), ("b", int)]),
        masked=lambda c: _masked(c, any=True),
        masked_nan=lambda c: np.ma.masked_invalid(_with(c, torch.nan).numpy()),
        three_axes_more=lambda c: c[None, None, None],
        nested_dict=lambda c: {"a": {"b": c}},
    ),
    *same(
        float64=(lambda c: c.double(), lambda c: c.double().numpy()),
        float16=(lambda c: c.half(), lambda c: c.half().float()),
        bfloat16=(lambda c: c.bfloat16(), lambda c: c.bfloat16().float()),
        lists=(lambda c: c.tolist(), lambda c: c.double()),
        tuples=(lambda c: tuple(c), identity),
        numpy=(lambda c: c.numpy(), identity),
        needs_gradient=(lambda c: c.clone().requires_grad_(), identity),
        a_parameter=(lambda c: torch.nn.Parameter(c.clone()), identity),
        in_inference_mode=(_in_inference_mode, identity),
        extended=(lambda c: c.numpy().astype(np.longdouble), lambda c: c.double()),
        big_endian=(lambda c: c.numpy().astype(">f8"), lambda c: c.double()),
        fortran=(lambda c: np.asfortranarray(c.numpy()), identity),
        backwards=(lambda c: c.numpy()[::-1].copy()[::-1], identity),
        strided=(lambda c: torch.stack([c, c], -1)[..., 0], identity),
        read_only=(_read_only, identity),
        masked_without_a_mask=(lambda c: _masked(c, any=False), identity),
        jax=(_jax, identity),
        a_subclass=(lambda c: c.numpy().view(Subclass), identity),
        conjugate_view=(lambda c: torch.complex(c, c).conj().real, identity),
        negative_view=(lambda c: torch.complex(c, -c).conj().imag, identity),
    ),
    *same(
        "either",
        integers=(lambda c: (3 * c).round().long(), lambda c: (3 * c).round().double()),
        int8=(lambda c: (3 * c).round().to(torch.int8), lambda c: (3 * c).round().double()),
        unsigned=(
            lambda c: (3 * c.abs()).round().numpy().astype(np.uint64),
            lambda c: (3 * c.abs()).round().double(),
        ),
        beyond_int64=(_beyond_int64, lambda c: torch.from_numpy(_beyond_int64(c).astype(float))),
        beyond_int64_torch=(
            lambda c: torch.from_numpy(_beyond_int64(c)),
            lambda c: torch.from_numpy(_beyond_int64(c).astype(float)),
        ),
        truth_values=(lambda c: c > 0, lambda c: (c > 0).double()),
        float8=(lambda c: c.to(torch.float8_e4m3fn), _float8),
        float8_numpy=(_numpy_float8, _float8),
        quantized=(_quantized, lambda c: _quantized(c).dequantize()),
        number_objects=(lambda c: c.double().numpy().astype(object), lambda c: c.double()),
        decimals=(_decimals, lambda c: c.double()),
        large=(lambda c: c.double() * 1e30, lambda c: (c.double() * 1e30).numpy()),
        huge=(lambda c: c.double() * 1e300, lambda c: (c.double() * 1e300).numpy()),
        tiny=(lambda c: c.double() * 1e-300, lambda c: (c.double() * 1e-300).numpy()),
        largest=(lambda c: _with(c, torch.finfo(c.dtype).max), None),
        constant=(torch.ones_like, None),
        far_from_zero=(lambda c: c.double() + 1e9, None),
        one_row_fewer=(lambda c: c[1:], None),
        one_axis_fewer=(lambda c: c[0], None),
        one_column_fewer=(lambda c: c[..., 1:], None),
        a_number=(lambda c: 1.0, None),
        nested=(lambda c: torch.nested.nested_tensor([c, c]), None),
    ),
]

# Numbers.

# A whole number of at least one, from a clean one.
COUNT = [
    *JUNK,
    *constants(a_half=2.5, zero=0, minus_one=-1, minus_huge=-(2**70), a_hundred_million=10**8),
    *constants(a_trillion=10**12, beyond_int64=2**70, largest_int64=2**63 - 1),
    *constants(a_decimal=decimal.Decimal(3), a_fraction=fractions.Fraction(3, 2)),
    *made(a_float=float, a_numpy_float=np.float64),
    *made(a_list=lambda c: [c], an_array=lambda c: np.array([c, c])),
    *same(numpy_int=(np.int64, identity), numpy_small=(np.uint8, identity)),
    *same("either", a_tensor=(torch.tensor, identity), zero_dimensional=(np.array, identity)),
]

# A number between 0 and 1, from a clean one.
SHARE = [
    *JUNK,
    *constants(zero=0.0, negative=-0.1, above_one=1.5, huge=2**70, beyond_floats=10**400),
    *constants(numpy_complex=np.complex128(0.5)),
    *made(a_list=lambda c: [c, "a"]),
    *same(numpy_float=(np.float64, identity)),
    *same(
        "either",
        a_decimal=(lambda c: decimal.Decimal(str(c)), identity),
        a_tensor=(lambda c: torch.tensor(c, dtype=torch.float64), identity),
        zero_dimensional=(np.array, identity),
    ),
]

# A number above zero.
NUMBER = without(SHARE, "above one", "huge")

# More numbers than anybody gives.
MANY = constants(a_million=np.linspace(0.1, 0.9, 10**6), twenty_thousand=[0.5] * 20_000)

# Levels between 0 and 1, from one or from many.
LEVELS = [
    *MANY,
    *without(SHARE, "a dict", "none"),
    *constants(with_text=[0.1, "a"], two_axes=[[0.1], [0.2]]),
]

SEED = [
    *JUNK,
    *constants(negative=-1, a_float=1.0, a_list=[0], an_array=np.array([1, 2])),
    *constants(a_seed_sequence=np.random.SeedSequence(0)),
    *made(a_numpy_generator=lambda c: np.random.default_rng(0)),
    *same(numpy_int=(np.int64, identity), numpy_unsigned=(np.uint64, identity)),
    *same(a_torch_generator=(lambda c: _generator(), lambda c: _generator())),
    *same("either", a_tensor=(torch.tensor, identity)),
    *but(constants(beyond_int64=2**70, largest=2**64 - 1), "beyond int64", "largest"),
]


def _generator():
    return torch.Generator().manual_seed(5)


# Objects and functions.

# An object of one kind: a calibration, a classifier, a null and so on.
OBJECT = [
    *JUNK,
    *constants(a_number=0.5, a_negative_number=-3, an_array=np.zeros((3, 2))),
    *constants(a_tensor=torch.zeros(3, 2), draws=assay.Draws([0.0, 0.0])),
    *made(a_list=lambda c: [c], its_class=type),
]


def fails(*given, **more):
    raise RuntimeError("out of order")


# A function of arrays.
FUNCTION = [
    *without(OBJECT, "its class", "a module", "a class"),
    *constants(a_class_that_is_called=dict, of_nothing=lambda: torch.zeros(3)),
    *constants(of_too_much=lambda a, b, c, d, e, f: a, fails=fails),
    *constants(returns_none=lambda *given: None, returns_text=lambda *given: "a"),
    *constants(returns_nothing=lambda *given: [], returns_a_number=lambda *given: 1.0),
    *constants(returns_a_function=lambda *given: fails),
    *made(
        returns_nan=lambda c: lambda *given: torch.nan * c(*given),
        returns_complex=lambda c: lambda *given: 1j * c(*given),
        returns_meta=lambda c: lambda *given: c(*given).to("meta"),
        returns_sparse=lambda c: lambda *given: c(*given).to_sparse(),
        returns_other_shape=lambda c: (
            lambda *given: c(*given)[..., None, None].expand(-1, *c(*given).shape[1:], 2, 2)
        ),
    ),
    *same(
        returns_float64=(lambda c: lambda *given: c(*given).double(), None),
        returns_lists=(lambda c: lambda *given: c(*given).tolist(), None),
        returns_numpy=(lambda c: lambda *given: c(*given).numpy(), None),
        returns_what_needs_a_gradient=(
            lambda c: lambda *given: c(*given).clone().requires_grad_(),
            identity,
        ),
    ),
]

# A function of class probabilities (..., s).
STATISTIC = [
    *constants(returns_none=lambda d: None, returns_text=lambda d: "a", returns_all=lambda d: d),
    *constants(returns_a_number=lambda d: 1.0, fails=fails, of_nothing=lambda: 1.0),
    *made(
        returns_texts=lambda c: lambda d: c(d).astype(str),
        returns_nan=lambda c: lambda d: np.nan * c(d),
        returns_infinity=lambda c: lambda d: np.inf * np.sign(c(d) + 1),
        returns_complex=lambda c: lambda d: 1j * c(d),
        returns_objects=lambda c: lambda d: np.full(c(d).shape, None),
    ),
]


class Submits:
    """Has a submit."""

    def __init__(self, submit):
        self.submit = submit


def _shut_down():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    return executor


# What work is given to in vain.
EXECUTOR = [
    *without(OBJECT, "none", "its class"),
    *constants(returns_a_number=Submits(lambda *given: 5), takes_nothing=Submits(5)),
    *constants(returns_none=Submits(lambda *given: None), submit_fails=Submits(fails)),
    *made(shut_down=lambda c: _shut_down()),
]

# Names, rows and files.

# Names of so many things.
NAMES = [
    *without(JUNK, "none", "a generator"),
    *constants(a_number=5, a_tensor=torch.zeros(5, 2), one_text="theta_and_phi"),
    *made(
        too_few=lambda c: list(c)[:-1],
        too_many=lambda c: [*c, "another"],
        twice_the_same=lambda c: [c[0]] * len(c),
        empty_names=lambda c: [""] * len(c),
        nothing_in_them=lambda c: [None] * len(c),
        the_same_but_for_blanks=lambda c: ["a", " a", "a ", "a\n"][: max(2, len(c))],
        the_same_but_for_the_invisible=lambda c: ["a", "a\u200b", "\u2060a"][: max(2, len(c))],
        the_same_accent=lambda c: ["\u00e9", "e\u0301", "c"][: max(2, len(c))],
        invisible=lambda c: ["\u200b", *list(c)[1:]],
        a_set_of_them=set,
        a_dict_of_them=lambda c: dict.fromkeys(c, 1),
    ),
    *same(
        a_tuple=(tuple, identity),
        an_array=(np.array, identity),
        a_generator=(lambda c: (name for name in c), identity),
    ),
]

# Numbers of rows.
ROWS = [
    *without(JUNK, "true", "numpy true"),
    *constants(a_float=1.5, floats=[0.5, 1.5], beyond=[0, 10**9], far_beyond=[0, 2**70]),
    *constants(far_below=[-(10**9)], a_short_mask=[True, False], two_axes=[[0, 1], [1, 2]]),
    *constants(ragged=[[0], [1, 2]], complex_numbers=[1j]),
]

# The number or the name of one row.
WHICH = [
    *without(JUNK, "empty text"),
    *constants(beyond=10**9, beyond_int64=2**70, below=-100, a_half=0.5, a_float=0.0, a_list=[0]),
    *constants(a_slice=slice(0, 1), a_tuple=(0, 0), an_array=torch.tensor([0, 1])),
]

# The path of a file that is written.
PATH = [
    *without(JUNK, "text", "a number as text"),
    *constants(a_number=5.5, null_byte="a\0b"),
    *made(
        a_list=lambda c: ["a"],
        a_folder=lambda c: c.parent,
        a_missing_folder=lambda c: c.parent / "missing" / "file.npz",
        below_a_file=lambda c: _file(c) / "file.npz",
    ),
]


def _file(clean):
    path = clean.parent / "a_file"
    path.write_text("text", encoding="utf-8")
    return path
