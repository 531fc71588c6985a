"""`op.explain()`: what an operator has been specialized for, what its forward pass keeps, and what was compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import compress

from autodiff import differentiate
from tedsl.lang.compute import placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import GradientError
from tedsl.lang.expr import Apply, Const, Fn
from tedsl.lang.tensor import Operation
from tedsl.lang.traverse import stages_of, topological
from tedsl.ops.definition import Definition
from tedsl.ops.routines import Batched, Pullback, Pushforward, Routine, TracedRoutine
from tedsl.ops.saving import Saving, kept_by, saving_of
from tedsl.ops.shapes import Spec

__all__ = ["OpExplanation", "explanation_of", "of_their_own"]

WIDTH = 100  # of a line
_ITEM = re.compile(r"(?<=,) (?![^\[]*\])")  # what lies between two parts of a list; shapes stay whole


@dataclass(frozen=True)
class OpExplanation:
    """A text that prints itself."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def explanation_of(title: str, definitions: list[Definition]) -> OpExplanation:
    """All that is known of an op, in lines that are not long."""
    lines = [title]
    for definition in definitions:
        first = {id(traced): specs for specs, traced in reversed(definition.traces.items())}
        for specs, traced in definition.traces.items():
            if first[id(traced)] is not specs:  # other extents of the same program
                continue
            lines += _wrapped(f"  {_call(definition, traced)}")
            lines += [f"    {line}" for line in _about(definition, specs, traced)]
        lines += [f"  {line}" for line in (*_numbers("", definition), *_made(definition))]
    return OpExplanation("\n".join(lines if len(lines) > 1 else [*lines, "  not called on arrays yet"]))


