"""Tensors and the operations that define them.

An operation is fields and a docstring; a `Tensor` is one of its outputs. Operations are compared by identity: two equal
definitions are two tensors (`tedsl.lang.structure` tells when they are the same program).
"""

from __future__ import annotations

import hashlib
import itertools
import re
import weakref
from collections.abc import Callable
from dataclasses import field
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, overload

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.at import At
from tedsl.lang.captured import array_read_there
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import BOTTOM, DTYPE_NAMES, INT32, DType
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read, Reduce
from tedsl.lang.guards import guards_of
from tedsl.lang.keywords import spoken
from tedsl.lang.locks import cached_property
from tedsl.lang.names import OF_TENSORS, instead_of, title_of
from tedsl.lang.operators import Fn, Operators
from tedsl.lang.rich import Rich, RichFormula
from tedsl.lang.traverse import reads_of, substitute, topological

__all__ = [
    "AUTHOR_RULES",
    "NUMBERS",
    "Compute",
    "Constant",
    "Extern",
    "IndexFacts",
    "Operation",
    "Placeholder",
    "Scan",
    "ScanState",
    "Scatter",
    "StepPart",
    "StepStage",
    "Tensor",
]

Shape = tuple[Expr, ...]
NUMBERS = itertools.count()
AUTHOR_RULES = "_autodiff_rules"  # where an operation has the derivatives that an author gave to its outputs


