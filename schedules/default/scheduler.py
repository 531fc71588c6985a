"""From a plan to a complete one: what its directives leave open is scheduled by the first pattern that knows it.

A stage that a directive speaks of is left to the directives; every other one may be rewritten, and gets directives of
its own. So a schedule that says nothing becomes the default schedule, and any part of that can be taken over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from schedules.conditions import tidy
from schedules.cutting.repetition import copied_by
from schedules.default.alike import kind_of
from schedules.default.canonical.expansion import expanded, step_written_out, windows_between_stages
from schedules.default.canonical.factors import grouped
from schedules.default.canonical.growing import growing
from schedules.default.canonical.invariants import invariants_apart
from schedules.default.canonical.normal import normal
from schedules.default.canonical.parts import is_float_sum, parts_of
from schedules.default.canonical.views import is_view, over_cheap, over_product, through_views
from schedules.default.common_sums import with_common_sums
from schedules.default.costs import Costs, cheap_components, costs_of, shared_of
from schedules.default.gpu.kernels import plan_gpu
from schedules.default.gpu.scatters import plan_tables
from schedules.default.gpu.shared import stage_stencils
from schedules.default.gpu.sums import rewrite_sum
from schedules.default.neighbors import along
from schedules.default.patterns.across import is_narrow, plan_across, plan_without_units, tables_turned, terms_turned
from schedules.default.patterns.bordered import bordered_windows
from schedules.default.patterns.lanes import rewrite_reduction
from schedules.default.patterns.lookups import plan_lookup
from schedules.default.patterns.nests import plan_nests, windows_alone
from schedules.default.patterns.outputs import merge_outputs
from schedules.default.patterns.padding import is_window, padded_windows
from schedules.default.patterns.pipelines import pipelines_of, plan_pipelines
from schedules.default.patterns.scans import (
    adds_one_by_one,
    along_memory,
    parts_read_through,
    plan_scan,
    steps_asked_for,
)
from schedules.default.patterns.scatters import plan_scatter
from schedules.default.patterns.short_rows import plan_short_row
from schedules.default.patterns.slice_loops import plan_slices
from schedules.default.patterns.slices import slices_of
from schedules.default.patterns.switches import each_with_cases, with_cases
from schedules.default.patterns.window_tiles import is_tiled_sum, shares_lanes
from schedules.default.points.chains import chains_of
from schedules.default.products.epilogues import with_epilogues
from schedules.default.products.panels import plan_contraction
from schedules.default.recompute import costs_without_trips, widely_read
from schedules.default.rest import plan_rest
from schedules.default.rewriting import Rewriting, computed_between
from schedules.default.walks import company_of, in_one_walk
from schedules.directives import ComputeRoot, Directive
from schedules.machine import Machine
from schedules.placing.following import followers
from schedules.placing.row_ends import with_row_ends
from schedules.plan import Plan, Step
from schedules.program import ProgramStages, reading
from tedsl.analysis.scaled_sums import scaled_sums
from tedsl.lang.dataclass import dataclass
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, Tensor

__all__ = ["WHERE", "Completion", "completed", "completion", "stored"]

WHERE = "the default schedule"
KEPT = ("padded", "folded", "turned", "tiled")  # kinds of stages that are not computed where they are read


@dataclass(frozen=True)
class Completion:
    """A complete plan, and how it came about: `stages` is the plan for the stages it has, before `directives`.

    `in_order`: reductions that have become expressions, in which their terms are combined in the same order.
    """

    stages: Plan
    directives: tuple[Directive, ...]
    plan: Plan
    in_order: frozenset[str]


def completed(
    plan: Plan, inputs: Sequence[Tensor], outputs: Sequence[Tensor], machine: Machine, **options: bool
) -> Plan:
    """The plan for `outputs` from `inputs` with directives for every stage; options as of `completion`."""
    return with_row_ends(completion(plan, inputs, outputs, machine, **options).plan, machine)


def completion(
    plan: Plan,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    machine: Machine,
    *,
    plain: bool = False,
    merged: bool = True,
    apart: bool = False,
    together: bool = False,
) -> Completion:
    """How a plan is completed for `outputs` from `inputs`, tensors of its program.

    `plain`: without what holds for finite numbers only. `merged`: outputs of one shape may share a loop nest, which
    writes them one after another for each element. `apart`: the program is cut into kernels. `together`: outputs that
    are made of something in common do so wherever they can, as they may lie in the memory of what others read.
    """
    spoken, given = plan.spoken(), plan.program.stages
    if machine.gpu is None:
        plan, outputs = _with_common_sums(plan, inputs, outputs, {*plan.made, *spoken}, machine)
    rw = Rewriting(plan.program, machine.least)
    operations = computed_between(inputs, outputs)
    read = [t.op for t in outputs] + [source for op in operations for source in {t.op for t in op.inputs}]
    rw.readers = Counter(plan.program.names[op] for op in read if op in plan.program.names)
    kept = {op for op in operations if plan.program.names[op] in spoken}
    chains = chains_of(operations, outputs, kept)
    final = set(outputs)
    if machine.gpu is None and not apart:
        parts = parts_read_through(operations, outputs)
        rw.parts = {t: op for t, op in parts.items() if op not in kept}
    if machine.gpu is None:
        rw.between = windows_between_stages(operations, machine.least.written_out)
    asked = steps_asked_for(operations, outputs, rw.parts) if machine.gpu is None and not apart else {}
    joined = {op for earlier in chains.values() for op in earlier}
    alone = {*plan.made, *spoken}
    company = company_of(operations, machine.least) if machine.gpu is None and merged else {}
    for original in operations:
        if original in joined or not rw.parts.keys().isdisjoint(original.outputs):
            continue
        if apart and plan.program.names[original] not in spoken and not final.intersection(original.outputs):
            source = copied_by(original)  # kernels with it and without it are then the same
            if source is not None:
                rw.new[original.output()] = rw.new.get(source, source)
                continue
        if original in chains:
            chain = [rw.carried(op) for op in (*chains[original], original)]
            if plan_scatter(rw, original, chain, machine) if machine.gpu is None else plan_tables(rw, original, chain):
                continue
        whole = together and final.issuperset(original.outputs)
        rw.company = company.get(original, 1)
        _rewrite(rw, original, plan, spoken, machine, plain=plain, whole=whole, steps=asked.get(original))
    wanted = tuple(rw.new.get(t, t) for t in outputs)
    if machine.gpu is not None:
        stage_stencils(rw, costs_of(rw.stages, _stored(rw, plan, wanted), rw.planned, machine))
        wanted = tuple(rw.new.get(t, t) for t in outputs)
    if machine.gpu is None and merged:
        wanted = merge_outputs(rw, wanted, always=together)
    alive = set(computed_between(inputs, wanted))  # of components made apart, not all have readers
    rw.stages = [op for op in rw.stages if op in alive]
    if machine.gpu is None and merged:
        with_epilogues(rw, wanted, plan.made)
        alone |= rw.planned | set(rw.shared)
        wanted = in_one_walk(rw, wanted, alone, machine)
    stages = {op.name: op for op in rw.stages}
    rw.directives = [d for d in rw.directives if d.stage in stages]
    made = plan.over(ProgramStages(wanted, stages, _handles(rw, stages)))
    finite = (*plan.finite, *(t.op.name for t in rw.finite))
    regrouped = made.regrouped | (rw.regrouped & set(stages))
    begin = replace(made, finite=finite, complete=frozenset(stages), regrouped=regrouped)
    known = _patterns(rw, made, machine, apart=apart)
    made = _said(made, known)
    if spoken and machine.gpu is None:
        led = followers(made, made.program.stages.keys() - spoken - plan.made - made.program.final)
        inside = {d.stage for d in led}
        known = [*(d for d in known if not (isinstance(d, ComputeRoot) and d.stage in inside)), *led]
        made = _said(made, led)
    rest = plan_rest(rw.stages, made, spoken, given, machine)
    made = replace(_said(made, rest), finite=finite, complete=frozenset(stages), regrouped=regrouped)
    return Completion(begin, (*known, *rest), made, frozenset(rw.in_order))


def _with_common_sums(
    plan: Plan, inputs: Sequence[Tensor], outputs: Sequence[Tensor], alone: set[str], machine: Machine
) -> tuple[Plan, Sequence[Tensor]]:
    """A plan of a program in which sums are made of common ones, and its outputs."""
    operations = computed_between(inputs, outputs)
    program = with_common_sums(plan.program, operations, alone, machine.least)
    if program is plan.program:
        return plan, outputs
    before = plan.program.names
    return plan.over(program), [program.stages[before[t.op]].output(t.index) if t.op in before else t for t in outputs]


def stored(plan: Plan) -> Plan:
    """The plan in which every stage is computed whole before its readers, by loops as they are written."""
    final = plan.program.final
    stages = [name for name, op in plan.program.stages.items() if name not in final and not isinstance(op, Extern)]
    return _said(plan, [ComputeRoot(stage=name) for name in stages])


def _handles(rw: Rewriting, stages: Mapping[str, Operation]) -> dict[tuple[Operation, int], tuple[str, int]]:
    """What the user's operations have become, where they are part of this program."""
    found = {}
    for handle, (name, index) in rw.program.handles.items():
        before = rw.program.stages[name].output(index)
        now = rw.new.get(before, before)
        if stages.get(now.op.name) is now.op:
            found[handle] = now.op.name, now.index
    return found


