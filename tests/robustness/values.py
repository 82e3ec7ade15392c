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
    name: str
    make: Callable[[Any], Any]
    expected: str = "refused"
    same_as: Callable[[Any], Any] | None = None


def _values(**made):
    return [Value(name.replace("_", " "), make) for name, make in made.items()]


def _same(**made):
    """Pairs of an odd value and the clean one that it stands for."""
    return [
        Value(name.replace("_", " "), make, "same", clean) for name, (make, clean) in made.items()
    ]


def _either(**made):
    return [
        Value(name.replace("_", " "), make, "either", clean)
        for name, (make, clean) in made.items()
    ]


def but(values, *names, expected="either"):
    """The same, where some may be accepted."""
    found = {value.name for value in values}
    assert set(names) <= found, set(names) - found
    return [replace(v, expected=expected) if v.name in names else v for v in values]


def without(values, *names):
    assert set(names) <= {value.name for value in values}
    return [value for value in values if value.name not in names]


def refused(values):
    """Those that end at once: for calls that take long."""
    return [value for value in values if value.expected == "refused"]


def identity(clean):
    return clean


def _with(clean, value):
    changed = clean.clone()
    changed.view(-1)[0] = value
    return changed


def _object(clean, value):
    made = clean.numpy().astype(object)
    made.flat[0] = value
    return made


def _masked(clean, *, any):
    mask = np.zeros(clean.shape, bool)
    mask.flat[0] = any
    return np.ma.masked_array(clean.numpy(), mask)


def _sparse(clean):
    return clean.to_sparse()


def _quantized(clean):
    with_scale = torch.quantize_per_tensor
    return with_scale(clean, 0.5, 0, torch.qint8)


def _ragged(clean):
    rows = clean.tolist()
    return [*rows[:-1], rows[-1][:-1]] if isinstance(rows[-1], list) else [*rows[:-1], [rows[-1]]]


def _reversed(clean):
    """An array with negative strides and the same numbers."""
    return clean.numpy()[::-1].copy()[::-1]


def _structured(clean):
    return np.zeros(len(clean), dtype=[("a", float), ("b", int)])


