"""What `te.grad`, `te.vmap` and their like return: an operator made from a function.

Beside what an operator takes, it takes numbers and lists of numbers for arrays where only arrays make sense. Called on
tensors, it is an expression; those by which it differentiates are then copies of what was given, so that a function
that reads the same tensor by another name does not have that differentiated as well.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from tedsl.lang.elements import whole
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Expr
from tedsl.lang.pickling import by_name, made_again
from tedsl.lang.tensor import Tensor
from tedsl.ops.arrays import Static
from tedsl.ops.op import Op
from tedsl.ops.purity import called, is_composed
from tedsl.ops.records import closed, opened
from tedsl.ops.routines import USUAL, Worth, copied
from tedsl.ops.signature import OpCall, Signature, map_leaves
from tedsl.ops.transforms.numbers import with_arrays

__all__ = ["Transformed", "name_of", "tidied", "traceable", "transformed"]


class FunctionSignature(Signature):
    """The parameters of a function, of which those at `argnums` are arrays even if they are numbers.

    `argnums` None: where there is no array at all, floats are arrays wherever they stand.
    """

    derives = True

    def __init__(self, function: Callable[..., Any], name: str, argnums: Sequence[int] | None) -> None:
        super().__init__(function, name)
        self.argnums = argnums
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.positional = [p.name for p in self.parameters.parameters.values() if p.kind in kinds]

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> OpCall:
        """A call taken apart, after numbers and elements of tensors have become arrays."""
        keys = [*range(len(args)), *kwargs]
        wanted = None if self.argnums is None else [self._is_wanted(key, len(args)) for key in keys]
        values = zip([*args, *kwargs.values()], wanted or [False] * len(keys), strict=True)
        given = with_arrays([_whole(closed(value, flag)) for value, flag in values], wanted)
        return super().call(given[: len(args)], dict(zip(kwargs, given[len(args) :], strict=True)))

    def _is_wanted(self, key: Any, count: int) -> bool:
        """Whether an argument, given by position or by name, is one of `argnums`; negative ones count from the end."""
        place = self.positional.index(key) if key in self.positional else key
        end = max(count, len(self.positional))
        return self.argnums is not None and place in [k + end if k < 0 else k for k in self.argnums]


class Transformed(Op):
    """A function made from a function, on tensors and on arrays of every framework."""

    signature: FunctionSignature

    def __init__(
        self,
        rule: Callable[..., Any],
        name: str,
        argnums: Sequence[int] | None,
        isolates: bool,
        recipe: tuple[Callable[..., Any], tuple[Any, ...]],
        symbolic: bool | None = None,
        worth: Worth = USUAL,
    ) -> None:
        super().__init__(rule, name, "reductions", symbolic, worth)
        self.signature = FunctionSignature(rule, name, argnums)
        make, (f, *_) = recipe
        inner = f.signature.label if isinstance(f, Transformed) else name_of(f)
        self.signature.label = f"te.{make.__name__} of {inner}"
        self.isolates = isolates  # whether it differentiates by its arguments
        self.recipe = recipe

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        return opened(super().__call__(*args, out=out, **kwargs))

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments = self.recipe
        return by_name(self) or made_again(str(self), make, *arguments)

    def _inlined(self, call: OpCall, out: Any, mode: Any) -> Any:
        if self.isolates:
            call = OpCall(call.template, tuple(copied(t) for t in call.arrays))
        return super()._inlined(call, out, mode)


def transformed(
    make: Callable[..., Any],
    f: Callable[..., Any],
    options: tuple[Any, ...],
    rule: Callable[..., Any],
    argnums: Sequence[int] | None = (),
    isolates: bool | None = None,
    symbolic: bool | None = None,
    worth: Worth = USUAL,
) -> Transformed:
    """What `make(f, *options)` returns: `rule` with the parameters of `f`."""
    wrapped = functools.wraps(f, updated=())(rule)
    derives = getattr(f, "isolates", False) if isolates is None else isolates
    inner = f.name if isinstance(f, Transformed) else name_of(f)
    name = re.sub(r"\W", "", f"{make.__name__}_{inner}")
    return Transformed(wrapped, name, argnums, derives, (make, (f, *options)), symbolic, worth)


def traceable(f: Any, what: str) -> Callable[..., Any]:
    """The function that takes tensors by which nothing else goes: of one transformed already, what it does."""
    if not callable(f):
        raise TypeError(
            f"te.{what} at {user_location()}: expected a function of tensors, found {type(f).__name__} ({f!r:.40})"
        )
    if isinstance(f, Transformed):
        return f.function

    def plain(*args: Any, **kwargs: Any) -> Any:
        return _whole(f(*args, **kwargs))

    if is_composed(f):
        return lambda *args, **kwargs: plain(*opened(args), **opened(kwargs))
    return lambda *args, **kwargs: called(plain, opened(args), opened(kwargs), closed)


def _whole(value: Any) -> Any:
    """A nest with tensors of rank 0 for expressions, such as elements of a tensor; those that stand for data."""

    return map_leaves(value, "result", whole)


def name_of(f: Any) -> str:
    """The name of a function, as messages have it."""
    return str(getattr(f, "__name__", type(f).__name__))


def tidied(value: Any) -> Any:
    """A nest of results in which what is no tensor is marked as static; expressions stay, to be complained of."""

    def rule(leaf: Any, name: str) -> Any:
        return leaf if isinstance(leaf, (Tensor, Expr, Static)) else Static(leaf)

    return map_leaves(closed(value), "result", rule)
