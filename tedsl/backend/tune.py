"""`te.tune`: a measured search over the parameters of the default schedule, whose result is remembered.

Every candidate is compiled, its results are compared with those of the default schedule, and it is timed in turns with
the best one so far, so that what else the machine does falls on both.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import halide as hl
import numpy as np

from schedules.default import Machine, completed
from schedules.plan import Plan
from schedules.program import program_of
from schedules.schedule import Schedule
from schedules.tuning import Choices, parameters_of, search, settled
from schedules.written.text import schedule_text
from tedsl.analysis.arrays.feeds import as_outputs
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import NamedSizes, check_sizes, sizes_of
from tedsl.backend.build import made_kernel
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.samples import inputs_of, samples
from tedsl.backend.host.progress import Progress, shown
from tedsl.backend.host.targets import machine_of, parse_target
from tedsl.backend.scheduling.planner import Planner
from tedsl.backend.scheduling.tuned_choices import remember
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Var
from tedsl.lang.keywords import own_arguments
from tedsl.lang.tensor import Extern, Tensor
from tedsl.lang.traverse import stages_of

__all__ = ["Trial", "Tuned", "tune"]

GAIN = 0.98  # of the best time, from which on a candidate is the better one
HOPELESS = 1.3  # times the best time, above which a candidate is not timed in turns
ROUNDS = 5
REPEATED = 400  # candidates in a row that make schedules tried before: nothing is left to try
SHARE = 0.01  # seconds of one timing


@dataclass(frozen=True)
class Trial:
    """One schedule that was tried: what was chosen, seconds of a call, and what came of it.

    `verdict` is "default", "better", "slower", "wrong" (other results, never used), or the reason why it was refused.
    """

    choices: Mapping[str, int]
    seconds: float
    verdict: str

    def __str__(self) -> str:
        chosen = ", ".join(f"{name}={value}" for name, value in self.choices.items()) or "nothing chosen"
        return f"{1e3 * self.seconds:9.4g} ms  {self.verdict:8}  {chosen}"


class Tuned(Schedule):
    """The best schedule that a search found; `history` has every trial."""

    history: tuple[Trial, ...] = ()
    interrupted: bool = False
    remembered: bool = False

    @property
    def default(self) -> Trial:
        """The default schedule, with which the search began."""
        return self.history[0]

    @property
    def best(self) -> Trial:
        """The fastest trial with the right results."""
        return [t for t in self.history if t.verdict in ("default", "better")][-1]

    @property
    def speedup(self) -> float:
        """How many times as fast as the default schedule."""
        return self.default.seconds / self.best.seconds

    def table(self, rows: int = 10) -> str:
        """The default, and the last trials that were better than all before."""
        better = [t for t in self.history if t.verdict == "better"]
        return "\n".join(map(str, [self.default, *better[-rows:]]))

    def __repr__(self) -> str:
        names = ", ".join(t.name for t in self.outputs)
        notes = ["interrupted"] * self.interrupted + ["not kept on disk"] * (not self.remembered)
        return (
            f"Tuned schedule of {names}: {1e3 * self.best.seconds:.4g} ms, {self.speedup:.2f} times as fast as by "
            f"default, {len(self.history)} schedules tried{''.join(f', {n}' for n in notes)}\n{self.table()}"
        )


@own_arguments()
def tune(
    outputs: Tensor | Sequence[Tensor],
    budget: float = 60.0,
    progress: bool | Callable[[Progress], object] | None = None,
    *,
    sizes: NamedSizes | None = None,
    feeds: Mapping[Tensor, Any] | None = None,
    target: str = "host",
) -> Tuned:
    """Search `budget` seconds for a schedule of `outputs` that is faster than the default one, which is measured first.

    What is found is kept for `te.build(..., schedule="tuned")`. `sizes` gives numbers for symbolic extents, `feeds`
    the arrays to measure with, where random ones will not do. An interrupt ends the search; the best so far stays.
    `progress`: True, False, None for a bar where somebody sees it, or a function of a `Progress`.
    """
    wanted, _ = as_outputs(outputs, "te.tune")
    given = Schedule(list(wanted))
    _check(budget, target)
    for op in stages_of(wanted):
        if isinstance(op, Extern) and not op.pure:
            raise ScheduleError(
                f"te.tune: {op.name} is a Python function with pure=False; a search calls it many times"
            )
    inputs = inputs_of(wanted)
    bound = _bound(inputs, wanted, check_sizes(sizes, "te.tune", inputs, wanted))
    arrays = samples(inputs, bound, feeds or {}, lambda arrays: _Program(inputs, wanted, bound, target, arrays).first())
    run = _Search(_Program(inputs, wanted, bound, target, arrays), float(budget))
    with shown(progress, f"tuning {', '.join(t.name for t in wanted[:3])}") as report:
        run.go(report)
    found = Tuned(given.outputs)
    found.history, found.interrupted = tuple(run.history), run.interrupted
    parsed = parse_target(target)
    machine = settled(machine_of(parsed), found.best.choices)
    found.auto(machine=machine.to_json())
    note = {"seconds": found.best.seconds, "default_seconds": found.default.seconds, "tried": len(run.history)}
    found.remembered = remember(wanted, parsed, found.best.choices, note)
    return found


def _check(budget: Any, target: str) -> None:
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise TypeError(f"te.tune: budget is a number of seconds, found {budget!r:.40}")
    if not 0 < budget < math.inf:
        raise ValueError(f"te.tune: budget must be a positive number of seconds, found {budget}")
    if parse_target(target).backend != "host":
        raise ScheduleError(f"te.tune: schedules for {target!r} are not measured; the target can be the host")


def _bound(inputs: Sequence[Tensor], outputs: Sequence[Tensor], sizes: Mapping[Var, int]) -> dict[Var, int]:
    """A number for every symbolic extent."""
    symbols = sizes_of(inputs, outputs)
    missing = [v.name for v in symbols if v not in sizes]
    if missing:
        raise ValueError(
            f"te.tune: {', '.join(missing)} {'has' if len(missing) == 1 else 'have'} no number to measure with; give "
            f"sizes={{{missing[0]}: ...}}"
        )
    return {v: sizes[v] for v in symbols}


class _Program:
    """The program with arrays to run on: kernels, plans and timings by choices."""

    def __init__(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], sizes: dict[Var, int], target: str, arrays: Any
    ) -> None:
        self.inputs, self.outputs, self.sizes, self.arrays = tuple(inputs), tuple(outputs), sizes, arrays
        self.target = parse_target(target)
        self.machine = machine_of(self.target)

    def plan(self, machine: Machine) -> Plan:
        return completed(Plan(program_of(self.outputs)), self.inputs, self.outputs, machine)

    def kernel(self, choices: Choices) -> Kernel:
        planner = Planner(choices=tuple(sorted(choices.items())))
        return made_kernel(Compilation(self.inputs, self.outputs, "tuned", self.target, planner))

    def first(self) -> tuple[Array, ...]:
        """The results of the default schedule."""
        return self.run(self.kernel({}))

    def run(self, kernel: Kernel, out: Sequence[Array] | None = None) -> tuple[Array, ...]:
        results: tuple[Array, ...] = kernel(*self.arrays, out=out, sizes=self.sizes or None)
        return results


class _Search:
    """The trials so far, and the kernel that is the best."""

    def __init__(self, program: _Program, budget: float) -> None:
        self.program, self.budget = program, budget
        self.history: list[Trial] = []
        self.interrupted = False
        self.kernel = self.first = program.kernel({})
        self.expected = [np.array(a) for a in program.run(self.kernel)]
        self.memory = tuple(np.empty_like(a) for a in self.expected)
        self.seconds = statistics.median(self._timed(self.kernel) for _ in range(ROUNDS))
        self.history.append(Trial({}, self.seconds, "default"))
        self.seen = {schedule_text(program.plan(program.machine))}
        self.begin = time.perf_counter()

    def go(self, report: Callable[[Progress], object]) -> None:
        """Try one candidate after another, until the time is over, nothing is left, or an interrupt."""
        try:
            self._go(report)
            self._confirm()
        except KeyboardInterrupt:
            self.interrupted = True

    def _confirm(self) -> None:
        """Time the best one once more in turns with the default one: many small gains may add up to none."""
        better = [k for k, t in enumerate(self.history) if t.verdict == "better"]
        if not better:
            return
        pairs = [(self._timed(self.kernel), self._timed(self.first)) for _ in range(ROUNDS)]
        ratio = statistics.median(mine / first for mine, first in pairs)
        if ratio < 1:
            self.history[better[-1]] = replace(self.history[better[-1]], seconds=self.history[0].seconds * ratio)
        for k in better if ratio >= 1 else ():
            self.history[k] = replace(self.history[k], verdict="slower")

    def _go(self, report: Callable[[Progress], object]) -> None:
        program = self.program
        proposals = search(lambda c: parameters_of(program.plan, program.machine, c))
        better, repeated = None, 0
        while self._elapsed() < self.budget and repeated < REPEATED:
            try:
                choices = next(proposals) if better is None else proposals.send(better)
            except StopIteration:
                break
            text = self._text(choices)
            better = text not in self.seen and self._try(choices)
            repeated = repeated + 1 if text in self.seen else 0
            self.seen.add(text)
            if not repeated:
                first, best = self.history[0].seconds, self.seconds
                report(Progress(self._elapsed(), self.budget, len(self.history), first, best))

    def _elapsed(self) -> float:
        return time.perf_counter() - self.begin

    def _text(self, choices: Choices) -> str:
        """The schedule in full: two choices may well make the same one."""
        try:
            return schedule_text(self.program.plan(settled(self.program.machine, choices)))
        except ScheduleError as error:
            return str(error)

    def _try(self, choices: Choices) -> bool:
        """Build, check and time one candidate; whether it is the best so far."""
        try:
            kernel = self.program.kernel(choices)
        except (ScheduleError, hl.HalideError) as error:
            self.history.append(Trial(choices, math.inf, str(error)))
            return False
        results = self.program.run(kernel, self.memory)
        if not all(map(_agrees, results, self.expected)):
            self.history.append(Trial(choices, math.inf, "wrong"))
            return False
        seconds = self._compared(kernel)
        better = seconds < GAIN * self.seconds
        self.history.append(Trial(choices, seconds, "better" if better else "slower"))
        if better:
            self.kernel, self.seconds = kernel, seconds
        return better

    def _compared(self, kernel: Kernel) -> float:
        """Seconds of a call, on the scale of the best one's: both are timed in turns."""
        found = self._timed(kernel)
        if found > HOPELESS * self.seconds:
            return found
        ratios: list[float] = []
        while len(ratios) < ROUNDS and not (len(ratios) > 1 and min(ratios) > 1):
            ratios.append(self._timed(kernel) / self._timed(self.kernel))
        return self.seconds * statistics.median(ratios)

    def _timed(self, kernel: Kernel) -> float:
        """The shortest of a few calls; a long one is called once."""
        times: list[float] = []
        while not times or (sum(times) < SHARE and len(times) < 200):
            begin = time.perf_counter()
            self.program.run(kernel, self.memory)
            times.append(time.perf_counter() - begin)
        return min(times)


def _agrees(found: Array, expected: Array) -> bool:
    """Whether two results are the same up to the order of sums."""
    if expected.dtype.kind not in "fV" or expected.size == 0:
        return bool(np.array_equal(found, expected))
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = b[np.isfinite(b)]
    scale = float(np.abs(finite).max()) if finite.size else 0.0
    loss = {2: 2e-2, 4: 1e-4, 8: 1e-10}[expected.dtype.itemsize]
    return bool(np.allclose(a, b, rtol=0, atol=loss * scale, equal_nan=True))
