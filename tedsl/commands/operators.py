"""`tedsl check`, `show` and `bench`: an operator or a tensor of a file, tried, printed, timed.

`FILE:NAME` is a Python file and a name in it. `SHAPE` is that of an array of an operator: "64x64" or "64:int32" where
numbers are wanted, "n m" for `check`, where sizes are drawn; as Python writes them, too: "(64, 64)", and "()" for an
array of rank 0. What is no array is given by name, "s=2.0", and so are symbols of a tensor, "n=1000". For `check`,
"n:int32<k" are integers below k. `show` and `bench` take schedules and kernels, too.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

HELP = "a Python file and a name in it, ops.py:swish"
SECONDS = 1.0  # how long `bench` measures
# How `check_op` writes sizes.
_ADVISED, _SIZES = re.compile(r"sizes=\{([^}\n]*)\}(?!,)"), re.compile(r'"(\w+)": \((\d+), (\d+)\)')
_TUPLE = re.compile(r"\s*\(([\w\s,]*)\)\s*")  # a shape as Python writes it
_NAMED = re.compile(r"\w+=")  # and no shape
PROFILED = 1000  # calls, of those that fit into that time


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options."""
    check = commands.add_parser("check", help="try to prove an operator or its gradient wrong")
    check.add_argument("what", metavar="FILE:OP", help=HELP)
    check.add_argument(
        "shapes",
        metavar="SHAPE",
        nargs="*",
        help="of each array: 'n m', '()' of rank 0, 'n:int32<m' for integers below m",
    )
    check.add_argument(
        "--sizes", metavar="NAME=LEAST:MOST", action="append", default=[],
        help="the extents that names may take: n=3:9 m=5 (else 1 to 5)",
    )  # fmt: skip
    check.add_argument("--examples", type=int, default=100, help="how many cases are drawn (100)")
    check.add_argument("--compiled", type=int, default=4, help="about how many of them are compiled, too (4)")
    check.add_argument("--seed", type=int, default=0, help="another number, other cases")
    check.set_defaults(run=_check)
    show = commands.add_parser("show", help="the formula, the loops, the work, and the code of a tensor or an operator")
    bench = commands.add_parser("bench", help="how long a call takes, and how far that is from the machine's limit")
    for parser, run in ((show, _show), (bench, _bench)):
        parser.add_argument("what", metavar="FILE:NAME", help=HELP)
        parser.add_argument(
            "shapes",
            metavar="SHAPE",
            nargs="*",
            help="of each array of an operator: 64x64, 64:int32, '()' of rank 0; numbers and options by name: "
            "radius=3, n=1000",
        )
        parser.add_argument("--gradient", action="store_true", help="of the sum of the result, by every input")
        parser.set_defaults(run=run)
    show.add_argument("--source", choices=("stmt", "llvm", "asm"), help="the code, too")
    show.add_argument("--target", default="host", help="what the code is for (host)")


