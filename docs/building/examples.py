"""The examples of the reference: one for every public name, kept in `docs/examples`, run in the order of their files.

A cell is headed by what it is an example of, `# %% te.compute te.sum`; cells without a name set the scene.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import functools
import io
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from docs.building.widths import class_of_plot

FOLDER = Path(__file__).resolve().parents[1] / "examples"
PICTURED = ("display",)  # files whose examples are shown as notebooks show them
PLOTS = FOLDER.parents[1] / "notebooks" / "matplotlibrc"  # on light and on dark


@dataclass(frozen=True)
class Example:
    """Code that shows what `names` do, and what it prints; `page` is what a notebook shows of its last value."""

    names: tuple[str, ...]
    code: str
    printed: str
    page: str = ""


def files() -> list[Path]:
    """Each a program of its own."""
    return sorted(FOLDER.glob("*.py"))


def cells(path: Path) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """Names, code and first line of the cells of a file."""
    text = path.read_text()
    heads = [*re.finditer(r"^# %%(.*)\n", text, re.MULTILINE)]
    for head, end in zip(heads, [*(h.start() for h in heads[1:]), len(text)], strict=True):
        code = text[head.end() : end].strip("\n")
        yield tuple(head[1].split()), code, text[: head.end()].count("\n") + 1


def run(path: Path) -> list[Example]:
    """The examples of a file; an error of one points at its line.

    Each knows what the cells without a name have made and nothing of the others: a page shows it without them.
    """
    scene: dict[str, Any] = {"__name__": f"examples_{path.stem}"}
    with _plots() if path.stem in PICTURED else contextlib.nullcontext():
        return [
            Example(names, code, *_shown(path, code, line, dict(scene) if names else scene))
            for names, code, line in cells(path)
        ]


def _plots() -> contextlib.AbstractContextManager[None]:
    import matplotlib as mpl

    return mpl.rc_context(fname=PLOTS)


def _shown(path: Path, code: str, line: int, space: dict[str, Any]) -> tuple[str, str]:
    """What the cell prints; the value of its last expression too, as in a notebook, and the page that it has there."""
    tree = ast.parse(code)
    ast.increment_lineno(tree, line - 1)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    file, page = f"docs/examples/{path.name}", ""
    with contextlib.redirect_stdout(io.StringIO()) as out, np.printoptions(precision=4, suppress=True):
        exec(compile(tree, file, "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), file, "eval"), space)
            if path.stem in PICTURED:
                page = _page(value)
            if value is not None and not page:
                print(value if isinstance(value, str) else repr(value))
    return out.getvalue().rstrip(), page


def _page(value: Any) -> str:
    """What a notebook shows of a value, as HTML: a plot, or the page that it has; else nothing."""
    if (figure := getattr(value, "figure", None)) is not None:
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=100, bbox_inches="tight")
        png = file.getvalue()
        size = class_of_plot(int.from_bytes(png[16:20], "big"))  # the width stands in the header
        data = base64.b64encode(png).decode()
        return f'<div class="plot"><img class="{" ".join(size)}" alt="plot" src="data:image/png;base64,{data}"></div>'
    return value._repr_html_() if hasattr(value, "_repr_html_") else ""


def scenes(names: Collection[str]) -> list[tuple[str, list[str]]]:
    """What the examples of these names begin with, the first cell of each of their files, and which they are."""
    found, left = [], set(names)
    for path in files():
        listed = [*cells(path)]
        own = [name for told, _, _ in listed for name in told if name in left]
        if own and not listed[0][0]:
            shown = [code for told, code, _ in listed if not left.isdisjoint(told)]
            found.append((_with_used_imports(listed[0][1], shown), own))
        left.difference_update(own)
    return found


def _with_used_imports(scene: str, shown: list[str]) -> str:
    """The scene without imports of names that neither it nor the examples shown below it have."""
    used = {n.id for code in (scene, *shown) for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name)}
    lines = scene.split("\n")
    for node in reversed(ast.parse(scene).body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound = {alias.asname or alias.name.split(".")[0] for alias in node.names}
            if bound.isdisjoint(used):
                del lines[node.lineno - 1 : node.end_lineno]
    return re.sub(r"\n{3,}(?=(import|from) )", "\n\n", "\n".join(lines).strip("\n"))


@functools.cache
def by_name(executed: bool = True) -> dict[str, Example]:
    """The example of each name, the first that there is; without what it prints if it is not to be `executed`."""
    found: dict[str, Example] = {}
    for path in files():
        for example in run(path) if executed else (Example(names, code, "") for names, code, _ in cells(path)):
            for name in example.names:
                found.setdefault(name, example)
    return found
