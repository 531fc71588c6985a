"""`gradcheck`: adjoints against central differences, with a report that explains itself."""

from __future__ import annotations

from autodiff.checking.differences import gradcheck
from autodiff.checking.report import PairReport, Report

__all__ = ["PairReport", "Report", "gradcheck"]
