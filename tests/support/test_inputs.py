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


class TestArrays:
    def test_one_floating_type_for_all(self):
        single = as_tensors({"a": np.zeros(3, "f4"), "b": torch.zeros(2)})
        assert [array.dtype for array in single.values()] == [torch.float32] * 2
        mixed = as_tensors({"a": np.zeros(3, "f4"), "b": [1, 2]})
        assert [array.dtype for array in mixed.values()] == [torch.float64] * 2
        half = as_tensors({"a": torch.zeros(2, dtype=torch.float16)})
        assert half["a"].dtype == torch.float32

    def test_a_copy_that_does_not_change_afterwards(self):
        for given in (np.ones(3), torch.ones(3, requires_grad=True)):
            found = as_tensors({"a": given})["a"]
            with torch.no_grad():
                given[0] = 9
            assert found.tolist() == [1, 1, 1]
            assert not found.requires_grad

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                [[1.0], [1.0, 2.0]],
                "a: expected an array of numbers; got rows of different lengths. Pad",
            ),
            (["x"], "a: expected an array of real numbers; got <U1"),
            (None, "a: expected an array of real numbers; got object"),
            (np.ones(2) * 1j, "a: expected an array of real numbers; got complex128"),
            (torch.ones(2) * 1j, "a: expected a dense array of real numbers; got torch.complex64"),
            (torch.eye(2).to_sparse(), "a: expected a dense array .*torch.sparse_coo"),
        ],
    )
    def test_what_is_no_array(self, given, message):
        with pytest.raises(TypeError, match=message):
            as_tensors({"a": given})

    def test_what_has_no_numbers_here(self):
        with pytest.raises(ValueError, match=r"a: expected a non-empty array; got shape \(0, 3\)"):
            as_tensors({"a": np.ones((0, 3))})
        with pytest.raises(ValueError, match="device: expected all .*a on cpu, b on meta"):
            as_tensors({"a": torch.ones(2), "b": torch.ones(2, device="meta")})

    def test_what_is_not_finite_is_counted(self):
        table = torch.zeros(8, 2)
        check_finite("a", table)
        table[[1, 2, 3, 5, 6, 7], 1] = torch.nan
        message = r"a: .* in 6 of 8 rows, first at \[1, 2, 3, 5, 6\]. Leave them out"
        with pytest.raises(ValueError, match=message):
            check_finite("a", table, "Leave them out")
        with pytest.raises(ValueError, match="in 1 of 1 rows"):
            check_finite("a", torch.tensor(torch.inf))

    def test_devices(self):
        assert as_device("cpu") == torch.device("cpu")
        with pytest.raises(ValueError, match="device: expected one of .*'cpu'.*; got 'quantum'"):
            as_device("quantum")


class TestNumbers:
    def test_counts(self):
        assert check_count("n", np.int64(3)) == 3
        assert check_count("n", 0, least=0) == 0
        with pytest.raises(ValueError, match="n: expected at least 2; got 1"):
            check_count("n", 1, least=2)
        for bad in (True, 2.0, "2", None):
            with pytest.raises(TypeError, match=f"n: expected a whole.*got {type(bad).__name__}"):
                check_count("n", bad)

    def test_numbers(self):
        assert check_number("r", np.float32(0.5)) == 0.5
        assert check_number("r", 0, strict=False) == 0
        with pytest.raises(ValueError, match="r: expected a finite number above 0; got 0"):
            check_number("r", 0)
        with pytest.raises(ValueError, match="r: expected a finite number of at least 2; got 1"):
            check_number("r", 1, least=2, strict=False)
        for bad in (float("nan"), float("inf")):
            with pytest.raises(ValueError, match="r: expected a finite number"):
                check_number("r", bad)
        for bad in (False, "1", None, [1]):
            with pytest.raises(TypeError, match=f"r: expected a number; got {type(bad).__name__}"):
                check_number("r", bad)

    def test_shares(self):
        assert check_share("s", np.float64(0.25)) == 0.25
        for bad in (0, 1, -0.1, float("nan"), True, "half", None):
            with pytest.raises(ValueError, match="s: expected a number between 0 and 1; got"):
                check_share("s", bad)

    def test_kinds(self):
        check_kind("a", [], "a list", "append")
        with pytest.raises(TypeError, match="a: expected a list; got tuple"):
            check_kind("a", (), "a list", "append")
        with pytest.raises(TypeError, match="a: expected a list; got the class list"):
            check_kind("a", list, "a list", "append")


class TestNulls:
    def test_a_number_is_that_many_of_the_default(self):
        assert as_null(None, Exchange(7), Exchange) == Exchange(7)
        assert as_null(39, Exchange(7), Exchange) == Exchange(39)
        local = LocalExchange(5, Nearest(0.3))
        assert as_null(9, local, LocalExchange) == LocalExchange(9, Nearest(0.3))
        null = KnownBase(3)
        assert as_null(null, Exchange(7), Exchange, KnownBase) is null

    @pytest.mark.parametrize("bad", [KnownBase(3), Exchange, True, 9.0, "many", 0])
    def test_what_is_none_of_the_kinds(self, bad):
        message = "null: expected (at least 1; got 0|a number .* such as Own; got)"
        with pytest.raises((TypeError, ValueError), match=message):
            as_null(bad, Exchange(7), Exchange, hint="Own")
        with pytest.raises(TypeError, match=r"such as Exchange\(99\); got"):
            as_null("many", Exchange(7), Exchange)


def test_words_are_in_one_line_and_cannot_steer_a_terminal():
    assert check_names("names", ["mu", "a\nb"], 2) == ("mu", "a b")
    assert error_line(ValueError("a\nb")) == "ValueError: a b"
    assert printable("a\x1b[2Jb") == "a\ufffd[2Jb"
