"""`te.scan` as programs call it: refused where it is written, if it reads what is computed later, at any size."""

from __future__ import annotations

from tedsl.analysis.checks import refuse_present_steps
from tedsl.lang.scan import CHECKS, scan as scan

__all__ = ["scan"]

CHECKS.append(refuse_present_steps)
