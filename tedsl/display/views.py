"""One row per kind of thing that a notebook shows: what its page consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

from autodiff import Explanation, Gradients, PairReport, ReadReport, Report
from autodiff.result import such
from schedules.schedule import Schedule
from schedules.stage_view import StageView
from tedsl.analysis.work import NOTHING, Work, work_by_stage
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.calling.report import ProgramReport
from tedsl.backend.calling.stats import Stats
from tedsl.backend.comparison import Comparison
from tedsl.backend.compiling.profiling import Profile, cells
from tedsl.backend.tune import Tuned
from tedsl.display.curves import loop_parts, tuning_parts
from tedsl.display.formula import TooLong, formula_of, scalar_formula
from tedsl.display.markup import badge, code, count, details, escape, page, section, size, table
from tedsl.display.math import Line, Name, Table, Word
from tedsl.display.nest import nest_tree
from tedsl.display.stages import COLOR, stage_graph
from tedsl.display.training import WatchedLoop, WatchedTuning
from tedsl.lang.expr import Const, Expr
from tedsl.lang.phases import part_shown
from tedsl.lang.printing import abridged, kind_of, names_in, program_text, stages_text
from tedsl.lang.rich import Rich
from tedsl.lang.scalar_text import Names
from tedsl.lang.tensor import Operation, Placeholder, Tensor
from tedsl.lang.traverse import stages_of
from tedsl.ops.explaining import of_their_own
from tedsl.ops.op import Op, definitions_of
from tedsl.ops.optim import FunctionStep, program_of
from tedsl.testing.report import CheckReport

__all__ = ["Shown", "graph", "html", "latex", "parts_of", "program"]

# Stages whose formulas are shown; the table lists all.
MOST_FORMULAS = 24
MOST_TITLES = 6  # of results in the head of a page
MOST_OPEN = 80  # lines of a loop nest beyond which it is opened by the reader
KIND = {"gather": "teal", "scatter": "amber", "partial": "amber", "zero": ""}


class Shown:
    """A page made on request: what `program(...)` and the like return; `text`: the same, whole, as text."""

    def __init__(self, parts: Sequence[str], text: str, stages: Sequence[Operation]) -> None:
        self.parts, self.text, self.stages = tuple(parts), text, stages
        self.html = page(parts, str(self))

    def _repr_html_(self) -> str:
        return self.html

    def _repr_latex_(self) -> str | None:
        return _formulas(self.stages)

    def __repr__(self) -> str:
        return abridged(self.text)


def html(shown: Any) -> str:
    """The page of a tensor, gradients, an index inversion, a schedule, a kernel, a report or work.

    Of what shows itself (`_repr_html_`), such as a program or a graph: what it shows.
    """
    own = _own_page(shown)
    return page(parts_of(shown), _text(shown)) if own is None else own


def _own_page(shown: Any) -> str | None:
    """What a thing shows itself, without a row here."""
    own = getattr(type(shown), "_repr_html_", Rich._repr_html_)
    return None if own is Rich._repr_html_ else own(shown)


def _text(shown: Any) -> str:
    """What stands where the style of a page is taken away: what prints, with the formulas or loops of the page."""
    if isinstance(shown, Gradients):
        told = shown.explanation
        return f"{shown}\n\n{told}\n\n{stages_text(_adjoints(told), told.names)}"
    if isinstance(shown, Kernel) and _is_open(nest := shown.loop_nest()):
        return f"{shown}\n\n{nest}"
    return str(shown)


def _adjoints(explanation: Explanation) -> list[Operation]:
    """The stages that were found for the reads of a program, each once."""
    found = [r.stage for reads in explanation.groups for r in reads if r.stage is not None]
    return list(dict.fromkeys(op for stage in found for op in _parts(stage)))


def latex(shown: Any) -> str | None:
    """The definition of a tensor, an expression, or every stage of gradients or of a program, in LaTeX.

    None where no formula would be readable, and for what has none: schedules, kernels and reports are text.
    """
    if isinstance(shown, (Gradients, Shown)):
        return _formulas(shown.stages if isinstance(shown, Shown) else stages_of(shown))
    if not isinstance(shown, (Tensor, Expr)):
        return None
    try:
        if isinstance(shown, Tensor):
            return f"$\\displaystyle {formula_of(shown.op, names_in([shown.op])).latex()}$"
        return f"$\\displaystyle {scalar_formula(shown).latex()}$"
    except TooLong:
        return None


def program(outputs: Tensor | Iterable[Tensor]) -> Shown:
    """Every stage that the outputs need: the graph, the formulas, the work of each."""
    results = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    return Shown(list(_program(results)), program_text(results), stages_of(results))


def graph(outputs: Tensor | Iterable[Tensor]) -> Shown:
    """The stages that the outputs need, as a picture."""
    results = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    stages = stages_of(results)
    return Shown(
        [f'<pre class="te-wide">{stage_graph(results, names_in(stages))}</pre>'], program_text(results), stages
    )


def parts_of(shown: Any) -> Iterable[str]:
    """What the page of anything consists of."""
    return _view(shown)(shown)


def _view(shown: Any) -> Callable[[Any], Iterator[str]]:
    for kind, view in _VIEWS.items():
        if isinstance(shown, kind):
            return view
    if type(shown).__name__ == "IndexInversion":
        return import_module("tedsl.display.inversion").inversion_parts  # type: ignore[no-any-return]
    own = _own_page(shown)
    if own is not None:
        return lambda _: iter((own,))
    known = ", ".join(kind.__name__ for kind in _VIEWS)
    raise TypeError(
        f"te.display.html: there is no page for {type(shown).__name__}; there are pages for {known}, "
        "and for whatever has a _repr_html_"
    )


def _formulas(stages: Sequence[Operation]) -> str | None:
    """The formulas of the stages below one another; None where there are none."""
    names = names_in(stages)
    computed = [op for op in stages if not isinstance(op, Placeholder) and not part_shown(op)]
    lines = [line for op in computed[:MOST_FORMULAS] for line in _lines(op, names)]
    if len(computed) > MOST_FORMULAS:
        lines.append(Line(Word("..."), Word(f"{len(computed) - MOST_FORMULAS} more stages")))
    return f"$\\displaystyle {Table(lines).latex()}$" if lines else None


def _lines(op: Operation, names: Names) -> Sequence[Line]:
    try:
        return formula_of(op, names).lines
    except TooLong:
        return [Line(Name(names.of(op.output(0))), Word("..."), Word("too long for a formula"))]


def _typed(tensor: Tensor) -> str:
    shape = ", ".join(map(str, tensor.shape))
    return code(f"{tensor.dtype}[{shape}]")


def _definition(op: Operation, names: Names) -> str:
    """The formula of a stage, or its text where that reads better."""
    try:
        return f'<pre class="te-wide">{formula_of(op, names).mathml()}</pre>'
    except TooLong:
        return f"<pre>{escape(str(op.output(0)))}</pre>"


def _shown(shown: Shown) -> Iterator[str]:
    return iter(shown.parts)


def _head(tensor: Tensor) -> str:
    kind = kind_of(tensor.op)
    place = f'<span class="te-mute">{escape(_short(tensor.op.where))}</span>'
    return section(f"<b>{escape(tensor.name)}</b>", _typed(tensor), badge(kind, COLOR.get(kind, "")), place)


def _short(where: str) -> str:
    """The last part of a path: notebooks run cells under long names that say nothing."""
    name = where.replace("\\", "/").rpartition("/")[2]
    return "" if name.startswith(("<", "ipykernel")) or "ipykernel" in where else name


def _tensor(tensor: Tensor) -> Iterator[str]:
    stages = stages_of([tensor])
    yield _head(tensor)
    if isinstance(tensor.op, Placeholder):
        yield '<span class="te-mute">an input: given when the kernel is called</span>'
        return
    yield _definition(tensor.op, names_in([tensor.op]))
    if sum(not isinstance(op, Placeholder) for op in stages) > 1:
        yield details(f"the program: {_plural(len(stages), 'stage')}", "".join(_stages([tensor], stages)))


def _program(results: Sequence[Tensor]) -> Iterator[str]:
    stages = stages_of(results)
    yield section("<b>program</b>", *(f"{code(t.name, 'teal')} {_typed(t)}" for t in results[:MOST_TITLES]))
    yield from _stages(results, stages, True)


def _stages(results: Sequence[Tensor], stages: Sequence[Operation], formulas_open: bool = False) -> Iterator[str]:
    if not stages:
        return
    names = names_in(stages)
    yield f'<pre class="te-wide">{stage_graph(results, names)}</pre>'
    yield _stage_table(results, stages, names)
    computed = [op for op in stages if not isinstance(op, Placeholder) and not part_shown(op)]
    shown = [_definition(op, names) for op in computed[:MOST_FORMULAS]]
    more = len(computed) - len(shown)
    if more:
        shown.append(f'<p class="te-mute">and {_plural(more, "more stage")}</p>')
    yield details("formulas", "".join(shown), formulas_open)


def _work(results: Sequence[Tensor]) -> dict[Operation, Work]:
    """The work of each stage; nothing where an extent is not a number."""
    if any(not isinstance(e, Const) for op in stages_of(results) for t in op.outputs for e in t.extents):
        return {}
    return work_by_stage(list(results))


def _stage_table(results: Sequence[Tensor], stages: Sequence[Operation], names: Names) -> str:
    works = _work(results)
    most = max((w.flops for w in works.values()), default=0)
    rows = []
    for op in stages:
        kind = kind_of(op)
        row = [", ".join(f"<b>{escape(names.of(t))}</b>" for t in op.outputs), _typed(op.output(0))]
        row.append(badge(kind, COLOR.get(kind, "")))
        w = works.get(op)
        row += ["", "", "", ""] if w is None else [*_cells(w), _bar(w.flops, most)]
        rows.append(row)
    head = ("stage", "type", "kind", "iterations", "flops", "bytes", "")
    return table(head if works else head[:3], rows if works else [r[:3] for r in rows], (3, 4, 5) if works else ())


def _cells(w: Work) -> list[str]:
    return [count(w.iterations), count(w.flops), size(w.bytes)]


def _bar(value: float, most: float) -> str:
    return f'<span class="te-bar" style="width:{6 * value / most:.2f}rem"></span>' if value and most else ""


def _gradients(gradients: Gradients) -> Iterator[str]:
    pairs = list(zip(gradients.inputs, gradients, strict=True))
    yield section("<b>gradients</b>", *(f"{code('d' + t.name, 'teal')} {_typed(r)}" for t, r in pairs[:MOST_TITLES]))
    yield from _reads(gradients.explanation, _work(gradients))
    total = sum(_work(gradients).values(), NOTHING)
    if total is not NOTHING:
        yield f'<p class="te-mute">forward and adjoints together: {_sentence(total)}</p>'
    stages = stages_of(gradients)
    yield details(f"the program: {_plural(len(stages), 'stage')}", "".join(_stages(gradients, stages)))


def _explanation(explanation: Explanation) -> Iterator[str]:
    yield section("<b>how each read was turned around</b>")
    yield from _reads(explanation, {})


def _reads(explanation: Explanation, works: dict[Operation, Work]) -> Iterator[str]:
    """Per read: the gather (or scatter) that its adjoint is, and what that costs."""
    head = ["read", "in", "adjoint", "why", *(("iterations", "flops") if works else ())]
    rows: list[list[str]] = []
    below: dict[int, str] = {}
    seen: set[Operation] = set()
    for reads in explanation.groups:
        new = [r for r in reads if r.stage is None or r.stage.op not in seen]
        if new:
            below[len(rows)] = _found(new[0].stage, explanation.names)
        rows.append(_read(explanation, reads, new, works, len(head)))
        seen.update(r.stage.op for r in new if r.stage is not None)
    yield table(head, rows, (4, 5), below)
    for t in {t.name: t for t in explanation.zeros}.values():
        name = f"<b>{escape(t.name)}</b>"
        yield f"<p>{badge('zero')} no path of differentiable operations leads from {name} to the output</p>"
    for t in {t.name: t for t in explanation.canceled}.values():
        yield f"<p>{badge('zero')} the output is the same whatever <b>{escape(t.name)}</b> is</p>"


def _read(
    explanation: Explanation, reads: list[ReadReport], new: list[ReadReport], works: dict[Operation, Work], columns: int
) -> list[str]:
    """The cells of reads that are alike; several reads of a scan share one adjoint, whose work stands at the first."""
    r = reads[0]
    alike = f' <span class="te-mute">({such(reads)})</span>' if such(reads) else ""
    consumer, read, *_ = explanation.row(r)
    row = [code(read) + alike, escape(consumer), badge(r.kind, KIND.get(r.kind, "")), escape(r.reason)]
    stages = {op: None for n in new if n.stage is not None for op in _parts(n.stage)} if works else {}
    if stages:
        row += _cells(sum((works[op] for op in stages if op in works), NOTHING))[:2]
    return row + [""] * (columns - len(row))


def _found(stage: Tensor | None, names: Names) -> str:
    if stage is None:
        return '<span class="te-mute">nothing</span>'
    parts = _parts(stage)
    return "".join(_definition(op, names) for op in (parts[-1], *parts[:-1]))


def _parts(stage: Tensor) -> list[Operation]:
    """The stages that form one adjoint, itself last: those of its phases are named after it, with a number."""
    own = f"{stage.name}_"
    phases = (op for op in stages_of([stage]) if op.name.startswith(own) and op.name.removeprefix(own).isdigit())
    return [*phases, stage.op]


def _schedule(schedule: Schedule) -> Iterator[str]:
    names = ", ".join(t.name for t in schedule.outputs)
    yield section(f"<b>schedule</b> of {code(names)}", badge(_plural(len(schedule.steps), "directive")))
    yield nest_tree(str(schedule))


def _tuned(tuned: Tuned) -> Iterator[str]:
    yield from _schedule(tuned)
    if tuned.history:
        yield f"<p>{badge(f'{tuned.speedup:.2f} times as fast as by default', 'teal')} {len(tuned.history)} trials</p>"
        yield details("trials that were better than all before", f"<pre>{escape(tuned.table())}</pre>")


def _comparison(comparison: Comparison) -> Iterator[str]:
    faster = badge(f"{comparison.ratio:.2f} times as fast as the other", "teal" if comparison.ratio >= 1 else "amber")
    yield section("<b>two schedules</b>", faster)
    rows = [["this", f"{comparison.seconds * 1e3:.4g}"], ["the other", f"{comparison.other_seconds * 1e3:.4g}"]]
    yield table(("schedule", "ms a call"), rows, (1,))
    yield "".join(f"<p>{escape(str(result))}</p>" for result in comparison.results)
    yield details("loops that differ, the other's with -", f"<pre>{escape(comparison.loops)}</pre>")


def _stage_view(view: StageView) -> Iterator[str]:
    yield section(f"<b>{escape(view.name)}</b>", badge(view.definition), _typed(view.tensor))
    yield nest_tree(str(view.schedule))


def _kernel(kernel: Kernel) -> Iterator[str]:
    stats = kernel.stats
    target = kernel.core.program.target.name
    yield section(f"<b>{escape(kernel.name)}</b>", badge("kernel", "blue"), badge(target),
                  f'<span class="te-mute">compiled in {stats.compile_ms:.0f}&#8239;ms</span>')  # fmt: skip
    rows = [[badge("in", "green"), f"<b>{escape(t.name)}</b>", _typed(t)] for t in kernel.inputs]
    rows += [[badge("out", "blue"), f"<b>{escape(t.name)}</b>", _typed(t)] for t in kernel.outputs]
    yield table(("", "array", "type"), rows)
    total = sum(_work(kernel.outputs).values(), NOTHING)
    if total is not NOTHING:
        yield f'<p class="te-mute">{_sentence(total)}</p>'
    if stats.copies:
        yield f"<p>{badge('copies', 'amber')} {escape('; '.join(f'{n}: {why}' for n, why in stats.copies))}</p>"
    nest = kernel.loop_nest()
    yield details("loops, as they run", nest_tree(nest), _is_open(nest))


def _is_open(nest: str) -> bool:
    """Whether a loop nest is short enough to be seen at once."""
    return nest.count("\n") < MOST_OPEN


def _op(op: Op) -> Iterator[str]:
    """A function of arrays: its signature; for each shape that it was called on, arrays, kernels and formulas."""
    title = op.signature.label or op.name
    yield section(f"<b>{escape(title)}</b>", badge("function" if op.signature.label else "operator", "blue"))
    told = op.signature.annotated if op.signature.label is None else str(op.signature.title)
    yield f"<pre>{escape(told)}</pre>"
    traces = [(d, traced) for d in definitions_of(op) for traced in dict.fromkeys(d.traces.values())]
    if not traces:
        yield '<p class="te-mute">not called on arrays yet</p>'
    for definition, traced in traces[:MOST_TITLES]:
        names = names_in(stages_of(traced.outputs))
        rows = [[badge("in", "green"), f"<b>{escape(names.of(t))}</b>", _typed(t)] for t in traced.inputs]
        rows += [[badge("out", "blue"), f"<b>{escape(names.of(t))}</b>", _typed(t)] for t in traced.outputs]
        spoken = definition.template.statics.items()
        rows += [[badge("given"), f"<b>{escape(k)}</b>", code(f"{v!r:.60}")] for k, v in spoken]
        yield table(("", "array", "type"), rows)
        yield "".join(
            f'<p class="te-mute">compiled in {k.stats.compile_ms:.0f}&#8239;ms for {escape(target)}</p>'
            for target, k in traced.kernels.items()
        )
        yield "".join(f'<p class="te-mute">{escape(told)}</p>' for told in of_their_own(definition, traced))
        yield details("the program", "".join(_stages(traced.outputs, stages_of(traced.outputs))))
    if len(traces) > MOST_TITLES:
        yield f'<p class="te-mute">and for {_plural(len(traces) - MOST_TITLES, "more shape")}</p>'


def _step_of(step: FunctionStep) -> Iterator[str]:
    return _op(program_of(step))


def _stats(stats: Stats) -> Iterator[str]:
    yield section("<b>stats</b>", badge(f"compiled in {stats.compile_ms:.0f} ms", "blue"))
    if stats.phases:
        most = max(stats.phases.values())
        rows = [[escape(name), f"{ms:.0f}", _bar(ms, most)] for name, ms in stats.phases.items()]
        yield table(("compiling", "ms", ""), rows, (1,))
    if not stats.called:
        yield '<span class="te-mute">not called yet</span>'
        return
    rows = [["arrays", size(stats.bytes)]]
    rows += [[f"its own: {_plural(stats.temporaries, 'buffer')}", size(stats.peak_bytes - stats.bytes)]]
    rows += [["together, at most", size(stats.peak_bytes)]]
    rows += [["on the GPU", size(stats.device_bytes)]] if stats.on_device else []
    yield table(("the last call", "memory"), rows, (1,))
    if stats.copies:
        rows = [[badge(name, "amber"), escape(why)] for name, why in stats.copies]
        yield table(("copied", "why"), rows)


def _steps(program: ProgramReport) -> Iterator[str]:
    told = f"{_plural(len(program.calls), 'call')} of {_plural(len(program.kernels), 'kernel')}"
    yield section(f"<b>{escape(program.name)}</b>", badge("program", "blue"), f'<span class="te-mute">{told}</span>')
    rows = [
        [
            f"<b>{escape(name)}</b>",
            count(len(calls)),
            size(program.bytes_of(calls[0]) or 0),
            escape(", ".join(calls[0].stages)),
        ]
        for name, calls in program.kernels.items()
    ]
    yield table(("kernel", "calls", "bytes", "stages"), rows, (1, 2))
    if program.memory is not None:
        yield f'<p class="te-mute">{escape(program.memory)}</p>'


def _profile(profile: Profile) -> Iterator[str]:
    rows = [[f"<b>{escape(first)}</b>", *map(escape, rest)] for first, *rest in map(cells, profile.rows())]
    yield section("<b>profile</b>", badge(_plural(len(profile.events), "call"), "blue"))
    yield table(("kernel", "calls", "ms", "share", "MB", "GB/s", "GFLOP/s", "roofline"), rows, range(1, 8))


def _plural(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _sentence(w: Work) -> str:
    masked = f", {count(w.masked)} of them masked" if w.masked else ""
    intensity = f", {w.flops / w.bytes:.2g} flops per byte" if w.bytes else ""
    return f"{count(w.iterations)} iterations{masked}, {count(w.flops)} flops, {size(w.bytes)}{intensity}"


def _of_work(w: Work) -> Iterator[str]:
    rows = [["iterations", count(w.iterations)], ["masked", count(w.masked)], ["flops", count(w.flops)]]
    rows += [["bytes", size(w.bytes)], ["flops per byte", f"{w.flops / w.bytes:.3g}" if w.bytes else "–"]]
    yield table(("work", ""), rows, (1,))


def _report(report: Report) -> Iterator[str]:
    yield section("<b>gradcheck</b>", badge("agrees", "green") if report.ok else badge("wrong", "red"))
    yield table(
        ("output", "input", "", "worst at", "adjoint", "difference", "error", "tolerance", "step", "checked", "kinks"),
        [_pair(p) for p in report.pairs],
        (4, 5, 6, 7, 8, 9, 10),
    )
    yield from (f"<p>{escape(note)}</p>" for note in report.notes)


def _pair(p: PairReport) -> list[str]:
    output, source, _, *rest = p.row()
    verdict = badge("ok", "green") if p.ok else badge("wrong", "red")
    cells = [escape(c) for c in rest]
    if not p.ok:
        cells[1:4] = [f'<b class="te-red">{c}</b>' for c in cells[1:4]]
    return [f"<b>{escape(output)}</b>", f"<b>{escape(source)}</b>", verdict, code(rest[0]), *cells[1:]]


def _check_report(report: CheckReport) -> Iterator[str]:
    verdict = badge("no fault found", "green") if report.ok else badge("wrong", "red")
    yield section(
        f"<b>{escape(report.name)}</b>", verdict, f'<span class="te-mute">{_plural(report.examples, "example")}</span>'
    )
    if report.failure is None:
        yield table(("check", "cases"), [[escape(n), count(c)] for n, c in report.counts.items()], (1,))
        return
    f = report.failure
    yield f"<p>{badge(f.check, 'red')} {escape(f.message)}</p><p class='te-mute'>for {escape(f.case)}</p>"
    if f.gradients is not None:
        yield from list(_report(f.gradients))[1:]
    yield f"<h4>to see it again</h4><pre>{escape(f.snippet)}</pre>"


_VIEWS: dict[type, Callable[[Any], Iterator[str]]] = {
    Tensor: _tensor, Gradients: _gradients, Explanation: _explanation, Report: _report, Tuned: _tuned,
    Comparison: _comparison, Schedule: _schedule, StageView: _stage_view, Kernel: _kernel, Work: _of_work,
    CheckReport: _check_report, ProgramReport: _steps, Profile: _profile, Stats: _stats,
    Op: _op, FunctionStep: _step_of, WatchedLoop: loop_parts, WatchedTuning: tuning_parts, Shown: _shown,
}  # fmt: skip
