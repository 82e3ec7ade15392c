"""Writers that are killed, that find no room, or that must not write: old files stay whole."""

import errno
import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

import assay

EVERYDAY = ("save", "chunks", "experiments")


def ran(*words, **how):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, **how)


@pytest.mark.parametrize(
    "words", [("18", *EVERYDAY), pytest.param(("300",), marks=pytest.mark.slow)], ids=str
)
def test_nothing_is_lost_and_nothing_is_left(words):
    done = ran("-m", "tests.robustness.kills", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert sum(found["kills"].values()) == int(words[0])
    assert {name.split()[1] for name in found["kills"]} == {"SIGKILL", "SIGTERM", "SIGINT"}


@pytest.fixture
def small():
    """Files have room for 4000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room(gaussian, tmp_path, small):
    path = tmp_path / "file.npz"
    assay.save(assay.Draws(np.zeros(2)), path)
    before = path.read_bytes()
    with pytest.raises(OSError, match=r"\[Errno 27\] .*: '.*file.npz'$") as caught:
        assay.save(gaussian().calibration(500), path)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_device(gaussian):
    with pytest.raises(OSError, match=r"\[Errno 28\] .*: '/dev/full'$"):
        assay.save(gaussian().calibration(500), "/dev/full")
    assert os.path.exists("/dev/full")
    assert not os.path.isfile("/dev/full")


READ_ONLY = """
import os, sys
from assay._support.files import atomic_write
if os.getuid() == 0:
    os.setuid(65534)  # whom modes of files concern
try:
    with atomic_write(sys.argv[1]) as file:
        file.write(b"new")
except PermissionError as error:
    print(error)
"""


@pytest.mark.parametrize("closed", ["folder", "file"])
def test_a_folder_or_a_file_that_is_read_only(tmp_path_factory, closed):
    base = tmp_path_factory.mktemp("closed")
    for folder in (base, *list(base.parents)[:2]):
        folder.chmod(0o755)
    folder = base / "folder"
    folder.mkdir()
    path = folder / "a.txt"
    path.write_text("old")
    path.chmod(0o444 if closed == "file" else 0o666)
    folder.chmod(0o777 if closed == "file" else 0o555)
    done = ran("-c", READ_ONLY, str(path))
    assert done.stdout == f"[Errno 13] Permission denied: {str(path)!r}\n", done.stderr
    assert path.read_text() == "old"
    assert list(folder.iterdir()) == [path]
