"""The property suites for any target: random programs, gradients and in-place code, compiled by a function `build`.

Several programs share a kernel, since compiling is what takes the time.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import tedsl as te
from autodiff.strategies import Program, programs, values_for
from tedsl.mutation import functional
from tests.autodiff.test_random_gradients import fed
from tests.equivalence import EVERY, compare, merged
from tests.mutation import programs as in_place, test_random as mutation

__all__ = ["BATCH", "FEW", "Build", "check", "check_gradients", "check_mutation", "check_programs"]

Build = Callable[..., Any]  # like te.build
BATCH, FEW = 4, 2  # programs of a kernel; gradients have many stages
MARGIN = 1e-10  # of the largest gradient of a program


def check(program: Program, feeds: dict[te.Tensor, Any], build: Build, schedule: te.Schedule | None = None) -> None:
    """Results of the kernel are those of the reference."""
    kernel = build(list(program.inputs), list(program.outputs), schedule=schedule)
    compare(program, feeds, kernel(*(feeds[t] for t in program.inputs), sizes=program.sizes))


def check_programs(data: st.DataObject, build: Build) -> None:
    """One kernel of several random programs, on random arrays."""
    program = merged(data.draw(st.lists(programs(dtypes=EVERY), min_size=BATCH, max_size=BATCH)))
    check(program, data.draw(values_for(program)), build)


def check_gradients(data: st.DataObject, build: Build) -> None:
    """One kernel for the gradients of several random programs, with random heads."""
    parts = data.draw(st.lists(programs(differentiable=True), min_size=FEW, max_size=FEW))
    feeds = {t: a for p in parts for t, a in fed(data, p).items()}
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    found: list[tuple[te.Tensor, ...]] = []
    for program in parts:
        outputs = [t for t in program.outputs if t.dtype == "float64"]
        sources = [t for t in program.inputs if t.dtype == "float64"]
        heads = [te.placeholder(t.extents, "float64", name=f"{t.name}_head") for t in outputs]
        feeds.update((h, rng.normal(size=program.shape(t))) for h, t in zip(heads, outputs, strict=True))
        found.append(tuple(te.differentiate(outputs, sources, head=heads)) if outputs and sources else ())
    wanted, sizes = [g for gradients in found for g in gradients], merged(parts).sizes
    if not wanted:
        return
    results = iter(build(list(feeds), wanted)(*feeds.values(), sizes=sizes))
    expected = iter(te.interpret(wanted, feeds, sizes))
    for gradients in found:
        pairs = [(next(results), next(expected)) for _ in gradients]
        most = max((float(np.abs(want).max(initial=0.0)) for _, want in pairs), default=0.0)
        for tensor, (got, want) in zip(gradients, pairs, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=MARGIN * (1 + most), err_msg=f"{tensor}")


def check_mutation(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, build: Build, length: int = 8, count: int = BATCH
) -> None:
    """One kernel for several random in-place programs: NumPy's results, and NumPy's memory afterwards."""
    monkeypatch.setattr(functional, "build", build)
    mutation.check(joined([in_place.write_program(rng, length) for _ in range(count)]), interpreted=False)


def joined(parts: list[in_place.Program]) -> in_place.Program:
    """In-place programs as one, which runs them one after another."""
    lines: list[str] = []
    calls: list[str] = []
    arguments: list[str] = []
    buffers: list[Any] = []
    for k, part in enumerate(parts):
        lines.append(part.source.replace("def fn(", f"def fn{k}(", 1))
        names = [f"a{len(arguments) + n}" for n in range(len(part.arguments))]
        calls.append(f"*fn{k}({', '.join(names)})")
        arguments += [re.sub(r"\bb\[", f"b[{len(buffers)}:][", a) for a in part.arguments]
        buffers += part.buffers
    lines.append(f"def fn({', '.join(f'a{n}' for n in range(len(arguments)))}):\n    return ({', '.join(calls)},)\n")
    return in_place.Program("\n".join(lines), tuple(arguments), tuple(buffers))
