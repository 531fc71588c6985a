"""`@te.op`: a function of tensors as an operator on arrays of every framework.

Called on tensors it is inlined. Called on arrays it runs: traced and compiled once for given static arguments, dtypes
and shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, overload

import numpy as np

from tedsl.lang.dtypes import dtype_of_array
from tedsl.lang.errors import user_location
from tedsl.lang.tensor import Tensor
from tedsl.ops.routines import Definition, Traced
from tedsl.ops.signature import Call, Signature, Template, map_leaves

__all__ = ["Op", "op"]


@overload
def op(function: Callable[..., Any]) -> Op: ...
@overload
def op(function: None = None, *, name: str | None = None) -> Callable[[Callable[..., Any]], Op]: ...


def op(function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """An operator from a function of tensors; arguments that are not arrays are static.

    `@te.op` or `@te.op(name=...)`.
    """
    if function is None:
        return functools.partial(op, name=name)
    if not callable(function):
        raise TypeError(f"te.op at {user_location()}: expected a function, found {type(function).__name__}")
    return Op(function, name or str(getattr(function, "__name__", "op")))


class Op:
    """A function of tensors and static arguments that also runs on arrays."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name
        self.signature = Signature(function, name)
        self._definitions: dict[Template, Definition] = {}

    def __call__(self, *args: Any, out: Any = None, mode: Any = None, **kwargs: Any) -> Any:
        call = self.signature.call(args, kwargs)
        if not call.arrays:
            raise TypeError(f"op {self.signature}: no argument is an array; called at {user_location()}")
        if any(isinstance(a, Tensor) for a in call.arrays):
            return self._inlined(call, out, mode)
        return self._run(call, out, mode)

    def __repr__(self) -> str:
        return f"<op {self.signature}>"

    def definition(self, template: Template) -> Definition:
        """The function with the static arguments of a template."""
        found = self._definitions.get(template)
        if found is None:
            found = self._definitions.setdefault(template, Definition(self.signature, template))
        return found

    def _inlined(self, call: Call, out: Any, mode: Any) -> Any:
        for name, value in zip(call.template.names, call.arrays, strict=True):
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"op {self.signature}: argument {name!r} is a {type(value).__name__} beside tensors; make it a "
                    "te.placeholder, or call the op on arrays only"
                )
        if out is not None or mode is not None:
            raise TypeError(
                f"op {self.signature}: out= and mode= are for arrays; on tensors an op is a pure expression"
            )
        return self.signature.called(call.template, call.arrays)

    def _run(self, call: Call, out: Any, mode: Any) -> Any:
        arrays = [np.asarray(a) for a in call.arrays]
        specs = tuple((a.shape, str(dtype_of_array(a))) for a in arrays)
        traced = self.definition(call.template).traced(specs)
        return _nested(traced, traced.kernel(*arrays, out=out, mode=mode))


def _nested(traced: Traced, values: Any) -> Any:
    """Results in the nest in which the function returned its tensors."""
    if isinstance(traced.result, int):
        return values[0]
    if isinstance(values, Mapping) or len(values) != len(traced.outputs):
        return values
    return map_leaves(traced.result, "result", lambda position, name: values[position])