@dataclass(frozen=True, eq=False, kw_only=True)
class Operation:
    """What defines one or several tensors, under names; `where` is the user's file and line.

    `number` grows from operation to operation.
    """

    name: str
    names: tuple[str, ...] | None = None  # of the outputs, where they are several
    where: str = field(default_factory=user_location)
    number: int = field(default_factory=NUMBERS.__next__, repr=False)
    _outputs: dict[int, weakref.ref[Tensor]] = field(default_factory=dict, repr=False)

    @property
    def num_outputs(self) -> int:
        return 1

    def shape_of(self, index: int) -> Shape:
        raise NotImplementedError

    def dtype_of(self, index: int) -> DType:
        raise NotImplementedError

    def name_of(self, index: int) -> str:
        if self.names:
            return self.names[index]
        return self.name if self.num_outputs == 1 else f"{self.name}_{index}"

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The scalar expressions of the definition."""
        return ()

    @cached_property
    def nodes(self) -> tuple[Expr, ...]:
        """Every node of the definition, operands before users, in the order a reader meets them."""
        return tuple(topological(self.expressions))

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The reads of the definition, each once, in order."""
        return tuple([node for node in self.nodes if isinstance(node, Read)])

    @cached_property
    def read_guards(self) -> dict[Read, Expr]:
        """The reads, each with the condition under which the definition uses it."""
        guards = guards_of(self.expressions)
        return {read: guards[read] for read in self.reads}

    @cached_property
    def looks_up(self) -> bool:
        """Whether an element is read at a place that is read itself."""
        return len(self.reads) > 1 and any(reads_of(read.indices) for read in self.reads)

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors read, each once, in the order of their first read."""
        return tuple(dict.fromkeys([read.tensor for read in self.reads]))

    def output(self, index: int = 0) -> Tensor:
        """The tensor for one output: the same object as long as anyone holds it."""
        known = self._outputs.get(index)
        tensor = known() if known is not None else None
        if tensor is None:
            tensor = Tensor(self, index)
            self._outputs[index] = weakref.ref(tensor)
        return tensor

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.output(i) for i in range(self.num_outputs))


@dataclass(frozen=True, eq=False, kw_only=True)
class Placeholder(Operation):
    """An array given when the kernel is called; `strides`: in elements, of one that is a box of a larger array."""

    shape: Shape
    dtype: DType
    strides: tuple[int, ...] = ()

    def shape_of(self, index: int) -> Shape:
        return self.shape

    def dtype_of(self, index: int) -> DType:
        return self.dtype


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(Placeholder):
    """An array that the program brings along: an input of every kernel, which feeds it without being asked."""

    array: np.ndarray[Any, Any] = field(repr=False)

    @cached_property
    def digest(self) -> str:
        """A SHA-256 of the elements."""
        return hashlib.sha256(self.array.tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class IndexFacts:
    """What is known of integers, for the elements of each row along `axis`.

    `permutation`: each place of the row once. `unique`: none twice. `sorted`: in ascending order. `within`: from the
    first to before the second. `inverse` has the place of each place, where `permutation` holds.
    """

    permutation: bool = False
    unique: bool = False
    sorted: bool = False
    within: tuple[Expr, Expr] | None = None
    inverse: Tensor | None = None
    axis: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopNest(Operation):
    """One loop nest over `axes` with a body for each output."""

    axes: tuple[Axis, ...]
    bodies: tuple[Expr, ...]

    @property
    def num_outputs(self) -> int:
        return len(self.bodies)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.bodies

    def shape_of(self, index: int) -> Shape:
        return tuple(_known(a) for a in self.axes)

    def dtype_of(self, index: int) -> DType:
        return self.bodies[index].dtype


@dataclass(frozen=True, eq=False, kw_only=True)
class Compute(LoopNest):
    """A loop nest whose bodies are pointwise, or all of them the components of one reduction.

    `facts` are what somebody said of the elements of the first output.
    """

    facts: IndexFacts | None = None

    @property
    def reduction(self) -> Reduce | None:
        """The reduction that the bodies are components of, if they are."""
        first = self.bodies[0]
        return first if isinstance(first, Reduce) else None

    def written_at(self, read: Read) -> Expr:
        """What is computed at the place at which it is read."""
        return substitute(self.bodies[read.tensor.index], dict(zip(self.axes, read.indices, strict=True)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Scatter(Operation):
    """out = init (or the identity of `kind`), then out[index] kind= value at every point of `axes` where `guard`.

    `unique`: no two points have one index, so that they may go to several threads.
    """

    shape: Shape
    axes: tuple[Axis, ...]
    index: tuple[Expr, ...]
    value: Expr
    guard: Expr
    kind: str
    init: Tensor | None
    unique: bool = False

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*self.index, self.value, self.guard)

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        read = [r.tensor for r in self.reads]
        return tuple(dict.fromkeys(read + ([] if self.init is None else [self.init])))

    def shape_of(self, index: int) -> Shape:
        return self.shape

    def dtype_of(self, index: int) -> DType:
        return self.value.dtype


@dataclass(frozen=True, eq=False, kw_only=True)
class ScanState(Operation):
    """The handle by which a scan's body reads the steps already done; `along`: its axis of steps, if that is one."""

    shape: Shape
    dtype: DType
    along: Axis | None = None

    def shape_of(self, index: int) -> Shape:
        return self.shape

    def dtype_of(self, index: int) -> DType:
        return self.dtype


@dataclass(frozen=True, eq=False, kw_only=True)
class StepStage(LoopNest):
    """Tensors that each step of a scan makes, while its function runs: stored by the scan then, or written out."""


@dataclass(frozen=True, eq=False)
class StepPart:
    """What one phase of the steps of a packed scan computes: a box of an output, that of the last axes."""

    name: str
    output: int
    phase: int
    extents: Shape


