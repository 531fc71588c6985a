"""Versions without importlib.metadata."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from tedsl.backend.host.versions import version_of


@pytest.mark.parametrize("package", ["halide", "llvmlite", "numpy"])
def test_versions_are_those_that_are_installed(package: str) -> None:
    assert version_of(package) == importlib.metadata.version(package)


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        version_of("no_such_package")


SELDOM = (  # slow to load
    "importlib.metadata", "html", "subprocess", "concurrent.futures", "logging", "sympy", "autodiff",
    "tedsl.backend.sequence.along_time", "tedsl.backend.sequence.step_by_step",
    "tedsl.backend.sequence.memory_limit",
)  # fmt: skip


def test_a_first_kernel_loads_what_it_needs() -> None:
    code = (
        "import sys, tedsl as te\n"
        "te.evaluate(te.compute((8,), lambda i: i + 1))\n"
        f"assert not [name for name in {SELDOM!r} if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
