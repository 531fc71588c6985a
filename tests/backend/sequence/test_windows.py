"""Steps that read different boxes of one array, equal otherwise, are one kernel, which is given its box."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.cutting.windows import windowed
from schedules.default import assuming
from schedules.records import unsealed, with_seal
from tedsl.backend.compiling import memory_cache
from tedsl.backend.compiling.executable import BoxView
from tedsl.backend.host import files
from tedsl.backend.host.targets import parse_target
from tedsl.backend.scheduling.planner import Planner
from tedsl.backend.sequence import cutting
from tests.arrays import floats

N, K = 16, 24
Made = tuple[list[te.Tensor], list[te.Tensor]]


def recurrence(steps: int, *, read: Callable[[te.Tensor, int], te.Tensor] | None = None) -> Made:
    """A Python loop over x[:, t], whose steps are stacked, and its gradients."""
    x, w = te.placeholder((N, steps, K), name="x"), te.placeholder((K, K), name="w")
    h: Any = te.compute((N, K), lambda i, k: 0 * w[k, 0] + 0 * i)
    out = []
    for t in range(steps):
        h = te.tanh((x[:, t] if read is None else read(x, t)) @ w + h @ w)
        out.append(h)
    y = te.stack(out, axis=1)
    loss = te.sum(y**2)
    return [x, w], [loss, *te.differentiate(loss, [x, w])]


def arrays_for(inputs: list[te.Tensor]) -> list[Any]:
    return [floats(*(int(e.value) for e in t.extents)) / 4 for t in inputs]


def windows_of(kern: Any) -> list[BoxView]:
    return [v for v in kern.core.plan.views.values() if isinstance(v, BoxView)]


def close(found: Any, want: Any) -> None:
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * max(1.0, np.abs(b).max()))


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_more_steps_are_no_more_kernels(level: str) -> None:
    counts = []
    for steps in (8, 12, 24):
        inputs, outputs = recurrence(steps)
        _, parts = Planner().parts(inputs, outputs, parse_target(level))
        made = windowed(parts)
        counts.append(len({(made[p].part if p in made else p).digest for p in parts}))
    assert counts[0] == counts[1] == counts[2] <= 15


@pytest.mark.usefixtures("cut_everywhere")
def test_the_numbers_are_those_of_kernels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = recurrence(6)
    arrays = arrays_for(inputs)
    kern = te.build(inputs, outputs)
    assert windows_of(kern)
    found = kern(*arrays)
    monkeypatch.setattr(cutting, "windowed", lambda parts, whole: {})
    memory_cache.clear_cache()
    alone = te.build(inputs, [*outputs, outputs[0] + 1])  # another program, as equal ones share their steps
    assert not windows_of(alone)
    assert len(alone.core.plan.kernels) > len(kern.core.plan.kernels)
    for a, b in zip(found, alone(*arrays), strict=False):
        np.testing.assert_array_equal(a, b)
    close(found, te.interpret(outputs, dict(zip(inputs, arrays, strict=True))))


@pytest.mark.usefixtures("cut_everywhere")
def test_arrays_that_are_not_contiguous_are_read_where_they_lie() -> None:
    inputs, outputs = recurrence(6)
    x, w = arrays_for(inputs)
    kern = te.build(inputs, outputs)
    want = kern(x, w)
    spread = np.repeat(x, 2, axis=2)[:, :, ::2]
    turned = np.asfortranarray(x)
    backwards = np.ascontiguousarray(x[:, ::-1])[:, ::-1]
    for other in (spread, turned, backwards):
        for _ in range(3):  # the third call is one of the list
            for a, b in zip(kern(other, w), want, strict=True):
                np.testing.assert_array_equal(a, b)
    assert not kern.stats.copies


READS: dict[str, Callable[[te.Tensor, int], te.Tensor]] = {
    "middle": lambda x, t: x[:, t],
    "backwards": lambda x, t: x[:, x.shape[1] - 1 - t],
    "two steps": lambda x, t: x[:, t] - x[:, max(0, t - 1)],
    "part of a row": lambda x, t: te.pad(x[:, t, t : t + 8], ((0, 0), (0, K - 8))),
    "clamped": lambda x, t: te.compute((N, K), lambda i, k: x.at(i, t, k + t, mode="clamp")),
}


@pytest.mark.usefixtures("cut_everywhere")
@pytest.mark.parametrize("read", READS)
def test_what_is_read_of_a_step(read: str) -> None:
    inputs, outputs = recurrence(6, read=READS[read])
    arrays = arrays_for(inputs)
    close(te.build(inputs, outputs)(*arrays), te.interpret(outputs, dict(zip(inputs, arrays, strict=True))))


@st.composite
def unrolled(draw: st.DrawFn) -> Made:
    """Loops over one axis of x and over weights of their own, and gradients by all that is read."""
    steps, axis = draw(st.integers(3, 7)), draw(st.integers(0, 2))
    shape = [draw(st.sampled_from([4, 9, 16])), draw(st.sampled_from([8, 17]))]
    x = te.placeholder((*shape[:axis], steps * 2, *shape[axis:]), name="x")
    own = draw(st.booleans())
    w = te.placeholder((steps, shape[1], shape[1]) if own else (shape[1], shape[1]), name="w")
    b = te.placeholder((steps, shape[1]), name="b")
    stride, first = draw(st.sampled_from([1, 2])), draw(st.integers(0, 1))
    back, kept = draw(st.booleans()), draw(st.booleans())
    h, out = None, []
    for t in range(steps)[:: -1 if back else 1]:
        place = (slice(None),) * axis + (first + stride * t,)
        read = x[place]
        term = read if h is None else read + h
        h = te.tanh(term @ (w[t] if own else w) * 0.25 + b[t])
        out.append(h)
    y = te.stack(out, axis=draw(st.integers(0, 2))) if kept else h
    loss = te.sum(y * y)
    return [x, w, b], [y, *te.differentiate(loss, [x, w, b])]


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=unrolled(), seed=st.integers(0, 99))
def test_drawn_loops(program: Made, seed: int) -> None:
    agree(program, seed, "x86-64-v3" if seed % 2 else "host")


@pytest.mark.long
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=unrolled(), seed=st.integers(0, 99))
def test_many_drawn_loops(program: Made, seed: int) -> None:
    agree(program, seed, "x86-64-v3" if seed % 2 else "host")


def agree(program: Made, seed: int, target: str) -> None:
    inputs, outputs = program
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal([int(e.value) for e in t.extents]).astype("f4") for t in inputs]
    with assuming({"kernels": 2}):
        kern = te.build(inputs, outputs, target=target)
    close(kern(*arrays), te.interpret(outputs, dict(zip(inputs, arrays, strict=True))))


@pytest.mark.usefixtures("cut_everywhere")
def test_a_result_may_not_lie_where_another_box_is_still_read() -> None:
    """The last result written over the memory that a step reads a part of."""
    x, w = te.placeholder((N, 5, K), name="x"), te.placeholder((K, K), name="w")
    h: Any = x[:, 0]
    for t in range(1, 5):
        h = te.tanh(x[:, t] @ w + h)
    y = te.compute((N, 5, K), lambda i, t, k: h[i, k] + x[i, t, k], name="y")
    want = te.interpret(y, feeds := {x: floats(N, 5, K) / 4, w: floats(K, K) / 4})
    kern = te.build([x, w], y)
    assert windows_of(kern)
    memory = feeds[x].copy()
    np.testing.assert_allclose(kern(memory, feeds[w], out=memory), want, rtol=1e-4, atol=1e-5)
    block = np.zeros((N, 6, K), "f4")
    block[:, :5] = feeds[x]
    np.testing.assert_allclose(kern(block[:, :5], feeds[w], out=block[:, 1:]), want, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("cut_everywhere")
def test_donated_memory_and_little_of_it() -> None:
    inputs, outputs = recurrence(6)
    arrays = arrays_for(inputs)
    want = te.interpret(outputs, dict(zip(inputs, arrays, strict=True)))
    close(te.build(inputs, outputs, donate=[inputs[0]])(arrays[0].copy(), arrays[1]), want)
    peak = te.build(inputs, outputs).program.memory.peak
    close(te.build(inputs, outputs, memory=f"{peak // 1024 + 1} KB")(*arrays), want)
    close(te.build(inputs, outputs, checkpoint=[])(*arrays), want)


@pytest.mark.usefixtures("cut_everywhere")
def test_an_index_that_is_wrong_is_told_of_the_whole_array() -> None:
    table, words = te.placeholder((10, K), name="table"), te.placeholder((N, 5), "int32", name="words")
    w = te.placeholder((K, K), name="w")
    h: Any = te.compute((N, K), lambda i, k: 0.0 * w[k, 0] + 0 * i)
    for t in range(5):
        h = te.tanh(te.compute((N, K), lambda i, k, t=t: table[words[i, t], k]) @ w + h)
    kern = te.build([table, words, w], h)
    assert windows_of(kern)
    good = np.arange(N * 5, dtype="i4").reshape(N, 5) % 10
    arrays = floats(10, K) / 4, good, floats(K, K) / 4
    want = te.interpret(h, dict(zip([table, words, w], arrays, strict=True)))
    np.testing.assert_allclose(kern(*arrays), want, rtol=1e-4, atol=1e-5)
    wrong = good.copy()
    wrong[7, 3] = 12
    for _ in range(3):
        with pytest.raises(IndexError, match=r"words\[7, 3\]|12"):
            kern(arrays[0], wrong, arrays[2])


@pytest.mark.usefixtures("cut_everywhere")
def test_exported(tmp_path: Path) -> None:
    inputs, outputs = recurrence(5)
    arrays = arrays_for(inputs)
    kern = te.build(inputs, outputs, name="unrolled")
    assert windows_of(kern)
    made = kern.export(tmp_path)
    module = next(path for path in made if path.suffix == ".py")
    scope: dict[str, Any] = {"__file__": str(module), "__name__": "exported"}
    exec(compile(module.read_text(), str(module), "exec"), scope)
    close(scope["unrolled"](*arrays), kern(*arrays))


@pytest.mark.usefixtures("cut_everywhere")
def test_found_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEDSL_CACHE", "on")
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "cache"))
    arrays, results, windows = arrays_for(recurrence(5)[0]), [], []
    for is_found in (False, True):
        for known in (memory_cache._known, memory_cache._parts, memory_cache._recent):
            known.clear()  # as in a new process
        kern = te.build(*recurrence(5), name="unrolled")
        assert kern.core.is_found is is_found
        results += [kern(*arrays), kern(np.asfortranarray(arrays[0]), arrays[1])]
        windows.append(dict(kern.core.plan.views))
    assert windows[0] == windows[1] != {}
    for found in results[1:]:
        for a, b in zip(found, results[0], strict=True):
            np.testing.assert_array_equal(a, b)
    (path,) = (tmp_path / "cache").rglob("*.program")
    data = unsealed(files.read(path) or b"")
    for wrong in (
        [[99, [0, [0, 4, 0], [16, 1, 24]]]],
        [[8, [0, [0, 5, 0], [16, 1, 24]]]],
        [[8, [0, [0], [16]]]],
        [[1]],
    ):
        files.write(path, json.dumps(with_seal({**data, "windows": [*data["windows"], *wrong]})).encode())
        for known in (memory_cache._known, memory_cache._parts, memory_cache._recent):
            known.clear()
        te.build(*recurrence(5), name="unrolled")  # nothing breaks


@pytest.mark.usefixtures("cut_everywhere")
def test_loaded_by_halide(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, outputs = recurrence(5)
    arrays = arrays_for(inputs)
    monkeypatch.setenv("TEDSL_LOADER", "jit")
    kern = te.build(inputs, outputs, name="loaded_by_halide")
    assert windows_of(kern)
    for _ in range(3):
        close(kern(*arrays), te.interpret(outputs, dict(zip(inputs, arrays, strict=True))))