def _said(plan: Plan, directives: Iterable[Directive]) -> Plan:
    """The plan with these directives."""
    return plan.after_all(Step(d, WHERE) for d in directives)


def _rewrite(
    rw: Rewriting, original: Operation, plan: Plan, spoken: set[str], machine: Machine, *, plain: bool, whole: bool,
    steps: int | None,
) -> None:  # fmt: skip
    """Make a stage, or those that a pattern knows to take its place.

    `whole`: its results stay one stage. `steps`: how many of its last ones a scan has to hold; None for all.
    """
    if rw.program.names[original] in spoken or isinstance(original, Extern):
        rw.kept(original, None if plan.storage.get(rw.program.names[original]) else steps)
        return

    def may_pass(view: Operation) -> bool:
        """Whether a view is there for its readers alone, and nobody planned it."""
        planned = any(view.name in names for names in (plan.made, spoken, rw.planned))
        planned = planned or rw.kinds.get(view.name) == "turned"
        is_window = any(rw.kinds.get(t.op.name) == "window" for t in view.inputs)  # summed where this is stored
        return not planned and not is_window and view in rw.stages

    reads_views = any(is_view(t.op) and may_pass(t.op) for t in (rw.new.get(t, t) for t in original.inputs))
    kind = None if reads_views else kind_of(rw, original, machine)
    if kind is not None and kind.is_planned():
        return
    op = rw.carried(original)
    if isinstance(op, Compute) and machine.gpu is None:
        made = normal(op)
        if original in rw.between and op.name not in plan.made:
            made = _written_out(rw, made)
        op = made
        if op.reduction is not None:
            seen = through_views(made, may_pass)
            op = made if seen is made else normal(seen)
    if isinstance(op, Compute) and op.reduction is not None and machine.gpu is not None:
        rewrite_sum(rw, original, op)
        return
    if isinstance(op, Compute) and machine.gpu is None and op.name not in plan.made and not whole:
        op = _scaled_apart(rw, op, machine, plain=plain)
    if isinstance(op, Compute) and machine.gpu is None:
        op = _along_ranges(rw, op, machine, plain=plain)
    if isinstance(op, Compute) and machine.gpu is None:
        rw.remember_extreme(op, original)
        if plan_lookup(rw, original, op, machine):
            return
        op = _in_parts(rw, op, machine, plain=plain)
        spelled = _spelled_product(rw, original, op, may_pass, machine, plain=plain)
        if spelled or plan_contraction(rw, original, op, machine, plain=plain):
            if kind is not None:
                kind.note()
            return
        if op.reduction is not None:
            _reduce(rw, original, op, may_pass, machine, plain=plain)
            return
        op = invariants_apart(rw, op)
    if (
        isinstance(op, Compute)
        and op.reduction is None
        and len(op.bodies) > 1
        and op.name not in plan.made
        and not whole
    ):
        apart = shared_of(op)
        if apart is not None:
            op = rw.sharing(op, apart)
        rw.add_components(op, original, cheap_components(op))
        return
    if isinstance(op, Scan) and machine.gpu is None:
        _add_scan(rw, op if steps is None else rw.holding(op, original, steps), original, machine)
    else:
        rw.add(op, original)


