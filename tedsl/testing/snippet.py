"""A failing case as a program that can be pasted and run."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from tedsl.testing.arguments import Case
from tedsl.testing.traced import Rules

__all__ = ["snippet"]


def snippet(rules: Rules, case: Case, check: str) -> str:
    """Imports, arrays, and the call of `check_case` that fails."""
    named = {"op": rules.op, "vjp": rules.vjp, "jvp": rules.jvp}
    lines = ["import numpy as np", "import tedsl as te"]
    lines += dict.fromkeys(_found(f) for f in named.values() if f is not None)
    lines.append("")
    lines += [f"{name} = {_literal(value)}" for name, value in case.arrays.items()]
    arguments = [_name(rules.op), f"{{{', '.join(f'{name!r}: {name}' for name in case.arrays)}}}"]
    if case.static:
        arguments.append(f"static={dict(case.static)!r}")
    arguments += [f"{key}={_name(rule)}" for key, rule in named.items() if key != "op" and rule is not None]
    arguments += [f"dtype={case.dtype!r}", f"seed={case.seed}", f"checks=({check!r},)"]
    lines.append(f"te.testing.check_case({', '.join(arguments)})")
    return "\n".join(lines)


def _name(f: Any) -> str:
    name = getattr(f, "__name__", type(f).__name__)
    return "op" if name == "<lambda>" else str(name)


def _found(f: Any) -> str:
    """The import of a function, or where it is defined if it cannot be imported."""
    module, qualified = getattr(f, "__module__", None), getattr(f, "__qualname__", "<unknown>")
    if module not in (None, "__main__") and "<" not in qualified and "." not in qualified:
        return f"from {module} import {qualified}"
    inner = inspect.unwrap(f) if callable(f) else f
    code = getattr(inner, "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else str(module)
    return f"# {_name(f)} is {qualified} of {place}"


def _literal(value: np.ndarray[Any, Any]) -> str:
    """The array as Python; floats with the digits that give the same value again."""
    if not value.size:
        return f"np.zeros({value.shape}, {str(value.dtype)!r})"
    text = np.array2string(value, separator=", ", threshold=value.size + 1, floatmode="unique")
    return f"np.array({' '.join(text.split())}, {str(value.dtype)!r})"
