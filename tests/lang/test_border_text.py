"""Reads beyond a border are written as they were said, and what is written makes the same node again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

import tedsl as te

N = te.var("n")
X, LINE = te.placeholder((6, 5), name="x"), te.placeholder((N,), name="line")
MODES = st.sampled_from(["clamp", "reflect", "wrap", "zero"])
SHIFTS = st.sampled_from(
    [lambda i: i, lambda i: i - 1, lambda i: 2 * i + 3, lambda i: 4 - i, lambda i: i % 3, lambda i: i // 2]
)


@given(MODES, SHIFTS, SHIFTS)
def test_the_text_makes_the_same_node(mode: str, rows: Any, columns: Any) -> None:
    def body(i: Any, j: Any) -> Any:
        for node in (X.at(rows(i), columns(j), mode=mode), LINE.at(rows(i), mode=mode), X.at(rows(j), 2, mode=mode)):
            text = str(node)
            assert eval(text, {"te": te, "x": X, "line": LINE, "i": i, "j": j, "n": N}) is node
        assert f"mode='{mode}'" in str(LINE.at(i - 1, mode=mode))
        return X[i, j]

    te.compute((6, 5), body)


@given(st.tuples(MODES, MODES), SHIFTS, SHIFTS)
def test_the_text_of_a_mode_for_each_index_makes_the_same_node(modes: Any, rows: Any, columns: Any) -> None:
    def body(i: Any, j: Any) -> Any:
        node = X.at(rows(i), columns(j), mode=modes)
        assert eval(str(node), {"te": te, "x": X, "i": i, "j": j}) is node
        return X[i, j]

    te.compute((6, 5), body)
    said = str(te.compute((6, 5), lambda i, j: X.at(i // 2 - 1, 2 * j - 3, mode=modes)).op.bodies[0])
    assert f"mode={modes if modes[0] != modes[1] else modes[0]!r}" in said


@pytest.mark.parametrize(
    "body",
    [
        lambda i: LINE[te.minimum(te.maximum(i - 1, 1), N - 1)],  # from 1 on
        lambda i: LINE[te.maximum(te.minimum(i - 1, N - 1), 0)],  # the other way around
        lambda i: LINE[(i - 1) % 4],
        lambda i: te.select(i >= 1, LINE[i - 1], 0.0),
        lambda i: te.select((i - 1 >= 0) & (i - 1 < N), LINE[i - 1], 1.0),
        lambda i: te.select((i - 1 >= 0) & (i - 1 < N), LINE[i - 1], LINE[i]),
    ],
)
def test_what_only_looks_like_it_is_written_out(body: Any) -> None:
    assert ".at(" not in str(te.compute((N,), body).op.bodies[0])


def test_a_remainder_of_one_index_beside_others_is_a_remainder() -> None:
    x = te.placeholder((N, 6, 4), name="x")
    assert str(te.compute((N, 24), lambda i, j: x[i, j // 4, j % 4])).startswith("T[i, j] = x[i, j // 4, j % 4]")


def test_formulas_say_the_border_and_shared_parts_are_those_of_the_text() -> None:
    y = te.compute(
        (6, 5), lambda i, j: sum(X.at(i + k, j - k, mode="zero") * X.at(i, j - k, mode="clamp") for k in range(9))
    )
    text = te.display.program(y).text
    assert "minimum" not in text
    assert "&" not in text
    assert text.count("mode='zero'") == 8  # not that of k = 0
    for mode, told in (("clamp", "clamp"), (("clamp", "wrap"), "clamp, wrap")):
        assert rf"x\left[ i-1,\,j+1 \right]_{{\text{{{told}}}}}" in te.display.latex(
            te.compute((6, 5), lambda i, j, mode=mode: X.at(i - 1, j + 1, mode=mode))
        )
