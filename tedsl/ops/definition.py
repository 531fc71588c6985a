"""An operator's function with its static arguments, as a routine: traced, checked, with the author's rules attached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import TracebackType
from typing import Any

from autodiff import differentiate
from autodiff.custom import Rule, set_rule, transposed, without_rules
from autodiff.rules.totals import zeros
from schedules import Schedule
from tedsl.analysis.arrays.nests import map_nest
from tedsl.lang.batching import batched
from tedsl.lang.compute import placeholder
from tedsl.lang.constants import captured
from tedsl.lang.dataclass import dataclass
from tedsl.lang.elements import whole
from tedsl.lang.errors import MissingKeyError, is_own_file, place_of, user_location
from tedsl.lang.expr import Expr
from tedsl.lang.extents import same_layout, same_shape
from tedsl.lang.foreign import has_elements
from tedsl.lang.structure import same_program, structural_key
from tedsl.lang.tensor import NUMBERS, Constant, Extern, Placeholder, Tensor, tell_of_arrays
from tedsl.lang.titles import name_after
from tedsl.lang.traverse import stages_of
from tedsl.ops.arrays import Static
from tedsl.ops.purity import called, has_extern, watched
from tedsl.ops.routines import USUAL, Routine, Tensors, Worth, distinct
from tedsl.ops.signature import Signature, Template, leaves, map_leaves
from tedsl.ops.static_numbers import add_list_hints, told_of_statics

__all__ = ["Author", "Definition", "attach_rules", "effects_of", "inlined"]


@dataclass(eq=False)
class Author:
    """What the author of an operator gave beside its function."""

    vjp: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None
    schedules: dict[str, Callable[..., Any]] = field(default_factory=dict)  # for "host" and "cuda"
    save: str | tuple[str, ...] = "reductions"
    worth: Worth = USUAL
    is_lasting: bool = True  # whether programs stay for later calls, and so may hang on arguments alone


class Definition(Routine):
    """An operator's function with its static arguments."""

    def __init__(self, signature: Signature, template: Template, author: Author, symbolic: bool | None) -> None:
        super().__init__()
        self.signature, self.template, self.author = signature, template, author
        self.name = signature.name
        self.label = f"{signature.name}({', '.join(f'{k}={v!r}' for k, v in template.arguments.items())})"
        self.input_names = template.names
        self.symbolic = symbolic
        self.worth = author.worth

    def trace(self, inputs: Tensors) -> tuple[Tensors, Any]:
        if self.traces or not self.author.is_lasting:
            return self._once(inputs)
        with watched(derives=self.signature.derives) as watch:
            first = self._once(inputs)
        if not watch.is_asked and not has_extern(first[0]):
            watch.is_pure = same_program(first[0], self._once(inputs)[0], inputs, inputs)
        if not watch.is_pure:
            raise ValueError(
                f"{self.signature.title}: two traces of its function differ, so that it depends on more than its "
                "arguments; an op may not use random numbers, counters or other state: pass them as arguments"
            )
        return first

    def _once(self, inputs: Tensors) -> tuple[Tensors, Any]:
        try:
            with captured():
                returned = inlined(self.signature, self.template, self.author, inputs)
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            made = _explained(self.signature, self.template, error, inputs)
            raise made.with_traceback(_shown(error.__traceback__)) from None  # all of it is the context of this one
        outputs: list[Tensor] = []

        def listed(value: Any, name: str) -> Any:
            if isinstance(value, Static):
                return value
            outputs.append(value)
            return len(outputs) - 1

        result = map_leaves(returned, "result", listed)
        self._check_captures(inputs, outputs)
        return tuple(outputs), result

    def pull(self, inputs: Tensors, wanted: Sequence[int], heads: Mapping[int, Tensor]) -> Tensors:
        rule = self.author.vjp
        if rule is None:
            return super().pull(inputs, wanted, heads)
        outputs = self.outputs(inputs)
        given = [heads.get(p) for p in range(len(outputs))]
        full = [zeros(t.extents, t, f"d{t.name}") if h is None else h for h, t in zip(given, outputs, strict=True)]
        adjoints = _ruled(rule, self.signature, outputs, inputs, full)
        return tuple(_adjoint(adjoints[p], inputs[p], self.signature) for p in wanted)

    def push(self, inputs: Tensors, tangents: Mapping[int, Tensor]) -> Tensors:
        rule = self.author.jvp
        if rule is None:
            return super().push(inputs, tangents)
        dots = [tangents[p] if p in tangents else zeros(t.extents, t, f"{t.name}_dot") for p, t in enumerate(inputs)]
        outputs = self.outputs(inputs)
        found = _pushed(rule, self.signature, outputs, inputs, dots)
        return tuple(d for d, t in zip(found, outputs, strict=True) if t.dtype.is_float)

    def schedule(self, inputs: Tensors, outputs: Tensors, kind: str) -> Schedule | None:
        rule = self.author.schedules.get(kind)
        return None if rule is None else _scheduled(rule, outputs, outputs, None)

    def schedule_backward(self, inputs: Tensors, adjoints: Tensors, kind: str) -> Schedule | None:
        """The rule is shown the result as the backward program has it.

        Where that does not need it the rule may speak of it all the same: its loops are there, and are not compiled.
        """
        rule = self.author.schedules.get(kind)
        if rule is None:
            return None
        stages = {structural_key(t, inputs): t for op in stages_of(adjoints) for t in op.outputs}
        results = tuple(stages.get(structural_key(t, inputs), t) for t in self.outputs(inputs))
        there = {*stages.values(), *inputs}
        return _scheduled(rule, (*adjoints, *(t for t in results if t not in there)), results, adjoints)

    def _check_captures(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        known = {id(t.op) for t in inputs}
        for op in stages_of(outputs):
            if isinstance(op, Placeholder) and not isinstance(op, Constant) and id(op) not in known:
                raise ValueError(
                    f"{self.signature.title}: its function reads the placeholder {op.name!r} defined at {op.where}, "
                    "which is none of its arguments; pass it as one"
                )


def _scheduled(rule: Callable[..., Any], targets: Tensors, results: Tensors, grads: Tensors | None) -> Schedule:
    schedule = Schedule(list(targets))
    rule(schedule, results[0] if len(results) == 1 else results, grads)
    return schedule


def effects_of(outputs: Sequence[Tensor]) -> str | None:
    """The name of an extern that has to run at each call, if there is one."""
    return next((op.name for op in stages_of(outputs) if isinstance(op, Extern) and not op.pure), None)


def inlined(signature: Signature, template: Template, author: Author, inputs: Sequence[Tensor]) -> Any:
    """What the function returns for tensors, its results with the derivatives that the author gave."""
    first = next(NUMBERS)
    try:
        returned = map_leaves(signature.called(template, inputs), "result", whole)
    except Exception as error:
        told = told_of_statics(error, signature, template)
        if told is error:
            add_list_hints(error, signature, template)
        if isinstance(error, AttributeError):
            tell_of_arrays(error)
        is_of_kinds = isinstance(error, (AttributeError, TypeError, ValueError))
        misfit = signature.misfit(template) if is_of_kinds else None
        if misfit is None:
            if told is error:
                raise
            raise _with_notes(told, error) from None
        raise _with_notes(TypeError(f"{signature.name} at {user_location()}: {misfit}"), error) from error
    if signature.is_ours and signature.label is None:
        name_after(signature.name, returned, inputs, first)
    found: list[Tensor] = []

    def at() -> str:
        return f"{signature.title}, at {place_of(signature.function)}:"

    def listed(value: Any, name: str) -> Any:
        if isinstance(value, Static):
            return value
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{at()} it must return tensors, found {type(value).__name__} ({value!r:.40}); an expression becomes a "
                "tensor by te.compute"
            )
        found.append(value)
        return len(found) - 1

    result = map_leaves(returned, "result", listed)
    if not found:
        plain = map_nest(returned, lambda leaf: leaf.value if isinstance(leaf, Static) else leaf)
        is_array = any(has_elements(leaf) for leaf in leaves(plain))
        hint = "; te.constant(array) is one, of values that no argument changes" if is_array else ""
        raise TypeError(f"{at()} it returned no tensor ({plain!r:.40}){hint}")
    if author.vjp is None and author.jvp is None:
        return returned
    outputs = distinct(inputs, found)
    attach_rules(signature, author, outputs, tuple(inputs))
    return map_nest(result, lambda p: p if isinstance(p, Static) else outputs[p])


