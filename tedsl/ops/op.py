"""`@te.op`: a function of tensors as an operator on arrays of every framework.

Called on tensors it is inlined. Called on arrays it runs: traced and compiled once for given static arguments, dtypes
and shapes. Frameworks are reached through bridges, found by the module of an array's type.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, overload

import numpy as np

from tedsl.analysis.arrays.nests import map_nest
from tedsl.backend.building.planners import check_opt
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.host.units import parse_bytes
from tedsl.lang.dtypes import dtype_of_array
from tedsl.lang.errors import user_location
from tedsl.lang.keywords import own_arguments
from tedsl.lang.pickling import by_name
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables_only
from tedsl.ops.arrays import Static
from tedsl.ops.compiling import OPS, compiling
from tedsl.ops.definition import Author, Definition, inlined
from tedsl.ops.explaining import OpExplanation, explanation_of
from tedsl.ops.homes import BRIDGES, brought_together, home_of, kind_of, plain
from tedsl.ops.keys import is_plain, key_of, nest_key
from tedsl.ops.results import into
from tedsl.ops.routines import USUAL, TracedRoutine, Worth
from tedsl.ops.shapes import Spec
from tedsl.ops.signature import OpCall, Signature, Template
from tedsl.ops.static_numbers import NumbersSeen

__all__ = ["Op", "definitions_of", "op", "worth_of"]

_numbers = itertools.count()
MOST_PREPARED = 1024


@overload
def op(function: Callable[..., Any]) -> Op: ...
@overload
def op(
    function: None = None,
    *,
    name: str | None = None,
    save: str | list[str] | tuple[str, ...] = "reductions",
    symbolic: bool | None = None,
    opt: str = "default",
    memory: int | str | None = None,
) -> Callable[[Callable[..., Any]], Op]: ...


@own_arguments(hint="it has name=, save=, symbolic=, opt= and memory=; what is no array is static as it is")
def op(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    save: str | list[str] | tuple[str, ...] = "reductions",
    symbolic: bool | None = None,
    opt: str = "default",
    memory: int | str | None = None,
) -> Any:
    """An operator from a function of tensors; arguments that are not arrays are static.

    Use it as `@te.op`, or with options.

    save      what a forward pass keeps for the backward pass beside inputs and outputs: "reductions" (whatever it
              reads that is not pointwise), "inputs" (nothing, all is computed again), or names of stages
    symbolic  whether one kernel serves many shapes: never (False), always (True), or by default after four shapes, if
              the function allows it. Extents that changed are symbols then; those that were equal in each call share
              one. By default a shape that recurs gets a kernel of its own later, if that gives the same bits: another
              process builds it while calls go on
    opt       as in `te.build`, for the operator and its derivatives
    memory    as in `te.build`. Extents are then numbers, and a forward pass keeps nothing unless `save` names stages
    """
    worth = worth_of(opt, memory, symbolic, "te.op")
    if function is None:
        return functools.partial(op, name=name, save=save, symbolic=symbolic, opt=opt, memory=memory)
    if not callable(function):
        raise TypeError(f"te.op at {user_location()}: expected a function, found {type(function).__name__}")
    if isinstance(save, str) and save not in ("reductions", "inputs"):
        raise ValueError(
            f"te.op at {user_location()}: save must be 'reductions', 'inputs' or a list of stage names, found {save!r}"
        )
    return Op(function, name or str(getattr(function, "__name__", "op")), save, symbolic, worth)


def worth_of(opt: str, memory: int | str | None, symbolic: bool | None, what: str) -> Worth:
    """The options of kernels, checked."""
    check_opt(opt, f"{what} at {user_location()}")
    if memory is not None:
        parse_bytes(memory, what)
        if symbolic:
            raise ValueError(f"{what} at {user_location()}: memory= needs extents that are numbers, not symbolic=True")
    return Worth(opt, memory)


_ELSEWHERE = {
    **dict.fromkeys(("defvjp", "register_autograd", "backward", "register_backward", "custom_vjp"), "def_vjp"),
    **dict.fromkeys(("defjvp", "custom_jvp", "register_jvp"), "def_jvp"),
}
_OF_KERNELS = ("compile", "export", "loop_nest", "program", "source", "stats")


class Op(Rich):
    """A function of tensors and static arguments that also runs on arrays."""

    __qualname__: str

    def __getattr__(self, name: str) -> Any:
        told = f": it is @{self.__dict__.get('name', 'op')}.{_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        if name in _OF_KERNELS:
            told = f", which kernels have: with a te.placeholder x it is te.build(x, f(x)).{name}"
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{told}", name=name, obj=self)

    def __init__(
        self, function: Callable[..., Any], name: str, save: str | list[str] | tuple[str, ...], symbolic: bool | None,
        worth: Worth = USUAL,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, function)  # name, docstring and signature, as help() shows them
        self.function = function
        self.name = name
        self.signature = Signature(function, name)
        if worth.memory is not None:
            symbolic, save = False, "inputs" if save == "reductions" else save
        self.author = Author(save=save if isinstance(save, str) else tuple(save), worth=worth)
        self.symbolic = symbolic
        self.key = f"{name} {next(_numbers)}"
        OPS[self.key] = self
        self.bridged: dict[Any, Any] = {}  # what bridges keep of this op
        self._definitions: dict[Template, Definition] = {}
        self._prepared: dict[Any, Callable[..., Any]] = {}
        self._numbers = NumbersSeen()
        self._on_tensors = takes_variables_only(self._inlined) if self.signature.is_ours else self._inlined
        if "out" in self.signature.parameters.parameters:
            inner = inspect.unwrap(function)
            theirs = f"give a function of yours, lambda x: np.{inner.__name__}(x)"
            told = theirs if isinstance(inner, np.ufunc) else "name it otherwise"
            raise TypeError(f"{self.signature.title}: the parameter 'out' has a meaning of its own; {told}")
        self._has_mode = "mode" in self.signature.parameters.parameters

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_dynamo_compiling():
            return compiling(self, torch, args, out, kwargs)
        if not kwargs:
            quick: Callable[..., Any] | None
            try:
                quick, given = self._prepared[key_of(args)], args
            except (KeyError, TypeError, ValueError):  # a memoryview that may be written raises the last
                quick, given = self._prepared_nest(args)
            if quick is not None:
                result = quick(given, out)
                if result is not NotImplemented:
                    return result
        mode = None if self._has_mode else kwargs.pop("mode", None)
        call = self.signature.call(args, kwargs)
        result = self._dispatch(call, out, mode)
        if not kwargs:
            self._prepare(call, args)
        return result

    def __repr__(self) -> str:
        return f"<op {self.signature.annotated}>"

    def __reduce__(self) -> tuple[Any, ...]:
        reduced = by_name(self)
        if reduced is None:
            raise pickle.PicklingError(
                f"{self.signature.title}: pickled by its name, but {self.__module__}.{self.__qualname__} is not this "
                "op; define it at the top of a module under its own name"
            )
        return reduced

    def __copy__(self) -> Op:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Op:  # as of a function, so that modules that hold one can be copied
        return self

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def def_vjp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Give the reverse derivative: `rule(output, inputs, head)` -> one adjoint per input, None for none.

        With several outputs, `output` and `head` are tuples. Inside the rule, `te.differentiate(output, ...)` is the
        derivative of the definition, to start from.
        """
        self._forget()
        self.author.vjp = _checked_rule(rule, self.signature, "def_vjp", ("output", "inputs", "head"))
        return rule

    def def_jvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Give the forward derivative: `rule(inputs, tangents)` -> the tangent of the output (of each, a tuple).

        Without `def_vjp`, the reverse derivative is its transpose.
        """
        self._forget()
        self.author.jvp = _checked_rule(rule, self.signature, "def_jvp", ("inputs", "tangents"))
        return rule

    def schedule(self, rule: Callable[..., Any], target: str = "host") -> Callable[..., Any]:
        """Give schedules: `rule(schedule, output, grads)`, called with grads None for the forward pass.

        They are for arrays on the CPU, or with `target="cuda"` for those on a GPU; without one, the default schedule
        is used there.
        """
        if target not in ("host", "cuda"):
            raise ValueError(f"{self.signature.title}: schedule: target must be 'host' or 'cuda', found {target!r:.40}")
        self._forget()
        self.author.schedules[target] = _checked_rule(rule, self.signature, "schedule", ("schedule", "output", "grads"))
        return rule

    @property
    def torch_op(self) -> Any:
        """The operator registered with `torch.library`."""
        return import_module(BRIDGES["torch"]).registered(self)

    def explain(self) -> OpExplanation:
        """What the op was specialized for, what its forward pass keeps for the backward pass, what is compiled."""
        named = self.signature.label is None
        title = f"op {self.signature.annotated}" if named else self.signature.title
        return explanation_of(title, definitions_of(self))

    def definition(self, template: Template) -> Definition:
        """The function with the static arguments of a template."""
        found = self._definitions.get(template)
        if found is None:
            made = Definition(self.signature, template, self.author, self.symbolic)
            found = self._definitions.setdefault(template, made)
        return found

    def _forget(self) -> None:
        """The author says something new: what was traced before may differ."""
        self._definitions.clear()
        self._prepared.clear()
        self.bridged.clear()

    def _prepared_nest(self, args: tuple[Any, ...]) -> tuple[Callable[..., Any] | None, tuple[Any, ...]]:
        """The short way for arguments that are nests, and the arrays in them."""
        found = None if is_plain(args) else nest_key(args)
        return (None, args) if found is None else (self._prepared.get(found[0]), found[1])

    def _prepare(self, call: OpCall, args: tuple[Any, ...]) -> None:
        """Remember a short way for calls on arrays of the same shapes."""
        found = (key_of(args), args) if is_plain(args) else nest_key(args)
        if found is None or len({home_of(type(a)) for a in call.arrays}) > 1:
            return
        home = home_of(type(call.arrays[0]))
        quick: Callable[..., Any] | None
        if home == "numpy":
            definition, specs = self.definition(call.template), _specs(call.arrays)
            traced, recurrence = definition.running(specs), definition.recurrence(specs)
            quick = functools.partial(_quick, traced.kernel, traced)
            quick = quick if recurrence is None else recurrence.watched(quick)
        else:
            quick = import_module(home).prepare(self, call)
        if quick is not None:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()
            self._prepared[found[0]] = quick

    def _dispatch(self, call: OpCall, out: Any, mode: Any) -> Any:
        if not call.arrays:
            raise TypeError(
                f"{self.signature.title}: no argument is an array; called at {user_location()} "
                "(numbers are static, and lists of them too: np.asarray(x) is an array)"
            )
        traced = next((a for a in call.arrays if hasattr(type(a), "__tedsl_lower__")), None)
        if traced is not None:  # an array of te.functionalize, which may stand beside others
            lowered = OpCall(call.template, tuple(traced.__tedsl_lower__(a) for a in call.arrays))
            return map_nest(self._inlined(lowered, out, mode), lambda t: _lifted(t, traced))
        kinds = [home_of(type(a)) for a in call.arrays]
        if len(set(kinds)) > 1:
            call, kinds = brought_together(call, kinds, self.signature)
        home = kinds[0]
        for kind, name, value in zip(kinds, call.template.names, call.arrays, strict=True):
            if kind != home:
                raise TypeError(
                    f"{self.signature.title}: argument {name!r} is a {kind_of(value)}, but {call.template.names[0]!r} "
                    f"is a {kind_of(call.arrays[0])}; give arrays of one framework"
                )
        if home == "tensor":
            return self._on_tensors(call, out, mode)
        self._numbers.add(call, getattr(self, "__name__", self.name), self._results)
        if home != "numpy":
            return import_module(home).call(self, call, out, mode)
        return self._run(call, out, mode)

    def _results(self) -> list[Tensor]:
        """What its programs compute."""
        made = (traced for d in self._definitions.values() for traced in d.traces.values())
        return [t for traced in made for t in traced.outputs]

    def _inlined(self, call: OpCall, out: Any, mode: Any) -> Any:
        if out is not None or mode is not None:
            raise TypeError(f"{self.signature.title}: out= and mode= are for arrays; on tensors an op is an expression")
        returned = inlined(self.signature, call.template, self.author, call.arrays)
        return map_nest(returned, lambda t: t.value if isinstance(t, Static) else t)

    def _run(self, call: OpCall, out: Any, mode: Any) -> Any:
        arrays = [plain(a, name, self.signature) for a, name in zip(call.arrays, call.template.names, strict=True)]
        definition, specs = self.definition(call.template), _specs(arrays)
        recurrence = definition.recurrence(specs)
        run = functools.partial(into, definition.running(specs), arrays, out, mode)
        return run() if recurrence is None else recurrence.timed(run, arrays)


def definitions_of(op: Op) -> list[Definition]:
    """The function of an op with each of the static arguments that it was called with."""
    return list(op._definitions.values())


def _lifted(value: Any, traced: Any) -> Any:
    return traced.__tedsl_lift__(value) if isinstance(value, Tensor) else value


def _quick(kernel: Kernel, traced: TracedRoutine, args: tuple[Any, ...], out: Any) -> Any:
    """A call on NumPy arrays that was prepared."""
    if out is not None and traced.result != 0:
        return NotImplemented
    values = kernel(*[a for a in args if a.__class__ is np.ndarray], out=out)
    return values[0] if traced.result == 0 else traced.nested(values)


def _specs(arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[Spec, ...]:
    return tuple((a.shape, str(dtype_of_array(a))) for a in arrays)


def _checked_rule(rule: Any, signature: Signature, what: str, parameters: tuple[str, ...]) -> Callable[..., Any]:
    if not callable(rule):
        raise TypeError(f"{signature.title}: {what} expects a function, found {type(rule).__name__} ({rule!r:.40})")
    with suppress(ValueError):  # a builtin without a signature
        found = inspect.signature(rule)
        try:
            found.bind(*parameters)
        except TypeError:
            raise TypeError(
                f"{signature.title}: {what} expects a function of ({', '.join(parameters)}), found one of {found}"
            ) from None
    checked: Callable[..., Any] = rule
    return checked
