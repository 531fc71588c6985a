"""Schedules as JSON, with a key that tells whether the program they are read for is the one they were written for."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from schedules.directives import Directive, from_json, to_json
from schedules.program import program_of
from schedules.records import hints_of, parsed, record_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import ScheduleError, user_location
from tedsl.lang.printing import program_text
from tedsl.lang.structure import structural_key
from tedsl.lang.tensor import Tensor

__all__ = ["dumps", "loads"]

VERSION = 1
_FIX = "save the schedule again"


def dumps(outputs: Sequence[Tensor], directives: Sequence[Directive]) -> str:
    """The JSON text of a schedule."""
    return json.dumps({**_program(outputs), "directives": [to_json(d) for d in directives]}, indent=1)


def _program(outputs: Sequence[Tensor]) -> dict[str, Any]:
    return {
        "tedsl_schedule": VERSION,
        "key": structural_key(outputs),
        "stages": {n: _axis_names(op) for n, op in program_of(outputs).stages.items()},
        "program": program_text(outputs).splitlines(),
    }


def _axis_names(op: Any) -> list[str]:
    reduction = getattr(op, "reduction", None)
    return [a.name for a in (*getattr(op, "axes", ()), *(reduction.axes if reduction is not None else ()))]


@dataclass(frozen=True)
class _Saved:
    """What a file holds."""

    tedsl_schedule: int
    key: str
    stages: dict[str, tuple[str, ...]]
    program: tuple[str, ...]
    directives: tuple[Any, ...]


def loads(content: bytes, outputs: Sequence[Tensor], path: str) -> list[Directive]:
    """The directives of a saved schedule; ScheduleError if it is of another program, or damaged."""
    where = f"te.Schedule.load({path!r}), at {user_location()}"
    try:
        data = parsed(content)
    except ValueError as error:  # of JSON, or of its text's encoding
        raise ScheduleError(f"{where}: the file is no JSON: {error}") from error
    version = data.get("tedsl_schedule") if isinstance(data, dict) else None
    if type(version) is not int or version != VERSION:
        raise ScheduleError(f"{where}: expected a schedule of version {VERSION}, found {version!r:.40}")
    missing = [name for name in hints_of(_Saved) if name not in data]
    if missing:
        raise ScheduleError(f"{where}: the file is damaged: it has no {', '.join(missing)}; {_FIX}")
    try:
        saved = record_of(_Saved, data)
    except ValueError as error:
        raise ScheduleError(f"{where}: the file is damaged: {error}; {_FIX}") from None
    _check_program(saved, _program(outputs), where)
    try:
        return [from_json(d, f"directives[{k}]") for k, d in enumerate(saved.directives)]
    except ValueError as error:
        raise ScheduleError(f"{where}: a directive cannot be read: {error}; {_FIX}") from None


def _check_program(saved: _Saved, here: Mapping[str, Any], where: str) -> None:
    """Refuse a schedule that was saved for another program."""
    if saved.key != here["key"]:
        changed = _change(saved.program, here["program"])
        raise ScheduleError(f"{where}: the schedule was saved for another program:\n{changed}")
    stages = {name: tuple(axes) for name, axes in here["stages"].items()}
    if saved.stages != stages:
        changed = _renamed(saved.stages, stages)
        raise ScheduleError(f"{where}: stages or axes had other names when the schedule was saved: {changed}")


def _change(saved: Sequence[str], here: Sequence[str]) -> str:
    lines = list(difflib.unified_diff(saved, here, "saved", "given", n=0, lineterm=""))
    found = "\n".join(line for line in lines[:12] if not line.startswith("@@"))
    return found or "its text is the same, so the key in the file is damaged; " + _FIX


def _renamed(saved: Mapping[str, Sequence[str]], here: Mapping[str, Sequence[str]]) -> str:
    pairs = zip_longest(saved.items(), here.items(), fillvalue=("nothing", ()))
    changed = [f"{a}({', '.join(x)}) is now {b}({', '.join(y)})" for (a, x), (b, y) in pairs if (a, x) != (b, y)]
    return "; ".join(changed[:3])
