"""What a kernel touches, told without its loops or without Halide: never more is proven than by its whole text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import tedsl as te
from autodiff.strategies import PATTERNS, patterns
from schedules.default import LOWEST, assuming
from tedsl import ops
from tedsl.backend.compiling import variant_source
from tedsl.backend.compiling.accesses import stays_within, touching
from tedsl.backend.compiling.buffer_checks import are_proven, have_places
from tedsl.backend.compiling.forms import COMPACT
from tedsl.backend.compiling.objects import compile_outputs
from tedsl.backend.compiling.strides import fix_strides
from tedsl.backend.compiling.variant_source import VariantSource
from tedsl.backend.host.targets import parse_target
from tedsl.backend.lowering.pipeline import Lowered
from tedsl.backend.scheduling.planner import Planner
from tedsl.lang.traverse import topological
from tests.arrays import floats


def arrays(*shapes: tuple[int, ...]) -> list[te.Tensor]:
    return [te.placeholder(shape, name=f"x{k}") for k, shape in enumerate(shapes)]


def convolution(batch: int = 2, **options: Any) -> tuple[list[te.Tensor], te.Tensor]:
    x, w = inputs = arrays((batch, 5, 11, 9), (7, 5, 3, 3))
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
    "strided convolution": lambda: convolution(8, stride=2),  # small results would share a kernel
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


def test_a_program_compiles_of_which_halide_cannot_say_what_it_touches() -> None:
    """Without its loops a scan had two conditions on data that Halide joined with an infinity, which it refused."""
    q, x = te.placeholder((4,), "int32", name="q"), te.placeholder((4, 3), "float64", name="x")

    def turned(s: te.Tensor, i: te.Axis, t: te.Axis) -> te.Expr:
        other = (1 - i) % 4
        is_asked = q[other] == 0
        later = te.select(is_asked, s[other, t + 1], 0.0) + te.select(is_asked, x[other, t + 1], 0.0)
        return te.select(t <= 1, later, 0.5)

    out = te.scan((4, 3), turned, axis=1, reverse=True)
    asked, value = np.array([0, 3, 0, 1], "int32"), floats(4, 3).astype("float64")
    want = np.full((4, 3), 0.5)
    for t in (1, 0):
        for i in range(4):
            other = (1 - i) % 4
            want[i, t] = want[other, t + 1] + value[other, t + 1] if asked[other] == 0 else 0.0
    np.testing.assert_array_equal(te.build([q, x], out)(asked, value), want)


def lowered_of(inputs: list[te.Tensor], *outputs: te.Tensor) -> Lowered:
    return Planner().lowered(inputs, outputs, (), parse_target("x86-64-v3"), plain=False)


def cropped() -> tuple[list[te.Tensor], te.Tensor]:
    (x,) = inputs = arrays((40, 50))
    near = te.compute((40, 50), lambda i, j: x.at(i - 1, j + 2, mode="clamp") * 2, name="near")
    return inputs, te.compute((30, 21), lambda i, j: near[i + 3, 2 * j] + near[39 - i, j % 7], name="cropped")


def scanned() -> tuple[list[te.Tensor], te.Tensor]:
    (x,) = inputs = arrays((33, 8))
    return inputs, ops.cumsum(x, 0)


def scattered() -> tuple[list[te.Tensor], te.Tensor]:
    (x,) = inputs = arrays((33,))
    r = te.reduce_axis(33, name="r")
    return inputs, te.scatter((70,), [r], (2 * r,), x[r], name="scattered")


def between() -> tuple[list[te.Tensor], te.Tensor]:
    """A stage that is stored, since many read it."""
    (x,) = inputs = arrays((300, 200))
    total = te.compute((300,), lambda i: te.sum(lambda k: x[i, k]), name="total")
    return inputs, te.compute((300, 200), lambda i, j: x[i, j] / total[i], name="between")


@pytest.mark.parametrize(("program", "known"), [
    (cropped, True), (scanned, False), (scattered, False), (between, False),
])  # fmt: skip
def test_halide_is_not_asked_where_only_results_have_loops(
    program: Callable[[], tuple[list[te.Tensor], te.Tensor]], known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, output = program()
    assert stays_within(lowered_of(inputs, output)) == known
    asked: list[str] = []
    told = variant_source.compile_outputs

    def telling(*parts: Any) -> dict[str, str]:
        asked.extend(parts[-1])
        return told(*parts)

    monkeypatch.setattr(variant_source, "compile_outputs", telling)
    te.build(inputs, output, target="x86-64-v3").source("asm")
    assert asked.count("stmt") == (not known)


def test_without_elements_nothing_is_known() -> None:
    assert have_places([(3, 1), (), None])
    assert not have_places([(3, 0), (2,)])
    assert not have_places([(1 << 20, 1 << 20)])


@given(st.data())
@settings(max_examples=8, phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck))
def test_what_is_known_without_halide_is_what_its_text_says(data: st.DataObject) -> None:
    check_within(data)


@pytest.mark.long
@given(st.data())
@settings(max_examples=2000, phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck))
def test_what_is_known_of_many_programs_is_what_the_text_says(data: st.DataObject) -> None:
    check_within(data)


def check_within(data: st.DataObject) -> None:
    """Of known sizes, without checks of indices when it runs; Halide writes places that are floats with six digits."""
    program = data.draw(patterns(names=[data.draw(st.sampled_from(sorted(PATTERNS)))]))
    with assuming({**LOWEST, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10}):
        lowered = lowered_of(list(program.inputs), *program.outputs)
    shapes = [t.shape for t in (*lowered.inputs, *(lowered.outputs[p] for p in lowered.order))]
    sized = lowered.sizes or not all(isinstance(n, int) for shape in shapes for n in shape)
    places = topological(i for stage in lowered.stages for read in stage.op.reads for i in read.indices)
    if sized or lowered.checks is not None or any(node.dtype.is_float for node in places):
        return
    if not stays_within(lowered) or not have_places(shapes):
        return
    middle = len(lowered.inputs)
    listed = [*shapes[:middle], *[None] * (lowered.zero is not None), *shapes[middle:]]
    target = parse_target("x86-64-v3").text
    fix_strides(lowered)
    text = compile_outputs(lowered.pipeline, lowered.arguments, "kernel", target, ["stmt"])["stmt"]
    assert are_proven(text, listed, compact=True)