class Liar:
    """Says that it is an array, and is none."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array after all")


def ones(clean):
    return torch.ones_like(clean)


# An array of real numbers, from a tensor in single precision that is clean.
ARRAY = [
    *_values(
        none=lambda c: None,
        text=lambda c: "theta",
        bytes=lambda c: b"theta",
        a_number_as_text=lambda c: "1.0",
        texts=lambda c: np.full(c.shape, "a"),
        numbers_as_text=lambda c: c.numpy().astype(str),
        empty_list=lambda c: [],
        empty_tensor=lambda c: c[:0],
        no_columns=lambda c: c[..., :0],
        nan=lambda c: _with(c, torch.nan),
        infinity=lambda c: _with(c, torch.inf),
        minus_infinity=lambda c: _with(c, -torch.inf),
        all_nan=lambda c: torch.full_like(c, torch.nan),
        nan_as_None=lambda c: _object(c, None),
        complex=lambda c: c.to(torch.complex64),
        complex_numpy=lambda c: c.numpy() + 0j,
        text_object=lambda c: _object(c, "a"),
        ragged=_ragged,
        a_set=lambda c: {1.0, 2.0},
        empty_dict=lambda c: {},
        a_class=lambda c: torch.Tensor,
        a_function=lambda c: len,
        a_generator=lambda c: (row for row in c),
        an_object=lambda c: object(),
        sparse=_sparse,
        sparse_csr=lambda c: torch.eye(5).to_sparse_csr(),
        meta=lambda c: c.to("meta"),
        dates=lambda c: np.zeros(c.shape, "datetime64[s]"),
        structured=_structured,
        masked=lambda c: _masked(c, any=True),
        masked_nan=lambda c: np.ma.masked_invalid(_with(c, torch.nan).numpy()),
        liar=lambda c: Liar(),
        huge_integers=lambda c: _object(c, 2**70),
        ellipsis=lambda c: ...,
        a_module=lambda c: torch.nn.Linear(2, 2),
        one_axis_more=lambda c: c[None, None, None],
        nested_dict=lambda c: {"a": {"b": c}},
        recursive=lambda c: _recursive(),
    ),
    *_same(
        float64=(lambda c: c.double(), lambda c: c.double().numpy()),
        float16=(lambda c: c.half(), lambda c: c.half().float()),
        bfloat16=(lambda c: c.bfloat16(), lambda c: c.bfloat16().float()),
        lists=(lambda c: c.tolist(), lambda c: c.double()),
        tuples=(lambda c: tuple(c), identity),
        numpy=(lambda c: c.numpy(), identity),
        needs_gradient=(lambda c: c.clone().requires_grad_(), identity),
        a_parameter=(lambda c: torch.nn.Parameter(c.clone()), identity),
        an_inference_tensor=(lambda c: _inferred(c), identity),
        extended=(lambda c: c.numpy().astype(np.longdouble), lambda c: c.double()),
        big_endian=(lambda c: c.numpy().astype(">f8"), lambda c: c.double()),
        fortran=(lambda c: np.asfortranarray(c.numpy()), identity),
        backwards=(_reversed, identity),
        strided=(lambda c: torch.stack([c, c], -1)[..., 0], identity),
        read_only=(lambda c: _read_only(c), identity),
        masked_without_a_mask=(lambda c: _masked(c, any=False), identity),
        jax=(lambda c: _jax(c), identity),
        a_subclass=(lambda c: c.numpy().view(_Sub), identity),
        conjugate_view=(lambda c: torch.complex(c, c).conj().real, identity),
        negative_view=(lambda c: torch.complex(c, -c).conj().imag, identity),
    ),
    *_either(
        integers=(lambda c: (3 * c).round().long(), lambda c: (3 * c).round().double()),
        small_integers=(
            lambda c: (3 * c).round().to(torch.int8),
            lambda c: (3 * c).round().double(),
        ),
        unsigned=(
            lambda c: (3 * c.abs()).round().numpy().astype(np.uint64),
            lambda c: (3 * c.abs()).round().double(),
        ),
        beyond_int64=(
            lambda c: (2**63 + 2.0**58 * c.abs().double().numpy()).astype(np.uint64),
            lambda c: torch.from_numpy(
                (2**63 + 2.0**58 * c.abs().double().numpy()).astype(np.uint64).astype(float)
            ),
        ),
        beyond_int64_torch=(
            lambda c: torch.from_numpy(
                (2**63 + 2.0**58 * c.abs().double().numpy()).astype(np.uint64)
            ),
            lambda c: torch.from_numpy(
                (2**63 + 2.0**58 * c.abs().double().numpy()).astype(np.uint64).astype(float)
            ),
        ),
        truth_values=(lambda c: c > 0, lambda c: (c > 0).double()),
        float8=(lambda c: c.to(torch.float8_e4m3fn), lambda c: c.to(torch.float8_e4m3fn).float()),
        float8_numpy=(lambda c: _float8(c), lambda c: c.to(torch.float8_e4m3fn).float()),
        quantized=(_quantized, lambda c: _quantized(c).dequantize()),
        objects_that_are_numbers=(
            lambda c: c.double().numpy().astype(object),
            lambda c: c.double(),
        ),
        decimals=(lambda c: _decimals(c), lambda c: c.double()),
        large=(lambda c: c.double() * 1e30, lambda c: (c.double() * 1e30).numpy()),
        huge=(lambda c: c.double() * 1e300, lambda c: (c.double() * 1e300).numpy()),
        tiny=(lambda c: c.double() * 1e-300, lambda c: (c.double() * 1e-300).numpy()),
        largest=(lambda c: _with(c, torch.finfo(c.dtype).max), None),
        constant=(ones, None),
        far_from_zero=(lambda c: c.double() + 1e9, None),
        one_row_fewer=(lambda c: c[1:], None),
        one_axis_fewer=(lambda c: c[0], None),
        one_column_fewer=(lambda c: c[..., 1:], None),
        a_number=(lambda c: 1.0, None),
        nested=(lambda c: torch.nested.nested_tensor([c, c]), None),
    ),
]


class _Sub(np.ndarray):
    """A subclass that adds nothing."""


def _recursive():
    made = []
    made.append(made)
    return made


def _inferred(clean):
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
    import ml_dtypes

    return clean.to(torch.float8_e4m3fn).float().numpy().astype(ml_dtypes.float8_e4m3fn)


def _decimals(clean):
    return [[decimal.Decimal(float(v)) for v in row] for row in clean.reshape(len(clean), -1)]


# A whole number of at least one, from a clean one.
COUNT = [
    *_values(
        none=lambda c: None,
        text=lambda c: "3",
        a_half=lambda c: 2.5,
        a_float=lambda c: float(c),
        a_numpy_float=lambda c: np.float64(c),
        nan=lambda c: float("nan"),
        infinity=lambda c: float("inf"),
        true=lambda c: True,
        numpy_true=lambda c: np.bool_(True),
        zero=lambda c: 0,
        minus_one=lambda c: -1,
        minus_huge=lambda c: -(2**70),
        a_hundred_million=lambda c: 10**8,
        a_trillion=lambda c: 10**12,
        beyond_int64=lambda c: 2**70,
        largest_int64=lambda c: 2**63 - 1,
        a_list=lambda c: [c],
        an_empty_list=lambda c: [],
        an_array=lambda c: np.array([c, c]),
        complex=lambda c: 3 + 0j,
        a_class=lambda c: int,
        a_function=lambda c: len,
        a_decimal=lambda c: decimal.Decimal(3),
        a_fraction=lambda c: fractions.Fraction(3, 2),
        a_dict=lambda c: {"n": c},
        bytes=lambda c: b"3",
    ),
    *_same(
        numpy_int=(lambda c: np.int64(c), identity),
        numpy_small=(lambda c: np.uint8(c), identity),
    ),
    *_either(
        a_tensor=(lambda c: torch.tensor(c), identity),
        zero_dimensional=(lambda c: np.array(c), identity),
    ),
]

# A number between 0 and 1, from a clean one.
SHARE = [
    *_values(
        none=lambda c: None,
        text=lambda c: "0.5",
        nan=lambda c: float("nan"),
        infinity=lambda c: float("inf"),
        true=lambda c: True,
        zero=lambda c: 0.0,
        negative=lambda c: -0.1,
        above_one=lambda c: 1.5,
        huge=lambda c: 2**70,
        beyond_floats=lambda c: 10**400,
        a_list=lambda c: [c, "a"],
        an_empty_list=lambda c: [],
        complex=lambda c: 0.5 + 0j,
        numpy_complex=lambda c: np.complex128(0.5),
        a_class=lambda c: float,
        a_function=lambda c: len,
        a_dict=lambda c: {},
        bytes=lambda c: b"0.5",
    ),
    *_same(
        numpy_float=(lambda c: np.float64(c), identity),
    ),
    *_either(
        a_decimal=(lambda c: decimal.Decimal(str(c)), identity),
        a_tensor=(lambda c: torch.tensor(c, dtype=torch.float64), identity),
        zero_dimensional=(lambda c: np.array(c), identity),
    ),
]

# A number above zero: what is above one is fine.
NUMBER = without(SHARE, "above one", "huge")

SEED = [
    *_values(
        none=lambda c: None,
        text=lambda c: "0",
        negative=lambda c: -1,
        a_float=lambda c: 1.0,
        nan=lambda c: float("nan"),
        true=lambda c: True,
        a_list=lambda c: [0],
        an_array=lambda c: np.array([1, 2]),
        a_numpy_generator=lambda c: np.random.default_rng(0),
        a_seed_sequence=lambda c: np.random.SeedSequence(0),
        a_class=lambda c: torch.Generator,
        complex=lambda c: 1j,
    ),
    *_same(
        numpy_int=(lambda c: np.int64(c), identity),
        numpy_unsigned=(lambda c: np.uint64(c), identity),
        a_generator=(
            lambda c: torch.Generator().manual_seed(5),
            lambda c: torch.Generator().manual_seed(5),
        ),
    ),
    *_either(
        beyond_int64=(lambda c: 2**70, None),
        largest=(lambda c: 2**64 - 1, None),
        a_tensor=(lambda c: torch.tensor(c), identity),
    ),
]

# A function of class probabilities (..., s).
STATISTIC = _values(
    returns_none=lambda c: lambda d: None,
    returns_text=lambda c: lambda d: "a",
    returns_texts=lambda c: lambda d: c(d).astype(str),
    returns_nan=lambda c: lambda d: np.nan * c(d),
    returns_infinity=lambda c: lambda d: np.inf * np.sign(c(d) + 1),
    returns_complex=lambda c: lambda d: 1j * c(d),
    returns_a_number=lambda c: lambda d: 1.0,
    returns_all=lambda c: lambda d: d,
    returns_objects=lambda c: lambda d: np.full(c(d).shape, None),
    raises=lambda c: _raises,
    of_nothing=lambda c: lambda: 1.0,
)

# Work is given to it in vain.
EXECUTOR = _values(
    returns_a_number=lambda c: _Submits(lambda *given: 5),
    returns_none=lambda c: _Submits(lambda *given: None),
    raises=lambda c: _Submits(_raises),
    takes_nothing=lambda c: _Submits(5),
    shut_down=lambda c: _shut_down(),
)


class _Submits:
    """Has a submit."""

    def __init__(self, submit):
        self.submit = submit


def _shut_down():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    return executor


# More numbers than anybody gives, from one that is clean.
MANY = _values(
    a_million=lambda c: np.linspace(0.1, 0.9, 10**6),
    twenty_thousand=lambda c: [0.5] * 20_000,
)

# An object of one kind: a calibration, a classifier, a null and so on.
OBJECT = _values(
    none=lambda c: None,
    a_number=lambda c: 0.5,
    a_negative_number=lambda c: -3,
    true=lambda c: True,
    nan=lambda c: float("nan"),
    text=lambda c: "MLP",
    empty_text=lambda c: "",
    a_list=lambda c: [c],
    an_empty_list=lambda c: [],
    an_empty_tuple=lambda c: (),
    an_empty_dict=lambda c: {},
    an_object=lambda c: object(),
    a_class=lambda c: type(c),
    another_class=lambda c: dict,
    an_array=lambda c: np.zeros((3, 2)),
    a_tensor=lambda c: torch.zeros(3, 2),
    draws=lambda c: assay.Draws([0.0, 0.0]),
    a_suite=lambda c: assay.Suite.quick(),
    a_module=lambda c: torch.nn.Linear(2, 2),
    the_library=lambda c: assay,
    a_generator=lambda c: (i for i in range(2)),
    an_exception=lambda c: ValueError("a"),
)


def _raises(*given, **more):
    raise RuntimeError("out of order")


# A function of arrays.
FUNCTION = [
    *without(OBJECT, "a class", "a module", "another class"),
    *_values(
        of_nothing=lambda c: lambda: torch.zeros(3),
        of_too_much=lambda c: lambda a, b, c, d, e, f: a,
        raises=lambda c: _raises,
        returns_none=lambda c: lambda *given: None,
        returns_text=lambda c: lambda *given: "a",
        returns_nothing=lambda c: lambda *given: [],
        returns_nan=lambda c: lambda *given: torch.nan * c(*given),
        returns_complex=lambda c: lambda *given: 1j * c(*given),
        returns_meta=lambda c: lambda *given: c(*given).to("meta"),
        returns_sparse=lambda c: lambda *given: c(*given).to_sparse(),
        returns_a_number=lambda c: lambda *given: 1.0,
        returns_other_shape=lambda c: (
            lambda *given: c(*given)[..., None, None].expand(-1, *c(*given).shape[1:], 2, 2)
        ),
        returns_itself=lambda c: lambda *given: _raises,
        a_class_that_is_called=lambda c: dict,
    ),
    *_same(
        returns_float64=(lambda c: lambda *given: c(*given).double(), None),
        returns_lists=(lambda c: lambda *given: c(*given).tolist(), None),
        returns_numpy=(lambda c: lambda *given: c(*given).numpy(), None),
        returns_what_needs_a_gradient=(
            lambda c: lambda *given: c(*given).clone().requires_grad_(),
            identity,
        ),
    ),
]

# Names of so many things.
NAMES = [
    *_values(
        too_few=lambda c: list(c)[:-1],
        too_many=lambda c: [*c, "another"],
        twice_the_same=lambda c: [c[0]] * len(c),
        empty=lambda c: [],
        a_number=lambda c: 5,
        empty_names=lambda c: [""] * len(c),
        an_object=lambda c: object(),
        a_class=lambda c: list,
        a_dict=lambda c: {},
        a_tensor=lambda c: torch.zeros(5, 2),
        nothing_in_them=lambda c: [None] * len(c),
        the_same_but_for_blanks=lambda c: ["a", " a", "a ", "a\n"][: max(2, len(c))],
        the_same_but_for_what_is_invisible=lambda c: ["a", "a\u200b", "\u2060a"][: max(2, len(c))],
        the_same_accent=lambda c: ["\u00e9", "e\u0301", "c"][: max(2, len(c))],
        invisible=lambda c: ["\u200b", *list(c)[1:]],
        a_set=lambda c: set(c),
        a_dict_of_them=lambda c: dict.fromkeys(c, 1),
        one_text=lambda c: "theta_and_phi",
        bytes=lambda c: b"ab",
        true=lambda c: True,
    ),
    *_same(
        a_tuple=(lambda c: tuple(c), identity),
        an_array=(lambda c: np.array(c), identity),
        a_generator=(lambda c: (name for name in c), identity),
    ),
]

# A path of a file that is to be written.
PATH = _values(
    none=lambda c: None,
    a_number=lambda c: 5.5,
    nan=lambda c: float("nan"),
    a_list=lambda c: ["a"],
    an_object=lambda c: object(),
    a_class=lambda c: str,
    a_folder=lambda c: c.parent,
    a_missing_folder=lambda c: c.parent / "missing" / "file.npz",
    below_a_file=lambda c: _file(c) / "file.npz",
    null_byte=lambda c: "a\0b",
    empty=lambda c: "",
)


def _file(clean):
    path = clean.parent / "a_file"
    path.write_text("text", encoding="utf-8")
    return path
