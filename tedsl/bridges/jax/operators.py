"""Operators on JAX arrays: two primitives, with the rules that grad, jvp, vmap, jit and checkpoint are made of.

`tedsl` runs a routine. `tedsl_linear` is the derivative of a routine along tangents; run, it is the forward derivative,
transposed, it is a call of the reverse one. So both derivatives are at hand, which `jax.custom_jvp` and
`jax.custom_vjp` do not allow on one function, and both differentiate again.

Compiled by jax.jit, a routine is called through XLA's typed FFI: the address of the kernel goes into the program, and a
call does not enter Python (see `ffi`). Routines that are more than kernels one after another, or have results in other
than JAX's types, go through `jax.pure_callback`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from tedsl.bridges.jax.ffi import lowered_by_ffi
from tedsl.lang.dtypes import ALL
from tedsl.lang.errors import user_location
from tedsl.ops.definition import Definition, effects_of
from tedsl.ops.op import Op
from tedsl.ops.routines import Batched, Pullback, Pushforward, Routine, TracedRoutine
from tedsl.ops.saving import KeptPullback, Saving, kept_by
from tedsl.ops.shapes import Spec
from tedsl.ops.signature import OpCall

__all__ = ["call", "like", "prepare"]

Arrays = Sequence[Any]


def call(op: Op, call: OpCall, out: Any, mode: Any) -> Any:
    """The op on JAX arrays, traced ones too."""
    call = OpCall(call.template, _strong(call.arrays))
    if out is not None or mode is not None:
        raise TypeError(
            f"{op.signature.title}: JAX arrays cannot be written, so there is no out= and no mode= for them"
        )
    for name, array in zip(call.template.names, call.arrays, strict=True):
        if str(array.dtype).startswith("key<"):
            raise TypeError(
                f"{op.signature.title}: argument {name!r} is a key of JAX, {array.dtype}; give "
                "jax.random.key_data(key), its two uint32"
            )
        if str(array.dtype) not in ALL:
            raise TypeError(
                f"{op.signature.title}: argument {name!r}: dtype {array.dtype} is not supported, expected one of "
                f"{', '.join(ALL)}"
            )
    routine = op.definition(call.template)
    traced = routine.traced(_specs(call.arrays))
    if traced not in _pure:
        effect = effects_of(traced.outputs)
        if effect is not None:
            raise TypeError(
                f"{op.signature.title}: the extern {effect!r} has effects (pure=False), which JAX may drop or repeat; "
                "make it pure, or call the op on NumPy arrays"
            )
        _pure.add(traced)
    return traced.nested(routine_p.bind(*call.arrays, routine=routine))


_pure: WeakSet[TracedRoutine] = WeakSet()  # programs without effects


def prepare(op: Op, call: OpCall) -> None:
    """There is no shorter way."""


def like(array: np.ndarray[Any, Any], given: Any) -> Any:
    """An array of NumPy as one of JAX."""
    return jnp.asarray(array)


def _strong(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arrays, of which weak floats (Python's, which JAX traces) have the dtype of the other floats."""
    weak = [bool(getattr(jax.typeof(a), "weak_type", False)) for a in arrays]
    if not any(weak):
        return arrays
    is_float = [jnp.issubdtype(a.dtype, jnp.floating) for a in arrays]
    strong = [a.dtype for a, w, f in zip(arrays, weak, is_float, strict=True) if f and not w]
    dtype = jnp.result_type(*strong) if strong else None
    each = zip(arrays, weak, is_float, strict=True)
    return tuple(jax.lax.convert_element_type(a, dtype or a.dtype) if f and w else a for a, w, f in each)


def _specs(arrays: Arrays) -> tuple[Spec, ...]:
    """Shapes and dtypes, also of Python's numbers, which stand under the tracers of a transform as they are."""
    found = [a if hasattr(a, "shape") else jax.typeof(a) for a in arrays]
    for a in found:
        if not all(isinstance(n, int) for n in a.shape):
            raise TypeError(
                f"operator on JAX arrays at {user_location()}: expected shapes of numbers, found "
                f"({', '.join(map(str, a.shape))}): a program of XLA calls the kernel of one shape, so there are no "
                "symbols of jax.export.symbolic_shape; export the program for each shape that is needed"
            )
    return tuple((tuple(a.shape), str(a.dtype)) for a in found)


def _dtype(name: str) -> np.dtype[Any]:
    """JAX's type for results: 64 bits only where they are enabled."""
    found: np.dtype[Any] = jax.dtypes.canonicalize_dtype(name)
    return found


