"""What Halide writes of loops."""

from __future__ import annotations

import os

import pytest

import tedsl as te
from tedsl.backend.scheduling.halide_words import loop_nest_text


class Loud:
    """A function of Halide that warns, as Halide does, of what a kernel rules out before its loops begin."""

    def print_loop_nest(self) -> None:
        print("Warning: This pipeline is guaranteed to fail an assertion at runtime:")
        os.write(2, b"produce out:\n  for i:\n    out(...) = ...\n")


def test_loops_are_told_without_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    assert loop_nest_text([Loud()]) == "produce out:\n  for i:\n    out(...) = ..."
    assert capsys.readouterr() == ("", "")


def test_what_several_results_need_is_told_once() -> None:
    a = te.placeholder((64,), name="a")
    b = te.exp(a)
    text = te.build(a, [b, b.sum(), b / b.sum()]).loop_nest()
    assert text.count("produce b:") == 1
    assert text.count("produce b_sum:") == 1
