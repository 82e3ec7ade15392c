import json
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

import assay
from assay import MLP, Exchange, FreePermutation, KnownBase, Sklearn, lc2st
from assay.diagnostics.local.lc2st import mse0
from assay.io import _digest_of

TINY = MLP((8,), epochs=2, batch=32, members=2)
X_O = torch.tensor([[0.5, -0.5], [1.0, 1.0]])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.npz"


def round_trip(obj, path, **given):
    assay.save(obj, path)
    return assay.load(path, **given)


@pytest.mark.parametrize("null", [Exchange(5), FreePermutation(5)])
def test_a_fitted_test(gaussian, path, null):
    test = lc2st(gaussian().calibration(60, k=2), TINY, null)
    draws = gaussian().draws(X_O)
    again = round_trip(test, path)
    assert repr(again) == repr(test)
    # A function of this library is found by its name.
    assert again.statistic is test.statistic is mse0
    np.testing.assert_array_equal(again(draws).null_probabilities, test(draws).null_probabilities)
    np.testing.assert_array_equal(again(draws).statistic, test(draws).statistic)


def test_a_latent_test_and_the_nulls_that_it_keeps(gaussian, path):
    """Loaded, it serves another flow of the same task as it did before."""
    latents, draws = gaussian().latents(60), assay.Draws(X_O, n=50)
    wide = assay.Calibration.from_base(2 * latents.theta, latents.x)
    test = round_trip(lc2st(latents, TINY, KnownBase(5)), path)
    other = round_trip(test.refit_on(wide), path)
    for found, calibration in ((test, latents), (other, wide)):
        expected = lc2st(calibration, TINY, KnownBase(5))(draws)
        result = found(draws)
        np.testing.assert_array_equal(result.null_probabilities, expected.null_probabilities)
        np.testing.assert_array_equal(result.probabilities, expected.probabilities)


def test_arrays_that_are_shared_are_stored_once(gaussian, path):
    result = lc2st(gaussian().calibration(60), TINY, Exchange(5))(gaussian().draws(X_O))
    assay.save(replace(result, theta=result.draws), path)
    fields, arrays = opened(path)[0]["content"]["fields"], opened(path)[1]
    assert fields["theta"] == fields["draws"]
    assert sum(array.shape == result.draws.shape for array in arrays.values()) == 1
    np.testing.assert_array_equal(assay.load(path).theta, result.draws)


def test_a_result(gaussian, path):
    result = lc2st(gaussian().calibration(60), TINY, Exchange(5))(gaussian().draws(X_O))
    again = round_trip(result, path)
    for name, value in vars(result).items():
        if name != "support":
            np.testing.assert_array_equal(getattr(again, name), value)
    np.testing.assert_array_equal(again.support.pairs, result.support.pairs)
    assert repr(again) == repr(result)


def test_a_curve(gaussian, path):
    result = lc2st(gaussian().calibration(60), TINY, Exchange(5))(gaussian().draws(X_O))
    curve = assay.pp_curve(result)
    np.testing.assert_array_equal(round_trip(curve, path).envelope_upper, curve.envelope_upper)


def test_samples(gaussian, path):
    calibration = gaussian().calibration(60, k=3)
    again = round_trip(calibration, path)
    assert torch.equal(again.theta_q, calibration.theta_q)
    assert again.theta.dtype == calibration.theta.dtype
    draws = round_trip(assay.Draws(X_O, n=7), path)
    assert draws.theta is None
    assert draws.n == 7


@pytest.mark.parametrize("kind", [assay.score, assay.moments])
def test_loaded_samples_give_the_same_bits(gaussian, path, kind):
    calibration = gaussian().calibration(100, k=8)
    found, again = (kind(c, null=19)(X_O) for c in (calibration, round_trip(calibration, path)))
    np.testing.assert_array_equal(again.statistic, found.statistic)
    np.testing.assert_array_equal(again.null, found.null)


def test_an_embedding_must_be_given_again(gaussian, path):
    calibration = gaussian().calibration(60)

    def embed(x):
        return x[:, :1]

    embedded = assay.Calibration(
        calibration.theta, calibration.x, calibration.theta_q, embed=embed
    )
    assay.save(embedded, path)
    with pytest.raises(ValueError, match=r"embed: expected the one .* load\(path, embed=...\)"):
        assay.load(path)
    assert torch.equal(assay.load(path, embed=embed).features, embedded.features)


def test_a_flow_must_be_given_again(gaussian, path):
    flow = gaussian()
    test = lc2st(flow.calibration(60).to_latent(flow), TINY, KnownBase(3))
    assay.save(test, path)
    with pytest.raises(ValueError, match="flow: expected the one this file was made with"):
        assay.load(path)
    draws = assay.Draws(X_O, n=20)
    again = assay.load(path, flow=flow)(draws)
    np.testing.assert_array_equal(again.theta, test(draws).theta)
    np.testing.assert_array_equal(again.null, test(draws).null)


