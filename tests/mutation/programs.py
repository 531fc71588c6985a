"""Random in-place programs as Python source: written while NumPy runs them, so that every statement is legal there."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

DTYPES = ("float64", "int64", "float32", "int32", "bool")


@dataclass(frozen=True)
class Program:
    """Source of `fn(a0, a1, ...)`, and how its arguments are cut out of buffers."""

    source: str
    arguments: tuple[str, ...]
    buffers: tuple[tuple[tuple[int, ...], str, int], ...]  # shape, dtype, seed

    def function(self) -> Any:
        scope: dict[str, Any] = {"np": np}
        exec(compile(self.source, "<program>", "exec"), scope)
        return scope["fn"]

    def arrays(self) -> tuple[list[Any], list[Any]]:
        """Fresh buffers, and the arguments in them."""
        buffers = [filled(*b) for b in self.buffers]
        return buffers, [eval(text, {"np": np, "b": buffers}) for text in self.arguments]


def filled(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    numbers = np.random.default_rng(seed).integers(-4, 5, shape)
    return (numbers > 0) if dtype == "bool" else numbers.astype(dtype)


class NothingFitsError(Exception):
    """No variable is of the kind that a statement needs."""


class Writer:
    """Statements one after another, each run by NumPy as soon as it is written."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {"np": np}
        self.count = 0

    def names(self, test: Any = lambda v: True) -> list[str]:
        return [n for n, v in self.scope.items() if n[0] in "av" and test(v)]

    def pick(self, test: Any = lambda v: True) -> str:
        found = self.names(test)
        if not found:
            raise NothingFitsError
        return self.rng.choice(found)

    def add(self, line: str) -> bool:
        """Run a statement; one that NumPy refuses is not kept."""
        try:
            with np.errstate(all="ignore"):
                exec(compile(line, "<line>", "exec"), self.scope)
        except (ValueError, TypeError, IndexError, np.exceptions.AxisError):
            return False
        self.lines.append(line)
        return True

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def key(self, value: Any) -> str:
        """A basic index into `value`."""
        parts = []
        for n in value.shape:
            kind = self.rng.randrange(6)
            if kind == 0 and n:
                parts.append(str(self.rng.randrange(-n, n)))
            elif kind == 1:
                parts.append(":")
            else:
                ends = [self.rng.choice(["", "", str(self.rng.randint(-n - 1, n + 1))]) for _ in range(2)]
                step = self.rng.choice(["", "", "2", "-1", "-2", "3"])
                parts.append(f"{ends[0]}:{ends[1]}:{step}")
        if parts and self.rng.random() < 0.3:
            parts = parts[: self.rng.randrange(1, len(parts) + 1)]
        if self.rng.random() < 0.15:
            parts.insert(self.rng.randrange(len(parts) + 1), "None")
        if not parts or self.rng.random() < 0.1:
            parts.append("...")
        return ", ".join(parts)

    def index_key(self, value: Any) -> str:
        """An index with at least one integer array."""
        rank = value.ndim
        arrays = self.rng.sample(range(rank), self.rng.randint(1, min(2, rank)))
        length = self.rng.randint(1, 4)
        parts = []
        for d, n in enumerate(value.shape):
            if d in arrays:
                parts.append(str([self.rng.randrange(-n, n) for _ in range(length)]))
            elif self.rng.random() < 0.2:
                parts.append(str(self.rng.randrange(-n, n)))
            else:
                parts.append(self.rng.choice([":", "1:", "::-1"]))
        return ", ".join(parts)

    def operand(self, like: Any) -> str:
        """Something that may broadcast with `like`."""
        fits = self.names(lambda v: np.shape(v) == np.shape(like) or np.ndim(v) == 0)
        if fits and self.rng.random() < 0.6:
            return self.rng.choice(fits)
        other = self.pick()
        return other if self.rng.random() < 0.3 else self.rng.choice(["1", "2", "-1", "3", "2.0"])

    def statement(self) -> None:
        with suppress(NothingFitsError):
            self.rng.choice(STATEMENTS)(self)


