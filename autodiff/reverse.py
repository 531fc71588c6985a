"""`differentiate`: adjoints of tensors as tensors, in reverse over the stages.

Every read of a stage is turned around on its own (`rules.stages`), a tensor's adjoint is the sum over its readers.
Nothing of the size of a Jacobian is formed unless a Jacobian is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from autodiff.custom import rule_of, stages_along
from autodiff.heads import check_jacobian_size, check_order, common_prefix, extents_of, floats, heads_of, prefix_axes
from autodiff.overrides import Fdiff, Given, Override, rules_of, summand, summands_of
from autodiff.result import Explanation, Gradients, ReadReport
from autodiff.rules.flows import Flow
from autodiff.rules.stages import flows_of
from autodiff.rules.totals import total, written_out, zeros
from autodiff.turning.answers import Answer
from autodiff.turning.cotangent import Cotangent, Sparse, Stored, Support, common_support
from autodiff.turning.gather import adjoint_of_read
from autodiff.turning.reached import Reached, together
from autodiff.within_steps import OutsideStep, outside_step
from tedsl.analysis.arrays.nests import map_leaves
from tedsl.analysis.canceling import canceling
from tedsl.analysis.messages import sent_back
from tedsl.analysis.scaled_sums import ScaledSums, scaled_sums
from tedsl.lang.border_text import Said, reads_beyond
from tedsl.lang.collecting import collected_later
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.keywords import own_arguments
from tedsl.lang.scalar_text import brief
from tedsl.lang.tensor import Compute, Constant, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.titles import check_not_renamed

__all__ = ["differentiate", "vjp"]


@overload
def differentiate(
    output: Tensor | Sequence[Tensor], inputs: Tensor, head: Any = None, override: Override | None = None,
    fdiff: Fdiff | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def differentiate(
    output: Tensor | Sequence[Tensor], inputs: Sequence[Tensor] | None = None, head: Any = None,
    override: Override | None = None, fdiff: Fdiff | None = None,
) -> Gradients: ...  # fmt: skip
@own_arguments()
def differentiate(
    output: Any, inputs: Any = None, head: Any = None, override: Override | None = None, fdiff: Fdiff | None = None
) -> Any:
    """The adjoints of `inputs` (every float placeholder when None) for `output`, a tensor or a list.

    A single input tensor gives a single adjoint, a list gives a `Gradients` sequence, and a nest of dicts, lists and
    tuples gives adjoints in that nest.

    head      the adjoint of the output: a tensor of its shape or of prefix + shape, or a number for all of it. Without
              one it is 1 for a scalar; otherwise the result is the full Jacobian, of shape output.shape + input.shape
    override  rules of your own. {T: fn} replaces the derivative of T by `fn(T, inputs, adjoint_of_T)`, which gives one
              summand for each direct input of T, None where there is none; {T: (deps, fn)} names other tensors
    fdiff     a function `fdiff(output, input, head)` that differentiates every edge of the program
    """
    if isinstance(inputs, Mapping) or (
        isinstance(inputs, (list, tuple)) and any(isinstance(t, (Mapping, list, tuple)) for t in inputs)
    ):
        return _by_nest(output, inputs, head, override, fdiff)
    outputs = floats(output, "output")
    heads = heads_of(outputs, head)
    asked = None if inputs is None else floats(inputs, "inputs")
    rules = rules_of(override, fdiff)
    program = outside_step((*outputs, *_tensors_in(head)), asked or (), "differentiate")
    with collected_later():
        if program is None:
            gradients = _Reverse(outputs, asked, heads, rules, fdiff).run()
        else:
            gradients = _of_step(program, outputs, asked, head, rules, fdiff)
    if not isinstance(inputs, Tensor):
        return gradients
    single = gradients[0]
    single._explanation = gradients.explanation
    return single


def _of_step(
    program: OutsideStep,
    outputs: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...] | None,
    head: Any,
    rules: dict[Tensor, Given],
    fdiff: Fdiff | None,
) -> Gradients:
    """The adjoints of what a step of a scan computes, as stages of the step."""
    if inputs is None:
        raise ValueError(
            f"differentiate, at {user_location()}: found {outputs[0]!r}, which a step of a te.scan makes; give inputs="
        )
    found = program.of(differentiate, outputs, inputs, head, rules, fdiff)
    results = program.back(found)
    summands: dict[Tensor, Mapping[Tensor, Tensor]] = {t: {} for t in inputs}
    return Gradients(inputs, results, dict(zip(inputs, results, strict=True)), summands, found.explanation)


def _tensors_in(head: Any) -> tuple[Tensor, ...]:
    """The tensors among heads."""
    return tuple(h for h in (head if isinstance(head, (list, tuple)) else (head,)) if isinstance(h, Tensor))


def _by_nest(output: Any, inputs: Any, head: Any, override: Any, fdiff: Any) -> Any:
    """The adjoints in the nest in which the inputs are."""
    listed: list[Tensor] = []

    def numbered(leaf: Any, name: str) -> int:
        if not isinstance(leaf, Tensor):
            raise TypeError(
                f"differentiate: inputs must be tensors, found {type(leaf).__name__} {leaf!r:.40} as {name}, at "
                f"{user_location()}"
            )
        listed.append(leaf)
        return len(listed) - 1

    nest = map_leaves(dict(inputs) if isinstance(inputs, Mapping) else inputs, "inputs", numbered)
    gradients = differentiate(output, listed, head, override, fdiff)
    for adjoint in gradients:
        adjoint._explanation = gradients.explanation
    return map_leaves(nest, "inputs", lambda place, _: gradients[place])


def vjp(output: Tensor, input: Tensor, head: Tensor) -> Tensor:
    """The default rule for one edge: head times the derivative of `output` by its direct input `input`."""
    if not any(input is t for t in output.op.inputs):
        raise ValueError(
            f"vjp: {input!r} is not a direct input of {output!r}; use differentiate to go through several stages"
        )
    prefix = prefix_axes(head.extents[: head.ndim - output.ndim])
    flows = flows_of(output.op, {output.index: Stored(head)}, prefix, frozenset([id(input)]))
    name = f"d{input.name}_{output.name}"
    turned = [_turned(f, prefix, name) for f in flows if f.within is None]
    parts = [c.tensor for c in turned if c.tensor is not None]
    return total(parts, name) if parts else zeros((*extents_of(prefix), *input.extents), input, name)


def _turned(flow: Flow, prefix: tuple[Axis, ...], name: str) -> Any:
    shape = (*extents_of(prefix), *flow.source.extents)
    return adjoint_of_read(
        flow.axes, flow.index, flow.value, shape, conditions=flow.conditions, name=name, reached=flow.reached,
        prefix=len(prefix),
    )  # fmt: skip


class _Reverse:
    """One differentiation: what is known of each tensor so far."""

    def __init__(
        self,
        outputs: tuple[Tensor, ...],
        inputs: tuple[Tensor, ...] | None,
        heads: tuple[Cotangent, ...],
        rules: dict[Tensor, Given],
        fdiff: Fdiff | None,
    ) -> None:
        self.outputs, self.heads, self.rules, self.fdiff = outputs, heads, rules, fdiff
        self.used: set[Tensor] = set()
        self.order = stages_along(outputs, self.dependencies)
        # Held, so that a tensor's id stays its own while this runs.
        self.alive = [op.outputs for op in self.order]
        self.inputs = self._placeholders() if inputs is None else inputs
        self.wanted, self.canceled = self._wanted(()), list[Tensor]()
        if fdiff is None:
            self._leave_out()
        self.prefix = common_prefix(heads, outputs)
        self.read_once = self._read_once()
        # tensor -> consumer -> summand; a seed has no consumer
        self.seeds: dict[Tensor, list[Cotangent]] = {}
        self.summands: dict[Tensor, dict[Tensor, Tensor]] = {}
        self.reached: dict[Tensor, list[Reached | None]] = {}
        self.supports: dict[Tensor, Support] = {}  # of summands that are mostly zeros
        self.adjoints: dict[Tensor, Tensor] = {}
        self.reports: list[ReadReport] = []
        self.said: dict[Operation, dict[Read, Said]] = {}

    def run(self) -> Gradients:
        for output, head in zip(self.outputs, self.heads, strict=True):
            self.seeds.setdefault(output, []).append(head)
        check_jacobian_size(self.heads, self.inputs)
        for op in reversed(self.order):
            self._stage(op)
        unused = [t for t in self.rules if t not in self.used]
        if unused:
            raise ValueError(
                f"differentiate: the override of {unused[0]!r} is never used: it lies on no path from the inputs to "
                f"the output, "
                f"at {user_location()}"
            )
        absent = [t for t in self.inputs if t not in self.adjoints]
        check_not_renamed(absent, self.order, "differentiate")
        if len(absent) == len(self.inputs):
            check_order(self.outputs, self.inputs, "differentiate")
        for tensor in absent:
            shape = (*extents_of(self.prefix), *tensor.extents)
            self.adjoints[tensor] = zeros(shape, tensor, f"d{tensor.name}")
        results = tuple(self.adjoints[t] for t in self.inputs)
        explanation = Explanation(tuple(self.reports), tuple(absent), tuple(self.canceled), (*self.outputs, *results))
        summands = {t: self.summands.get(t, {}) for t in self.adjoints}  # the adjoint of an output is its head alone
        return Gradients(self.inputs, results, self.adjoints, summands, explanation)

    def dependencies(self, op: Operation) -> tuple[Tensor, ...]:
        """What the derivative of `op` flows to: its inputs, or what an override names instead."""
        found: list[Tensor] = []
        direct = False
        for tensor in op.outputs:
            rule = self._given(tensor)
            if rule is not None:
                found += rule[0]
            else:
                direct = True
        return tuple(dict.fromkeys([*found, *(op.inputs if direct else ())]))

    def _given(self, tensor: Tensor) -> Given | None:
        """What replaces the derivative of a tensor: an override, or the rule that the author of its function gave."""
        if tensor in self.rules:
            return self.rules[tensor]
        rule = rule_of(tensor)
        return None if rule is None or rule.vjp is None else (rule.deps, rule.vjp)

    def _placeholders(self) -> tuple[Tensor, ...]:
        given = [op for op in self.order if isinstance(op, Placeholder) and not isinstance(op, Constant)]
        found = [op.output() for op in given]
        return tuple(t for t in found if t.dtype.is_float)

    def _wanted(self, without: Sequence[Tensor]) -> frozenset[int]:
        """Ids of the float tensors through which an input is reached."""
        wanted, left = {id(t) for t in self.inputs}, {id(t) for t in without}
        for op in self.order:
            if any(id(t) in wanted for t in self.dependencies(op)):
                wanted |= {id(t) for t in op.outputs if t.dtype.is_float and id(t) not in left}
        return frozenset(wanted)

    def _read_once(self) -> frozenset[Tensor]:
        """The inputs that get their adjoint from one stage alone: it is what people know as the adjoint."""
        readers = Counter(t for op in self.order if self._is_wanted(op) for t in self.dependencies(op))
        return frozenset(t for t in self.inputs if readers[t] == 1)

    def _is_wanted(self, op: Operation) -> bool:
        return any(id(t) in self.wanted for t in op.outputs)

    def _named(self, source: Tensor, consumer: Tensor, reads: int = 1) -> str:
        """What the part of an adjoint is called that comes from one stage, or from one of several reads there."""
        is_all = source in self.read_once and reads == 1
        return f"d{source.name}" if is_all else f"d{source.name}_{consumer.name}"

    def _leave_out(self) -> None:
        """Derivatives by what the outputs do not depend on are 0; those that somebody asks for are computed."""
        found = canceling(self.order, self.outputs, self.dependencies, lambda op: any(map(self._given, op.outputs)))
        asked = frozenset(self.inputs)
        found = [t for t in found if t not in asked]
        wanted = self._wanted(found)
        if all(id(t) in wanted for t in self.rules if id(t) in self.wanted):
            self.wanted, self.canceled = wanted, found

    def _stage(self, op: Operation) -> None:
        cotangents = {}
        for tensor in op.outputs:
            if id(tensor) in self.wanted and (tensor in self.seeds or tensor in self.summands):
                cotangents[tensor.index] = self._total(tensor)
        for k in list(cotangents):
            tensor = op.output(k)
            rule = self._given(tensor)
            if rule is not None:
                del cotangents[k]
                self._overridden(tensor, rule, self.adjoints[tensor])
        if not cotangents or isinstance(op, Placeholder):
            return
        if self.fdiff is not None:
            self._by_edges(op, cotangents)
        elif isinstance(op, Compute) and (parts := scaled_sums(op)) is not None:
            self._by_parts(op, parts, cotangents)
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
        reached = None if seeds else together(self.reached.get(tensor, ()), tensor)
        stored = Stored(self.adjoints[tensor], None if reached is None else reached.at)
        support = None if seeds else common_support([self.supports.get(p) for p in parts])
        return stored if support is None else Sparse(stored, *support)

    def _add(self, tensor: Tensor, consumer: Tensor, part: Tensor, reached: Sequence[Reached | None] = (None,)) -> None:
        known = self.summands.setdefault(tensor, {})
        known[consumer] = (
            total([known[consumer], part], f"d{tensor.name}_{consumer.name}") if consumer in known else part
        )
        self.reached.setdefault(tensor, []).extend(reached)

    def _by_flows(self, op: Operation, cotangents: dict[int, Cotangent]) -> None:
        consumer = op.output(next(iter(cotangents)))
        found: dict[Tensor, list[Tensor]] = {}
        made = []
        flows = list(flows_of(op, cotangents, self.prefix, self.wanted, self.order))
        count = Counter(flow.source for flow in flows)
        for flow in flows:
            if flow.within is not None:
                self._report(consumer, flow, "gather", "within the reverse recurrence", flow.within)
                continue
            name = self._named(flow.source, consumer, count[flow.source])
            turned = _turned(flow, self.prefix, name)
            made.append((flow, turned))
            if turned.tensor is not None:
                found.setdefault(flow.source, []).append(turned.tensor)
            if turned.support is not None:
                self.supports[turned.tensor] = turned.support
        sums = {source: written_out(parts, self._named(source, consumer)) for source, parts in found.items()}
        for source, summed in sums.items():
            reached = [t.reached for f, t in made if f.source is source and t.tensor is not None]
            self._add(source, consumer, summed, reached)
        for flow, turned in made:
            # A part that its sum computes itself, or continues, is no stage of the program.
            stage = turned.tensor
            if stage is not None and not any(t is stage for t in sums[flow.source].op.inputs):
                stage = sums[flow.source]
            self._report(consumer, flow, turned.kind, turned.reason, stage, turned.found, turned.left)

    def _by_parts(self, op: Compute, parts: ScaledSums, cotangents: dict[int, Cotangent]) -> None:
        """A reduction of several components through the stages that it is made of."""
        reader = replace(op, bodies=parts.bodies, _outputs={})
        wanted = set(self.wanted)
        for stage in parts.stages:
            if any(id(t) in wanted for t in stage.inputs):
                wanted.add(id(stage.output()))
        outputs = reader.outputs
        self.wanted = frozenset(wanted | {id(outputs[k]) for k in cotangents})
        self.seeds.update((outputs[k], [cotangent]) for k, cotangent in cotangents.items())
        self.alive += [outputs, *(stage.outputs for stage in parts.stages)]
        for own in (reader, *reversed(parts.stages)):
            self._stage(own)

    def _report(
        self,
        consumer: Tensor,
        flow: Flow,
        kind: str,
        reason: str,
        stage: Tensor | None,
        found: Answer | None = None,
        left: Answer | None = None,
    ) -> None:
        indices = flow.index[len(self.prefix) :]
        said = self._said(consumer.op, flow.source, indices)
        made = ReadReport(consumer, flow.source, indices, kind, reason, stage, found, left, said)
        self.reports.append(made)
        if stage is not None and isinstance(stage.op, Scatter):
            sent_back(stage.op, made.written(lambda exprs: [*map(brief, exprs)], flow.source.name), consumer.op)

    def _said(self, op: Operation, source: Tensor, indices: tuple[Expr, ...]) -> Said | None:
        """A read of an operation as it was written, where that says what lies beyond a border."""
        if op not in self.said:
            self.said[op] = reads_beyond(op.nodes)
        own = op.states[source.index] if isinstance(op, Scan) and source.op is op else source
        return self.said[op].get(Read(own, indices))

    def _by_edges(self, op: Operation, positions: Iterable[int]) -> None:
        assert self.fdiff is not None
        for k in positions:
            output = op.output(k)
            head = self.adjoints[output]
            for source in op.inputs:
                if id(source) in self.wanted:
                    part = self.fdiff(output, source, head)
                    if part is not None:
                        what = f"fdiff of ({output.name}, {source.name})"
                        self._add(source, output, summand(part, source, extents_of(self.prefix), what, self.fdiff))
                        self.reports.append(ReadReport(output, source, (), "fdiff", "given by fdiff=", part))

    def _overridden(self, tensor: Tensor, given: Given, adjoint: Tensor) -> None:
        self.used.add(tensor)
        why = "given by override=" if tensor in self.rules else "given by the author of its function"
        for dep, part in summands_of(tensor, given, adjoint, extents_of(self.prefix)):
            self._add(dep, tensor, part)
            self.reports.append(ReadReport(tensor, dep, (), "override", why, part))
