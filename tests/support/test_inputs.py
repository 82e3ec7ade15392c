from functools import partial

import numpy as np
import pytest
import torch

from assay import Exchange, KnownBase, LocalExchange
from assay._support.inputs import (
    as_device,
    as_null,
    as_tensors,
    check_count,
    check_finite,
    check_kind,
    check_names,
    check_number,
    check_share,
    error_line,
    printable,
)
from assay.neighbourhood import Nearest

TABLE = torch.zeros(8, 2)
TABLE[[1, 2, 3, 5, 6, 7], 1] = torch.nan


def array(given):
    return as_tensors({"a": given, "b": torch.ones(2)})["a"]


def null(given):
    return as_null(given, Exchange(7), Exchange, hint="Own")


def test_one_floating_type_for_all_and_copies():
    given = {"a": np.zeros(3, "f4"), "b": torch.zeros(2, dtype=torch.float16), "c": [1, 2]}
    assert {each.dtype for each in as_tensors(given).values()} == {torch.float64}
    assert array(given["a"]).dtype == array(given["b"]).dtype == torch.float32
    for given in (np.ones(3), torch.ones(3, requires_grad=True)):
        found = array(given)
        with torch.no_grad():
            given[0] = 9
        assert (found.tolist(), found.requires_grad) == ([1, 1, 1], False)


def test_what_is_fine():
    check_finite("a", TABLE[:1])
    assert as_device("cpu") == torch.device("cpu")
    assert (check_count("n", np.int64(3)), check_count("n", 0, least=0)) == (3, 0)
    assert (check_number("r", np.float32(0.5)), check_number("r", 0, strict=False)) == (0.5, 0)
    assert (check_share("s", np.float64(0.25)), check_share("s", 1, whole=True)) == (0.25, 1)
    # A number of copies is that many of the default.
    local = LocalExchange(5, Nearest(0.3))
    assert as_null(9, local, LocalExchange) == LocalExchange(9, Nearest(0.3))
    assert (null(None), null(Exchange(5))) == (Exchange(7), Exchange(5))
    # Words are in one line, and cannot steer a terminal.
    assert check_names("names", ["mu", "a\nb"], 2) == ("mu", "a b")
    assert error_line(ValueError("a\nb")) == "ValueError: a b"
    assert printable("a\x1b[2Jb") == "a\ufffd[2Jb"


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (array, [[1.0], [1.0, 2.0]], "a: .* numbers; got rows of different lengths. Pad"),
        (array, ["x"], "a: expected an array of real numbers; got <U1"),
        (array, np.ones(2) * 1j, "a: expected an array of real numbers; got complex128"),
        (array, torch.ones(2) * 1j, "a: .* dense array of real numbers; got torch.complex64"),
        (array, torch.eye(2).to_sparse(), "a: expected a dense array .*torch.sparse_coo"),
        (array, np.ones((0, 3)), r"a: expected a non-empty array; got shape \(0, 3\)"),
        (array, torch.ones(2, device="meta"), "device: expected all .*a on meta, b on cpu"),
        (partial(check_finite, "a"), TABLE, r"a: .* in 6 of 8 rows, first at \[1, 2, 3, 5, 6\]"),
        (as_device, "quantum", "device: expected one of .*'cpu'.*; got 'quantum'"),
        (partial(check_count, "n"), 0, "n: expected at least 1; got 0"),
        (partial(check_count, "n"), 10**8, "n: expected at most 10000000; got 100000000"),
        *[(partial(check_count, "n"), bad, "n: .* whole number; got") for bad in (True, 2.0)],
        (partial(check_number, "r"), 0, "r: expected a finite number above 0; got 0"),
        (partial(check_number, "r", strict=False), -1, "r: .* number of at least 0; got -1"),
        *[(partial(check_number, "r"), bad, "r: expected a") for bad in (np.inf, True, "1", [1])],
        *[(partial(check_share, "s"), bad, "s: .* between 0 and 1") for bad in (0, 1, True, "x")],
        (partial(check_kind, "a", expected="b"), list, "a: expected b; got the class list"),
        (null, 0, "null: expected at least 1; got 0"),
        *[(null, bad, "null: .* such as Own; got") for bad in (KnownBase(3), Exchange, True, 9.0)],
    ],
)
def test_refusals(check, value, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check(value)
