"""The measured search: what it tries, what it keeps, what it remembers, and how it ends."""

from __future__ import annotations

import io
import json
import math
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import tedsl as te
from schedules.default import Machine
from schedules.tuning import Tunable, parameters_of, search, settled
from tedsl.backend import tune as module
from tedsl.backend.host import progress as shows

N = 40


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tuned"


def product(n: Any = N) -> tuple[list[te.Tensor], te.Tensor]:
    A, B = te.placeholder((n, N), name="A"), te.placeholder((N, N), name="B")
    k = te.reduce_axis(N, "k")
    return [A, B], te.compute((n, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


def kept(folder: Path) -> dict[str, Any]:
    (path,) = folder.iterdir()
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_search_finds_the_best_of_parameters_that_depend_on_one_another() -> None:
    def parameters_at(choices: Any) -> list[Tunable]:
        more = [Tunable("z", 0, (0, 7))] if choices.get("x") == 4 else []
        return [Tunable("x", 1, (2, 4, 8)), Tunable("y", 1, (2, 4)), *more]

    def cost(choices: Any) -> float:
        x, y, z = (choices.get(n, d) for n, d in (("x", 1), ("y", 1), ("z", 0)))
        return abs(x - 4) + abs(x * y - 16) - z

    best, found = math.inf, {}
    proposals = search(parameters_at)
    choices = next(proposals)
    for _ in range(100):
        better = cost(choices) < best
        best, found = (cost(choices), choices) if better else (best, found)
        choices = proposals.send(better)
    assert found == {"x": 4, "y": 4, "z": 7}


def test_parameters_are_those_that_the_patterns_ask_for() -> None:
    machine = Machine(64, 32, 1 << 15, 1 << 20, 1 << 23, 2)

    def plan(m: Machine) -> None:
        if m.choose("unroll", 4, "C") == 8 and m.cores == 2:
            m.choose("tasks", 8, "C")

    assert [p.name for p in parameters_of(plan, machine, {})] == ["C:unroll", "l2", "vector_bytes", "cores"]
    assert "C:tasks" in [p.name for p in parameters_of(plan, machine, {"C:unroll": 8})]
    assert "C:tasks" not in [p.name for p in parameters_of(plan, machine, {"C:unroll": 8, "cores": 1})]
    found = parameters_of(lambda m: m.choose("tile_vectors", 1, "C") + m.choose("inline", 12, "C"), machine, {})
    assert [min(p.candidates) for p in found if ":" in p.name] == [1, 0]
    assert settled(machine, {"l2": 7, "C:unroll": 2}).l2 == 7


def test_tuning_keeps_results_and_is_remembered(folder: Path) -> None:
    inputs, C = product()
    states: list[te.Tuned] = []
    tuned = te.tune(C, budget=1.5, progress=states.append)
    assert tuned.history[0].verdict == "default"
    assert len(tuned.history) > 1
    assert states
    assert tuned.best.seconds <= tuned.default.seconds
    assert tuned.remembered
    assert repr(tuned).startswith("Tuned schedule of C: ")
    assert "nothing chosen" in tuned.table()
    assert kept(folder)["choices"] == dict(tuned.best.choices)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    a, b = (np.random.default_rng(k).integers(-4, 5, (N, N)).astype("f4") for k in range(2))
    for schedule in ("tuned", tuned):
        kernel = te.build(inputs, C, schedule=schedule)
        np.testing.assert_array_equal(kernel(a, b), a @ b)
        assert kernel.loop_nest() == te.build(inputs, C, schedule="tuned").loop_nest()


def remembered(choices: dict[str, int], outputs: list[te.Tensor]) -> None:
    module.remember(outputs, module.parse_target("host"), choices, {})


def test_what_is_remembered_is_used_for_the_same_program_only(folder: Path, recwarn: Any) -> None:
    inputs, C = product()
    remembered({"C:tile_rows": 2, "cores": 1}, [C])
    nest = te.build(inputs, C, schedule="tuned").loop_nest()
    assert nest != te.build(inputs, C).loop_nest()
    again, D = product()
    assert te.build(again, D, schedule="tuned").loop_nest() == nest
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"nothing is remembered for E on this machine.*te.tune\(\[E\]") as caught:
        te.build(inputs, te.compute((N,), lambda i: inputs[0][i, 0], name="E"), schedule="tuned")
    assert caught[0].filename == __file__


@pytest.mark.parametrize("content", ["", "{", "[]", '{"tedsl_tuned": 1}', '{"tedsl_tuned": 1, "choices": {"a": "b"}}'])
def test_a_damaged_file_is_as_good_as_none(folder: Path, content: str) -> None:
    inputs, C = product()
    remembered({"C:tile_rows": 2}, [C])
    (path,) = folder.iterdir()
    path.write_text(content)
    with pytest.warns(UserWarning, match="nothing is remembered"):
        te.build(inputs, C, schedule="tuned")
    remembered({"C:tile_rows": 2}, [C])
    te.build(inputs, C, schedule="tuned")


def test_an_interrupt_keeps_the_best_so_far(folder: Path) -> None:
    inputs, C = product()

    def stop(state: Any) -> None:
        raise KeyboardInterrupt

    tuned = te.tune([C], budget=60, progress=stop)
    assert tuned.interrupted
    assert len(tuned.history) == 2
    assert "interrupted" in repr(tuned)
    assert kept(folder)["tried"] == 2


def test_schedules_with_other_results_are_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, C = product()
    monkeypatch.setattr(module, "_agrees", lambda found, expected: False)
    tuned = te.tune(C, budget=0.5, progress=False)
    assert {t.verdict for t in tuned.history[1:]} == {"wrong"}
    assert tuned.best is tuned.default


def test_symbolic_extents_need_numbers_to_measure_with() -> None:
    n = te.var("n")
    inputs, C = product(n)
    with pytest.raises(ValueError, match="n has no number to measure with; give sizes="):
        te.tune(C, budget=1)
    tuned = te.tune(C, budget=0.3, progress=False, sizes={n: 24})
    a, b = np.ones((7, N), "f4"), np.ones((N, N), "f4")
    np.testing.assert_array_equal(te.build(inputs, C, schedule=tuned)(a, b), a @ b)


def test_indices_are_drawn_so_that_they_fit() -> None:
    A, index = te.placeholder((2, N), name="A"), te.placeholder((N,), "int32", name="index")
    C = te.compute((N, N), lambda i, j: A[index[i], j], name="C")
    te.tune(C, budget=0.2, progress=False)
    D = te.compute((N, N), lambda i, j: A[index[i] - 5, j], name="D")
    with pytest.raises(IndexError, match="give feeds="):
        te.tune(D, budget=0.2, progress=False)
    te.tune(D, budget=0.2, progress=False, feeds={index: np.full(N, 5, "i4")})


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ({"budget": 0}, ValueError, "positive number of seconds, found 0"),
    ({"budget": math.inf}, ValueError, "found inf"),
    ({"budget": "60"}, TypeError, "a number of seconds, found '60'"),
    ({"budget": 1, "target": "cuda"}, te.ScheduleError, "the target can be the host"),
])  # fmt: skip
def test_bad_arguments(arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        te.tune(product()[1], **arguments)
    E = te.extern(lambda: np.zeros(3, "f4"), (3,), "float32", [], pure=False, name="E")
    with pytest.raises(te.ScheduleError, match="E is a Python function with pure=False"):
        te.tune(te.compute((3,), lambda i: E[i] + 1), budget=1)
    with pytest.raises(TypeError):
        te.tune(3, budget=1)  # type: ignore[arg-type]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("progress", "stream", "seen"), [
    (None, io.StringIO, False), (None, Terminal, True), (True, io.StringIO, True), (False, Terminal, False),
])  # fmt: skip
def test_a_bar_where_somebody_looks(
    monkeypatch: pytest.MonkeyPatch, progress: bool | None, stream: type[io.StringIO], seen: bool
) -> None:
    monkeypatch.setattr("sys.stderr", stream())
    monkeypatch.setitem(shows.sys.modules, "tqdm.auto", None)
    monkeypatch.delitem(shows.sys.modules, "ipykernel", raising=False)
    with shows.shown(progress, "tuning C") as report:
        report(shows.Progress(30.0, 60.0, 12, 0.002, 0.001))
    text = shows.sys.stderr.getvalue()
    assert ("tuning C [############............] 30/60 s, 12 schedules, 1 ms, 2.00 times" in text) == seen


