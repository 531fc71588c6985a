"""Halide's autoschedulers: a lowered program to one that they have scheduled.

They run in a process of their own, since some of them end it where they meet what they did not expect. What they
cannot do is refused before where it is known (`schedules.automatic.check_limits`, and here), else in their own words.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import halide as hl

from schedules.machine import Machine
from tedsl.backend.halide_text.errors import readable
from tedsl.backend.host.targets import Target
from tedsl.backend.lowering.pipeline import Lowered
from tedsl.lang.errors import ScheduleError
from tedsl.lang.tensor import Tensor

__all__ = ["NAMES", "apply_autoscheduler", "plugin_of"]

NAMES = {
    "mullapudi2016": "Mullapudi2016", "adams2019": "Adams2019", "li2018": "Li2018", "anderson2021": "Anderson2021",
}  # fmt: skip
ON_GPU = {"mullapudi2016": False, "adams2019": False, "li2018": True, "anderson2021": True}
ONLY_ON_GPU = {"anderson2021"}
SECONDS = 120


def apply_autoscheduler(
    scheduler: str, lowered: Lowered, target: Target, machine: Machine, *, deterministic: bool
) -> None:
    """Schedule the functions of a program."""
    _check(scheduler, lowered, machine)
    for result in lowered.results:
        shape = _shape(lowered.outputs[result.positions[0]])
        if shape:
            result.func.set_estimates([(0, n) for n in shape])
    data, parameters = hl.serialize_pipeline(lowered.pipeline, get_params=True)
    scheduled, text = _in_a_process(scheduler, data, _request(scheduler, lowered, target, machine))
    if ".atomic(" in text and deterministic:
        raise ScheduleError(
            f"{scheduler} adds with atomics, so that results differ from run to run; take another scheduler, or build "
            "with deterministic=False"
        )
    if ".atomic(" in text and machine.gpu is not None:
        raise ScheduleError(
            f"{scheduler} adds with atomics, which Halide 21 gets wrong on GPUs (an element is read twice; what was "
            "added in between may be lost); take another scheduler"
        )
    funcs = hl.deserialize_pipeline(scheduled, parameters).outputs()
    for result, func in zip(lowered.results, funcs, strict=True):
        result.func = func
        for number in range(func.num_update_definitions()):
            with suppress(hl.HalideError):  # it has a schedule; else: no warning that it has none
                func.update(number).unscheduled()
    lowered.inlined = {s.op for s in lowered.stages if s.func.name().partition("$")[0] not in text}


def _check(scheduler: str, lowered: Lowered, machine: Machine) -> None:
    if machine.gpu is None and scheduler in ONLY_ON_GPU:
        raise ScheduleError(f"{scheduler} makes schedules for GPUs; build with target='cuda' or 'opencl'")
    if machine.gpu is not None and not ON_GPU[scheduler]:
        raise ScheduleError(f"{scheduler} makes schedules for CPUs; build with target='host', or take anderson2021")
    if lowered.checks is not None:
        texts = ", ".join(dict.fromkeys(f"{c.op.name} reads {c.tensor.name}" for c in lowered.sites))
        raise ScheduleError(
            f"{scheduler} would schedule the checks of indices too, which must come first: {texts} at indices that are "
            "known only at run time; use a mode such as 'clamp' there"
        )


def _shape(tensor: Tensor) -> list[int]:
    """The extents as Halide has them, the contiguous one first."""
    return [int(n) for n in tensor.shape[::-1]]


def _request(scheduler: str, lowered: Lowered, target: Target, machine: Machine) -> dict[str, Any]:
    images = [(i.name(), str(t.dtype), _shape(t)) for t, i in lowered.inputs.items()]
    zero = lowered.zero
    return {
        "plugin": str(plugin_of(scheduler)),
        "name": NAMES[scheduler],
        "target": target.with_features("strict_float").text,
        "options": {"parallelism": str(max(2, machine.cores))},
        "images": images,
        "scalars": [] if zero is None else [(zero.name(), "int32", 0)],
    }


def plugin_of(scheduler: str) -> Path:
    """The library beside Halide's own."""
    spec = importlib.util.find_spec("halide")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [p for f in folders for p in sorted(Path(f).glob(f"lib*/*autoschedule_{scheduler}.*"))]
    if not found:
        raise ScheduleError(f"the library of {scheduler} is not part of the Halide installed here ({folders})")
    return found[0]


def _in_a_process(scheduler: str, pipeline: bytes, request: dict[str, Any]) -> tuple[bytes, str]:
    """The scheduled pipeline, and the schedule as Halide writes it."""
    import subprocess  # slow to load, and seldom needed

    with tempfile.TemporaryDirectory(prefix="tedsl") as name:
        folder = Path(name)
        (folder / "pipeline").write_bytes(pipeline)
        (folder / "request.json").write_text(json.dumps(request))
        command = [sys.executable, "-m", "tedsl.backend.scheduling.autoscheduler_process", name]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise ScheduleError(f"{scheduler} has found no schedule within {SECONDS} seconds; take another") from None
        if (folder / "error.txt").exists():
            said = readable(RuntimeError((folder / "error.txt").read_text()))
            raise ScheduleError(f"{scheduler} cannot schedule this program; it says: {said}")
        if done.returncode or not (folder / "scheduled").exists():
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
            raise ScheduleError(
                f"{scheduler} fails on this program (its process ended with {done.returncode}, saying: {last[0]}); "
                "take another"
            )
        return (folder / "scheduled").read_bytes(), (folder / "schedule.txt").read_text()
