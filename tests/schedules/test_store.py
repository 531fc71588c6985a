"""Saving and loading: the same schedule comes back, and only for the program that it was saved for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from schedules.directives import DIRECTIVES, from_json, to_json
from schedules.written.store import dumps, loads
from tedsl.lang.tensor import Placeholder
from tedsl.lang.traverse import stages_of
from tests.changes import DEEP, changes


def program(factor: float = 2.0, name: str = "T", axis: str = "k") -> list[te.Tensor]:
    A = te.placeholder((8, 40), name="A")
    k = te.reduce_axis(40, axis)
    T = te.compute((8,), lambda i: te.sum(A[i, k] * factor, axis=k), name=name)
    return [te.compute((8,), lambda i: T[i] + 1, name="C")]


def scheduled(outputs: list[te.Tensor]) -> te.Schedule:
    s = te.Schedule(outputs)
    s["T"].split("k", 8)
    s["T"].rfactor("ki").vectorize("ki").compute_at("T", "i")
    s["T"].init.unroll("i", 2)
    s["C"].cache_read("T", "near").compute_at("C", "i")
    s["T"].cache_read("T_rf").reorder_storage("d1", "d0").compute_root()
    return s


def test_a_schedule_comes_back(tmp_path: Path) -> None:
    s = scheduled(program())
    s.save(tmp_path / "s.json")
    again = te.Schedule.load(tmp_path / "s.json", program())
    assert again.directives == s.directives
    before, after = (str(each).partition("\ncannot be built yet: ") for each in (s, again))
    assert after[0] == before[0]
    assert before[2].endswith("T_rf_cached reads T_rf outside of loop 'i' of T; compute T_rf_cached inside that loop "
                              "too, or T_rf farther out")  # fmt: skip
    assert str(tmp_path) in after[2]


@pytest.mark.parametrize(("other", "reason"), [
    (program(3.0), r"\* 3.0"), (program(name="U"), "T.* is now U"),
    (program(axis="m"), r"T\(i, k\) is now T\(i, m\)"),
])  # fmt: skip
def test_another_program_is_refused(other: list[te.Tensor], reason: str, tmp_path: Path) -> None:
    scheduled(program()).save(tmp_path / "s.json")
    with pytest.raises(te.ScheduleError, match=reason):
        te.Schedule.load(tmp_path / "s.json", other)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"tedsl_schedule": 99}', "\xff\xfe"])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text, "latin-1")
    with pytest.raises(te.ScheduleError, match=r"s\.json"):
        te.Schedule.load(tmp_path / "s.json", program())


def test_a_directive_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    scheduled(program()).save(path)
    whole = path.read_text()
    for good, bad in ('"verb": "rfactor"', '"verb": "refactor"'), ('"factor": 8', '"factor": "8"'):
        path.write_text(whole.replace(good, bad))
        with pytest.raises(te.ScheduleError, match="cannot be read"):
            te.Schedule.load(path, program())


def test_every_directive_goes_through_json() -> None:
    values = {
        "str": "x",
        "int": 3,
        "bool": True,
        "tuple[str, ...]": ("a", "b"),
        "tuple[int, ...]": (1, 2),
        "Definition": "init",
        "tuple[tuple[str, Any], ...]": (("a", 1), ("b", (("c", None),))),
    }
    for cls in DIRECTIVES.values():
        fields = cls.__dataclass_fields__
        made = cls(**{name: values[str(f.type)] for name, f in fields.items() if name != "verb"})
        assert from_json(to_json(made)) == made


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"tedsl_schedule": 1, "key": ""}')
    with pytest.raises(te.ScheduleError, match="the file is damaged: it has no stages, program, directives"):
        te.Schedule.load(tmp_path / "s.json", program())


def product() -> list[te.Tensor]:
    A, B = (te.placeholder((32, 32), name=name) for name in "AB")
    D = te.compute((32, 32), lambda i, j: te.sum(lambda k: A[i, k] * B[k, j]), name="D")
    return [te.compute((32, 32), lambda i, j: D[i, j] + 1, name="E")]


def tiled(outputs: list[te.Tensor]) -> te.Schedule:
    s = te.Schedule(outputs)
    s["E"].tile("i", "j", 4, 8)
    s["E"].parallel(s["E"].fuse("io", "jo"))
    s["D"].compute_at("E", "iojo").store_in("stack").bound_extent("j", 8)
    s["D"].reorder("k", "i", "j").unroll("i", 2).prefetch("A", "k", 2)
    return s


def sums() -> list[te.Tensor]:
    """As short a program as has directives of every kind in its default schedule."""
    A, B = (te.placeholder((32, 32), name=name) for name in "AB")
    return [te.compute((32, 32), lambda i, j: A[i, j] + B[j, i], name="E")]


def by_default(outputs: list[te.Tensor]) -> te.Schedule:
    return te.Schedule(outputs).auto()


SAVED: dict[str, tuple[Callable[[], list[te.Tensor]], Callable[[list[te.Tensor]], te.Schedule]]] = {
    "by hand": (program, scheduled), "tiled": (product, tiled), "default": (sums, by_default),
    "autoscheduler": (product, lambda outputs: te.Schedule(outputs).auto("mullapudi2016")),
}  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize("name", SAVED)
def test_a_change_of_a_file_is_refused_or_another_schedule(name: str, tmp_path: Path) -> None:
    """Every single change; what is accepted prints, and is saved and loaded again."""
    outputs, path = SAVED[name][0](), tmp_path / "s.json"
    accepted, refused = 0, 0
    tried = changes(json.loads(dumps(outputs, SAVED[name][1](outputs).directives)))
    for changed in tried:
        path.write_text(json.dumps(changed))
        try:
            schedule = te.Schedule.load(path, outputs)
        except te.ScheduleError as error:
            refused += "s.json" in str(error).encode().decode()
        else:
            accepted += 1
            assert str(schedule)
            schedule.save(path)
            assert te.Schedule.load(path, outputs).directives == schedule.directives
    assert refused + accepted == len(tried)
    assert refused > 300
    assert accepted > 0


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ["tiled", "default"])
def test_what_is_accepted_of_a_changed_file_gives_the_right_results(name: str, tmp_path: Path) -> None:
    outputs, path = SAVED[name][0](), tmp_path / "s.json"
    inputs = [op.output() for op in stages_of(outputs) if isinstance(op, Placeholder)]
    arrays = [np.random.default_rng(k).integers(-3, 4, (32, 32)).astype("f4") for k in range(2)]
    (expected,) = te.interpret(outputs, dict(zip(inputs, arrays, strict=True)))
    built = 0
    # Every third, since each is compiled; all are read by the tests above.
    for changed in changes(json.loads(dumps(outputs, SAVED[name][1](outputs).directives))["directives"])[::3]:
        data = {**json.loads(dumps(outputs, ())), "directives": changed}
        path.write_text(json.dumps(data))
        try:
            found = te.build(inputs, outputs, schedule=te.Schedule.load(path, outputs))(*arrays)[0]
        except te.ScheduleError:  # when it is loaded, built, or called with a promise that does not hold
            continue
        built += 1
        np.testing.assert_array_equal(found, expected)
    assert built > 6


@pytest.mark.parametrize(("change", "message"), [
    (lambda d: d["directives"][0].update(factor="8"),
     r"directives\[0\] \(split\)\.factor: expected a whole number, found '8'; save the schedule again"),
    (lambda d: d["directives"][0].update(factor=True), "expected a whole number, found True"),
    (lambda d: d["directives"][0].update(factor=0), r"directives\[0\] of .*the factor must be at least 1, found 0"),
    (lambda d: d["directives"][0].update(factor=2**70), "the factor must be at most 1073741824, found 11805916207"),
    (lambda d: d["directives"][0].pop("factor"), r"\(split\): expected stage, .*; there is no factor; save"),
    (lambda d: d["directives"][0].update(fcator=1), r"found \['fcator'\]"),
    (lambda d: d["directives"][0].update(verb="slpit"), "there is no directive 'slpit'; did you mean 'split'"),
    (lambda d: d["directives"][0].update(loop="\ud800"), "expected a text of whole characters"),
    (lambda d: d["directives"][0].update(definition="both"), "expected 'body' or 'init', found 'both'"),
    (lambda d: d["directives"].insert(0, 3), r"directives\[0\]: expected an object, found 3"),
    (lambda d: d.update(directives={}), "directives: expected a list, found {}"),
    (lambda d: d.update(key=None), "key: expected a text, found None"),
    (lambda d: d.update(key="x"), "saved for another program:\n.*the key in the file is damaged"),
    (lambda d: d["stages"].pop("T"), r"nothing\(\) is now"),
    (lambda d: d["stages"].update(T="i"), "stages.T: expected a list, found 'i'"),
    (lambda d: d.update(tedsl_schedule=True), "expected a schedule of version 1, found True"),
])  # fmt: skip
def test_damage_is_named(change: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    outputs = program()
    data = json.loads(dumps(outputs, scheduled(outputs).directives))
    change(data)
    (tmp_path / "s.json").write_text(json.dumps(data))
    with pytest.raises(te.ScheduleError, match=message):
        te.Schedule.load(tmp_path / "s.json", outputs)


def test_a_machine_that_there_cannot_be_is_refused(tmp_path: Path) -> None:
    outputs, path = product(), tmp_path / "s.json"
    whole = dumps(outputs, by_default(outputs).directives)
    for name, value in (
        ("cores", -1), ("l2", 2**70), ("vector_bytes", 0), ("vector_bytes", 24), ("gpu", "rocm"), ("l1", None),
        ("choices", [["cores", -1]]), ("choices", [["vector_bytes", 3]]), ("choices", [["C:unroll"]]),
    ):  # fmt: skip
        data = json.loads(whole)
        machine = data["directives"][0]["machine"]
        machine[[n for n, _ in machine].index(name)][1] = value
        path.write_text(json.dumps(data))
        with pytest.raises(te.ScheduleError, match=f"machine.*{'choices' if name == 'choices' else name}|machine"):
            te.Schedule.load(path, outputs)


@pytest.mark.parametrize(
    "content", [DEEP, b'{"a":' * 50_000, b"NaN", b"\xff\xfe\x00", b"1" * 10_000, b"\xef\xbb\xbf{}"]
)
def test_text_that_is_no_schedule_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_bytes(content)
    with pytest.raises(te.ScheduleError, match=r"s\.json"):
        te.Schedule.load(tmp_path / "s.json", program())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(list(DIRECTIVES)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def damaged(draw: Any, value: Any) -> Any:
    """A value with up to three places changed to anything."""
    for _ in range(draw(st.integers(1, 3))):
        value = _changed_somewhere(draw, value)
    return value


def _changed_somewhere(draw: Any, value: Any) -> Any:
    keys: list[Any] = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    if not keys or draw(st.integers(0, 7)) == 0:
        return draw(VALUES)
    key = draw(st.sampled_from(keys))
    copied: Any = dict(value) if isinstance(value, dict) else list(value)
    copied[key] = _changed_somewhere(draw, copied[key])
    return copied


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_anything_in_any_place_is_refused_or_another_schedule(data: Any) -> None:
    outputs = program()
    content = json.loads(dumps(outputs, scheduled(outputs).directives))
    text = json.dumps(data.draw(damaged(content))).encode()
    schedule = te.Schedule(outputs)
    try:
        for directive in loads(text, outputs, "s.json"):
            schedule.add(directive)
    except te.ScheduleError as error:
        str(error).encode()
    else:
        assert str(schedule)
