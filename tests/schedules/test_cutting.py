"""Complete plans cut into parts: only at what is stored, each after what it reads, equal where the loops are equal."""

from __future__ import annotations

from typing import Any

import pytest

import tedsl as te
from schedules.cutting.cuts import PlanPart
from tedsl.backend.host.targets import parse_target
from tedsl.backend.scheduling.planner import Planner

HOST = parse_target("host")


def parts(inputs: list[te.Tensor], outputs: list[te.Tensor]) -> list[PlanPart]:
    _, found = Planner().parts(inputs, outputs, HOST)
    return found


def stages(inputs: list[te.Tensor], outputs: list[te.Tensor]) -> list[tuple[str, ...]]:
    return [tuple(part.plan.program.stages) for part in parts(inputs, outputs)]


def sums(x: te.Tensor, name: str, axis: int = 0) -> te.Tensor:
    """Row sums, which need another row for each element."""
    n = x.shape[0]
    return te.compute((n, n), lambda i, j: te.sum(lambda k: x[k, i] * x[k, j + 0 * axis]), name=name)


def test_cheap_stages_go_with_their_readers_and_each_reader_has_its_own() -> None:
    x = te.placeholder((64, 64), name="x")
    cheap = te.compute((64, 64), lambda i, j: x[i, j] + 1.0, name="cheap")
    a, b = sums(cheap, "a"), sums(cheap, "b")
    c = te.compute((64, 64), lambda i, j: a[63 - i, j] * b[j, i], name="c")
    found = stages([x], [c])
    assert [names[-1] for names in found] == ["a", "b", "c"]
    assert all("cheap" in names for names in found[:2])


def test_stages_of_the_schedule_go_with_the_stage_that_they_were_made_for() -> None:
    a, b = te.placeholder((96, 96), name="a"), te.placeholder((96, 96), name="b")
    first = a @ b
    (one, two) = stages([a, b], [first @ b])
    assert [name for name in one if name.startswith("first_")]
    assert one[-1] == "first"
    assert two[-1] == "matmul"


def test_sums_of_blocks_and_a_rest_are_parts_of_their_own() -> None:
    """Written out where they are read, each would take its blocks and its rest along, into one kernel with all."""
    inputs = [te.placeholder((4001 + k, 40), name=f"x{k}") for k in range(4)]
    totals = [te.compute((40,), lambda j, x=x: te.sum(lambda i: te.exp(x[i, j])), name=f"s{x.name}") for x in inputs]
    pairs = list(zip(totals, inputs, strict=True))
    read = te.compute((900, 40), lambda i, j: sum(s[j] * x[i, j] for s, x in pairs), name="y")
    found = stages(inputs, [read])
    assert found[-1] == ("y",)
    assert all(any(name.endswith("_rest") for name in names) for names in found[:-1])


def test_equal_parts_have_equal_digests_whatever_their_tensors_are_called() -> None:
    x, y = te.placeholder((64, 64), name="x"), te.placeholder((64, 64), name="another")
    first, second = (parts([t], [sums(sums(t, f"s{t.name}"), "e")]) for t in (x, y))
    assert [p.digest for p in first] == [p.digest for p in second]
    assert first[0].digest == first[1].digest  # both read an array of one shape
    wide = te.placeholder((65, 64), name="wide")
    columns = te.compute((64, 64), lambda i, j: te.sum(lambda k: wide[k, i] * wide[k, j]), name="columns")
    assert parts([wide], [columns])[0].digest != first[0].digest


@pytest.mark.parametrize("directive", ["vectorize", "unroll"])
def test_a_directive_makes_another_digest(directive: str) -> None:
    x = te.placeholder((64, 64), name="x")
    y = te.compute((64, 64), lambda i, j: te.exp(x[i, j]), name="y")

    def digest(factor: int) -> str:
        s = te.Schedule(y)
        _, inner = s[y].split(s[y].axes[1], factor)
        getattr(s[y], directive)(inner)
        planner = Planner(s.plan, {s.plan.program.current(y): y}, "", True)
        _, (part,) = planner.parts([x], list(s.plan.program.outputs), HOST)
        return part.digest

    assert digest(4) == digest(4)
    assert digest(4) != digest(8)


def test_each_part_comes_after_what_it_reads() -> None:
    x = te.placeholder((64, 64), name="x")
    h: Any = x
    results = []
    for k in range(4):
        h = sums(h, f"h{k}")
        results.append(te.compute((64, 64), lambda i, j, h=h: te.exp(h[j, i]), name=f"e{k}"))
    made = {x}
    for part in parts([x], results[::-1]):
        assert set(part.inputs) <= made
        assert part.is_closed
        made.update(part.outputs)


