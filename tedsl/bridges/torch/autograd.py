"""Derivatives of routines in PyTorch: one autograd function, whose backward and forward derivatives are routines too.

Under the transforms of torch.func it is applied from inside the registered operator, where the dispatcher has already
chosen the level of the transform: there it may do what the built-in operators do, record itself on the tensors of that
level. `Function.apply` would start the transforms once more, which is why its base is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from tedsl.bridges.torch.memory import run, specs_of
from tedsl.bridges.torch.routines import key_of
from tedsl.lang.axes import var
from tedsl.lang.dataclass import dataclass
from tedsl.ops.definition import Definition
from tedsl.ops.routines import Batched, Pullback, Pushforward, Routine
from tedsl.ops.saving import KeptPullback, SavedPositions, Saving, kept_by, saving_of
from tedsl.ops.shapes import Spec

__all__ = [
    "CALL",
    "PLAIN",
    "apply",
    "batched",
    "by_plan",
    "differentiable",
    "is_differentiated",
    "is_quiet",
    "open_specs",
    "plan_of",
]

Below = Callable[[Routine, Sequence[Any]], Sequence[Any]]
CALL: Any = None  # torch.ops.tedsl.call.default, once it is registered
PLAIN = (torch.Tensor, torch.nn.Parameter)
_symbols: dict[str, Any] = {}


def apply(routine: Routine, tensors: Sequence[Any]) -> Sequence[Any]:
    """The results of a routine, differentiable."""
    if not _is_plain(tensors):
        results: Sequence[Any] = CALL(key_of(routine), list(tensors))
        return results
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor.requires_grad:
                return differentiable(routine, tensors)
    return run(routine, tensors)


def _is_plain(tensors: Sequence[Any]) -> bool:
    """Whether these are tensors in memory and nobody watches."""
    return is_quiet() and all(type(t) in PLAIN and (t.is_cpu or t.is_cuda) for t in tensors)


def is_quiet() -> bool:
    """Whether a call is what it seems to be: no transform, no mode, no forward derivative, no autocast."""
    return not (
        torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._is_torch_function_mode_enabled()
        or forward_ad._current_level >= 0
        or _casts()
    )


def _casts_somewhere() -> bool:
    return bool(torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"))


_casts: Callable[[], bool] = getattr(torch._C, "_is_any_autocast_enabled", _casts_somewhere)  # one question, newer


def is_differentiated(tensors: Sequence[Any]) -> bool:
    """Whether autograd, or a transform of torch.func, wants to know about a call on these tensors."""
    if torch._C._are_functorch_transforms_active():
        return True
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return True
    if forward_ad._current_level < 0 or not torch._C._is_fwd_grad_enabled():
        return False
    return any(forward_ad.unpack_dual(t).tangent is not None for t in tensors)


def differentiable(routine: Routine, tensors: Sequence[Any], below: Below = run) -> tuple[Any, ...]:
    """The results of a routine through the autograd function; `below` computes them, without derivatives."""
    return by_plan(plan_of(routine, tensors), tensors, below)


@dataclass(frozen=True, eq=False)
class DerivativePlan:
    """How a routine is differentiated for tensors of given shapes."""

    target: Routine  # the routine, or the one that also gives what is kept
    kept: SavedPositions | None
    count: int  # outputs of the routine
    integers: tuple[int, ...]  # outputs without a derivative


_plans: WeakKeyDictionary[Routine, dict[Any, DerivativePlan]] = WeakKeyDictionary()


def plan_of(routine: Routine, tensors: Sequence[Any]) -> DerivativePlan:
    """The plan, made once; it writes the backward program but does not compile it."""
    specs, sizes = open_specs(routine, tensors)
    known = _plans.setdefault(routine, {})
    plan = known.get(specs)
    if plan is None:
        target, kept = routine, None
        if isinstance(routine, Definition) and routine.author.save != "inputs" and not sizes:
            # For sizes that are symbols of PyTorch's, stages may be kept that are others once these are numbers.
            saving = saving_of(routine, routine.author.save, specs)
            kept = kept_by(saving, specs)
            target = routine if kept is None else saving
        elif isinstance(routine, Saving):
            kept = routine.kept(specs)
        outputs = target.traced(specs).outputs
        integers = tuple(p for p, t in enumerate(outputs) if not t.dtype.is_float)
        plan = known[specs] = DerivativePlan(target, kept, len(routine.traced(specs).outputs), integers)
    return plan


def by_plan(plan: DerivativePlan, tensors: Sequence[Any], below: Below = run) -> tuple[Any, ...]:
    """The results for tensors of the shapes of the plan."""
    plain = super(torch.autograd.Function, _Differentiable).apply
    if torch._C._are_functorch_transforms_active():
        with enable_single_level_autograd_function():
            results: tuple[Any, ...] = plain(plan, below, *tensors)
    else:
        results = plain(plan, below, *tensors)
    return results[: plan.count]


def batched(routine: Routine, dims: Sequence[int | None]) -> Routine:
    """The routine with an axis in front of the inputs that have a batch dimension."""
    found: Routine = routine.derived(Batched, tuple(d is not None for d in dims))
    return found


def open_specs(routine: Routine, tensors: Sequence[Any]) -> tuple[tuple[Spec, ...], dict[Any, Any]]:
    """Shapes with a variable for each symbolic size, and the sizes; numbers where the routine needs them."""
    specs = specs_of(tensors)
    if all(type(n) is int for shape, _ in specs for n in shape):
        return specs, {}
    sizes: dict[Any, Any] = {}
    if routine.symbolic is not False:
        shaped = tuple((tuple(_symbol(n, sizes) for n in shape), dtype) for shape, dtype in specs)
        try:
            routine.traced(shaped)
            return shaped, sizes
        except Exception:  # the function needs numbers
            pass
    return tuple((tuple(map(int, shape)), dtype) for shape, dtype in specs), {}


def _symbol(n: Any, sizes: dict[Any, Any]) -> Any:
    """A variable for a symbolic size, the same for the same expression."""
    if type(n) is int:
        return n
    name = str(n)
    symbol = _symbols.setdefault(name, var(name)) if name.isidentifier() else _symbols.setdefault(name, var("size"))
    sizes[symbol] = n
    return symbol


def _remember(ctx: Any, plan: DerivativePlan, tensors: tuple[Any, ...], results: tuple[Any, ...]) -> None:
    """What backward needs: inputs that it reads, and results that were kept for it."""
    ctx.plan, ctx.count = plan, len(tensors)
    kept = plan.kept
    if kept is None:
        ctx.save_for_backward(*tensors)
    else:
        inputs = [t if p in kept.inputs else _shape_only(t) for p, t in enumerate(tensors)]
        ctx.save_for_backward(*inputs, *[results[p] for p in kept.results])
    if plan.integers:
        ctx.mark_non_differentiable(*[results[p] for p in plan.integers])
    ctx.set_materialize_grads(False)


def _shape_only(tensor: Any) -> Any:
    """A tensor of the same shape that holds one element: its values are not read."""
    return tensor.detach() if tensor.numel() < LITTLE else tensor.new_zeros(()).expand(tensor.shape)


LITTLE = 1 << 12  # elements that are not worth a tensor of their own


def _backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
    target, kept = ctx.plan.target, ctx.plan.kept
    nothing: tuple[Any, ...] = (None,) * (2 + ctx.count)
    wanted = tuple(p for p in range(ctx.count) if ctx.needs_input_grad[2 + p])
    heads = tuple(p for p, g in enumerate(grads) if g is not None)
    if not heads:
        return nothing
    pullback = _pullback(target, wanted, heads, kept)
    found = iter(apply(pullback, [*ctx.saved_tensors, *(_in_rows(grads[p]) for p in heads)]))
    returned: tuple[Any, ...] = (None, None, *[next(found) if p in wanted else None for p in range(ctx.count)])
    return returned


def _in_rows(head: Any) -> Any:
    """The adjoint of a result with its rows in memory: `y.sum()` gives one number seen everywhere, for which other code
    would be compiled than for the numbers of any other loss."""
    moving = [step for step, count in zip(head.stride(), head.shape, strict=True) if count > 1]
    return head if not moving or (moving[-1] == 1 and 0 not in moving) else head.contiguous()


def _pullback(target: Routine, wanted: tuple[int, ...], heads: tuple[int, ...], kept: SavedPositions | None) -> Routine:
    if kept is None:
        plain: Routine = target.derived(Pullback, wanted, heads)
        return plain
    assert isinstance(target, Saving)
    found: Routine = target.derived(KeptPullback, wanted, heads, kept.results)
    return found


def _jvp(ctx: Any, _: Any, __: Any, *tangents: Any) -> tuple[Any, ...]:
    moving = tuple(p for p, t in enumerate(tangents) if t is not None)
    if not any(ctx.floats):
        return (None,) * len(ctx.floats)
    pushforward = ctx.plan.target.derived(Pushforward, moving)
    found = iter(apply(pushforward, [*ctx.primals, *(tangents[p] for p in moving)]))
    return tuple(next(found) if is_float else None for is_float in ctx.floats)


class _Differentiable(torch.autograd.Function):  # type: ignore[misc]
    """A routine, computed by `below`."""

    @staticmethod
    def forward(ctx: Any, plan: DerivativePlan, below: Below, *tensors: Any) -> tuple[Any, ...]:
        results = tuple(below(plan.target, tensors))
        _remember(ctx, plan, tensors, results)
        if forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active():
            ctx.save_for_forward(*tensors)
            ctx.primals, ctx.floats = tensors, [t.is_floating_point() for t in results]
        return results

    backward = staticmethod(_backward)
    jvp = staticmethod(_jvp)
