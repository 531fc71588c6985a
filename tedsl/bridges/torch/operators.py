"""Operators on PyTorch tensors: autograd, torch.func, torch.compile, autocast, and a registered operator.

Everything goes through one registered operator, `tedsl::call(str routine, Tensor[] inputs) -> Tensor[]`, whose
derivative and batched form are calls of it on derived routines, to any order. In plain eager mode a call takes a
shorter way to the same kernels: an autograd function, or nothing but the kernel where no gradient is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from tedsl.analysis.sizes import evaluate_extent
from tedsl.bridges.torch import autograd as torch_autograd, memory as torch_memory
from tedsl.bridges.torch.memory import (
    TYPES,
    as_array,
    as_given,
    checked,
    run,
    specs_of,
    target_of,
    writable,
)
from tedsl.bridges.torch.routines import key_of, routine_of
from tedsl.lang.foreign import note_writes, tensor_of
from tedsl.ops.arrays import Static
from tedsl.ops.definition import Definition
from tedsl.ops.homes import ARRAYS
from tedsl.ops.op import Op
from tedsl.ops.results import into
from tedsl.ops.routines import Routine, TracedRoutine
from tedsl.ops.signature import OpCall, map_leaves

__all__ = ["call", "constant_key", "constant_nest", "key_of", "like", "prepare", "registered"]


def call(op: Op, call: OpCall, out: Any, mode: Any) -> Any:
    """The op on tensors."""
    if torch.jit.is_tracing():
        raise TypeError(
            f"{op.signature.title}: TorchScript (torch.jit.trace) is not supported; torch.export and torch.compile are"
        )
    routine = op.definition(call.template)
    if out is not None or mode is not None:
        return _into(op, routine, call, out, mode)
    results = torch_autograd.apply(routine, call.arrays)
    specs, _ = torch_autograd.open_specs(routine, call.arrays)
    return routine.traced(specs).nested(results)


def prepare(op: Op, made: OpCall) -> Callable[..., Any] | None:
    """A short way for further calls on plain tensors of the same shapes; None if there is none."""
    device, plain = made.arrays[0].device, torch_autograd.PLAIN
    here = device.type == "cpu"
    if not all(type(t) in plain and t.device == device and t.dtype is not torch.bfloat16 for t in made.arrays):
        return None
    if not here and device.type != "cuda":
        return None
    routine = op.definition(made.template)
    specs = specs_of(made.arrays)
    traced = routine.running(specs)
    single = traced.result == 0
    compute = _compute_here(traced) if here else partial(run, routine)
    plans: list[torch_autograd.DerivativePlan] = []
    is_quiet, is_grad_enabled = torch_autograd.is_quiet, torch.is_grad_enabled

    def quick(args: tuple[Any, ...], out: Any) -> Any:
        tensors = [a for a in args if a.__class__ in plain]
        if out is not None or not is_quiet() or not all(t.is_cpu if here else t.device == device for t in tensors):
            return NotImplemented
        if is_grad_enabled() and any(t.requires_grad for t in tensors):
            if not plans:
                plans.append(torch_autograd.plan_of(routine, tensors))
            results: Sequence[Any] = torch_autograd.by_plan(plans[0], tensors)
        else:
            results = compute(tensors)
            if results is NotImplemented:
                return NotImplemented
        return results[0] if single else traced.nested(results)

    is_trained = any(t.requires_grad for t in made.arrays)
    recurrence = routine.recurrence(specs) if here and not is_trained else None
    return quick if recurrence is None else recurrence.watched(quick)


def like(array: np.ndarray[Any, Any], given: Any) -> Any:
    """An array of NumPy as a tensor on the device of another."""
    return tensor_of(array).to(given.device)


def _compute_here(traced: TracedRoutine) -> Callable[[Sequence[Any]], Any]:
    """The results for tensors on the CPU, by its kernel at once, compiled at the first of these calls: those with
    gradients run another one, which gives what is kept for them, too."""
    target, kernels = torch_memory.HOST, traced.kernels
    made = tensor_of if any(t.dtype == "bfloat16" for t in traced.outputs) else torch.from_numpy

    def compute(tensors: Sequence[Any]) -> Any:
        try:
            arrays = [(t.detach() if t.requires_grad else t).numpy() for t in tensors]
        except RuntimeError:  # not memory as it is: the negative of it
            return NotImplemented
        kernel = kernels.get(target) or traced.kernel_for(target)
        return [made(a) for a in kernel(*arrays)]

    return compute


def _into(op: Op, routine: Definition, call: OpCall, out: Any, mode: Any) -> Any:
    targets: dict[str, Any] = {}

    def listed(value: Any, name: str) -> None:
        if not isinstance(value, (torch.Tensor, type(None))):
            raise TypeError(f"{op.signature.title}: {name}= must be a tensor of PyTorch, found {type(value).__name__}")
        if value is not None:
            targets[name] = value

    map_leaves(out, "out", listed)
    given = (*call.arrays, *targets.values())
    if torch.is_grad_enabled() and any(t.requires_grad for t in given):
        raise RuntimeError(
            f"{op.signature.title}: out= does not support automatic differentiation, but an argument requires grad; "
            "call it under torch.no_grad(), or without out="
        )
    checked(given, (*call.template.names, *targets), f"{op.signature.title}")
    traced = routine.traced(specs_of(call.arrays))

    target = target_of(call.arrays[0])
    if call.arrays[0].is_cuda:  # the kernel refuses what it cannot write, and tells autograd what it has written
        return into(traced, list(map(as_given, call.arrays)), out, mode, target=target)

    def memory(value: Any, name: str) -> Any:
        return writable(value, f"{op.signature.title}: {name}=")

    written = into(traced, list(map(as_array, call.arrays)), out, mode, memory, tensor_of, target)
    note_writes(targets.values())
    return written


def constant_key(op: Op, given: tuple[Any, ...], named: tuple[Any, ...]) -> str:
    """For torch.compile: the key of the routine for a call on such arrays."""
    made = op.signature.call([_stand_in(v) for v in given], {k: _stand_in(v) for k, v in named})
    return key_of(op.definition(made.template))


def constant_nest(key: str) -> Any:
    """For torch.compile: the nest of the results of a routine that was traced."""
    return _in_tuples(next(iter(routine_of(key).traces.values())).result)


def _in_tuples(nest: Any) -> Any:
    if isinstance(nest, dict):
        return "dict", tuple((k, _in_tuples(v)) for k, v in nest.items())
    if isinstance(nest, (list, tuple)):
        return "list" if isinstance(nest, list) else "tuple", tuple(map(_in_tuples, nest))
    return ("static", nest.value) if isinstance(nest, Static) else nest


def _stand_in(value: Any) -> Any:
    """The argument that was described, with a tensor without memory for an array."""
    kind, *rest = value
    if kind == "array":
        return torch.empty(0, device="meta")
    if kind == "static":
        return rest[0]
    if kind == "dict":
        return {k: _stand_in(v) for k, v in rest}
    items = [_stand_in(v) for v in rest]
    return tuple(items) if kind == "tuple" else items


# --- registration ---------------------------------------------------------------------------------------------------

_library = torch.library.Library("tedsl", "FRAGMENT")


def _define(name: str, schema: str, decode: Any, encode: Any) -> Any:
    """Register an operator: `decode(*args)` gives a routine and its tensors, `encode(results)` what is returned."""
    _library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    qualname = f"tedsl::{name}"
    overload = getattr(torch.ops.tedsl, name).default

    def compute(*args: Any) -> Any:
        routine, tensors = decode(*args)
        checked(tensors, routine.input_names, routine.name)
        return encode(run(routine, tensors))

    def fake(*args: Any) -> Any:
        routine, tensors = decode(*args)
        checked(tensors, routine.input_names, routine.name)
        return encode(_empty(routine, tensors))

    def autograd(keyset: Any, *args: Any) -> Any:
        routine, tensors = decode(*args)

        def below(target: Routine, tensors: Sequence[Any]) -> Sequence[Any]:
            # A function's forward runs without gradients; the levels of torch.func below this one have their own.
            outer = torch._C._are_functorch_transforms_active()
            with (
                torch._C._AutoDispatchBelowAutograd(),
                torch.set_grad_enabled(outer),
                forward_ad._set_fwd_grad_enabled(outer),
            ):
                keys = keyset & torch._C._after_autograd_keyset
                results: Sequence[Any] = torch_autograd.CALL.redispatch(keys, key_of(target), list(tensors))
                return results

        if torch_autograd.is_differentiated(tensors):
            return encode(torch_autograd.differentiable(routine, tensors, below))
        with torch._C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & torch._C._after_autograd_keyset, *args)

    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        routine, tensors = decode(*args)
        dims = [d for d, a in zip(in_dims, args, strict=True) for d in (d if isinstance(a, (list, tuple)) else (d,))]
        positions = [d for d, a in zip(dims, _flat(args), strict=True) if isinstance(a, torch.Tensor)]
        moved = [t if d is None else t.movedim(d, 0) for t, d in zip(tensors, positions, strict=True)]
        results = torch_autograd.apply(torch_autograd.batched(routine, positions), moved)
        returned = encode(results)
        return returned, 0 if isinstance(returned, torch.Tensor) else type(returned)([0] * len(results))

    _library.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(qualname, fake, lib=_library)
    _library.impl(name, autograd, "Autograd", with_keyset=True)
    torch.library.register_vmap(qualname, vmap, lib=_library)
    for device in ("cpu", "cuda"):
        torch.library.register_autocast(qualname, device, torch.float32, lib=_library)
    return overload


def _flat(args: Sequence[Any]) -> list[Any]:
    return [x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,))]


def _empty(routine: Routine, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Results without values, for tracing: their shapes as expressions of the symbolic sizes of the inputs."""
    specs, sizes = torch_autograd.open_specs(routine, tensors)
    traced = routine.traced(specs)
    if sizes:
        shapes: Any = [[evaluate_extent(n, sizes) for n in t.extents] for t in traced.outputs]
    else:
        shapes = [shape for shape, _ in traced.output_specs(specs)]
    types = [TYPES[str(t.dtype)] for t in traced.outputs]
    return tuple(tensors[0].new_empty(shape, dtype=dtype) for shape, dtype in zip(shapes, types, strict=True))


