"""The table of operations beside the schemas of ATen: an argument is read, without influence, or refused."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tedsl as te
from tedsl.bridges.fx.arguments import UNREAD, UNREAD_BY_ALL, UnsupportedArgument, bound
from tedsl.bridges.fx.rows.table import ROWS
from tests.bridges.torch_schemas import overloads_of

torch = pytest.importorskip("torch")
make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx
aten = torch.ops.aten

NAMES = sorted(name for name in ROWS if hasattr(aten, name))


def unread_of(name: str) -> frozenset[str]:
    return UNREAD_BY_ALL | UNREAD.get(name, frozenset())


def call_with(operation: Any, argument: Any) -> tuple[list[Any], dict[str, Any]]:
    """A call in which the argument and those before it are given, each as itself."""
    given = [a for a in operation._schema.arguments if not a.kwarg_only]
    place = given.index(argument) if argument in given else -1
    needed = [k for k, a in enumerate(given) if not a.has_default_value() or k <= place]
    args = [given[k] for k in range(max(needed, default=-1) + 1)]
    named = [a for a in operation._schema.arguments if a.kwarg_only and (a is argument or not a.has_default_value())]
    return args, {a.name: a for a in named}


def refused_in(operation: Any, argument: Any) -> str | None:
    """What is refused of a call with the argument; where nothing is, the argument must reach the row."""
    args, kwargs = call_with(operation, argument)
    try:
        positional, named = bound(operation, args, kwargs)
    except UnsupportedArgument as error:
        return error.name
    assert any(v is argument for v in (*positional, *named.values())), f"{operation} loses {argument.name}"
    return None


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_reaches_the_row_or_is_refused(name: str) -> None:
    for operation in overloads_of(name):
        for argument in operation._schema.arguments:
            if argument.name not in unread_of(name):
                refused_in(operation, argument)


REFUSED = {
    "addmm.dtype": {"out_dtype"}, "baddbmm.dtype": {"out_dtype"}, "bmm.dtype": {"out_dtype"},
    "mm.dtype": {"out_dtype"}, "var.dim": {"unbiased"}, "var_mean.dim": {"unbiased"},
}  # fmt: skip


def test_the_arguments_that_are_refused() -> None:
    """All of them, so that what a later PyTorch adds is seen here."""
    found: dict[str, set[str]] = {}
    for name in NAMES:
        for operation in (o for o in overloads_of(name) if not any(a.is_out for a in o._schema.arguments)):
            for argument in operation._schema.arguments:
                refused = refused_in(operation, argument) if argument.name not in unread_of(name) else None
                if refused is not None:
                    found.setdefault(operation.__name__, set()).add(refused)
    assert found == REFUSED


def code_of(row: Callable[..., Any]) -> Any:
    return inspect.unwrap(row).__code__


def unread_parameters(row: Callable[..., Any]) -> Iterator[str]:
    """Parameters whose values the code never asks for."""
    asked: set[Any] = set()
    for instruction in dis.get_instructions(code_of(row)):
        if instruction.opname.startswith("LOAD"):
            asked.update(instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,))
    yield from (name for name in inspect.signature(row).parameters if name not in asked)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_reads_what_it_takes(name: str) -> None:
    row = ROWS[name]
    kinds = {p.kind for p in inspect.signature(row).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    assert list(unread_parameters(row)) == []


def test_a_row_that_does_not_read_is_seen() -> None:
    assert list(unread_parameters(lambda x, decimals=0: x + 1)) == ["decimals"]
    assert list(unread_parameters(lambda x, dims: [d for d in dims if x])) == []


def test_what_is_without_influence_is_in_the_schemas() -> None:
    for name, arguments in UNREAD.items():
        known = {a.name for operation in overloads_of(name) for a in operation._schema.arguments}
        assert arguments <= known, name


def test_a_refused_argument_is_named_and_left_to_pytorch() -> None:
    a, b = torch.ones(2, 3, dtype=torch.float32), torch.ones(3, 2, dtype=torch.float32)
    with pytest.raises(UnsupportedArgument, match=r"argument out_dtype=torch\.float32 is not supported"):
        bound(aten.mm.dtype, [a, b, torch.float32], {})
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(aten.var.dim, (x, [0], False)))
    module = torch.fx.GraphModule({}, graph)
    torch.testing.assert_close(te.from_fx(module, [a])(a), torch.zeros(3))
