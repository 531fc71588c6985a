"""What `mypy --strict` tells the users of the public API."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BEGINNING = """
import numpy as np
import tedsl as te

A = te.placeholder((64, 48), name="A")
B = te.placeholder((48, 32), name="B")
loss = (A @ B).sum()
a = np.ones((64, 48), "float32")
k = te.reduce_axis(48)
s = te.Schedule(loss)


def doubled(i: te.Axis, j: te.Axis) -> te.Expr:
    return 2 * A[i, j]


def lookup(table: te.Tensor, rows: te.Tensor) -> te.Tensor:
    return te.compute((rows.shape[0], table.shape[1]), lambda i, j: te.exp(table[rows[i], j]) + 1)


def total(x: te.Tensor) -> te.Tensor:
    return (te.relu(x) + x[0] * x[:, 0].mean()).sum()


"""

TYPES = {
    "te.compute((3, 4), lambda i, j: A[i, j] * 2 + 1)": "Tensor",
    "te.compute(lambda i, j: te.sum(lambda k: A[i, k] * B[k, j]))": "Tensor",
    "te.compute(A.shape, lambda i: te.maximum(A[i, 0], 0) / 3)": "Tensor",
    "te.compute(A.shape, lambda i, j: te.select(A[i, j] > 0, A[i, j], 0.0), name='y')": "Tensor",
    "te.compute((), lambda: 1.0)": "Tensor",
    "te.compute((4,), doubled)": "Tensor",
    "te.compute((4,), lambda i: (A[i, 0], A[i, 1] ** 2))": "tuple[Tensor, ...]",
    "te.compute((4,), lambda i, two=2: A[i, two] + 1)": "Tensor",
    "te.scan((4,), lambda y, t: te.select(t == 0, A[0, 0], A[t, 0]))": "Any",  # nothing tells states from axes
    "te.scan((4,), lambda y, z, t: (y[t - 1], z[t - 1]))": "tuple[Tensor, ...]",
    "te.extern(np.sin, (4,), 'float32', [A])": "Tensor",
    "te.extern(np.sin, [(4,)], ['float32'], [A])": "tuple[Tensor, ...]",
    "A[0, 1] + A[1, 2] * 2": "Expr",
    "te.exp(A[0, 1])": "Expr",
    "te.sum(A[0, k], axis=k)": "Expr",
    "te.exp(A)": "Tensor",
    "te.maximum(A, 0) + 1": "Tensor",
    "te.sum(A, 0)": "Tensor",
    "A[1:, None]": "Tensor",
    "A > 0": "Tensor",
    "te.differentiate(loss, A)": "Tensor",
    "te.differentiate(loss, [A, B])": "Gradients",
    "te.differentiate(loss)": "Gradients",
    "te.jvp(loss, A, A)": "Tensor",
    "te.hvp(loss, [A], [A])": "tuple[Tensor, ...]",
    "te.build([A, B], loss)": "Kernel",
    "te.evaluate(A + 1, {A: a})": "ndarray[tuple[Any, ...], dtype[Any]]",
    "te.interpret([A + 1, A], {A: a})": "tuple[ndarray[tuple[Any, ...], dtype[Any]], ...]",
    "s[loss].split(s[loss].reduce_axes[0], 8)": "tuple[Loop, Loop]",
}


def checked(folder, text):
    """What mypy says of a program, line by line."""
    pytest.importorskip("mypy")
    file = folder / "program.py"
    file.write_text(text)
    # Our own settings are strict, and what is known from checking ourselves need not be found out once more.
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", file],
        cwd=ROOT, env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    return run.stdout


def test_functions_tell_their_types(tmp_path):
    said = checked(tmp_path, BEGINNING + "\n".join(f"reveal_type({value})" for value in TYPES))
    assert "error" not in said, said
    found = [re.sub(r"\b(\w+\.)+", "", text) for text in re.findall(r'Revealed type is "(.*)"', said)]
    assert dict(zip(TYPES, found, strict=True)) == TYPES


def test_programs_of_the_readme_pass(tmp_path):
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL))
    plain, typed = "def swish(x, beta=1.0):", "def swish(x: te.Tensor, beta: float = 1.0) -> te.Tensor:"
    assert plain in code
    assert "Success" in (said := checked(tmp_path, code.replace(plain, typed))), said


def test_what_is_no_element_is_refused(tmp_path):
    said = checked(tmp_path, BEGINNING + "te.compute((3,), lambda i: 'one')\nte.differentiate('loss', A)\n")
    assert len(re.findall(r"error: .*\[(?:arg-type|call-overload)\]", said)) == 2, said
