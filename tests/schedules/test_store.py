"""Saving and loading: the same schedule comes back, and only for the program that it was saved for."""

from __future__ import annotations

from pathlib import Path

import pytest

import tedsl as te
from schedules.directives import DIRECTIVES, from_json, to_json


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
    assert str(again) == str(s)


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
