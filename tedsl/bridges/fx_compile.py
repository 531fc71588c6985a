"""`torch.compile(model, backend="tedsl")`: forward and backward graphs as kernels, the rest left to PyTorch.

AOTAutograd makes pure graphs of ATen; the operations that have a row are gathered into subgraphs (no two of which
depend on each other through what is left out), and each becomes one program. What is left is reported.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tedsl.bridges.fx import UnsupportedNode, name_of, traced_function
from tedsl.bridges.fx_decomposed import decompositions
from tedsl.bridges.fx_rows import is_known
from tedsl.mutation.functional import Functionalized

__all__ = ["Report", "backend", "register", "reports"]

log = logging.getLogger("tedsl.compile")

DTYPES = ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "bool")


@dataclass
class Report:
    """What became of one graph: nodes in our programs, and those left to PyTorch with the reason."""

    compiled: list[str] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        left = "; ".join(f"{node}: {why}" for node, why in self.left) or "nothing"
        return f"{len(self.compiled)} nodes compiled, left to PyTorch: {left}"


reports: list[Report] = []  # of the graphs compiled in this process, the last ones at the end
MOST_REPORTS = 256


def backend(graph_module: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """The backend by the name of "tedsl": `torch.compile(model, backend="tedsl")`."""
    from torch._dynamo.backends.common import aot_autograd

    given = {**options, **(options.get("options") or {})}
    unknown = sorted(set(given) - {"options", "mode", "interpreted"})
    if unknown:
        raise TypeError(f"torch.compile(backend='tedsl'): the only option is 'interpreted', found {', '.join(unknown)}")
    interpreted = bool(given.get("interpreted", False))

    def compiled(module: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(_compiled(module, inputs, interpreted))

    make = aot_autograd(fw_compiler=compiled, bw_compiler=compiled, decompositions=decompositions())
    found: Callable[..., Any] = make(graph_module, example_inputs)
    return found


def register() -> None:
    """Make `backend="tedsl"` known to PyTorch, which installed packages do by an entry point."""
    from torch._dynamo import list_backends, register_backend

    if "tedsl" not in list_backends(exclude_tags=()):
        register_backend(backend, "tedsl")


def _boxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """AOTAutograd hands its arguments over in a list, which the callee may empty to free them early."""

    def boxed(arguments: list[Any]) -> Any:
        return function(*arguments)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _compiled(module: Any, inputs: Sequence[Any], interpreted: bool) -> Callable[..., Any]:
    """A graph of ATen with its supported parts replaced by programs."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase

    report = Report()

    class Support(OperatorSupportBase):  # type: ignore[misc]
        def is_node_supported(self, submodules: Any, node: Any) -> bool:
            return _reason(node) is None

    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            reason = _reason(node)
            if reason is not None:
                report.left.append((node.name, reason))
    whole = CapabilityBasedPartitioner(module, Support(), allows_single_node_partition=True).partition_and_fuse()
    for name, part in list(whole.named_children()):
        if name.startswith("fused_"):
            program = _Program(part, interpreted, report)
            report.compiled += [n.name for n in part.graph.nodes if n.op == "call_function"]
            setattr(whole, name, program.module())
    reports.append(report)
    del reports[:-MOST_REPORTS]
    if report.left:
        log.warning("tedsl: %s", report)
    call: Callable[..., Any] = whole.forward
    return call


def _reason(node: Any) -> str | None:
    """Why a node is left to PyTorch; None where it is compiled."""
    if node.op == "get_attr":
        return None
    if node.op != "call_function":
        return node.op  # type: ignore[no-any-return]
    if node.target is not operator.getitem:
        name = name_of(node.target)
        if name is None or not is_known(name):
            return f"{node.target} has no row"
        if getattr(node.target, "_schema", None) is not None and node.target._schema.is_mutable:
            return f"{node.target} writes an input of the graph"
    for value in (node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)):
        for part in value if isinstance(value, (list, tuple)) else (value,):
            problem = _problem(part)
            if problem is not None:
                return f"{node.target}: {problem}"
    return None


def _problem(value: Any) -> str | None:
    """What about a value no kernel can have."""
    if value is None or isinstance(value, (int, float, bool)):
        return None
    if not hasattr(value, "dtype"):
        return None if type(value).__name__ in ("SymInt", "SymFloat", "SymBool") else f"a {type(value).__name__}"
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        return f"dtype {dtype}"
    return None if value.device.type == "cpu" else f"device {value.device}"


class _Program:
    """One subgraph: a program where its operations can be traced, PyTorch where they cannot after all."""

    def __init__(self, part: Any, interpreted: bool, report: Report) -> None:
        self.part = part
        self.report = report
        names = [n.name for n in part.graph.nodes if n.op == "placeholder"]
        self.run = Functionalized(traced_function(part, names), interpreted, recorded=True)
        self.is_left = False

    def __call__(self, *inputs: Any) -> Any:
        if self.is_left:
            return self.part(*inputs)
        try:
            return _unpacked(self.run(*inputs))
        except (UnsupportedNode, NotImplementedError) as error:
            self.is_left = True
            self.report.left.append((self.part._get_name(), str(error)))
            log.warning("tedsl: left to PyTorch: %s", error)
            return self.part(*inputs)

    def module(self) -> Any:
        import torch

        class Part(torch.nn.Module):  # type: ignore[misc]
            def __init__(self, program: _Program) -> None:
                super().__init__()
                self.program = program

            def forward(self, *inputs: Any) -> Any:
                return self.program(*inputs)

        return Part(self)


def _unpacked(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