def test_what_is_laid_out_by_a_directive_is_not_passed_between_parts() -> None:
    x = te.placeholder((64, 64), name="x")
    a = sums(x, "a")
    b = te.compute((64, 64), lambda i, j: te.sum(lambda k: a[k, i] * a[j, k]), name="b")
    s = te.Schedule(b)
    s[a].compute_root()
    for layout, count in ((None, 2), (("j", "i"), 1)):
        if layout is not None:
            s[a].reorder_storage(*layout)
        planner = Planner(s.plan, {}, "", True)
        _, found = planner.parts([x], list(s.plan.program.outputs), HOST)
        assert len(found) == count


def largest(x: te.Tensor, name: str) -> te.Tensor:
    """The largest of the columns; sums of them would be one stage."""
    return te.compute(x.shape[1:], lambda j: te.max(lambda k: x[k, j]), name=name)


def test_what_many_parts_would_compute_from_several_tensors_is_stored_once() -> None:
    x, y = te.placeholder((64, 64), name="x"), te.placeholder((64, 64), name="y")
    masked = te.compute((64, 64), lambda i, j: te.select(x[i, j] > 0.0, y[i, j], 0.0), name="masked")
    copied = te.compute((64, 64), lambda i, j: masked[i, j], name="copied")
    two = parts([x, y], [largest(masked, "a"), largest(masked, "b")])
    assert [list(p.plan.program.stages) for p in two] == [["masked", "a"], ["masked", "b"]]
    first, *others = parts([x, y], [largest(masked, "a"), largest(masked, "b"), largest(copied, "c")])
    assert list(first.plan.program.stages) == ["masked"]
    assert first.users[first.outputs[0]] is masked
    assert [list(p.plan.program.stages) for p in others] == [["a"], ["b"], ["c"]]
    assert len({p.digest for p in others}) == 1
    once = te.compute((64, 64), lambda i, j: te.relu(x[i, j]), name="once")  # made of one tensor
    assert all(len(p.plan.program.stages) == 2 for p in parts([x], [largest(once, n) for n in "abc"]))


def test_a_copy_that_is_a_result_is_made() -> None:
    x = te.placeholder((64, 64), name="x")
    a = sums(x, "a")
    copied = te.compute((64, 64), lambda i, j: a[i, j], name="copied")
    assert [p.outputs[0].name for p in parts([x], [a, copied])] == ["a", "copied"]


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_go_with_their_vectors_on_every_level(level: str, dtype: str) -> None:
    """A sum of four lanes is as cheap as what is inlined: its partial sums would come with it, all in one kernel."""
    x = te.placeholder((200,), dtype, name="x")
    h, sums = x, []
    for _ in range(30):
        h = te.compute((200,), lambda i, h=h: te.tanh(h[i] + h.at(i - 1, mode="clamp")))
        sums.append(te.compute((1,), lambda _, h=h: te.sum(lambda i: h[i] * x[i])))
    total = te.compute((1,), lambda i: sum((s[i] for s in sums), te.const(0, dtype)))
    _, found = Planner().parts([x], [total], parse_target(level))
    assert max(len(part.plan.program.stages) for part in found) < 8
    assert len({part.digest for part in found}) < 8


def test_no_kernel_reads_all_summands_of_a_small_gradient() -> None:
    x, w = te.placeholder((200,), name="x"), te.placeholder((3,), name="w")
    h = x
    for _ in range(30):
        h = te.compute((200,), lambda i, h=h: te.tanh(w[0] * h.at(i - 1, mode="clamp") + w[1] * h[i] + w[2]))
    found = parts([x, w], list(te.differentiate(te.compute((), lambda: te.sum(lambda i: h[i])), [w])))
    assert max(len(part.inputs) for part in found) <= 3 * 9
    assert len({part.digest for part in found}) < 16


@pytest.mark.parametrize("taps", [14, 20])
def test_single_numbers_that_are_made_of_the_same_are_one_part_or_a_few(taps: int) -> None:
    """As a user writes them tap by tap: `te.sin(angle) * k` is a tensor of one element for each."""
    x, angle = te.placeholder((64, 64), name="x"), te.placeholder((), name="angle")
    y = x
    for k in range(taps):
        y = y + te.cos(x * (te.sin(angle) * float(k + 2)))
    _, cut = Planner().parts([x, angle], [y], HOST, 2)
    found = [tuple(part.plan.program.stages) for part in cut]
    numbers = [names for names in found if not any("add" in name or "cos" in name for name in names)]
    assert sum(name.startswith("mul") for names in numbers for name in names) == taps
    assert len(numbers) == -(-taps // 16)


def test_reductions_that_keep_their_axis_are_parts_of_their_own() -> None:
    """Each is a reduction without that axis, and a copy, which its readers would have taken along into one kernel."""
    x = te.placeholder((200, 180), name="x")
    y = x
    for k in range(4):
        y = y - te.logsumexp(y, k % 2, keepdims=True)
    found = stages([x], [te.differentiate(y.sum(), [x])[0]])
    assert len(found) >= 8
    assert max(map(len, found)) <= 16
