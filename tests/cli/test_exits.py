"""Exit codes, what is printed where it can hardly be printed, and Ctrl-C."""

import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import assay
from assay.cli import app

from ..conftest import Gaussian


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A check whose names are in no small alphabet."""
    path = tmp_path_factory.mktemp("saved") / "check.npz"
    words = {"names": ("θ₁", "ширина"), "labels": ("日曜日",)}
    draws, narrow = Gaussian().draws([[0.5, -0.5]], 50), Gaussian(width=0.5).calibration(200, k=8)
    assay.check(narrow, x_o=draws, nulls=19, classifier=None, **words).save(path)
    return path


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def started(*words, code="from assay.__main__ import main; main()", **how):
    # What is started in the background ignores interrupts, and so does all that it starts.
    code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{code}"
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.argv[0] = 'assay'; {code}",
        *map(str, words),
    ]
    return subprocess.run(command, stderr=subprocess.PIPE, **{"stdout": subprocess.PIPE, **how})


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1251"])
def test_any_encoding(saved, encoding):
    done = started("show", saved, env=os.environ | {"PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(encoding)
    assert text.startswith(r"\u65e5\u66dc\u65e5")
    assert ("ширина" if encoding == "cp1251" else r"\u0448") in text


def test_a_closed_pipe_changes_nothing(saved, tmp_path):
    """What is asked for is written first, and the code is that of the verdict."""
    reader, writer = os.pipe()
    os.close(reader)
    done = started("show", saved, "--json", tmp_path / "r.json", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "r.json").stat().st_size > 1000


def test_nowhere_to_print(saved):
    done = started("show", saved, stdout=None, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_is_reported(saved):
    with open("/dev/full", "wb") as full:
        done = started("show", saved, stdout=full)
    assert done.returncode == 2
    assert done.stderr == b"assay: [Errno 28] No space left on device\n"


def test_files_that_are_streams(saved):
    done = started("show", saved, "--json", "/dev/stdout")
    assert done.returncode == 0
    assert done.stdout.startswith(b'{\n "alpha": 0.05')
    assert done.stdout.endswith(b"wrote /dev/stdout\n")


def test_an_old_file_survives_what_cannot_be_written(saved, tmp_path, monkeypatch):
    for name in ("r.json", "r.html"):
        (tmp_path / name).write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    done = run("show", saved, "--json", tmp_path / "r.json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "r.json" in done.stderr
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old", "old"]


def test_an_error_of_the_library(saved, monkeypatch):
    monkeypatch.setattr("assay.cli._write", lambda *_: [][0])
    done = run("show", saved)
    assert done.exit_code == 3
    assert "Traceback" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("assay: this is an error of assay; please report it: IndexError(")


@pytest.mark.parametrize(
    "error", [ValueError("a"), TypeError("b"), ZeroDivisionError(), KeyError(1)]
)
def test_no_bad_input(saved, monkeypatch, error):
    monkeypatch.setattr("assay.io.load", lambda path: (_ for _ in ()).throw(error))
    assert run("show", saved).exit_code == 3


def test_interrupted_while_it_works(saved, monkeypatch):
    monkeypatch.setattr("assay.io.load", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    done = run("show", saved)
    assert (done.exit_code, done.output) == (130, "")


# A signal that comes when a module is imported, or as it is done with, and a second one.
AT = """
import os, signal
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from assay.__main__ import main
main()
"""


@pytest.mark.parametrize("name", ["typer", "torch", "assay.io"])
def test_interrupted_while_it_is_imported(saved, name):
    done = started("show", saved, code=AT.format(name=name))
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_an_ignored_signal_stays_ignored(saved):
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    done = started("show", saved, code=ignore + AT.format(name="assay.io"))
    assert done.returncode == 0


def test_control_characters_in_files(tmp_path):
    """Of arrays that are left alone, and of files that are not there."""
    np.savez(tmp_path / "a.npz", **{"\x1b[2J": np.zeros(3)})
    for path in (tmp_path / "a.npz", tmp_path / "\x1b[31m.npz"):
        done = run("check", path)
        assert done.exit_code == 2
        assert "\x1b" not in done.output
        assert "\ufffd" in done.stderr


def test_help_has_the_codes():
    text = " ".join(run("--help").stdout.split())
    for code in ("0 done", "1 rejected", "2 bad input", "3 an error of assay", "130 interrupted"):
        assert code in text