ARRAYS.update(torch_autograd.PLAIN)
torch_autograd.CALL = _define(
    "call",
    "(str routine, Tensor[] inputs) -> Tensor[]",
    lambda key, tensors: (routine_of(key), tensors),
    list,
)


def registered(op: Op) -> Any:
    """`op.torch_op`: an operator of the op's own name and parameters."""
    found = op.bridged.get("torch_op")
    if found is None:
        found = op.bridged["torch_op"] = _register(op)
    return found


_KINDS: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "str"}
_ANNOTATED = {"bool": "bool", "int": "int", "float": "float", "str": "str"}


def _register(op: Op) -> Any:
    parameters = list(op.signature.parameters.parameters.values())
    schema = ", ".join(_parameter(p, op) for p in parameters)
    count = _count(op)

    def decode(*args: Any) -> tuple[Routine, list[Any]]:
        full = [*args, *(p.default for p in parameters[len(args) :])]
        made = op.signature.call(full, {})
        return op.definition(made.template), list(made.arrays)

    def encode(results: Sequence[Any]) -> Any:
        if len(results) != count:
            raise TypeError(
                f"{op.signature.title}: registered with {count} results, but it returned {len(results)}; annotate it, "
                "as in `-> tuple[te.Tensor, te.Tensor]`, or call it once before torch_op is asked for"
            )
        return results[0] if count == 1 else tuple(results)

    returns = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    return _define(_free_name(op), f"({schema}) -> {returns}", decode, encode)