def _wrapped(line: str) -> Iterator[str]:
    """A list in as many lines as it needs, broken between the parts of a list."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    first, *parts = _ITEM.split(line)
    for part in parts:
        if len(first) + len(part) < WIDTH:
            first = f"{first} {part}"
        else:
            yield first
            first = indent + part
    yield first


def _call(definition: Definition, traced: TracedRoutine) -> str:
    spoken = (k for k in definition.template.statics if k not in definition.signature.unspoken)
    statics = [f"{k}={definition.template.statics[k]!r}" for k in spoken]
    arguments = ", ".join([*map(repr, traced.inputs), *statics])
    return f"({arguments}) -> ({', '.join(map(repr, traced.outputs))})"


def _about(definition: Definition, specs: tuple[Spec, ...], traced: TracedRoutine) -> Iterator[str]:
    symbols = ", for all extents" if traced.is_symbolic else ""
    yield f"forward: {_state(traced)}{symbols}"
    yield from of_their_own(definition, traced)
    yield from _widened(traced)
    if definition.signature.is_last:
        return
    if definition.author.vjp is not None:
        yield "reverse derivative: def_vjp"
    elif definition.author.jvp is not None:
        yield "reverse derivative: the transpose of def_jvp"
    else:
        yield f"reverse derivative: {_reads(definition, traced)}"
    yield f"forward derivative: {'def_jvp' if definition.author.jvp is not None else 'of the definition'}"
    kept = kept_by(saving_of(definition, definition.author.save, specs), specs)
    names = definition.input_names
    if kept is None:
        yield f"the backward pass reads: {', '.join(names)}"
    else:
        read = [names[p] for p in kept.inputs]
        inputs = f": {', '.join(read)}, and" if read else ""
        yield from _wrapped(f"the backward pass reads{inputs} what is kept: {', '.join(kept.names)}")


def of_their_own(routine: Routine, traced: TracedRoutine) -> Iterator[str]:
    """Which shapes have a kernel of their own beside that for all, and why others that recurred have none."""
    for specs, recurrence in list(routine.recurrences.items()):
        shapes = ", ".join(f"{dtype}[{', '.join(map(str, shape))}]" for shape, dtype in specs)
        if recurrence.traced is traced and specs in routine.own:
            yield f"a kernel of its own for {shapes}, which recurred"
        elif recurrence.traced is traced and recurrence.told:
            yield f"no kernel of its own for {shapes}: {recurrence.told}"


def _widened(traced: TracedRoutine) -> Iterator[str]:
    """Where narrower floats become float64, as NumPy has it, since they meet integers."""
    for op in stages_of(traced.outputs):
        floats = [t.dtype for t in op.inputs if t.dtype.is_float]
        integers = [t for t in op.inputs if t.dtype.is_integer]
        if not floats or not integers or not op.num_outputs or op.output(0).dtype != "float64" or "float64" in floats:
            continue
        kind, whole = str(floats[0]), integers[0]
        meeting = "a float of Python" if _is_of_numbers(op) else kind
        yield (
            f"{op.name} is float64, defined at {op.where}: {meeting} meets {whole.name} of {whole.dtype} there; "
            f'te.cast({whole.name}, "{kind}") keeps it {kind}'
        )
        return


def _is_of_numbers(op: Operation) -> bool:
    """Whether the first float64 of an operation is of integers and a float of Python, and of no narrower float."""
    for node in topological(getattr(op, "bodies", ())):
        if isinstance(node, Apply) and node.fn is not Fn.CAST and str(node.dtype) == "float64":
            read = [a.args[0] if isinstance(a, Apply) and a.fn is Fn.CAST else a for a in node.args]
            return all(a.dtype.is_integer or isinstance(a, Const) for a in read)
    return False


def _made(definition: Definition) -> Iterator[str]:
    """What derivatives and batches of it there are, each with the arrays that it takes."""
    for path, routine in _derived(definition):
        for trace in dict.fromkeys(routine.traces.values()):
            if isinstance(routine, Pullback) or trace.kernels:
                yield from _wrapped(f"{path}, on ({', '.join(map(repr, trace.inputs))}): {_state(trace)}")
        yield from _numbers(f"{path}, ", routine)


def _numbers(path: str, routine: Routine) -> Iterator[str]:
    """Why there is a kernel for each shape, where one for all was tried."""
    for reason in routine.needs_numbers:
        yield f"{path}a kernel for each shape; with symbols for extents: {' '.join(reason.split())}"


def _state(traced: TracedRoutine) -> str:
    each = [
        f"compiled in {kernel.stats.compile_ms:.0f} ms{'' if target == 'host' else f' for {target}'}"
        for target, kernel in traced.kernels.items()
    ]
    return ", ".join(each) or "not compiled yet"


def _reads(definition: Definition, traced: TracedRoutine) -> str:
    """How the reads of the definition were turned around."""
    outputs = [t for t in definition.outputs(traced.inputs) if t.dtype.is_float]
    sources = [t for t in traced.inputs if t.dtype.is_float]
    if not outputs or not sources:
        return "none, nothing is a float"
    heads = [placeholder(t.extents, t.dtype, name=f"d{t.name}") for t in outputs]
    try:
        report = differentiate(outputs, sources, heads).explain()
    except GradientError as error:
        return f"none: {error}"
    counts = {"gather": len(report.gathers), "scatter": len(report.scatters)}
    return ", ".join(f"{n} {name}{'s' * (n != 1)}" for name, n in counts.items())


def _derived(routine: Routine, path: str = "") -> Iterator[tuple[str, Routine]]:
    """Every routine made from one, and how, the last step first."""
    for other in list(routine.made.values()):
        words = " of the ".join(filter(None, (_words(other), path)))
        yield words or "forward, with what is kept", other
        yield from _derived(other, words)


def _words(routine: Routine) -> str:
    """What a routine is of the one that it was made from; nothing of one that only returns more."""
    if isinstance(routine, Pullback):
        return f"gradient by {', '.join(routine.of.input_names[p] for p in routine.wanted)}"
    if isinstance(routine, Pushforward):
        return f"derivative along {', '.join(routine.of.input_names[p] for p in routine.moving)}"
    if isinstance(routine, Batched):
        return f"batch over {', '.join(compress(routine.of.input_names, routine.flags))}"
    return "" if isinstance(routine, Saving) else routine.label
