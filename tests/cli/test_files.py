import numpy as np
import pytest

import assay
from assay.cli.files import read


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    theta, theta_q = rng.normal(size=(2, 50, 2))
    return {"theta": theta, "x": rng.normal(size=(50, 3)), "theta_q": theta_q}


@pytest.fixture
def observed():
    rng = np.random.default_rng(1)
    return {"x_o": rng.normal(size=(2, 3)), "theta_o": rng.normal(size=(2, 20, 2))}


def written(path, arrays):
    np.savez(path, **arrays)
    return path


def test_two_files(tmp_path, arrays, observed):
    first = written(tmp_path / "c.npz", arrays | {"names": ["a", "b"], "notes": "anything"})
    found = read(first, [written(tmp_path / "o.npz", observed)])
    np.testing.assert_allclose(found.calibration.theta, arrays["theta"])
    np.testing.assert_allclose(found.draws.theta, observed["theta_o"])
    assert found.names == ("a", "b")
    assert found.labels == ("o[0]", "o[1]")


def test_one_file(tmp_path, arrays, observed):
    one = {"x_o": observed["x_o"][0], "theta_o": observed["theta_o"][0], "labels": "today"}
    found = read(written(tmp_path / "c.npz", arrays | one))
    assert found.draws.x.shape == (1, 3)
    assert found.draws.theta.shape == (1, 20, 2)
    assert found.labels == ("today",)
    assert found.names is None


def test_several_files_of_observations(tmp_path, arrays, observed):
    parts = [{k: v[i] for k, v in observed.items()} for i in range(2)]
    files = [written(tmp_path / f"{i}.npz", part) for i, part in enumerate(parts)]
    found = read(written(tmp_path / "c.npz", arrays), files)
    np.testing.assert_allclose(found.draws.x, observed["x_o"])
    assert found.labels == ("0", "1")


def test_latents(tmp_path, arrays, observed):
    files = [
        written(tmp_path / "c.npz", {"z": arrays["theta"], "x": arrays["x"]}),
        written(tmp_path / "o.npz", {"x_o": observed["x_o"]}),
    ]
    found = read(files[0], files[1:])
    assert found.calibration.space == "latent"
    assert found.draws.theta is None


def test_what_save_wrote(tmp_path, arrays, observed):
    assay.save(assay.Calibration(*arrays.values()), tmp_path / "c.npz")
    assay.save(assay.Draws(*observed.values()), tmp_path / "o.npz")
    found = read(tmp_path / "c.npz", [tmp_path / "o.npz"])
    np.testing.assert_allclose(found.draws.theta, observed["theta_o"])
    with pytest.raises(ValueError, match=r"o\.npz: expected a Calibration; got a saved Draws"):
        read(tmp_path / "o.npz", [tmp_path / "o.npz"])
    with pytest.raises(ValueError, match=r"c\.npz: expected Draws; got a saved Calibration"):
        read(tmp_path / "c.npz", [tmp_path / "c.npz"])


class TestBadInput:
    def complaint(self, path, *observations):
        with pytest.raises((ValueError, OSError)) as caught:
            read(path, observations)
        text = str(caught.value)
        assert "\n" not in text
        return text

    def test_no_file(self, tmp_path):
        assert "none.npz: expected a file; there is none" in self.complaint(tmp_path / "none.npz")

    @pytest.mark.parametrize("keep", [0, 10, 700, -30])
    def test_a_truncated_file(self, tmp_path, arrays, observed, keep):
        path = written(tmp_path / "c.npz", arrays | observed)
        path.write_bytes(path.read_bytes()[:keep])
        assert "c.npz: expected a whole .npz archive" in self.complaint(path)

    def test_a_single_array(self, tmp_path, arrays):
        np.save(tmp_path / "c.npy", arrays["theta"])
        assert "expected a whole .npz archive" in self.complaint(tmp_path / "c.npy")

    def test_a_folder(self, tmp_path):
        assert "expected a whole .npz archive" in self.complaint(tmp_path)

    def test_pickled_objects(self, tmp_path, arrays):
        path = written(tmp_path / "c.npz", arrays | {"x": np.array([{}], object)})
        assert "expected a whole .npz archive of numbers" in self.complaint(path)

    def test_wrong_names(self, tmp_path, arrays):
        path = written(tmp_path / "c.npz", {"thetas": arrays["theta"], "x": arrays["x"]})
        text = self.complaint(path)
        assert "expected arrays theta, x, theta_q" in text
        assert "theta, theta_q missing among thetas, x" in text

    def test_no_observation(self, tmp_path, arrays):
        path = written(tmp_path / "c.npz", arrays)
        assert "expected an array x_o" in self.complaint(path)

    def test_no_draws_there(self, tmp_path, arrays, observed):
        path = written(tmp_path / "c.npz", arrays)
        other = written(tmp_path / "o.npz", {"x_o": observed["x_o"]})
        assert "o.npz: expected arrays x_o, theta_o" in self.complaint(path, other)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"x": np.zeros((49, 3))}, "x: expected shape (50, ...)"),
            ({"theta_q": np.zeros((50, 3))}, "theta_q: expected shape (50, 2)"),
            ({"theta": np.zeros(50)}, "theta: expected shape (n, m)"),
            ({"x": np.full((50, 3), np.nan)}, "x: "),
            ({"theta": np.array([["a", "b"]] * 50)}, "theta: "),
        ],
    )
    def test_shapes_and_numbers(self, tmp_path, arrays, change, words):
        path = written(tmp_path / "c.npz", arrays | change)
        assert f"c.npz: {words}" in self.complaint(path, path)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"x_o": np.zeros(4)}, "x_o: expected shape (3,)"),
            ({"theta_o": np.zeros((2, 20, 3))}, "theta_o: expected shape (2, s, 2)"),
            ({"x_o": np.full((2, 3), np.inf)}, "x_o: "),
            ({"labels": ["one"]}, "expected 2 labels"),
        ],
    )
    def test_observations(self, tmp_path, arrays, observed, change, words):
        path = written(tmp_path / "c.npz", arrays)
        other = written(tmp_path / "o.npz", observed | change)
        assert f"o.npz: {words}" in self.complaint(path, other)

    def test_draws_that_differ_in_number(self, tmp_path, arrays, observed):
        path = written(tmp_path / "c.npz", arrays)
        few = written(tmp_path / "few.npz", observed | {"theta_o": observed["theta_o"][:, :9]})
        many = written(tmp_path / "many.npz", observed)
        assert "as many draws at every x_o" in self.complaint(path, few, many)
