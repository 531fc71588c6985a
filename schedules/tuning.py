"""What a measured search changes in the default schedule: its parameters, their candidates, and the order of trying.

The default schedule asks for its parameters by name (`Machine.choose`), and what its cost model takes is where the
search begins. So a program has just the parameters that its patterns have.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import field, replace

from schedules.machine import FIGURES, Machine
from tedsl.lang.dataclass import dataclass

__all__ = ["QUICK", "Choices", "Tunable", "parameters_of", "search", "settled"]

Choices = Mapping[str, int]

# Loop bodies of a few vectors, and scans in one piece: there is less code to make.
QUICK: Choices = {
    "unroll": 1, "tile_rows": 4, "tile_vectors": 1, "vectors": 1, "rows": 2, "lanes": 1, "forgotten": 1 << 62,
}  # fmt: skip


@dataclass(frozen=True)
class Tunable:
    """One number of the default scheduler, for one stage ("C:unroll") or for all ("cores")."""

    name: str
    default: int
    candidates: tuple[int, ...]


@dataclass(frozen=True)
class _Asked(Machine):
    """A machine that takes note of what is asked for."""

    asked: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def tells_stages_apart(self) -> bool:
        return True  # each is asked for

    def choose(self, name: str, default: int, stage: str = "") -> int:
        self.asked.setdefault(f"{stage}:{name}", default)
        return super().choose(name, default, stage)


def _near(n: int) -> list[int]:
    return [n - 1, n + 1, n - 2, n + 2, n // 2, n * 2]


def _scaled(n: int) -> list[int]:
    return [n // 2, n * 2, n // 4, n * 4]


# In the order in which they are tried. A value that makes no other schedule costs nothing.
_CANDIDATES: dict[str, Callable[[int], Sequence[int]]] = {
    "tile_rows": _near,
    "tile_vectors": lambda n: [n - 1, n + 1, n + 2],
    "unroll": lambda n: [1, 2, 4, 8],
    "rows": _scaled,
    "window_rows": lambda n: [*_scaled(n), *_near(n)],
    "column_blocks": lambda n: [1, 2, 3, 4, 6, 8],
    "columns": _scaled,
    "tasks": _scaled,
    "vectors": lambda n: [1, 2, 4, 8],
    "lanes": lambda n: [1, 2, 4, 8, 16],
    "turned": lambda n: [4, 8, 16, 32],
    "l2": _scaled,
    "vector_bytes": lambda n: [n // 2],
    "cores": lambda n: [1, 2 * n],
    "row_bytes": lambda n: [0, n // 8, n * 8],
    "inline": lambda n: [0, 400],
}
_MAY_BE_ZERO = {"row_bytes", "inline"}


def settled(machine: Machine, choices: Choices) -> Machine:
    """The machine with these choices made."""
    return replace(machine, choices=tuple(sorted(choices.items()))).tuned()


def parameters_of(plan: Callable[[Machine], object], machine: Machine, choices: Choices) -> list[Tunable]:
    """The parameters that planning asks for where these choices are made, the most telling first."""
    asked = _Asked(**{f: getattr(machine, f) for f in Machine.__dataclass_fields__})
    plan(settled(asked, choices))
    found = [(name, value, name.rpartition(":")[2]) for name, value in asked.asked.items()]
    found += [(name, int(getattr(machine, name)), name) for name in FIGURES]
    rank = {kind: k for k, kind in enumerate(_CANDIDATES)}
    made = []
    for name, default, kind in sorted((f for f in found if f[2] in rank), key=lambda f: rank[f[2]]):
        least = 0 if kind in _MAY_BE_ZERO else 1
        values = dict.fromkeys(v for v in (*_CANDIDATES[kind](default), default) if v >= least)
        made.append(Tunable(name, default, tuple(values)))
    return made


def search(parameters_at: Callable[[Choices], list[Tunable]], seed: int = 0) -> Generator[Choices, bool, None]:
    """Choices to try, without end; whether they were the best so far is sent back.

    One parameter after another until none helps, then several at once.
    """
    draw = random.Random(seed)
    best: Choices = {}
    improved = True
    while improved:
        improved = False
        for parameter in parameters_at(best):
            for value in parameter.candidates:
                trial = {**best, parameter.name: value}
                if trial != best and (yield trial):
                    best, improved = trial, True
    while parameters := parameters_at(best):
        chosen = draw.sample(parameters, min(len(parameters), draw.choice((2, 3))))
        trial = {**best, **{p.name: draw.choice(p.candidates) for p in chosen}}
        if (yield trial):
            best = trial