def test_a_statistic_of_ones_own_must_be_given_again(gaussian, path):
    def median(d):
        return np.median(d, axis=-1)

    test = lc2st(gaussian().calibration(60), TINY, Exchange(3), median)
    assay.save(test, path)
    with pytest.raises(ValueError, match="statistic: expected the one"):
        assay.load(path)
    assert assay.load(path, statistic=median).statistic is median


def test_no_pickle_inside(gaussian, path):
    assay.save(lc2st(gaussian().calibration(60), TINY, Exchange(3)), path)
    header, _ = opened(path)
    assert header["content"]["class"] == "assay.diagnostics.local.lc2st:LC2ST"
    assert header["format"] == 3


def test_estimators_cannot_be_saved(gaussian, path):
    test = lc2st(gaussian().calibration(60), Sklearn(QuadraticDiscriminantAnalysis()), Exchange(3))
    with pytest.raises(
        TypeError, match=r"obj.classifier.estimator: .* without pickle; got Quadratic.* Save its"
    ):
        assay.save(test, path)
    assert list(path.parent.iterdir()) == []


@dataclass(frozen=True)
class Foreign:
    """A dataclass of somebody else."""

    value: float = 1.0


@pytest.mark.parametrize("obj", [{}, None, Foreign(), assay.Draws, np.zeros(3)], ids=repr)
def test_something_else_cannot_be_saved(path, obj):
    with pytest.raises(TypeError, match="obj: expected a calibration, draws, a test or a result"):
        assay.save(obj, path)
    assert not path.exists()


def test_something_else_inside_cannot_be_saved(gaussian, path):
    result = lc2st(gaussian().calibration(60), TINY, Exchange(5))(gaussian().draws(X_O))
    strange = replace(result, settings={**result.settings, "mine": Foreign()})
    with pytest.raises(TypeError, match="obj.settings.mine: .* got Foreign. Save its results"):
        assay.save(strange, path)
    assert not path.exists()


def test_an_old_file_survives_a_save_that_fails_midway(gaussian, path, monkeypatch):
    assay.save(gaussian().calibration(60), path)
    before = path.read_bytes()

    def torn(file, **arrays):
        file.write(b"half a file")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", torn)
    with pytest.raises(OSError, match="no space left"):
        assay.save(gaussian().calibration(60), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_files_can_be_read_by_others_as_usual(gaussian, path):
    assay.save(gaussian().calibration(60), path)
    plain = path.parent / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_folder_that_is_not_there(gaussian, tmp_path):
    with pytest.raises(FileNotFoundError, match="path: expected a folder that exists"):
        assay.save(gaussian().calibration(60), tmp_path / "no" / "file.npz")


def test_another_base_must_be_given_again(gaussian, path):
    base = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 3.0), 1)
    latents = gaussian().latents(60)
    wide = assay.Calibration.from_base(3 * latents.theta, latents.x, base)
    assay.save(wide, path)
    with pytest.raises(ValueError, match="base: expected the one this file was made with"):
        assay.load(path)
    assert torch.equal(assay.load(path, base=base).theta, wide.theta)


def test_files_that_are_not_ours(tmp_path):
    other = tmp_path / "other.npz"
    np.savez(other, a=np.zeros(3))
    torn = tmp_path / "torn.npz"
    torn.write_bytes(other.read_bytes()[:60])
    text = tmp_path / "text.npz"
    text.write_text("hello")
    empty = tmp_path / "empty.npz"
    empty.touch()
    array = tmp_path / "array.npy"
    np.save(array, np.zeros(3))
    for path in (other, torn, text, empty, array):
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


def test_files_of_another_format(gaussian, path):
    assay.save(gaussian().calibration(60), path)
    with pytest.raises(
        ValueError, match=f"path: expected format 3; got 99, written by assay {assay.__version__}"
    ):
        assay.load(changed(path, format=99))


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
    "a class of another module": "assay.suite:Calibration",
    "unknown class": "assay.samples.calibration:Unknown",
    "unknown module": "assay.unknown:Draws",
    "nested": "assay.samples.calibration:Draws.of",
    "no name": "assay.samples.calibration",
    "no module": ":Draws",
    "nothing": "",
    "relative": ".samples.calibration:Draws",
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

    def test_the_mark_would_be_seen(self, mark):
        import hostile_module

        assert mark.exists()
        del sys.modules["hostile_module"]
        assert hostile_module.Draws().n == 0

    @pytest.mark.parametrize("kind", ["class", "known"])
    @pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
    def test_what_is_not_of_this_library_is_refused(self, path, mark, address, kind):
        assay.save(assay.Draws(X_O), path)
        # Modules of this library may be imported to look; with all that they need, they are here.
        assert callable(assay.check)
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
            "assay._core:atomic_write",
            "assay.io:save",
            "assay.suite:check",
            "assay.diagnostics.local.lc2st:mse0",
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

    def test_what_is_named_inside_is_refused_too(self, gaussian, path, mark):
        assay.save(lc2st(gaussian().calibration(60), TINY, Exchange(3)), path)
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
        with pytest.raises((TypeError, ValueError), match="weather"):
            assay.load(changed(path, content=content))


def test_unknown_arguments(path):
    with pytest.raises(TypeError, match="load: expected among"):
        assay.load(path, flows=1)
