"""Sphinx settings of the documentation: `make docs` builds it into docs/_build/html."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sphinx.util.logging import getLogger

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
sys.path.insert(0, str(DOCS.parent / "src"))

from docstrings import as_restructured_text  # noqa: E402

from whatwhere import __version__  # noqa: E402
from whatwhere.spec.checks import without_ranges  # noqa: E402

MOST_SECONDS = 60  # of an example of the gallery

project = "whatwhere"
copyright = "the whatwhere contributors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_gallery.gen_gallery", "mathml"]
exclude_patterns = [
    "_build",
    "README.md",
    "gallery/**/*.ipynb",
    "gallery/*.py",
    "gallery/GALLERY_HEADER.rst",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
default_role = "py:obj"  # `name` in a docstring links to the name where there is a page of it
suppress_warnings = ["config.cache"]  # functions in the gallery's settings

myst_heading_anchors = 3
smartquotes_action = "qe"  # quotes and ellipses; options such as --shard keep their two dashes
myst_enable_extensions = ["colon_fence", "dollarmath"]
html_math_renderer = "mathml"

autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
autodoc_class_signature = "mixed"
autodoc_docstring_signature = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
# `fit()`, not `DeconvNetFeatures.fit()`, which does not fit the side bar
toc_object_entries_show_parents = "hide"

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "show_memory": False,
    "remove_config_comments": True,
    "capture_repr": ("_repr_html_",),
    "min_reported_time": 0,
    "show_signature": False,
    "image_scrapers": ("gallery_figures",),
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("matplotlib",),
    "abort_on_example_error": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"whatwhere {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "whatwhere"},
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "navbar_persistent": ["search-button"],
    "show_prev_next": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "start": [], "changelog": [], "gallery/index": []}


def convert_docstring(
    app: object, kind: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Docstrings are written for reading in the source; the site shows their parameters as
    a list."""
    lines[:] = as_restructured_text("\n".join(lines), value).splitlines()


def check_running_times(app: object, exception: Exception | None) -> None:
    """An example of the gallery takes at most a minute; a longer one is a warning, and with -W an
    error."""
    for file in sorted((DOCS / "gallery").glob("*.cost.json")):
        seconds = json.loads(file.read_text(encoding="utf-8"))["time"]
        if seconds > MOST_SECONDS:
            getLogger(__name__).warning(
                "%s took %.0f s; at most %d", file.name, seconds, MOST_SECONDS
            )


def skip_routing(
    app: object, what: str, name: str, obj: object, skip: bool, options: object
) -> bool:
    """Leave out `set_fit_request` and the like, which scikit-learn adds with links into its own
    pages."""
    return skip or (name.startswith("set_") and name.endswith("_request"))


def show_plain_types(app: object, obj: object, bound_method: bool) -> None:
    """In signatures, types are shown without their ranges."""
    annotations = getattr(obj, "__annotations__", {})
    for name, hint in annotations.items():
        annotations[name] = without_ranges(hint)


def setup(app: object) -> None:
    app.connect("autodoc-before-process-signature", show_plain_types)  # type: ignore[attr-defined]
    app.connect("autodoc-process-docstring", convert_docstring)  # type: ignore[attr-defined]
    app.connect("build-finished", check_running_times)  # type: ignore[attr-defined]
    app.connect("autodoc-skip-member", skip_routing)  # type: ignore[attr-defined]
