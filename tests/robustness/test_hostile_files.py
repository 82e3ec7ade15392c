"""Files made to do harm, or badly broken: refused in one line, in under a second and 200 MB.

They are read in a process of their own, by `assay.load` and as a calibration of `assay check`.
"""

import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import assay
from assay.io import FORMAT, _digest_of

BIG = 3_000_000_000
READER = """
import resource, sys, time
from pathlib import Path

import assay
from assay.cli.files import read

def used():
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime, own.ru_maxrss / 1000

load = assay.load
for path in map(Path, sys.argv[1:]):
    for reader in (load, read):
        before = used()
        try:
            said = f"read {type(reader(path)).__name__}"
        except (ValueError, OSError) as error:
            said = f"{type(error).__name__}: {error}"
        except BaseException as error:
            said = f"crash {error!r}"
        seconds, megabytes = (b - a for a, b in zip(before, used()))
        print(path.stem, reader.__name__, f"{seconds:.2f}", f"{megabytes:.0f}", said, sep="\\t")
"""


def npy(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
    return file.getvalue()


def headed(shape, descr="<f8"):
    """The beginning of an array of a shape, as NumPy writes it."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (64 - (len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


class Bomb:
    """An array of zeros, which is packed into a thousandth of its size."""

    def written(self, archive, name):
        with archive.open(name, "w", force_zip64=True) as file:
            file.write(headed((BIG // 8,)))
            for _ in range(BIG // 10**7):
                file.write(bytes(10**7))


def forged(content):
    """A text with the digest of its content."""
    digests = {"digests": {}, "digest": _digest_of(content)}
    return json.dumps({"format": FORMAT, "version": "0.1.0", "content": content, **digests})


TREE = (
    f'{{"format": {FORMAT}, "digest": "", "content": ' + '{"tuple": [' * 5000 + "]}" * 5000 + "}"
)
LONG = b"(" * 60_000 + b")" * 60_000
# Arrays that harm, and texts that do.
ARRAYS = {
    "huge shape": headed((10**12,)),
    "huge shape of nothing": headed((0, 2**62)),
    "shape beyond 64 bits": headed((2**40, 2**40)),
    "letters of no size": headed((2**40,), "<U0"),
    "negative shape": headed((-5,)),
    "shape of words": headed("('a',)"),
    "no array": b"hello" * 50,
    "cut array": npy(np.zeros(100))[:-8],
    "unknown version of arrays": b"\x93NUMPY\x09\x00" + npy(np.zeros(9))[8:],
    "long header": b"\x93NUMPY\x02\x00" + struct.pack("<I", len(LONG)) + LONG,
    "header of 2 GB": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31 - 1),
    "objects": npy(np.array([{}, print], object)),
}
TEXTS = {
    "deep list": "[" * 100_000 + "]" * 100_000,
    "deep tree": TREE,
    "wide tree": forged({"class": "assay:Draws", "fields": {"x": {"tuple": [1] * 1_000_000}}}),
    "one array 100000 times": forged({"tuple": [{"array": "/x"}] * 100_000}),
    "long text": " " * 10_000_000,
    "huge number": '{"format": ' + "9" * 10**5 + "}",
    "nothing in it": forged({}),
    "another class": forged({"class": "os:system"}),
}


def marked(data, local, central, change):
    """The same archive with a field of every entry changed."""
    some = bytearray(data)
    for mark, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        place = -1
        while (place := some.find(mark, place + 1)) >= 0:
            some[place + offset : place + offset + 2] = struct.pack("<H", change)
    return bytes(some)


def written(path, content, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method, compresslevel=1) as archive:
        for name, part in content.items():
            if isinstance(part, Bomb):
                part.written(archive, f"{name}.npy")
            else:
                archive.writestr(f"{name}.npy", part)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A calibration and an observation, as they may come: by `save`, and by NumPy."""
    from ..conftest import Gaussian

    path = tmp_path_factory.mktemp("hostile") / "saved.npz"
    calibration = Gaussian().calibration(50, k=4)
    assay.save(calibration, path)
    with np.load(path) as archive:
        arrays = {name: npy(archive[name]) for name in archive.files}
    plain = {n: npy(getattr(calibration, n).numpy()) for n in ("theta", "x", "theta_q")}
    return path, {**arrays, **plain, "x_o": npy(np.zeros(2)), "theta_o": npy(np.zeros((9, 2)))}


@pytest.fixture(scope="module")
def hostile(saved, tmp_path_factory):
    """All of the files in a folder."""
    folder = tmp_path_factory.mktemp("files")
    path, good = saved
    data = path.read_bytes()
    save = {name: part for name, part in good.items() if name == "assay" or "/" in name}
    for name, array in ARRAYS.items():
        written(folder / f"{name}, saved.npz", save | {"/theta": array})
        plain = {name: part for name, part in good.items() if name not in save}
        written(folder / f"{name}, plain.npz", plain | {"theta": array})
    for name, text in TEXTS.items():
        written(folder / f"{name}.npz", save | {"assay": npy(np.array(text))})
    written(folder / "text of numbers.npz", save | {"assay": npy(np.zeros((1000, 1000)))})
    whole = {
        "empty": b"",
        "zeros": bytes(10**5),
        "words": b"hello",
        "pickle": pickle.dumps({"a": 1}),
        "archive of nothing": b"PK\x05\x06" + bytes(18),
        "cut": data[:-30],
        "encrypted": marked(data, 6, 8, 1),
        "unknown method": marked(data, 8, 10, 99),
        "stored, they say": marked(data, 8, 10, 0),
        "wrong checksum": marked(data, 14, 16, 7),
    }
    for name, content in whole.items():
        (folder / f"{name}.npz").write_bytes(content)
    (folder / "folder.npz").mkdir()
    return folder


def fates(paths):
    done = subprocess.run(
        [sys.executable, "-c", READER, *map(str, paths)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def check(found):
    for name, reader, seconds, megabytes, said in found:
        where = (name, reader, said)
        assert said.startswith(("ValueError: ", "IsADirectoryError: ")), where
        assert "expected" in said or "folder" in name, where
        assert float(seconds) < 1, where
        assert float(megabytes) < 200, where


def test_files(hostile):
    paths = sorted(hostile.iterdir())
    found = fates(paths)
    assert len(found) == 2 * len(paths) >= 86
    check(found)


def test_other_compressions_are_read(saved, tmp_path):
    """bzip2 and LZMA are odd, and whole."""
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_STORED):
        kept = {name: part for name, part in saved[1].items() if name == "assay" or "/" in name}
        written(tmp_path / "odd.npz", kept, method)
        assert len(assay.load(tmp_path / "odd.npz")) == 50


@pytest.mark.slow
def test_arrays_of_3_gb(saved, tmp_path):
    """One that is not named is not read; one that is named is refused."""
    path, bomb = tmp_path / "unused.npz", Bomb()
    kept = {name: part for name, part in saved[1].items() if name == "assay" or "/" in name}
    written(path, {**kept, "unused": bomb})
    ((_, _, seconds, megabytes, said), _) = fates([path])
    assert said == "read Calibration"
    assert float(seconds) < 1
    assert float(megabytes) < 200
    written(tmp_path / "used.npz", {**kept, "/theta": bomb})
    written(tmp_path / "plain.npz", {**saved[1], "theta": bomb})
    check([fates([tmp_path / "used.npz"])[0], fates([tmp_path / "plain.npz"])[1]])
