"""Prints the lowest versions that pyproject.toml allows, but of torch, as constraints for pip."""

import re
import tomllib
from pathlib import Path

EXTRAS = "plots", "cli", "report", "files", "zuko"

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
given = [project["dependencies"], *(project["optional-dependencies"][name] for name in EXTRAS)]
for requirement in (each for part in given for each in part if not each.startswith("torch")):
    name, version = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement).groups()
    print(f"{name}=={version}")  # noqa: T201
