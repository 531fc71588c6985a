"""Derivatives that an author gave to the results of a function, found by `differentiate` and `jvp` on their way.

A rule belongs to one operation object: rewrites make other objects, which have the derivative of their definition. It
is kept in the operation's own dictionary, so that it lives and dies with it, whatever it refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import GradientError
from tedsl.lang.tensor import AUTHOR_RULES, Operation, Placeholder, Scan, Tensor
from tedsl.lang.traverse import stages_of

__all__ = ["Rule", "check_no_rules", "rule_of", "set_rule", "stages_along", "transposed", "without_rules"]

_SUSPENDED: ContextVar[tuple[Operation, ...]] = ContextVar("suspended", default=())

Vjp = Callable[[Tensor, list[Tensor], Tensor], Any]  # (output, deps, adjoint of output) -> one adjoint per dep
Jvp = Callable[[list[Tensor], list[Tensor]], Tensor]  # (deps, their tangents) -> tangent of the output


@dataclass(frozen=True, eq=False)
class Rule:
    """How one tensor depends on `deps`; None where the definition's own derivative holds."""

    deps: tuple[Tensor, ...]
    vjp: Vjp | None = None
    jvp: Jvp | None = None


def set_rule(tensor: Tensor, rule: Rule) -> None:
    """From now on `tensor` has this derivative."""
    vars(tensor.op).setdefault(AUTHOR_RULES, {})[tensor.index] = rule


@contextmanager
def without_rules(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Inside, these tensors have the derivative of their definition, so that a rule for them can start from it."""
    before = _SUSPENDED.set((*_SUSPENDED.get(), *(t.op for t in tensors)))
    try:
        yield
    finally:
        _SUSPENDED.reset(before)


def rule_of(tensor: Tensor) -> Rule | None:
    """The rule given to a tensor, if any."""
    if any(op is tensor.op for op in _SUSPENDED.get()):
        return None
    found: Rule | None = vars(tensor.op).get(AUTHOR_RULES, {}).get(tensor.index)
    return found


def check_no_rules(scan: Scan) -> None:
    """GradientError where a step is computed by what has a derivative of its own: scans derive their bodies."""
    if scan.ruled:
        raise GradientError(
            f"scan {scan.name!r} ({scan.where}): its step computes {scan.ruled[0]}, which has a derivative by its "
            "author (def_vjp, def_jvp), and scans are differentiated by their definition; make the scan an operator "
            "with a rule for all of it, or take the steps in a loop of Python's, which te.jit writes out"
        )


def stages_along(outputs: Iterable[Tensor], dependencies: Callable[[Operation], Iterable[Tensor]]) -> list[Operation]:
    """The operations below the outputs along `dependencies`, inputs first."""
    stack = [t.op for t in outputs][::-1]
    order: list[Operation] = []
    done: dict[Operation, bool] = {}
    while stack:
        op = stack[-1]
        if op not in done:
            done[op] = False
            stack += [t.op for t in reversed(list(dependencies(op))) if t.op not in done]
            continue
        stack.pop()
        if not done[op]:
            done[op] = True
            order.append(op)
    return order


def transposed(adjoints: Iterable[Tensor], tangents: Iterable[Tensor], what: str) -> tuple[Tensor, ...]:
    """Adjoints of a forward rule, checked to be those of a linear map: they may not read the tangents."""
    results = tuple(adjoints)
    marks = {id(t.op): t.name for t in tangents}
    for op in stages_of(results):
        if isinstance(op, Placeholder) and id(op) in marks:
            raise GradientError(
                f"{what}: the rule is not linear in the tangent {marks[id(op)]!r}, so that it has no reverse "
                "derivative; multiply tangents by what does not depend on them, and add"
            )
    return results
