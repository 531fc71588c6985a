"""`check_op`, and the same as a decorator of a test: cases are drawn by hypothesis, which also makes them small."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, seed as seeded, settings

from autodiff.checking.differences import stopped
from tedsl.backend.host.progress import counted
from tedsl.lang.errors import user_location
from tedsl.testing.arguments import Arguments, SampledCall
from tedsl.testing.misuse import shape_hints, size_hints
from tedsl.testing.report import CheckError, CheckReport, Failure
from tedsl.testing.snippet import snippet
from tedsl.testing.traced import Rules
from tedsl.testing.verdicts import BY_DIFFERENCES, CHECKS, COMPILED, Verdict, Wrong

__all__ = ["check_case", "check_op", "checked"]

DTYPES = ("float64", "float32")


def check_op(
    op: Callable[..., Any],
    *arguments: Any,
    sizes: Mapping[str, int | tuple[int, int]] | None = None,
    dtypes: Sequence[str] = DTYPES,
    vjp: Any = None,
    jvp: Any = None,
    checks: Sequence[str] | None = None,
    examples: int = 100,
    compiled: int = 4,
    seed: int = 0,
    raise_exception: bool = True,
    **named: Any,
) -> CheckReport:
    """Try to find a case in which `op` is wrong: `check_op(conv, "c h w", "f c 3 3", stride=st.integers(1, 2))`.

    op         a function of te.Tensors, or an operator made by `@te.op`
    arguments  one per parameter, by place or by name: a shape such as "n m" (extents of one name are equal, `...` is
               any shape), `te.testing.array(...)` for a dtype or a range of values, a hypothesis strategy for a static
               argument that is drawn, anything else as it is (`st.just("text")` for a string, `st.just(array)` for a
               constant array). Where nothing is described, parameters without a default are arrays of any shape
    sizes      the extents that a name may take, {"n": (3, 9)}; else 1 to 5
    vjp, jvp   a rule to try before it is registered, as `def_vjp` and `def_jvp` take it
    checks     names of `te.testing.CHECKS`; all by default
    examples   how many cases are drawn, of which about `compiled` are also compiled; `seed` gives other cases

    Gradients are compared with differences beside which no kink lies, forward with reverse derivatives, the second
    derivative with differences of the first, the compiled outputs with the reference. The smallest failing case is
    raised as a CheckError (or returned, with raise_exception=False) with a snippet that shows it again.
    """
    __tracebackhide__ = True  # pytest shows the test and the report
    if not callable(op):
        raise TypeError(
            f"te.testing.check_op at {user_location()}: expected a function of tensors, found {type(op).__name__} "
            f"({op!r:.40})"
        )
    wanted = _checks(checks)
    rules = Rules(op, vjp, jvp)
    drawn = Arguments.of(op, arguments, named, sizes, _dtypes(dtypes))
    hunt = _Hunt(rules, wanted, is_described=bool(arguments or named), at_least=drawn.at_least)

    @seeded(seed)
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=False, report_multiple_bugs=False,
        print_blob=False, verbosity=Verbosity.quiet, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    @given(drawn.cases(max(1, examples // max(1, compiled))))
    def tried(case: SampledCall) -> None:
        if hunt.failed is None:
            step()
        hunt.on(case)

    with contextlib.suppress(_Found), counted(f"checking {rules.name}", examples, "case") as step:
        tried()
    report = hunt.report()
    if raise_exception and not report.ok:
        raise CheckError(report)
    return report


def check_case(
    op: Callable[..., Any],
    arrays: Mapping[str, np.ndarray[Any, Any]] | Sequence[np.ndarray[Any, Any]],
    *,
    static: Mapping[str, Any] | None = None,
    vjp: Any = None,
    jvp: Any = None,
    dtype: str = "float64",
    seed: int = 0,
    checks: Sequence[str] | None = None,
) -> CheckReport:
    """The checks of `check_op` on one call; raises CheckError if one fails. `seed` draws heads and directions.

    `arrays` are a dict by the parameters, or a sequence in their order without those that are `static`.
    """
    __tracebackhide__ = True
    wanted = () if checks is not None and tuple(checks) == ("trace",) else _checks(checks)
    rules = Rules(op, vjp, jvp)
    hunt = _Hunt(rules, wanted)
    try:
        hunt.on(SampledCall(_by_parameter(rules, arrays, static or {}), dict(static or {}), dtype, seed))
    except _Found:
        raise CheckError(hunt.report()) from None
    return hunt.report()


def _by_parameter(rules: Rules, arrays: Any, static: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a call by the parameters of the operator."""
    if isinstance(arrays, Mapping):
        return dict(arrays)
    what = f"te.testing.check_case at {user_location()}: arrays"
    names = [name for name in inspect.signature(rules.op).parameters if name not in static]
    listed = ", ".join(names)
    if not isinstance(arrays, (tuple, list)):
        raise TypeError(f"{what}: expected a sequence or a dict of arrays for {listed}, found {type(arrays).__name__}")
    if len(arrays) > len(names):
        raise ValueError(f"{what}: {rules.name} takes {listed}; found {len(arrays)} arrays")
    return dict(zip(names, arrays, strict=False))


