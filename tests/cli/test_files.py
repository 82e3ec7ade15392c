import bz2
import os
import sys
from importlib import import_module

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

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


def test_files_of_their_own_and_one_file(tmp_path, arrays, observed):
    first = written(tmp_path / "c.npz", arrays | {"names": ["a", "b"], "notes": "anything"})
    found = read(first, [written(tmp_path / "o.npz", observed)])
    np.testing.assert_allclose(found.calibration.theta, arrays["theta"])
    np.testing.assert_allclose(found.draws.theta, observed["theta_o"])
    assert (found.names, found.labels) == (("a", "b"), ("o[0]", "o[1]"))
    parts = [{k: v[i] for k, v in observed.items()} for i in range(2)]
    found = read(first, [written(tmp_path / f"{i}.npz", part) for i, part in enumerate(parts)])
    np.testing.assert_allclose(found.draws.x, observed["x_o"])
    assert found.labels == ("0", "1")
    found = read(written(tmp_path / "c.npz", arrays | parts[0] | {"labels": "today"}))
    assert found.draws.theta.shape == (1, 20, 2)
    assert (found.names, found.labels) == (None, ("today",))
    latents = written(tmp_path / "z.npz", {"z": arrays["theta"], "x": arrays["x"]})
    found = read(latents, [written(tmp_path / "o.npz", {"x_o": observed["x_o"]})])
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


def as_folder(path, arrays):
    path.mkdir()
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    return path


def as_table(arrays):
    """Columns by name; draws are numbered."""
    table = {}
    for name, array in arrays.items():
        for place in np.ndindex(array.shape[1:]):
            table[f"{name}.{'.'.join(map(str, place))}"] = array[(slice(None), *place)]
    return table


def as_csv(path, arrays):
    table = as_table(arrays)
    rows = np.stack(list(table.values()), 1)
    np.savetxt(path, rows, delimiter=",", header=",".join(table), comments="")
    return path


def as_hdf5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def as_parquet(path, arrays):
    table = import_module("pyarrow").table(as_table(arrays))
    import_module("pyarrow.parquet").write_table(table, path)
    return path


def as_zarr(path, arrays):
    group = import_module("zarr").open_group(str(path), mode="w")
    for name, array in arrays.items():
        group.create_array(name, data=array)
    return path


def by_tensors(save):
    """What writes arrays as tensors by name."""

    def write(path, arrays):
        save({name: torch.as_tensor(array) for name, array in arrays.items()}, path)
        return path

    return write


WRITERS = {
    "": as_folder,
    ".npz": written,
    ".csv": as_csv,
    ".h5": as_hdf5,
    ".nc": as_hdf5,
    ".pt": by_tensors(torch.save),
    ".safetensors": by_tensors(save_file),
    ".parquet": as_parquet,
    ".zarr": as_zarr,
}


