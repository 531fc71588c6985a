"""`torch.compile(model, backend="tedsl")`: forward and backward graphs as programs, the rest left to PyTorch.

AOTAutograd makes pure graphs of ATen, whose operations that have a row are gathered into parts, each one program. The
backend never ends a program that PyTorch can run: what has no row, an argument that a row does not know, and whatever
fails while a graph is cut, traced, scheduled, compiled or called is PyTorch's, and told once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tedsl.bridges.fx.decomposed import decompositions
from tedsl.bridges.fx.masked import drop_own_assertions
from tedsl.bridges.fx.parts import divided
from tedsl.bridges.fx.programs import GraphPart
from tedsl.bridges.fx.reports import GraphReport, forget, new_report, reason_of, reports
from tedsl.bridges.fx.support import left_nodes

__all__ = ["GraphReport", "backend", "register", "reports"]


def backend(graph_module: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The backend by the name of "tedsl": `torch.compile(model, backend="tedsl")`."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.exc import TorchDynamoException

    interpreted = _is_interpreted(options)
    compiler = partial(_compiled, interpreted=interpreted)
    make = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, decompositions=decompositions())
    try:
        found: Callable[..., Any] = make(graph_module, example_inputs)
    except TorchDynamoException:  # how the caller is told to begin anew
        raise
    except Exception as error:
        new_report().leave("a whole function", reason_of(error))
        found = graph_module.forward
    return found


setattr(backend, "reset", forget)  # noqa: B010 - what torch._dynamo.reset() calls


def _is_interpreted(options: dict[str, Any]) -> bool:
    given = {**options, **(options.get("options") or {})}
    unknown = sorted(set(given) - {"options", "mode", "interpreted"})
    if unknown:
        raise TypeError(f"torch.compile(backend='tedsl'): the only option is 'interpreted', found {', '.join(unknown)}")
    return bool(given.get("interpreted", False))


def register() -> None:
    """Make `backend="tedsl"` known to PyTorch, which installed packages do by an entry point."""
    from torch._dynamo import list_backends, register_backend

    if "tedsl" not in list_backends(exclude_tags=()):
        register_backend(backend, "tedsl")


def _compiled(module: Any, inputs: Sequence[Any], *, interpreted: bool) -> Callable[..., Any]:
    """A graph of ATen with its parts replaced by programs."""
    report = new_report()
    try:
        drop_own_assertions(module.graph)
        module.recompile()
        left = left_nodes(module.graph)
        whole = divided(module, left, partial(GraphPart, interpreted=interpreted, report=report))
    except Exception as error:
        report.leave("a whole graph", reason_of(error))
        return _boxed(module.forward)
    for node, reason in left.items():
        report.leave(node, reason)
    return _boxed(whole.forward)


def _boxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """AOTAutograd hands its arguments over in a list, which is emptied so that nobody else holds on to them."""

    def boxed(arguments: list[Any]) -> Any:
        given = tuple(arguments)
        arguments.clear()
        return function(*given)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed
