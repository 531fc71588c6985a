"""Expressions as Halide writes them, and their numbers, compared with what Halide computes of them."""

from __future__ import annotations

import random

import halide as hl
import numpy as np
import pytest

from tedsl.backend.halide_text.expressions import (
    HalideCall as Call,
    HalideName as Name,
    Let,
    Text,
    UnreadableError,
    arguments_of,
    read_expression,
    read_first,
)
from tedsl.backend.halide_text.values import Value, value_of

# What Halide 21 writes, and what it says.
GOLDEN = {
    "a.extent.0.required.s": Name("a.extent.0.required.s"),
    "te_nothing$14.min.0": Name("te_nothing$14.min.0"),
    "(t7 + 64) <= -2": Call("<=", (Call("+", (Name("t7"), 64)), -2)),
    "-1 - x": Call("-", (-1, Name("x"))),
    "let t = min(z, 0) in (0 <= t)": Let("t", Call("min", (Name("z"), 0)), Call("<=", (0, Name("t")))),
    "!(uint1)f((struct halide_buffer_t *)a.buffer) || b": Call("||", (
        Call("!", (Call("cast", (Text("uint1"), Call("f", (
            Call("cast", (Text("struct halide_buffer_t *"), Name("a.buffer"))),
        )))),)), Name("b"),
    )),
    "reinterpret<(void *)>((uint64)0) != cuda[0]": Call("!=", (
        Call("reinterpret<(void *)>", (Call("cast", (Text("uint64"), 0)),)), Call("cuda[]", (0,)),
    )),
    '(float64)floor_f64(-16.500000)': Call("cast", (Text("float64"), Call("floor_f64", (Text("-16.500000"),)))),
    'g("a, b)", inf.x)': Call("g", (Text('"a, b)"'), Name("inf.x"))),
}  # fmt: skip
DEEP = "(" * 60 + "a" + ")" * 60
OTHER = ["", "a +", "a + b + c", "f(a", "a b", '"', "-x", "(a", "a ? b", "let 3", "let x = 1 in", DEEP]


@pytest.mark.parametrize("said", GOLDEN)
def test_what_halide_writes_is_read(said: str) -> None:
    assert read_expression(said) == GOLDEN[said]
    assert read_first(f"{said}, halide_error_x(1)") == GOLDEN[said]


@pytest.mark.parametrize("said", OTHER)
def test_what_is_not_understood_is_refused(said: str) -> None:
    with pytest.raises(UnreadableError, match=r"expected, found|within one another"):
        read_expression(said)


def test_arguments_need_not_be_known() -> None:
    text = 'run(c[0], "k, (", min(n, 4), &x ? 1, (void *)make_struct((int64)8, 2), 7) + 1'
    assert list(arguments_of(text, 4)) == [
        "c[0]",
        '"k, ("',
        "min(n, 4)",
        "&x ? 1",
        "(void *)make_struct((int64)8, 2)",
        "7",
    ]


def drawn(rng: random.Random, leaves: list[hl.Expr], depth: int) -> hl.Expr:
    if depth == 0 or rng.random() < 0.1:
        return rng.choice([*leaves, hl.i32(rng.randint(-4, 4))])
    a, b, c, d = (drawn(rng, leaves, depth - 1) for _ in range(4))
    return rng.choice([
        lambda: a + b, lambda: a - b, lambda: a * b, lambda: a / b, lambda: a % b, lambda: hl.min(a, b),
        lambda: hl.max(a, b), lambda: hl.select((a < b) & (c != d), a, c), lambda: hl.likely(a),
        lambda: hl.select((a >= b) | hl.logical_not(c <= d), b, d),
        lambda: hl.select((a == b) | (c > d), c, a), lambda: hl.cast(hl.Int(32), hl.cast(hl.Int(64), a)),
    ])()  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
def test_numbers_are_those_that_halide_computes(seed: int) -> None:
    """Quotients and remainders by any sign and by zero among them."""
    rng = random.Random(seed)
    x, y = hl.Var("x"), hl.Var("y")
    leaves = [hl.Expr(x) - 3, hl.Expr(y) - 2]
    made = [drawn(rng, leaves, 3) for _ in range(25)]
    func = hl.Func("func")
    func[x, y] = hl.Tuple([hl.cast(hl.Int(32), e) for e in made])
    for e, buffer in zip(made, func.realize([7, 5]), strict=True):
        root = read_expression(str(e)[len("<halide.Expr of type int32: ") : -1])
        for i, j in np.ndindex(7, 5):
            names: dict[str, Value] = {"x": i, "y": j}
            assert value_of(root, names.get, lambda call: None) == buffer[i, j], str(e)


@pytest.mark.parametrize(("said", "value"), [
    ("u && (1 < 0)", False), ("(0 <= 1) || u", True), ("u || (1 < 0)", None), ("u && (0 <= 1)", None),
    ("select(u, 3, 3)", 3), ("select(u, 3, 4)", None), ("u*0", None), ("2147483647 + 1", None),
    ("(2147483647 + 1) - 1", None), ("(uint32)3", None), ("int64(3)", 3), ("(float64)3", None), ("1.500000", None),
    ("abs(3)", None), ("let u = 2 in (u*u)", 4), ("let u = v in (u*2)", None), ("!u", None), ("!(1 < 0)", True),
    ("(int64)2147483647", 2**31 - 1), ("unsafe_promise_clamped(2, 0, 7)", 2), ("f(1)", 11), ("(uint1)f(1)", 11),
])  # fmt: skip
def test_what_is_not_known_is_unknown(said: str, value: Value) -> None:
    found = value_of(read_expression(said), lambda name: None, lambda call: 11 if call.name == "f" else None)
    assert found == value
    assert type(found) is type(value)