class TestFormats:
    @pytest.mark.parametrize("ending", WRITERS)
    @pytest.mark.parametrize("k", [1, 3])
    def test_every_format(self, tmp_path, arrays, observed, ending, k):
        write = WRITERS[ending]
        arrays["theta_q"] = np.random.default_rng(2).normal(size=(50, k, 2))
        first = write(tmp_path / f"c{ending}", arrays)
        if write in (as_csv, as_parquet):  # a row for each draw
            rows = {"x_o": observed["x_o"].repeat(20, 0), "theta_o": observed["theta_o"]}
            second = write(
                tmp_path / f"o{ending}", rows | {"theta_o": rows["theta_o"].reshape(-1, 2)}
            )
        else:
            second = write(tmp_path / f"o{ending}", observed)
        found = read(first, [second])
        np.testing.assert_allclose(found.calibration.theta, arrays["theta"])
        np.testing.assert_allclose(found.calibration.theta_q, arrays["theta_q"])
        np.testing.assert_allclose(found.draws.x, observed["x_o"])
        np.testing.assert_allclose(found.draws.theta, observed["theta_o"])
        assert found.found.startswith(f"found c{ending}: theta (50, 2), x (50, 3), theta_q (50, ")
        assert "\n" not in found.found

    def test_parameters_in_another_order(self, tmp_path, arrays, observed):
        """Columns are put together by their names."""
        theta, theta_q = (arrays[name].T for name in ("theta", "theta_q"))
        table = dict(zip(('"theta.b"', "theta[a]"), theta, strict=True))
        table |= {"theta_q.a": theta_q[1], "theta_q.b": theta_q[0], "x.0": arrays["x"][:, 0]}
        rows = np.stack(list(table.values()), 1)
        np.savetxt(tmp_path / "c.csv", rows, delimiter=",", header=",".join(table), comments="")
        with h5py.File(tmp_path / "o.nc", "w") as file:
            for i, name in enumerate("ba"):
                file[f"posterior/{name}"] = observed["theta_o"][0, :, i].reshape(2, 10)
            file["observed_data/y"] = [0.5]
        found = read(tmp_path / "c.csv", [tmp_path / "o.nc"])
        assert found.names == ("b", "a")
        np.testing.assert_allclose(found.calibration.theta_q, arrays["theta_q"][:, None])
        np.testing.assert_allclose(found.draws.theta[0], observed["theta_o"][0])
        with h5py.File(tmp_path / "o.nc", "a") as file:
            file.move("posterior/a", "posterior/other")
        with pytest.raises(ValueError, match="theta_o with parameters b, a; got b, other"):
            read(tmp_path / "c.csv", [tmp_path / "o.nc"])

    def test_a_row_for_each_draw(self, tmp_path, arrays, observed):
        draws = np.random.default_rng(2).normal(size=(50, 3, 2))
        rows = {name: arrays[name].repeat(3, 0) for name in ("theta", "x")}
        path = as_csv(tmp_path / "c.csv", rows | {"theta_q": draws.reshape(-1, 2)})
        found = read(path, [written(tmp_path / "o.npz", observed)])
        np.testing.assert_allclose(found.calibration.theta_q, draws)
        np.testing.assert_allclose(found.calibration.x, arrays["x"])

    def test_files_of_the_benchmark(self, tmp_path, arrays):
        """Columns parameter_1 and data_1, in compressed tables."""
        rng = np.random.default_rng(0)
        text = "data_1,data_2,data_3\n" + ",".join(map(str, rng.normal(size=3)))
        (tmp_path / "observation.csv.bz2").write_bytes(bz2.compress(text.encode()))
        path = written(tmp_path / "c.npz", {"z": arrays["theta"], "x": arrays["x"]})
        found = read(path, [tmp_path / "observation.csv.bz2"])
        assert found.draws.x.shape == (1, 3)
        assert "data as x_o (1, 3)" in found.found

    def test_names_of_others(self, tmp_path, arrays, observed):
        theirs = {
            "prior_samples": arrays["theta"],
            "xs": arrays["x"],
            "posterior_samples": np.random.default_rng(2).normal(size=(3, 50, 2)),
            "reference_posterior": np.zeros((9, 2)),
        }
        there = {"observation": observed["x_o"][:1], "posterior_samples": observed["theta_o"][0]}
        write = WRITERS[".pt"]
        found = read(write(tmp_path / "c.pt", theirs), [write(tmp_path / "o.pt", there)])
        np.testing.assert_allclose(
            found.calibration.theta_q, theirs["posterior_samples"].swapaxes(0, 1)
        )
        assert found.draws.theta.shape == (1, 20, 2)
        assert found.found == (
            "found c.pt: prior_samples as theta (50, 2), xs as x (50, 3), posterior_samples as "
            "theta_q (50, 3, 2); left alone: reference_posterior; o.pt: observation as x_o "
            "(1, 3), posterior_samples as theta_o (20, 2)"
        )

    def test_inference_data(self, tmp_path, arrays, observed):
        """Chains and draws are put together, variables stand side by side."""
        with h5py.File(tmp_path / "o.nc", "w") as file:
            posterior, data = file.create_group("posterior"), file.create_group("observed_data")
            posterior["chain"], posterior["draw"] = np.arange(2), np.arange(10)
            posterior["a"] = observed["theta_o"][0, :, 0].reshape(2, 10)
            posterior["b"] = observed["theta_o"][0, :, 1].reshape(2, 10)
            data["y"] = observed["x_o"][0]
        found = read(written(tmp_path / "c.npz", arrays), [tmp_path / "o.nc"])
        np.testing.assert_allclose(found.draws.theta[0], observed["theta_o"][0])
        np.testing.assert_allclose(found.draws.x[0], observed["x_o"][0])

    @pytest.mark.parametrize(("write", "ending"), [(written, "npz"), (as_hdf5, "h5")])
    def test_names_that_are_bytes(self, tmp_path, arrays, observed, write, ending):
        words = {"names": np.array([b"a", b"b"]), "labels": np.array([b"here", b"there"])}
        found = read(write(tmp_path / f"c.{ending}", arrays | observed | words))
        assert (found.names, found.labels) == (("a", "b"), ("here", "there"))

    def test_precisions(self, tmp_path, arrays, observed):
        path = tmp_path / "c.safetensors"
        tensors = {k: torch.as_tensor(v) for k, v in (arrays | observed).items()}
        save_file(tensors | {"theta_q": tensors["theta_q"].bfloat16()}, path)
        assert read(path).calibration.k == 1