def _check(options: argparse.Namespace) -> int:
    from tedsl.testing import check_op

    words, sizes = [options.what, *options.shapes], list(options.sizes)
    plain, named = [w for w in words if not _NAMED.match(w)], [w for w in words if _NAMED.match(w)]
    if not plain:
        raise SystemExit("tedsl check: the following arguments are required: FILE:OP")
    what, *shapes = plain
    found = _found(what)
    try:
        arrays = [_described(text) for text in shapes]
        extents = {name for array in arrays for name in array.names()} if sizes else set()
        values, others = _given_by_name(found, named, extents)
        if sizes:  # those behind the first stand among the shapes
            sizes += others
        elif others:
            raise ValueError(_no_parameter(others[0], found))
        report = check_op(
            found, *arrays, sizes=dict(map(_sizes_of_name, sizes)) or None, examples=options.examples,
            compiled=options.compiled, seed=options.seed, raise_exception=False, **values,
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        told = str(error).partition(": ")[2] if str(error).startswith("check_op at ") else str(error)
        raise SystemExit(f"tedsl: {what}: {_as_options(told)}") from None
    print(report if report.ok else _as_options(str(report.failure)))
    return 0 if report.ok else 1


def _given_by_name(function: Any, named: list[str], extents: set[str]) -> tuple[dict[str, Any], list[str]]:
    """The values of parameters among what `check` is given by name, "beta=0.5" or "x=n m", and what is none.

    Where sizes are given, `extents` are names of these first.
    """
    from hypothesis.strategies import just

    parameters = _signature(function)
    values, others = {}, []
    for text in named:
        name, _, said = text.partition("=")
        if name not in parameters or name in extents:
            others.append(text)
            continue
        try:
            value = ast.literal_eval(said)
        except (ValueError, SyntaxError):
            value = _described(said) if parameters[name].default is inspect.Parameter.empty else said
        values[name] = just(value) if isinstance(value, str) else value  # check_op takes a text for a shape
    return values, others


def _no_parameter(text: str, function: Any) -> str:
    name = text.partition("=")[0]
    known = ", ".join(_signature(function)) or "nothing"
    return f"it takes {known}, and no {name!r}; the extents that a name may take are --sizes {name}=3:9"


def _sizes_of_name(text: str) -> tuple[str, int | tuple[int, int]]:
    """What `--sizes` says: "n=3:9", "n=5"."""
    name, _, sizes = text.partition("=")
    numbers = sizes.split(":")
    if not name.isidentifier() or len(numbers) > 2 or not all(map(str.isdecimal, numbers)):
        raise ValueError(f"--sizes takes n=3:9 or n=5, found {text!r}")
    least, most = int(numbers[0]), int(numbers[-1])
    return name, least if len(numbers) == 1 else (least, most)


def _as_options(text: str) -> str:
    """Advice as it is for this command, where it is for the function."""
    return _ADVISED.sub(lambda found: "--sizes " + _SIZES.sub(r"\1=\2:\3", found[1]).replace(",", ""), text)


def _described(text: str) -> Any:
    """An array for `check`: "n m", "64x64", "n:int32<m"."""
    from tedsl.testing import array

    shape, _, dtype = text.partition(":")
    dtype, _, below = dtype.partition("<")
    shape = _extents(shape)
    if shape.replace("x", "").isdecimal():
        shape = shape.replace("x", " ")
    bound = int(below) if below.isdecimal() else below or None
    return array(shape, dtype.strip() or None, below=bound)


def _show(options: argparse.Namespace) -> int:
    import tedsl as te

    program = _program(options)
    outputs, (sizes, missing) = program.outputs, _sizes(options, program)
    print(te.display.program(outputs), "\n")
    if program.kernel is None:
        print(program.schedule or te.Schedule(outputs).auto(), "\n")
    else:
        print(f"{program.kernel}\n{program.kernel.loop_nest()}\n")
    print(f"the work depends on sizes; say them: {_advised(options, missing)}" if missing else te.work(outputs, sizes))
    if options.source:
        kernel = program.kernel or te.build(program.inputs, outputs, program.schedule, options.target)
        print(kernel.source(options.source))
    return 0


def _bench(options: argparse.Namespace) -> int:
    import tedsl as te
    from tedsl.analysis.sizes import sizes_of
    from tedsl.backend.compiling.samples import samples

    program = _program(options)
    sizes, missing = _sizes(options, program)
    if missing:
        advised = _advised(options, missing)
        raise SystemExit(f"tedsl: {options.what} has extents that are no numbers; say them: {advised}")
    start = time.perf_counter()
    kernel = program.kernel or te.build(program.inputs, program.outputs, program.schedule)
    unread = {v: n for v, n in sizes.items() if v not in sizes_of(program.inputs, [])} or None
    arrays = samples(program.inputs, sizes, {}, lambda drawn: kernel(*drawn, sizes=unread))
    kernel(*arrays, sizes=unread)
    print(f"built and called once: {1e3 * (time.perf_counter() - start):.0f} ms")
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        kernel(*arrays, sizes=unread)
        times.append(time.perf_counter() - start)
    times.sort()
    median = times[len(times) // 2]
    work = te.work(program.outputs, sizes)
    print(f"a call: {1e3 * median:.4g} ms (median of {len(times)}, least {1e3 * times[0]:.4g})")
    print(f"{work.flops / median / 1e9:.3g} GFLOP/s, {work.bytes / median / 1e9:.3g} GB/s of inputs and results")
    with te.profile() as profile:
        for _ in range(min(len(times), PROFILED)):
            kernel(*arrays, sizes=unread)
    print(profile)
    return 0


class _Program(NamedTuple):
    """What was named: its inputs and outputs, and what it says of how they are computed."""

    inputs: list[Any]
    outputs: list[Any]
    schedule: Any = None
    kernel: Any = None
    parameters: tuple[str, ...] = ()  # of a function


def _sizes(options: argparse.Namespace, program: _Program) -> tuple[dict[Any, int], list[str]]:
    """The numbers that are given for symbols among the extents, and the names of those that have none."""
    from tedsl.analysis.sizes import sizes_of

    symbols = sizes_of(program.inputs, program.outputs)
    named = dict(text.split("=", 1) for text in options.shapes if "=" in text)
    names = dict.fromkeys(v.name for v in symbols)
    if unknown := [name for name in named if name not in program.parameters and name not in names]:
        known = ", ".join(dict.fromkeys([*program.parameters, *names])) or "no names"
        raise SystemExit(f"tedsl: {options.what} has no {unknown[0]!r}; it has {known}")
    sizes = {v: int(named[v.name]) for v in symbols if named.get(v.name, "").isdecimal()}
    return sizes, [name for name in names if not named.get(name, "").isdecimal()]


def _advised(options: argparse.Namespace, missing: list[str]) -> str:
    """The words of the command with numbers for what is missing."""
    given = [word for word in options.shapes if word.partition("=")[0] not in missing]
    return " ".join([options.what, *given, *(f"{name}=1000" for name in missing)])


def _program(options: argparse.Namespace) -> _Program:
    """What was named, of a function for the arrays that were described."""
    import tedsl as te
    from tedsl.backend.calling.kernel import Kernel
    from tedsl.lang.tensor import Constant, Placeholder
    from tedsl.lang.traverse import stages_of

    found = _found(options.what)
    parameters: tuple[str, ...] = ()
    is_compiled = isinstance(found, (te.Schedule, Kernel))
    if is_compiled and options.gradient:
        raise SystemExit(f"tedsl: {options.what} is {_kind(found)}, of which there is no gradient; name its tensor")
    if isinstance(found, Kernel):
        return _Program(list(found.inputs), list(found.outputs), kernel=found)
    if not isinstance(found, (te.Tensor, te.Schedule)):
        if not callable(found):
            raise SystemExit(
                f"tedsl: {options.what} is {_kind(found)}; name a tensor, a function of tensors, a te.Schedule or a "
                "kernel of te.build"
            )
        parameters = tuple(_signature(found))
        found = _called(found, options)
    schedule = found if isinstance(found, te.Schedule) else None
    if schedule is not None:
        found = schedule.outputs
    outputs = list(found) if isinstance(found, (tuple, list)) else [found]
    read = (op for op in stages_of(outputs) if isinstance(op, Placeholder) and not isinstance(op, Constant))
    inputs = [op.output() for op in read]
    if options.gradient:
        loss = sum((t.sum() for t in outputs[1:]), outputs[0].sum())
        outputs += te.differentiate(loss, [t for t in inputs if t.dtype.is_float])
    return _Program(inputs, outputs, schedule, parameters=parameters)


def _kind(value: Any) -> str:
    from tedsl.lang.expr import Expr, Var

    if isinstance(value, Expr):
        return "a size (te.var)" if isinstance(value, Var) else "an expression of single numbers"
    return f"a {type(value).__name__}"


def _called(function: Any, options: argparse.Namespace) -> Any:
    """What a function makes of arrays of the shapes that were given."""
    parameters = _parameters(function)
    options_too = [*parameters, *_parameters(function, inspect.Parameter.KEYWORD_ONLY)]
    named = [text.partition("=") for text in options.shapes if "=" in text]
    values = {name: _value(name, text) for name, _, text in named if name in options_too}
    shapes = [text for text in options.shapes if "=" not in text]
    if not shapes and not values:
        raise SystemExit(f"tedsl: {options.what} is a function: say the shape of each of its arrays, such as 64x64")
    names = [*(name for name in parameters if name not in values), *(f"x{k}" for k in range(len(shapes)))]
    given = [_placeholder(name, text) for name, text in zip(names, shapes, strict=False)]
    try:
        return function(**{t.name: t for t in given}, **values) if values else function(*given)
    except (TypeError, ValueError, IndexError, ArithmeticError) as error:
        listed = ", ".join([*(f"{t.name} : {t.dtype}{list(t.shape)}" for t in given), *map("".join, named)])
        raise SystemExit(f"tedsl: {options.what} refuses ({listed}): {error}") from None


def _parameters(function: Any, *kinds: Any) -> list[str]:
    """What a function calls the arrays that it takes by their places, or what is of other kinds."""
    wanted = kinds or (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, p in _signature(function).items() if p.kind in wanted]


def _signature(function: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, if they can be seen."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _value(name: str, text: str) -> Any:
    """What is given for a parameter by its name: a value of Python, or else an array of a shape."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return _placeholder(name, text) if text[:1].isdigit() else text


def _extents(shape: str) -> str:
    """The extents of a shape with blanks between them, also of one that is written as Python does: (3, 4), ()."""
    found = _TUPLE.fullmatch(shape)
    return shape if found is None else found[1].replace(",", " ")


def _placeholder(name: str, text: str) -> Any:
    import tedsl as te

    shape, _, dtype = text.partition(":")
    try:
        extents = tuple(int(part) for part in re.split(r"[\sx,]+", _extents(shape)) if part)
        return te.placeholder(extents, dtype or "float32", name=name)
    except (TypeError, ValueError) as error:
        raise SystemExit(
            f"tedsl: a shape such as 64x64, 64:int32 or '()' (rank 0) was expected, found {text!r}: {error}"
        ) from None


def _found(what: str) -> Any:
    """What `FILE:NAME` names."""
    file, _, name = what.rpartition(":")
    path = Path(file)
    if not file and Path(what).is_file():
        raise SystemExit(f"tedsl: expected FILE:NAME; say which name of {what} is meant, such as {what}:swish")
    if not file or not path.is_file():
        raise SystemExit(f"tedsl: expected FILE:NAME, such as ops.py:swish; there is no file {file or what!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"tedsl: {file} is no Python file")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        names = ", ".join(n for n in vars(module) if not n.startswith("_"))
        raise SystemExit(f"tedsl: {file} has no {name!r}; it has {names}")
    return getattr(module, name)
