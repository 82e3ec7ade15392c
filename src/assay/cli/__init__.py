"""The command line: ``assay check``, ``show``, ``template`` and ``demo``.

Files of named arrays come in; a verdict, a report, JSON and an exit code come out. The work is
done by :func:`assay.check`, which is imported when a command runs, so that ``--help`` is quick.
It may import anything; nothing but ``__main__`` imports it.
"""

import json
import os
import runpy
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from .. import __version__

try:
    import typer
except ModuleNotFoundError:
    sys.exit("The command line needs typer: pip install 'assay[cli]'")

from .terminal import say

# A line with \b keeps the lines of a paragraph as they are.
HELP = """\
Can you trust your posterior at the observation you have?

First steps:

\b
  assay demo               train a small flow, and see where it is wrong
  assay template inputs    write example files, and the script that makes them
  cd inputs
  assay check calibration.npz -o observation.npz --report report.html

A calibration is a file of fresh simulations, which the posterior was not trained on, and
draws of the posterior at each of them:

\b
  theta     (n, m)                  parameters, drawn from the prior
  x         (n, ...)                what the simulator made of them
  theta_q   (n, m) or (n, k, m)     draws of your posterior at each x (16 are good)
  names     (m,)                    optional: names of the parameters

For a normalizing flow, z (n, m) and x are enough: its latents of theta, with a standard normal
base.

An observation is a file of what you have measured, and draws of the posterior there:

\b
  x_o       (...) or (o, ...)       one observation or many
  theta_o   (s, m) or (o, s, m)     draws of your posterior there (1000 are good)
  labels    (o,)                    optional: names of the observations

Files are .npz, a folder of .npy, .csv (columns theta.rate, theta.size, x.0, ...), .parquet, .nc,
.h5, .zarr, .pt and .safetensors. Names of sbi and sbibm (prior_samples, xs, posterior_samples,
observation, ...) are understood.

Exit codes: 0 done; 1 rejected, with --fail-on-reject; 2 bad input.
"""

CHECK = """\
Test a posterior at your observations.

Says at which of them it is rejected and what is wrong with it there, where it passed, and which
errors the test detects:

\b
  rejected      the p-value, corrected for the number of observations, is at
                most --alpha
  passed        no error found; any single parameter shifted by half a
                standard deviation, or with a width wrong by half, is
                detected with probability 0.8
  inconclusive  no error found, but such errors may stay undetected
  outside       the observation lies outside the simulated ones: nothing is
                said there

The local test looks at the parameters near an observation and at draws of the posterior at the
same x; 16 of them or more are best. theta_o serves the classifier and its pictures.

Exit codes: 0 done; 1 rejected, with --fail-on-reject; 2 bad input.
"""

