import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import assay
from assay.cli import app, terminal
from assay.cli.terminal import marked


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
        assert "nearest 20 % of 1000 pairs; corrected p" in text
        assert "\nmonday " in text
        assert "\nNext: " in text
        assert "\x1b" not in text
        assert "wrote " in text

    def test_json_alone(self, folder, saved):
        words = ("--observation", folder / "observation.npz", "--quick", "--nulls", 39)
        done = run("check", folder / "few.npz", *words, "--json", "-")
        assert done.stderr.startswith("found few.npz: theta (1000, 2), x (1000, 8), theta_q ")
        found = json.loads(done.stdout)
        assert [row["label"] for row in found["observations"]] == ["monday", "tuesday"]
        expected = assay.load(saved[0])
        assert [row["pvalue"] for row in found["observations"]] == expected.pvalue.tolist()
        assert [row["verdict"] for row in found["observations"]] == list(expected.verdicts)
        assert found["parameters"] == ["offset", "slope"]
        width = next(row for row in found["observations"][0]["rows"] if row["kind"] == "width")
        assert width["upper"] < 1
        assert found["over_all_x"]["SBC"] <= 0.05

    def test_it_can_fail(self, folder):
        words = ("--observation", folder / "observation.npz", "--quick", "--nulls", 39)
        assert run("check", folder / "few.npz", *words, "--fail-on-reject").exit_code == 1

    def test_a_report(self, folder, saved, tmp_path):
        done = run(
            "show", saved[0], "--report", tmp_path / "r.html", "--json", tmp_path / "r.json"
        )
        assert done.exit_code == 0, done.output
        assert (tmp_path / "r.html").stat().st_size > 1e6
        assert json.loads((tmp_path / "r.json").read_text())["alpha"] == 0.05

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
        shown = run("show", path)
        assert shown.exit_code == 0
        assert shown.stdout.strip() in text

    def test_any_result(self, folder, tmp_path, gaussian):
        result = assay.score(gaussian().latents(100), null=39)([0.0, 0.0])
        assay.save(result, tmp_path / "r.npz")
        assert run("show", tmp_path / "r.npz").stdout.strip() == repr(result)
        done = run("show", tmp_path / "r.npz", "--report", tmp_path / "r.html")
        assert done.exit_code == 2
        assert "expected a saved check for --report" in done.stderr


class TestColour:
    @pytest.fixture
    def terminal(self, monkeypatch):
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setattr(terminal, "_is_terminal", lambda: True)

    def test_on_a_terminal(self, saved, terminal):
        shown = CliRunner().invoke(app, ["show", str(saved[0])], color=True).stdout
        assert "\x1b[31m✗ rejected\x1b[0m" in shown
        # Nothing is lost, and nothing moves.
        plain = saved[1].splitlines()[:-1]
        for line, coloured in zip(plain, shown.splitlines(), strict=True):
            bare = re.sub(r"\x1b\[\d+m", "", coloured)
            assert len(bare) == len(line)
            assert bare.replace("✗", " ").replace("✓", " ") == line

    @pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
    def test_not_where_nobody_wants_it(self, saved, terminal, monkeypatch, name, value):
        monkeypatch.setenv(name, value)
        shown = CliRunner().invoke(app, ["show", str(saved[0])], color=True).stdout
        assert "\x1b" not in shown
        assert "✗" not in shown

    def test_not_in_a_pipe(self, saved):
        shown = CliRunner().invoke(app, ["show", str(saved[0])], color=True).stdout
        assert "\x1b" not in shown

    def test_words_of_sentences_stay_as_they_are(self):
        text = "a: outside. It is.\nIt lies outside the rejected ones.\n\na   outside"
        first, sentence, _, row = marked(text).splitlines()
        assert first == "a: \x1b[90m\x1b[1moutside\x1b[0m. It is."
        assert sentence == "It lies outside the rejected ones."
        assert "○ outside" in row


class TestBadInput:
    def complaint(self, *words):
        done = run(*words)
        assert done.exit_code == 2, done.output
        assert "Traceback" not in done.output
        *read, line = done.stderr.strip().splitlines()
        assert all(one.startswith("found ") for one in read)
        assert line.startswith("assay: ")
        return line

    def test_files(self, folder, tmp_path):
        observation = ("--observation", folder / "observation.npz")
        assert "there is none" in self.complaint("check", tmp_path / "none.npz", *observation)
        cut = tmp_path / "cut.npz"
        cut.write_bytes((folder / "calibration.npz").read_bytes()[:5000])
        assert "cannot be read" in self.complaint("check", cut, *observation)
        np.savez(tmp_path / "names.npz", a=np.zeros(3))
        assert "left alone: a" in self.complaint("check", tmp_path / "names.npz", *observation)
        with np.load(folder / "few.npz") as archive:
            arrays = {name: archive[name] for name in archive.files}
        np.savez(tmp_path / "shapes.npz", **(arrays | {"x": arrays["x"][:-1]}))
        assert "x: expected" in self.complaint("check", tmp_path / "shapes.npz", *observation)
        np.savez(tmp_path / "nan.npz", **(arrays | {"x": arrays["x"] * np.nan}))
        assert "x: " in self.complaint("check", tmp_path / "nan.npz", *observation)

    def test_nothing_that_is_read_is_written_over(self, folder, tmp_path):
        few, observed = folder / "few.npz", folder / "observation.npz"
        before = few.read_bytes(), observed.read_bytes()
        words = ("check", few, "--observation", observed)
        for option, path in (("--report", few), ("--save", observed), ("--json", few)):
            line = self.complaint(*words, option, path)
            assert "expected another file than one that is read" in line
        same = tmp_path / "same"
        line = self.complaint(*words, "--report", same, "--json", same)
        assert "expected different files" in line
        assert "only --json can go to the terminal" in self.complaint(*words, "--report", "-")
        assert "it is a folder" in self.complaint(*words, "--report", tmp_path)
        assert (few.read_bytes(), observed.read_bytes()) == before

    def test_options(self, folder, tmp_path):
        words = ("check", folder / "few.npz", "--observation", folder / "observation.npz")
        assert "alpha: expected" in self.complaint(*words, "--alpha", 2)
        assert "expected a folder that exists" in self.complaint(
            *words, "--report", tmp_path / "no" / "r.html"
        )
        assert "there is none" in self.complaint("show", tmp_path / "none.npz")
        np.savez(tmp_path / "a.npz", a=np.zeros(3))
        assert "expected a file that assay.save wrote" in self.complaint(
            "show", tmp_path / "a.npz"
        )


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
