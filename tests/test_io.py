import json
import sys
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from torch.distributions import Independent, MultivariateNormal, Normal

import assay
import assay.cli
from assay import MLP, FreePermutation, KnownBase, LocalExchange, Sklearn
from assay.io import FORMAT, _digest_of
from tests.conftest import Gaussian

X_O = torch.tensor([[0.5, -0.5], [1.0, 1.0]])
Q = Gaussian(width=1.5)
SETS, LATENTS, DRAWS = Q.calibration(120, k=8), Q.latents(60), Q.draws(X_O)
TINY = MLP((8,), epochs=2, batch=32, members=2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.npz"


def round_trip(obj, path):
    assay.save(obj, path)
    return assay.load(path)


def check_same(one, other, at=""):
    """Every field of one is that of the other, down to single numbers; lists are tuples there."""
    assert type(one) is type(other) or isinstance(one, list), at
    if is_dataclass(one):
        one, other = ({f.name: getattr(o, f.name) for f in fields(o)} for o in (one, other))
    elif isinstance(one, tuple | list):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if isinstance(one, dict):
        assert list(one) == list(other), at
        for name in one:
            check_same(one[name], other[name], f"{at}.{name}")
    else:
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None), at
        np.testing.assert_array_equal(one, other, at)


def trained(null=5, calibration=SETS, **how):
    return assay.lc2st(calibration, TINY, null, **how)


def checked_by_simulator():
    """A check that has simulations of a draw of q beside it."""
    prior = MultivariateNormal(torch.zeros(2), torch.eye(2))
    source = {"simulator": lambda theta: theta + torch.randn(theta.shape), "prior": prior}
    how = {"simulations": 200, "nulls": 19, "classifier": None, "x_o": X_O[0]}
    return assay.check(lambda x, n: x / 2 + torch.randn(n, 2), **source, **how)


SAVED = {
    "pairs with weights": lambda: replace(
        SETS, names=("a", "b"), remarks=("one",), weights=torch.ones(120), plain_draws=SETS.theta_q
    ),
    "latents": lambda: LATENTS,
    "draws": lambda: DRAWS,
    "C2ST with permutations": lambda: trained(FreePermutation(5)),
    "C2ST near x_o": lambda: trained(LocalExchange(5)),
    "C2ST of latents": lambda: trained(KnownBase(5), LATENTS),
    "its quality": lambda: trained().quality(2),
    "score": lambda: assay.score(SETS, null=19)(X_O),
    "bounds": lambda: assay.bounds(SETS, X_O),
    "typical": lambda: assay.typical(SETS.x, X_O),
    "local PITs": lambda: assay.lpit(SETS, null=9),
    "local HPD": lambda: assay.lhpd(SETS, lambda theta, x: -(theta[:, 0] ** 2), null=9)(X_O[0]),
    "SBC": lambda: assay.sbc(SETS, null=99),
    "coverage": lambda: assay.coverage(SETS, null=99),
    "TARP": lambda: assay.tarp(SETS, null=99),
    "C2ST of two samples": lambda: assay.c2st(SETS.theta, SETS.theta_q[:, 0], TINY, 3),
    "check": lambda: assay.check(SETS, x_o=DRAWS, nulls=19, classifier=TINY, names=["mu", "$t$"]),
    "check with a simulator": checked_by_simulator,
}


@pytest.mark.parametrize("make", SAVED.values(), ids=SAVED)
def test_every_field_comes_back(make, path):
    saved = make()
    check_same(saved, round_trip(saved, path))


def test_fitted_tests_go_on(path):
    """Loaded, they give the same bits, and serve another flow of the same task."""
    test, latent = trained(), trained(KnownBase(5), LATENTS)
    check_same(round_trip(test, path)(DRAWS), test(DRAWS))
    wide = assay.Calibration.from_base(2 * LATENTS.theta, LATENTS.x)
    again, draws = round_trip(latent, path), assay.Draws(X_O, n=50)
    check_same(again(draws), latent(draws))
    check_same(again.refit_on(wide)(draws), trained(KnownBase(5), wide)(draws))


def first(x):
    return x[:, :1]


def median(d):
    return np.median(d, axis=-1)


BASE = Independent(Normal(torch.zeros(2), 3.0), 1)


@pytest.mark.parametrize(
    ("name", "value", "make"),
    [
        ("embed", first, lambda: replace(SETS, embed=first)),
        ("flow", Q, lambda: trained(KnownBase(3), Q.calibration(60).to_latent(Q))),
        ("statistic", median, lambda: trained(3, statistic=median)),
        ("base", BASE, lambda: assay.Calibration.from_base(SETS.theta, SETS.x, BASE)),
    ],
)
def test_what_a_file_cannot_hold_must_be_given_again(name, value, make, path):
    saved = make()
    words = rf"{name}: expected the one this file was made with, as load\(path, {name}=...\)"
    with pytest.raises(ValueError, match=words):
        round_trip(saved, path)
    with pytest.raises(TypeError, match="load: expected among"):
        assay.load(path, flows=1)
    again = assay.load(path, **{name: value})
    assert repr(again) == repr(saved)
    if name == "flow":
        check_same(again(assay.Draws(X_O, n=20)), saved(assay.Draws(X_O, n=20)))