app = typer.Typer(
    name="assay",
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@contextmanager
def _complaining() -> Iterator[None]:
    """Bad input is one line and exit code 2."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "assay":
            raise
        _fail(f"needs {error.name}: pip install 'assay[demo,report]'")
    except (ImportError, ValueError, TypeError, OSError) as error:
        _fail(" ".join(str(error).split()))


def _fail(message: str) -> None:
    typer.echo(f"assay: {message}", err=True)
    raise typer.Exit(2)


def _version(asked: bool) -> None:  # noqa: FBT001
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(help=HELP)
def _options(
    version: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


Report = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a report here: one HTML file that works offline."),
]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Write all numbers here as JSON; - is the terminal."
    ),
]


@app.command("check", no_args_is_help=True, help=CHECK, short_help=CHECK.splitlines()[0])
def _check(
    calibration: Annotated[
        Path, typer.Argument(metavar="CALIBRATION", help="The calibration, a file or a folder.")
    ],
    observation: Annotated[
        list[Path] | None,
        typer.Option(
            "--observation",
            "-o",
            metavar="OBS",
            help="Observations, a file or a folder; may be given more than once. Those in "
            "CALIBRATION if there is none.",
        ),
    ] = None,
    report: Report = None,
    json_: Json = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the result here, for `assay show`.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="The level of the test.")] = 0.05,
    null: Annotated[int, typer.Option(help="Null copies of the local test.")] = 199,
    quick: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--quick", help="Leave out the classifier and the map of the calibration."),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="The random seed.")] = 0,
    fail_on_reject: Annotated[  # noqa: FBT002
        bool, typer.Option("--fail-on-reject", help="Exit with 1 if q is rejected anywhere.")
    ] = False,
) -> None:
    """Tests a posterior at observations."""
    with _complaining():
        _writable(report, json_, save, calibration, *(observation or ()))
        from ..suite import Suite, check
        from .files import read

        inputs = read(calibration, observation or [])
        suite = (Suite.quick if quick else Suite)(alpha=alpha, null=null)
        typer.echo(inputs.found, err=True)
        words: dict[str, Any] = {"names": inputs.names, "labels": inputs.labels}
        result = check(inputs.calibration, x_o=inputs.draws, suite=suite, seed=seed, **words)
        result = _with_command(result)
        _leave(result, report, json_)
        if save is not None:
            result.save(save)
            _wrote(save, json_)
    if fail_on_reject and result.rejected.any():
        raise typer.Exit(1)


@app.command("show", no_args_is_help=True)
def _show(
    result: Annotated[
        Path, typer.Argument(metavar="RESULT", help="What --save or assay.save wrote.")
    ],
    report: Report = None,
    json_: Json = None,
) -> None:
    """Show a saved result again, or make its report."""
    with _complaining():
        _writable(report, json_, None, result)
        from ..io import load
        from ..suite import Check

        if not result.exists():
            raise FileNotFoundError(f"{result}: expected a file; there is none.")
        saved = load(result)
        if isinstance(saved, Check):
            _leave(saved, report, json_)
        elif report is not None or json_ is not None:
            raise TypeError(
                f"{result}: expected a saved check for --report and --json; got a saved "
                f"{type(saved).__name__}."
            )
        else:
            say(repr(saved))


@app.command("template", short_help="Write example input files and the script that makes them.")
def _template(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder to write into.")
    ] = Path(),
    force: Annotated[  # noqa: FBT002
        bool, typer.Option("--force", help="Write over files of the same names.")
    ] = False,
) -> None:
    """Write example input files, and the commented script that makes them."""
    with _complaining():
        names = ("make_inputs.py", "calibration.npz", "observation.npz")
        there = [name for name in names if (folder / name).exists()]
        if there and not force:
            raise FileExistsError(
                f"{folder}: expected no {' or '.join(names)} there; found {', '.join(there)}. Use "
                "--force to write over them."
            )
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder}: expected a folder; it is a file.")
        folder.mkdir(parents=True, exist_ok=True)
        text = resources.files(__package__).joinpath("template.txt").read_text(encoding="utf-8")
        (folder / names[0]).write_text(text, encoding="utf-8")
        runpy.run_path(str(folder / names[0]), run_name="__main__")
        for name in names:
            typer.echo(f"wrote {folder / name}")
        paths = " --observation ".join(str(folder / name) for name in names[1:])
        typer.echo(f"\nNext: assay check {paths} --report {folder / 'report.html'}")


@app.command("demo", short_help="See a flow tested where it is right and where it is wrong.")
def _demo(
    out: Annotated[Path, typer.Option(help="The folder for the demo's files.")] = Path(
        "assay-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="The random seed.")] = 0,
) -> None:
    """Train a small flow on Two Moons and test it where it is right and where it is wrong.

    Takes about a minute on two cores, and ends with a report.
    """
    with _complaining():
        out.mkdir(parents=True, exist_ok=True)
        from .demo import demo

        result = demo(seed=seed)
        say(f"{result}\n")
        for path in result.save(out):
            typer.echo(f"wrote {path}")
        typer.echo(f"\nOpen {(out / 'report.html').resolve().as_uri()}")


def _leave(result: Any, report: Path | None, json_: Path | None) -> None:
    """Prints a check, and writes what was asked for."""
    text = "" if json_ is None else json.dumps(result.record, indent=1, ensure_ascii=False)
    if str(json_) == "-":
        typer.echo(text)
    else:
        say(result.text())
        if json_ is not None:
            json_.write_text(f"{text}\n", encoding="utf-8")
            _wrote(json_, json_)
    if report is not None:
        result.report(report)
        _wrote(report, json_)


def _wrote(path: Path, json_: Path | None) -> None:
    """Says what was written; not into JSON."""
    typer.echo(f"wrote {path}", err=str(json_) == "-")


def _writable(report: Path | None, json_: Path | None, save: Path | None, *read: Path) -> None:
    """Complains of files that cannot be written, or must not be, before any work is done."""
    given = [path for path in (report, json_, save) if path is not None]
    paths = [path.resolve() for path in given if path is not json_ or str(path) != "-"]
    for path in paths:
        if path.name == "-":
            raise ValueError("-: expected a file; only --json can go to the terminal.")
        if path.is_dir():
            raise IsADirectoryError(f"{path}: expected a file to write; it is a folder.")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path}: expected a folder that exists.")
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(f"{path}: expected a folder that can be written.")
        if path in {one.resolve() for one in read}:
            raise ValueError(f"{path}: expected another file than one that is read.")
    if len(set(paths)) < len(paths):
        raise ValueError("--report, --json, --save: expected different files; got one twice.")


def _with_command(result: Any) -> Any:
    """The same check with the command that makes it again."""
    words = [Path(sys.argv[0]).name or "assay", *sys.argv[1:]]
    return replace(result, settings={**result.settings, "call": shlex.join(words)})


def main() -> None:
    """Runs the command line."""
    app(prog_name="assay")
