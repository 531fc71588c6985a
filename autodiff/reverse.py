"""`differentiate`: adjoints of tensors as tensors, in reverse over the stages.

Every read of a stage is turned around on its own (`autodiff.stages`), a tensor's adjoint is the sum over its readers.
Nothing of the size of a Jacobian is formed unless a Jacobian is asked for.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from autodiff.cotangent import Cotangent, Identity, One, Stored, fresh_axes
from autodiff.custom import rule_of, stages_along
from autodiff.flows import Flow
from autodiff.gather import adjoint_of_read
from autodiff.result import Explanation, Gradients, ReadReport
from autodiff.stages import flows_of
from tedsl.lang.compute import compute_tensors
from tedsl.lang.errors import GradientError, user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import same_extent
from tedsl.lang.tensor import Compute, Operation, Placeholder, Scatter, Shape, Tensor
from tedsl.lang.traverse import substitute_all

__all__ = ["IntegerGradientError", "differentiate", "vjp"]

JACOBIAN_WARNING = 256 << 20
JACOBIAN_LIMIT = 4 << 30

Override = Mapping[Tensor, Any]
Fdiff = Callable[[Tensor, Tensor, Tensor], "Tensor | None"]


class IntegerGradientError(GradientError, TypeError):
    """A derivative with respect to, or of, something that is not a float."""


def differentiate(
    output: Any, inputs: Any = None, head: Any = None, override: Override | None = None, fdiff: Fdiff | None = None
) -> Any:
    """The adjoints of `inputs` (every float placeholder when None) for `output`, a tensor or a list.

    `head` is the adjoint of the output, of its shape or prefix + shape; without one it is 1 for a scalar, and the
    result is the full Jacobian (output.shape + input.shape) otherwise. `override={T: (deps, fn)}` replaces the
    derivative of T by `fn(T, deps, adjoint_of_T)`, one summand per dep, None allowed (`{T: fn}`: deps are T's direct
    inputs); `fdiff(output, input, head)` replaces how each edge is differentiated. A single input tensor gives a
    single adjoint, else a `Gradients` sequence.
    """
    outputs = _tensors(output, "output")
    heads = _heads(outputs, head, isinstance(output, Tensor))
    single = isinstance(inputs, Tensor)
    asked = None if inputs is None else _tensors(inputs, "inputs")
    gradients = _Reverse(outputs, asked, heads, override or {}, fdiff).run()
    return gradients[0] if single else gradients


def vjp(output: Tensor, input: Tensor, head: Tensor) -> Tensor:
    """The default rule for one edge: head times the derivative of `output` by its direct input `input`."""
    if not any(input is t for t in output.op.inputs):
        raise ValueError(
            f"vjp: {input!r} is not a direct input of {output!r}; use differentiate to go through several stages"
        )
    prefix = _prefix_axes(head.extents[: head.ndim - output.ndim])
    flows = flows_of(output.op, {output.index: Stored(head)}, prefix, frozenset([id(input)]))
    name = f"d{input.name}_{output.name}"
    parts = [c.tensor for f in flows if (c := _turned(f, prefix, name)).tensor is not None]
    return total(parts, name) if parts else zeros((*_extents(prefix), *input.extents), input, name)


def _tensors(value: Any, what: str) -> tuple[Tensor, ...]:
    items = (value,) if isinstance(value, Tensor) else tuple(value)
    for item in items:
        if not isinstance(item, Tensor):
            raise TypeError(f"differentiate: {what} must be tensors, found {type(item).__name__}, at {user_location()}")
        if not item.dtype.is_float:
            raise IntegerGradientError(
                f"differentiate: {item!r} in {what} is {item.dtype}, and only floats have gradients, at "
                f"{user_location()}; "
                "te.cast it to a float before the computation"
            )
    return items


def _heads(outputs: tuple[Tensor, ...], head: Any, single: bool) -> tuple[Cotangent, ...]:
    given = (None,) * len(outputs) if head is None else (head,) if isinstance(head, Tensor) else tuple(head)
    if len(given) != len(outputs):
        raise ValueError(f"differentiate: {len(outputs)} outputs but {len(given)} heads, at {user_location()}")
    if len(outputs) > 1 and any(h is None and t.ndim for h, t in zip(given, outputs, strict=True)):
        raise ValueError(
            f"differentiate: several outputs of which one is not a scalar need head=[...], one per output, at "
            f"{user_location()}"
        )
    return tuple(_cotangent(t, h) for t, h in zip(outputs, given, strict=True))


def _cotangent(output: Tensor, head: Tensor | None) -> Cotangent:
    if head is None:
        return One(output.dtype) if output.ndim == 0 else Identity(output.extents, output.dtype)
    if not isinstance(head, Tensor):
        raise TypeError(f"differentiate: a head must be a tensor, found {type(head).__name__}, at {user_location()}")
    tail = head.extents[head.ndim - output.ndim :] if head.ndim >= output.ndim else ()
    if len(tail) != output.ndim or not all(same_extent(a, b) for a, b in zip(tail, output.extents, strict=True)):
        raise ValueError(
            f"differentiate: head {head!r} must have the shape of {output!r}, or any prefix before it, at "
            f"{user_location()}"
        )
    if head.dtype is not output.dtype:
        raise TypeError(
            f"differentiate: head {head!r} must be {output.dtype} as the output {output!r}, at {user_location()}"
        )
    return Stored(head)


def _prefix_of(cotangent: Cotangent, output: Tensor) -> Shape:
    if isinstance(cotangent, Identity):
        return cotangent.shape
    return cotangent.held.extents[: cotangent.held.ndim - output.ndim] if isinstance(cotangent, Stored) else ()


def _prefix_axes(extents: Iterable[Expr]) -> tuple[Axis, ...]:
    return tuple(Axis(f"p{d}", e) for d, e in enumerate(extents))


def _extents(axes: Iterable[Axis]) -> Shape:
    return tuple(a.extent for a in axes if a.extent is not None)


def _turned(flow: Flow, prefix: tuple[Axis, ...], name: str) -> Any:
    shape = (*_extents(prefix), *flow.source.extents)
    return adjoint_of_read(flow.axes, flow.index, flow.value, shape, conditions=flow.conditions, name=name)


def total(parts: Sequence[Tensor], name: str) -> Tensor:
    """The sum of tensors of one shape."""
    if len(parts) == 1:
        return parts[0]
    axes = fresh_axes(parts[0].extents)
    value: Expr = Read(parts[0], axes)
    for part in parts[1:]:
        value = value + Read(part, axes)
    return compute_tensors(axes, (value,), name)[0]


def written_out(parts: Sequence[Tensor], name: str) -> Tensor:
    """The sum of what several reads of one consumer send back.

    rewrites   n pointwise tensors and their sum, n + 1 passes   ->   one pass, in which they share what is common
               n scatters and their sum   ->   scatters of which each continues the one before
    """
    if len(parts) == 1:
        return parts[0]
    start = _pointwise_sum([p for p in parts if not _is_sum_by_scatter(p)], name)
    for part in parts:
        if _is_sum_by_scatter(part):
            start = part if start is None else _continued(part.op, start)
    assert start is not None
    return start


def _is_sum_by_scatter(part: Tensor) -> bool:
    return isinstance(part.op, Scatter) and part.op.kind == "add" and part.op.init is None


def _continued(op: Operation, start: Tensor) -> Tensor:
    """A scatter that adds to `start`."""
    assert isinstance(op, Scatter)
    return Scatter(
        name=op.name, where=op.where, shape=op.shape, axes=op.axes, index=op.index, value=op.value, guard=op.guard,
        kind=op.kind, init=start,
    ).output()  # fmt: skip


def _pointwise_sum(parts: Sequence[Tensor], name: str) -> Tensor | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    axes = fresh_axes(parts[0].extents)
    terms: list[Expr] = []
    for part in parts:
        term: Expr = Read(part, axes)
        if isinstance(part.op, Compute) and part.op.reduction is None:
            (term,) = substitute_all((part.op.bodies[part.index],), dict(zip(part.op.axes, axes, strict=True)))
        terms.append(term)
    return compute_tensors(axes, (reduce(operator.add, terms),), name)[0]


def zeros(shape: Iterable[Any], like: Tensor, name: str) -> Tensor:
    """A zero tensor of `like`'s dtype."""
    return compute_tensors(fresh_axes(tuple(shape)), (Const(0.0, like.dtype),), name)[0]


