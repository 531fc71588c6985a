"""Property-based checks of operators: `te.testing.check_op(op)` draws cases and tries to prove the operator wrong."""

from __future__ import annotations

from tedsl.testing.arguments import ArraySpec, array
from tedsl.testing.check import check_case, check_op, checked
from tedsl.testing.report import CheckError, CheckReport, Failure
from tedsl.testing.verdicts import CHECKS

__all__ = ["CHECKS", "ArraySpec", "CheckError", "CheckReport", "Failure", "array", "check_case", "check_op", "checked"]
