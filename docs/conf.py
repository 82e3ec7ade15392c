"""How Sphinx makes the site of these pages; ``make docs`` runs it."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
# Cells call the command line, and print as wide as a terminal is.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ |= {"COLUMNS": "88", "NO_COLOR": "1", "KERAS_BACKEND": "jax"}

import assay  # noqa: E402

project, author = "assay", "The assay authors"
project_copyright = "The assay authors, MIT licence"
version = release = assay.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "links",
]
exclude_patterns = ["_build", "_ext", "pictures.py"]
suppress_warnings = ["config.cache"]
html_theme = "furo"
html_title = "assay"
html_static_path = ["_static", "pictures"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
html_math_renderer = "mathml"
pygments_style, pygments_dark_style = "friendly", "monokai"

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
# Tables of 30 rows and more are read by people: nothing is numbered.
numfig = False

# Pages with cells are run when the site is made, and an error there is an error here.
nb_execution_mode = os.environ.get("ASSAY_DOCS_RUN", "cache")
nb_execution_timeout = 1800
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"
# Pictures are drawn at twice their size, for screens with fine pixels.
nb_render_image_options = {"class": "figure"}

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_use_rtype = False
copybutton_exclude = ".linenos, .gp, .go"
