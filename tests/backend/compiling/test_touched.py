"""What a kernel touches, told without its loops: the same as its whole text tells, and never more is proven."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl import ops
from tedsl.backend.compiling.accesses import touching
from tedsl.backend.compiling.buffer_checks import are_proven
from tedsl.backend.compiling.forms import COMPACT
from tedsl.backend.compiling.objects import compile_outputs
from tedsl.backend.compiling.variant_source import VariantSource
from tedsl.backend.host.targets import parse_target
from tedsl.backend.lowering.pipeline import Lowered
from tedsl.backend.scheduling.planner import Planner
from tests.arrays import floats


def arrays(*shapes: tuple[int, ...]) -> list[te.Tensor]:
    return [te.placeholder(shape, name=f"x{k}") for k, shape in enumerate(shapes)]


def convolution(**options: Any) -> tuple[list[te.Tensor], te.Tensor]:
    x, w = inputs = arrays((2, 5, 11, 9), (7, 5, 3, 3))
    return inputs, ops.conv2d(x, w, **options)


def shifted() -> tuple[list[te.Tensor], te.Tensor]:
    """Windows of a stage that is computed where it is used."""
    (x,) = inputs = arrays((23, 37))
    blurred = te.compute((23, 35), lambda i, j: te.exp(x[i, j] + x[i, j + 2]) * 0.1, name="blurred")
    return inputs, te.compute((21, 35), lambda i, j: blurred[i, j] + te.tanh(blurred[i + 2, j]), name="shifted")


def turned() -> tuple[list[te.Tensor], te.Tensor]:
    (x,) = inputs = arrays((19, 19))
    return inputs, te.compute((19, 17), lambda i, j: x[j + 2, i] * x[18 - i, j], name="turned")


CASES: dict[str, Callable[[], tuple[list[te.Tensor], te.Tensor]]] = {
    "convolution": lambda: convolution(padding=1),
    "strided convolution": lambda: convolution(stride=2),
    "dilated convolution": lambda: convolution(dilation=2, padding=2),
    "pool": lambda: (p := arrays((2, 3, 9, 11)), ops.max_pool2d(p[0], 3, stride=2)),
    "batch norm": lambda: (p := arrays((4, 6, 5, 7)), ops.batch_norm(p[0], training=True)),
    "softmax": lambda: (p := arrays((9, 33)), ops.softmax(p[0], 1)),
    "product": lambda: (p := arrays((70, 45), (45, 66)), p[0] @ p[1]),
    "one element on an axis": lambda: (p := arrays((1, 19, 1), (19, 1)), (p[0] * p[1]).sum((1, 2))),
    "windows of a stage": shifted,
    "an array and its transpose": turned,
}  # fmt: skip


def accesses(text: str, kind: str) -> set[str]:
    """The checks that nothing is touched behind the ends of arrays of a kind."""
    lines = (line.strip() for line in text.splitlines() if f'out_of_bounds("{kind} buffer' in line)
    return {re.sub(r"\$\d+|\bt\d+\b", "", line) for line in lines}


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch, cut_everywhere: None) -> Iterator[list[bool]]:
    """Whether each kernel compiled was proven without its loops, after what was said of it is compared."""
    found: list[bool] = []
    are_known = VariantSource._are_proven

    def compare(self: VariantSource, lowered: Lowered, text: str, shapes: list[tuple[int, ...] | None]) -> bool:
        less = touching(lowered)
        whole, short = (
            compile_outputs(pipeline, lowered.arguments, self.program.name, text, ["stmt"])["stmt"]
            for pipeline in (lowered.pipeline, less or lowered.pipeline)
        )
        assert accesses(short, "Input") == accesses(whole, "Input")
        is_known = are_known(self, lowered, text, shapes)
        if len(lowered.order) == 1:  # of one array, all of the checks are of the forms that are read
            assert is_known == are_proven(whole, shapes, compact=self.form.layout is COMPACT)
        found.append(is_known and less is not None)
        return is_known

    monkeypatch.setattr(VariantSource, "_are_proven", compare)
    return found


@pytest.mark.parametrize("case", CASES)
def test_what_is_touched_is_the_same_without_the_loops(case: str, compared: list[bool]) -> None:
    inputs, result = CASES[case]()
    outputs = [result, *te.differentiate((result * result).sum(), inputs)]
    feeds = {t: floats(*t.shape) for t in inputs}
    found = te.build(inputs, outputs)(*feeds.values())
    for now, want in zip(found, te.interpret(outputs, feeds), strict=True):
        np.testing.assert_allclose(now, want, rtol=2e-4, atol=2e-4)
    assert any(compared)


@pytest.mark.parametrize(("extent", "factors", "rounds"), [
    (8, (4,), False), (10, (4,), True), (10, (8, 4), False), (10, (8, 3), True), (10, (), False),
])  # fmt: skip
def test_the_whole_text_is_read_where_loops_may_go_on_behind_a_result(
    extent: int, factors: tuple[int, ...], rounds: bool
) -> None:
    """The last split is exact; Halide rounds it up where it is not."""
    x = te.placeholder((extent,), name="x")
    y = te.compute((extent,), lambda i: x[i] + 1.0, name="y")
    s = te.Schedule(y)
    loop = s[y].axes[0]
    for factor in factors:
        _, loop = s[y].split(loop, factor, exact=factor == factors[-1])
    planner = Planner(s.plan, {}, "", True)
    lowered = planner.lowered([x], s.plan.program.outputs, (), parse_target("host"), plain=False)
    assert lowered.may_round == rounds
    assert (touching(lowered) is None) == rounds
