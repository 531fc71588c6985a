"""Reverse- and forward-mode derivatives of tensor programs, as tensor programs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autodiff.checking import PairReport, Report, gradcheck
    from autodiff.forward import hvp, jvp
    from autodiff.result import Explanation, Gradients, ReadReport
    from autodiff.reverse import differentiate, vjp
    from autodiff.symbolic.answer import IndexInversion
    from autodiff.symbolic.tool import invert

__all__ = [
    "Explanation", "Gradients", "IndexInversion", "PairReport", "ReadReport", "Report", "differentiate", "gradcheck",
    "hvp", "invert", "jvp", "strategies", "vjp",
]  # fmt: skip

# Public name -> the module that defines it, imported on first use.
_HOME = {
    "Explanation": "result", "Gradients": "result", "ReadReport": "result", "PairReport": "checking",
    "Report": "checking", "gradcheck": "checking", "hvp": "forward", "jvp": "forward", "differentiate": "reverse",
    "vjp": "reverse", "invert": "symbolic.tool", "IndexInversion": "symbolic.answer",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "strategies":
        return importlib.import_module("autodiff.strategies")
    if name not in _HOME:
        raise AttributeError(f"module 'autodiff' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"autodiff.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
