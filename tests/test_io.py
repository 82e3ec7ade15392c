import json

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

import assay
from assay import MLP, Exchange, FreePermutation, KnownBase, Sklearn, lc2st

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
    test = lc2st(gaussian().calibration(60, k=2), TINY, null, assay.statistics.max0)
    draws = gaussian().draws(X_O)
    again = round_trip(test, path)
    assert repr(again) == repr(test)
    np.testing.assert_array_equal(again(draws).null_probabilities, test(draws).null_probabilities)
    np.testing.assert_array_equal(again(draws).statistic, test(draws).statistic)


def test_a_latent_test_and_its_null(gaussian, path):
    latents, draws = gaussian().latents(60), assay.Draws(X_O, n=50)
    null = round_trip(KnownBase(5).fit(latents, TINY), path)
    test = round_trip(lc2st(latents, TINY, null), path)
    expected = lc2st(latents, TINY, KnownBase(5))(draws)
    np.testing.assert_array_equal(test(draws).null_probabilities, expected.null_probabilities)


def test_a_result(gaussian, path):
    result = lc2st(gaussian().calibration(60), TINY, Exchange(5))(gaussian().draws(X_O))
    again = round_trip(result, path)
    for name, value in vars(result).items():
        if name != "surroundings":
            np.testing.assert_array_equal(getattr(again, name), value)
    np.testing.assert_array_equal(again.surroundings.pairs, result.surroundings.pairs)
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
    with np.load(path, allow_pickle=False) as archive:
        assert json.loads(str(archive["assay"]))["content"]["class"] == "LC2ST"


def test_estimators_cannot_be_saved(gaussian, path):
    test = lc2st(gaussian().calibration(60), Sklearn(QuadraticDiscriminantAnalysis()), Exchange(3))
    with pytest.raises(TypeError, match="without pickle; got Sklearn. Save its results"):
        assay.save(test, path)
    assert list(path.parent.iterdir()) == []


def test_something_else_cannot_be_saved(path):
    with pytest.raises(TypeError, match="obj: expected one of .*; got dict"):
        assay.save({}, path)


def test_an_old_file_survives_a_save_that_fails_midway(gaussian, path, monkeypatch):
    assay.save(gaussian().calibration(60), path)
    before = path.read_bytes()

    def torn(file, **arrays):
        file.write(b"half a file")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", torn)
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


def test_files_of_another_format(gaussian, path):
    assay.save(gaussian().calibration(60), path)
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(str(arrays["assay"])) | {"format": 99}
    np.savez(path, **{**arrays, "assay": np.array(json.dumps(header))})
    with pytest.raises(ValueError, match="path: expected format 1; got 99"):
        assay.load(path)


def test_unknown_arguments(path):
    with pytest.raises(TypeError, match="load: expected among"):
        assay.load(path, flows=1)