def _written_out(rw: Rewriting, op: Compute) -> Compute:
    """A reduction of a few terms as an expression; any other stage as it is."""
    body = expanded(op)
    if body is None:
        return op
    rw.in_order.add(op.name)
    return replace(op, bodies=(body,), names=None, _outputs={})


def _scaled_apart(rw: Rewriting, op: Compute, machine: Machine, *, plain: bool) -> Compute:
    """A reader of the reductions that one of several components is made of; any other stage as it is."""
    found = scaled_sums(op)
    if found is None:
        return op
    own, rw.current = rw.current, ""
    for part in found.stages:
        if part.reduction is None:
            read = reading(part, rw.new, tidy)
            rw.add(replace(read, name=rw.name(part.name), _outputs={}), part)
        else:
            _add_part(rw, part, machine, plain=plain)
            rw.regrouped.add(rw.new[part.output()].op.name)
    rw.current = own
    made = reading(replace(op, bodies=found.bodies, _outputs={}), rw.new, tidy)
    assert isinstance(made, Compute)
    return made


def _along_ranges(rw: Rewriting, op: Compute, machine: Machine, *, plain: bool) -> Compute | Scan:
    """A reduction over a growing range as a recurrence, or a reader of one; any other stage as it is."""
    found = growing(op, machine.least)
    if found is None:
        return op
    rw.regrouped.add(rw.current or op.name)
    own, scan = rw.current, found.scan
    rw.current = ""
    if found.terms is not None:
        _add_part(rw, found.terms, machine, plain=plain)
        read = reading(scan, rw.new, tidy)
        assert isinstance(read, Scan)
        scan = read
    rw.current = own
    if found.body is None:
        return scan
    _add_scan(rw, replace(scan, name=rw.name(f"{op.name}_range"), _outputs={}), found.scan, machine)
    reader = reading(replace(op, bodies=(found.body,), _outputs={}), rw.new, tidy)
    assert isinstance(reader, Compute)
    return reader


