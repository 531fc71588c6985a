"""Derivatives in the step of a scan: what it computes is told as a program of its own, and what comes of that put back.

There, the axes of the steps and the places are sizes, and states are placeholders; neither is differentiated by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from autodiff.custom import Rule, rule_of, set_rule, stages_along
from tedsl.lang.compute import compute_tensors
from tedsl.lang.errors import GradientError, user_location
from tedsl.lang.expr import Axis, Expr, Read, Reduce, Var
from tedsl.lang.step import ScanStep, present_step, written
from tedsl.lang.tensor import Compute, LoopNest, Operation, Placeholder, ScanState, StepStage, Tensor
from tedsl.lang.traverse import rebuild_all, stages_of, topological

__all__ = ["OutsideStep", "outside_step"]

T = TypeVar("T")


def outside_step(given: Iterable[Any], by: Iterable[Any], what: str) -> OutsideStep | None:
    """What the step that is being written computes, where it makes one of the tensors that are `given`; else None.

    `by`: those that are differentiated by.
    """
    step, by = present_step(), [*by]
    tensors = [t for t in (*given, *by) if isinstance(t, Tensor)]
    if step is None or not any(map(step.has_made, tensors)):
        return None
    for tensor in by:
        if isinstance(tensor.op, ScanState):
            raise GradientError(
                f"{what}, at {user_location()}: found {tensor!r}, all steps of a state; give what the step reads of "
                f"it, such as q = {tensor.name}[t - 1], and compute with that"
            )
    return OutsideStep(step, tensors, what)


class OutsideStep:
    """What some tensors of a step are computed from, as a program that knows of no scan."""

    def __init__(self, step: ScanStep, tensors: Iterable[Tensor], what: str) -> None:
        self.step, self.what = step, what
        self.sizes: dict[Expr, Expr] = {a: Var(a.name) for a in (*step.axes, *step.places)}
        self.apart: dict[Tensor, Tensor] = {}
        order = stages_along(tensors, _dependencies)
        self.alive = [op.outputs for op in order]  # held, so that each tensor is one object throughout
        with written(None):
            for op in order:
                if op in step.members:
                    made = self._stand_ins(op) if isinstance(op, ScanState) else self._stage(op)
                    self.apart.update(zip(op.outputs, made, strict=True))
                elif any(t in self.apart for t in op.inputs):
                    raise self._refused(op)
        for op in order:
            self._keep_rules(op)

    def of(self, function: Callable[..., T], *args: Any) -> T:
        """What a function makes of tensors of the step, as the program has them."""
        with written(None):
            return function(*map(self.out, args))

    def out(self, value: Any) -> Any:
        """A tensor of the step, or a nest of such, as the program has it."""
        if isinstance(value, Tensor):
            return self.apart.get(value, value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.out, value))
        if isinstance(value, Mapping):
            return {self.out(k): self.out(v) for k, v in value.items()}
        return value

    def back(self, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
        """What was made of the program, as stages of the step."""
        wanted = tuple(tensors)
        new = {apart: tensor for tensor, apart in self.apart.items()}
        axes = {size: axis for axis, size in self.sizes.items()}
        order = stages_of(wanted)
        alive = [op.outputs for op in order]
        with written(self.step):
            for op in order:
                if not any(t in new for t in op.outputs) and _is_moved(op, new, axes):
                    new.update(zip(op.outputs, self._again(op, new, axes), strict=True))
        del alive
        return tuple(new.get(t, t) for t in wanted)

    @staticmethod
    def _stand_ins(op: Operation) -> tuple[Tensor, ...]:
        return tuple(Placeholder(name=t.name, shape=t.extents, dtype=t.dtype).output() for t in op.outputs)

    def _stage(self, op: Operation) -> tuple[Tensor, ...]:
        assert isinstance(op, StepStage)
        return compute_tensors(op.axes, _moved(op.bodies, self.apart, self.sizes), op.name, op.names)

    def _again(self, op: Operation, new: Mapping[Tensor, Tensor], axes: Mapping[Expr, Expr]) -> tuple[Tensor, ...]:
        if not isinstance(op, Compute) or any(n in axes for n in topological(_extents(op))):
            raise self._refused(op)
        return compute_tensors(op.axes, _moved(op.bodies, new, axes), op.name, op.names)

    def _refused(self, op: Operation) -> GradientError:
        length = ", whose loops are as long as the step says" if isinstance(op, Compute) else ""
        return GradientError(
            f"{self.what}, at {user_location()}: {type(op).__name__.lower()} {op.name!r} ({op.where}){length}, is "
            "nothing that a step of a te.scan holds; write this derivative as a formula, or take the steps in a loop "
            "of Python's, which te.jit writes out"
        )

    def _keep_rules(self, op: Operation) -> None:
        """Derivatives by their author, as they are for the tensors of the step."""
        for tensor in op.outputs:
            rule = rule_of(tensor)
            if rule is not None and tensor in self.apart:
                set_rule(self.apart[tensor], Rule(tuple(map(self.out, rule.deps)), rule.vjp, rule.jvp))


def _dependencies(op: Operation) -> list[Tensor]:
    rules = [rule_of(t) for t in op.outputs]
    return [*op.inputs, *(t for rule in rules if rule is not None for t in rule.deps)]


def _moved(roots: Iterable[Expr], new: Mapping[Tensor, Tensor], symbols: Mapping[Expr, Expr]) -> tuple[Expr, ...]:
    """Expressions that read other tensors, at places that other symbols say."""

    def rule(node: Expr) -> Expr:
        if isinstance(node, Read) and node.tensor in new:
            return Read(new[node.tensor], node.indices)
        return symbols.get(node, node)

    return rebuild_all(roots, rule)


def _is_moved(op: Operation, new: Mapping[Tensor, Tensor], axes: Mapping[Expr, Expr]) -> bool:
    return any(t in new for t in op.inputs) or any(n in axes for n in topological((*op.expressions, *_extents(op))))


def _extents(op: Operation) -> tuple[Expr, ...]:
    """What says how long the loops of a stage are."""
    bound = [a for node in topological(op.expressions) if isinstance(node, Reduce) for a in node.axes]
    own: list[Axis] = [*op.axes] if isinstance(op, LoopNest) else []
    shape = [e for t in op.outputs for e in t.extents]
    return (*shape, *(e for a in (*own, *bound) for e in (a.begin, a.extent) if e is not None))