def attach_rules(signature: Signature, author: Author, outputs: Tensors, inputs: Tensors) -> None:
    """Give outputs, each a tensor of its own, the derivatives of their author; derivatives of programs use them."""
    floats = tuple(t for t in inputs if t.dtype.is_float)
    for position, output in enumerate(outputs):
        if output.dtype.is_float:
            vjp = _vjp_rule(signature, author, outputs, inputs, position)
            jvp = None if author.jvp is None else _jvp_rule(signature, author.jvp, outputs, inputs, position)
            set_rule(output, Rule(floats, vjp, jvp))


def _vjp_rule(
    signature: Signature, author: Author, outputs: Tensors, inputs: Tensors, position: int
) -> Callable[..., Any]:
    """The rule for one output; heads may have axes in front of the output's."""

    def one(output: Tensor, deps: list[Tensor], head: Tensor) -> list[Tensor | None]:
        if author.vjp is None:
            assert author.jvp is not None
            return list(_by_transposing(signature, author.jvp, outputs, inputs, position, head))
        heads = [head if p == position else zeros(t.extents, t, f"d{t.name}") for p, t in enumerate(outputs)]
        adjoints = _ruled(author.vjp, signature, outputs, inputs, heads)
        return [a for a, t in zip(adjoints, inputs, strict=True) if t.dtype.is_float]

    def rule(output: Tensor, deps: list[Tensor], head: Tensor) -> list[Tensor | None]:
        if head.ndim == output.ndim:
            return one(output, deps, head)
        return _for_each(one, output, deps, head)

    return rule


