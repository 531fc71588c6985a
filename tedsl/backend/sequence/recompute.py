"""Less memory for more work: results of steps that are forgotten, and computed again when somebody needs them.

A step is a pure function of what it reads, so the same kernel runs once more, on the same numbers, and no result
changes. Either the user says what is kept (`checkpoint=`): what a checkpoint is made of is forgotten when it is there.
Or a bound on the memory is given (`memory=`): where a step would not fit, that is forgotten which is cheap to compute
again, with all that is gone of what it is made of, is large, and is not needed for long.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field, replace

from tedsl.backend.compiling.executable import KernelStep
from tedsl.lang.dataclass import dataclass

__all__ = ["Saved", "StepCosts", "saved"]

MOST = 4  # times the steps of the program; more are refused


@dataclass(frozen=True)
class StepCosts:
    """Bytes of each tensor between steps, of what a step allocates inside, of inputs and outputs; work of each step."""

    tensors: Mapping[int, int]
    inside: Mapping[KernelStep, int]
    arrays: int
    work: Mapping[KernelStep, int]


@dataclass(frozen=True)
class Saved:
    """Steps of which some run again, tensors by numbers; `copies` are new numbers for tensors that are made again."""

    steps: tuple[KernelStep, ...]
    copies: dict[int, int]  # new number -> the number of the tensor that it is
    needed: int  # the least bytes for which a step had no room; 0 where all had
    again: frozenset[int] = frozenset()  # places of the steps that were there before


def saved(
    steps: Sequence[KernelStep],
    results: Sequence[int],
    count: int,
    costs: StepCosts,
    keep: Set[int] | None,
    most: int | None,
) -> Saved:
    """The steps with those that must run again: `keep` are checkpoints, `most` the bytes that may be used at once."""
    walk = _Walk(list(steps), tuple(results), count, costs, keep, most)
    for now in range(len(steps)):
        walk.step(now)
        if len(walk.made) > MOST * len(steps):
            break
    return Saved(tuple(walk.made), walk.copies, walk.needed, frozenset(walk.again))


@dataclass(eq=False)
class _Walk:
    """What is in memory while the steps run one after another."""

    steps: list[KernelStep]
    results: tuple[int, ...]
    fresh: int  # the next free number
    costs: StepCosts
    keep: Set[int] | None
    most: int | None
    made: list[KernelStep] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    copies: dict[int, int] = field(default_factory=dict)
    version: dict[int, int] = field(default_factory=dict)  # tensor in memory -> its number there
    done: set[int] = field(default_factory=set)
    needed: int = 0

    def __post_init__(self) -> None:
        self.maker = {c: k for k, step in enumerate(self.steps) for c in step.outputs}
        self.uses: dict[int, list[int]] = {}
        for k, step in enumerate(self.steps):
            for c in step.inputs:
                self.uses.setdefault(c, []).append(k)
        self.lasting = set(self.results)
        self.above = self._above_checkpoints()

    def _above_checkpoints(self) -> list[set[int]]:
        """For each checkpoint in order of the steps: the steps that it needs, its own included."""
        found = []
        for c in sorted((c for c in self.keep or () if c in self.maker), key=self.maker.__getitem__):
            pending, steps = [self.maker[c]], {self.maker[c]}
            while pending:
                fresh = {self.maker[i] for i in self.steps[pending.pop()].inputs if i in self.maker} - steps
                steps |= fresh
                pending += fresh
            found.append(steps)
        return found

    def step(self, now: int) -> None:
        """Run a step, after those that make again what it needs and is gone.

        While those run, what the later ones of them read may be forgotten too, if nothing else makes room, and is then
        made again in its turn.
        """
        again: set[int] = set()
        while now not in self.done and len(self.made) <= MOST * len(self.steps):
            chain = self._missing(now)
            waiting = {c for k in chain for c in self.steps[k].inputs}
            self._run(chain[0], now, {*self.steps[chain[0]].inputs, *(waiting & again)}, waiting)
            again.update(self.steps[chain[0]].outputs)
            for c in [c for c in self.version if not self._is_used(c, now, chain[1:])]:
                del self.version[c]
        self._forget_below_checkpoints(now)

    def _missing(self, now: int) -> list[int]:
        """The steps that must run for a step, in order, itself last."""
        wanted, pending = {now}, [now]
        while pending:
            for c in self.steps[pending.pop()].inputs:
                k = self.maker.get(c)
                if k is not None and c not in self.version and k not in wanted:
                    wanted.add(k)
                    pending.append(k)
        return sorted(wanted)

    def _is_used(self, cell: int, now: int, pending: Iterable[int]) -> bool:
        return (
            cell in self.lasting
            or self._next(cell, now + 1) < len(self.steps)
            or any(cell in self.steps[k].inputs for k in pending)
        )

    def _next(self, cell: int, begin: int) -> int:
        """The next step that reads a tensor, from one on."""
        uses = self.uses.get(cell, [])
        at = bisect.bisect_left(uses, begin)
        return uses[at] if at < len(uses) else len(self.steps)

    def _run(self, k: int, now: int, pinned: Set[int], waiting: Set[int]) -> None:
        step = self.steps[k]
        first = k not in self.done
        wanted = [c for c in step.outputs if c not in self.version]
        self._make_room(sum(map(self._bytes, wanted)) + self.costs.inside.get(step, 0), now, pinned, waiting)
        numbers = {c: c if first else self._copy(c) for c in step.outputs}
        inputs = tuple(self.version.get(c, c) for c in step.inputs)
        if not first:
            self.again.append(len(self.made))
        self.made.append(replace(step, inputs=inputs, outputs=tuple(numbers[c] for c in step.outputs)))
        self.version.update((c, numbers[c]) for c in step.outputs if first or c not in self.lasting)
        self.done.add(k)

    def _copy(self, cell: int) -> int:
        self.copies[self.fresh] = cell
        self.fresh += 1
        return self.fresh - 1

    def _bytes(self, cell: int) -> int:
        return 0 if cell in self.lasting else self.costs.tensors.get(cell, 0)

    def _make_room(self, wanted: int, now: int, pinned: Set[int], waiting: Set[int]) -> None:
        """Forget what costs least until there is room; what waits to be read at once only if there is nothing else."""
        if self.most is None:
            return
        held = self.costs.arrays + wanted + sum(map(self._bytes, self.version))
        while held > self.most:
            free = [c for c in self.version if c not in pinned and c not in self.lasting and self._is_pure(c)]
            free = [c for c in free if self._bytes(c)]
            if not free:
                self.needed = max(self.needed, held)
                return
            last = min(free, key=lambda c: (c in waiting, self._price(c, now)))
            held -= self._bytes(last)
            del self.version[last]

    def _price(self, cell: int, now: int) -> float:
        """The work of making a tensor again, for each byte and step without it.

        What it is made of counts where it is gone, or will be by then because nobody reads it that late.
        """
        then = self._next(cell, now)
        wanted, pending = {self.maker[cell]}, [self.maker[cell]]
        while pending:
            fresh = {
                self.maker[c]
                for c in self.steps[pending.pop()].inputs
                if c in self.maker and self.maker[c] not in wanted and not self._is_there(c, then)
            }
            wanted |= fresh
            pending += fresh
        work = sum(self.costs.work[self.steps[k]] for k in wanted)
        return work / (self._bytes(cell) * max(1, then - now))

    def _is_there(self, cell: int, then: int) -> bool:
        """Whether a tensor will be in memory at a step."""
        return cell in self.version and (cell in self.lasting or self._next(cell, then) < len(self.steps))

    def _is_pure(self, cell: int) -> bool:
        """Whether it can be made again: by a kernel, not by a function of the user's."""
        return self.steps[self.maker[cell]].core is not None

    def _forget_below_checkpoints(self, now: int) -> None:
        """What was first made for checkpoints that are all there is forgotten, checkpoints excepted."""
        if self.keep is None:
            return
        there = {k for steps in self.above if max(steps) <= now for k in steps}
        ahead = {k for steps in self.above if max(steps) > now for k in steps}
        for c in list(self.version):
            first = self.version[c] == c and self.maker[c] in there and c not in self.keep | self.lasting
            if first and self._is_pure(c) and not any(k in ahead for k in self.uses.get(c, []) if k > now):
                del self.version[c]