class Surprise:
    """Leaves a trace where it is loaded."""

    opened = []

    def __reduce__(self):
        return Surprise.opened.append, (1,)


PIPES = pytest.mark.skipif(sys.platform == "win32", reason="it has no such files")
ARCHIVE = "expected a whole .npz archive"
# What is changed in a good calibration, and in good observations, and what is said of it.
CALIBRATIONS = {
    "rows": ({"x": np.zeros((49, 3))}, "x: expected shape (50, ...)"),
    "columns": ({"theta_q": np.zeros((50, 3))}, "theta_q: expected shape (50, 2)"),
    "axes": ({"theta": np.zeros(50)}, "theta: expected shape (n, m)"),
    "NaN": ({"x": np.full((50, 3), np.nan)}, "x: "),
    "words": ({"theta": np.array([["a", "b"]] * 50)}, "theta: "),
    "objects": ({"x": np.array([{}], object)}, f"{ARCHIVE} of numbers"),
    "no observation": ({}, "expected an array x_o"),
    "two names": (
        {"theta": None, "thetas": np.zeros(3), "params": np.zeros(3)},
        "expected one of thetas, params for theta; got both",
    ),
    "other names": (
        {"theta": None, "x": None, "theta_q": None, "thetas": np.zeros((50, 2)), "y": np.zeros(9)},
        "expected arrays theta, x, theta_q (or z and x for latents); x, theta_q missing; found "
        "c.npz: thetas as theta (50, 2); left alone: y. `assay template` writes examples.",
    ),
}
OBSERVATIONS = {
    "x_o": ({"x_o": np.zeros(4)}, "x_o: expected shape (3,)"),
    "theta_o": ({"theta_o": np.zeros((2, 20, 3))}, "theta_o: expected shape (2, s, 2)"),
    "infinity": ({"x_o": np.full((2, 3), np.inf)}, "x_o: "),
    "labels": ({"labels": ["one"]}, "expected 2 labels"),
    "no draws": ({"theta_o": None}, "expected arrays x_o, theta_o"),
}
# Texts of tables.
TABLES = {
    "theta.a,x.0\n1,b\n": "could not convert string 'b'",
    "theta.a,x.0\n1,2,3\n": "2 names stand above 3 columns",
    "theta_q.0.a,theta_q.1.a,theta_q.1.b\n1,2,3\n": "2 draws are numbered in 3 columns",
    "theta.a\n1\n": "x, theta_q missing; found c.csv: theta (1, 1)",
    "theta.a,theta.a,x\n1,2,3\n": "a name stands twice above its columns: theta.a",
}
# Files that are no files of their kind.
NONSENSE = (b"", b"nonsense", bytes(range(256)) * 4)
ENDINGS = [ending for ending in WRITERS if ending not in ("", ".zarr")]


