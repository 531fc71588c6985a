"""The examples in README.md and in docstrings of index inversion say what the code does."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import autodiff

MODULES = [
    "integers.algebra", "integers.conditions", "inversion.invert", "integers.linear", "integers.polyhedra",
    "inversion.refine",
    "integers.simplex", "inversion.formulas", "symbolic.answer", "symbolic.bounds", "symbolic.places",
    "symbolic.tidy", "symbolic.tool",
]  # fmt: skip


def test_readme() -> None:
    readme = Path(autodiff.__file__).parent / "README.md"
    result = doctest.testfile(str(readme), module_relative=False)
    assert result.attempted > 10
    assert result.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"autodiff.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