@dataclass(frozen=True, eq=False, kw_only=True)
class Scan(Operation):
    """Tensors filled step by step; bodies read `states` at earlier steps (later ones if `reverse`).

    The steps are those of the axes in `dims`, the first of which moves slowest. Of those along a single axis only the
    last ones may be kept: `kept` says how many the tensors hold.

    A scan with `parts` is packed: the last axis of its steps counts phases, each with parts of one shape at the end of
    the axes that follow; elements outside of these are nobody's.

    `ruled` names the stages of a step that have a derivative by their author.
    """

    axes: tuple[Axis, ...]
    states: tuple[Tensor, ...]
    bodies: tuple[Expr, ...]
    dims: tuple[int, ...]
    reverse: bool
    kept: int | None = None
    parts: tuple[StepPart, ...] = ()
    ruled: tuple[str, ...] = ()

    @property
    def num_outputs(self) -> int:
        return len(self.bodies)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.bodies

    @property
    def steps(self) -> tuple[Axis, ...]:
        """The axes along which it goes, the slowest first."""
        return tuple(self.axes[d] for d in self.dims)

    def part_of(self, read: Read) -> StepPart | None:
        """The part that a read lies in, of a state or of a result, where the scan is packed."""
        output = read.tensor.index if read.tensor.op is self else self._positions.get(read.tensor)
        if not self.parts or output is None:
            return None
        phase = read.indices[self.dims[-1]]
        known = phase.value if isinstance(phase, Const) else None
        return next((p for p in self.parts if p.output == output and p.phase == known), None)

    @cached_property
    def _positions(self) -> dict[Tensor, int]:
        return {state: k for k, state in enumerate(self.states)}

    @cached_property
    def handles(self) -> dict[StepPart, Tensor]:
        """Each part of a packed scan as a tensor, by which people speak of it."""
        steps = tuple(_known(a) for a in self.axes[: self.dims[-1]])
        made = {}
        for part in self.parts:
            shape, dtype = (*steps, *part.extents), self.dtype_of(part.output)
            made[part] = ScanState(name=part.name, where=self.where, shape=shape, dtype=dtype).output()
        return made

    def as_written(self, read: Read) -> Read:
        """A read of a part by its handle; any other as it is."""
        part = self.part_of(read)
        if part is None:
            return read
        own = read.indices[len(read.indices) - len(part.extents) :] if part.extents else ()
        return Read(self.handles[part], (*read.indices[: self.dims[-1]], *own))

    def bounds_of(self, read: Read) -> Shape:
        """The extents of what is read: those of the part, where the scan is packed and a state is read."""
        part, extents = self.part_of(read), read.tensor.extents
        if part is None:
            return extents
        around = extents[: self.dims[-1] + 1]
        units = (Const(1, INT32),) * (len(extents) - len(around) - len(part.extents))
        return (*around, *units, *part.extents)

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors read, its own states excepted."""
        own = set(map(id, self.states))
        return tuple(t for t in super().inputs if id(t) not in own)

    def shape_of(self, index: int) -> Shape:
        extents = [_known(a) for a in self.axes]
        if self.kept is not None:
            extents[self.dims[0]] = Const(self.kept, extents[self.dims[0]].dtype)
        return tuple(extents)

    def dtype_of(self, index: int) -> DType:
        return self.bodies[index].dtype


@dataclass(frozen=True, eq=False, kw_only=True)
class Extern(Operation):
    """A Python function of whole arrays; `pure` promises that equal arguments give equal results and nothing else."""

    function: Callable[..., Any]
    shapes: tuple[Shape, ...]
    dtypes: tuple[DType, ...]
    args: tuple[Tensor, ...]
    pure: bool

    @property
    def num_outputs(self) -> int:
        return len(self.shapes)

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys(self.args))

    def shape_of(self, index: int) -> Shape:
        return self.shapes[index]

    def dtype_of(self, index: int) -> DType:
        return self.dtypes[index]


def tell(tensor: Tensor, hint: str) -> None:
    """Let messages about an index of the tensor end in a hint."""
    vars(tensor.op)["_told"] = hint


def _known(axis: Axis) -> Expr:
    assert axis.extent is not None, f"axis {axis.name} has no extent yet"
    return axis.extent


def tell_of_arrays(error: AttributeError) -> None:
    """Say in an error of an array, such as NumPy's own for `image.at`, that a tensor has what was asked for."""
    owner, name = getattr(error, "obj", None), getattr(error, "name", None)
    is_array = hasattr(owner, "dtype") and hasattr(owner, "shape") and not isinstance(owner, Operators)
    if is_array and name is not None and hasattr(Tensor, name) and "te.constant" not in str(error):
        error.args = (
            f"{error}, at {user_location()}; a tensor has it: make the array one first, c = te.constant(array), then "
            f"c.{name}",
        )


def tell_of_scalars(error: TypeError, hint: str = "") -> None:
    """Say in Python's own error of `i[0]` where it was written and what it means."""
    if re.fullmatch(r"'(Axis|Read|Apply|Const|Reduce|Var)' object is not subscriptable", str(error)):
        error.args = (f"{error}, at {user_location()}: one scalar has no elements{hint}",)


