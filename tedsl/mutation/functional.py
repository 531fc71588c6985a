"""`te.functionalize`: in-place Python code as a function of arrays, and its pure form."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from tedsl.analysis.arrays.feeds import checked_dtype
from tedsl.analysis.arrays.nests import map_leaves, no_key_of, static_key
from tedsl.backend.build import build
from tedsl.backend.calling.kernel import Kernel
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import user_location
from tedsl.lang.foreign import check_not_recorded, is_torch, note_writes, tensor_of
from tedsl.lang.keywords import own_arguments
from tedsl.lang.locks import cached_property
from tedsl.lang.pickling import by_name, made_again
from tedsl.lang.tensor import Placeholder, Tensor
from tedsl.mutation.arguments import Argument, BoundStorage, bind, is_array, signature, strided
from tedsl.mutation.array import Array, new_array
from tedsl.mutation.captured import Surroundings
from tedsl.mutation.layouts import Layout, memory_order
from tedsl.mutation.memory import as_numpy
from tedsl.mutation.selected import Selected
from tedsl.mutation.tracing import Origin, Storage, Trace, active_trace
from tedsl.reference import interpret

__all__ = ["Functionalized", "PureForm", "functionalize"]

IN_PROGRAM = (
    "within a program (te.jit, te.grad, te.op, or on tensors) arguments are values, and the caller would not see "
    "it; write into a copy, x = x.copy(), and return it"
)


@own_arguments()
def functionalize(function: Callable[..., Any], *, interpreted: bool = False) -> Functionalized:
    """In-place code on arrays as pure tensors: `f = te.functionalize(fn)`.

    `f(a, b)` runs it on arrays: results are returned, mutated arguments are written back once everything has been
    computed. It is traced once for given shapes, dtypes, strides, overlaps and Python values; arrays that `function`
    captures are taken by their value at that time. `interpreted=True` runs by `te.interpret`: slow, nothing is
    compiled.
    """
    if not callable(function):
        raise TypeError(f"te.functionalize at {user_location()}: expected a function, found {type(function).__name__}")
    return Functionalized(function, interpreted)


@dataclass(frozen=True, eq=False)
class PureForm:
    """The pure form: `outputs` and, for each mutated input, its new value, as tensors over `inputs`."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    mutated: dict[Tensor, Tensor]
    copies: list[tuple[str, str]]
    captured: dict[Tensor, np.ndarray[Any, Any]]  # inputs too: arrays that the function captured, with their values

    def __str__(self) -> str:
        lines = [f"inputs: {', '.join(map(repr, self.inputs)) or 'none'}"]
        lines += [f"output: {t!r}" for t in self.outputs]
        lines += [f"mutated: {old.name} becomes {new!r}" for old, new in self.mutated.items()]
        return "\n".join(lines + [f"copy: {what}: {why}" for what, why in self.copies])


@dataclass(eq=False)
class _Plan:
    """A trace and how to run it on arrays."""

    trace: Trace
    bounds: list[BoundStorage]
    arrays: list[Array]
    result: Any
    fresh: list[Array] = field(default_factory=list)  # results computed into new memory
    kernel: Kernel | None = None

    @cached_property
    def written(self) -> list[Array]:
        """The arguments through which, or through views of which, something was written."""
        return [a for a in self.arrays if a.origin is not None and a.origin.is_written]

    @cached_property
    def memories(self) -> list[_Memory]:
        """The memory of the fresh results: those that are views of one share it."""
        groups: dict[int, list[Array]] = {}
        for array in self.fresh:
            groups.setdefault(id(array.storage), []).append(array)
        return [memory for arrays in groups.values() for memory in _memories(arrays)]

    @cached_property
    def wanted(self) -> list[Tensor]:
        """What is computed: the memory of results, then the new contents of arguments."""
        return [*(m.value for m in self.memories), *(a.value for a in self.written)]