OURS = "obj: expected a calibration, draws, a test or a result"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (dict, OURS),
        (lambda: assay.Draws, OURS),
        (lambda: Q, OURS),
        (
            lambda: replace(assay.sbc(SETS, null=9), settings={"mine": object()}),
            "obj.settings.mine: .* without pickle; got object. Save its results",
        ),
        (
            lambda: assay.lc2st(SETS, Sklearn(QuadraticDiscriminantAnalysis()), 3),
            "obj.classifier.estimator: .* got Quadratic",
        ),
    ],
)
def test_what_cannot_be_saved(make, words, path):
    with pytest.raises(TypeError, match=words):
        assay.save(make(), path)
    assert list(path.parent.iterdir()) == []


def test_an_old_file_survives_a_save_that_fails_midway(path, monkeypatch):
    def torn(file, **arrays):
        file.write(b"half a file")
        raise OSError("no space left")

    assay.save(SETS, path)
    monkeypatch.setattr(np, "savez_compressed", torn)
    with pytest.raises(OSError, match="no space left"):
        assay.save(LATENTS, path)
    assert list(path.parent.iterdir()) == [path]
    check_same(assay.load(path), SETS)


def test_files_that_are_not_ours(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "torn").write_bytes((tmp_path / "other.npz").read_bytes()[:60])
    for path in tmp_path.iterdir():
        with pytest.raises(ValueError, match="path: expected a file that assay.save wrote"):
            assay.load(path)
    with pytest.raises(FileNotFoundError):
        assay.load(tmp_path / "absent.npz")
    with pytest.raises(FileNotFoundError, match="path: expected a folder that exists"):
        assay.save(SETS, tmp_path / "no" / "file.npz")


def load_changed(path, obj, change):
    """Loads a file whose structure was changed after it was saved, with a digest that fits."""
    assay.save(obj, path)
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    header = json.loads(str(arrays["assay"]))
    change(header)
    header["digest"] = _digest_of(header["content"])
    np.savez(path, **arrays | {"assay": np.array(json.dumps(header))})
    return assay.load(path)


def test_files_of_another_format_or_version(path):
    words = f"path: expected format {FORMAT}; got 2, written by assay 0.1.0. Install a version"
    with pytest.raises(ValueError, match=words):
        load_changed(path, SETS, lambda header: header.update(format=2, version="0.1.0"))
    # A class that this version has, with a field that it has not.
    with pytest.raises(ValueError, match="of this version .*; got other fields, weather"):
        load_changed(path, DRAWS, lambda header: header["content"]["fields"].update(weather=1))


def test_arrays_that_are_shared_are_stored_once(path):
    def check(header):
        parts = header["content"]["fields"]
        assert parts["theta"] == parts["draws"]

    result = trained()(DRAWS)
    load_changed(path, replace(result, theta=result.draws), check)


# What is imported from elsewhere leaves a file behind.
HOSTILE = "from pathlib import Path\nPath({mark!r}).touch()\nclass Draws: pass\n"
ELSEWHERE = """
    hostile_module:Draws assay_hostile:Draws subprocess:Popen builtins:eval assay.io:os.system
    assay.io:json assay.io:Path assay.check:Draws assay.data.calibration:Unknown
    assay.unknown:Draws assay.data.calibration:Draws.of assay.data.calibration :Draws
    .data.calibration:Draws assay.__main__:main
""".split()
NO_CLASS = """
    assay._support.files:atomic_write assay.io:save assay.check:check assay.local.lc2st:mse0
    assay.classifiers.base:Classifier assay.cli:main
""".split()


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """A file that is there once a module from elsewhere was imported."""
    mark = tmp_path / "mark"
    for name in ("hostile_module", "assay_hostile"):
        (tmp_path / f"{name}.py").write_text(HOSTILE.format(mark=str(mark)))
    monkeypatch.syspath_prepend(tmp_path)
    return mark


def test_the_mark_would_be_there(mark):
    import hostile_module

    assert mark.exists()
    assert sys.modules.pop("hostile_module") is hostile_module


@pytest.mark.parametrize("address", ["", *ELSEWHERE, *NO_CLASS])
def test_only_dataclasses_of_this_library_are_made(path, mark, address, capsys):
    """A file may name any class, also inside; nothing is imported for it, and nothing is run."""
    round_trip(DRAWS, path)
    before = set(sys.modules)
    what = "a class of assay" if address in NO_CLASS else "what this version of assay knows"
    named = [{"class": address}, {"tuple": [{"class": address}]}, {"known": address}]
    for content in named[:2] if address in NO_CLASS else named:
        with pytest.raises(ValueError, match=f"path: expected {what}.*; got '{address}'"):
            load_changed(path, DRAWS, lambda header, new=content: header.update(content=new))
    assert not mark.exists()
    assert set(sys.modules) == before
    assert capsys.readouterr().out == ""
