"""`te.grad`, `te.value_and_grad`, `te.jacobian`, `te.hessian`: derivatives of a function by nests of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from autodiff import differentiate
from autodiff.heads import IntegerGradientError
from autodiff.rows import rows_of
from tedsl.analysis.arrays.nests import map_leaves, map_nest
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import user_location
from tedsl.lang.keywords import own_arguments
from tedsl.lang.tensor import Tensor
from tedsl.ops.arrays import Static
from tedsl.ops.signature import leaves
from tedsl.ops.transforms.compilation import jit
from tedsl.ops.transforms.function import Transformed, name_of, tidied, traceable, transformed
from tedsl.ops.transforms.numbers import as_array, constant, is_number, weak_dtype

__all__ = ["By", "check_loss", "grad", "hessian", "jacobian", "value_and_grad"]

Argnums = int | tuple[int, ...] | list[int]


@own_arguments()
def grad(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, **options: Any
) -> Transformed:  # fmt: skip
    """The gradient of `f`, whose result is a scalar: a function of the same arguments.

    It has the structure of the argument at `argnums`, a tuple of gradients for a tuple of positions; what is no number
    in an argument (None, a bool, a string, a function) stays as it is. With `has_aux`, `f` returns (loss, aux) and the
    function (gradient, aux). Options are those of `te.jit`: `opt`, `symbolic`, `memory`.
    """
    inner = _value_and_grad(f, argnums, has_aux, "grad")

    def rule(*args: Any, **kwargs: Any) -> Any:
        value, gradients = inner(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    made = transformed(grad, f, (argnums, has_aux), rule, _positions(argnums, "grad"), isolates=True)
    return _worth(made, options, "grad")


@own_arguments()
def value_and_grad(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, **options: Any
) -> Transformed:  # fmt: skip
    """The value of `f` and its gradient, as `te.grad` has it: (loss, gradient), with `has_aux` ((loss, aux), gradient).

    Both are one program, so that they share what they compute.
    """
    rule = _value_and_grad(f, argnums, has_aux, "value_and_grad")
    positions = _positions(argnums, "value_and_grad")
    made = transformed(value_and_grad, f, (argnums, has_aux), rule, positions, isolates=True)
    return _worth(made, options, "value_and_grad")


@own_arguments()
def jacobian(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, **options: Any
) -> Transformed:  # fmt: skip
    """The derivative of every element of the result of `f` by every element of an argument.

    Its shape is that of the result, then that of the argument. For nests, each part of the result stands as the nest of
    the argument; with `has_aux`, `f` returns (result, aux) and the function (Jacobian, aux).
    """
    inner, numbers = traceable(f, "jacobian"), _positions(argnums, "jacobian")

    def rule(*args: Any, **kwargs: Any) -> Any:
        by = By(args, numbers, f"te.jacobian of {name_of(f)}")
        result, aux = _parted(inner(*by.args, **kwargs), has_aux, by.what)
        found = map_leaves(tidied(result), "result", lambda leaf, name: _rows(leaf, by, argnums, name))
        return (found, aux) if has_aux else found

    made = transformed(jacobian, f, (argnums, has_aux), rule, numbers, isolates=True)
    return _worth(made, options, "jacobian")


@own_arguments()
def hessian(
    f: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, **options: Any
) -> Transformed:  # fmt: skip
    """The second derivatives of `f`, whose result is a scalar: the Jacobian of its gradient."""
    rule = jacobian(grad(f, argnums, has_aux), argnums, has_aux).function
    made = transformed(hessian, f, (argnums, has_aux), _bare(rule), _positions(argnums, "hessian"), isolates=True)
    return _worth(made, options, "hessian")


def _worth(made: Transformed, options: dict[str, Any], name: str) -> Transformed:
    """What was made, compiled as `te.jit(..., opt=, symbolic=, memory=)` compiles it where that is asked for."""
    if unknown := options.keys() - {"opt", "symbolic", "memory"}:
        raise TypeError(
            f"te.{name} at {user_location()}: found {', '.join(f'{k}=' for k in sorted(unknown))}, expected argnums=, "
            "has_aux=, and opt=, symbolic= and memory= as of te.jit"
        )
    return jit(made, **options) if options else made


def _bare(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own, for another to be described in its attributes."""
    return lambda *args, **kwargs: rule(*args, **kwargs)


def _value_and_grad(f: Callable[..., Any], argnums: Argnums, has_aux: bool, name: str) -> Callable[..., Any]:
    inner, numbers = traceable(f, name), _positions(argnums, name)

    def rule(*args: Any, **kwargs: Any) -> Any:
        by = By(args, numbers, f"te.{name} of {name_of(f)}")
        loss, aux = _parted(inner(*by.args, **kwargs), has_aux, by.what)
        check_loss(loss, by.what, has_aux)
        gradients = by.nested(differentiate(loss, by.tensors), argnums)
        return ((loss, aux) if has_aux else loss), gradients

    return rule