@dataclass(frozen=True, eq=False)
class _Memory:
    """New memory and the results in it: `value` has its axes in the order of memory."""

    value: Tensor
    views: list[tuple[Array, Callable[[Any], Any]]]  # each result, and how it lies in the array that is computed


def _memories(arrays: list[Array]) -> list[_Memory]:
    """The memory of results that share one; where that has gaps, of each its own."""
    storage = arrays[0].storage
    order = _order(storage) if len(arrays) > 1 else None
    if order is not None:
        return [_Memory(_permuted(storage.value, order), [(a, partial(_seen, layout=a.layout)) for a in arrays])]
    return [_own_memory(array) for array in arrays]


def _order(storage: Storage) -> tuple[int, ...] | None:
    """How the axes lie in a memory that they fill."""
    return memory_order(storage.base) if isinstance(storage.base, Layout) else None


def _own_memory(array: Array) -> _Memory:
    """A memory that one result fills, its axes in the order in which they filled their own."""
    order = memory_order(Layout(array.shape, array.ghost.strides, 0))
    plain = tuple(range(array.ndim))
    if order is None or order == plain:
        return _Memory(array.value, [(array, lambda filled: filled)])
    back = tuple(map(int, np.argsort(order)))
    return _Memory(_permuted(array.value, order), [(array, lambda filled: filled.transpose(back))])


def _permuted(value: Tensor, order: tuple[int, ...]) -> Tensor:
    permuted: Tensor = value if order == tuple(range(value.ndim)) else value.transpose(*order)
    return permuted


