"""Random in-place programs for arrays of any size: no statement names a size, so that one trace serves all of them."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import numpy as np

import tedsl as te

n, m = te.var("n"), te.var("m")
SHAPES = [(n,), (n, m), (n, 3), (m, n), (n, n), (2, n)]
SIZES = [(0, 0), (1, 1), (2, 3), (3, 1), (7, 4), (0, 5), (5, 0), (12, 9)]
WRITTEN_FOR = (9, 6)  # the sizes at which NumPy runs a program while it is written


def filled(shape: tuple[Any, ...], sizes: tuple[int, int], seed: int) -> Any:
    known = {id(n): sizes[0], id(m): sizes[1]}
    return np.random.default_rng([seed, *sizes]).integers(-4, 5, [known.get(id(d), d) for d in shape])


class Writer:
    """Statements one after another; one that NumPy refuses is not kept."""

    def __init__(self, rng: random.Random, shapes: list[tuple[Any, ...]]) -> None:
        self.rng, self.lines, self.count = rng, [], 0
        self.scope: dict[str, Any] = {"np": np}
        self.scope.update((f"a{k}", filled(s, WRITTEN_FOR, k)) for k, s in enumerate(shapes))

    def names(self, test: Any = lambda v: True) -> list[str]:
        return [k for k, v in self.scope.items() if k[0] in "av" and test(v)]

    def add(self, line: str) -> None:
        with suppress(ValueError, TypeError, IndexError), np.errstate(all="ignore"):
            exec(line, self.scope)
            self.lines.append(line)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def key(self, rank: int, *, integers: bool = True) -> str:
        parts = []
        for _ in range(rank):
            kind = self.rng.randrange(6)
            if kind == 0 and integers:
                parts.append(str(self.rng.choice([0, -1, 1, -2, 2])))
            elif kind == 1:
                parts.append(":")
            else:
                low, high = (self.rng.choice(["", "", str(self.rng.randint(-4, 4))]) for _ in range(2))
                parts.append(f"{low}:{high}:{self.rng.choice(['', '', '2', '-1', '-2', '3'])}")
        if self.rng.random() < 0.15:
            parts.insert(self.rng.randrange(len(parts) + 1), "None")
        return ", ".join(parts) if parts and self.rng.random() < 0.9 else ", ".join([*parts, "..."])

    def operand(self, like: Any) -> str:
        fits = self.names(lambda v: np.shape(v) == np.shape(like))
        return self.rng.choice(fits) if fits and self.rng.random() < 0.6 else self.rng.choice(["1", "2", "-1", "3"])

    def statement(self) -> None:
        rng, kind = self.rng, self.rng.randrange(13)
        x = rng.choice(self.names(lambda v: isinstance(v, np.ndarray) and v.dtype != bool))
        value = self.scope[x]
        views = ["{x}.T", "{x}[::-1]", "np.flip({x})", "{x}[None]", "{x}.reshape(-1)", "{x}.copy()", "{x}.diagonal()",
                 "{x}.swapaxes(0, -1)", "np.moveaxis({x}, 0, -1)", "np.expand_dims({x}, 0)"]  # fmt: skip
        if kind < 3:
            self.add(f"{self.fresh()} = {x}[{self.key(value.ndim, integers=kind > 0)}]")
        elif kind < 5:
            self.add(f"{self.fresh()} = " + rng.choice(views).format(x=x))
        elif kind == 5:
            self.add(f"{self.fresh()} = {x} {rng.choice('+-*')} {self.operand(value)}")
        elif kind == 6:
            self.add(f"{x} {rng.choice('+-*')}= {self.operand(value)}")
        elif kind < 9:
            key = self.key(value.ndim)
            with suppress(IndexError):
                part = eval(f"x[{key}]", {"x": value})
                self.add(f"{x}[{key}] {rng.choice(['=', '=', '+=', '*=', '-='])} {self.operand(part)}")
        elif kind == 9:
            parts = [("1:", ":-1"), (":-1", "1:"), (":", "::-1"), ("::-1", ":"), ("0", "-1"), ("2:", ":-2")]
            one, other = rng.choice(parts)
            self.add(f"{x}[{one}] {rng.choice(['=', '+=', '-='])} {x}[{other}]")
        elif kind == 10:
            self.add(f"{self.fresh()} = {x}.sum({rng.choice(['', '0', '-1', 'axis=0, keepdims=True'])})")
        elif kind == 11:
            self.add(f"{x}[{x} > {rng.randint(-2, 2)}] {rng.choice(['=', '+='])} {rng.choice('123')}")
        elif value.ndim == 2:
            self.add(f"{x}[{x}[:, 0] > 0] += {rng.choice(['1', x + '[0]'])}")
        else:
            self.add(f"{self.fresh()} = np.where({x} > 0, {x}, {self.operand(value)})")


def write_program(rng: random.Random, length: int = 7) -> tuple[str, list[tuple[Any, ...]]]:
    """Source of `fn(a0, ...)`, and the shapes of its arguments."""
    shapes = [rng.choice(SHAPES) for _ in range(rng.randint(1, 2))]
    writer = Writer(rng, shapes)
    for _ in range(rng.randint(2, length)):
        writer.statement()
    results = rng.sample(writer.names(), min(len(writer.names()), 3))
    head = f"def fn({', '.join(f'a{k}' for k in range(len(shapes)))}):"
    return "\n    ".join([head, *writer.lines, f"return ({', '.join(results)},)"]) + "\n", shapes
