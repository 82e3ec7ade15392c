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
DENSE = "a: expected a dense array of real numbers; got "
NULL = r"null: expected a number of copies or a null such as Own; got "


def array(given):
    return lambda: as_tensors({"a": given})


def null(given):
    return lambda: as_null(given, Exchange(7), Exchange, hint="Own")


def test_one_floating_type_for_all():
    def types(*given):
        return [each.dtype for each in as_tensors(dict(enumerate(given))).values()]

    assert types(np.zeros(3, "f4"), torch.zeros(2)) == [torch.float32] * 2
    assert types(np.zeros(3, "f4"), [1, 2]) == [torch.float64] * 2
    assert types(torch.zeros(2, dtype=torch.float16)) == [torch.float32]


@pytest.mark.parametrize("given", [np.ones(3), torch.ones(3, requires_grad=True)])
def test_a_copy_that_does_not_change_afterwards(given):
    found = array(given)()["a"]
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


def test_a_number_is_that_many_of_the_default_null():
    assert as_null(None, Exchange(7), Exchange) == Exchange(7)
    assert as_null(39, Exchange(7), Exchange) == Exchange(39)
    local = LocalExchange(5, Nearest(0.3))
    assert as_null(9, local, LocalExchange) == LocalExchange(9, Nearest(0.3))
    assert as_null(KnownBase(3), Exchange(7), Exchange, KnownBase) == KnownBase(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (array([[1.0], [1.0, 2.0]]), "a: .* numbers; got rows of different lengths. Pad"),
        (array(["x"]), "a: expected an array of real numbers; got <U1"),
        (array(None), "a: expected an array of real numbers; got object"),
        (array(np.ones(2) * 1j), "a: expected an array of real numbers; got complex128"),
        (array(torch.ones(2) * 1j), f"{DENSE}torch.complex64"),
        (array(torch.eye(2).to_sparse()), f"{DENSE}.*torch.sparse_coo"),
        (array(np.ones((0, 3))), r"a: expected a non-empty array; got shape \(0, 3\)"),
        (
            lambda: as_tensors({"a": torch.ones(2), "b": torch.ones(2, device="meta")}),
            "device: expected all .*a on cpu, b on meta",
        ),
        (
            lambda: check_finite("a", TABLE, "Leave them out"),
            r"a: .* in 6 of 8 rows, first at \[1, 2, 3, 5, 6\]. Leave them out",
        ),
        (lambda: check_finite("a", torch.tensor(torch.inf)), "in 1 of 1 rows"),
        (lambda: as_device("quantum"), "device: expected one of .*'cpu'.*; got 'quantum'"),
        (lambda: check_count("n", 1, least=2), "n: expected at least 2; got 1"),
        (lambda: check_count("n", 10**8), "n: expected at most 10000000; got 100000000"),
        (lambda: check_number("r", 0), "r: expected a finite number above 0; got 0"),
        (lambda: check_number("r", -1, strict=False), "r: .* of at least 0; got -1"),
        (lambda: check_number("r", np.inf), "r: expected a finite number"),
        (lambda: check_kind("a", (), "a list", "append"), "a: expected a list; got tuple"),
        (lambda: check_kind("a", list, "a list", "append"), "a: .* list; got the class list"),
        (null(0), "null: expected at least 1; got 0"),
        *[(null(bad), NULL) for bad in (KnownBase(3), Exchange, True, 9.0, "many")],
    ],
)
def test_refusals(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("bad", [True, None, "1", [1]])
def test_what_is_no_number(bad):
    got = type(bad).__name__
    with pytest.raises(TypeError, match=f"n: expected a whole number; got {got}"):
        check_count("n", bad)
    with pytest.raises(TypeError, match=f"r: expected a number; got {got}"):
        check_number("r", bad)


@pytest.mark.parametrize("bad", [0, 1, -0.1, float("nan"), True, "half", None])
def test_what_is_no_share(bad):
    with pytest.raises(ValueError, match="s: expected a number between 0 and 1; got"):
        check_share("s", bad)


def test_words_are_in_one_line_and_cannot_steer_a_terminal():
    assert check_names("names", ["mu", "a\nb"], 2) == ("mu", "a b")
    assert error_line(ValueError("a\nb")) == "ValueError: a b"
    assert printable("a\x1b[2Jb") == "a\ufffd[2Jb"