class TestBadInput:
    def complaint(self, path, *observations):
        with pytest.raises((ValueError, OSError)) as caught:
            read(path, observations)
        text = str(caught.value)
        assert "\n" not in text
        return text

    @pytest.mark.parametrize(("change", "words"), CALIBRATIONS.values(), ids=CALIBRATIONS)
    def test_calibrations(self, tmp_path, arrays, change, words):
        given = {name: a for name, a in (arrays | change).items() if a is not None}
        assert f"c.npz: {words}" in self.complaint(written(tmp_path / "c.npz", given))

    @pytest.mark.parametrize(("change", "words"), OBSERVATIONS.values(), ids=OBSERVATIONS)
    def test_observations(self, tmp_path, arrays, observed, change, words):
        given = {name: a for name, a in (observed | change).items() if a is not None}
        files = written(tmp_path / "c.npz", arrays), written(tmp_path / "o.npz", given)
        assert f"o.npz: {words}" in self.complaint(*files)

    def test_draws_that_differ_in_number(self, tmp_path, arrays, observed):
        path = written(tmp_path / "c.npz", arrays)
        few = written(tmp_path / "few.npz", observed | {"theta_o": observed["theta_o"][:, :9]})
        many = written(tmp_path / "many.npz", observed)
        words = "as many draws at every x_o; got few.npz 9, many.npz 20"
        assert words in self.complaint(path, few, many)

    @pytest.mark.parametrize(("text", "words"), TABLES.items())
    def test_tables(self, tmp_path, text, words):
        (tmp_path / "c.csv").write_text(text)
        assert words in self.complaint(tmp_path / "c.csv")

    def test_no_file(self, tmp_path):
        assert "none.npz: expected a file; there is none" in self.complaint(tmp_path / "none.npz")
        assert "expected a folder of .npy files" in self.complaint(tmp_path)

    def test_a_single_array(self, tmp_path, arrays):
        np.save(tmp_path / "c.npy", arrays["theta"])
        assert ARCHIVE in self.complaint(tmp_path / "c.npy")

    @pytest.mark.parametrize("ending", ENDINGS)
    @pytest.mark.parametrize("content", NONSENSE)
    def test_nonsense(self, tmp_path, ending, content):
        if ending == ".parquet":
            import_module("pyarrow")
        path = tmp_path / f"c{ending}"
        path.write_bytes(content)
        assert f"c{ending}: expected " in self.complaint(path)

    @pytest.mark.parametrize("ending", [".h5", ".pt", ".safetensors", ".npz"])
    @pytest.mark.parametrize("keep", [0, 10, 100, 700, -30])
    def test_truncated_files(self, tmp_path, arrays, observed, ending, keep):
        path = WRITERS[ending](tmp_path / f"c{ending}", arrays | observed)
        path.write_bytes(path.read_bytes()[:keep])
        assert f"c{ending}: expected " in self.complaint(path)

    def test_more_than_the_machine_has(self, tmp_path):
        """A file of a few bytes can name a huge array."""
        with h5py.File(tmp_path / "c.h5", "w") as file:
            file.create_dataset("theta", (10**9, 10**6), "f8", chunks=(1, 10))
        assert "its arrays need 8e+15 bytes" in self.complaint(tmp_path / "c.h5")

    def test_links_out_of_the_file_are_not_followed(self, tmp_path, arrays):
        as_hdf5(tmp_path / "other.h5", arrays)
        with h5py.File(tmp_path / "c.h5", "w") as file:
            for name in arrays:
                file[name] = h5py.ExternalLink("other.h5", name)
        assert "theta, x, theta_q missing" in self.complaint(tmp_path / "c.h5")

    @PIPES
    @pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".h5", ".npz", ".parquet"])
    def test_what_has_no_end(self, tmp_path, ending):
        """Neither is opened: a pipe that nobody writes to would be waited for."""
        (tmp_path / f"zeros{ending}").symlink_to("/dev/zero")
        os.mkfifo(tmp_path / f"pipe{ending}")
        for name in ("zeros", "pipe"):
            assert "it is no file" in self.complaint(tmp_path / f"{name}{ending}")

    def test_torch_loads_tensors_by_name_alone(self, tmp_path):
        torch.save({"theta": Surprise()}, tmp_path / "c.pt")
        text = self.complaint(tmp_path / "c.pt")
        assert "it holds other objects than tensors, which would run code" in text
        assert not Surprise.opened
        torch.save([torch.zeros(3)], tmp_path / "c.pt")
        assert "it holds a list, not tensors by name" in self.complaint(tmp_path / "c.pt")

    @pytest.mark.parametrize(
        ("name", "library"),
        [
            ("c.parquet", "pyarrow"),
            ("c.nc", "h5py"),
            ("c.safetensors", "safetensors"),
            ("zarr.json", "zarr"),
        ],
    )
    def test_a_missing_library(self, tmp_path, monkeypatch, name, library):
        for module in (library, f"{library}.parquet"):
            monkeypatch.setitem(sys.modules, module, None)
        (tmp_path / name).write_bytes(b"{}")
        with pytest.raises(ImportError, match=rf"needs {library}: pip install 'assay\[files\]'$"):
            read(tmp_path if library == "zarr" else tmp_path / name)
