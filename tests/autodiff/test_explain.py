"""What `explain()` prints: reads in the words of the definitions that print, told apart, in a width that fits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.columns import in_columns

WIDE = 120


def table_of(explanation: Any) -> list[str]:
    """The lines of the table, without those below it."""
    lines = str(explanation).split("\n")
    first = next((k for k, line in enumerate(lines) if " reads " in line or " is zero: " in line), len(lines))
    return lines[:first]


def cells(explanation: Any) -> str:
    """The words of the column of reads, with the lines of each cell as one."""
    lines = table_of(explanation)
    begin, end = lines[0].index("read"), lines[0].index("adjoint is a")
    return " ".join(" ".join(line[begin:end].split()) for line in lines[1:])


def looked_up(corners: int) -> Any:
    """A table read at places that are made of data, by loops that are all called k."""
    image, table = te.placeholder((6, 5, 3), name="I"), te.placeholder((9,) * corners, name="L")

    def value(i: Any, j: Any) -> Any:
        places = [te.minimum(te.floor(te.clip(image[i, j, c], 0.0, 1.0) * 8.0), 7.0) for c in range(corners)]
        loops = [te.reduce_axis(2, name="k") for _ in range(corners)]
        at = tuple(te.minimum(te.cast(p, "int32") + k, 8) for p, k in zip(places, loops, strict=True))
        return te.sum(table[at], axis=loops)

    return te.compute((6, 5), value, name="y"), image, table


@pytest.mark.parametrize("corners", [1, 2, 3])
def test_axes_of_one_name_are_called_as_in_the_definition(corners: int) -> None:
    y, image, table = looked_up(corners)
    told = te.differentiate(y.sum(), [image, table]).explain()
    own = ["k", "k_1", "k_2"][:corners]
    for name in own:
        assert re.search(rf"\b{name} < 2", str(y))
        assert re.search(rf"\+ {name}, 8\)", cells(told)), name
    assert "te." not in str(told).replace("te.where", "")
    assert max(map(len, table_of(told))) <= WIDE
    assert str(told).count("holds what I will hold") == corners
    (read,) = [r for r in told.reads if r.source is table]
    assert all(f"I[i, j, {c}]" in read.read for c in range(corners))  # whole, where one asks for it
    page = te.display.html(told)
    assert all(f"+ {name}, 8)" in page for name in own)


def test_what_differs_in_the_middle_of_long_indices_stays_different() -> None:
    x, n = te.placeholder((64,), name="x"), te.placeholder((8, 4), "int32", name="numbers")

    def far(i: Any, c: int) -> Any:
        e = n[i, c]
        for k in range(14):
            e = te.minimum(e * 2 + 1 + k, 63) if k % 2 else te.maximum(e, k)
        return e

    y = te.compute((8,), lambda i: x[far(i, 0)] + x[far(i, 1)] * x[far(i, 2)], name="y")
    told = te.differentiate(y.sum(), x).explain()
    rows = [told.row(r)[1] for r in told.reads if r.source is x]
    assert len(set(rows)) == 3
    assert max(map(len, table_of(told))) <= WIDE


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (lambda i: i + (-1), "i - 1"),
        (lambda i: i - 1, "i - 1"),
        (lambda i: 2 + i - 3, "2 + i - 3"),
        (lambda i: i + 1 - 2, "i - 1"),
        (lambda i: te.minimum(i * 2 + (-3), 7), "minimum(i * 2 - 3, 7)"),
    ],
)
@pytest.mark.parametrize("mode", ["clamp", "reflect", "wrap", "zero"])
def test_reads_beyond_a_border_print_alike(index: Any, text: str, mode: str) -> None:
    x = te.placeholder((4000,), name="x")  # of few elements what comes back is written out
    y = te.compute((4000,), lambda i: x.at(index(i), mode=mode), name="y")
    read = f"x.at({text}, mode='{mode}')"
    assert read in str(y)
    told = te.differentiate(y.sum(), x).explain()
    assert read in str(told)
    assert next(r for r in told.reads if r.source is x).read == read


def test_reads_of_scans_have_the_names_of_the_scan() -> None:
    x = te.placeholder((6, 4), name="x")
    u = te.scan(
        (6, 4), lambda u, t, i: te.select(t == 0, x[0, i], u.at(t - 1, i + (-1), mode="clamp") * x[t, i]), name="u"
    )
    told = te.differentiate(u.sum(), x).explain()
    assert "u.at(t - 1, i - 1, mode='clamp')" in str(told)
    assert "x[t, i]" in str(told)


def test_a_table_is_wrapped_where_it_is_wider_than_a_line() -> None:
    row = ["y", f"f({', '.join(f'argument_{k}[i, {k}]' for k in range(9))})", "why: " + "because of that " * 8]
    lines = in_columns([("consumer", "read", "why"), row], (1, 2))
    assert max(map(len, lines)) <= WIDE
    words = " ".join(" ".join(line.split()) for line in lines)
    assert all(f"argument_{k}[i, {k}]" in words for k in range(9))
    assert in_columns([("a", "b"), ("cc", "d")], (0,)) == ["a   b", "cc  d"]


def test_messages_write_a_negative_offset_as_one() -> None:
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i + (-1)])
    with pytest.raises(IndexError, match=r"index `i - 1` of dimension 0"):
        te.evaluate(y, {x: np.zeros(8, "f4")})
    assert str(y.op.bodies[0]) == "x[i + -1]"  # Python that makes this very sum
