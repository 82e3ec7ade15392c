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


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([np.zeros(3, "f4"), torch.zeros(2)], torch.float32),
        ([np.zeros(3, "f4"), [1, 2]], torch.float64),
        ([torch.zeros(2, dtype=torch.float16)], torch.float32),
    ],
)
def test_one_floating_type_for_all(given, dtype):
    found = as_tensors(dict(enumerate(given)))
    assert {each.dtype for each in found.values()} == {dtype}


@pytest.mark.parametrize("given", [np.ones(3), torch.ones(3, requires_grad=True)])
def test_a_copy_that_does_not_change_afterwards(given):
    found = as_tensors({"a": given})["a"]
    with torch.no_grad():
        given[0] = 9
    assert found.tolist() == [1, 1, 1]
    assert not found.requires_grad


def test_what_is_fine():
    check_finite("a", TABLE[:1])
    check_kind("a", [], "a list", "append")
    assert as_device("cpu") == torch.device("cpu")
    assert (check_count("n", np.int64(3)), check_count("n", 0, least=0)) == (3, 0)
    assert (check_number("r", np.float32(0.5)), check_number("r", 0, strict=False)) == (0.5, 0)
    assert (check_share("s", np.float64(0.25)), check_share("s", 1, whole=True)) == (0.25, 1)
    assert as_null(None, Exchange(7), Exchange) == Exchange(7)
    assert as_null(KnownBase(3), Exchange(7), Exchange, KnownBase) == KnownBase(3)
    # A number is that many of the default.
    local = LocalExchange(5, Nearest(0.3))
    assert as_null(9, local, LocalExchange) == LocalExchange(9, Nearest(0.3))
    # Words are in one line, and cannot steer a terminal.
    assert check_names("names", ["mu", "a\nb"], 2) == ("mu", "a b")
    assert error_line(ValueError("a\nb")) == "ValueError: a b"
    assert printable("a\x1b[2Jb") == "a\ufffd[2Jb"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[1.0], [1.0, 2.0]], "a: .* numbers; got rows of different lengths. Pad"),
        (["x"], "a: expected an array of real numbers; got <U1"),
        (None, "a: expected an array of real numbers; got object"),
        (np.ones(2) * 1j, "a: expected an array of real numbers; got complex128"),
        (torch.ones(2) * 1j, "a: expected a dense array of real numbers; got torch.complex64"),
        (torch.eye(2).to_sparse(), "a: expected a dense array .*torch.sparse_coo"),
        (np.ones((0, 3)), r"a: expected a non-empty array; got shape \(0, 3\)"),
        (torch.ones(2, device="meta"), "device: expected all .*a on meta, b on cpu"),
    ],
)
def test_what_is_no_array(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        as_tensors({"a": given, "b": torch.ones(2)})


@pytest.mark.parametrize(
    ("check", "name", "value", "message"),
    [
        (check_finite, "a", TABLE, r"a: .* in 6 of 8 rows, first at \[1, 2, 3, 5, 6\]"),
        (check_count, "n", 0, "n: expected at least 1; got 0"),
        (check_count, "n", 10**8, "n: expected at most 10000000; got 100000000"),
        *[(check_count, "n", bad, "n: .* whole number; got") for bad in (True, 2.0, "2", None)],
        (check_number, "r", 0, "r: expected a finite number above 0; got 0"),
        (partial(check_number, strict=False), "r", -1, "r: .* number of at least 0; got -1"),
        (check_number, "r", np.inf, "r: expected a finite number"),
        *[(check_number, "r", bad, "r: .* number; got") for bad in (False, "1", None, [1])],
        *[(check_share, "s", bad, "s: .* between 0 and 1; got") for bad in (0, 1, True, "x")],
        (partial(check_kind, expected="b"), "a", list, "a: expected b; got the class list"),
    ],
)
def test_refusals(check, name, value, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check(name, value)


@pytest.mark.parametrize("bad", [KnownBase(3), Exchange, True, 9.0, "many", 0])
def test_what_is_no_null(bad):
    message = (
        r"null: expected (at least 1; got 0|a number of copies or a null such as Ex.*\); got)"
    )
    with pytest.raises((TypeError, ValueError), match=message):
        as_null(bad, Exchange(7), Exchange)
    with pytest.raises(ValueError, match="device: expected one of .*'cpu'.*; got 'quantum'"):
        as_device("quantum")