def _seen(filled: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """A view of a memory that was filled."""
    start, size = filled.__array_interface__["data"][0], filled.itemsize
    return strided(filled, start + layout.offset * size, layout.shape, tuple(s * size for s in layout.strides))


class Functionalized:
    """A function of arrays whose in-place statements were traced into tensors.

    `of_torch`: part of a program of PyTorch, which sees to gradients itself; results are PyTorch's tensors always.
    """

    def __init__(self, function: Callable[..., Any], interpreted: bool = False, of_torch: bool = False) -> None:
        self.function = function
        self.interpreted = interpreted
        self.of_torch = of_torch
        self._plans: dict[Any, _Plan] = {}
        self.__name__ = "function"
        functools.update_wrapper(self, function)  # name, docstring and signature, as help() shows them
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except ValueError:  # a builtin without a signature
            self._signature = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs on arrays of any framework; arguments that the code mutates are written once all is computed."""
        if active_trace() is not None and _has(Array, (args, kwargs)):  # called by code that is traced: a part of it
            return self.function(*args, **kwargs)
        if _has(Tensor, (args, kwargs)):
            return self._inlined(args, kwargs)
        arguments, key = self._found(args, kwargs)
        if key not in self._plans:
            self._plans[key] = self._planned(args, kwargs, arguments)
        return self._run(self._plans[key], arguments)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> tuple[Any, ...]:
        made = (Functionalized, self.function, self.interpreted, self.of_torch)
        return by_name(self) or made_again(str(self), *made)

    def __deepcopy__(self, memo: object) -> Functionalized:  # as of a function
        return self

    def __repr__(self) -> str:
        return f"<functionalized {self.__name__}{self._signature or '(...)'}>"

    def _found(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[list[Argument], Any]:
        """The arrays among the arguments, and what a trace for them depends on."""
        arguments: list[Argument] = []
        statics: list[Any] = []

        def found(value: Any, name: str) -> Any:
            if is_array(value):
                place = f"{self.__name__}: argument {name!r}"
                if not self.of_torch:
                    check_not_recorded(value, place)
                arguments.append(Argument(name, value, checked_dtype(as_numpy(value, place), place)))
                return len(arguments) - 1
            key = static_key(value)
            if key is None:
                raise TypeError(f"te.functionalize: an argument of type {type(value).__name__} {no_key_of(value)}")
            statics.append((name, *key))
            return value

        named = self._named(args, kwargs)
        for name, value in named.items():
            map_leaves(value, name, found)
        key = (
            signature(arguments),
            tuple(statics),
            tuple(a.name for a in arguments),
            self._is_torch(arguments),
        )
        return arguments, key

    def _is_torch(self, arguments: list[Argument]) -> bool:
        return self.of_torch or any(is_torch(a.given) for a in arguments)

    def pure(self, *args: Any, **kwargs: Any) -> PureForm:
        """The pure form for arrays like these: inputs that share memory are one input."""
        arguments, key = self._found(args, kwargs)
        if key not in self._plans:
            self._plans[key] = self._planned(args, kwargs, arguments)
        plan = self._plans[key]
        outputs: list[Tensor] = []
        map_leaves(plan.result, "result", lambda v, name: outputs.append(v.value) if isinstance(v, Array) else None)
        written = {id(a.storage) for a in plan.written}
        storages = [b.storage for b in plan.bounds]
        inputs = [s.placeholder for s in storages if s.placeholder is not None]
        mutated = {s.placeholder: s.value for s in storages if id(s) in written and s.placeholder is not None}
        trace = plan.trace
        return PureForm((*inputs, *trace.captured), tuple(outputs), mutated, trace.copies, trace.captured)

    def trace(self, *args: Any, **kwargs: Any) -> PureForm:
        """The pure form for placeholders (and Python values); extents may be `te.var`s."""
        trace = Trace()
        arrays: dict[Tensor, Array] = {}

        def traced(value: Any, name: str) -> Any:
            if is_array(value):
                raise TypeError(
                    f"{self.__name__}.trace at {user_location()}: argument {name!r} is an array; f.trace(...) takes "
                    "placeholders, f(...) takes arrays"
                )
            if not isinstance(value, Tensor):
                return value
            if value not in arrays:
                if not isinstance(value.op, Placeholder):
                    raise TypeError(
                        f"{self.__name__}.trace at {user_location()}: argument {name!r}: expected a te.placeholder, "
                        f"found {value!r}"
                    )
                made = new_array(trace, value, is_value=False)
                made.storage.placeholder = value
                arrays[value] = Array(made.storage, made.ghost, Origin(name, len(arrays)))
            return arrays[value]

        named = {name: map_leaves(v, name, traced) for name, v in self._named(args, kwargs).items()}
        result = self._called(trace, named)
        outputs: list[Tensor] = []

        def listed(value: Any, name: str) -> None:
            if isinstance(value, Array):
                outputs.append(value.value)

        map_leaves(result, "result", listed)
        mutated = {t: a.storage.value for t, a in arrays.items() if a.origin is not None and a.origin.is_written}
        return PureForm((*arrays, *trace.captured), tuple(outputs), mutated, trace.copies, trace.captured)

    def _inlined(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The results on tensors, as within te.jit and te.grad. They are values, so that no write to one is allowed."""
        trace = Trace(is_inlined=True)
        numbers = itertools.count()

        def traced(value: Any, name: str) -> Any:
            if not isinstance(value, Tensor) and not is_array(value):
                return value
            tensor = value if isinstance(value, Tensor) else trace.capture(as_numpy(value, f"{self.__name__}: {name}"))
            made = new_array(trace, tensor, is_value=False)
            return Array(made.storage, made.ghost, Origin(name, next(numbers), refusal=IN_PROGRAM))

        named = {name: map_leaves(v, name, traced) for name, v in self._named(args, kwargs).items()}
        return map_leaves(self._called(trace, named), "result", lambda v, _: v.value if isinstance(v, Array) else v)

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments under the names of the function's parameters."""
        if self._signature is None:
            return {**{f"argument {k}": v for k, v in enumerate(args)}, **kwargs}
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{self.__name__}{self._signature}: {error}") from None

    def _called(self, trace: Trace, named: dict[str, Any]) -> Any:
        """What the function returns on traced arrays, its tensors as arrays."""
        before = {name: map_leaves(value, name, lambda leaf, _: leaf) for name, value in named.items()}
        args, kwargs = self._placed(named)
        around = Surroundings(self.function, self.__name__)
        try:
            with trace.active():
                result = self.function(*args, **kwargs)
        except ValueError as error:
            if isinstance(error.__cause__, TypeError) and "traced array" in str(error.__cause__):
                raise error.__cause__ from None  # NumPy's own words for it say less
            raise
        around.check()
        for name, value in named.items():
            if not _is_same(value, before[name]):
                raise TypeError(
                    f"{self.__name__}: the entries of argument {name!r}, a {type(value).__name__}, are replaced; what "
                    "arrays hold is written back, so write x[...] = value to an entry x, or return the new one"
                )
        return map_leaves(result, "result", lambda value, name: self._result(trace, value, name))

    def _result(self, trace: Trace, value: Any, name: str) -> Any:
        if isinstance(value, Selected):
            raise TypeError(
                f"{self.__name__}: {name} is x[mask], whose length depends on values; return np.where(mask, x, 0), "
                "or its sum"
            )
        if isinstance(value, Iterator):
            raise TypeError(
                f"{self.__name__}: {name} is a {type(value).__name__}, which runs when the call is over; return a list"
            )
        return new_array(trace, value) if isinstance(value, Tensor) else value

    def _planned(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], arguments: list[Argument]) -> _Plan:
        trace = Trace(torch=self._is_torch(arguments))
        arrays, bounds = bind(trace, arguments)
        order = iter(arrays)

        def traced(value: Any, name: str) -> Any:
            return next(order) if is_array(value) else value

        named = {n: map_leaves(v, n, traced) for n, v in self._named(args, kwargs).items()}
        result = self._called(trace, named)
        plan = _Plan(trace, bounds, arrays, result)
        owned = {id(b.storage) for b in bounds}
        seen: dict[int, str] = {}

        def listed(value: Any, name: str) -> Any:
            if not isinstance(value, Array) or id(value.storage) in owned:
                return None
            plan.fresh.append(value)
            other = seen.setdefault(id(value.storage), name)
            if other != name and _order(value.storage) is None:
                trace.copies.append((name, f"shares memory with {other}; returned in memory of its own"))
            return None

        map_leaves(result, "result", listed)
        return plan

    def _placed(self, named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Values by parameter as positional and keyword arguments."""
        if self._signature is None:
            return list(named.values()), {}
        bound = self._signature.bind_partial()
        bound.arguments.update(named)
        return list(bound.args), dict(bound.kwargs)

    def _run(self, plan: _Plan, arguments: list[Argument]) -> Any:
        feeds: dict[Any, Any] = {b.storage.placeholder: b.feed(arguments) for b in plan.bounds}
        feeds.update(plan.trace.captured)
        values = self._evaluated(plan, feeds)
        for array, value in zip(plan.written, values[len(plan.memories) :], strict=True):
            assert array.origin is not None
            np.copyto(arguments[array.origin.position].array, value)
            note_writes([arguments[array.origin.position].given])
        fresh = {
            id(array): view(filled)
            for filled, memory in zip(values, plan.memories, strict=False)
            for array, view in memory.views
        }
        owned = {id(b.storage): b for b in plan.bounds}

        def returned(value: Any, name: str) -> Any:
            if not isinstance(value, Array):
                return value
            if id(value.storage) in owned:
                return _on_memory(value, owned[id(value.storage)], plan, arguments)
            array = fresh[id(value)]
            return _as_given(array[()] if value.is_value else array, plan, arguments)

        return map_leaves(plan.result, "result", returned)

    def _evaluated(self, plan: _Plan, feeds: dict[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """The values of the tensors, each array once and in memory of its own."""
        distinct = list(dict.fromkeys(t for t in plan.wanted if t not in feeds))
        if not distinct:
            found: tuple[Any, ...] = ()
        elif self.interpreted:
            found = interpret(distinct, feeds)
        else:
            if plan.kernel is None:
                plan.kernel = build(list(feeds), distinct, name=self.__name__)
            found = plan.kernel(*feeds.values())
        table = dict(zip(distinct, found, strict=True))
        result: list[np.ndarray[Any, Any]] = []
        used: set[int] = set()
        for tensor in plan.wanted:
            array = table.get(tensor)
            if array is None or id(array) in used:
                array = np.array(feeds[tensor] if array is None else array)
            used.add(id(array))
            result.append(array)
        return result


def _has(kind: type, value: Any) -> bool:
    """Whether a nest holds one of a kind."""
    found: list[Any] = []
    map_leaves(value, "argument", lambda leaf, _: found.append(leaf) if isinstance(leaf, kind) else None)
    return bool(found)


def _is_same(value: Any, before: Any) -> bool:
    """Whether a nest holds the objects that it held; containers are compared by what they hold."""
    if isinstance(before, dict):
        same_keys = isinstance(value, dict) and list(value) == list(before)
        return same_keys and all(_is_same(value[k], v) for k, v in before.items())
    if isinstance(before, (list, tuple)):
        same_size = isinstance(value, type(before)) and len(value) == len(before)
        return same_size and all(map(_is_same, value, before))
    return value is before


def _on_memory(value: Array, bound: BoundStorage, plan: _Plan, arguments: list[Argument]) -> Any:
    """A result that is an argument, or a view of one: on the caller's memory."""
    for m in bound.members:
        own = plan.arrays[m]
        if own.ghost.shape == value.ghost.shape and own.layout == value.layout:
            return arguments[m].given
    near = plan.arrays[bound.members[0]]
    argument = arguments[bound.members[0]]
    size = argument.array.itemsize
    if argument.array.strides != tuple(s * size for s in near.ghost.strides) and argument.array.size > 1:
        return _as_given(np.array(_read(value, argument.array, near)), plan, arguments)
    for m in bound.members:
        given, own = arguments[m].given, plan.arrays[m]
        if (
            is_torch(given)
            and (found := _as_strided(given, value, value.layout.offset - own.layout.offset)) is not None
        ):
            return found
    shift = value.layout.offset - near.layout.offset
    view = strided(
        argument.array, argument.address + shift * size, value.shape, tuple(s * size for s in value.ghost.strides)
    )
    return tensor_of(view) if is_torch(argument.given) else _as_given(view, plan, arguments)


def _as_strided(given: Any, value: Array, shift: int) -> Any:
    """A view of a torch tensor, `shift` elements on; None where its own storage does not hold it."""
    start = given.storage_offset() + shift
    reach = [(n - 1) * s for n, s in zip(value.shape, value.ghost.strides, strict=True)] if value.size else []
    low, high = start + sum(min(0, r) for r in reach), start + sum(max(0, r) for r in reach)
    if low < 0 or (high + 1) * given.element_size() > given.untyped_storage().nbytes():
        return None
    return given.detach().as_strided(value.shape, value.ghost.strides, start)


def _read(value: Array, array: np.ndarray[Any, Any], near: Array) -> np.ndarray[Any, Any]:
    """A view of an argument whose strides a trace does not follow, out of its elements."""
    flat = np.array(array, order="C").reshape(-1)
    size = flat.itemsize
    shift = value.layout.offset - near.layout.offset
    return strided(
        flat,
        flat.__array_interface__["data"][0] + shift * size,
        value.shape,
        tuple(s * size for s in value.ghost.strides),
    )


def _as_given(array: Any, plan: _Plan, arguments: list[Argument]) -> Any:
    """A result in the framework of the arguments: PyTorch's, or another one with the array API, else NumPy's."""
    if plan.trace.torch:
        return tensor_of(np.asarray(array))
    for given in (a.given for a in arguments):
        if not isinstance(given, np.ndarray) and hasattr(given, "__array_namespace__"):
            return given.__array_namespace__().asarray(array)
    return array