def _run(routine: Routine, arrays: Arrays) -> list[np.ndarray[Any, Any]]:
    inputs = routine.traced(_specs(arrays)).inputs
    # A result that JAX narrowed comes back as it is, as the head of its adjoint for one.
    given = [np.asarray(a, dtype=t.dtype.numpy) for a, t in zip(arrays, inputs, strict=True)]
    results = routine.run(given)
    return [np.asarray(r, dtype=_dtype(r.dtype.name)) for r in results]


# --- a routine ------------------------------------------------------------------------------------------------------

routine_p = Primitive("tedsl")
routine_p.multiple_results = True


def _run_now(*arrays: Any, routine: Routine) -> list[Any]:
    return [jnp.asarray(r) for r in _run(routine, arrays)]


def _shapes(*avals: Any, routine: Routine) -> list[Any]:
    specs = _specs(avals)
    return [ShapedArray(shape, _dtype(dtype)) for shape, dtype in routine.traced(specs).output_specs(specs)]


def _jvp(primals: Arrays, tangents: Arrays, *, routine: Routine) -> tuple[list[Any], list[Any]]:
    specs = _specs(primals)
    target, kept = _target(routine, specs)
    results = routine_p.bind(*primals, routine=target)
    outputs = results[: len(routine.traced(specs).outputs)]
    if not any(jnp.issubdtype(r.dtype, jnp.floating) for r in outputs):
        return outputs, [ad.Zero(jax.typeof(r).to_tangent_aval()) for r in outputs]
    moving = tuple(p for p, t in enumerate(tangents) if type(t) is not ad.Zero)
    dots = linear_p.bind(
        *primals,
        *(results[p] for p in kept),
        *(ad.instantiate_zeros(tangents[p]) for p in moving),
        routine=routine,
        moving=moving,
        kept=kept,
    )
    found = iter(dots)
    return outputs, [
        next(found) if jnp.issubdtype(r.dtype, jnp.floating) else ad.Zero(jax.typeof(r).to_tangent_aval())
        for r in outputs
    ]


def _target(routine: Routine, specs: tuple[Spec, ...]) -> tuple[Routine, tuple[int, ...]]:
    """The routine that also gives what its reverse derivative reads, and the positions of that."""
    if isinstance(routine, Saving):
        return routine, routine.kept(specs).results
    if isinstance(routine, Definition) and routine.author.save != "inputs":
        saving = routine.derived(Saving, routine.author.save, False)
        kept = kept_by(saving, specs)
        if kept is not None:
            return saving, kept.results
    return routine, ()


def _batch(arrays: Arrays, dims: Sequence[Any], *, routine: Routine) -> tuple[list[Any], list[int]]:
    flags = tuple(d is not None for d in dims)
    moved = [jnp.moveaxis(a, d, 0) if flag else a for a, d, flag in zip(arrays, dims, flags, strict=True)]
    results = routine_p.bind(*moved, routine=routine.derived(Batched, flags))
    return results, [0] * len(results)


def _lower(context: Any, *operands: Any, routine: Routine) -> Any:
    lowered = lowered_by_ffi(context, operands, routine)
    if lowered is not None:
        return lowered
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in context.avals_out]

    def called(*arrays: Any) -> Any:
        return jax.pure_callback(lambda *given: _run(routine, given), shapes, *arrays)

    return mlir.lower_fun(called, multiple_results=True)(context, *operands)


routine_p.def_impl(_run_now)
routine_p.def_abstract_eval(_shapes)
ad.primitive_jvps[routine_p] = _jvp
batching.primitive_batchers[routine_p] = _batch
mlir.register_lowering(routine_p, _lower)


# --- the derivative of a routine along tangents -----------------------------------------------------------------------

linear_p = Primitive("tedsl_linear")
linear_p.multiple_results = True


def _forward(arrays: Arrays, routine: Routine, moving: tuple[int, ...], kept: tuple[int, ...]) -> list[Any]:
    """The forward derivative as a call of a routine; what was kept is for the transpose."""
    count = len(routine.input_names)
    pushforward = routine.derived(Pushforward, moving)
    results: list[Any] = routine_p.bind(*arrays[:count], *arrays[count + len(kept) :], routine=pushforward)
    return results


def _run_linear(*arrays: Any, routine: Routine, moving: tuple[int, ...], kept: tuple[int, ...]) -> list[Any]:
    return _forward(arrays, routine, moving, kept)


