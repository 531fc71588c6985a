"""`x.at`: elements that may lie outside a tensor, and a tensor with some of its elements replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tedsl.lang import functions as fn
from tedsl.lang.borders import border_of
from tedsl.lang.dtypes import INT32, INT64, UINT64, integer_bounds, promote
from tedsl.lang.errors import user_location
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read
from tedsl.lang.keywords import spoken

if TYPE_CHECKING:
    from tedsl.lang.tensor import Item, Tensor

__all__ = ["At", "Updates", "brought_inside", "mirrored_once"]


@spoken("x.at")
class At:
    """`x.at(i, j, mode="zero")`: an element that may lie outside; `x.at[0, 1:].set(v)`: x with other elements there."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __call__(self, *indices: Any, mode: str | Sequence[str] = "error") -> Item:
        """The element at `indices`, which may lie outside: `mode` is error, zero, clamp, reflect or wrap.

        It is one for all indices, or a sequence with one for each. Of fewer indices than axes the others are whole, as
        in `x[i]`. As in np.pad, where zero is "constant" and clamp is "edge"; `tedsl.lang.borders` has the other words
        for them.
        """
        x = self._tensor
        if len(indices) == 1 and isinstance(indices[0], tuple):
            indices = indices[0]
        modes = _modes_of(mode, len(indices), x)
        if 0 < len(indices) < x.ndim:
            found: Item = x._methods["slice_outside"](x, indices, modes)
            return found
        if len(indices) != x.ndim:
            raise ValueError(
                f"{x.name}.at at {user_location()}: expected {x.ndim} indices for {x!r}, found {len(indices)}"
            )
        pairs = enumerate(zip(indices, modes, strict=True))
        exprs = tuple(x._index(d, item) if m == "error" else _outside(x, item) for d, (item, m) in pairs)
        return _element(x, exprs, modes)  # type: ignore[return-value]

    def __getitem__(self, items: Any) -> Updates:
        return Updates(self._tensor, items if isinstance(items, tuple) else (items,))

    def __getattr__(self, name: str) -> NoReturn:
        x = self._tensor.name
        raise AttributeError(
            f"{x}.at has no attribute {name!r}; {x}.at(i, mode=...) reads beyond a border, {x}.at[i].set(v) replaces"
        )

    def __repr__(self) -> str:
        return f"{self._tensor.name}.at(i, mode=...) or {self._tensor.name}.at[i].set(v)"


@spoken("x.at[...]")
class Updates:
    """Some elements of a tensor, to be replaced: each method gives the whole tensor with others there."""

    __slots__ = ("_items", "_tensor")

    def __init__(self, tensor: Tensor, items: tuple[Any, ...]) -> None:
        self._tensor, self._items = tensor, items

    def __getattr__(self, name: str) -> NoReturn:
        x = self._tensor.name
        told = f"{x}.at[i].set(f({x}[i])) is what f makes of it" if name == "apply" else f"it is {self!r}"
        raise AttributeError(f"{x}.at[...] has no attribute {name!r}; {told}", name=name, obj=self)

    def set(self, value: Any) -> Tensor:
        """`value` there, of the dtype of the tensor; of places that an index tensor names twice the last one counts."""
        return self._updated("set", value)

    def add(self, value: Any) -> Tensor:
        """`value` added there; places that an index tensor names twice take both."""
        return self._updated("add", value)

    def subtract(self, value: Any) -> Tensor:
        """`value` taken away there."""
        return self._updated("subtract", value)

    def multiply(self, value: Any) -> Tensor:
        """Multiplied by `value` there."""
        return self._updated("multiply", value)

    mul = multiply

    def divide(self, value: Any) -> Tensor:
        """Divided by `value` there."""
        return self._updated("divide", value)

    def max(self, value: Any) -> Tensor:
        """The larger of the element and `value` there."""
        return self._updated("max", value)

    def min(self, value: Any) -> Tensor:
        """The smaller of the element and `value` there."""
        return self._updated("min", value)

    def get(self) -> Tensor:
        """The elements themselves, `x[...]`."""
        found: Tensor = self._tensor[self._items]
        return found

    def _updated(self, way: str, value: Any) -> Tensor:
        found: Tensor = self._tensor._methods["updated"](self._tensor, self._items, way, value)
        return found

    def __repr__(self) -> str:
        return f"{self._tensor.name}.at[...]: .set(v), .add(v), .multiply(v), .divide(v), .max(v), .min(v), .get()"