def checked(*arguments: Any, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """A test that checks the operator it decorates; arguments as for `check_op`.

    @te.testing.checked("n m", radius=st.integers(1, 3))
    def test_blur(x, radius):
        return blur(x, radius)

    It may be a method of a test class. Fixtures and parameters of pytest belong to a test that calls `check_op` itself.
    """

    def decorator(op: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(op)
        def test(*instance: Any) -> None:
            check_op(MethodType(op, *instance) if instance else op, *arguments, **options)

        test.__signature__ = inspect.Signature()  # type: ignore[attr-defined] # pytest would look for fixtures
        del test.__wrapped__
        test.__checked__ = op  # type: ignore[attr-defined] # what check_case takes, so that a snippet may import the test
        return test

    return decorator


# What an operator or its rules may raise; hypothesis' own signals are none of these.
_RAISED = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError)


_OF_SIZES = (ArithmeticError, LookupError, ValueError)  # which may say that an extent is too small


class _Found(Exception):
    """Raised on a failing case, so that hypothesis makes it smaller."""


class _Hunt:
    """The cases tried so far, and the last that failed: the smallest, once hypothesis is done."""

    def __init__(
        self,
        rules: Rules,
        checks: Sequence[str],
        is_described: bool = True,
        at_least: Callable[[Mapping[str, Any]], list[str]] = lambda arrays: [],
    ) -> None:
        self.rules, self.is_described, self.at_least = rules, is_described, at_least
        self.checks = checks
        self.counts = dict.fromkeys(checks, 0)
        self.examples = 0
        self.stopped: list[str] = []  # why differences say nothing about the adjoints
        self.failed: tuple[str, SampledCall, Wrong] | None = None

    def on(self, case: SampledCall) -> None:
        """Every check; once one has failed, only that one is tried on smaller cases."""
        hunting = self.failed is not None
        self.examples += not hunting
        name = "trace"
        try:
            verdict = Verdict.on(self.rules, case)
            self.stopped = [*stopped(verdict.own.outputs)]
            for name in self._to_try(case):
                self.counts[name] += not hunting
                wrong = CHECKS[name](verdict)
                if wrong is not None:
                    break
            else:
                return
        except _RAISED as error:
            notes = [
                *getattr(error, "__notes__", ()),
                *(shape_hints(case.static, self.is_described) if name == "trace" else ()),
                *(size_hints(self.at_least(case.arrays)) if isinstance(error, _OF_SIZES) else ()),
            ]
            wrong = Wrong("\n  ".join([f"raised {type(error).__name__}: {error}", *notes]))
        self.failed = name, case, wrong
        raise _Found

    def _to_try(self, case: SampledCall) -> list[str]:
        names: Sequence[str] = self.checks
        if self.failed is not None and self.failed[0] in CHECKS:
            names = self.failed[:1]
        left_out = {*(() if case.compiled else COMPILED), *(() if case.second else ("second",))}
        left_out |= BY_DIFFERENCES if case.edge or self.stopped else set()
        return [n for n in names if n not in left_out]

    def report(self) -> CheckReport:
        if self.failed is None:
            return CheckReport(self.rules.name, self.examples, self.counts, notes=tuple(self.stopped))
        name, case, wrong = self.failed
        failure = Failure(name, case, wrong.message, snippet(self.rules, case, name), wrong.report)
        return CheckReport(self.rules.name, self.examples, self.counts, failure)


# Checks that are over before are not worth a bar.


def _checks(names: Sequence[str] | None) -> tuple[str, ...]:
    wanted = tuple(CHECKS) if names is None else (names,) if isinstance(names, str) else tuple(names)
    for name in wanted:
        if name not in CHECKS:
            known = ", ".join(CHECKS)
            raise ValueError(f"check_op at {user_location()}: there is no check {name!r}; those are {known}")
    return wanted


def _dtypes(names: Sequence[str]) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        if name not in ("float16", "bfloat16", "float32", "float64"):
            raise ValueError(f"check_op at {user_location()}: dtypes= are float types, found {name!r}")
    if not found:
        raise ValueError(f"check_op at {user_location()}: dtypes= is empty; name at least one float type")
    return found
