"""The command line: ``assay check``, ``show``, ``template`` and ``demo``.

Files of named arrays come in; a verdict, a report, JSON and an exit code come out. The work is
done by :func:`assay.check`, which is imported when a command runs, so that ``--help`` is quick.
"""

import json
import os
import runpy
import shlex
import sys
import traceback
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

from .terminal import echo

CODES = """\
Exit codes: 0 done; 1 rejected, with --fail-on-reject; 2 bad input, or a file that cannot be
written; 3 an error of assay; 130 interrupted.
"""
# A line with \b keeps the lines of a paragraph as they are.
HELP = f"""\
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

{CODES}"""

CHECK = f"""\
Test a posterior at your observations.

Says at which of them it is rejected and what is wrong with it there, where it passed, and how far
off it can be:

\b
  rejected      an exact test rejects it near the observation, corrected for
                the number of observations, at level --alpha
  passed        not rejected, and every mean is right within --tolerance
                standard deviations, every width within a factor of one and
                so much, with a probability of 95 %
  inconclusive  not rejected, but it may be farther off
  outside       the observation is unlike the simulations: nothing is said
                of the posterior there

16 draws of the posterior at each x are good. theta_o serves the classifier and its pictures.

{CODES}"""

app = typer.Typer(
    name="assay",
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Bad input is one line and exit code 2; what assay did not expect is a traceback, and 3."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as error:
        message, code = str(error), 2
        missing = getattr(error, "name", None) or ""
        if isinstance(error, ModuleNotFoundError) and missing:
            message = f"needs {missing}: pip install 'assay[demo,report]'"
        refused = isinstance(error, ValueError | TypeError) and "expected" in message
        other_library = isinstance(error, ImportError) and missing.split(".")[0] != "assay"
        if not (refused or other_library or isinstance(error, OSError)):
            echo(traceback.format_exc(), err=True)
            message, code = f"this is an error of assay; please report it: {error!r}", 3
        echo(f"assay: {' '.join(message.split())}", err=True)
        raise typer.Exit(code) from None


@app.callback(help=HELP, invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,  # noqa: FBT002
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


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
OBSERVATIONS = """\
Observations, a file or a folder; may be given more than once. Those in CALIBRATION if there is
none."""


@app.command("check", no_args_is_help=True, help=CHECK, short_help=CHECK.splitlines()[0])
def _check(
    calibration: Annotated[
        Path, typer.Argument(metavar="CALIBRATION", help="The calibration, a file or a folder.")
    ],
    observation: Annotated[
        list[Path] | None, typer.Option("--observation", "-o", metavar="OBS", help=OBSERVATIONS)
    ] = None,
    report: Report = None,
    json_: Json = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the result here, for `assay show`.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="The level of the test.")] = 0.05,
    tolerance: Annotated[
        float, typer.Option(help="How far off a posterior may be that passes.")
    ] = 0.5,
    nulls: Annotated[int, typer.Option(help="Relabelled copies of the test.")] = 199,
    names: Annotated[
        str | None, typer.Option(help="Names of the parameters, separated by commas.")
    ] = None,
    quick: Annotated[  # noqa: FBT002
        bool, typer.Option("--quick", help="Leave out the classifier and its pictures.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="The random seed.")] = 0,
    fail_on_reject: Annotated[  # noqa: FBT002
        bool, typer.Option("--fail-on-reject", help="Exit with 1 if q is rejected anywhere.")
    ] = False,
) -> None:
    """Tests a posterior at observations."""
    with _exit_codes():
        _check_outputs(report, json_, save, {calibration, *(observation or ())})
        from ..check import check
        from .files import read

        inputs = read(calibration, observation or [])
        echo(inputs.found, err=True)
        options: dict[str, Any] = {"classifier": None} if quick else {}
        result = check(
            inputs.calibration,
            x_o=inputs.draws,
            names=inputs.names if names is None else [name.strip() for name in names.split(",")],
            labels=inputs.labels,
            alpha=alpha,
            tolerance=tolerance,
            nulls=nulls,
            seed=seed,
            **options,
        )
        # The result keeps the command that makes it again.
        call = shlex.join([Path(sys.argv[0]).name or "assay", *sys.argv[1:]])
        result = replace(result, settings={**result.settings, "call": call})
        _write(result, report, json_, save)
    if fail_on_reject and "rejected" in result.verdicts:
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
    with _exit_codes():
        _check_outputs(report, json_, None, {result})
        from ..check import Check
        from ..io import load

        if not result.exists():
            raise FileNotFoundError(f"{result}: expected a file; there is none.")
        saved = load(result)
        if isinstance(saved, Check):
            _write(saved, report, json_)
        elif report is not None or json_ is not None:
            raise TypeError(
                f"{result}: expected a saved check for --report and --json; got a saved "
                f"{type(saved).__name__}."
            )
        else:
            echo(repr(saved), colours=True)


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
    with _exit_codes():
        paths = [folder / n for n in ("make_inputs.py", "calibration.npz", "observation.npz")]
        there = [path.name for path in paths if path.exists()]
        if there and not force:
            raise FileExistsError(
                f"{folder}: expected no {' or '.join(path.name for path in paths)} there; found "
                f"{', '.join(there)}. Use --force to write over them."
            )
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder}: expected a folder; it is a file.")
        folder.mkdir(parents=True, exist_ok=True)
        text = resources.files(__package__).joinpath("template.txt").read_text(encoding="utf-8")
        script, calibration, observation = paths
        script.write_text(text, encoding="utf-8")
        runpy.run_path(str(script), run_name="__main__")
        for path in paths:
            echo(f"wrote {path}")
        report = folder / "report.html"
        echo(f"\nNext: assay check {calibration} --observation {observation} --report {report}")


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
    with _exit_codes():
        out.mkdir(parents=True, exist_ok=True)
        from .._support.files import atomic_write
        from ..check import check
        from .demo import TRUE, demo_inputs

        result = check(**demo_inputs(seed=seed))
        table, saved, report = (out / n for n in ("table.txt", "check.npz", "report.html"))
        with atomic_write(table) as file:
            file.write(f"{result}\n\n{TRUE}\n".encode())
        result.save(saved)
        result.report(report)
        echo(f"{result}\n\n{TRUE}\n", colours=True)
        for path in (table, saved, report):
            echo(f"wrote {path}")
        echo(f"\nOpen {report.resolve().as_uri()}")


def _write(result: Any, report: Path | None, json_: Path | None, save: Path | None = None) -> None:
    """Writes what was asked for, and prints a check last, since a reader of a pipe may be gone."""
    from .._support.files import atomic_write

    text = "" if json_ is None else json.dumps(result.record, indent=1, ensure_ascii=False)
    plain = str(json_) == "-"
    if json_ is not None and not plain:
        with atomic_write(json_) as file:
            file.write(f"{text}\n".encode())
    if report is not None:
        result.report(report)
    if save is not None:
        result.save(save)
    echo(text if plain else result.text(), colours=not plain)
    for path in (json_, report, save):
        if path is not None and str(path) != "-":
            echo(f"wrote {path}", err=plain)


def _check_outputs(
    report: Path | None, json_: Path | None, save: Path | None, read: set[Path]
) -> None:
    """Refuses files that cannot be written, or must not be, before any work is done."""
    given = (report, None if str(json_) == "-" else json_, save)
    files = [path for path in given if path is not None]
    for path in files:
        if path.is_dir():
            raise IsADirectoryError(f"{path}: expected a file to write; it is a folder.")
    # Devices and pipes are written to as they are.
    paths = [path.resolve() for path in files if path.is_file() or not path.exists()]
    for path in paths:
        if path.name == "-":
            raise ValueError("-: expected a file; only --json can go to the terminal.")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path}: expected a folder that exists.")
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(f"{path}: expected a folder that can be written.")
        if path in {one.resolve() for one in read}:
            raise ValueError(f"{path}: expected another file than one that is read.")
    if len(set(paths)) < len(paths):
        raise ValueError("--report, --json, --save: expected different files; got one twice.")


def main() -> None:
    """Runs the command line."""
    app(prog_name="assay")
