"""Numbers of which an operator makes a program each: hints for those who meant an input.

Numbers and lists of them are static (`signature`). That is what extents and options need, and nobody's wish for a
learning rate that changes from call to call, or for an image as a list.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tedsl.analysis.arrays import nests
from tedsl.lang.errors import warn_user
from tedsl.ops.signature import OpCall, Signature, Slot, Template, leaves
from tedsl.ops.transforms.numbers import is_number, weak_dtype

__all__ = ["NumbersSeen", "add_list_hints", "told_of_statics"]

# What Python says where a function takes a list or a number for an array.
_NO_ARRAY = re.compile(r"'(list|tuple|int|float|bool)' object (?:has no attribute|is not subscriptable)")
MOST_VALUES = {float: 8, int: 32}  # so many programs are made in silence; integers are often extents
MOST_NUMBERS = 16  # beyond so many in one call, nobody counts
# How an array of rank 0 is written, by the first part of the module of an array's type.
WRITTEN = {
    "numpy": "np.asarray({name}, '{dtype}')", "torch": "torch.tensor({name}, dtype=torch.{dtype})",
    "jax": "jnp.asarray({name}, '{dtype}')", "jaxlib": "jnp.asarray({name}, '{dtype}')",
}  # fmt: skip


class NumbersSeen:
    """How many values of each static number an operator was compiled for, all else being equal."""

    def __init__(self) -> None:
        self._templates: set[Template] = set()
        self._counts: dict[Any, int] = {}
        self._is_told = False

    def add(self, call: OpCall, title: str, results: Callable[[], Sequence[Any]]) -> None:
        """A call, a new program if its template is new; warns, once, where a number has had too many values.

        `results()` are tensors that earlier calls gave: beside integers, a number takes the dtype of these.
        """
        if self._is_told or call.template in self._templates:
            return
        self._templates.add(call.template)
        parts: list[tuple[str, Any]] = []
        for name, value in call.template.arguments.items():
            nests.map_leaves(value, name, lambda leaf, at: parts.append((at, leaf)))
        keys = [(at, Slot if isinstance(leaf, Slot) else nests.static_key(leaf)) for at, leaf in parts]
        numbers = [k for k, (_, leaf) in enumerate(parts) if is_number(leaf)]
        for k in numbers if len(numbers) <= MOST_NUMBERS else ():
            name, value = parts[k]
            kind = float if isinstance(value, (float, np.floating)) else int
            others = (kind, k, *keys[:k], name, *keys[k + 1 :])
            self._counts[others] = count = self._counts.get(others, 0) + 1
            if count == MOST_VALUES[kind]:
                self._is_told = True
                self._counts.clear()
                self._templates.clear()
                is_float = any("float" in str(getattr(a, "dtype", "")) for a in call.arrays)
                dtype = weak_dtype(call.arrays if is_float else results()) if kind is float else "int32"
                warn_user(
                    f"{title} was compiled {count} times for different values of {_quoted(name)}; pass "
                    f"{_array(call.arrays[0], name, dtype)} to have it as an input, unless an extent or a branch "
                    "depends on it"
                )
                return


def _quoted(name: str) -> str:
    return repr(name) if name.isidentifier() else name


def _array(like: Any, name: str, dtype: Any) -> str:
    """A number as an array of the framework of another, as it is written."""
    text = WRITTEN.get(type(like).__module__.partition(".")[0], "an array of rank 0 ({name} as {dtype})")
    return text.format(name=name, dtype=dtype)


def told_of_statics(error: Exception, signature: Signature, template: Template) -> Exception:
    """The error; if it says that a list or a number is no array, with the arguments that are such and so static."""
    found = _NO_ARRAY.match(str(error)) if isinstance(error, (AttributeError, TypeError)) else None
    names = [
        name for name, value in template.arguments.items()
        if found and type(value).__name__ == found[1] and _is_without_default(signature.parameters.parameters[name])
    ]  # fmt: skip
    if not found or not names:
        return error
    kind = f"an {found[1]}" if found[1] == "int" else f"a {found[1]}"
    made = type(error)(
        f"{error}; argument {' or '.join(map(repr, names))} is {kind} and so a static value; give "
        f"np.asarray({names[0]}){'' if found[1] in ('list', 'tuple') else ', an array of rank 0'}"
    )
    return made.with_traceback(error.__traceback__)


def add_list_hints(error: Exception, signature: Signature, template: Template) -> None:
    """Note on an error of an operator's function which of its static arguments may have been meant as arrays."""
    for name, value in template.arguments.items():
        if hasattr(error, "add_note") and _may_be_array(value, signature.parameters.parameters[name]):
            error.add_note(
                f"argument {name!r} is a {type(value).__name__} and so a static value; give np.asarray({name})"
            )


def _is_without_default(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty or parameter.default is None


def _may_be_array(value: Any, parameter: inspect.Parameter) -> bool:
    """Whether numbers in a nest may stand for an array: tuples of integers are options, as is what has a default."""
    if not _is_without_default(parameter) or type(value) not in (list, tuple):
        return False
    numbers = leaves(value)
    is_option = type(value) is tuple and all(type(n) is int for n in value)
    return bool(numbers) and not is_option and all(map(is_number, numbers))
