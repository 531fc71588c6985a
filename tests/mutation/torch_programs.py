"""Random in-place programs on torch tensors as Python source, written while torch runs them."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from tests.mutation.programs import NothingFitsError, Program, filled

torch = pytest.importorskip("torch")

DTYPES = ("float64", "float32", "int64")
FAILURES = (RuntimeError, ValueError, TypeError, IndexError)


class Writer:
    """Statements one after another; one that torch refuses is not kept."""

    def __init__(self, rng: random.Random, methods: bool = False) -> None:
        self.rng = rng
        self.methods = methods  # only what te.functionalize knows, too
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {"torch": torch}
        self.count = 0

    def pick(self, test: Any = lambda v: True) -> tuple[str, Any]:
        found = [(n, v) for n, v in self.scope.items() if n[0] in "av" and test(v)]
        if not found:
            raise NothingFitsError
        return self.rng.choice(found)

    def add(self, line: str) -> None:
        if self.methods and any(name in line for name in ("scatter_reduce", "_foreach", "fmod")):
            return
        before = {n: v.clone() for n, v in self.scope.items() if n[0] in "av"}
        try:
            exec(compile(line, "<line>", "exec"), self.scope)
        except FAILURES:
            return
        if any(v.dtype.is_floating_point and bool((v.abs() > 1e6).any()) for v in self.values()):
            for name, value in before.items():
                self.scope[name].copy_(value)
            self.lines.append("")
            return
        self.lines.append(line)

    def values(self) -> list[Any]:
        return [v for n, v in self.scope.items() if n[0] in "av"]

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def key(self, value: Any) -> str:
        parts = []
        for n in value.shape:
            kind = self.rng.randrange(5)
            if kind == 0 and n:
                parts.append(str(self.rng.randrange(-n, n)))
            elif kind == 1:
                parts.append(":")
            else:
                low, high = (self.rng.choice(["", "", str(self.rng.randint(-n, n))]) for _ in range(2))
                parts.append(f"{low}:{high}:{self.rng.choice(['', '', '2', '3'])}")
        return ", ".join(parts) or "..."

    def operand(self, like: Any) -> str:
        """Something of the same shape; torch leaves open what a copy between overlapping memory gives."""
        named = [(n, v) for n, v in self.scope.items() if n[0] in "av" and v.shape == like.shape]
        fits = [n for n, v in named if not np.shares_memory(v.numpy(), like.numpy()) or _same(v, like)]
        return self.rng.choice(fits) if fits and self.rng.random() < 0.6 else self.rng.choice(["1", "2", "-1", "3"])


def _same(a: Any, b: Any) -> bool:
    """Whether two tensors lie element on element."""
    return (a.data_ptr(), a.stride(), a.dtype) == (b.data_ptr(), b.stride(), b.dtype)


def view(w: Writer) -> None:
    name, x = w.pick()
    forms = [f"{name}[{w.key(x)}]", f"{name}.t()" if x.ndim <= 2 else name, f"{name}.unsqueeze(0)", f"{name}.squeeze()"]
    forms += [f"{name}.reshape(-1)", f"{name}.view(-1)", f"{name}.flatten()"]
    if x.ndim > 1:
        forms += [f"{name}.transpose(0, 1)", f"{name}.diagonal()", f"{name}.select(0, 0)", f"{name}.permute(1, 0)"]
    w.add(f"{w.fresh()} = {w.rng.choice(forms)}")


def compute(w: Writer) -> None:
    name, x = w.pick()
    forms = ["{x} + {y}", "{x} * {y}", "torch.where({x} > 0, {x}, {y})", "torch.relu({x})", "{x}.clone()", "-{x}",
             "{x}.sum(0, keepdim=True)", "torch.clamp({x}, -2, 2)", "{x}.contiguous()", "{x}.double()"]  # fmt: skip
    w.add(f"{w.fresh()} = " + w.rng.choice(forms).format(x=name, y=w.operand(x)))


def in_place(w: Writer) -> None:
    name, x = w.pick()
    forms = ["{x}.add_({y})", "{x}.mul_({y})", "{x}.sub_({y}, alpha=2)", "{x}.relu_()", "{x}.zero_()", "{x}.fill_({n})",
             "{x}.clamp_(-3, 3)", "{x}.copy_({y})", "{x} += {y}", "{x} *= {y}",
             "torch.nn.functional.relu({x}, inplace=True)", "torch.add({x}, {y}, out={x})"]  # fmt: skip
    y = w.operand(x)
    line = w.rng.choice(forms).format(x=name, y=y, n=w.rng.randint(-2, 2))
    w.add(line.replace(f".copy_({y})", f".fill_({y})") if y.lstrip("-").isdigit() else line)


def sliced(w: Writer) -> None:
    name, x = w.pick(lambda v: v.ndim)
    key = w.key(x)
    part = eval(f"x[{key}]", {"x": x})
    w.add(f"{name}[{key}] {w.rng.choice(['=', '=', '+=', '*='])} {w.operand(part)}")


def masked(w: Writer) -> None:
    name, _ = w.pick(lambda v: v.ndim)
    forms = ["{x}[{x} > {n}] = {m}", "{x}.masked_fill_({x} < {n}, {m})"]
    w.add(w.rng.choice(forms).format(x=name, n=w.rng.randint(-2, 2), m=w.rng.randint(-2, 2)))


def indexed(w: Writer) -> None:
    name, x = w.pick(lambda v: v.ndim and v.shape[0])
    index = f"torch.tensor({[w.rng.randrange(x.shape[0]) for _ in range(w.rng.randint(1, 3))]})"
    forms = ["{v} = {x}[{i}]", "{x}[{i}] = {n}", "{x}.index_put_(({i},), {x}[{i}] * 2, accumulate=True)",
             "{v} = {x}.index_select(0, {i})", "{x}.index_add_(0, {i}, {x}[{i}].clone())"]  # fmt: skip
    w.add(w.rng.choice(forms).format(x=name, i=index, v=w.fresh(), n=w.rng.randint(-3, 3)))


def further(w: Writer) -> None:
    """Methods that are less common."""
    name, x = w.pick()
    y, z = w.operand(x), w.operand(x)
    forms = ["{x}.lerp_({y}, 0.5)", "{x}.addcmul_({y}, {z}, value=2)", "{x}.addcdiv_({y}, {z} * 0 + 4)",
             "{x}.clamp_(min={y})", "{x}.floor_()", "{x}.tril_()", "{x}.masked_fill_({y} > {z}, {n})", "{x}.square_()",
             "{x}.cumsum_(0)", "torch._foreach_add_([{x}, {x}], {n})", "torch._foreach_mul_([{x}], [{y}])",
             "{v} = {x}.amax(-1)", "{v} = torch.stack([{x}, {x} * 2])",
             "{v} = {x}.roll(1, 0)", "{v} = {x}.flip(0)", "{v} = torch.cat([{x}, {x}], -1)", "{x}.fmod_(3)",
             "{x}.sign_()", "{x}.neg_()"]  # fmt: skip
    w.add(w.rng.choice(forms).format(x=name, y=y, z=z, v=w.fresh(), n=w.rng.randint(-2, 2)))


def selected(w: Writer) -> None:
    """x[mask] computed with and assigned back."""
    name, x = w.pick(lambda v: v.ndim)
    other = w.operand(x)
    other = "2" if other.lstrip("-").isdigit() else f"{other}[m]"
    mask = w.rng.choice(["{x} > {n}", "{x} * 2 < {n} + 1", "({x} < 0) | ({x} > {n})"]).format(
        x=name, n=w.rng.randint(-1, 1)
    )
    forms = ["{x}[m] -= 1", "{x}[m] *= {o}", "{x}[m] = {x}[m] * 2 + {o}", "{x}[m] = -{o}", "{v} = {x}[m].sum()"]
    line = w.rng.choice(forms).format(x=name, o=other, v=w.fresh())
    w.add(f"m = {mask}; {line}")


def pointed(w: Writer) -> None:
    """Writes and combines where indices point, every element named."""
    name, x = w.pick(lambda v: v.ndim and v.numel())
    y, n = w.operand(x), x.shape[0]
    source = f"{name}.clone()" if y.lstrip("-").isdigit() else f"{y}.clone()"
    index = f"(torch.arange({x.numel()}).reshape({tuple(x.shape)}) * {w.rng.randint(0, 3)} % {n})"
    forms = ["{x}.scatter_(0, {i}, {k})", "{x}.scatter_add_(0, {i}, {s})", "{x}.scatter_reduce_(0, {i}, {s}, 'amax')",
             "{x}.scatter_reduce_(0, {i}, {s}, 'sum', include_self=False)", "{v} = {x}.gather(0, {i})",
             "{x}.index_fill_(0, {i}.reshape(-1), {k})",
             "{x}.index_copy_(0, torch.arange({n}).flip(0), {s})"]  # fmt: skip
    w.add(w.rng.choice(forms).format(x=name, i=index, s=source, v=w.fresh(), k=w.rng.randint(-3, 3), n=n))


STATEMENTS = [view, view, compute, in_place, in_place, sliced, sliced, masked, indexed]


def write_torch_program(rng: random.Random, length: int = 8, *, methods: bool = False) -> Program:
    """A program `fn(a0, ...)` whose arguments are cut out of buffers, which some of them share."""
    buffers: list[tuple[tuple[int, ...], str, int]] = []
    arguments: list[str] = []
    for place in range(rng.randint(1, 2)):
        shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 2)))
        buffers.append((shape, rng.choice(DTYPES), rng.randrange(1000)))
        forms = [f"b[{place}]", f"b[{place}]", f"b[{place}][1:]", f"b[{place}][::2]"]
        forms += [f"b[{place}].T", f"b[{place}][:, ::2]", f"b[{place}][0]"] if len(shape) == 2 else []
        arguments += [rng.choice(forms) for _ in range(rng.randint(1, 2))]
    arrays = [filled(*b) for b in buffers]
    writer = Writer(rng, methods)
    for k, text in enumerate(arguments):
        writer.scope[f"a{k}"] = torch.from_numpy(eval(text, {"np": np, "b": arrays}))
    for _ in range(rng.randint(1, length)):
        with suppress(NothingFitsError):
            rng.choice([*STATEMENTS, further, further, selected, pointed])(writer)
    names = [n for n in writer.scope if n[0] in "av"]
    results = rng.sample(names, min(len(names), 3))
    head = f"def fn({', '.join(f'a{k}' for k in range(len(arguments)))}):"
    body = [*filter(None, writer.lines), f"return ({', '.join(results)},)"]
    return Program("\n    ".join([head, *body]) + "\n", tuple(arguments), tuple(buffers))


def torch_arrays(program: Program) -> tuple[list[Any], list[Any]]:
    """Fresh buffers, and the arguments in them as torch tensors."""
    buffers, arguments = program.arrays()
    return buffers, [torch.from_numpy(a) for a in arguments]
