import json
import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import assay
from assay.cli import app


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of `assay template`, and a smaller calibration that is quick to check."""
    folder = tmp_path_factory.mktemp("inputs")
    done = run("template", folder)
    assert done.exit_code == 0, done.output
    with np.load(folder / "calibration.npz") as whole:
        few = {name: whole[name][:1000] for name in whole.files}
    np.savez(folder / "few.npz", **few)
    return folder


@pytest.fixture(scope="module")
def saved(folder):
    path = folder / "check.npz"
    words = ("--observation", folder / "observation.npz", "--quick", "--nulls", 39)
    done = run("check", folder / "few.npz", *words, "--save", path)
    assert done.exit_code == 0, done.output
    return path, done.stdout


class TestTemplate:
    def test_it_writes_what_check_reads(self, folder):
        assert "YOUR posterior" in (folder / "make_inputs.py").read_text()
        with np.load(folder / "calibration.npz") as archive:
            assert archive["theta_q"].shape == (2000, 16, 2)

    def test_it_loses_nothing(self, folder):
        before = (folder / "calibration.npz").read_bytes()
        done = run("template", folder)
        assert done.exit_code == 2
        assert "Use --force to write over them" in done.stderr
        assert (folder / "calibration.npz").read_bytes() == before
        assert run("template", folder, "--force").exit_code == 0


class TestCheck:
    def test_it_prints_verdicts(self, saved):
        _, text = saved
        assert text.startswith("Of 2 observations: ")
        for words in ("20 % of 1000 pairs; corrected p", "\nmonday ", "\nNext: ", "wrote "):
            assert words in text
        assert "\x1b" not in text

    def test_json_alone_and_a_rejection(self, folder, saved):
        words = ("--quick", "--nulls", 39, "--json", "-", "--fail-on-reject")
        done = run("check", folder / "few.npz", "-o", folder / "observation.npz", *words)
        assert done.exit_code == 1
        assert done.stderr.startswith("found few.npz: theta (1000, 2), x (1000, 8), theta_q ")
        found, expected = json.loads(done.stdout), assay.load(saved[0])
        assert [row["label"] for row in found["observations"]] == ["monday", "tuesday"]
        assert [row["pvalue"] for row in found["observations"]] == expected.pvalue.tolist()
        assert [row["verdict"] for row in found["observations"]] == list(expected.verdicts)
        assert found["parameters"] == ["offset", "slope"]
        width = next(row for row in found["observations"][0]["rows"] if row["kind"] == "width")
        assert width["upper"] < 1
        assert found["over_all_x"]["SBC"] <= 0.05

    def test_the_command_is_kept(self, folder, tmp_path, monkeypatch):
        words = ["check", str(folder / "few.npz"), "-o", str(folder / "observation.npz")]
        words += ["--quick", "--nulls", "39", "--save", str(tmp_path / "a file.npz")]
        monkeypatch.setattr(sys, "argv", ["/somewhere/bin/assay", *words])
        assert run(*words).exit_code == 0
        call = assay.load(tmp_path / "a file.npz").settings["call"]
        assert shlex.split(call) == ["assay", *words]


class TestShow:
    def test_a_check(self, saved):
        path, text = saved
        done = run("show", path)
        assert done.exit_code == 0
        assert done.stdout.strip() in text

    def test_in_colour(self, saved, monkeypatch):
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setattr("assay.cli.terminal._is_terminal", lambda: True)
        done = CliRunner().invoke(app, ["show", str(saved[0])], color=True)
        assert "\x1b[31m✗ rejected\x1b[0m" in done.stdout

    def test_a_report(self, saved, tmp_path):
        files = tmp_path / "r.html", tmp_path / "r.json"
        done = run("show", saved[0], "--report", files[0], "--json", files[1])
        assert done.exit_code == 0, done.output
        assert files[0].stat().st_size > 1e6
        assert json.loads(files[1].read_text())["alpha"] == 0.05

    def test_any_result(self, folder, tmp_path, gaussian):
        result = assay.score(gaussian().latents(100), null=39)([0.0, 0.0])
        assay.save(result, tmp_path / "r.npz")
        assert run("show", tmp_path / "r.npz").stdout.strip() == repr(result)
        done = run("show", tmp_path / "r.npz", "--report", tmp_path / "r.html")
        assert done.exit_code == 2
        assert "expected a saved check for --report" in done.stderr


class TestBadInput:
    def complaint(self, *words):
        done = run(*words)
        assert done.exit_code == 2, done.output
        assert "Traceback" not in done.output
        *read, line = done.stderr.strip().splitlines()
        assert all(one.startswith("found ") for one in read)
        assert line.startswith("assay: ")
        return line

    @pytest.mark.parametrize(
        ("words", "complaint"),
        [
            ("check none.npz", "none.npz: expected a file; there is none"),
            ("check cut.npz", "cannot be read"),
            ("check names.npz", "left alone: a"),
            ("check shapes.npz", "x: expected"),
            ("check nan.npz", "x: "),
            ("check few.npz --alpha 2", "alpha: expected"),
            ("check few.npz --report no/r.html", "expected a folder that exists"),
            ("check few.npz --report few.npz", "expected another file than one that is read"),
            ("check few.npz --json few.npz", "expected another file than one that is read"),
            ("check few.npz --save observation.npz", "expected another file than one that is"),
            ("check few.npz --report same --json same", "expected different files"),
            ("check few.npz --report -", "only --json can go to the terminal"),
            ("check few.npz --report .", "it is a folder"),
            ("show none.npz", "there is none"),
            ("show names.npz", "expected a file that assay.save wrote"),
        ],
    )
    def test_it_is_refused_and_nothing_is_written_over(
        self, folder, tmp_path, monkeypatch, words, complaint
    ):
        with np.load(folder / "few.npz") as archive:
            arrays = dict(archive)
        contents = {name: (folder / name).read_bytes() for name in ("few.npz", "observation.npz")}
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content)
        (tmp_path / "cut.npz").write_bytes(contents["few.npz"][:5000])
        np.savez(tmp_path / "names.npz", a=np.zeros(3))
        np.savez(tmp_path / "shapes.npz", **(arrays | {"x": arrays["x"][:-1]}))
        np.savez(tmp_path / "nan.npz", **(arrays | {"x": arrays["x"] * np.nan}))
        monkeypatch.chdir(tmp_path)
        observation = ("-o", "observation.npz") if words.startswith("check") else ()
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        assert complaint in self.complaint(*words.split(), *observation)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


class TestHelp:
    def test_it_is_a_tutorial(self):
        text = run("--help").stdout
        for words in ("assay demo", "assay template", "theta_q", "Exit codes: 0", "--version"):
            assert words in text

    def test_version(self):
        assert run("--version").stdout.strip() == assay.__version__

    def test_completion(self):
        environment = os.environ | {"_ASSAY_COMPLETE": "complete_bash", "COMP_WORDS": "assay ch"}
        environment["COMP_CWORD"] = "1"
        command = [
            sys.executable,
            "-c",
            "import sys; sys.argv[0] = 'assay'; import assay.cli as c; c.main()",
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert "check" in done.stdout
