"""What a file to write may be, and who else may write it."""

import os
import shutil
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from assay._support import files
from assay._support.files import atomic_write


def write(path, data=b"new"):
    with atomic_write(path) as file:
        file.write(data)


def test_a_link_stays(tmp_path):
    target, link, far = tmp_path / "target", tmp_path / "link", tmp_path / "far"
    target.write_bytes(b"old")
    link.symlink_to(target.name)
    far.symlink_to(link)
    write(far)
    assert target.read_bytes() == b"new"
    assert link.is_symlink()
    assert far.is_symlink()


def test_a_link_to_nothing_makes_its_target(tmp_path):
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to("folder/target")
    write(link)
    assert link.is_symlink()
    assert (tmp_path / "folder" / "target").read_bytes() == b"new"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_modes_stay(tmp_path, mode):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(mode)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_private_file_is_private_while_it_is_written(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with atomic_write(path):
        (part,) = tmp_path.glob(".*.part")
        assert stat.S_IMODE(part.stat().st_mode) == 0o600


def test_a_pipe_is_written_to(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(path.read_bytes)
        write(path)
        assert read.result(timeout=10) == b"new"
    assert path.is_fifo()


def test_a_device_is_written_to():
    before = os.stat(os.devnull)
    write(os.devnull)
    assert os.path.samestat(os.stat(os.devnull), before)


def test_a_socket_and_a_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for path in ("socket", "."):
            with pytest.raises(OSError, match="path: expected a file to write; .* is none"):
                write(path)
    assert os.path.exists("socket")


@pytest.mark.parametrize("to", ["/dev/stdout", "/dev/fd/1", "itself"])
def test_what_is_printed_to_is_not_replaced(tmp_path, to):
    """Words before and after stand where they were printed."""
    path = tmp_path / "out"
    to = str(path) if to == "itself" else to
    code = (
        "import sys; from assay._support.files import atomic_write\nprint('before')\n"
        f"with atomic_write({to!r}) as file: file.write(b'inside\\n')\nprint('after')"
    )
    with path.open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert path.read_text() == "before\ninside\nafter\n"


def test_parts_that_were_left_are_removed(tmp_path):
    """Those of the same file alone, and none that is being written."""
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        with atomic_write(path) as file:
            name = file.name
        shutil.copy(path, f"{name[:-5]}0.part")
    with atomic_write(paths[0]) as first, atomic_write(paths[0]) as second:
        first.write(b"first")
        second.write(b"second")
        write(paths[0])
        # Two that are written, and that of b.
        assert len(list(tmp_path.glob(".*.part"))) == 3
    write(paths[1])
    assert sorted(tmp_path.iterdir()) == paths
    assert paths[0].read_bytes() == b"first"


def test_many_writers_at_once(tmp_path):
    """Each sweeps while the others begin; none loses its part."""
    path = tmp_path / "a"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: write(path, bytes([i]) * 1000), range(200)))
    assert len(set(path.read_bytes())) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_part_that_was_begun_anew_is_not_swept(tmp_path, monkeypatch):
    """Removed by another between being opened and being locked, and written again."""
    part = tmp_path / ".a.part"
    part.write_bytes(b"left")

    def flock(file, how):
        os.unlink(file.name)
        part.write_bytes(b"anew")

    monkeypatch.setattr(files.fcntl, "flock", flock)
    files._sweep([part])
    assert part.read_bytes() == b"anew"


def test_a_part_that_was_swept_before_it_was_locked(tmp_path, monkeypatch):
    taken = []

    def flock(file, how):
        if not taken:
            taken.append(os.unlink(file.name))

    monkeypatch.setattr(files.fcntl, "flock", flock)
    write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_signal_after_the_file_took_its_place(tmp_path, monkeypatch):
    replace = os.replace

    def interrupted(*paths):
        replace(*paths)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new"


def test_long_names(tmp_path):
    path = tmp_path / ("a" * 255)
    write(path)
    assert path.read_bytes() == b"new"
