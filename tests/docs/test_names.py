"""What public functions of whole arrays call results that nobody stored: tried on the examples of the docs."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from docs.building import examples as shown
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import NUMBERS
from tedsl.lang.titles import name_after
from tedsl.ops.op import definitions_of

FILES = {"arrays": 70, "draws": 7, "functions": 55, "ops": 90}  # how many functions make a tensor of tensors
OPERATORS = {f.value for f in Fn}


def made(path: Path) -> Iterator[tuple[str, te.Tensor, list[str]]]:
    """Calls of what each cell is an example of: the function, its result on tensors, what these are called."""
    scene: dict[str, Any] = {"__name__": f"examples_{path.stem}"}
    for names, code, _ in shown.cells(path):
        known = dict(scene) if names else scene
        statements = ast.parse(code).body
        for statement in statements:
            if not isinstance(statement, ast.Expr):  # which only shows
                exec(compile(ast.Module([statement], []), str(path), "exec"), known)
                known.update({k: _tensor(k, v) for k, v in known.items()} if path.stem == "ops" else {})
        for node in ast.walk(ast.Module(statements, [])):
            if isinstance(node, ast.Call) and (called := ast.unparse(node.func)) in names:
                with contextlib.suppress(NameError):  # of a body, whose axes are there in it only
                    result, *given = (_value(n, known) for n in (node, *node.args))
                    if isinstance(result, te.Tensor):
                        yield called, result, [t.name for t in given if isinstance(t, te.Tensor)]


def _value(node: ast.expr, known: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<example>", "eval"), known)


def _tensor(name: str, value: Any) -> Any:
    return te.placeholder(value.shape, value.dtype, name=name) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("path", [f for f in shown.files() if f.stem in FILES], ids=lambda path: path.stem)
def test_a_result_is_called_like_the_function_or_like_a_view_of_what_it_was_made_of(path: Path) -> None:
    found = list(made(path))
    assert len({called for called, _, _ in found}) >= FILES[path.stem]
    for called, result, sources in found:
        own = called.rpartition(".")[2]
        is_own = f"_{own}_" in f"_{result.name}_"
        is_view = result.name.startswith(tuple(f"{source}_" for source in sources))
        assert is_own or is_view, f"{called} makes {result.name}"
        assert is_own or result.name not in OPERATORS, f"{called} makes {result.name}"


def test_names_of_variables_and_given_ones_come_first() -> None:
    x = te.placeholder((5, 4), name="x")
    logits = te.log_softmax(x, axis=1)
    assert [logits.name, te.log_softmax(x, axis=1).named("own").name] == ["logits", "own"]

    def head(x: te.Tensor) -> te.Tensor:
        return te.softmax(x, axis=1)

    assert [head(x).name, te.softmax(x * 2, axis=1).name, (x / 2).name] == ["head", "softmax", "div"]
    assert [te.logsumexp(x + 1, axis=1).name, te.ops.logsumexp(x).name, te.transpose(x).name] == [
        "logsumexp", "logsumexp", "x_T",
    ]  # fmt: skip
    shifted = x + 1
    name_after("norm", shifted, (), next(NUMBERS))
    assert shifted.name == "shifted", "what was there before keeps its name"


def test_kernels_of_operators_have_results_of_their_names() -> None:
    te.ops.log_softmax(np.ones((3, 7), "float32"))
    traced = [t for d in definitions_of(te.ops.log_softmax) for t in d.traces.values()]
    assert {output.name for t in traced for output in t.outputs} == {"log_softmax"}


def test_an_index_that_is_out_of_bounds_says_whose() -> None:
    x, labels = te.placeholder((61, 4), name="x"), te.placeholder((61,), "int32", name="labels")
    loss = -te.log_softmax(x, axis=1)[te.arange(61), labels].mean()
    with pytest.raises(IndexError, match=r"dimension 1 of log_softmax : float32\[61, 4\]"):
        te.evaluate(loss, {x: np.zeros((61, 4), "float32"), labels: np.full(61, 4, "int32")})
