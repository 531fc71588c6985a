"""Calls on arrays that lie on a GPU: nothing is copied, nothing waits, results are the arrays' own kind.

Any library's arrays that have `__cuda_array_interface__` are taken (PyTorch, CuPy, Numba, JAX), or DLPack alone. The
kernel runs in the device's primary context on the caller's stream: PyTorch's current one, the one that the interface
names, or the default stream, for which DLPack lets a library's work be complete. A first call on tensors of PyTorch of
given shapes and strides prepares further ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tedsl.analysis.foreign import is_torch, tensor_of
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import bind_sizes, concrete_shape
from tedsl.backend.arguments.blocks import DeviceBinding
from tedsl.backend.arguments.cuda import CudaStream
from tedsl.backend.arguments.device_arrays import DeviceArray, described, is_on_gpu, made, place_of, store_of, stream_of
from tedsl.backend.calling.call_arguments import given_outputs
from tedsl.backend.compiling.core import CallMemory, Core
from tedsl.backend.host.loaders import LOADER_VARIABLE
from tedsl.backend.sequence.steps import is_apart
from tedsl.lang.errors import AliasError
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Again", "EmptyArrayError", "Ran", "constant_on", "key_of_tensors", "listed", "run_on_gpu"]


class EmptyArrayError(ValueError):
    """An array without elements, which no GPU can hold."""


@dataclass(frozen=True, eq=False)
class Again:
    """A call for tensors of PyTorch on one GPU, of given dtypes, shapes and strides."""

    binding: DeviceBinding
    context: int
    results: tuple[tuple[tuple[int, ...], Any], ...]  # shapes and PyTorch's dtypes
    order: tuple[int, ...]  # of the inputs followed by the results, as the kernel takes them

    def run(self, given: Sequence[Any]) -> list[Any]:
        """The results."""
        made = [given[0].new_empty(shape, dtype=dtype) for shape, dtype in self.results]
        everything = [*given, *made]
        place = CudaStream(self.context, stream_of(given[0]))
        self.binding.run_there([everything[p].data_ptr() for p in self.order], place, store_of(given[0]))
        return made


@dataclass(frozen=True, eq=False)
class Ran:
    """What a call did: the results in the order of the outputs, bytes of all arrays, sizes as the core names them."""

    results: list[Any]
    nbytes: int
    sizes: dict[Var, int]
    again: Again | None


def key_of_tensors(given: Sequence[Any]) -> Any:
    """What a call on tensors of PyTorch depends on; None for other arrays, and where there is more to be looked at."""
    try:
        if any(t.requires_grad or t.is_neg() for t in given):
            return None
        return tuple([(t.__class__, t.device, t.dtype, t.shape, t.stride()) for t in given])
    except (AttributeError, RuntimeError, TypeError):
        return None


def run_on_gpu(
    core: Core,
    tensors: tuple[Sequence[Tensor], Sequence[Tensor]],
    given: Sequence[Any],
    out: Any,
    sizes: Mapping[Var, int] | None,
    renamed: Mapping[Var, Var] | None,
    what: str,
) -> Ran:
    """A call on arrays of which some lie on a GPU; the core has `renamed` some sizes."""
    inputs, outputs = tensors
    if core.target.backend != "cuda":
        name = next(t.name for t, a in zip((*inputs, *outputs), (*given, *listed(out)), strict=False) if is_on_gpu(a))
        raise ValueError(
            f"{what}: the array for {name!r} is in the memory of a GPU, the kernel is for {core.target.name!r}; build "
            "it with target='cuda', or copy the array to the CPU"
        )
    if not core.is_single:
        apart = ", ".join(repr(op.name) for op in operations_between(core.inputs, core.outputs) if is_apart(op))
        raise ValueError(
            f"{what}: {apart} cannot be computed on a GPU (a Python function, or a scan over sums of sums of its own "
            "state), and the arrays are on one; copy them to the CPU"
        )
    arrays = [described(a, t, f"{what}: input {t.name!r}") for t, a in zip(inputs, given, strict=True)]
    bound = bind_sizes(inputs, [a.shape for a in arrays], sizes, what)
    shapes = [concrete_shape(t, bound, what) for t in outputs]
    targets = given_outputs(outputs, out, what)
    like = next(a for a in (*given, *targets.values()) if is_on_gpu(a))
    results = [targets[p] if p in targets else made(like, shapes[p], t, what) for p, t in enumerate(outputs)]
    written = [described(a, t, f"{what}: out= for {t.name!r}") for t, a in zip(outputs, results, strict=True)]
    _check_written(outputs, written, shapes, arrays, what)
    bound = {(renamed or {}).get(v, v): n for v, n in bound.items()}
    memory = CallMemory(arrays, dict(enumerate(written)), {})  # type: ignore[arg-type]
    if core.has_empty_stage(memory, bound) or any(a.size == 0 for a in written):
        raise EmptyArrayError(f"{what}: some array has no elements, which no GPU can hold; copy the arrays to the CPU")
    variant, binding = core.bind(memory, ("write",) * len(outputs), bound)
    if variant.has_checks:
        raise ValueError(
            f"{what}: the program's indices or numbers are checked on the CPU, and the arrays are on a GPU; clamp the "
            "indices (mode='clamp'), or give NumPy arrays"
        )
    if not isinstance(binding, DeviceBinding):
        raise ValueError(
            f"{what}: Halide's own JIT ({LOADER_VARIABLE}=jit, and where it is the only way) takes arrays in the CPU's "
            "memory, and these are on a GPU; copy them to the CPU"
        )
    everything = [*arrays, *written]
    places: Any = CallMemory(range(len(arrays)), {p: len(arrays) + p for p in range(len(written))}, {})  # type: ignore[arg-type,misc]
    order: list[Any] = core.arguments(variant, places)
    place = place_of(everything)
    tensor = next((v for v in (*given, *results) if is_torch(v) and stream_of(v) == place.stream), None)
    store = None if tensor is None else store_of(tensor)
    binding.run_there([everything[p].address for p in order], place, store)
    again = None
    if out is None and all(map(is_torch, given)):
        shaped = tuple((shape, r.dtype) for shape, r in zip(shapes, results, strict=True))
        again = Again(binding, place.context, shaped, tuple(order))
    return Ran(results, sum(a.nbytes for a in everything), bound, again)


def constant_on(like: Any, tensor: Tensor, array: Array, what: str) -> Any:
    """A constant of a program where an array of a call lies."""
    if not is_torch(like):
        raise TypeError(
            f"{what}: the constant {tensor.name!r} is copied to a GPU for tensors of PyTorch only, found "
            f"{type(like).__name__}; make it an input of the kernel"
        )
    return tensor_of(array.copy()).to(like.device)


def listed(out: Any) -> list[Any]:
    """The arrays of `out=`."""
    return (
        list(out.values())
        if isinstance(out, Mapping)
        else list(out)
        if isinstance(out, (tuple, list))
        else []
        if out is None
        else [out]
    )


def _check_written(
    outputs: Sequence[Tensor],
    written: Sequence[DeviceArray],
    shapes: Sequence[tuple[int, ...]],
    arrays: Sequence[DeviceArray],
    what: str,
) -> None:
    for p, (tensor, array) in enumerate(zip(outputs, written, strict=True)):
        place = f"{what}: out= for {tensor.name!r}"
        if array.shape != shapes[p]:
            raise ValueError(f"{place}: expected shape {shapes[p]}, found {array.shape}")
        if array.readonly:
            raise ValueError(f"{place}: the array is read-only; give one that can be written")
        begin, end = array.span
        for other in (*arrays, *written[:p]):
            if other.size and other.span[0] < end and begin < other.span[1]:
                raise AliasError(f"{place}: the array may overlap another one of the call; give it memory of its own")
