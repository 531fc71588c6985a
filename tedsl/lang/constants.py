"""Arrays as tensors: `te.constant`, and what NumPy arrays and lists become beside tensors.

A constant is an input that its program brings along. The code compiled for it depends on its shape and dtype alone, and
every call hands over the array. So constants of any size cost a compilation nothing, and programs that differ in the
values of constants share their code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tedsl.lang.axes import as_shape
from tedsl.lang.dtypes import DType, Kind, dtype_of_array, is_masked, promote
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Expr
from tedsl.lang.foreign import has_elements, values_of
from tedsl.lang.functions import CAPTURED
from tedsl.lang.keywords import own_arguments
from tedsl.lang.literals import literal
from tedsl.lang.operators import Operators
from tedsl.lang.tensor import Constant, Tensor
from tedsl.lang.titles import titled
from tedsl.lang.traverse import operations_between

__all__ = ["captured", "constant", "constants_of", "constants_of_lists", "is_constant_like", "is_plain"]

_NUMBERS: tuple[type, ...] = (bool, int, float)


@own_arguments()
def constant(array: Any, name: str | None = None) -> Tensor:
    """An array as a tensor, of its dtype; lists of Python's numbers become int32, float32 or bool.

    It is copied here: what is written into the array later does not matter.
    """
    return _made(array, None, titled(name, "constant", "te.constant").of_one("te.constant"), "te.constant")


@contextmanager
def captured() -> Iterator[None]:
    """While a function is traced: arrays that it has captured are constants wherever a tensor may stand."""
    token = CAPTURED.set(lambda array, what: _made(array, None, "constant", what))
    try:
        yield
    finally:
        CAPTURED.reset(token)


def is_constant_like(value: object) -> bool:
    """Whether a value that stands beside tensors is to become a constant: a list, or an array of whichever library."""
    if isinstance(value, (Operators, *_NUMBERS)):
        return False
    return isinstance(value, (list, tuple)) or (has_elements(value) and getattr(value, "ndim", None) != 0)


def constants_of_lists(operands: Sequence[Any], what: str, selecting: bool = False) -> list[Any]:
    """The operands of a function of whole tensors, arrays and lists of them as constants.

    Python's numbers in lists are weak as they are elsewhere: they take the dtype of what they meet. The condition of a
    `selecting` function meets nothing.
    """
    if not any(map(is_constant_like, operands)):
        return list(operands)
    met = [kind for o in operands[selecting:] if (kind := _kind(o, what)) is not None]
    return [_made(o, met, "constant", what) if is_constant_like(o) else o for o in operands]


def is_plain(value: object) -> bool:
    """Whether a value is a number of Python's, or a list or tuple of such, of lists of such, and so on."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return isinstance(value, _NUMBERS) and not isinstance(value, np.generic)


def constants_of(inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The constants that the outputs need beside the inputs, in a fixed order."""
    return tuple(op.output() for op in operations_between(inputs, outputs) if isinstance(op, Constant))


def _kind(operand: Any, what: str) -> Kind | None:
    """What an operand counts as in a promotion; None for lists, and for what is refused elsewhere."""
    if isinstance(operand, (Tensor, Expr)):
        return operand.dtype
    if has_elements(operand):
        return dtype_of_array(values_of(operand, f"{what} at {user_location()}"))
    return type(operand) if type(operand) in _NUMBERS else None


def _made(value: Any, met: Sequence[Kind] | None, name: str, what: str) -> Tensor:
    array = _array(value, met or (), what)
    array.flags.writeable = False
    return Constant(name=name, shape=as_shape(array.shape, what), dtype=dtype_of_array(array), array=array).output()


def _array(value: Any, met: Sequence[Kind], what: str) -> np.ndarray[Any, Any]:
    """A copy of the elements, side by side, in this machine's byte order."""
    place = f"{what} at {user_location()}"
    if isinstance(value, Tensor):
        raise TypeError(f"{place}: expected an array, found the tensor {value!r}, which stands for itself")
    if is_masked(value):
        raise TypeError(f"{place}: a mask would be lost; give x.filled(value) or x.data of the masked array")
    found = values_of(value, place)
    if is_plain(value) and found.dtype.kind in "biuf":
        return _weak(value, found, met)
    try:
        dtype = dtype_of_array(found)
    except TypeError as error:
        raise TypeError(f"{place}: found {type(value).__name__} ({value!r:.60}): {error}") from None
    return np.array(found, dtype.numpy, order="C")


def _weak(value: Any, found: np.ndarray[Any, Any], met: Sequence[Kind]) -> np.ndarray[Any, Any]:
    """Python's numbers in the dtype that they have beside what they meet, or alone."""
    kinds = {type(v) for v in _leaves(value)} or {float}
    dtype: DType = promote([*met, *kinds])
    numbers = np.array([literal(v, dtype) for v in _leaves(value)], dtype.numpy)
    shaped: np.ndarray[Any, Any] = numbers.reshape(found.shape)
    return shaped


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield next(kind for kind in _NUMBERS if isinstance(value, kind))(value)
