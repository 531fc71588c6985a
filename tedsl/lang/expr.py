"""Scalar expressions: frozen, interned nodes, so that `is` means equal and a pass memoises in a plain dict.

`Const`, `Apply`, `Read` and `Reduce` are interned by their fields; `Var`, `Axis` and `Formal` are symbols, each its
own. What the operators build (promotion, folding) is decided in `tedsl.lang.functions`.
"""

from __future__ import annotations

import itertools
import struct
import threading
import weakref
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]  # typeshed lists public names
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from tedsl.lang.captured import element_of_array, free_name
from tedsl.lang.dtypes import BOOL, DTYPE_NAMES, FLOAT32, INT32, DType
from tedsl.lang.errors import user_location
from tedsl.lang.locks import freed_in_children
from tedsl.lang.names import OF_MODULES, few_elements, instead_of, title_of
from tedsl.lang.operators import NAMES, Fn, Operators
from tedsl.lang.rich import RichFormula

if TYPE_CHECKING:
    from tedsl.lang.reducers import Reducer
    from tedsl.lang.tensor import Tensor

__all__ = [
    "FALSE", "SIZE_MAX", "TRUE", "Apply", "Axis", "Const", "Expr", "Fn", "Formal", "Read", "Reduce", "Var", "WeakFloat",
    "unmarked",
]  # fmt: skip

# The largest symbolic size: a little room below 2**31 keeps index arithmetic such as i + 8 from wrapping.
SIZE_MAX = 2**31 - 1 - 2**20


