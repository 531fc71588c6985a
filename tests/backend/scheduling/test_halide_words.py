"""What Halide writes of loops."""

from __future__ import annotations

import os

import pytest

from tedsl.backend.scheduling.halide_words import loop_nest_text


class Loud:
    """A function of Halide that warns, as Halide does, of what a kernel rules out before its loops begin."""

    def print_loop_nest(self) -> None:
        print("Warning: This pipeline is guaranteed to fail an assertion at runtime:")
        os.write(2, b"produce out:\n  for i:\n    out(...) = ...\n")


def test_loops_are_told_without_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    assert loop_nest_text([Loud()]) == "produce out:\n  for i:\n    out(...) = ..."
    assert capsys.readouterr() == ("", "")
