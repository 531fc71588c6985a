"""A page of Markdown as a notebook: its Python examples are cells, so that the site shows what each of them prints.

The page itself stays plain Markdown, as a code-hosting site renders it: links to notebooks lead to those of the clone
there, and to their pages on the site.
"""

from __future__ import annotations

import ast
import re
from typing import Any

EXAMPLE = re.compile(r"^```python\n(.*?)^```\n?", re.DOTALL | re.MULTILINE)


def examples(text: str) -> list[ast.Module]:
    """The Python examples of a page, each with the lines that it has there."""
    found = []
    for match in EXAMPLE.finditer(text):
        tree = ast.parse(match[1])
        ast.increment_lineno(tree, text[: match.start(1)].count("\n"))
        found.append(tree)
    return found


def as_notebook(text: str) -> Any:
    """The page as a notebook without outputs; what runs it is `myst_nb`, when the site is built."""
    import nbformat.v4 as v4

    parts = EXAMPLE.split(text.replace("](../notebooks/", "](made/notebooks/"))  # prose, example, prose, ..., prose
    cells = [(v4.new_code_cell if k % 2 else v4.new_markdown_cell)(part.rstrip()) for k, part in enumerate(parts)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return v4.new_notebook(cells=[c for c in cells if c.source], metadata={"kernelspec": kernel})
