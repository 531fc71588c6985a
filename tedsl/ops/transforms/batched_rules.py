"""Derivatives that authors gave (`def_vjp`, `def_jvp`) for one example, kept where a program is batched.

Batching writes every stage anew, and new stages have the derivative of their definition. So the batched results get a
rule: differentiate for one example, then batch that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from autodiff import differentiate, jvp
from autodiff.custom import Rule, rule_of, set_rule
from tedsl.lang.arrays import moveaxis
from tedsl.lang.batching import batched
from tedsl.lang.compute import placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Expr
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["dependents", "keep_rules"]


def dependents(singles: Set[Tensor], outputs: Sequence[Tensor]) -> set[Tensor]:
    """The tensors below `outputs` that differ between examples."""
    found = set(singles)
    for op in operations_between(singles, outputs):
        if any(t in found for t in op.inputs):
            found.update(op.outputs)
    return found


def keep_rules(outputs: Sequence[Tensor], made: Sequence[Tensor], all: Mapping[Tensor, Tensor], extent: Expr) -> None:
    """Give what was made of `outputs` by batching the derivatives that these have for one example."""
    moving = dependents(all.keys(), outputs)
    given = {t: rule for t in moving if t not in all and (rule := rule_of(t)) is not None}
    if not given:
        return
    read = {t for one in moving - all.keys() for t in one.op.inputs} | {t for r in given.values() for t in r.deps}
    shared = [t for t in read if t not in moving and t.dtype.is_float]
    singles = [t for t in all if t.dtype.is_float]
    for one, many in zip(outputs, made, strict=True):
        if one.dtype.is_float and one in moving and one not in all:
            each = _Each(one, singles, shared, all, extent)
            set_rule(many, Rule((*(all[t] for t in singles), *shared), each.pulled, each.pushed))


@dataclass(frozen=True, eq=False)
class _Each:
    """A result of one example, over what differs between examples and what does not."""

    one: Tensor
    singles: Sequence[Tensor]
    shared: Sequence[Tensor]
    all: Mapping[Tensor, Tensor]
    extent: Expr

    def pulled(self, output: Tensor, deps: list[Tensor], head: Tensor) -> list[Tensor]:
        """Adjoints for a head, which may have axes in front."""
        prefix = head.ndim - output.ndim
        front = moveaxis(head, prefix, 0) if prefix else head
        single = placeholder(front.extents[1:], front.dtype, name=head.name)
        adjoints = differentiate([self.one], [*self.singles, *self.shared], [single])
        each = batched(adjoints, {**self.all, single: front}, self.extent)
        count = len(self.singles)
        own = [moveaxis(a, 0, prefix) if prefix else a for a in each[:count]]
        return [*own, *(a.sum(0) for a in each[count:])]

    def pushed(self, deps: list[Tensor], tangents: list[Tensor]) -> Tensor:
        """The tangent for tangents of `deps`."""
        count = len(self.singles)
        dots = {placeholder(t.extents[1:], t.dtype, name=t.name): t for t in tangents[:count]}
        moved: Any = jvp([self.one], [*self.singles, *self.shared], [*dots, *tangents[count:]])
        return batched(moved, {**self.all, **dots}, self.extent)[0]