def _for_each(one: Callable[..., Any], output: Tensor, deps: list[Tensor], head: Tensor) -> list[Tensor | None]:
    """A rule for heads with axes in front: the rule for one head, batched along each of them."""
    single = placeholder(head.extents[1:], head.dtype, name=head.name)
    inner = _for_each(one, output, deps, single) if single.ndim > output.ndim else one(output, deps, single)
    present = [a for a in inner if a is not None]
    made = iter(batched(present, {single: head}, head.extents[0]))
    return [None if a is None else next(made) for a in inner]


def _jvp_rule(
    signature: Signature,
    rule: Callable[..., Any],
    outputs: Tensors,
    inputs: Tensors,
    position: int,
) -> Callable[..., Any]:
    def pushed(deps: list[Tensor], tangents: list[Tensor]) -> Tensor:
        dots = iter(tangents)
        full = [next(dots) if t.dtype.is_float else zeros(t.extents, t, f"{t.name}_dot") for t in inputs]
        return _pushed(rule, signature, outputs, inputs, full)[position]

    return pushed


def _by_transposing(
    signature: Signature,
    rule: Callable[..., Any],
    outputs: Tensors,
    inputs: Tensors,
    position: int,
    head: Tensor,
) -> Tensors:
    """The reverse derivative that a forward rule means: it is linear in the tangents, so turn that around."""
    dots = [placeholder(t.extents, t.dtype, name=f"{t.name}_dot") for t in inputs]
    moved = _pushed(rule, signature, outputs, inputs, dots)[position]
    floats = [d for d in dots if d.dtype.is_float]
    return transposed(differentiate(moved, floats, head), floats, f"{signature.title}: def_jvp")


