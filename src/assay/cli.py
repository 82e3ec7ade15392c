"""The command line."""

import sys
from pathlib import Path
from typing import Annotated

try:
    import typer
except ModuleNotFoundError:
    sys.exit("The command line needs typer: pip install 'assay[cli]'")

from .version import __version__

__all__ = ["main"]

app = typer.Typer(
    name="assay",
    help="Can you trust your posterior at the observation you have?",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:  # noqa: FBT001
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: FBT002
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Can you trust your posterior at the observation you have?"""


@app.command("demo")
def _demo(
    out: Annotated[Path, typer.Option(help="The folder for the demo's files.")] = Path(
        "assay-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="The seed of everything.")] = 0,
) -> None:
    """Train a small flow on Two Moons and test it where it is right and where it is wrong.

    Takes about a minute on two cores.
    """
    try:
        from .demo import demo
    except ModuleNotFoundError as error:
        typer.echo(f"assay demo needs {error.name}: pip install 'assay[demo]'", err=True)
        raise typer.Exit(2) from error
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        typer.echo(f"--out: expected a folder that can be written; got {out} ({error}).", err=True)
        raise typer.Exit(2) from error
    found = demo(seed=seed)
    typer.echo(f"\n{found}\n")
    typer.echo("lost mass: share of the true posterior where the flow was never trained")
    typer.echo("H0: q is the true posterior at almost every x, seen through x_o\n")
    for path in found.save(out):
        typer.echo(f"wrote {path}")


def main() -> None:
    """Runs the command line."""
    app()
