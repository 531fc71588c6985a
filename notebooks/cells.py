"""Notebooks as percent files: their cells, a run of them in this process, and the `.ipynb` that Jupyter opens.

A notebook is kept as Python: it can be read, compared and linted, and it holds no outputs. `python -m notebooks.cells`
runs all (or those named) through Jupyter and writes pages with their outputs to `build/notebooks`.
"""

from __future__ import annotations

import ast
import importlib.util
import linecache
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MOST_SECONDS = 120


@dataclass(frozen=True)
class Cell:
    """One cell: `markdown` or `code`, its text, and the line on which it begins."""

    kind: str
    text: str
    line: int


def notebooks() -> list[Path]:
    """All notebooks in order."""
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


def cells(path: Path) -> Iterator[Cell]:
    """The cells of a percent file; those of comments are prose."""
    kind, lines, start = "", [], 0
    for number, line in enumerate([*path.read_text().splitlines(), "# %%"], 1):
        if not line.startswith("# %%"):
            lines.append(line)
            continue
        text = "\n".join(lines).strip("\n")
        if kind and text:
            yield Cell(kind, _prose(text) if kind == "markdown" else text, start)
        kind, lines, start = ("markdown" if "[markdown]" in line else "code"), [], number + 1


def _prose(text: str) -> str:
    return "\n".join(line[2:] if line.startswith("# ") else line.removeprefix("#") for line in text.splitlines())


def missing(path: Path) -> list[str]:
    """The modules that the notebook imports and this environment has not."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return sorted(name for name in names if importlib.util.find_spec(name) is None)


def run(path: Path) -> list[Any]:
    """Run the cells in one namespace; the values of their last expressions, each of which is also shown."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    source = path.read_text()
    name = f"<notebook {path.name}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}  # as in Jupyter
    shown: list[Any] = []
    for cell in cells(path):
        if cell.kind != "code":
            continue
        tree = ast.parse(cell.text)
        ast.increment_lineno(tree, cell.line - 1)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), space)
            shown.append(value)
            if hasattr(value, "_repr_html_"):
                value._repr_html_()
        plt.close("all")
    return shown


def as_notebook(path: Path) -> Any:
    """The notebook in Jupyter's format, without outputs."""
    import nbformat.v4 as v4

    made = []
    for k, cell in enumerate(cells(path)):
        new = v4.new_markdown_cell if cell.kind == "markdown" else v4.new_code_cell
        made.append(new(cell.text, id=f"cell-{k}"))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return v4.new_notebook(cells=made, metadata={"kernelspec": kernel})


def execute(path: Path, folder: Path) -> float:
    """Run a notebook through Jupyter and write it, with its outputs, as `.ipynb` and as a page; the seconds it took."""
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    made = as_notebook(path)
    start = time.perf_counter()
    NotebookClient(made, timeout=MOST_SECONDS, resources={"metadata": {"path": str(HERE.parent)}}).execute()
    took = time.perf_counter() - start
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{path.stem}.ipynb").write_text(nbformat.writes(made))
    (folder / f"{path.stem}.html").write_text(HTMLExporter().from_notebook_node(made)[0])
    return took


def main(names: list[str]) -> int:
    late = 0
    for path in notebooks():
        if names and not any(path.stem.startswith(n) for n in names):
            continue
        if lacking := missing(path):
            print(f"{path.stem:40} skipped: {', '.join(lacking)} not installed", flush=True)
            continue
        took = execute(path, HERE.parent / "build" / "notebooks")
        late += took > MOST_SECONDS
        print(f"{path.stem:40} {took:6.1f} s", flush=True)
    return int(late > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