def _add_part(rw: Rewriting, part: Compute, machine: Machine, *, plain: bool) -> None:
    """A reduction that another stage is made of, by the pattern that knows it."""
    read = reading(part, rw.new, tidy)
    assert isinstance(read, Compute)
    op = _along_ranges(rw, read, machine, plain=plain)
    if isinstance(op, Compute) and op.reduction is not None:
        op = _in_parts(rw, op, machine, plain=plain)
        if plan_contraction(rw, part, op, machine, plain=plain) or rewrite_reduction(rw, part, op, machine):
            return
    named = replace(op, name=rw.name(op.name), _outputs={})
    if isinstance(named, Scan):
        _add_scan(rw, named, part, machine)
    else:
        rw.add(named, part)


def _add_scan(rw: Rewriting, op: Scan, original: Operation, machine: Machine) -> None:
    """A scan with what it reads turned to lie along its vectors."""
    made = step_written_out(along_memory(rw, op))
    said = plan_scan(made, machine)
    rw.directives += said
    rw.add(made, original)
    if adds_one_by_one(made, said):
        rw.regrouped.add(made.name)


def _reduce(
    rw: Rewriting, original: Operation, op: Compute, may_pass: Callable[[Operation], bool], machine: Machine, *,
    plain: bool,
) -> None:  # fmt: skip
    """Make a reduction that is no product."""

    def planned(own: Operation, made: Compute) -> None:
        _reduce(rw, own, made, may_pass, machine, plain=plain)

    def may_be_written(stage: Operation) -> bool:
        return stage.name not in rw.kinds and may_pass(stage)

    if plan_without_units(rw, original, op, planned):
        return
    written = op if machine.gpu is not None or is_window(op) else over_cheap(op, may_be_written, rw.readers)
    if plan_short_row(rw, original, written, may_be_written, machine, planned):
        return
    hides = written is not op
    op = tables_turned(rw, op, machine)
    if plan_across(rw, original, op, machine, planned):
        return
    if hides and is_narrow(op, machine) and plan_across(rw, original, written, machine, planned):
        return
    if hides and shares_lanes(written, machine):
        paired = tables_turned(rw, written, machine)
        op = paired if along(paired, paired.axes[-1]) else op
    op = bordered_windows(rw, terms_turned(rw, op, machine), machine, plain=plain)
    if rewrite_reduction(rw, original, op, machine):
        return
    op = padded_windows(rw, op, machine)
    if is_window(op) or is_tiled_sum(op, machine):
        rw.add_window(op, original, "" if is_window(op) else "tiled")
    else:
        rw.add(op, original)


def _in_parts(rw: Rewriting, op: Compute, machine: Machine, *, plain: bool) -> Compute:
    """The stage over sums of products that it is made of, each planned; as it is where it is none, or one of them."""
    parts = parts_of(op, machine.least, plain=plain)
    if parts is None:
        product = grouped(op, machine.least) if is_float_sum(op) else op
        if product is not op:
            rw.regrouped.add(rw.current or op.name)
        return product
    own, rw.current = rw.current, ""
    for copy in parts.finite:
        _add_finite(rw, copy)
    for part in parts.stages:
        if not rw.is_made(part):
            _add_part(rw, part, machine, plain=plain)
    rw.current = own
    made = reading(replace(op, bodies=(parts.body,), _outputs={}), rw.new, tidy)
    assert isinstance(made, Compute)
    return made