@dataclass
class By:
    """The tensors of some arguments, by which one differentiates, and the nests that they come from."""

    args: tuple[Any, ...]
    numbers: tuple[int, ...]
    what: str
    otherwise: str = "choose other arguments with argnums="  # where one has no derivative
    tensors: list[Tensor] = field(default_factory=list)
    nests: list[Any] = field(default_factory=list)
    weak: Any = None  # the dtype of Python floats

    def __post_init__(self) -> None:
        args = list(self.args)
        self.weak = weak_dtype([leaf for leaf in leaves(args) if isinstance(leaf, Tensor)])
        places = [self._place(number, len(args)) for number in self.numbers]
        for k in places:
            args[k] = map_leaves(args[k], f"argument {k}", self._tensor)
            self.nests.append(map_leaves(args[k], "", self._listed))
        self.args = tuple(args)
        if not self.tensors:
            raise TypeError(
                f"{self.what} at {user_location()}: expected an array of floats to differentiate by, found none in "
                f"{'argument' if len(places) == 1 else 'arguments'} {', '.join(map(str, places))}"
            )

    def nested(self, values: Sequence[Any], argnums: Argnums) -> Any:
        """Derivatives, one for each tensor, as the arguments have them."""
        each = tuple(map_nest(nest, lambda p: p if isinstance(p, Static) else values[p]) for nest in self.nests)
        return each if isinstance(argnums, (tuple, list)) else each[0]

    def _place(self, number: int, count: int) -> int:
        if not -count <= number < count:
            raise TypeError(
                f"{self.what} at {user_location()}: argnums has {number}, but it has {count} positional "
                f"{'argument' if count == 1 else 'arguments'}, counted from 0; keyword-only ones have no derivative"
            )
        return number % count

    def _tensor(self, leaf: Any, name: str) -> Any:
        leaf = constant(as_array(leaf, self.weak)) if is_number(leaf) else leaf
        if _has_no_slope(leaf) or (isinstance(leaf, Tensor) and leaf.dtype.is_float):
            return leaf
        found = leaf.dtype if isinstance(leaf, Tensor) else f"{type(leaf).__name__} ({leaf!r:.40})"
        raise IntegerGradientError(
            f"{self.what} at {user_location()}: {name} is {found}, expected an array of floats to differentiate by; "
            f"make it floats, or {self.otherwise}"
        )

    def _listed(self, leaf: Any, name: str) -> Any:
        if not isinstance(leaf, Tensor):
            return Static(leaf)
        self.tensors.append(leaf)
        return len(self.tensors) - 1


def _has_no_slope(leaf: Any) -> bool:
    """Whether a part of a nest is no number: settings beside arrays, as dataclasses have them."""
    return leaf is None or isinstance(leaf, (bool, str, bytes)) or (callable(leaf) and not isinstance(leaf, Tensor))


def _rows(result: Any, by: By, argnums: Argnums, name: str) -> Any:
    """The Jacobian of one part of a result."""
    if isinstance(result, Static) and result.value is None:
        return result
    if not isinstance(result, Tensor) or not result.dtype.is_float:
        found = result.dtype if isinstance(result, Tensor) else f"{getattr(result, 'value', result)!r:.40}"
        raise IntegerGradientError(
            f"{by.what} at {user_location()}: {name} is {found}, expected tensors of floats; return others beside them "
            "with has_aux=True"
        )
    return by.nested(rows_of(result, by.tensors), argnums)


def _parted(returned: Any, has_aux: bool, what: str) -> tuple[Any, Any]:
    """What a function returned as its result and what came beside it."""
    if not has_aux:
        return returned, None
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise TypeError(
            f"{what} at {user_location()}: with has_aux=True the function must return (result, aux), found "
            f"{type(returned).__name__}{f' of {len(returned)}' if isinstance(returned, (tuple, list)) else ''}"
        )
    return returned[0], tidied(returned[1])


def check_loss(loss: Any, what: str, has_aux: bool) -> None:
    expected = "expected a float tensor of rank 0 as the function's result"
    if not isinstance(loss, Tensor):
        loss = loss.value if isinstance(loss, Static) else loss
        hint = ""
        found = f"{type(loss).__name__} ({loss!r:.40})"
        if isinstance(loss, (tuple, list)):
            found = f"{type(loss).__name__} of {len(loss)}"
            hint = "" if has_aux else "; return what comes beside the loss with has_aux=True"
        raise TypeError(f"{what} at {user_location()}: {expected}, found {found}{hint}")
    if not loss.dtype.is_float:
        raise IntegerGradientError(
            f"{what} at {user_location()}: {expected}, found {loss.dtype}; te.cast it to a float"
        )
    if loss.ndim:
        raise ValueError(
            f"{what} at {user_location()}: {expected}, found {loss!r}; reduce it, as with .sum(), or use te.jacobian"
        )


def _positions(argnums: Argnums, what: str) -> tuple[int, ...]:
    numbers = tuple(argnums) if isinstance(argnums, (tuple, list)) else (argnums,)
    if not numbers or any(isinstance(k, bool) or not isinstance(k, int) for k in numbers):
        raise TypeError(
            f"te.{what} at {user_location()}: argnums must be an integer or a tuple of integers, found {argnums!r:.40}"
        )
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"te.{what} at {user_location()}: argnums {argnums!r:.40} names an argument twice")
    return numbers