class _Reverse:
    """One differentiation: what is known of each tensor so far."""

    def __init__(
        self,
        outputs: tuple[Tensor, ...],
        inputs: tuple[Tensor, ...] | None,
        heads: tuple[Cotangent, ...],
        override: Override,
        fdiff: Fdiff | None,
    ) -> None:
        self.outputs, self.heads, self.fdiff = outputs, heads, fdiff
        self.override = {t: _checked_override(t, rule) for t, rule in override.items()}
        self.used: set[Tensor] = set()
        self.order = stages_along(outputs, self.dependencies)
        # Held, so that a tensor's id stays its own while this runs.
        self.alive = [op.outputs for op in self.order]
        self.inputs = self._placeholders() if inputs is None else inputs
        self.wanted = self._wanted()
        self.prefix = self._common_prefix()
        # tensor -> consumer -> summand; a seed has no consumer
        self.seeds: dict[Tensor, list[Cotangent]] = {}
        self.summands: dict[Tensor, dict[Tensor, Tensor]] = {}
        self.adjoints: dict[Tensor, Tensor] = {}
        self.reports: list[ReadReport] = []

    def run(self) -> Gradients:
        for output, head in zip(self.outputs, self.heads, strict=True):
            self.seeds.setdefault(output, []).append(head)
        self._check_jacobian_size()
        for op in reversed(self.order):
            self._stage(op)
        unused = [t for t in self.override if t not in self.used]
        if unused:
            raise ValueError(
                f"differentiate: the override of {unused[0]!r} is never used: it lies on no path from the inputs to "
                f"the output, "
                f"at {user_location()}"
            )
        absent = [t for t in self.inputs if t not in self.adjoints]
        for tensor in absent:
            shape = (*_extents(self.prefix), *tensor.extents)
            self.adjoints[tensor] = zeros(shape, tensor, f"d{tensor.name}")
        results = tuple(self.adjoints[t] for t in self.inputs)
        explanation = Explanation(tuple(self.reports), tuple(absent))
        return Gradients(self.inputs, results, self.adjoints, self.summands, explanation)

    def dependencies(self, op: Operation) -> tuple[Tensor, ...]:
        """What the derivative of `op` flows to: its inputs, or what an override names instead."""
        found: list[Tensor] = []
        direct = False
        for tensor in op.outputs:
            rule = self._rule(tensor)
            if rule is not None:
                found += rule[0]
            else:
                direct = True
        return tuple(dict.fromkeys([*found, *(op.inputs if direct else ())]))

    def _rule(self, tensor: Tensor) -> tuple[tuple[Tensor, ...], Callable[..., Any]] | None:
        """What replaces the derivative of a tensor: an override, or the rule that the author of its function gave."""
        if tensor in self.override:
            return self.override[tensor]
        rule = rule_of(tensor)
        return None if rule is None or rule.vjp is None else (rule.deps, rule.vjp)

    def _placeholders(self) -> tuple[Tensor, ...]:
        found = [op.output() for op in self.order if isinstance(op, Placeholder)]
        return tuple(t for t in found if t.dtype.is_float)

    def _wanted(self) -> frozenset[int]:
        """Ids of the float tensors through which an input is reached."""
        wanted = {id(t) for t in self.inputs}
        for op in self.order:
            if any(id(t) in wanted for t in self.dependencies(op)):
                wanted |= {id(t) for t in op.outputs if t.dtype.is_float}
        return frozenset(wanted)

    def _common_prefix(self) -> tuple[Axis, ...]:
        prefixes = [_prefix_of(h, t) for h, t in zip(self.heads, self.outputs, strict=True)]
        first = prefixes[0] if prefixes else ()
        for other in prefixes[1:]:
            if len(other) != len(first) or not all(same_extent(a, b) for a, b in zip(first, other, strict=True)):
                raise ValueError(
                    f"differentiate: all heads must have the same prefix before the output's shape, at "
                    f"{user_location()}"
                )
        return _prefix_axes(first)

    def _check_jacobian_size(self) -> None:
        for head in self.heads:
            if not isinstance(head, Identity):
                continue
            for tensor in self.inputs:
                size = tensor.dtype.itemsize
                for extent in (*head.shape, *tensor.extents):
                    size *= int(extent.value) if isinstance(extent, Const) else 1
                message = (
                    f"the full Jacobian with respect to {tensor!r} takes {size / 2**20:.0f} MB; "
                    "give head= for a product with it"
                )
                if size > JACOBIAN_LIMIT:
                    raise ValueError(f"differentiate: {message}, at {user_location()}")
                if size > JACOBIAN_WARNING:
                    warnings.warn(message, ResourceWarning, stacklevel=4)

    def _stage(self, op: Operation) -> None:
        cotangents = {}
        for tensor in op.outputs:
            if id(tensor) in self.wanted and (tensor in self.seeds or tensor in self.summands):
                cotangents[tensor.index] = self._total(tensor)
        for k, cotangent in list(cotangents.items()):
            tensor = op.output(k)
            rule = self._rule(tensor)
            if rule is not None:
                del cotangents[k]
                self._overridden(tensor, rule, cotangent.tensor(f"d{tensor.name}"))
        if not cotangents or isinstance(op, Placeholder):
            return
        if self.fdiff is not None:
            self._by_edges(op, cotangents)
        else:
            self._by_flows(op, cotangents)

    def _total(self, tensor: Tensor) -> Cotangent:
        """The adjoint of a tensor, all its readers done."""
        seeds = self.seeds.get(tensor, [])
        parts = list(self.summands.get(tensor, {}).values())
        if len(seeds) == 1 and not parts:
            cotangent = seeds[0]
            self.adjoints[tensor] = cotangent.tensor(f"d{tensor.name}")
            return cotangent
        parts = [s.tensor(f"d{tensor.name}_head") for s in seeds] + parts
        self.adjoints[tensor] = total(parts, f"d{tensor.name}")
        return Stored(self.adjoints[tensor])

    def _add(self, tensor: Tensor, consumer: Tensor, parts: list[Tensor]) -> None:
        if parts:
            known = self.summands.setdefault(tensor, {})
            before = [known[consumer]] if consumer in known else []
            known[consumer] = total([*before, *parts], f"d{tensor.name}_{consumer.name}")

    def _by_flows(self, op: Operation, cotangents: dict[int, Cotangent]) -> None:
        consumer = op.output(next(iter(cotangents)))
        found: dict[Tensor, list[Tensor]] = {}
        made = []
        for flow in flows_of(op, cotangents, self.prefix, self.wanted):
            turned = _turned(flow, self.prefix, f"d{flow.source.name}_{consumer.name}")
            made.append((flow, turned))
            if turned.tensor is not None:
                found.setdefault(flow.source, []).append(turned.tensor)
        sums = {source: written_out(parts, f"d{source.name}_{consumer.name}") for source, parts in found.items()}
        for source, summed in sums.items():
            self._add(source, consumer, [summed])
        for flow, turned in made:
            index = ", ".join(map(str, flow.index[len(self.prefix) :]))
            # A part that its sum computes itself, or continues, is no stage of the program.
            stage = turned.tensor
            if stage is not None and not any(t is stage for t in sums[flow.source].op.inputs):
                stage = sums[flow.source]
            self.reports.append(ReadReport(consumer, flow.source, index, turned.kind, turned.reason, stage))

    def _by_edges(self, op: Operation, cotangents: dict[int, Cotangent]) -> None:
        assert self.fdiff is not None
        for k, cotangent in cotangents.items():
            output = op.output(k)
            head = cotangent.tensor(f"d{output.name}")
            for source in op.inputs:
                if id(source) in self.wanted:
                    part = self.fdiff(output, source, head)
                    if part is not None:
                        self._add(
                            source, output, [self._checked(part, source, f"fdiff of ({output.name}, {source.name})")]
                        )

    def _overridden(
        self, tensor: Tensor, given: tuple[tuple[Tensor, ...], Callable[..., Any]], adjoint: Tensor
    ) -> None:
        deps, rule = given
        self.used.add(tensor)
        what = f"override of {tensor.name!r}"
        result = rule(tensor, list(deps), adjoint)
        parts = (result,) if isinstance(result, Tensor) or result is None else tuple(result)
        if len(parts) != len(deps):
            raise ValueError(f"differentiate: the {what} returned {len(parts)} adjoints for {len(deps)} dependencies")
        for dep, part in zip(deps, parts, strict=True):
            if part is not None and dep.dtype.is_float:
                self._add(dep, tensor, [self._checked(part, dep, what)])

    def _checked(self, part: Any, source: Tensor, what: str) -> Tensor:
        if not isinstance(part, Tensor):
            raise TypeError(
                f"differentiate: the {what} must return tensors, found {type(part).__name__} for {source!r}"
            )
        shape = (*_extents(self.prefix), *source.extents)
        fits = part.ndim == len(shape) and all(same_extent(a, b) for a, b in zip(part.extents, shape, strict=True))
        if not fits:
            expected = ", ".join(map(str, shape))
            raise ValueError(f"differentiate: the {what} must return shape ({expected}) for {source!r}, found {part!r}")
        if part.dtype is not source.dtype:
            raise TypeError(f"differentiate: the {what} must return {source.dtype} for {source!r}, found {part!r}")
        return part


def _checked_override(tensor: Any, rule: Any) -> tuple[tuple[Tensor, ...], Callable[..., Any]]:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"differentiate: override maps tensors to (deps, fn), found the key {tensor!r:.40}")
    if callable(rule):
        return tensor.op.inputs, rule
    if not isinstance(rule, tuple) or len(rule) != 2 or not callable(rule[1]):
        raise TypeError(f"differentiate: the override of {tensor!r} must be (deps, fn) or fn, found {rule!r:.60}")
    deps = (rule[0],) if isinstance(rule[0], Tensor) else tuple(rule[0])
    for dep in deps:
        if not isinstance(dep, Tensor):
            raise TypeError(
                f"differentiate: the deps of the override of {tensor!r} must be tensors, found {type(dep).__name__}"
            )
    return deps, rule[1]
