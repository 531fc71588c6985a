"""How much work an inversion may take: counted in steps, so that the answer is the same on every machine and each time.

A clock would let the load of the machine decide whether a read becomes a gather. One step is an operation on one
coefficient, roughly; the clock is there only for what the count does not foresee.
"""

from __future__ import annotations

import time
from dataclasses import field

from tedsl.lang.dataclass import dataclass

__all__ = ["STEPS", "Budget", "TooHard"]

STEPS = 2_000_000
"""Of one independent part of an index map: about two seconds."""
LAST_RESORT = 30.0
"""Seconds of one inversion, whatever was counted."""


class TooHard(Exception):
    """An inversion that would take too long, or more cases than it is worth; says which."""


@dataclass
class Budget:
    """The steps left; `overdue` once the clock had to end it, so that the outcome must not be remembered."""

    steps: float = STEPS
    deadline: float = field(default_factory=lambda: time.thread_time() + LAST_RESORT)
    spent: int = 0
    overdue: bool = False

    @staticmethod
    def unlimited() -> Budget:
        return Budget(float("inf"), float("inf"))

    def spend(self, steps: int) -> None:
        """Count `steps`; TooHard when there are none left."""
        self.spent += steps
        if self.spent > self.steps:
            raise TooHard(f"the inversion takes more than {self.steps:,} steps")
        if time.thread_time() > self.deadline:
            self.overdue = True
            raise TooHard(f"the inversion took more than {LAST_RESORT:g} s")