def is_array(v: Any) -> bool:
    return isinstance(v, np.ndarray)


def is_number(v: Any) -> bool:
    return v.dtype != bool


def slice_view(w: Writer) -> None:
    x = w.pick(is_array)
    w.add(f"{w.fresh()} = {x}[{w.key(w.scope[x])}]")


def move_axes(w: Writer) -> None:
    x = w.pick(is_array)
    rank = w.scope[x].ndim
    order = w.rng.sample(range(rank), rank)
    w.add(f"{w.fresh()} = {x}" + w.rng.choice([".T", f".transpose({order})" if rank else ".T"]))


def reshape(w: Writer) -> None:
    x = w.pick(is_array)
    n = w.scope[x].size
    shapes = (
        [[-1], [n]]
        + [[n // k, k] for k in (1, 2, 3, 4) if n and n % k == 0]
        + [[k, -1] for k in (2, 3) if n and n % k == 0]
    )
    shapes += [[2, n // 4, 2]] if n and n % 4 == 0 else []
    w.add(f"{w.fresh()} = {x}.reshape({w.rng.choice(shapes)})")


def compute(w: Writer) -> None:
    x = w.pick(is_number)
    y = w.operand(w.scope[x])
    form = w.rng.choice(
        ["{x} + {y}", "{x} - {y}", "{y} * {x}", "np.maximum({x}, {y})", "np.where({x} > 0, {x}, {y})", "-{x}"]
    )
    w.add(f"{w.fresh()} = " + form.format(x=x, y=y))


def copy(w: Writer) -> None:
    x = w.pick(is_array)
    w.add(f"{w.fresh()} = {x}" + w.rng.choice([".copy()", ".astype('float64')", "[...]", ""]))


def reduce(w: Writer) -> None:
    x = w.pick(lambda v: is_array(v) and v.ndim and v.size and is_number(v))
    axis = w.rng.choice([None, *range(w.scope[x].ndim)])
    w.add(f"{w.fresh()} = {x}.{w.rng.choice(['sum', 'max'])}(axis={axis}, keepdims={w.rng.random() < 0.3})")


def compare(w: Writer) -> None:
    x = w.pick()
    w.add(f"{w.fresh()} = {x} > {w.rng.randint(-2, 2)}")


def whole_in_place(w: Writer) -> None:
    x = w.pick(is_number)
    w.add(f"{x} {w.rng.choice(['+=', '-=', '*='])} {w.operand(w.scope[x])}")


def slice_in_place(w: Writer) -> None:
    x = w.pick(is_array)
    key = w.key(w.scope[x])
    part = w.scope[x][eval(f"np.s_[{key}]", {"np": np})]
    w.add(f"{x}[{key}] {w.rng.choice(['=', '=', '+=', '*='])} {w.operand(part)}")


def other_part(w: Writer) -> None:
    """x[1:] += x[:-1] and its like."""
    x = w.pick(lambda v: is_array(v) and v.ndim and v.shape[0] > 1)
    parts = w.rng.choice([("1:", ":-1"), (":-1", "1:"), (":", "::-1"), ("::-1", ":"), ("0", "1"), ("0", "-1")])
    w.add(f"{x}[{parts[0]}] {w.rng.choice(['=', '+=', '-='])} {x}[{parts[1]}]")


def masked(w: Writer) -> None:
    x = w.pick(lambda v: is_array(v) and v.ndim and is_number(v))
    fits = w.names(lambda v: is_array(v) and v.dtype == bool and v.shape == w.scope[x].shape)
    mask = w.rng.choice(fits) if fits and w.rng.random() < 0.6 else f"{x} > {w.rng.randint(-2, 2)}"
    same = w.names(lambda v: is_array(v) and v.shape == w.scope[x].shape and is_number(v))
    if w.rng.random() < 0.3 and mask in w.scope:
        y = w.rng.choice(same)
        w.add(f"{x}[{mask}] = {y}[{mask}] * 2")
    else:
        w.add(f"{x}[{mask}] {w.rng.choice(['=', '+=', '*='])} {w.rng.choice(['7', '-1', '2'])}")


def masked_rows(w: Writer) -> None:
    """Masks over one axis of two: values broadcast over the other one, which may have an index of its own."""
    x = w.pick(lambda v: is_array(v) and v.ndim == 2 and v.size and is_number(v))
    axis, (n, m) = w.rng.randrange(2), w.scope[x].shape
    length, rest = (n, m) if axis == 0 else (m, n)
    fits = w.names(lambda v: is_array(v) and v.dtype == bool and v.shape == (length,))
    known = f"np.array({[w.rng.random() < 0.5 for _ in range(length)]})"
    found = f"({x} > {w.rng.randint(-2, 2)}).{w.rng.choice(['any', 'all'])}(axis={1 - axis})"
    mask = w.rng.choice([*fits, known, found])
    w.add(f"m = {mask}")
    rows = [*w.names(lambda v: is_array(v) and v.shape == (rest,)), f"np.arange({rest})", "2", "-1"]
    row = w.rng.choice(rows)
    column = row if axis == 0 or row.lstrip("-").isdigit() else f"{row}[:, None]"
    other = w.rng.choice(w.names(lambda v: is_array(v) and v.shape == (n, m) and is_number(v)))
    place, step = w.rng.randrange(-rest, rest), w.rng.choice(["::-1", "1:", "::2"])
    cut = (lambda k: f"m, {k}") if axis == 0 else (lambda k: f"{k}, m")
    op, whole = w.rng.choice(["=", "+=", "-=", "*="]), "m" if axis == 0 else ":, m"
    forms = [
        f"{x}[{whole}] {op} {column}",
        f"{x}[{whole}] {op} {column}",
        f"{x}[{cut(place)}] {op} {w.rng.choice(['3', '-1'])}",
        f"{x}[{cut(step)}] {op} {w.rng.choice(['3', '-1'])}",
        f"{x}[{whole}] = {other}[{whole}] + {column}",
        f"{w.fresh()} = {x}[{whole}].{w.rng.choice(['sum', 'max'])}({w.rng.choice([axis, 'None'])})",
    ]
    w.add(w.rng.choice(forms))


def indexed(w: Writer) -> None:
    x = w.pick(lambda v: is_array(v) and v.ndim and v.size and is_number(v))
    key = w.index_key(w.scope[x])
    kind = w.rng.randrange(4)
    if kind == 0:
        w.add(f"{w.fresh()} = {x}[{key}]")
        return
    part = w.scope[x][eval(f"np.s_[{key}]", {"np": np})]
    if kind == 1 and w.rng.random() < 0.5:
        w.add(f"np.add.at({x}, np.s_[{key}], {w.rng.choice(['1', '3'])})")
        return
    values = f"np.arange({part.size}).reshape({list(part.shape)})" if w.rng.random() < 0.5 else w.operand(part)
    w.add(f"{x}[{key}] {w.rng.choice(['=', '+=', '-='])} {values}")


def function(w: Writer) -> None:
    """New arrays and views by NumPy's functions."""
    x = w.pick(lambda v: is_array(v) and v.ndim and v.size < 200 and is_number(v))
    y = w.operand(w.scope[x])
    forms = ["np.diff({x}, axis=0)", "np.tile({x}, 2)", "np.repeat({x}, 2, axis=0)", "np.roll({x}, 1, 0)",
             "np.rot90({x})",
             "np.hstack([{x}, {x}])", "np.vstack([{x}, {x}])", "np.atleast_2d({x})", "np.pad({x}, 1)", "np.fliplr({x})",
             "{x}.take([0, -1], axis=0)", "np.select([{x} > 1, {x} < 0], [{x}, {y}], 7)", "{x}.clip(None, 2)",
             "np.add.outer({x}[0], {x})", "np.maximum.reduce({x})", "np.square({x})", "np.fmax({x}, {y})",
             "{x}.astype(int)", "np.broadcast_to({x}, (2, *{x}.shape)) + 0", "np.array_split({x}, 2)[0]",
             "np.sum({x}, axis=0, where={x} > 0)", "np.take_along_axis({x}, np.zeros_like({x}, dtype=int), 0)",
             "np.ptp({x}, axis=0)", "np.count_nonzero({x}, axis=0)", "np.divmod({x}, 3)[1]"]  # fmt: skip
    w.add(f"{w.fresh()} = " + w.rng.choice(forms).format(x=x, y=y))


def into(w: Writer) -> None:
    """Functions that write: out=, where=, swaps, loops over rows."""
    x = w.pick(lambda v: is_array(v) and v.ndim and v.size and is_number(v))
    y, n = w.operand(w.scope[x]), w.rng.randint(-3, 3)
    forms = ["np.add({x}, {y}, out={x})", "np.maximum({x}, {y}, out={x}, where={x} > {n})", "np.negative({x}, {x})",
             "np.copyto({x}, {y}, where={x} < {n})", "np.putmask({x}, {x} > {n}, {y})",
             "np.clip({x}, -2, {n}, out={x})",
             "np.cumsum({x}, axis=0, out={x})", "np.fill_diagonal({x}, {n})", "{x}[0], {x}[-1] = {n}, {x}[0]",
             "{x}[0], {x}[-1] = {x}[-1].copy(), {x}[0].copy()", "{x}[[0, -1]] = {x}[[-1, 0]]",
             "np.add.at({x}, {x} > {n}, {k})", "np.subtract.at({x}, [0, 0], {k})", "np.multiply.at({x}, [-1, 0], 2)",
             "np.put_along_axis({x}, np.zeros_like({x}, dtype=int), {n}, 0)", "{x}[...] = {y}",
             "{x}[None][..., ::2] += {k}",
             "{x}[np.ix_([0])] -= {k}", "{x}.sum(axis=0, out={x}[0])", "{x}.fill({n})"]  # fmt: skip
    loops = ["for row in {x}: row += {k}", "for k in range(len({x})): {x}[k] -= {x}[k - 1]"]
    w.add(w.rng.choice([*forms, *loops]).format(x=x, y=y, n=n, k=w.rng.randint(1, 3)))


STATEMENTS = [
    slice_view, slice_view, move_axes, reshape, compute, copy, reduce, compare, whole_in_place, whole_in_place,
    slice_in_place, slice_in_place, slice_in_place, other_part, masked, masked_rows, indexed, indexed,
    function, into, into,
]  # fmt: skip


def cut(rng: random.Random, buffers: list[Any], place: int) -> str:
    """An argument: a buffer or a part of it."""
    forms = [
        "b[{p}]",
        "b[{p}]",
        "b[{p}].T",
        "b[{p}][1:]",
        "b[{p}][:-1]",
        "b[{p}][::2]",
        "b[{p}][::-1]",
        "np.asfortranarray(b[{p}])",
    ]
    if buffers[place].ndim == 2:
        forms += ["b[{p}][:, 1:]", "b[{p}][:, ::2]", "b[{p}][0]", "b[{p}].reshape(-1)"]
    return rng.choice(forms).format(p=place)


def write_program(rng: random.Random, length: int = 8) -> Program:
    buffers = []
    for _ in range(rng.randint(1, 2)):
        shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 2)))
        buffers.append((shape, rng.choice(DTYPES), rng.randrange(1000)))
    arrays = [filled(*b) for b in buffers]
    arguments = tuple(cut(rng, arrays, rng.randrange(len(arrays))) for _ in range(rng.randint(1, 3)))
    writer = Writer(rng)
    for k, text in enumerate(arguments):
        writer.scope[f"a{k}"] = eval(text, {"np": np, "b": arrays})
    for _ in range(rng.randint(1, length)):
        writer.statement()
    results = rng.sample(writer.names(), min(len(writer.names()), 3))
    head = f"def fn({', '.join(f'a{k}' for k in range(len(arguments)))}):"
    body = [*writer.lines, f"return ({', '.join(results)},)"]
    return Program("\n    ".join([head, *body]) + "\n", arguments, tuple(buffers))