class _Interned(weakref.ref[Any]):
    """A node in the table of all nodes, and where it stands there."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


# Keyed by class and fields, nodes and what is there for good by id: an entry dies with its node, which keeps its
# children alive. A dictionary of its own, as nodes are made by the hundred thousand: a WeakValueDictionary took half
# of the time that a node takes.
_INTERNED: dict[tuple[Any, ...], _Interned] = {}
# Two threads that write the same expression must get the same node. Reentrant, since a collection may run code.
_INTERNING = freed_in_children(threading.RLock())


def _forget(gone: _Interned) -> None:
    """Take a node that is no more out of the table, unless another one stands in its place.

    In one go, as WeakValueDictionary does it: a collection may come anywhere, also where others wait for this thread.
    """
    _remove_dead_weakref(_INTERNED, gone.key)


_SERIAL = itertools.count()


_OF_ELEMENTS = NAMES | {"abs", "clip", "erf", "erfc", "isfinite", "pow", "relu", "rsqrt", "sigmoid"}
_OVER_AXES = frozenset(("all", "any", "argmax", "argmin", "max", "min", "prod", "sum"))


def _has_axis(expr: Expr) -> bool:
    """Whether an axis counts what an expression stands for."""
    left, seen = [expr], {expr}
    while left:
        e = left.pop()
        if isinstance(e, Axis):
            return True
        new = set(e.children) - seen
        seen |= new
        left += new
    return False


class Expr(Operators["Expr"], RichFormula):
    """A scalar expression of a dtype. Arithmetic, comparisons and `& | ~` build larger ones."""

    __slots__ = ("__weakref__", "dtype")
    dtype: DType
    children: tuple[Expr, ...] = ()  # a slot of the nodes that have some: walks ask every node
    _below: tuple[Expr, ...] | None = ()  # likewise: what `traverse.topological` found, None before it looked
    _answers: dict[Any, Any] | None = None  # likewise: what was found of it, see `tedsl.lang.answers`
    is_weak: bool = False  # an int or a condition of axes, extents and Python numbers alone: see tedsl.lang.weak
    # Attached by tedsl.lang.printing, which knows every node and so lies above this module.
    _text: ClassVar[Callable[[Expr], str]]
    _decided: ClassVar[Callable[[Expr], bool | None]]  # attached by tedsl.lang.extents
    _numpy: ClassVar[dict[str, Callable[..., Any]]] = {}  # functions of arrays that scalars have; tedsl.lang.arrays

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """The same node over other children."""
        return self

    def astype(self, dtype: object) -> Expr:
        """The value converted to another dtype."""
        return self._apply(Fn.CAST, self, dtype)  # type: ignore[no-any-return]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot set {name}")

    if not TYPE_CHECKING:  # which would take every name for one that there is

        def __getattr__(self, name: str) -> NoReturn:
            """Nothing of this name; those who ask mostly took an element for a tensor."""
            told = f"; over an axis it is te.{name}(lambda k: x[i, k])" if name in _OVER_AXES else ""
            told = f"; it is te.{name}(x[i])" if name in self._ufuncs or name in _OF_ELEMENTS else told
            told = f"; {OF_MODULES[name]}" if name in OF_MODULES else told
            told = "; it is one number, of no axes" if name in ("shape", "ndim", "size") else told
            raise AttributeError(f"a scalar expression has no attribute {name!r}{told}", name=name, obj=self)

    def __bool__(self) -> bool:
        known = type(self)._decided(self)
        if known is not None:
            return known
        raise TypeError(
            f"the truth of `{self}` is not known while the expression is written, at {user_location()}; use "
            "te.select(cond, a, b) instead of if/else, te.maximum and te.minimum instead of max and min, and & | ~ "
            "instead of and/or/not and chained comparisons"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError(f"`{self}` is one scalar and cannot be iterated, at {user_location()}")

    def __index__(self) -> int:
        if isinstance(self, Var):
            raise TypeError(
                f"`{self}` is a size that is not known yet, at {user_location()}; a loop over it is an axis: "
                f"te.compute(({self},), lambda i: ...), "
                f"te.sum over te.reduce_axis({self}), or te.scan(({self},), ...); "
                "te.zeros, te.ones and te.arange take one"
            )
        if self.dtype.is_float:
            raise TypeError(
                f"`{self}` is {self.dtype} and symbolic: its value is not known while the expression is written, at "
                f"{user_location()}; as an index it is te.cast(x, 'int32')"
            )
        raise TypeError(
            f"`{self}` is symbolic: its integer value is not known while the expression is written, at "
            f"{user_location()}; to read an element of a list or an array there, make it a tensor: "
            f"{element_of_array(self)}; a sum over range(i) is te.sum(lambda k: ..., where=lambda k: k < i)"
        )

    def __array__(self, dtype: object = None, copy: object = None, **_: object) -> NoReturn:
        """NumPy asks for an array where an expression stands as an index of one, and passes this error on."""
        if isinstance(self, Var):
            raise TypeError(
                f"`{self}` is a size that is not known yet, at {user_location()}; te.arange, te.zeros, te.ones and the "
                "like take one"
            )
        few = (
            few_elements(str(self), free_name())
            if _has_axis(self)
            else "te.stack([a, b, ...]) makes a tensor of such elements"
        )
        cast = f'te.cast({self}, "{dtype}") converts it; ' if str(dtype) in DTYPE_NAMES else ""
        raise TypeError(
            f"`{self}` is symbolic and no array, at {user_location()}; {cast}to read an element of a NumPy array at "
            f"it, make that a tensor first: {element_of_array(self)}; {few}"
        )

    __dlpack__ = __dlpack_device__ = __array__  # what torch.tensor(e) asks for

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """np.where(i < n, x[i], 0), np.clip(x[i], 0, 1): ours of that name."""
        rule = self._numpy.get(function.__name__)
        if rule is None:
            raise TypeError(
                f"{title_of(function)} at {user_location()}: takes arrays, found `{self!r:.60}`, one scalar; "
                f"{instead_of(title_of(function))}"
            )
        return rule(*args, **kwargs)

    def __float__(self) -> float:
        raise TypeError(
            f"`{self}` is symbolic: use te.cast(x, dtype) to convert, or te.evaluate to compute, at {user_location()}; "
            "an array cannot hold it: te.stack([a, b, ...]) makes a tensor of elements that no axis counts, "
            "x.at[i].set(v) one with another element; in place of a function of math use that of te: te.cos, te.exp, "
            "te.sqrt"
        )

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"`{self}` cannot be pickled: expressions are told apart by identity; pickle the function that writes the "
            "program"
        )

    def __str__(self) -> str:
        return type(self)._text(self)

    def __repr__(self) -> str:
        return f"{self} : {self.dtype}"


E = TypeVar("E", bound=Expr)


def _new(cls: type[E], dtype: DType, **fields: object) -> E:
    node, give = object.__new__(cls), object.__setattr__
    give(node, "dtype", dtype)
    for name, value in fields.items():
        give(node, name, value)
    return node


def _interned(key: tuple[Any, ...], node: E) -> E:
    """The node that is known by `key`: the one that was made for it, unless another thread was first."""
    entry = _Interned(node, _forget)
    entry.key = key
    with _INTERNING:
        known = _known(key)
        if known is None:
            _INTERNED[key] = entry
            known = node
    return known  # type: ignore[no-any-return]


def _known(key: tuple[Any, ...]) -> Any:
    """The node that is known by `key`, or None."""
    entry = _INTERNED.get(key)
    return None if entry is None else entry()


def _giver(cls: type[Expr], name: str) -> Callable[[Expr, object], None]:
    """What gives a new node a field, for those that are made most: by name it takes twice as long."""
    return vars(cls)[name].__set__  # type: ignore[no-any-return]


_give_dtype = _giver(Expr, "dtype")


def _ids(nodes: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(map(id, nodes))


def _bits(value: bool | int | float) -> bytes | int | bool:
    return struct.pack("<d", value) if isinstance(value, float) else value


class Const(Expr):
    """A literal. One of int32 is a Python integer, and so weak, unless it is `typed`: its dtype was asked for."""

    __slots__ = ("is_weak", "value")
    value: bool | int | float

    def __new__(cls, value: bool | int | float, dtype: DType, *, typed: bool = False) -> Const:
        is_weak = dtype is INT32 and not typed
        key = (cls, _bits(value), id(dtype), is_weak)
        node: Const | None = _known(key)
        if node is None:
            node = _interned(key, _new(cls, dtype, value=value, is_weak=is_weak))
        return node


class Var(Expr):
    """A symbolic extent, from zero to SIZE_MAX."""

    __slots__ = ("name", "serial")
    is_weak = True
    name: str
    serial: int  # counts symbols as they are made: an order that depends on the program only

    def __new__(cls, name: str) -> Var:
        return _new(cls, INT32, name=name, serial=next(_SERIAL))


class Axis(Expr):
    """One loop: an int32 value in [begin, begin + extent). Without an extent it waits for range inference."""

    __slots__ = ("begin", "extent", "is_reduce", "name", "serial")
    is_weak = True
    name: str
    serial: int
    begin: Expr
    extent: Expr | None
    is_reduce: bool

    def __new__(cls, name: str, extent: Expr | None, *, begin: Expr | None = None, is_reduce: bool = False) -> Axis:
        start = Const(0, INT32) if begin is None else unmarked(begin)
        length = None if extent is None else unmarked(extent)
        return _new(cls, INT32, name=name, serial=next(_SERIAL), begin=start, extent=length, is_reduce=is_reduce)


class Formal(Expr):
    """An argument of a custom reducer's combine function."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str, dtype: DType) -> Formal:
        return _new(cls, dtype, name=name)