def _ruled(
    rule: Callable[..., Any],
    signature: Signature,
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    heads: Sequence[Tensor],
) -> list[Tensor | None]:
    """The adjoints by the author's reverse rule, one per input. The rule may differentiate the outputs itself."""
    one = len(outputs) == 1
    with without_rules(outputs):
        given = outputs[0] if one else tuple(outputs), list(inputs), heads[0] if one else tuple(heads)
        returned = called(rule, given)
    adjoints = [returned] if isinstance(returned, Tensor) or returned is None else list(returned)
    if len(adjoints) != len(inputs):
        raise ValueError(
            f"{signature.title}: def_vjp at {place_of(rule)} returned {len(adjoints)} adjoints for {len(inputs)} "
            f"inputs ({', '.join(t.name for t in inputs)}); return one for each, None where there is none"
        )
    for of, adjoint in zip(inputs, adjoints, strict=True):
        if adjoint is not None and not isinstance(adjoint, Tensor):
            hint = "; an expression becomes a tensor by te.compute" if isinstance(adjoint, Expr) else ""
            if adjoint is NotImplemented:
                hint = f"; te.differentiate(output, {of.name}, head) is the derivative of the definition"
            elif isinstance(adjoint, (tuple, list)) and not one:
                hint = (
                    f": there are {len(outputs)} outputs, so output and head are tuples; head[0] is that of the first"
                )
            raise TypeError(
                f"{signature.title}: def_vjp at {place_of(rule)} must return tensors or None, found "
                f"{type(adjoint).__name__} for {of.name!r}{hint}"
            )
        if adjoint is not None and of.dtype.is_float and not same_shape(adjoint, of):
            raise ValueError(
                f"{signature.title}: def_vjp must return an adjoint of the shape and dtype of {of!r}, found "
                f"{adjoint!r:.60}, at {place_of(rule)}"
            )
    return adjoints


def _adjoint(adjoint: Any, of: Tensor, signature: Signature) -> Tensor:
    if adjoint is None:
        return zeros(of.extents, of, f"d{of.name}")
    if not isinstance(adjoint, Tensor) or not same_layout(adjoint, of):
        raise ValueError(
            f"{signature.title}: def_vjp must return an adjoint of the shape and dtype of {of!r}, found {adjoint!r:.60}"
        )
    return adjoint


def _pushed(
    rule: Callable[..., Any],
    signature: Signature,
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    tangents: Sequence[Tensor],
) -> list[Tensor]:
    """The tangents by the author's forward rule, one per output."""
    with without_rules(outputs):
        returned = called(rule, (list(inputs), list(tangents)))
    dots = [returned] if isinstance(returned, Tensor) else list(returned)
    if len(dots) != len(outputs):
        raise ValueError(f"{signature.title}: def_jvp returned {len(dots)} tangents for {len(outputs)} outputs")
    for dot, output in zip(dots, outputs, strict=True):
        if output.dtype.is_float and not (isinstance(dot, Tensor) and same_layout(dot, output)):
            raise ValueError(
                f"{signature.title}: def_jvp must return a tangent of the shape and dtype of {output!r}, found "
                f"{dot!r:.60}"
            )
    return dots


def _explained(signature: Signature, template: Template, error: Exception, inputs: Sequence[Tensor]) -> Exception:
    """The error of the function with the names of its arguments and what was given."""
    title, text = signature.title, str(error)
    told = text[len(title) :] if text.startswith(title) else f": {text}"  # what is said of it has its title already
    given = signature.given(template, inputs)
    message = f"{title} called on ({given}){told}"
    if isinstance(error, KeyError) and not isinstance(error, MissingKeyError):
        return _with_notes(MissingKeyError(f"{title} called on ({given}): there is no key {text}"), error)
    if "is not a valid JAX type" in message:  # what its functions say of our tensors
        message += "; functions of JAX take arrays: write those of tedsl here, as te.log(x)"
    try:
        return _with_notes(type(error)(message), error)
    except TypeError:  # an error class with a constructor of its own
        return _with_notes(ValueError(message), error)


def _shown(trace: TracebackType | None) -> TracebackType | None:
    """The frames of the function that was traced, and the last one: those of the library between say nothing."""
    frames: list[TracebackType] = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    shown: TracebackType | None = None
    for k, one in reversed(list(enumerate(frames))):
        if k == len(frames) - 1 or not is_own_file(one.tb_frame.f_code.co_filename):
            shown = TracebackType(shown, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return shown


def _with_notes(made: Exception, error: Exception) -> Exception:
    """An error with the notes of that which it replaces."""
    if hasattr(made, "add_note"):  # from Python 3.11 on
        for note in getattr(error, "__notes__", ()):
            made.add_note(note)
    return made
