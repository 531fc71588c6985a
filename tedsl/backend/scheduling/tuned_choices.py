"""What te.tune found, kept as JSON files: one for each program, machine and target.

The folder belongs to the user alone, a file is written as a whole or not at all, and one that cannot be read, or is not
as it was written, is as good as none.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from schedules.records import typed, unsealed, with_seal
from tedsl.backend.host.files import private_folder, read_whole, write_whole
from tedsl.backend.host.targets import Target, machine_of
from tedsl.lang.printing import program_text
from tedsl.lang.structure import structural_key
from tedsl.lang.tensor import Tensor

__all__ = ["recall", "remember"]

VERSION = 1


def remember(outputs: Sequence[Tensor], target: Target, choices: Mapping[str, int], found: Mapping[str, Any]) -> bool:
    """Keep the choices for a program, with what was found about them; whether that could be done."""
    path = _path(outputs, target)
    if path is None:
        return False
    data = {
        "tedsl_tuned": VERSION, "machine": _machine(target), "program": program_text(outputs).splitlines(),
        "choices": dict(choices), **found,
    }  # fmt: skip
    return write_whole(path, json.dumps(with_seal(data), indent=1).encode())


def recall(outputs: Sequence[Tensor], target: Target) -> dict[str, int] | None:
    """The choices kept for a program; None where there are none."""
    path = _path(outputs, target)
    text = None if path is None else read_whole(path)
    if text is None:
        return None
    try:
        data = unsealed(text)
        if (data.get("tedsl_tuned"), data.get("machine")) != (VERSION, _machine(target)):
            return None
        return {name: typed(int, value) for name, value in typed(dict, data.get("choices")).items()}
    except ValueError:
        return None


def _path(outputs: Sequence[Tensor], target: Target) -> Path | None:
    folder = private_folder("tuned")
    if folder is None:
        return None
    key = "\n".join([structural_key(outputs, names=True), target.text, json.dumps(_machine(target))])
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"


def _machine(target: Target) -> dict[str, Any]:
    return {"processor": _processor(), **machine_of(target).to_json(), "choices": []}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