def _spelled_product(
    rw: Rewriting, original: Operation, op: Compute, may_pass: Callable[[Operation], bool], machine: Machine, *,
    plain: bool,
) -> bool:  # fmt: skip
    """Make a sum over a stage of products a product of matrices, if it is one."""
    written = over_product(op, may_pass)
    if written is None:
        return False
    made = normal(written)
    product = grouped(made, machine.least) if is_float_sum(made) else made
    if not plan_contraction(rw, original, product, machine, plain=plain):
        return False
    if product is not made:
        rw.regrouped.add(rw.current or op.name)
    return True


def _add_finite(rw: Rewriting, copy: Compute) -> None:
    """A copy that is looked at before anything is computed of it."""
    named = replace(copy, name=rw.name(copy.name), _outputs={})
    rw.finite.append(rw.add(named, copy).outputs[0])
    rw.directives.append(ComputeRoot(stage=named.name))
    rw.planned.add(named.name)


def _stored(rw: Rewriting, plan: Plan, outputs: Iterable[Tensor]) -> set[Operation]:
    """The stages that cannot be inlined on a GPU."""
    names = {*plan.made, *rw.inside.values(), *rw.shared}
    between = {t.op for op in rw.stages if isinstance(op, Extern) for t in op.args}
    return {t.op for t in outputs} | between | {op for op in rw.stages if op.name in names}


def _trees_of_rows(rw: Rewriting, costs: Costs, sliced: Set[Operation]) -> set[Operation]:
    """The trees that would be inlined into vectors of many rows, where each of their parts had to be gathered."""
    ends: dict[Operation, set[Operation]] = {}
    for op in reversed(rw.stages):  # users before inputs
        readers = [reader for reader, _ in costs.readers.get(op, [])]
        ends[op] = set().union(*(ends[r] if r in costs.inlined else {r} for r in readers))
    trees = [op for op in rw.stages if rw.kinds.get(op.name) == "tree" and op in costs.inlined]
    return {op for op in trees if getattr(op, "axes", ()) and ends[op].isdisjoint(sliced)}


def _patterns(rw: Rewriting, plan: Plan, machine: Machine, *, apart: bool) -> list[Directive]:
    """Directives for the stages that nobody has spoken of."""
    between = {t.op for op in rw.stages if isinstance(op, Extern) for t in op.args}
    finals = {t.op for t in plan.program.outputs} | between
    asked_for = {op for name, op in plan.program.stages.items() if name in plan.made}  # inline they would be gone again
    kept = finals | asked_for | {op for op in rw.stages if rw.kinds.get(op.name) in KEPT}
    if machine.gpu is not None:
        kept |= _stored(rw, plan, plan.program.outputs)
        plan_gpu(rw, costs_of(rw.stages, kept, rw.planned, machine))
    else:
        if apart:
            # What combines parts goes with them, whatever the vectors: inlined, it would take them to its readers. So
            # does a reduction that is a copy of one over other axes, which its readers would all be one kernel with.
            kept |= {op for op in rw.stages if rw.kinds.get(op.name) in ("tree", "copied") or op.name in rw.totals}
            kept |= widely_read(rw.stages, kept, rw.planned, machine)
        chosen = with_cases(rw.stages, machine) - kept
        kept |= each_with_cases(rw.stages, chosen)
        costs = costs_without_trips(rw.stages, finals, kept, rw.planned, machine)
        slices = slices_of(rw, finals, kept, costs, machine)
        sliced = {op for made in slices for op in (made.root, *made.members)}
        stored = sliced | _trees_of_rows(rw, costs, sliced)
        if stored:
            kept |= stored
            costs = costs_without_trips(rw.stages, finals, kept, rw.planned, machine)
        plan_slices(rw, slices, costs, machine, plan)
        alone = windows_alone(rw, finals, costs, machine)
        if alone:
            kept |= alone
            costs = costs_without_trips(rw.stages, finals, kept, rw.planned, machine)
        pipelines, costs = pipelines_of(rw, kept, costs, machine, chosen)
        plan_pipelines(rw, pipelines, costs, machine, plan)
        plan_nests(rw, finals, costs, machine, plan)
    return rw.directives
