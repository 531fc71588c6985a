"""The names of operations: given with `name=`, given later by `.named()`, or taken from the user's variables.

A whole-tensor function makes several operations. Only the one that it returns takes the variable's name, or that of the
function, before anybody has seen it; all others, and all that was there before, keep theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields, replace
from functools import wraps
from typing import Any, TypeVar

from tedsl.lang.axes import as_name
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import user_location
from tedsl.lang.keywords import check_arguments
from tedsl.lang.native import Native
from tedsl.lang.tensor import (
    AUTHOR_RULES,
    NUMBERS,
    Constant,
    Extern,
    Operation,
    Placeholder,
    Scan,
    ScanState,
    Tensor,
)
from tedsl.lang.variables import Variables, variables_of

__all__ = [
    "Title",
    "check_not_renamed",
    "name_after",
    "name_results",
    "named",
    "takes_variables",
    "takes_variables_only",
    "titled",
]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Title:
    """What an operation is to be called, and its outputs, where they were named one by one."""

    text: str
    names: tuple[str, ...] | None
    default: str
    is_given: bool  # by the user, not by variables

    def of(self, count: int, several: bool, what: str, parts: str = "outputs") -> tuple[str, tuple[str, ...] | None]:
        """The name of an operation with so many outputs, and their names. Variables may be for its elements."""
        if self.names is None or (len(self.names) == count and (several or self.is_given)):
            return self.text, self.names
        if self.is_given:
            raise ValueError(f"{what} at {user_location()}: {len(self.names)} names for {count} {parts}")
        return self.default, None

    def of_one(self, what: str) -> str:
        """The name of an operation with one output."""
        return self.of(1, False, what)[0]


def titled(name: Any, default: str, what: str) -> Title:
    """The title of what a public function makes for its caller: by `name=`, or by the variables it is stored in."""
    if name:
        if isinstance(name, (tuple, list)):
            names = tuple(as_name(n, what) for n in name)
            return Title("_".join(names), names, default, True)
        return Title(as_name(name, what), None, default, True)
    variables = variables_of(sys._getframe(2))
    if variables is None or isinstance(variables, str):
        return Title(variables or default, None, default, False)
    text = "_".join(v for v in variables if v)
    return Title(text, tuple(v or f"{text}_{k}" for k, v in enumerate(variables)), default, False)


def takes_variables(function: F) -> F:
    """The function; what it makes is called like the variable that its caller stores it in, else like the function."""
    return _storing(function, function.__name__)


def takes_variables_only(function: F) -> F:
    """The function; what its caller stores in no variable keeps the name that it was made with."""
    return _storing(function, None)


def _storing(function: F, own: str | None) -> F:
    @wraps(function)
    def storing(*args: Any, **given: Any) -> Any:
        variables = variables_of(sys._getframe(1))
        first = next(NUMBERS)
        try:
            result = function(*args, **given)
        except TypeError:
            check_arguments(function, args, given)
            raise
        if variables is not None:
            name_results(result, variables, first)
        elif own is not None:
            name_after(own, result, args, first)
        return result

    return storing  # type: ignore[return-value]


def name_after(own: str, result: Any, sources: Iterable[Any], first: int) -> None:
    """Call a result like the function that made it of `sources`, of operations since `first`.

    Not where its name says that, or which part or view of a source it is: `x_T`.
    """
    if not isinstance(result, Tensor) or f"_{own}_" in f"_{result.name}_":
        return
    named = [s for s in sources if isinstance(s, Tensor) and result.name.startswith(f"{s.name}_")]
    if not any(s is t for s in named for t in result.op.inputs):
        _call(result, own, first)


def name_results(result: Any, variables: Variables, first: int) -> None:
    """Call results after variables, those whose operations were made since `first`."""
    if isinstance(result, Tensor):
        if isinstance(variables, str):
            _call(result, variables, first)
    elif isinstance(result, (tuple, list)):
        names = [f"{variables}_{k}" for k in range(len(result))] if isinstance(variables, str) else variables
        if len(names) == len(result):
            for tensor, name in zip(result, names, strict=True):
                if name is not None and isinstance(tensor, Tensor):
                    _call(tensor, name, first)


def _call(tensor: Tensor, name: str, first: int) -> None:
    """Give an operation that nobody has seen yet another name."""
    op = tensor.op
    if op.number < first:
        return
    for field, value in _names_with(op, tensor.index, name).items():
        object.__setattr__(op, field, value)
    for state in op.states if isinstance(op, Scan) and op.num_outputs == 1 else ():
        object.__setattr__(state.op, "name", name)


def _names_with(op: Operation, index: int, name: str) -> dict[str, Any]:
    """The fields that say the names of an operation, with another one for one of its outputs."""
    if op.num_outputs == 1:
        return {"name": name, "names": None}
    return {"names": tuple(name if k == index else op.name_of(k) for k in range(op.num_outputs))}


def named(tensor: Tensor, name: str) -> Tensor:
    """An equal tensor under a name that formulas, loops, gradients and schedules call it by.

    It is another tensor: what read the one before still does. So name a tensor where it is made.
    """
    op, what = tensor.op, f"{tensor.name}.named"
    as_name(name, what)
    refused = _refusal(op)
    if refused is not None:
        raise ValueError(f"{what}({name!r}) at {user_location()}: {refused}")
    made = replace(op, **_names_with(op, tensor.index, name), _outputs={})
    if AUTHOR_RULES in vars(op):
        vars(made)[AUTHOR_RULES] = vars(op)[AUTHOR_RULES]
    return made.output(tensor.index)


def check_not_renamed(tensors: Iterable[Tensor], stages: Collection[Operation], what: str) -> None:
    """ValueError where a program reads not a tensor that was asked for, but the one that it was under another name."""
    for tensor in tensors:
        if tensor.op in stages or isinstance(tensor.op, Placeholder):
            continue
        same = next((op for op in stages if _is_renamed(op, tensor.op)), None)
        if same is not None:
            raise ValueError(
                f"{what} at {user_location()}: expected a tensor that the output reads, found {tensor!r}, of which it "
                f"reads the equal {same.output(tensor.index)!r}, made at {same.where}: .named() makes another tensor; "
                "name it where it is made, before others read it, or ask for the one that they read"
            )


def _is_renamed(op: Operation, other: Operation) -> bool:
    """Whether two operations are one definition under two names."""
    return type(op) is type(other) and all(
        getattr(op, f.name) is getattr(other, f.name) for f in fields(op) if f.name not in ("name", "names", "_outputs")
    )


def _refusal(op: Operation) -> str | None:
    """Why the outputs of an operation cannot be given other names, and what to do instead."""
    if isinstance(op, Placeholder) and not isinstance(op, Constant):
        return "a placeholder keeps the name by which kernels are called; give it in te.placeholder(..., name=)"
    if isinstance(op, ScanState):
        return "it stands for the result of a te.scan, whose name it has; give that in te.scan(..., name=)"
    if isinstance(op, Extern) and not op.pure:
        return "a function that runs on each call would run twice; give the name in te.extern(..., name=)"
    if op.num_outputs > 1 and not (isinstance(op, Extern) and isinstance(op.function, Native)):
        names = ", ".join(repr(op.name_of(k)) for k in range(op.num_outputs))
        return (
            f"it is one of {op.num_outputs} outputs of one loop nest ({names}), which are named together; give "
            "name=(..., ...) where they are made"
        )
    return None