def tell_of_indices(error: IndexError) -> None:
    """Say in PyTorch's own error of `a[i]` how an element of its tensors is read at an axis."""
    if re.search(r"valid indices \(got (Axis|Read|Apply|Const|Reduce|Var)\)", str(error)):
        error.args = (
            f"{error}, at {user_location()}; to read an element of a tensor of PyTorch at an axis, make that one of "
            "tedsl first, as a = te.constant(array)",
        )


@spoken("x")
class Tensor(Operators["Tensor"], Rich, RichFormula):
    """A value of a shape and a dtype: `A[i, j]` reads an element, `A + B`, `A.sum(0)`, `A[1:]` make tensors.

    `A.dtype` is compared with a name: `A.dtype == "float32"`. Every function of one tensor is a method, too, such as
    `A.exp()`, `A.cumsum(0)`, `A.argmax(1)`, `A.squeeze()`.
    """

    __slots__ = ("__weakref__", "_explanation", "dtype", "extents", "index", "op")
    _explanation: Any  # of gradients alone; set by autodiff
    # Attached by tedsl.lang.arrays and tedsl.lang.printing, which build on tensors and so lie above this module.
    _methods: ClassVar[dict[str, Callable[..., Any]]] = {}
    _numpy: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init__(self, op: Operation, index: int = 0) -> None:
        if not isinstance(op, Operation):
            raise TypeError(
                f"te.Tensor at {user_location()}: tensors are made by te.placeholder, te.compute and the like, and "
                f"te.constant(array); found {type(op).__name__}"
            )
        self.op = op
        self.index = index
        self.extents = op.shape_of(index)
        self.dtype = op.dtype_of(index)

    @property
    def name(self) -> str:
        """What formulas, loops, errors and kernels call it by."""
        return self.op.name_of(self.index)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Integers, and expressions of `te.var`s where an extent is symbolic."""
        return tuple(e.value if isinstance(e, Const) else e for e in self.extents)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.extents)

    @property
    def size(self) -> Any:
        """The number of elements: an integer, or an expression of `te.var`s."""
        return reduce(mul, self.shape) if self.shape else 1

    def explain(self) -> Any:
        """How each read was turned around, of a gradient that `te.differentiate(y, x)` gave; prints as a table."""
        found = getattr(self, "_explanation", None)
        if found is None:
            raise TypeError(
                f"{self!r} is no gradient, at {user_location()}: te.differentiate(y, x).explain() says how each read "
                "was turned around; te.display.program(y) and te.work(y) tell of any tensor"
            )
        return found

    def as_scalar(self) -> Expr:
        """The one element of a 0-rank tensor."""
        if self.extents:
            raise TypeError(
                f"tensor {self!r} stands where a scalar is expected, at {user_location()}; "
                f"read an element: {self.name}[{', '.join('ijklmn'[d % 6] for d in range(self.ndim))}]"
            )
        return Read(self, ())

    @overload
    def __getitem__(self, key: Expr | int | tuple[Expr | int, ...]) -> Item: ...
    @overload
    def __getitem__(self, key: Any) -> Tensor: ...
    def __getitem__(self, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        if len(items) == self.ndim and all(_is_scalar(item) for item in items):
            return Read(self, tuple(self._index(d, item) for d, item in enumerate(items)))
        return self._methods["getitem"](self, items)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise TypeError(
            f"{self!r} is a value and cannot be assigned to, at {user_location()}: make the new one by "
            f"{self.name}.at[index].set(value), te.where or te.scatter, or trace such code with te.functionalize"
        )

    def _index(self, dim: int, item: Any) -> Expr:
        """The index expression for one dimension; a negative Python integer counts from the end, as in NumPy."""
        item = item[()] if isinstance(item, np.ndarray) and item.ndim == 0 else item
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            extent = self.extents[dim]
            if isinstance(extent, Const) and not -extent.value <= item < extent.value:
                raise IndexError(
                    f"index {item} of dimension {dim} of {self!r} is out of bounds, at {user_location()}: "
                    f"expected {-extent.value} <= index < {extent.value}{vars(self.op).get('_told', '')}"
                )
            return fn.as_expr(int(item)) if item >= 0 else extent + int(item)
        index = fn.as_expr(item)
        if not index.dtype.may_be_integer:
            raise TypeError(
                f"index {dim} of {self!r} at {user_location()}: expected an integer, found {index.dtype} `{index}`; "
                "use te.cast(x, 'int32') to make it one"
            )
        return index

    @property
    def at(self) -> At:
        """`x.at(i, j, mode="zero")`: an element that may lie outside; `x.at[0, 1:].set(v)`: x with others there."""
        return At(self)

    def __iter__(self) -> Any:
        if not self.extents or not isinstance(self.extents[0], Const):
            raise TypeError(
                f"{self!r} cannot be iterated: {self._unknown_length('te.compute and te.scan loop over it')}"
            )
        return (self[d] for d in range(int(self.extents[0].value)))

    def __len__(self) -> int:
        if not self.extents or not isinstance(self.extents[0], Const):
            raise TypeError(f"{self!r} has no known length: {self._unknown_length('te.arange(#) has its numbers')}")
        return int(self.extents[0].value)

    def _unknown_length(self, use: str) -> str:
        """Why there is no number of rows, and what to write instead."""
        if not self.extents:
            return f"it is one number, of rank 0, at {user_location()}"
        name = self.name if self.name.isidentifier() else "x"
        return (
            f"its first extent is `{self.extents[0]}`, no number yet, at {user_location()}; it is {name}.shape[0], "
            f"{use.replace('#', f'{name}.shape[0]')}"
        )

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth of tensor {self!r} is not known while the program is written, at {user_location()}; use "
            "te.select or te.where"
        )

    def __float__(self) -> NoReturn:
        self._refuse_number("float32")

    def __int__(self) -> NoReturn:
        self._refuse_number("int32")

    def __index__(self) -> NoReturn:
        name = self.name if self.name.isidentifier() else "x"
        raise TypeError(
            f"{self!r} has no number while the program is written, at {user_location()}: elements of a list are "
            f"te.constant([...])[{name}], and a loop of so many rounds is a te.scan of as many as there may be, whose "
            f"steps from {name} on keep what they find"
        )

    def _refuse_number(self, dtype: str) -> NoReturn:
        raise TypeError(
            f"{self!r} has no number while the program is written, at {user_location()}: te.evaluate computes it, "
            f"{self._converted(dtype)} converts it, and functions are those of te: te.exp, te.sqrt in place of "
            "math.exp, math.sqrt"
        )

    def _converted(self, dtype: object) -> str:
        return f'{self.name if self.name.isidentifier() else "x"}.astype("{dtype}")'

    def __array__(self, dtype: object = None, copy: object = None, **_: object) -> NoReturn:
        """NumPy asks for an array of a dtype where that is called on a tensor: np.float32(x)."""
        name = self.name if self.name.isidentifier() else "x"
        places = (
            f"elements of an array of NumPy at these places are te.constant({array_read_there() or 'array'})[{name}], "
            f"those of np.eye(c) te.ops.one_hot({name}, c); "
        )
        out = f"leave np.asarray and np.array out, {name} is a tensor; "
        cast = f"{self._converted(dtype)} converts them, " if str(dtype) in DTYPE_NAMES else out
        raise TypeError(
            f"{self!r} has no elements while the program is written, at {user_location()}: "
            f"{places if self.dtype.is_integer else ''}{cast}te.evaluate computes "
            "them, te.stack([a, b, ...]) puts several into one, te.hstack too, in place of np.c_ and np.r_"
        )

    __dlpack__ = __dlpack_device__ = __array__  # what torch.tensor(x) asks for

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: object) -> Tensor:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled: tensors are told apart by identity; pickle the function that writes the "
            "program, or save its schedule with te.Schedule.save"
        )

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"{self.name} : {'' if self.dtype is BOTTOM else self.dtype}[{shape}]"

    def __str__(self) -> str:
        return self._methods["text"](self)  # type: ignore[no-any-return]

    def __matmul__(self, other: Any) -> Tensor:
        return self._methods["matmul"](self, other)  # type: ignore[no-any-return]

    def __rmatmul__(self, other: Any) -> Tensor:
        return self._methods["matmul"](other, self)  # type: ignore[no-any-return]

    @property
    def T(self) -> Tensor:  # noqa: N802 - NumPy's name
        """The axes in reverse order."""
        return self.transpose()

    def transpose(self, *axes: Any) -> Tensor:
        """The axes in another order (reversed when none is given)."""
        return self._methods["transpose"](self, *axes)  # type: ignore[no-any-return]

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in row-major order under another shape; one extent may be -1."""
        return self._methods["reshape"](self, *shape)  # type: ignore[no-any-return]

    def named(self, name: str) -> Tensor:
        """An equal tensor under a name that formulas, loops, gradients and schedules call it by."""
        return self._methods["named"](self, name)  # type: ignore[no-any-return]

    def astype(self, dtype: object) -> Tensor:
        """The elements converted to another dtype."""
        return self._apply(Fn.CAST, self, dtype)  # type: ignore[no-any-return]

    def sum(
        self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None, where: Any = None, initial: Any = None
    ) -> Tensor:
        """The sum over an axis, several, or all, of what a mask chooses; integers in 64 bits unless told."""
        return self._methods["sum"](self, axis, keepdims, dtype=dtype, where=where, initial=initial)  # type: ignore[no-any-return]

    def mean(self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None, where: Any = None) -> Tensor:
        """The mean over an axis, several, or all, of what a mask chooses."""
        return self._methods["mean"](self, axis, keepdims, dtype=dtype, where=where)  # type: ignore[no-any-return]

    def max(self, axis: Any = None, keepdims: bool = False, *, where: Any = None, initial: Any = None) -> Tensor:
        """The largest element over an axis, several, or all, of what a mask chooses."""
        return self._methods["max"](self, axis, keepdims, where=where, initial=initial)  # type: ignore[no-any-return]

    def min(self, axis: Any = None, keepdims: bool = False, *, where: Any = None, initial: Any = None) -> Tensor:
        """The smallest element over an axis, several, or all, of what a mask chooses."""
        return self._methods["min"](self, axis, keepdims, where=where, initial=initial)  # type: ignore[no-any-return]

    def prod(
        self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None, where: Any = None, initial: Any = None
    ) -> Tensor:
        """The product over an axis, several, or all, of what a mask chooses; integers in 64 bits unless told."""
        return self._methods["prod"](self, axis, keepdims, dtype=dtype, where=where, initial=initial)  # type: ignore[no-any-return]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """np.sum(x, 0), np.where(c, x, y): ours of that name."""
        title = title_of(function)
        is_of_module = title.count(".") > 1  # np.linalg.trace is not np.trace
        rule = self._numpy.get(title if is_of_module else function.__name__)
        if rule is None:
            told = instead_of(title)
            raise TypeError(f"{title} at {user_location()}: takes arrays, found {self!r}; {told}")
        return rule(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Nothing of this name; `tedsl.lang.arrays` attaches further methods (any, all, argmax, squeeze, ...)."""
        title = object.__getattribute__(self, "op").name
        told = f"; {OF_TENSORS[name]}" if name in OF_TENSORS else ""
        # With name and obj set, Python itself adds "Did you mean: 'argmax'?" to the traceback.
        raise AttributeError(f"tensor {title!r} has no attribute {name!r}{told}", name=name, obj=self)


if TYPE_CHECKING:

    class Item(Expr, Tensor):  # type: ignore[misc]
        """An element; a tensor where there are fewer indices than axes, which no type knows."""


def _is_scalar(item: Any) -> bool:
    if isinstance(item, (bool, np.bool_)):
        return False
    if isinstance(item, np.ndarray):
        return item.ndim == 0 and item.dtype.kind in "iu"
    return isinstance(item, (int, np.integer, float, np.floating, Expr)) or (
        isinstance(item, Tensor) and item.ndim == 0
    )
