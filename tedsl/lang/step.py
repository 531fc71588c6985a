"""The step of a scan while its function runs: tensors made of what changes from step to step belong to the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Expr
from tedsl.lang.tensor import Operation, StepStage, Tensor
from tedsl.lang.traverse import free_axes, reads_of

__all__ = ["ScanStep", "axes_outside", "present_step", "written"]


class ScanStep:
    """What the function of a scan is called with, and the stages that it has made of that so far.

    `axes` are those of the steps, `places` the others that the function got. `outer` is the step of another scan in
    which this one is written; it may read nothing of that.
    """

    def __init__(self, axes: Sequence[Axis], states: Sequence[Tensor]) -> None:
        self.axes = tuple(axes)
        self.places: list[Axis] = []
        self.members: set[Operation] = {s.op for s in states}
        self.outer = present_step()

    def makes(self, bodies: tuple[Expr, ...]) -> bool:
        """Whether a tensor of these bodies is one of the step."""
        own = {*self.axes, *self.places}
        return any(a in own for a in free_axes(bodies)) or any(r.tensor.op in self.members for r in reads_of(bodies))

    def has_made(self, tensor: Tensor) -> bool:
        """Whether a tensor is a state of the scan, or a stage of the step."""
        return tensor.op in self.members

    def check(self, bodies: tuple[Expr, ...], what: str) -> None:
        """Refuse what a step around this one computes."""
        if self.outer is not None and self.outer.makes(bodies):
            raise ValueError(
                f"{what} at {user_location()}: a te.scan within a step of another one reads what that step computes; "
                "give the outer one two axes, axis=(0, 1), and make the inner one's steps the second; two sweeps, down "
                "and up, are one axis of twice the steps, as docs/linear_algebra.md solves tridiagonal systems"
            )

    def stage(
        self, axes: tuple[Axis, ...], bodies: tuple[Expr, ...], name: str, names: tuple[str, ...] | None
    ) -> StepStage:
        """A stage of the step."""
        made = StepStage(name=name, axes=axes, bodies=bodies, names=names)
        self.members.add(made)
        return made


_PRESENT: ContextVar[ScanStep | None] = ContextVar("step", default=None)


def present_step() -> ScanStep | None:
    """The step whose function is running."""
    return _PRESENT.get()


def axes_outside(expr: Expr) -> list[Axis]:
    """The axes of an expression without those of the present step, of which whole tensors may be made."""
    axes, step = free_axes(expr), present_step()
    return axes if step is None else [a for a in axes if a not in {*step.axes, *step.places}]


@contextmanager
def written(step: ScanStep | None) -> Iterator[None]:
    """The function of a scan runs; None: what is written belongs to no step."""
    before = _PRESENT.set(step)
    try:
        yield
    finally:
        _PRESENT.reset(before)