class Bar:
    """What tqdm gives, remembered."""

    made: ClassVar[list[Bar]] = []

    def __init__(self, **options: Any) -> None:
        self.options, self.count, self.closed = options, 0, False
        Bar.made.append(self)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed = True

    def update(self) -> None:
        self.count += 1


@pytest.mark.parametrize(("stream", "seen"), [(io.StringIO, False), (Terminal, True)])
def test_a_count_of_kernels_and_of_cases_where_somebody_looks(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], seen: bool
) -> None:
    monkeypatch.setattr("sys.stderr", stream())
    monkeypatch.setitem(shows.sys.modules, "tqdm.auto", SimpleNamespace(tqdm=Bar))
    monkeypatch.delitem(shows.sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(Bar, "made", [])
    x = y = te.placeholder((8, 8), name="x")
    for _ in range(30):
        y = te.tanh(y @ y)
    kernel = te.build([x], y)
    te.testing.check_op(te.tanh, "n", examples=5)
    assert len(kernel.program.calls) > 1
    assert [(b.options["desc"].split()[0], b.count == b.options["total"], b.closed) for b in Bar.made] == [
        ("compiling", True, True), ("checking", True, True)
    ][: 2 * seen]  # fmt: skip
    assert all(b.options["delay"] >= 1 for b in Bar.made)