def _linear_shapes(*avals: Any, routine: Routine, moving: tuple[int, ...], kept: tuple[int, ...]) -> list[Any]:
    specs = _specs(avals[: len(routine.input_names)])
    outputs = zip(routine.traced(specs).outputs, routine.traced(specs).output_specs(specs), strict=True)
    return [ShapedArray(shape, _dtype(dtype)) for tensor, (shape, dtype) in outputs if tensor.dtype.is_float]


def _linear_jvp(
    primals: Arrays, tangents: Arrays, *, routine: Routine, moving: tuple[int, ...], kept: tuple[int, ...]
) -> tuple[list[Any], list[Any]]:
    count = len(routine.input_names)
    start = count + len(kept)
    results = linear_p.bind(*primals, routine=routine, moving=moving, kept=kept)
    if all(type(t) is ad.Zero for t in tangents[:count]):  # linear in the rest
        dots = [ad.instantiate_zeros(t) for t in tangents[start:]]
        return results, linear_p.bind(*primals[:start], *dots, routine=routine, moving=moving, kept=kept)
    given = [*primals[:count], *primals[start:]]
    both = [*tangents[:count], *tangents[start:]]
    also = tuple(p for p, t in enumerate(both) if type(t) is not ad.Zero)
    pushforward = routine.derived(Pushforward, moving)
    dots = linear_p.bind(*given, *(both[p] for p in also), routine=pushforward, moving=also, kept=())
    return results, dots


def _transpose(
    cotangents: Arrays, *arrays: Any, routine: Routine, moving: tuple[int, ...], kept: tuple[int, ...]
) -> list[Any]:
    count = len(routine.input_names)
    start = count + len(kept)
    specs = _specs([a.aval if ad.is_undefined_primal(a) else a for a in arrays[:count]])
    floats = [p for p, t in enumerate(routine.traced(specs).outputs) if t.dtype.is_float]
    present = [(p, c) for p, c in zip(floats, cotangents, strict=True) if type(c) is not ad.Zero]
    heads, values = tuple(p for p, _ in present), [c for _, c in present]
    if not heads:
        return [ad.Zero(a.aval) if ad.is_undefined_primal(a) else None for a in arrays]
    pullback = _pullback(routine, moving, heads, kept)
    found = routine_p.bind(*arrays[:start], *values, routine=pullback)
    return [None] * start + list(found)


def _pullback(routine: Routine, wanted: tuple[int, ...], heads: tuple[int, ...], kept: tuple[int, ...]) -> Routine:
    if not kept:
        plain: Routine = routine.derived(Pullback, wanted, heads)
        return plain
    if isinstance(routine, Definition):
        saving = routine.derived(Saving, routine.author.save, False)
    elif isinstance(routine, Batched):
        return _batched_pullback(routine, wanted, heads, kept)
    else:
        saving = routine
    found: Routine = saving.derived(KeptPullback, wanted, heads, kept)
    return found


def _batched_pullback(
    routine: Batched, wanted: tuple[int, ...], heads: tuple[int, ...], kept: tuple[int, ...]
) -> Routine:
    """The pullback of one, batched; `_linear_batch` sees to it that everything that moves is batched."""
    one = _pullback(routine.of, wanted, heads, kept)
    found: Routine = one.derived(Batched, (*routine.flags, *(True for _ in (*kept, *heads))))
    return found


def _linear_batch(
    arrays: Arrays, dims: Sequence[Any], *, routine: Routine, moving: tuple[int, ...], kept: tuple[int, ...]
) -> tuple[list[Any], list[int]]:
    """Batched along what is batched; a tangent is as its input, and what was kept is as results are."""
    count = len(routine.input_names)
    start = count + len(kept)
    mapped = [d is not None for d in dims]
    size = next(a.shape[d] for a, d, flag in zip(arrays, dims, mapped, strict=True) if flag)
    flags = mapped[:count]
    for k, p in enumerate(moving):
        flags[p] = flags[p] or mapped[start + k]
    wanted = [*flags, *(True for _ in kept), *(flags[p] for p in moving)]
    moved = [batching.bdim_at_front(a, d, size) if flag else a for a, d, flag in zip(arrays, dims, wanted, strict=True)]
    results = linear_p.bind(*moved, routine=routine.derived(Batched, tuple(flags)), moving=moving, kept=kept)
    return results, [0] * len(results)


linear_p.def_impl(_run_linear)
linear_p.def_abstract_eval(_linear_shapes)
ad.primitive_jvps[linear_p] = _linear_jvp
ad.primitive_transposes[linear_p] = _transpose
batching.primitive_batchers[linear_p] = _linear_batch
mlir.register_lowering(linear_p, mlir.lower_fun(lambda *a, **k: _forward(a, **k), multiple_results=True))
