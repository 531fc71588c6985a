"""`tedsl check`, `show` and `bench`: an operator or a tensor of a file, tried, printed, timed.

`FILE:NAME` is a Python file and a name in it. `SHAPE` is that of an array of an operator: "64x64" or "64:int32" where
numbers are wanted, "n m" for `check`, where sizes are drawn; as Python writes them, too: "(64, 64)", and "()" for an
array of rank 0. What is no array is given by name, "s=2.0", and so are symbols of a tensor, "n=1000". For `check`,
"n:int32<k" are integers below k.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import re
import sys
import time
from pathlib import Path
from typing import Any

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
    if sizes:  # those behind the first stand among the shapes
        sizes += filter(_NAMED.match, words)
        words = [word for word in words if not _NAMED.match(word)]
    if not words:
        raise SystemExit("tedsl check: the following arguments are required: FILE:OP")
    what, *shapes = words
    try:
        arrays = [_described(text) for text in shapes]
        report = check_op(
            _found(what), *arrays, sizes=dict(map(_sizes_of_name, sizes)) or None, examples=options.examples,
            compiled=options.compiled, seed=options.seed, raise_exception=False,
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        told = str(error).partition(": ")[2] if str(error).startswith("check_op at ") else str(error)
        raise SystemExit(f"tedsl: {what}: {_as_options(told)}") from None
    print(report if report.ok else _as_options(str(report.failure)))
    return 0 if report.ok else 1


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

    inputs, outputs = _program(options)
    print(te.display.program(outputs), "\n")
    print(te.Schedule(outputs).auto(), "\n")
    print(te.work(outputs))
    if options.source:
        print(te.build(inputs, outputs, target=options.target).source(options.source))
    return 0


def _bench(options: argparse.Namespace) -> int:
    import tedsl as te
    from tedsl.backend.compiling.samples import samples

    inputs, outputs = _program(options)
    sizes = _sizes(options, outputs)
    start = time.perf_counter()
    kernel = te.build(inputs, outputs)
    arrays = samples(inputs, sizes, {}, lambda drawn: kernel(*drawn))
    kernel(*arrays)
    print(f"built and called once: {1e3 * (time.perf_counter() - start):.0f} ms")
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        kernel(*arrays)
        times.append(time.perf_counter() - start)
    times.sort()
    median = times[len(times) // 2]
    work = te.work(outputs, sizes)
    print(f"a call: {1e3 * median:.4g} ms (median of {len(times)}, least {1e3 * times[0]:.4g})")
    print(f"{work.flops / median / 1e9:.3g} GFLOP/s, {work.bytes / median / 1e9:.3g} GB/s of inputs and results")
    with te.profile() as profile:
        for _ in range(min(len(times), PROFILED)):
            kernel(*arrays)
    print(profile)
    return 0


def _sizes(options: argparse.Namespace, outputs: list[Any]) -> dict[Any, int]:
    """The symbols among the extents, and the numbers that are given for them."""
    from tedsl.lang.expr import Var
    from tedsl.lang.traverse import stages_of, topological

    extents = (n for op in stages_of(outputs) for tensor in op.outputs for n in tensor.extents)
    symbols = dict.fromkeys(e for n in extents for e in topological(n) if isinstance(e, Var))
    named = dict(text.split("=", 1) for text in options.shapes if "=" in text)
    missing = [v.name for v in symbols if not named.get(v.name, "").isdecimal()]
    if missing:
        given = " ".join(f"{name}=1000" for name in missing)
        raise SystemExit(f"tedsl: {options.what} has extents that are no numbers; say them: {options.what} {given}")
    return {v: int(named[v.name]) for v in symbols}


def _program(options: argparse.Namespace) -> tuple[list[Any], list[Any]]:
    """The inputs and outputs of what was named."""
    import tedsl as te
    from tedsl.lang.tensor import Constant, Placeholder
    from tedsl.lang.traverse import stages_of

    found = _found(options.what)
    if not isinstance(found, te.Tensor):
        parameters = _parameters(found)
        options_too = [*parameters, *_parameters(found, inspect.Parameter.KEYWORD_ONLY)]
        named = [text.partition("=") for text in options.shapes if "=" in text]
        values = {name: _value(name, text) for name, _, text in named if name in options_too}
        shapes = [text for text in options.shapes if "=" not in text]
        if not shapes and not values:
            raise SystemExit(f"tedsl: {options.what} is a function: say the shape of each of its arrays, such as 64x64")
        names = [*(name for name in parameters if name not in values), *(f"x{k}" for k in range(len(shapes)))]
        given = [_placeholder(name, text) for name, text in zip(names, shapes, strict=False)]
        try:
            found = found(**{t.name: t for t in given}, **values) if values else found(*given)
        except (TypeError, ValueError, IndexError, ArithmeticError) as error:
            listed = ", ".join([*(f"{t.name} : {t.dtype}{list(t.shape)}" for t in given), *map("".join, named)])
            raise SystemExit(f"tedsl: {options.what} refuses ({listed}): {error}") from None
    outputs = list(found) if isinstance(found, (tuple, list)) else [found]
    read = (op for op in stages_of(outputs) if isinstance(op, Placeholder) and not isinstance(op, Constant))
    inputs = [op.output() for op in read]
    if options.gradient:
        loss = sum((t.sum() for t in outputs[1:]), outputs[0].sum())
        outputs += te.differentiate(loss, [t for t in inputs if t.dtype.is_float])
    return inputs, outputs


def _parameters(function: Any, *kinds: Any) -> list[str]:
    """What a function calls the arrays that it takes by their places, or what is of other kinds."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    wanted = kinds or (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in wanted]


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
