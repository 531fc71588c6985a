"""A notebook as a pair: percent text, which is edited and reviewed, and the `.ipynb` with outputs, which people open.

`python -m notebooks.pairs` runs all (or those named) and writes the `.ipynb`. What it keeps of the outputs is the same
on every run: times and addresses become dots. A cell tagged `machine` shows what another processor shows otherwise.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MOST_SECONDS = 120
# The same loops on every machine that has AVX2; plots as Jupyter makes them in this folder.
SETTING = {"TEDSL_HOST": "x86-64-v3", "TEDSL_NUM_THREADS": "2", "MATPLOTLIBRC": str(HERE / "matplotlibrc")}
CHANGING = (
    (re.compile(r"\b0x[0-9a-f]{6,}"), "0x…"),
    (re.compile(r'( ?) *(?<![".\d])\d+(?:\.\d+)?(?=(?: |&#8239;)?(?:ns|us|µs|ms|s|GFLOP/s|GB/s|GiB/s)\b)'), r"\1…"),
    (re.compile(r"/(?:tmp|root|home)/[\w./-]+"), "…"),
)


def notebooks() -> list[Path]:
    """The texts of all notebooks, in order."""
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


def read(path: Path) -> Any:
    """The notebook of a percent file, without outputs; cells are named by their place."""
    import jupytext

    made = jupytext.read(path, fmt="py:percent")
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made.metadata = type(made.metadata)(kernelspec=kernel, language_info={"name": "python"})
    for k, cell in enumerate(made.cells):
        cell["id"] = f"cell-{k}"
    return made


def missing(path: Path) -> list[str]:
    """The modules that the notebook imports and this environment has not."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return sorted(name for name in names if importlib.util.find_spec(name) is None)


def execute(path: Path) -> Any:
    """The notebook after a run through Jupyter, with the outputs that are kept."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    made = read(path)
    folder = {"metadata": {"path": str(HERE.parent)}}
    with tempfile.TemporaryDirectory() as sockets:  # of this run alone
        ways = {"transport": "ipc", "ip": f"{sockets}/kernel"} if os.name == "posix" else {}
        NotebookClient(made, timeout=MOST_SECONDS, resources=folder, config=Config(KernelManager=ways)).execute(
            env={**os.environ, **SETTING}
        )
    for cell in made.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            shown = (output for output in cell.outputs if output.get("name") != "stderr")  # bars of progress
            cell.outputs = [_kept(output) for output in _joined(shown)]
    return made


def _joined(outputs: Iterable[Any]) -> Iterator[Any]:
    """Pieces of one stream as one; how a kernel sends them is chance."""
    last = None
    for output in outputs:
        if last is not None and output.output_type == "stream" == last.output_type and output.name == last.name:
            last.text += output.text
            continue
        if last is not None:
            yield last
        last = output
    if last is not None:
        yield last


def _kept(output: Any) -> Any:
    if output.output_type == "stream":
        output.text = steady(output.text)
    for kind, value in output.get("data", {}).items():
        if isinstance(value, str) and kind.startswith("text/"):
            output.data[kind] = steady(value)
    output.get("metadata", {}).pop("needs_background", None)  # plots have one
    return output


def steady(text: str) -> str:
    """A text with dots for what changes from run to run."""
    for pattern, dots in CHANGING:
        text = pattern.sub(dots, text)
    return text


def stored(path: Path) -> Any:
    """The `.ipynb` beside the text."""
    import nbformat

    return nbformat.read(path.with_suffix(".ipynb"), as_version=4)


def differences(old: Any, new: Any) -> list[str]:
    """What a reader of `old` would not see in `new`: other cells, kinds of outputs, or texts of them.

    Pictures are compared by being there, and so are the outputs of cells tagged `machine`.
    """
    told = []
    for k, (a, b) in enumerate(zip(old.cells, new.cells, strict=False)):
        if (a.cell_type, a.source) != (b.cell_type, b.source):
            told += [f"cell {k} is another one:", *difflib.unified_diff(a.source.split("\n"), b.source.split("\n"))]
            break
        if a.cell_type == "code" and "machine" not in a.metadata.get("tags", ()):
            told += difflib.unified_diff(_texts(a), _texts(b), f"cell {k}, stored", f"cell {k}, now", lineterm="")
    if len(old.cells) != len(new.cells):
        told.append(f"{len(old.cells)} cells are stored, there are {len(new.cells)}")
    return told


def _texts(cell: Any) -> list[str]:
    """What a cell shows, line by line."""
    lines = []
    for output in cell.outputs:
        data = {"text/plain": output.text} if output.output_type == "stream" else output.get("data", {})
        lines.append(" ".join(sorted(data)))
        if "image/png" not in data:
            lines += str(data.get("text/plain", "")).splitlines()
    return lines


def main(names: list[str]) -> int:
    """Run notebooks and write their `.ipynb`; 1 if one took too long."""
    import nbformat

    late = 0
    for path in notebooks():
        if names and not any(path.stem.startswith(n) for n in names):
            continue
        if lacking := missing(path):
            print(f"{path.stem:40} skipped: {', '.join(lacking)} not installed", flush=True)
            continue
        start = time.perf_counter()
        made = execute(path)
        took = time.perf_counter() - start
        nbformat.write(made, path.with_suffix(".ipynb"))
        late += took > MOST_SECONDS
        print(f"{path.stem:40} {took:6.1f} s {path.with_suffix('.ipynb').stat().st_size // 1024:6} kB", flush=True)
    return int(late > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
