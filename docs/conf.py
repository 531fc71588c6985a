"""Sphinx: `make docs` writes the site to build/docs, with every example run and what it prints below it."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
COLUMNS = 103  # letters of code in a line of a page
SHORT_NAME, LONG_NAME = 12, 40  # letters of a name in a table: whole on every screen, broken on every screen
SHORT_CODE = 16  # letters of code in prose that stay in one line
NESTED = 95  # letters of a line below an entry of the reference
DENSE = 15  # letters more that fit a line in small letters
MANY, SEVERAL = 9, 3  # columns from which a table is set in small letters: on every screen, on a phone
SHOWN: dict[tuple[str, str], str] = {}  # page and example -> the first entry that it stands below
sys.path.insert(0, str(HERE.parent))
os.environ["MATPLOTLIBRC"] = str(HERE.parent / "notebooks" / "matplotlibrc")  # plots as in notebooks

from docutils import nodes  # noqa: E402
from sphinx import addnodes  # noqa: E402

import tedsl  # noqa: E402, of this clone
from docs.building import examples, plots, reference, results, widths  # noqa: E402

project = "tedsl"
author = "the tedsl developers"
copyright = "the tedsl developers"
version = release = tedsl.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["examples", "building", "templates"]
templates_path = ["templates"]
nitpicky = False

# Pages are Markdown whose Python examples are cells; notebooks come with their outputs and are not run again.
nb_custom_formats = {".md": "docs.building.pages.as_notebook"}
nb_execution_mode = "auto"
nb_execution_excludepatterns = ["notebooks/*"]
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # bars of progress
myst_enable_extensions = ["colon_fence", "html_image"]
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type"]

default_role = "literal"
smartquotes = False  # prose has code in it: "NHWC" is a text of Python
autodoc_member_order = "bysource"
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 200

html_theme = "furo"
html_title = "tedsl"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = ">>> "


def _example(app: Any, kind: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """The docstring as Sphinx reads it, and the example of the name below."""
    reference.documented(name, value)
    lines[:] = reference.as_rst(lines)
    if fields := results.fields(value) if name in results.SHORT else []:
        lines += [f"Fields: {', '.join(f'``{field}``' for field in fields)}.", ""]
    run, key = app.config.nb_execution_mode != "off", reference.key_of(name)
    if found := examples.by_name(run).get(key):
        first = SHOWN.setdefault((app.env.docname, found.code), name)
        shown = (found.code, found.printed, found.page)
        lines += reference.example_as_rst(*shown) if first == name else reference.as_before(first)


def _signature(
    app: Any, kind: str, name: str, value: object, options: Any, given: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """None for classes that nobody calls."""
    return ("", None) if name in results.SHORT or reference.is_made_elsewhere(value) else (given, result)


def _widths(app: Any, doctree: Any, page: str) -> None:
    """Makes fit what is wider than the page: outputs with long lines, tables of many columns, long names in tables.

    Short code is not broken: browsers end a line within `"n m"` and behind each hyphen of `--examples`.
    """
    for code in doctree.findall(nodes.literal):
        in_table = isinstance(code.parent.parent, nodes.entry)
        code["classes"] += ["whole"] if len(code.astext()) < SHORT_CODE and not in_table else []
    most = NESTED if page.startswith("made/reference") else COLUMNS
    for block in doctree.findall(nodes.literal_block):
        lines = block.astext().rstrip("\n").split("\n")
        widest = max(map(len, lines)) if "output" in block["classes"] else 0
        if "output" in block["classes"] and len(lines) == 1:
            block["classes"].append("one-line")
        elif most < widest <= most + DENSE:
            block["classes"].append("dense")
        elif widest > most:
            block.rawsource = "\n".join(part for line in lines for part in _broken(line, most))
            block[:] = [nodes.Text(block.rawsource)]
    for table in doctree.findall(nodes.tgroup):
        if table["cols"] >= SEVERAL:
            table.parent["classes"] += ["several", "many"] if table["cols"] >= MANY else ["several"]
    for entry in doctree.findall(nodes.entry):
        for name in list(entry.findall(nodes.literal)):
            _break_between_words(name)
        for told in list(entry.findall(nodes.paragraph)):
            _break_long_names(told)


def _broken(line: str, most: int) -> list[str]:
    """A line of an output, in parts that fit the page: columns above it and below stay columns."""
    indent = line[: len(line) - len(line.lstrip())] + "    "
    parts = textwrap.wrap(line, most, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return parts if len(line) > most else [line]


def _break_between_words(name: Any) -> None:
    """Lets code in a table go on in another line after a mark; long names on every screen, others on a phone."""
    text, marks = name.astext(), "/_:.,(="
    if len(text) < SHORT_NAME:
        name["classes"].append("short")
        return
    if len(text) > LONG_NAME and "::" in text:
        name["classes"].append("long")
        marks = "/_:"
    name.clear()
    name += _with_breaks(text, marks)


def _break_long_names(told: Any) -> None:
    """The same for names with underscores in the prose of a table."""
    for text in [part for part in told.children if isinstance(part, nodes.Text) and "_" in part]:
        told.replace(text, _with_breaks(text.astext(), "_"))


def _with_breaks(text: str, marks: str) -> list[Any]:
    first, *others = widths.words(text, marks)
    parts: list[Any] = [nodes.Text(first)]
    for word in others:
        parts += [nodes.raw("", "<wbr>", format="html"), nodes.Text(word)]
    return parts


def _plots(app: Any, doctree: Any, page: str) -> None:
    """Marks plots that are much wider than a phone, and those that dark mode inverts; says what they are."""
    for image in doctree.findall(nodes.image):
        path = HERE / image["uri"]
        if "jupyter_execute" in path.parts and path.exists():
            from PIL import Image  # matplotlib made the plot, and needs it

            plot = Image.open(path)
            image["alt"] = "plot"
            image["classes"] += widths.class_of_plot(plot.width)
            image["classes"] += ["lines"] if plots.is_drawn(plot) else []


def _callables(app: Any, doctree: Any, page: str) -> None:
    """Functions of axes are written as such: type checkers choose among more forms than a reader needs.

    Those of any arguments are `Callable[..., T]`, as Python writes them; Sphinx has a list of `...`.
    """
    for told in [*doctree.findall(addnodes.desc_parameter), *doctree.findall(addnodes.desc_returns)]:
        text = "".join(part.astext() for part in told.children)  # that of what is returned has an arrow by itself
        if (meant := text.replace("OfAxes[", "Callable[..., ").replace("Callable[[...],", "Callable[...,")) != text:
            told.clear()
            told += nodes.Text(meant)


def setup(app: Any) -> None:
    made = HERE / "made"
    reference.write(made / "reference")
    (made / "notebooks").mkdir(exist_ok=True)
    for path in sorted((HERE.parent / "notebooks").glob("*.ipynb")):
        shutil.copyfile(path, made / "notebooks" / path.name)
    app.connect("autodoc-process-docstring", _example)
    app.connect("autodoc-process-signature", _signature)
    app.connect("doctree-resolved", _widths)
    app.connect("doctree-resolved", _callables)
    app.connect("doctree-resolved", _plots)
