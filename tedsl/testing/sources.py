"""Functions written down as Python, so that a snippet stands alone.

What can be imported is imported. The rest (functions of a script, of a notebook, of another function, lambdas) is given
with its source, and so is what it refers to, down to numbers and imports. Where that is not possible, as for a function
that holds on to an object, a comment says where the function is.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from typing import Any

import numpy as np

from tedsl.ops.op import Op

__all__ = ["Listing", "array_text"]

Array = np.ndarray[Any, Any]


# Instructions that read a name of a module, the last one in bodies of classes.
LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


class _Untold(Exception):
    """A value that has no text."""


class Listing:
    """The lines that a program begins with, in order: imports, then definitions."""

    def __init__(self, taken: Mapping[str, Any]) -> None:
        self.imports = ["import numpy as np", "import tedsl as te"]
        self.definitions: dict[str, str] = {}
        self.values: dict[str, Any] = {"np": np, "te": sys.modules.get("tedsl"), **taken}

    def lines(self) -> list[str]:
        return [*dict.fromkeys(self.imports), *(f"\n{text}" for text in self.definitions.values())]

    def tell(self, value: Any, wish: str) -> str:
        """An expression for a value: its definitions are added, under the name `wish` if it has none of its own."""
        kept = list(self.imports), dict(self.definitions), dict(self.values)
        try:
            return self._told(value, wish)
        except (_Untold, OSError, SyntaxError):
            self.imports, self.definitions, self.values = kept
            name = _name(value, wish)
            self.definitions.setdefault(name, f"# {name} is {_place(value)}")
            return name

    def _told(self, value: Any, wish: str) -> str:
        for name, known in self.values.items():
            if known is value and callable(value):
                return name
        imported = self._imported(value)
        if imported is not None:
            return imported
        for kind, rule in _TOLD.items():
            if isinstance(value, kind):
                return str(rule(self, value, wish))
        return _literal(value)

    def _imported(self, value: Any) -> str | None:
        """The name of what a module has; those of tedsl stand as te.name where that is the same."""
        if isinstance(value, types.ModuleType):
            return self._module(value, value.__name__.rpartition(".")[2])
        name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
        if name is None or module is None or not name.isidentifier() or not _is_found(module):
            return None
        there = getattr(sys.modules.get(module), name, None)
        if there is not value and getattr(there, "__checked__", there) is not value:
            return None
        if module.partition(".")[0] == "builtins":
            return str(name)
        if module.partition(".")[0] == "tedsl" and getattr(self.values["te"], name, None) is value:
            return f"te.{name}"
        self.imports.append(f"from {module} import {name}")
        return str(name)

    def _module(self, module: types.ModuleType, name: str) -> str:
        whole = module.__name__
        package, _, last = whole.rpartition(".")
        short = f"from {package} import {last}" if package else f"import {whole}"
        self.imports.append(short if name == last else f"import {whole} as {name}")
        return name

    def _op(self, op: Op, wish: str) -> str:
        """An operator: its function, and the rules that it was given."""
        name = self._function(op.function, wish)
        self.definitions[name] += f"\n\n\n{name} = te.op({name})"
        self.values[name] = op
        rules = {"def_vjp": op.author.vjp, "def_jvp": op.author.jvp}
        for verb, rule in rules.items():
            if rule is not None:
                told = self._told(rule, f"{name}_{verb[4:]}")
                self.definitions[f"{name}.{verb}"] = f"{name}.{verb}({told})"
        return name

    def _partial(self, made: functools.partial[Any], wish: str) -> str:
        parts = [self._told(made.func, f"{wish}_function")]
        parts += [self._told(a, f"{wish}_{k}") for k, a in enumerate(made.args)]
        parts += [f"{key}={self._told(a, f'{wish}_{key}')}" for key, a in made.keywords.items()]
        self.imports.append("import functools")
        self._define(wish, made, f"{wish} = functools.partial({', '.join(parts)})")
        return wish

    def _function(self, f: Any, wish: str) -> str:
        """A function by its source; a lambda gets the name that is wished for."""
        node, text = _source(f)
        is_lambda = isinstance(node, ast.Lambda)
        name = wish if isinstance(node, ast.Lambda) or node.name in {*self.values, "_"} else node.name
        self._define(name, f, "")  # known to what it refers to, which may be itself
        for free, value in _free(f, node):
            self._refer(free, value, f)
        del self.definitions[name]  # and written after that
        self.definitions[name] = f"{name} = {text}" if is_lambda else re.sub(r"\Adef \w+", f"def {name}", text)
        return name

    def _refer(self, name: str, value: Any, f: types.FunctionType) -> None:
        """What a function calls `name`."""
        if name in self.values:
            if self.values[name] is not value:
                raise _Untold
        elif isinstance(value, types.ModuleType):
            self.values[name] = value
            self._module(value, name)
        elif _is_found(f.__module__) and getattr(sys.modules[f.__module__], name, None) is value:
            self.values[name] = value
            self.imports.append(f"from {f.__module__} import {name}")
        else:
            told = self._told(value, name)
            if told != name:
                self._define(name, value, f"{name} = {told}")
            self.values[name] = value

    def _define(self, name: str, value: Any, text: str) -> None:
        if name in self.values and self.values[name] is not value:
            raise _Untold
        self.values[name] = value
        self.definitions[name] = text

    def _listed(self, values: Any, wish: str) -> str:
        parts = [self._told(v, f"{wish}_{k}") for k, v in enumerate(values)]
        if isinstance(values, list):
            return f"[{', '.join(parts)}]"
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"

    def _table(self, table: dict[Any, Any], wish: str) -> str:
        parts = [f"{_literal(k)}: {self._told(v, wish + '_' + str(n))}" for n, (k, v) in enumerate(table.items())]
        return f"{{{', '.join(parts)}}}"


def array_text(value: Array) -> str:
    """The array as Python; floats with the digits that give the same value again."""
    if value.dtype.name == "bfloat16":
        value = value.astype(np.float32)
    if not value.size:
        return f"np.zeros({value.shape}, {str(value.dtype)!r})"
    text = np.array2string(value, separator=", ", threshold=value.size + 1, floatmode="unique")
    words = re.sub(r"\b(nan|inf)\b", r"np.\1", " ".join(text.split()))
    return f"np.array({words}, {str(value.dtype)!r})"


def _literal(value: Any) -> str:
    """A number, a text, or what is made of them."""
    if isinstance(value, np.ndarray):
        return array_text(value)
    if isinstance(value, np.generic):
        return f"np.{value.dtype.name}({value.item()!r})"
    text = repr(value)
    if isinstance(value, float) and text in ("nan", "inf", "-inf"):
        return f"float({text!r})"
    try:
        if type(ast.literal_eval(text)) is type(value):
            return text
    except (ValueError, SyntaxError, TypeError):
        pass
    raise _Untold


def _source(f: types.FunctionType) -> tuple[ast.FunctionDef | ast.Lambda, str]:
    """The definition of a function, without decorators."""
    lines, _ = inspect.findsource(f)
    text = "".join(lines)
    first = f.__code__.co_firstlineno
    lambdas = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == f.__name__:
            if first in (node.lineno, *(d.lineno for d in node.decorator_list)):
                return node, textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno])).rstrip()
        elif isinstance(node, ast.Lambda) and f.__name__ == "<lambda>" and node.lineno == first and _is_of(node, f):
            lambdas[" ".join((ast.get_source_segment(text, node) or "").split())] = node
    if len(lambdas) != 1:
        raise _Untold  # none, or several on one line that are told apart by nothing
    ((segment, found),) = lambdas.items()
    return found, segment


def _is_of(node: ast.Lambda, f: types.FunctionType) -> bool:
    """Whether a lambda of that line may be this one: by its arguments, and by columns where code has them."""
    if [a.arg for a in node.args.args] != list(f.__code__.co_varnames[: f.__code__.co_argcount]):
        return False
    places: Any = getattr(f.__code__, "co_positions", tuple)()
    columns = [a for line, end, a, b in places if line == end == node.body.lineno and a is not None and a < b]
    return not columns or (min(columns) >= node.body.col_offset and max(columns) <= (node.body.end_col_offset or 0))


def _free(f: types.FunctionType, node: ast.FunctionDef | ast.Lambda) -> Iterator[tuple[str, Any]]:
    """The names that a function takes from around it, with their values."""
    around = dict(zip(f.__code__.co_freevars, f.__closure__ or ()))
    signature = (part for part in (node.args, getattr(node, "returns", None)) if part is not None)
    outside = _globals_of(f.__code__) | {n.id for part in signature for n in ast.walk(part) if isinstance(n, ast.Name)}
    for name in dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name)):
        if name in around:
            try:
                yield name, around[name].cell_contents
            except ValueError:  # not given a value yet
                raise _Untold from None
        elif name in f.__globals__ and name in outside:  # and not of that name within, or in a function within
            yield name, f.__globals__[name]


def _globals_of(code: types.CodeType) -> set[str]:
    """The names that code, and the functions within it, read from their module."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname in LOADS}
    return found.union(*(_globals_of(part) for part in code.co_consts if isinstance(part, types.CodeType)))


def _is_found(module: str) -> bool:
    """Whether another process would find the module."""
    top = module.partition(".")[0]
    if top == "__main__" or module not in sys.modules:
        return False
    return top in sys.stdlib_module_names or PathFinder.find_spec(top) is not None


def _name(value: Any, wish: str) -> str:
    name = str(getattr(value, "__name__", wish))
    return name if name.isidentifier() else wish


def _place(value: Any) -> str:
    inner = inspect.unwrap(value) if callable(value) else value
    code = getattr(inner, "__code__", None)
    title = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{title} of {code.co_filename}:{code.co_firstlineno}" if code is not None else f"{value!r:.60}"


_TOLD: dict[type, Any] = {
    Op: Listing._op, functools.partial: Listing._partial, types.FunctionType: Listing._function,
    list: Listing._listed, tuple: Listing._listed, dict: Listing._table,
}  # fmt: skip
