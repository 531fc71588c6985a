"""Parts of graphs when they are called: programs of ours, or PyTorch where these fail.

A part is traced and compiled when it is first called with arrays of some shapes. Where that fails, or the program
does, PyTorch runs the part: if it fails as well, the fault is the caller's, and the error is PyTorch's own. If it does
not, the part is cut around the operation at fault, or in two until the operation stands alone, so that what is lost to
PyTorch is that operation only; what is left then runs as parts again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tedsl.bridges.fx.interpreter import UnsupportedNode, traced_function
from tedsl.bridges.fx.parts import divided
from tedsl.bridges.fx.reports import GraphReport, reason_of
from tedsl.bridges.fx.support import is_computing, operations_of
from tedsl.lang.dataclass import dataclass
from tedsl.mutation.functional import Functionalized

__all__ = ["GraphPart"]

PLAIN = (torch.Tensor, torch.nn.Parameter)
TRACERS = tuple(getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "FUNCTIONAL", "PROXY"))
OF_THE_MACHINE = (ImportError, MemoryError, OSError)  # which smaller programs would meet as well


@dataclass(eq=False)
class GraphPart:
    """A graph of operations that have rows, as a function of tensors and numbers."""

    module: fx.GraphModule
    interpreted: bool
    report: GraphReport

    def __post_init__(self) -> None:
        names = [n.name for n in self.module.graph.nodes if n.op == "placeholder"]
        self.report.compile(operations_of(self.module.graph))
        self.run: Callable[..., Any] = Functionalized(
            traced_function(self.module, names), self.interpreted, of_torch=True
        )

    def __call__(self, *inputs: Any) -> Any:
        if not _are_plain(inputs):
            return self.module(*inputs)
        try:
            return self.run(*inputs)
        except Exception as error:
            failure = error
        self.module(*inputs)  # raises where the caller is at fault
        self.run = self._replaced(failure)
        return self.run(*inputs)

    def _replaced(self, failure: Exception) -> Callable[..., Any]:
        """What runs from now on."""
        self.report.take_back(operations_of(self.module.graph))
        if isinstance(failure, UnsupportedNode) and failure.node is not None:
            return self._divided({failure.node: failure.reason})
        operations = [n for n in operations_of(self.module.graph) if is_computing(n)]
        if len(operations) > 1 and not isinstance(failure, OF_THE_MACHINE):
            nodes = operations_of(self.module.graph)
            return self._divided({}, nodes[nodes.index(operations[len(operations) // 2]) :])
        for node in operations:
            self.report.leave(node, reason_of(failure))
        alone: Callable[..., Any] = self.module
        return alone

    def _divided(self, left: dict[fx.Node, str], later: list[fx.Node] | None = None) -> Callable[..., Any]:
        for node, reason in left.items():
            self.report.leave(node, reason)
        whole: Callable[..., Any] = divided(self.module, left, self._smaller, later or [])
        return whole

    def _smaller(self, module: fx.GraphModule) -> GraphPart:
        return GraphPart(module, self.interpreted, self.report)


def _are_plain(inputs: tuple[Any, ...]) -> bool:
    """Whether these are tensors in memory, and no tracer stands in for it."""
    if any(torch._C._get_dispatch_mode(mode) is not None for mode in TRACERS):
        return False
    return all(type(x) in PLAIN and not x.is_neg() for x in inputs if isinstance(x, torch.Tensor))