def _outside(tensor: Tensor, item: Any) -> Expr:
    """An index that may lie outside the tensor."""
    index = fn.as_expr(item)
    if not index.dtype.may_be_integer:
        raise TypeError(
            f"{tensor.name}.at at {user_location()}: expected integer indices, found {index.dtype} `{index}`; "
            "use te.cast(x, 'int32')"
        )
    return index


def _signed(index: Expr) -> Expr:
    """An index in a signed type that holds it; of a uint64 as much as lies beyond every tensor."""
    if index.dtype is UINT64:
        return fn.convert(fn.minimum(index, integer_bounds(INT64)[1]), INT64)
    return fn.convert(index, promote([index.dtype, INT32]))


def _remainder(index: Expr, period: Expr) -> Expr:
    """An index modulo a period, signed."""
    if index.dtype is UINT64:
        return fn.convert(index % fn.convert(period, UINT64), INT64)
    return _signed(index) % period


def _modes_of(mode: Any, count: int, x: Tensor) -> tuple[str, ...]:
    """The border of each index."""
    is_one = not isinstance(mode, (tuple, list))
    words = [
        border_of(word, f"{x.name}.at", allowed=("error", "zero", *_BORDERS)) for word in ([mode] if is_one else mode)
    ]
    if not is_one and len(words) != count:
        raise ValueError(
            f"{x.name}.at at {user_location()}: mode: expected one for all indices, or one for each of the {count}, "
            f"found {mode!r:.60}"
        )
    return tuple(words * count if is_one else words)


def _element(tensor: Tensor, indices: tuple[Expr, ...], modes: tuple[str, ...]) -> Expr:
    inside: Expr = TRUE
    places: list[Expr] = []
    for index, extent, mode in zip(indices, tensor.extents, modes, strict=True):
        if mode == "zero":
            index = _signed(index)
            if not _inside(index, extent):
                inside = fn.logical_and(inside, fn.logical_and(index >= 0, index < extent))
        elif mode != "error" and not _inside(index, extent) and not _is_next(tensor, index):
            index = _BORDERS[mode](index, extent)
        places.append(index)
    return fn.select(inside, Read(tensor, tuple(places)), fn.convert(0, tensor.dtype))


def _is_next(state: Tensor, index: Expr) -> bool:
    """Whether an index is the step next to a scan's own one: beyond the first, no border leads to a step done."""
    along = getattr(state.op, "along", None)
    return along is not None and (index is along - 1 or index is along + 1)


def _inside(index: Expr, extent: Expr) -> bool:
    """A plain axis over exactly this extent, or a constant inside: nothing to bring back."""
    if isinstance(index, Axis):
        begins_at_zero = isinstance(index.begin, Const) and index.begin.value == 0
        return begins_at_zero and index.extent is extent
    return isinstance(index, Const) and isinstance(extent, Const) and 0 <= index.value < extent.value


def _clamp(index: Any, extent: Any) -> Any:
    return fn.minimum(fn.maximum(_signed(index), 0), extent - 1)


def _wrap(index: Any, extent: Any) -> Any:
    return _remainder(index, fn.maximum(extent, 1))


def _reflect(index: Any, extent: Any) -> Any:
    if isinstance(extent, Const) and 2 * extent.value > integer_bounds(INT32)[1]:
        extent = fn.convert(extent, INT64)
    last = extent - 1
    period = fn.maximum(2 * last, 1)
    return last - fn.abs(last - _remainder(index, period))


def mirrored_once(index: Any, last: int) -> Any:
    """An int32 index mirrored at 0 and at `last`, from which it is no further than that."""
    return fn.clip(fn.maximum(fn.minimum(index, 2 * last - index), -index), 0, last)


_BORDERS: dict[str, Callable[[Any, Any], Any]] = {"clamp": _clamp, "reflect": _reflect, "wrap": _wrap}


def brought_inside(index: Any, extent: Any, mode: str) -> Any:
    """An index that lies within the extent, by clamp, reflect or wrap."""
    return _BORDERS[mode](index, extent)
