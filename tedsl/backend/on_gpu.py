"""Calls on arrays that lie on a GPU: nothing is copied, nothing waits, results are the arrays' own kind.

Any library's arrays that have `__cuda_array_interface__` are taken (PyTorch, CuPy, Numba, JAX), or DLPack alone. The
kernel runs in the device's primary context on the caller's stream: PyTorch's current one, the one that the interface
names, or the default stream, for which DLPack lets a library's work be complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tedsl.analysis.sizes import bind_sizes, concrete_shape
from tedsl.backend.buffers import DeviceBinding
from tedsl.backend.core import Core, Memory
from tedsl.backend.device_arrays import DeviceArray, described, is_on_gpu, made, place_of, store_of
from tedsl.backend.given import given_outputs
from tedsl.backend.lower import operations_between
from tedsl.backend.steps import is_apart
from tedsl.lang.errors import AliasError
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Tensor

__all__ = ["EmptyArrayError", "listed", "run_on_gpu"]


class EmptyArrayError(ValueError):
    """An array without elements, which no GPU can hold."""


def run_on_gpu(
    core: Core,
    tensors: tuple[Sequence[Tensor], Sequence[Tensor]],
    given: Sequence[Any],
    out: Any,
    sizes: Mapping[Var, int] | None,
    renamed: Mapping[Var, Var] | None,
    what: str,
) -> tuple[list[Any], list[DeviceArray], dict[Var, int]]:
    """The results in the order of the outputs, all arrays, and the sizes as the core has `renamed` them."""
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
    memory = Memory(arrays, dict(enumerate(written)), {})  # type: ignore[arg-type]
    if core.has_empty_stage(memory, bound) or any(a.size == 0 for a in written):
        raise EmptyArrayError(f"{what}: some array has no elements, which no GPU can hold; copy the arrays to the CPU")
    variant, binding = core.bind(memory, ("write",) * len(outputs), bound)
    if variant.has_checks:
        raise ValueError(
            f"{what}: the program's indices or numbers are checked on the CPU, and the arrays are on a GPU; clamp the "
            "indices (mode='clamp'), or give NumPy arrays"
        )
    assert isinstance(binding, DeviceBinding)
    everything = [*arrays, *written]
    order: list[Any] = core.arguments(variant, memory)
    place = place_of(everything)
    binding.run_there([a.address for a in order], place, store_of([*given, *results], place))
    return results, everything, bound


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