def _parameter(parameter: Any, op: Op) -> str:
    """One parameter in the words of a schema: arrays have no default, static arguments have one or an annotation."""
    if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
        raise TypeError(f"{op.signature.title}: torch_op needs plain parameters, found {parameter}")
    note = (
        parameter.annotation if isinstance(parameter.annotation, str) else getattr(parameter.annotation, "__name__", "")
    )
    if parameter.default is parameter.empty:
        return f"{_ANNOTATED.get(note, 'Tensor')} {parameter.name}"
    default = parameter.default
    if default is None and "Tensor" in str(parameter.annotation):
        return f"Tensor? {parameter.name}=None"
    items = list(default) if isinstance(default, (tuple, list)) else []
    if items and len({type(v) for v in items}) == 1 and type(items[0]) in _KINDS:
        return f"{_KINDS[type(items[0])]}[] {parameter.name}=[{', '.join(map(_literal, items))}]"
    if type(default) in _KINDS:
        return f"{_KINDS[type(default)]} {parameter.name}={_literal(default)}"
    raise TypeError(
        f"{op.signature.title}: torch_op cannot pass {parameter.name}={default!r}; its operators take tensors, bool, "
        "int, float, str and lists of them. Call the op itself, which can"
    )


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _count(op: Op) -> int:
    """How many tensors the op returns: as seen at a call, or as annotated."""
    for definition in op._definitions.values():
        for traced in definition.traces.values():
            return len(traced.outputs)
    note = str(op.function.__annotations__.get("return", ""))
    return max(1, note.count("Tensor"))


def _free_name(op: Op) -> str:
    """The name of the op, with a number where another op had it."""
    base = re.sub(r"\W", "_", op.name)
    name, number = base, 1
    while hasattr(torch.ops.tedsl, name):
        number += 1
        name = f"{base}_{number}"
    return name
