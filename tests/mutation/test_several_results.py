"""Several results of one stage, or of alike ones, in the memory of what they are computed from: all is read first."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from typing import Any

import halide as hl
import numpy as np
import pytest

import tedsl as te
from tedsl.backend.lowering import pipeline, scans
from tedsl.testing.drawn_schedules import drawn_schedule
from tests.mutation.overlaps import Writer, random_schedule, reached

n = te.var("n")


def numbers(tensor: te.Tensor, seed: int, size: int = 37) -> Any:
    """An array for a tensor, symbolic extents as `size`."""
    shape = tuple(e if isinstance(e, int) else size for e in tensor.shape)
    drawn = np.random.default_rng(seed).integers(-5, 6, shape)
    return drawn > 0 if tensor.dtype == "bool" else drawn.astype(tensor.dtype.numpy)


def in_place(inputs: list[te.Tensor], outputs: list[te.Tensor], schedule: Any = None, **options: Any) -> te.Kernel:
    """A kernel whose results are right, and on the memory of inputs, without copies."""
    arrays = [numbers(t, k) for k, t in enumerate(inputs)]
    want = te.interpret(outputs, {t: a.copy() for t, a in zip(inputs, arrays, strict=True)})
    kern = te.build(inputs, outputs, schedule, **options)
    found = kern(*arrays)
    for one, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(one, other)
    assert kern.stats.copies == []
    for output, memory in options.get("alias", {}).items():
        place = next(k for k, t in enumerate(inputs) if t is memory)
        assert found[next(k for k, t in enumerate(outputs) if t is output)] is arrays[place]
    return kern


SHAPES = [(50,), (7, 33), (2, 3, 64), (), (1,), (0,), (n,), (n, 5)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_sum_and_a_difference(shape: tuple[Any, ...]) -> None:
    U, V = (te.placeholder(shape, name=x) for x in "UV")
    a, b = te.compute(shape, lambda *i: (U[i] + V[i], U[i] - V[i]), name="T")
    for memory in ({a: U, b: V}, {a: V, b: U}, {a: U}, {b: U}):
        in_place([U, V], [a, b], alias=memory)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "uint64", "float16", "bfloat16", "float32", "float64"])
def test_three_results_in_any_order(dtype: str) -> None:
    U, V, W = memory = [te.placeholder((41,), dtype, name=x) for x in "UVW"]
    outputs = list(te.compute((41,), lambda i: (V[i], W[i], te.select(U[i] == V[i], W[i], U[i])), name="T"))
    for order in list(itertools.permutations(memory))[:: 1 if dtype == "float32" else 3]:
        in_place(memory, outputs, alias=dict(zip(outputs, order, strict=True)))


def test_results_of_several_dtypes() -> None:
    inputs = [te.placeholder((50,), d, name=f"x{k}") for k, d in enumerate(("float64", "int8", "bool", "float32"))]
    x, k, m, y = inputs

    def body(i: Any) -> Any:
        first = te.select(m[i], x[i], te.cast(k[i], "float64"))
        return first, te.cast(y[i], "int8"), y[i] > x[i], te.cast(x[i], "float32")

    outputs = list(te.compute((50,), body, name="T"))
    in_place(inputs, outputs, alias=dict(zip(outputs, inputs, strict=True)))


def test_separate_stages_that_read_the_same() -> None:
    for shape in ((50,), (6, 7), (n,)):
        U, V = (te.placeholder(shape, name=x) for x in "UV")
        a, b = U + V, U - V
        in_place([U, V], [a, b], alias={a: U, b: V})
        in_place([U, V], [a, b], alias={a: V, b: U})


def test_what_they_are_computed_from_may_be_stages() -> None:
    """Inlined ones, rows that are complete before, and results that others read."""
    U, V = (te.placeholder((6, 50), name=x) for x in "UV")
    e = U * 2 + 1
    rows = V.max(1, keepdims=True)
    a, b = te.compute((6, 50), lambda i, j: (e[i, j] - rows[i, 0], e[i, j] + V[i, j]), name="T")
    in_place([U, V], [a, b], alias={a: V, b: U})
    in_place([U, V], [a, b, a.sum()], alias={a: U, b: V})


@pytest.mark.parametrize("given", [["U", "V"], ["V"], ["U", "V", "W"]], ids=",".join)
def test_donated(given: list[str]) -> None:
    memory = {x: te.placeholder((50,), name=x) for x in "UVW"}
    U, V, W = memory.values()
    outputs = list(te.compute((50,), lambda i: (V[i] + W[i], U[i] - V[i], W[i] * U[i]), name="T"))
    kern = in_place(list(memory.values()), outputs, donate=[memory[x] for x in given])
    arrays = [numbers(t, 7) for t in memory.values()]
    addresses = {x: a.ctypes.data for x, a in zip(memory, arrays, strict=True)}
    assert {addresses[x] for x in given} <= {r.ctypes.data for r in kern(*arrays)}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("states", [1, 2, 3])
def test_scans(states: int, reverse: bool) -> None:
    """Every step reads its own place alone, the first one too where it names it by a number."""
    inputs = [te.placeholder((12, 9), name=x) for x in "UVW"[:states]]
    last = 11 if reverse else 0
    before = 1 if reverse else -1

    def step(*handles: Any) -> Any:
        *old, t, i = handles
        return tuple(
            te.select(t == last, x[last, i], 2 * old[(k + 1) % states][t + before, i] + inputs[k - 1][t, i])
            for k, x in enumerate(inputs)
        )

    functions = {1: lambda a, t, i: step(a, t, i)[0], 2: lambda a, b, t, i: step(a, b, t, i),
                 3: lambda a, b, c, t, i: step(a, b, c, t, i)}  # fmt: skip
    made = te.scan((12, 9), functions[states], axis=0, reverse=reverse, name="S")
    outputs = [made] if states == 1 else list(made)
    for order in itertools.permutations(inputs):
        in_place(inputs, outputs, alias=dict(zip(outputs, order, strict=True)))


def test_under_a_schedule() -> None:
    U, V = (te.placeholder((24, 40), name=x) for x in "UV")
    for change in (
        lambda s: s.parallel("i"),
        lambda s: s.vectorize("j", 8),
        lambda s: s.unroll(s.split("j", 4)[1]),
        lambda s: (s.vectorize("j", 8), s.parallel("i")),
        lambda s: s.reorder("j", "i"),
        lambda s: s.parallel(s.fuse("i", "j")),
    ):
        a, b = te.compute((24, 40), lambda i, j: (V[i, j], U[i, j]), name="T")
        s = te.Schedule([a, b])
        change(s[a])
        in_place([U, V], [a, b], s, alias={a: U, b: V})


@pytest.mark.parametrize(
    "body",
    [
        lambda U, V, i: (V[49 - i], U[i]),
        lambda U, V, i: (V[i], U[te.maximum(i - 1, 0)]),
        lambda U, V, i: (V[i], te.select(i < 49, U[i + 1], 0)),
        lambda U, V, i: (V[i], U[i // 2]),
    ],
)
def test_what_is_not_read_first_is_refused_or_copied(body: Any) -> None:
    U, V = (te.placeholder((50,), name=x) for x in "UV")
    a, b = te.compute((50,), lambda i: body(U, V, i), name="T")
    for options in ({"alias": {a: U, b: V}}, {"donate": [U, V]}):
        with pytest.raises(te.AliasError, match="may already be overwritten"):
            te.build([U, V], [a, b], **options)
    arrays = [numbers(U, 0), numbers(V, 1)]
    want = te.interpret([a, b], dict(zip((U, V), (x.copy() for x in arrays), strict=True)))
    kern = te.build([U, V], [a, b], alias={a: U, b: V}, on_hazard="copy")
    for one, other in zip(kern(*arrays), want, strict=True):
        np.testing.assert_array_equal(one, other)
    assert 1 <= len(kern.stats.copies) <= 2


def test_a_reduction_updates_what_it_reads() -> None:
    U, V = te.placeholder((6,), "int32", name="U"), te.placeholder((6,), "int32", name="V")
    A = te.placeholder((6, 9), "int32", name="A")
    r = te.reducer(lambda x, y: (x[0] + y[0], te.maximum(x[1], y[1])), (0, -99))
    a, b = te.compute((6,), lambda i: r(lambda k: (A[i, k] * U[i], A[i, k] - V[i])), name="T")
    with pytest.raises(te.AliasError, match=r"while the reduction 'T.*' updates its elements"):
        te.build([A, U, V], [a, b], alias={a: U, b: V})
    arrays = [numbers(t, k) for k, t in enumerate((A, U, V))]
    want = te.interpret([a, b], {t: x.copy() for t, x in zip((A, U, V), arrays, strict=True)})
    for one, other in zip(
        te.build([A, U, V], [a, b], alias={a: U, b: V}, on_hazard="copy")(*arrays), want, strict=True
    ):
        np.testing.assert_array_equal(one, other)
    c, d = te.compute((6,), lambda i: r(lambda k: (A[i, k], A[i, k])), name="C")
    in_place([A, U, V], [c, d], alias={c: U, d: V})


def test_no_load_follows_a_store_in_the_code() -> None:
    U, V = (te.placeholder((1000,), name=x) for x in "UV")
    a, b = te.compute((1000,), lambda i: (V[i], U[i]), name="T")
    text = te.build([U, V], [a, b], alias={a: U, b: V}).source("llvm")
    data = re.compile(r"= (load) <|(store) <|(masked\.load)|(masked\.store)")
    seen = 0
    for block in re.split(r"^\S+:", text, flags=re.MULTILINE):
        kinds = [next(filter(None, found.groups()))[-5:].strip(".") for found in data.finditer(block)]
        kinds = ["load" if k.endswith("load") else "store" for k in kinds]
        assert kinds == sorted(kinds)
        seen += "store" in kinds and "load" in kinds
    assert seen


# Random programs


def drawn(rng: random.Random) -> tuple[list[te.Tensor], list[te.Tensor], Any, dict[te.Tensor, te.Tensor], str]:
    """Inputs, results of one stage or of alike ones, a schedule, and the memory that the results take."""
    w = Writer(rng)
    inputs = [w.A, w.B, te.placeholder((w.n, w.m), "int32", name="D")]
    w.stages = [w.pointwise(f"S{k}") if rng.random() < 0.5 else w.reduced(f"R{k}") for k in range(rng.randint(0, 2))]
    count, kind, own = rng.randint(2, 3), rng.choice(["stage", "stage", "scan", "apart"]), rng.random() < 0.7
    chosen = [[rng.choice([*inputs, *w.stages]) for _ in range(rng.randint(1, 3))] for _ in range(count)]

    def body(k: int, i: Any, j: Any) -> Any:
        parts = [x[i, j] if own and x.ndim == 2 else w.read(x, i, j) for x in chosen[k]]
        return sum((f * p for f, p in enumerate(parts[1:], 2)), parts[0])

    axis, reverse = rng.randrange(2), rng.random() < 0.5

    def step(states: tuple[Any, ...], i: Any, j: Any) -> Any:
        first = (i, j)[axis] == ((w.n, w.m)[axis] - 1 if reverse else 0)
        back = 1 if reverse else -1
        old = [s[i + back, j] if axis == 0 else s[i, j + back] for s in states]
        return tuple(te.select(first, body(k, i, j), old[k - 1] + body(k, i, j)) for k in range(count))

    if kind == "apart":
        outputs = [te.compute((w.n, w.m), lambda i, j, k=k: body(k, i, j), name=f"O{k}") for k in range(count)]
    elif kind == "stage":
        outputs = list(te.compute((w.n, w.m), lambda i, j: tuple(body(k, i, j) for k in range(count)), name="T"))
    else:
        function = {2: lambda a, b, i, j: step((a, b), i, j), 3: lambda a, b, c, i, j: step((a, b, c), i, j)}[count]
        outputs = list(te.scan((w.n, w.m), function, axis=axis, reverse=reverse, name="T"))
    needed = [t for t in w.stages if any(t in set(op.inputs) for op in reached(outputs))]
    memory = dict(zip(outputs[: rng.randint(1, count)], rng.sample(inputs, 3), strict=False))
    schedule, told = None, ["default"]
    if rng.random() < 0.4:
        schedule, told = drawn_schedule(outputs, rng.randrange(10**6)), ["drawn"]
    elif kind == "apart" and rng.random() < 0.5:
        schedule, told = random_schedule(rng, outputs, needed)
    lies = ", ".join(f"{o.name} on {i.name}" for o, i in memory.items())
    note = "\n".join([*dict.fromkeys(str(t) for t in (*needed, *outputs)), f"{w.n} x {w.m}", *told, lies])
    return inputs, outputs, schedule, memory, note


def check_several(seed: int, count: int) -> Counter[str]:
    rng, became = random.Random(seed), Counter[str]()
    while became["refused"] + became["in place"] < count:
        inputs, outputs, schedule, memory, note = drawn(rng)
        arrays = [np.random.default_rng(rng.randrange(999)).integers(-9, 10, t.shape, np.int32) for t in inputs]
        want = te.interpret(outputs, {t: a.copy() for t, a in zip(inputs, arrays, strict=True)})
        options: dict[str, Any] = {"donate": list(memory.values())} if rng.random() < 0.2 else {"alias": memory}
        try:
            kern = te.build(inputs, outputs, schedule, **options)
        except te.AliasError:
            became["refused"] += 1
            continue
        except te.ScheduleError:
            continue
        became["in place"] += 1
        became["together"] += kern.core.program.planner.in_place
        for one, other in zip(kern(*arrays), want, strict=True):
            assert np.array_equal(one, other), f"{list(options)}:\n{note}\nexpected {other}\nfound {one}"
    return became


def test_results_are_those_without_shared_memory() -> None:
    became = check_several(1, 24)
    assert became["together"] >= 5
    assert became["refused"] >= 2


def test_the_suite_can_fail(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Where results are stored one after another after all, some are wrong."""
    monkeypatch.setenv("TEDSL_CACHE", "off")

    def in_turn(ctx: Any, scope: Any, values: Any, *rest: Any) -> Any:
        return hl.Tuple(list(values))

    monkeypatch.setattr(pipeline, "together", in_turn)
    monkeypatch.setattr(scans, "together", in_turn)
    with pytest.raises(AssertionError, match="expected"):
        check_several(1, 120)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_results_are_those_without_shared_memory(seed: int) -> None:
    check_several(seed, 50)
