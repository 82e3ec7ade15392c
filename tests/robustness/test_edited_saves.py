"""Saves that were edited: each is refused in one line, or what is loaded works as any other.

An edit is a random change of bytes, of the text or of the arrays; the text and the arrays may be
given new digests, as only someone who means it would do.
"""

import io
import json
import warnings
from collections import Counter
from functools import partial

import numpy as np
import pytest

import assay
from assay.io import _digest, _digest_of

X_O = [[0.5, -0.5], [1.0, 1.0]]
JUNK = [
    *(None, True, -1, 0, 3, 10**30, 0.5, float("nan"), float("inf"), "", "x", "\x1b[2J"),
    *([], [1], {}, {"a": 1}, {"tuple": []}, {"array": "nowhere"}, {"dict": {}}),
    *({"class": "assay.classifiers.mlp:MLP"}, {"known": "assay.results:holm"}, {"given": "flow"}),
]
METHODS = [
    *("to_frame", "text", "headline", "next_step", "other_sentences", "_repr_html_", "bands"),
    *("curve", "ecdf", "histogram", "pp_curve", "reliability", "within", "pairs_for"),
]
CASTS = ["int8", "float16", "float32", "complex64", "bool", "U4", "S2", ">f8", "datetime64[s]"]


@pytest.fixture(scope="module")
def saves(tmp_path_factory):
    """Files of everything that is saved, as bytes."""
    from ..conftest import Gaussian

    exact, draws = Gaussian(), Gaussian().draws(X_O, 60)
    sets, latents = exact.calibration(120, k=8), exact.latents(120)
    test = assay.lc2st(sets, assay.Ridge(), assay.Exchange(19))
    found = test(draws)
    objects = [
        *(sets, latents, draws, test, found, found.pp_curve(), test.quality()),
        *(assay.score(sets, null=19)(draws), assay.bounds(sets, X_O), assay.typical(sets.x, X_O)),
        *(assay.sbc(sets, null=19), assay.coverage(sets, null=19)),
        *(assay.tarp(sets, null=19), assay.lpit(sets, null=19)(draws)),
        assay.check(sets, x_o=draws, nulls=39, classifier=assay.Ridge()),
    ]
    path = tmp_path_factory.mktemp("saves") / "save.npz"
    made = {}
    for obj in objects:
        assay.save(obj, path)
        made[type(obj).__name__] = path.read_bytes()
    return made


def opened(data):
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive)
    return json.loads(str(arrays.pop("assay"))), arrays


def packed(header, arrays):
    file = io.BytesIO()
    np.savez(file, **arrays, assay=np.array(json.dumps(header)))
    return file.getvalue()


def flipped(data, rng):
    """Some bytes changed, or the end cut off."""
    some = bytearray(data)
    for place in rng.integers(len(some), size=rng.integers(1, 5)):
        some[place] ^= 1 << rng.integers(8)
    return bytes(some[: rng.integers(len(some))] if rng.random() < 0.2 else some)


def nodes(tree):
    """Every dictionary and list of a tree that has something in it."""
    if isinstance(tree, dict | list) and tree:
        yield tree
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from nodes(part)


def some_of(rng, sequence):
    return sequence[rng.integers(len(sequence))]


def reworded(header, rng):
    """One entry of the text replaced, dropped, doubled, or exchanged with another."""
    node, other = (some_of(rng, list(nodes(header))) for _ in range(2))
    key, key2 = (
        some_of(rng, list(n) if isinstance(n, dict) else range(len(n))) for n in (node, other)
    )
    match rng.integers(5):
        case 0 | 1:
            node[key] = some_of(rng, JUNK)
        case 2:
            del node[key]
        case 3:
            node[key], other[key2] = json.loads(json.dumps([other[key2], node[key]]))
        case 4 if isinstance(node, dict):
            node[f"{key}s"] = node.pop(key)
        case 4:
            node.append(node[key])


def rearranged(arrays, rng):
    """One array of another shape, kind or content, dropped, or exchanged with another."""
    name, other = (some_of(rng, list(arrays)) for _ in range(2))
    array = arrays[name]
    match rng.integers(8):
        case 0:
            arrays[name] = array.reshape(-1)
        case 1:
            arrays[name] = array[None]
        case 2:
            arrays[name] = array[..., :-1] if array.ndim else np.zeros(3)
        case 3:
            arrays[name] = array[:0] if array.ndim else np.zeros((0, 2))
        case 4:
            del arrays[name]
        case 5:
            arrays[name], arrays[other] = arrays[other], array
        case 6:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                arrays[name] = array.astype(some_of(rng, CASTS))
        case 7:
            spoiled = array.astype(float)
            spoiled.reshape(-1)[: rng.integers(1, 3)] = some_of(rng, [np.nan, np.inf, -1e300])
            arrays[name] = spoiled


def edited(data, rng, *, forged):
    if not forged and rng.random() < 0.3:
        return flipped(data, rng)
    header, arrays = opened(data)
    if rng.random() < 0.5 or not arrays:
        reworded(header["content"] if forged else header, rng)
    else:
        rearranged(arrays, rng)
    if forged:
        header["digests"] = {name: _digest(array) for name, array in arrays.items()}
        header["digest"] = _digest_of(header["content"])
    return packed(header, arrays)


def used(obj):
    """Reads all that an object tells without further arguments; it may refuse to, clearly."""
    repr(obj)
    names = [n for n in dir(type(obj)) if isinstance(getattr(type(obj), n), property)]
    for ask in (
        *(partial(getattr, obj, name) for name in names if not name.startswith("_")),
        *(getattr(obj, name) for name in METHODS if callable(getattr(obj, name, None))),
    ):
        try:
            ask()
        except (ValueError, TypeError) as error:
            if "expected" not in str(error):
                raise


def fate(data, path):
    """What becomes of a file: refused or harmless, or else what is wrong."""
    path.write_bytes(data)
    try:
        obj = assay.load(path)
    except (ValueError, TypeError) as error:
        said = str(error)
        clear = "expected" in said and "\n" not in said and "\x1b" not in said
        return "refused" if clear else f"obscure: {error!r}"
    except Exception as error:
        return f"obscure: {error!r}"
    try:
        used(obj)
    except Exception as error:
        return f"broken: {error!r}"
    return "harmless"


def fates(saves, path, count, *, forged):
    found, wrong = Counter(), {}
    for i in range(count):
        name = list(saves)[i % len(saves)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = fate(
                edited(saves[name], np.random.default_rng([i, forged]), forged=forged), path
            )
        found[one.partition(":")[0]] += 1
        if one not in ("refused", "harmless"):
            wrong[i] = f"{name}: {one}"
    return found, wrong


def test_saves_as_they_are(saves, tmp_path):
    for name, data in saves.items():
        assert fate(data, tmp_path / "file.npz") == "harmless", name


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_edits(saves, tmp_path, count):
    found, wrong = fates(saves, tmp_path / "file.npz", count, forged=False)
    assert not wrong, (found, wrong)
    assert found["refused"] > 0.9 * count


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_edits_with_new_digests(saves, tmp_path, count):
    """Whoever means it can make an object that does not work, but no error that is not clear."""
    found, wrong = fates(saves, tmp_path / "file.npz", count, forged=True)
    assert not found["obscure"], (found, wrong)
    assert found["refused"] > 0.5 * count
