"""`te.vmap`: a function of one example as a function of many, by an axis in front of every stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from tedsl.analysis.arrays.nests import map_leaves, rebuilt, subscripted
from tedsl.lang.arrays import moveaxis
from tedsl.lang.batching import batched
from tedsl.lang.compute import placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Expr
from tedsl.lang.extents import same_extent
from tedsl.lang.keywords import own_arguments
from tedsl.lang.tensor import Tensor
from tedsl.ops.records import closed
from tedsl.ops.transforms.batched_rules import dependents, keep_rules
from tedsl.ops.transforms.function import Transformed, name_of, tidied, traceable, transformed

__all__ = ["vmap"]


@own_arguments()
def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Transformed:
    """`f` on many examples at once: a function of arrays with one more axis.

    `in_axes` says which axis of each argument counts examples: an integer for all, or a tuple with one entry for each
    positional argument, an integer, None (the same for every example) or a nest of these in the structure of the
    argument. Arguments that are keyword-only have it in front; numbers are the same for every example. `out_axes`
    likewise says where it comes in the results. There is no loop: every stage gets one more axis, what does not depend
    on it is computed once.
    """
    inner = traceable(f, "vmap")
    options = in_axes, out_axes
    in_axes, out_axes = closed(in_axes, always=True), closed(out_axes, always=True)
    _check_axes(in_axes, "in_axes")
    _check_axes(out_axes, "out_axes")

    def rule(*args: Any, **kwargs: Any) -> Any:
        batch = _Batch(f"te.vmap of {name_of(f)}")
        one = batch.one(args, kwargs, in_axes)
        result = tidied(inner(*one[0], **one[1]))
        return batch.each(result, out_axes)

    return transformed(vmap, f, options, rule)


@dataclass
class _Batch:
    """One example's tensors and those of all."""

    what: str
    all: dict[Tensor, Tensor] = field(default_factory=dict)
    extent: Expr | None = None
    named: str = ""  # the first argument with the axis

    def one(self, args: Sequence[Any], kwargs: dict[str, Any], in_axes: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments for one example."""
        axes = in_axes if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
        if len(axes) > len(args) or any(_holds_tensors(a) for a in args[len(axes) :]):
            raise ValueError(
                f"{self.what} at {user_location()}: in_axes has {len(axes)} entries for {len(args)} positional "
                "arguments; give one for each, None for what is the same for every example"
            )
        axes = [*axes, *[None] * (len(args) - len(axes))]
        given = [self._spread(a, axis, f"argument {k}", self._single) for k, (a, axis) in enumerate(zip(args, axes))]
        named = {k: self._spread(v, 0, f"argument {k!r}", self._single) for k, v in kwargs.items()}
        if self.extent is None:
            raise ValueError(
                f"{self.what} at {user_location()}: no array has an axis of examples: in_axes is {in_axes!r:.60}"
            )
        return given, named

    def each(self, result: Any, out_axes: Any) -> Any:
        """The results for all examples, for a nest of those for one."""
        tensors: list[Tensor] = []
        self._spread(result, out_axes, "result", lambda t, axis, name: tensors.append(t))
        assert self.extent is not None
        made = batched(tensors, self.all, self.extent)
        keep_rules(tensors, made, self.all, self.extent)
        found = dict(zip(tensors, made, strict=True))
        moving = dependents(self.all.keys(), tensors)

        def placed(one: Tensor, axis: int | None, name: str) -> Tensor:
            if axis is None:
                self._check_shared(one in moving, name)
                return one
            self._check_axis(axis, found[one].ndim, name, found[one])
            return moveaxis(found[one], 0, axis) if axis % found[one].ndim else found[one]

        return self._spread(result, out_axes, "result", placed)

    def _single(self, tensor: Tensor, axis: int | None, name: str) -> Tensor:
        """The part of one example, for a tensor of all."""
        if axis is None:
            return tensor
        self._check_axis(axis, tensor.ndim, name, tensor)
        front = moveaxis(tensor, axis, 0) if axis % tensor.ndim else tensor
        extent = front.extents[0]
        if self.extent is None:
            self.extent, self.named = extent, name
        if not same_extent(self.extent, extent):
            raise ValueError(
                f"{self.what} at {user_location()}: {name} has {extent} examples, but {self.named} has {self.extent}"
            )
        single = placeholder(front.extents[1:], front.dtype, name=tensor.name)
        self.all[single] = front
        return single

    def _check_shared(self, depends: bool, name: str) -> None:
        if depends:
            raise ValueError(
                f"{self.what} at {user_location()}: {name} differs between examples, so that its out_axes cannot be "
                "None; give the place of the axis"
            )

    def _check_axis(self, axis: int, rank: int, name: str, tensor: Tensor) -> None:
        if not -rank <= axis < rank:
            raise ValueError(
                f"{self.what} at {user_location()}: {name} has no axis {axis}, found {tensor!r}; say which axis counts "
                "examples, None for no axis"
            )

    def _spread(self, value: Any, axes: Any, name: str, rule: Callable[..., Any]) -> Any:
        """`rule(tensor, axis, name)` at each tensor of a nest, for axes that are a nest over its upper part."""
        if axes is None or isinstance(axes, int):
            return map_leaves(
                value, name, lambda leaf, at: rule(leaf, axes, at) if isinstance(leaf, Tensor) else leaf, subscripted
            )
        if isinstance(axes, dict) and isinstance(value, dict) and set(axes) == set(value):
            return {k: self._spread(v, axes[k], subscripted(name, k, False), rule) for k, v in value.items()}
        sequence = isinstance(axes, (tuple, list)) and isinstance(value, (tuple, list))
        if not sequence or len(axes) != len(value):
            raise ValueError(
                f"{self.what} at {user_location()}: the axes {axes!r:.60} do not have the structure of {name} "
                f"({type(value).__name__})"
            )
        parts = [
            self._spread(v, axis, subscripted(name, k, False), rule)
            for k, (v, axis) in enumerate(zip(value, axes, strict=True))
        ]
        return rebuilt(value, parts)


def _holds_tensors(value: Any) -> bool:
    found: list[bool] = []
    map_leaves(value, "", lambda leaf, name: found.append(isinstance(leaf, Tensor)))
    return any(found)


def _check_axes(axes: Any, what: str) -> None:
    def rule(leaf: Any, name: str) -> None:
        if leaf is not None and (isinstance(leaf, bool) or not isinstance(leaf, int)):
            raise TypeError(
                f"te.vmap at {user_location()}: {what} must be an integer, None or a nest of them, found {leaf!r:.40}"
            )

    map_leaves(axes, what, rule)
