"""Calls on arrays that lie on a GPU: nothing is copied, nothing waits, results are the arrays' own kind.

Any library's arrays that have `__cuda_array_interface__` are taken (PyTorch, CuPy, Numba, JAX), or DLPack alone. The
kernel runs in the device's primary context on the caller's stream: PyTorch's current one, the one that the interface
names, or the default stream, for which DLPack lets a library's work be complete. A first call on tensors of PyTorch of
given shapes and strides prepares further ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import NamedSizes, bind_sizes, concrete_shape
from tedsl.backend.arguments.blocks import DeviceBinding
from tedsl.backend.arguments.cuda import CudaStream
from tedsl.backend.arguments.device_arrays import DeviceArray, described, is_on_gpu, made, place_of, store_of, stream_of
from tedsl.backend.calling.call_arguments import given_outputs, modes_of
from tedsl.backend.calling.signature import Asked, KernelParts
from tedsl.backend.calling.stats import Stats
from tedsl.backend.compiling.executable import CallMemory, CompiledKernel
from tedsl.backend.host.loaders import LOADER_VARIABLE
from tedsl.backend.sequence.cutting import is_apart
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import AliasError
from tedsl.lang.expr import Var
from tedsl.lang.foreign import is_torch, note_writes, tensor_of
from tedsl.lang.tensor import Tensor

__all__ = ["Again", "EmptyArrayError", "GpuCalls", "key_of_tensors", "listed"]

MOST_CALLS = 256  # prepared calls kept


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


class GpuCalls:
    """The calls of a kernel on arrays of a GPU, of which those on tensors of PyTorch are prepared for further ones."""

    def __init__(self, kernel: KernelParts) -> None:
        self.kernel = kernel
        self.prepared: dict[Any, tuple[Again, Stats]] = {}
        self._constants: dict[str, list[Any]] = {}  # by their device

    def call(self, asked: Asked) -> tuple[list[Any], Stats]:
        """The results, and what was done."""
        signature, core, given = self.kernel.signature, self.kernel.core, asked.given
        modes = modes_of(signature.outputs, asked.mode, signature.what)
        if signature.alias or not self.kernel.donor.is_idle or any(m != "write" for m in modes):
            raise ValueError(f"{signature.what}: alias=, donate= and mode= take arrays in the CPU's memory; use out=")
        if signature.constants and core.program.target.backend == "cuda":  # else it is refused
            given = [*given[: len(signature.inputs)], *self._constants_like(asked)]
        ran = run_on_gpu(self.kernel, given, asked.out, asked.sizes)
        note_writes(listed(asked.out))
        stats = Stats(bytes=ran.nbytes, buffers=lambda: core.temporary_bytes(ran.sizes), on_device=True)
        if ran.again is not None and not asked.sizes and (key := key_of_tensors(given)) is not None:
            if len(self.prepared) >= MOST_CALLS:
                self.prepared.clear()
            self.prepared[key] = ran.again, stats
        return ran.results, stats

    def _constants_like(self, asked: Asked) -> list[Any]:
        """The constants on the GPU on which the arrays of a call lie."""
        signature = self.kernel.signature
        like = next(a for a in (*asked.given, *listed(asked.out)) if is_on_gpu(a))
        place = str(getattr(like, "device", None))
        if place not in self._constants:
            arrays = signature.constant_arrays
            self._constants[place] = [constant_on(like, t, a, signature.what) for t, a in arrays.items()]
        return self._constants[place]


def run_on_gpu(kernel: KernelParts, given: Sequence[Any], out: Any, sizes: NamedSizes | None) -> Ran:
    """A call on arrays of which some lie on a GPU."""
    inputs, outputs, what = kernel.signature.fed, kernel.signature.outputs, kernel.signature.what
    core = _checked_core(kernel, given, out)
    arrays = [described(a, t, f"{what}: input {t.name!r}") for t, a in zip(inputs, given, strict=True)]
    bound = bind_sizes(inputs, [a.shape for a in arrays], sizes, what, outputs)
    shapes = [concrete_shape(t, bound, what) for t in outputs]
    targets = given_outputs(outputs, out, what)
    like = next(a for a in (*given, *targets.values()) if is_on_gpu(a))
    results = [targets[p] if p in targets else made(like, shapes[p], t, what) for p, t in enumerate(outputs)]
    written = [described(a, t, f"{what}: out= for {t.name!r}") for t, a in zip(outputs, results, strict=True)]
    _check_written(outputs, written, shapes, arrays, what)
    renamed = kernel.shared.sizes(bound)
    binding, order = _bound(core, arrays, written, renamed, what)
    everything = [*arrays, *written]
    place = place_of(everything)
    tensor = next((v for v in (*given, *results) if is_torch(v) and stream_of(v) == place.stream), None)
    binding.run_there([everything[p].address for p in order], place, None if tensor is None else store_of(tensor))
    again = None
    if out is None and all(map(is_torch, given)):
        shaped = tuple((shape, r.dtype) for shape, r in zip(shapes, results, strict=True))
        again = Again(binding, place.context, shaped, tuple(order))
    return Ran(results, sum(a.nbytes for a in everything), renamed, again)


def _checked_core(kernel: KernelParts, given: Sequence[Any], out: Any) -> CompiledKernel:
    """The compiled function of a program for GPUs; ValueError for others."""
    program, core, signature = kernel.core.program, kernel.core.single, kernel.signature
    if program.target.backend != "cuda":
        tensors, arrays = (*signature.fed, *signature.outputs), (*given, *listed(out))
        name = next(t.name for t, a in zip(tensors, arrays, strict=False) if is_on_gpu(a))
        raise ValueError(
            f"{signature.what}: the array for {name!r} is in the memory of a GPU, the kernel is for "
            f"{program.target.name!r}; build it with target='cuda', or copy the array to the CPU"
        )
    if core is None:
        apart = ", ".join(repr(op.name) for op in program.operations if is_apart(op))
        raise ValueError(
            f"{signature.what}: {apart} cannot be computed on a GPU (a Python function, or a scan over sums of sums "
            "of its own state), and the arrays are on one; copy them to the CPU"
        )
    return core


def _bound(
    core: CompiledKernel, arrays: Sequence[DeviceArray], written: Sequence[DeviceArray], sizes: Mapping[Var, int],
    what: str,
) -> tuple[DeviceBinding, list[int]]:  # fmt: skip
    """An argument block for arrays like these, and in which order it takes them, the results behind the inputs."""
    memory = CallMemory(arrays, dict(enumerate(written)), {})  # type: ignore[arg-type]
    if core.facts.has_empty_stage(arrays, sizes) or any(a.size == 0 for a in written):
        raise EmptyArrayError(f"{what}: some array has no elements, which no GPU can hold; copy the arrays to the CPU")
    variant, binding = core.forms.bind(memory, ("write",) * len(written), sizes)
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
    places: Any = {p: len(arrays) + p for p in range(len(written))}
    order: Any = variant.arguments(range(len(arrays)), places, {})  # type: ignore[arg-type]
    return binding, list(order)


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
