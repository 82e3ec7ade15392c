"""Arrays of any library: brought to tensors, or refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import assay
from assay._support import inputs
from assay._support.inputs import as_tensors
from assay.data.proposal import Model
from tests.conftest import Gaussian

TYPES = st.sampled_from("f2 f4 f8 g >f4 >f8 i1 i2 i4 i8 >i8 u1 u2 u4 u8 ?".split())
ODD = st.sampled_from(["c8", "c16", "U3", "S3", "M8[s]", "m8[s]"])
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, max_side=5)
EXAMPLES = settings(max_examples=200, deadline=None, derandomize=True)


def one(array):
    return as_tensors({"x": array})["x"]


@EXAMPLES
@given(TYPES.flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)))
def test_numbers_stay_what_they_are(array):
    found = one(array)
    wide = array.dtype.itemsize > 4 or array.dtype.kind != "f"
    assert found.dtype == (torch.float64 if wide else torch.float32)
    with np.errstate(all="ignore"):
        assert np.array_equal(found.numpy(), array.astype(found.numpy().dtype), equal_nan=True)


@EXAMPLES
@given(arrays.arrays("f8", SHAPES), st.data())
def test_a_copy_however_it_lies_in_memory(array, data):
    view = np.swapaxes(array, 0, -1) if array.ndim > 1 else array
    view = view[::-1] if view.ndim and data.draw(st.booleans()) else view
    found, before = one(view), view.copy()
    array[...] = 7
    assert np.array_equal(found.numpy(), before, equal_nan=True)


@EXAMPLES
@given(ODD.flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)))
def test_what_are_no_numbers(array):
    with pytest.raises(TypeError, match="x: expected"):
        one(array)


@EXAMPLES
@given(arrays.arrays("f8", st.tuples(st.integers(1, 5), st.integers(1, 5))), st.data())
def test_masked_numbers_are_never_unmasked(array, data):
    mask = data.draw(arrays.arrays(bool, array.shape))
    masked = np.ma.masked_array(array, mask)
    for given_ in (masked, list(masked), tuple(masked)):
        if mask.any():
            with pytest.raises(ValueError, match="x: expected numbers; got an array with masked"):
                one(given_)
        else:
            assert np.array_equal(one(given_).numpy(), array, equal_nan=True)


@EXAMPLES
@given(
    st.recursive(
        st.none() | st.text(max_size=3) | st.floats() | st.integers() | st.booleans(),
        lambda inside: st.lists(inside, max_size=4) | st.tuples(inside, inside),
        max_leaves=12,
    )
)
def test_nested_lists_of_anything(thing):
    """They are read as NumPy reads them, or refused clearly."""
    try:
        kind = np.asarray(thing).dtype.kind if np.size(thing) else ""
    except ValueError:
        kind = ""
    if kind and kind in "fiub":
        assert np.array_equal(one(thing).numpy(), np.asarray(thing, float), equal_nan=True)
    else:
        with pytest.raises((TypeError, ValueError), match="^x: expected"):
            one(thing)


def test_integers_beyond_torch():
    given_ = np.array([[2**64 - 1, 2**63], [0, 2**53]], dtype=np.uint64)
    assert np.array_equal(one(given_).numpy(), given_.astype(float))
    assert np.array_equal(one(torch.from_numpy(given_)).numpy(), given_.astype(float))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bits(dtype):
    x = torch.arange(6.0).reshape(3, 2).to(dtype)
    assert torch.equal(one(x), x.float())


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized():
    x = torch.quantize_per_tensor(torch.arange(6.0), 0.5, 0, torch.qint8)
    assert torch.equal(one(x), torch.arange(6.0))


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x.to("meta"),
        lambda x: x.to_sparse(),
        lambda x: torch.nested.nested_tensor([x, x]),
        lambda x: x.to(torch.complex64),
        lambda x: torch.masked.masked_tensor(x, x > 1),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of")
def test_tensors_without_plain_numbers(made):
    with pytest.raises(TypeError, match="x: expected an? (dense )?array of real numbers"):
        one(made(torch.arange(6.0).reshape(3, 2)))


@pytest.mark.parametrize("n", [10**7 + 1, 10**8, 10**12, 2**63, 2**70])
def test_huge_counts(n):
    makes = (assay.Exchange, lambda n: assay.Draws([0.0], n=n), lambda n: assay.MLP(epochs=n))
    for make in makes:
        with pytest.raises(ValueError, match=f"expected at most 10000000; got {n}"):
            make(n)


PRIOR = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
Q = Gaussian()
# What has no room in a machine of a megabyte: nulls, and draws.
LARGE = {
    "null": [
        lambda c, n: assay.score(c, null=n)(torch.zeros(2)),
        lambda c, n: assay.lc2st(c, assay.Ridge(), n),
        lambda c, n: assay.sbc(c, null=n),
        lambda c, n: assay.tarp(c, null=n),
        lambda c, n: assay.lpit(c, null=n),
        lambda c, n: assay.check(c, x_o=Q.draws(torch.zeros(2)), nulls=n, classifier=None),
    ],
    "draws at each x": [
        lambda c, n: assay.Calibration.of(Q.sample, c.theta, c.x, n),
        lambda c, n: assay.check(Q.sample, c.theta, c.x, c.x[0], draws=n),
    ],
    "n": [lambda c, n: Q.latents(60).observe(assay.Draws(c.x[0], n=n))],
    "k": [
        lambda c, n: assay.zoom(Model(PRIOR, lambda t, g: t), lambda x, k, g: 0 / 0, PRIOR, 60, n)
    ],
}


@pytest.mark.parametrize(("name", "use"), [(name, use) for name in LARGE for use in LARGE[name]])
def test_what_has_no_room(name, use, monkeypatch):
    monkeypatch.setattr(inputs, "memory", lambda: 2**20)
    with pytest.raises(ValueError, match=f"^{name}: expected at most .* there is memory here"):
        use(Q.calibration(60, 5), 10**6)


def test_there_is_memory():
    assert inputs.memory() > 2**28
