import json
import sys
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from torch.distributions import Independent, MultivariateNormal, Normal

import assay
from assay import MLP, Exchange, FreePermutation, KnownBase, LocalExchange, Sklearn, lc2st
from assay.average.ranks import UniformRanks
from assay.io import FORMAT, _digest_of
from assay.local.lc2st import mse0
from tests.conftest import Gaussian

TINY = MLP((8,), epochs=2, batch=32, members=2)
X_O = torch.tensor([[0.5, -0.5], [1.0, 1.0]])
SETS = Gaussian(width=1.5).calibration(120, k=8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.npz"


def round_trip(obj, path, **given):
    assay.save(obj, path)
    return assay.load(path, **given)


def check_same(one, other, at=""):
    """Every field of one is that of the other, down to single numbers; lists are tuples there."""
    if isinstance(one, torch.Tensor | np.ndarray):
        assert type(one) is type(other), at
        assert one.dtype == other.dtype, at
        np.testing.assert_array_equal(one, other, at)
    elif is_dataclass(one):
        assert type(one) is type(other), at
        for field in fields(one):
            parts = (getattr(each, field.name) for each in (one, other))
            check_same(*parts, f"{at}.{field.name}")
    elif isinstance(one, dict):
        assert type(one) is type(other), at
        assert list(one) == list(other), at
        for name in one:
            check_same(one[name], other[name], f"{at}[{name}]")
    elif isinstance(one, tuple | list):
        assert len(one) == len(other), at
        for i, parts in enumerate(zip(one, other, strict=True)):
            check_same(*parts, f"{at}[{i}]")
    else:
        np.testing.assert_equal(one, other, at)


def checked(x_o=X_O, **how):
    """A check with all that it can hold."""
    how = {"nulls": 19, "classifier": TINY, "names": ["mu", r"$\tau$"], **how}
    return assay.check(SETS, x_o=Gaussian(width=1.5).draws(x_o), **how)


def checked_by_simulator():
    """One that has simulations of a draw of q beside it."""

    def sample(x, n):
        b, m = x.shape
        return x[:, None] / 2 + torch.randn(b, n, m)

    prior = MultivariateNormal(torch.zeros(2), torch.eye(2))
    source = {"simulator": lambda theta: theta + torch.randn(theta.shape), "prior": prior}
    how = {"simulations": 200, "nulls": 19, "classifier": None}
    return assay.check(sample, **source, **how, x_o=X_O[0])


def trained(calibration=SETS, null=5, **how):
    return lc2st(calibration, TINY, null, **how)


SAVED = {
    "calibration": lambda: SETS,
    "pairs with weights": lambda: replace(
        SETS, names=("a", "b"), remarks=("one",), weights=torch.ones(120), plain_draws=SETS.theta_q
    ),
    "latents": lambda: Gaussian().latents(60),
    "draws": lambda: Gaussian().draws(X_O),
    "an observation": lambda: assay.Draws(X_O, n=7),
    "C2ST with exchanges": lambda: trained(null=Exchange(5)),
    "C2ST with permutations": lambda: trained(null=FreePermutation(5)),
    "C2ST near x_o": lambda: trained(null=LocalExchange(5)),
    "C2ST of latents": lambda: trained(Gaussian().latents(60), KnownBase(5)),
    "its result": lambda: trained()(Gaussian().draws(X_O)),
    "its curve": lambda: trained()(Gaussian().draws(X_O)).pp_curve(),
    "its quality": lambda: trained().quality(2),
    "score": lambda: assay.score(SETS, null=19)(X_O),
    "bounds": lambda: assay.bounds(SETS, X_O),
    "typical": lambda: assay.typical(SETS.x, X_O),
    "local PITs": lambda: assay.lpit(SETS, null=9),
    "local PITs at x_o": lambda: assay.lpit(SETS, null=9)(X_O),
    "local HPD": lambda: assay.lhpd(SETS, lambda theta, x: -(theta[:, 0] ** 2), null=9)(X_O[0]),
    "SBC": lambda: assay.sbc(SETS, null=99),
    "its histogram": lambda: assay.sbc(SETS, null=99).histogram(),
    "its ECDF": lambda: assay.sbc(SETS, null=99).ecdf(),
    "coverage": lambda: assay.coverage(SETS, null=99),
    "its points": lambda: assay.coverage(SETS, null=99).curve(),
    "TARP": lambda: assay.tarp(SETS, null=99),
    "C2ST of two samples": lambda: assay.c2st(SETS.theta, SETS.theta_q[:, 0], TINY, 3),
    "ranks": lambda: UniformRanks(9),
    "check": checked,
    "check without a classifier": lambda: checked(X_O[0], classifier=None),
    "check with a simulator": checked_by_simulator,
}


@pytest.mark.parametrize("make", SAVED.values(), ids=SAVED)
def test_every_field_comes_back(make, path):
    saved = make()
    check_same(saved, round_trip(saved, path))


class TestCheck:
    def test_it_is_whole(self, path):
        """Nothing is left out that could be there, and all that is told of it comes back."""
        found, simulated = checked(), checked_by_simulator()
        held = {f.name for f in fields(found) if getattr(found, f.name) is not None}
        held |= {f.name for f in fields(simulated) if getattr(simulated, f.name) is not None}
        assert held == {f.name for f in fields(found)}
        again = round_trip(found, path)
        assert again.record == found.record
        assert again.verdicts == found.verdicts
        assert again.bounds.wrong == found.bounds.wrong
        check_same(again.bounds.bias_upper, found.bounds.bias_upper)
        with pytest.raises(ValueError, match="read-only"):
            again.bounds.bias[0, 0] = 1

    def test_its_own_method(self, path):
        found = checked(X_O[0], classifier=None)
        found.save(path)
        check_same(found, assay.load(path))


@pytest.mark.parametrize("null", [Exchange(5), FreePermutation(5)])
def test_a_fitted_test_goes_on(path, null):
    test, draws = trained(null=null), Gaussian().draws(X_O)
    again = round_trip(test, path)
    # A function of this library is found by its name.
    assert again.statistic is test.statistic is mse0
    check_same(again(draws), test(draws))


def test_a_latent_test_and_the_nulls_that_it_keeps(path):
    """Loaded, it serves another flow of the same task as it did before."""
    latents, draws = Gaussian().latents(60), assay.Draws(X_O, n=50)
    wide = assay.Calibration.from_base(2 * latents.theta, latents.x)
    test = round_trip(trained(latents, KnownBase(5)), path)
    other = round_trip(test.refit_on(wide), path)
    for found, calibration in ((test, latents), (other, wide)):
        expected = trained(calibration, KnownBase(5))(draws)
        check_same(found(draws), expected)


def test_loaded_samples_give_the_same_bits(path):
    found, again = (assay.score(c, null=19)(X_O) for c in (SETS, round_trip(SETS, path)))
    check_same(found, again)


def test_arrays_that_are_shared_are_stored_once(path):
    result = trained()(Gaussian().draws(X_O))
    assay.save(replace(result, theta=result.draws), path)
    header, arrays = opened(path)
    assert header["content"]["fields"]["theta"] == header["content"]["fields"]["draws"]
    assert sum(array.shape == result.draws.shape for array in arrays.values()) == 1


def first(x):
    return x[:, :1]


def median(d):
    return np.median(d, axis=-1)


FLOW = Gaussian()
BASE = Independent(Normal(torch.zeros(2), 3.0), 1)
GIVEN = {
    "embed": (lambda: replace(SETS, embed=first), first),
    "flow": (lambda: trained(FLOW.calibration(60).to_latent(FLOW), KnownBase(3)), FLOW),
    "statistic": (lambda: trained(null=3, statistic=median), median),
    "base": (lambda: assay.Calibration.from_base(3 * SETS.theta, SETS.x, BASE), BASE),
}


@pytest.mark.parametrize("name", GIVEN)
def test_what_a_file_cannot_hold_must_be_given_again(name, path):
    make, value = GIVEN[name]
    saved = make()
    assay.save(saved, path)
    words = rf"{name}: expected the one this file was made with, as load\(path, {name}=...\)"
    with pytest.raises(ValueError, match=words):
        assay.load(path)
    again = assay.load(path, **{name: value})
    if name == "flow":
        draws = assay.Draws(X_O, n=20)
        check_same(again(draws), saved(draws))
    else:
        assert repr(again) == repr(saved)


def test_unknown_arguments(path):
    with pytest.raises(TypeError, match="load: expected among"):
        assay.load(path, flows=1)


@dataclass(frozen=True)
class Other:
    """A dataclass of somebody else."""

    value: float = 1.0


class TestWhatCannotBeSaved:
    @pytest.mark.parametrize("obj", [{}, None, Other(), assay.Draws, np.zeros(3)], ids=repr)
    def test_something_else(self, path, obj):
        with pytest.raises(TypeError, match="obj: expected a calibration, draws, a test or a res"):
            assay.save(obj, path)
        assert not path.exists()

    def test_something_else_inside(self, path):
        result = trained()(Gaussian().draws(X_O))
        strange = replace(result, settings={**result.settings, "mine": Other()})
        with pytest.raises(TypeError, match="obj.settings.mine: .* got Other. Save its results"):
            assay.save(strange, path)
        assert not path.exists()

    def test_an_estimator(self, path):
        test = lc2st(SETS, Sklearn(QuadraticDiscriminantAnalysis()), Exchange(3))
        words = r"obj.classifier.estimator: .* without pickle; got Quadratic.* Save its"
        with pytest.raises(TypeError, match=words):
            assay.save(test, path)
        assert list(path.parent.iterdir()) == []


def test_an_old_file_survives_a_save_that_fails_midway(path, monkeypatch):
    assay.save(SETS, path)
    before = path.read_bytes()

    def torn(file, **arrays):
        file.write(b"half a file")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", torn)
    with pytest.raises(OSError, match="no space left"):
        assay.save(SETS, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_files_can_be_read_by_others_as_usual(path):
    assay.save(SETS, path)
    plain = path.parent / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="path: expected a folder that exists"):
        assay.save(SETS, tmp_path / "no" / "file.npz")


def test_files_that_are_not_ours(tmp_path):
    other = tmp_path / "other.npz"
    np.savez(other, a=np.zeros(3))
    contents = {"torn": other.read_bytes()[:60], "text": b"hello", "empty": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    np.save(tmp_path / "array.npy", np.zeros(3))
    for path in tmp_path.iterdir():
        with pytest.raises(ValueError, match="path: expected a file that assay.save wrote"):
            assay.load(path)
    with pytest.raises(FileNotFoundError):
        assay.load(tmp_path / "absent.npz")


def opened(path):
    """The structure and the arrays of a file."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    return json.loads(str(arrays.pop("assay"))), arrays


def changed(path, **header):
    """A file with another structure."""
    before, arrays = opened(path)
    after = before | header
    after["digest"] = _digest_of(after["content"])
    np.savez(path, **arrays, assay=np.array(json.dumps(after)))
    return path


def test_what_is_inside(path):
    assay.save(trained(), path)
    header, _ = opened(path)
    assert header["content"]["class"] == "assay.local.lc2st:LC2ST"
    assert header["format"] == FORMAT == 4


@pytest.mark.parametrize("number", [2, 3, 99])
def test_files_of_another_format(path, number):
    """As those of the first edition are, which had formats 2 and 3."""
    assay.save(SETS, path)
    with pytest.raises(ValueError, match="path: ") as refused:
        assay.load(changed(path, format=number, version="0.1.0"))
    assert str(refused.value) == (
        f"path: expected format 4; got {number}, written by assay 0.1.0. Install a version that "
        "reads it."
    )


# What is imported from elsewhere, or run, leaves a file behind.
HOSTILE = """
from dataclasses import dataclass
from pathlib import Path

Path({mark!r}).touch()


@dataclass
class Draws:
    x: object = None
    theta: object = None
    n: int = 0
"""
ADDRESSES = {
    "elsewhere": "hostile_module:Draws",
    "a name that begins alike": "assay_hostile:Draws",
    "another library": "subprocess:Popen",
    "builtin": "builtins:eval",
    "through a module": "assay.io:os.system",
    "an import of a module": "assay.io:json",
    "a class that it imports": "assay.io:Path",
    "a class of another module": "assay.check:Draws",
    "unknown class": "assay.data.calibration:Unknown",
    "unknown module": "assay.unknown:Draws",
    "nested": "assay.data.calibration:Draws.of",
    "no name": "assay.data.calibration",
    "no module": ":Draws",
    "nothing": "",
    "relative": ".data.calibration:Draws",
}


class TestAddresses:
    """A file may name any class; only dataclasses of this library are made."""

    @pytest.fixture
    def mark(self, tmp_path, monkeypatch):
        """A file that is there once a module from elsewhere was imported."""
        mark = tmp_path / "mark"
        for name in ("hostile_module", "assay_hostile"):
            (tmp_path / f"{name}.py").write_text(HOSTILE.format(mark=str(mark)))
        monkeypatch.syspath_prepend(tmp_path)
        return mark

    def test_the_mark_would_be_there(self, mark):
        import hostile_module

        assert mark.exists()
        del sys.modules["hostile_module"]
        assert hostile_module.Draws().n == 0

    @pytest.mark.parametrize("kind", ["class", "known"])
    @pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
    def test_what_is_not_of_this_library_is_refused(self, path, mark, address, kind):
        assay.save(assay.Draws(X_O), path)
        # Modules of this library may be imported to look, and Python's for reading: they are here.
        assert callable(assay.check)
        assay.load(path)
        before = set(sys.modules)
        named = {kind: address, "fields": opened(path)[0]["content"]["fields"]}
        with pytest.raises(
            ValueError, match=f"path: expected what this version of assay knows; got '{address}'"
        ):
            assay.load(changed(path, content=named))
        assert not mark.exists()
        assert set(sys.modules) == before

    @pytest.mark.parametrize(
        "address",
        [
            "assay._support.files:atomic_write",
            "assay.io:save",
            "assay.check:check",
            "assay.local.lc2st:mse0",
            "assay.classifiers.base:Classifier",
            "assay.cli:main",
        ],
    )
    def test_what_is_no_dataclass_is_not_called(self, path, address, tmp_path):
        assay.save(assay.Draws(X_O), path)
        target = tmp_path / "target"
        fields = {"path": str(target), "obj": None}
        with pytest.raises(ValueError, match=f"path: expected a class of assay; got '{address}'"):
            assay.load(changed(path, content={"class": address, "fields": fields}))
        assert not target.exists()

    def test_what_is_named_inside_is_refused_too(self, path, mark):
        assay.save(trained(null=3), path)
        content = opened(path)[0]["content"]
        content["fields"]["classifier"]["class"] = "hostile_module:Draws"
        with pytest.raises(ValueError, match="got 'hostile_module:Draws'"):
            assay.load(changed(path, content=content))
        assert not mark.exists()

    def test_the_command_line_is_not_run(self, path, capsys, monkeypatch):
        """``assay.__main__`` runs when it is imported."""
        monkeypatch.setattr(sys, "argv", ["assay", "--version"])
        assay.save(assay.Draws(X_O), path)
        with pytest.raises(ValueError, match="got 'assay.__main__:main'"):
            assay.load(changed(path, content={"class": "assay.__main__:main", "fields": {}}))
        assert capsys.readouterr().out == ""

    def test_fields_of_another_version(self, path):
        """A class that this version has, with a field that it has not."""
        assay.save(assay.Draws(X_O), path)
        content = opened(path)[0]["content"]
        content["fields"]["weather"] = 1
        with pytest.raises(ValueError, match="of this version .*; got other fields, weather"):
            assay.load(changed(path, content=content))
