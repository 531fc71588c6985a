"""Schedules as JSON, with a key that tells whether the program they are read for is the one they were written for."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

from schedules.directives import Directive, from_json, to_json
from schedules.program import program_of
from tedsl.lang.errors import ScheduleError, user_location
from tedsl.lang.printing import program_text
from tedsl.lang.structure import structural_key
from tedsl.lang.tensor import Tensor

__all__ = ["dumps", "loads"]

VERSION = 1


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


def loads(content: bytes, outputs: Sequence[Tensor], path: str) -> list[Directive]:
    """The directives of a saved schedule; ScheduleError if it is of another program."""
    where = f"te.Schedule.load({path!r}), at {user_location()}"
    try:
        data = json.loads(content)
    except ValueError as error:  # of JSON, or of its text's encoding
        raise ScheduleError(f"{where}: the file is no JSON: {error}") from error
    if not isinstance(data, dict) or data.get("tedsl_schedule") != VERSION:
        found = data.get("tedsl_schedule") if isinstance(data, dict) else None
        raise ScheduleError(f"{where}: expected a schedule of version {VERSION}, found {found!r}")
    here = _program(outputs)
    missing = [field for field in ("key", "stages", "program", "directives") if field not in data]
    if missing:
        raise ScheduleError(f"{where}: the file is damaged: it has no {', '.join(missing)}; save the schedule again")
    if data["key"] != here["key"]:
        raise ScheduleError(
            f"{where}: the schedule was saved for another program:\n{_change(data['program'], here['program'])}"
        )
    if data["stages"] != here["stages"]:
        raise ScheduleError(
            f"{where}: stages or axes had other names when the schedule was saved: {_renamed(data, here)}"
        )
    try:
        return [from_json(d) for d in data["directives"]]
    except (KeyError, TypeError) as error:
        raise ScheduleError(f"{where}: a directive cannot be read: {error!r}") from error


def _change(saved: list[str], here: list[str]) -> str:
    lines = list(difflib.unified_diff(saved, here, "saved", "given", n=0, lineterm=""))
    return "\n".join(line for line in lines[:12] if not line.startswith("@@"))


def _renamed(data: dict[str, Any], here: dict[str, Any]) -> str:
    pairs = zip(data["stages"].items(), here["stages"].items(), strict=False)
    changed = [f"{a}({', '.join(x)}) is now {b}({', '.join(y)})" for (a, x), (b, y) in pairs if (a, x) != (b, y)]
    return "; ".join(changed[:3]) or f"their order was {', '.join(data['stages'])}"
