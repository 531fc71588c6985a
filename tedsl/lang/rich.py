"""How the objects of the library show themselves in a notebook, without knowing how.

Pages are made by `tedsl.display`, which knows every class and so lies above all of them. It is found by its name when a
notebook asks for a page: the one place where something below reaches up, and nothing that computes depends on it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Rich", "RichFormula"]

DISPLAY = "tedsl.display"


class Rich:
    """An object that has a page."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """The page that a notebook shows."""
        return _display().html(self)  # type: ignore[no-any-return]

    def _repr_latex_(self) -> str | None:
        """The formulas, or None where text reads better."""
        return _display().latex(self)  # type: ignore[no-any-return]


class RichFormula:
    """An object that has a formula."""

    __slots__ = ()

    def _repr_latex_(self) -> str | None:
        """The formula that a notebook sets, or None where its text reads better."""
        return _display().latex(self)  # type: ignore[no-any-return]


def _display() -> Any:
    return import_module(DISPLAY)
