"""The environment of the templates: text becomes a page, and can never become markup of it.

Whatever is printed is escaped, and a value that is missing is an error. In a template a line break
beside a tag of HTML or of Jinja is nothing, and any other is a space.
"""

import re
from importlib import import_module, resources
from typing import Any

from .._support.inputs import printable
from ..printing import equals, probability

BESIDE_A_TAG = re.compile(r"(?:(?<=>)|(?<=%\}))\s*\n\s*|\s*\n\s*(?=<|\{%)")


def environment() -> Any:
    """What renders the templates of this package."""
    jinja = required("jinja2", "which fills the page")

    def template(name: str) -> str:
        source = BESIDE_A_TAG.sub("", read(f"templates/{name}").strip())
        return re.sub(r"\s*\n\s*", " ", source)

    def finalize(value: Any) -> Any:  # anything but markup becomes text that HTML allows
        return value if hasattr(value, "__html__") else printable(str(value))

    options = {"autoescape": True, "undefined": jinja.StrictUndefined, "finalize": finalize}
    strict = jinja.Environment(loader=jinja.FunctionLoader(template), **options)
    strict.filters |= {"probability": probability, "equals": equals}
    return strict


def required(module: str, what: str) -> Any:
    """A module that only a report needs, for what; its name begins with that of the package."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"report: expected the package {module.split('.')[0]}, {what}; got none. Install it "
            "by pip install 'assay[report]'."
        ) from error


def read(name: str) -> str:
    """A file of this package, with the line ends that a browser makes of them."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")