class Apply(Expr):
    """A pointwise operation on operands that are already promoted."""

    __slots__ = ("_answers", "_below", "args", "children", "fn", "is_weak")
    fn: Fn
    args: tuple[Expr, ...]

    def __new__(cls, fn: Fn, args: tuple[Expr, ...], dtype: DType) -> Apply:
        key = (cls, id(fn), id(dtype), *map(id, args))
        entry = _INTERNED.get(key)
        node: Apply | None = None if entry is None else entry()
        if node is None:
            made = object.__new__(cls)
            _give_dtype(made, dtype)
            _give_fn(made, fn)
            _give_args(made, args)
            _give_operands(made, args)
            _give_weakness(made, _is_weak(fn, args, dtype))
            _give_below(made, None)
            _give_answers(made, None)
            node = _interned(key, made)
        return node

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return type(self)(self.fn, children, self.dtype)


_give_fn, _give_args, _give_operands, _give_weakness, _give_below, _give_answers = (
    _giver(Apply, name) for name in ("fn", "args", "children", "is_weak", "_below", "_answers")
)


def _is_weak(fn: Fn, args: tuple[Expr, ...], dtype: DType) -> bool:
    """Whether all that a value is made of is weak: of a selection its branches, of an int also a bool as 0 and 1."""
    if dtype is not INT32 and dtype is not BOOL:
        return False
    if fn is Fn.CAST and args[0].dtype is not BOOL:
        return False
    return all(a.is_weak for a in (args[1:] if fn is Fn.SELECT else args))


