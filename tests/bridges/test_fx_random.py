"""Random in-place torch programs: torch, te.functionalize and te.from_fx agree on results and on every argument."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.mutation.array import Array
from tests.mutation.programs import Program
from tests.mutation.torch_programs import torch_arrays, write_torch_program

torch = pytest.importorskip("torch")


def function_of(program: Program) -> Any:
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(program.source, "<program>", "exec"), scope)
    return scope["fn"]


def graph_of(program: Program) -> Any:
    """The program as a graph of operations, in-place ones and views among them."""
    from torch.fx.experimental.proxy_tensor import make_fx

    _, given = torch_arrays(program)
    copies = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t) for t in given]
    return make_fx(function_of(program))(*copies)


def check(program: Program, run: Any) -> None:
    buffers, given = torch_arrays(program)
    expected = function_of(program)(*given)
    own, arguments = torch_arrays(program)
    found = run(arguments)
    note = f"{program.source}{program.arguments} {program.buffers}"
    for k, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert one.dtype == other.dtype, f"dtype of result {k} of\n{note}"
        assert torch.equal(one, other), f"result {k} of\n{note}\nexpected {one}\nfound {other}"
    for one, other in zip(buffers, own, strict=True):
        assert np.array_equal(one, other), f"memory after\n{note}\nexpected {one}\nfound {other}"


def check_several(seed: int, count: int, length: int = 8) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        program = write_torch_program(rng, length)
        check(program, lambda given, p=program: te.from_fx(graph_of(p), given, interpreted=True)(*given))


@pytest.mark.parametrize("seed", range(5))
def test_graphs_agree_with_torch(seed: int) -> None:
    check_several(seed, 20)


def test_the_suite_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views that are copies lose what is written through them."""
    monkeypatch.setattr(Array, "view_of", lambda x, ghost, is_value=False, view=Array.view_of: te.copy(view(x, ghost)))
    with pytest.raises(AssertionError, match=r"(result|memory)"):
        check_several(0, 20)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_many_graphs_agree_with_torch(seed: int) -> None:
    check_several(seed, 40, 12)