class WeakFloat(Apply):
    """An operation on weak operands whose value is a float: float32 alone, else of the type of what it meets.

    It stands in the hands of whoever writes an expression, and in no definition: there it is settled.
    """

    __slots__ = ()

    def __new__(cls, fn: Fn, args: tuple[Expr, ...], dtype: DType = FLOAT32) -> WeakFloat:
        made: WeakFloat = super().__new__(cls, fn, args, dtype)  # type: ignore[assignment]
        return made


def unmarked(expr: Expr) -> Expr:
    """An int without the mark that makes a weak one strong: the typed literal, the cast from int32 to int32."""
    if expr.dtype is not INT32 or expr.is_weak:
        return expr
    if isinstance(expr, Const):
        return Const(expr.value, INT32)
    if isinstance(expr, Apply) and expr.fn is Fn.CAST and expr.args[0].dtype is INT32:
        return expr.args[0]
    return expr


class Read(Expr):
    """An element of a tensor; every index must be in bounds where the value is used."""

    __slots__ = ("_below", "children", "indices", "tensor")
    tensor: Tensor
    indices: tuple[Expr, ...]

    def __new__(cls, tensor: Tensor, indices: tuple[Expr, ...]) -> Read:
        indices = tuple([i if i.is_weak or i.dtype is not INT32 else unmarked(i) for i in indices])
        key = (cls, id(tensor), *map(id, indices))
        entry = _INTERNED.get(key)
        node: Read | None = None if entry is None else entry()
        if node is None:
            made = object.__new__(cls)
            _give_dtype(made, tensor.dtype)
            _give_tensor(made, tensor)
            _give_indices(made, indices)
            _give_places(made, indices)
            _give_below_read(made, None)
            node = _interned(key, made)
        return node

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Read(self.tensor, children)


_give_tensor, _give_indices, _give_places, _give_below_read = (
    _giver(Read, name) for name in ("tensor", "indices", "children", "_below")
)


class Reduce(Expr):
    """Component `index` of `reducer` over `values` for all points of `axes` at which `where` holds."""

    __slots__ = ("_below", "axes", "children", "index", "reducer", "values", "where")
    reducer: Reducer
    values: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    where: Expr
    index: int

    def __new__(
        cls, reducer: Reducer, values: tuple[Expr, ...], axes: tuple[Axis, ...], where: Expr, index: int = 0
    ) -> Reduce:
        key = (cls, id(reducer), _ids(values), _ids(axes), id(where), index)
        node: Reduce | None = _known(key)
        if node is None:
            fields = {"reducer": reducer, "values": values, "axes": axes, "where": where, "index": index}
            dtype, children = reducer.result_dtype(values, index), (*values, where)
            node = _interned(key, _new(cls, dtype, children=children, _below=None, **fields))
        return node

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Reduce(self.reducer, children[:-1], self.axes, children[-1], self.index)

    def with_axes(self, axes: tuple[Axis, ...]) -> Reduce:
        """The same reduction over other axes."""
        return Reduce(self.reducer, self.values, axes, self.where, self.index)


# Strong references: the two constants are never collected.
TRUE = Const(True, BOOL)
FALSE = Const(False, BOOL)
