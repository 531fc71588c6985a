"""The text of expressions is Python that rebuilds them; the text of programs reads like the mathematics."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pytest

import tedsl as te
from tedsl.lang.expr import Apply, Const, Fn
from tedsl.lang.functions import as_expr
from tedsl.lang.printing import program_text
from tedsl.lang.scalar_text import brief
from tests.work import calls_in

n = te.var("n")
A = te.placeholder((n, 64), name="A")
B = te.placeholder((64, n), name="B")
D = te.placeholder((n,), "float64", name="D")
P = te.placeholder((n,), "int32", name="P")
Q = te.placeholder((n,), "int8", name="Q")
F = te.placeholder((n,), "bool", name="F")
s = te.placeholder((), name="s")
i, j = te.reduce_axis(n, "i"), te.reduce_axis(64, "j")
k = te.reduce_axis(64, "k")
NAMES: dict[str, Any] = {
    "te": te, "A": A, "B": B, "D": D, "P": P, "Q": Q, "F": F, "s": s, "i": i, "j": j, "k": k, "n": n,
    "inf": math.inf, "nan": math.nan,
}  # fmt: skip

# Written as the text that is expected.
TEXTS = [
    "A[i, k] * B[k, j]",
    "te.sum(A[i, k] * B[k, j], axis=k)",
    "te.max(A[i, k], axis=k, where=A[i, k] > 0.0)",
    "te.argmin(A[i, j], axis=(i, j))",
    "te.select(i == 0, A[i, 0], -A[i - 1, j])",
    "te.cast(P[i], 'float64') + D[i]",
    "te.exp(A[i, j]) / (1.0 + te.exp(A[i, j]))",
    "A[i, j] - (A[i, k] - 1.0)",
    "A[i, j] - A[i, k] - 1.0",
    "(A[i, j] + 1.0) * 2.0",
    "-(A[i, j] + 1.0)",
    "-A[i, j] ** 2.0",
    "(-A[i, j]) ** 2.0",
    "A[i, j] ** A[i, k] ** 2.0",
    "(A[i, j] ** A[i, k]) ** 2.0",
    "A[i, j] * -0.0",
    "A[i, j] + inf",
    "A[i, j] - -inf",
    "A[i, j] + 0.1",
    "A[i, j] * 1e-30",
    "D[i] + 0.1",
    "(i + 3) // 2 % 4",
    "i // (2 * j)",
    "(i < 3) & (j > 2) | F[i]",
    "~((i < 3) & F[i])",
    "(i < 3) & ((j > 2) | F[i])",
    "(i < 3) == F[i]",
    "P[i] << 2 & 7 ^ P[j] | ~P[k]",
    "P[P[i] % 5]",
    "Q[i] + Q[j]",
    "Q[i] * 2",
    "s[()] + A[0, 1]",
    "te.minimum(A[i, j], 0.0)",
    "te.clip(A[i, j], -1.0, 1.0)",
    "te.isnan(A[i, j])",
    "te.select(F[i], 1.0, 0.0)",
    "te.select(F[i], te.const(1, 'int64'), te.const(0, 'int64'))",
    "te.const(2.0, 'float64') ** te.const(0.5, 'float64')",
    "i < n - 1",
    "n * 2 + 1",
    "te.any(F[i], axis=i)",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_python_that_rebuilds_the_expression(text: str) -> None:
    expr = eval(text, NAMES)
    assert str(expr) == text
    assert eval(str(expr), NAMES) is expr


def test_random_expressions_read_back_as_the_same_object() -> None:
    rng = random.Random(1)
    binary = [Fn.ADD, Fn.SUB, Fn.MUL, Fn.DIV, Fn.POW, Fn.MINIMUM, Fn.FLOORDIV, Fn.MOD, Fn.ATAN2]
    unary = [Fn.NEG, Fn.EXP, Fn.ABS, Fn.RELU, Fn.FLOOR]
    for _ in range(300):
        pool: list[Any] = [A[i, j], A[i, k], D[i], P[j], Q[i], i, j, s[()], 2, 0.5, -1.5, te.const(3, "int64")]
        for _ in range(12):
            a, b = rng.choice(pool), rng.choice(pool)
            if rng.random() < 0.2:
                made = te.select(te.logical_not(te.cast(a, "float32") < b) | F[i], a, b)
            elif rng.random() < 0.3:
                made = te.sin(a) if rng.random() < 0.5 else te.Expr._apply(rng.choice(unary), a)
            else:
                made = te.Expr._apply(rng.choice(binary), a, b)
            pool.append(made)
        expr = pool[-1]
        lines = str(expr).split("\n")
        names = dict(NAMES)
        for line in lines[:-1]:
            name, _, value = line.partition(" = ")
            names[name] = eval(value, names)
        assert as_expr(eval(lines[-1], names)) is as_expr(expr), str(expr)


def test_unlike_things_of_one_name_get_different_names() -> None:
    other, again = te.placeholder((n, 64), name="A"), te.reduce_axis(5, "i")
    assert str(A[i, j] + other[i, j] + A[again, j]) == "A[i, j] + A_1[i, j] + A[i_1, j]"


def test_shared_parts_are_named_and_text_stays_linear() -> None:
    expr = A[i, j]
    for _ in range(200):
        expr = expr * expr + 1.0
    lines = str(expr).split("\n")
    assert len(lines) == 200
    assert lines[0] == "t0 = A[i, j] * A[i, j] + 1.0"
    assert lines[-1] == "t198 * t198 + 1.0"


def test_deep_expressions_print_without_recursion() -> None:
    def sum_of(count: int) -> te.Expr:
        expr = A[i, j]
        for _ in range(count):
            expr = expr + 1.0
        return expr

    few, many = sum_of(5_000), sum_of(20_000)
    assert calls_in(lambda: str(many)) < 5 * calls_in(lambda: str(few))
    assert str(many).count(" + 1.0") == 20_000


def test_repr_adds_the_dtype() -> None:
    assert repr(D[i] + 1) == "D[i] + 1.0 : float64"
    assert repr(A) == "A : float32[n, 64]"


def test_constants() -> None:
    assert str(te.const(1, "int8")) == "te.const(1, 'int8')"
    assert str(te.const(True)) == "True"
    assert str(te.const(0.1, "float32")) == "0.1"
    assert str(te.const(math.nan, "float32")) == "nan"
    assert str(Apply(Fn.NEG, (Const(2.0, te.const(0.0).dtype),), te.const(0.0).dtype)) == "-te.const(2.0, 'float32')"


def matmul() -> te.Tensor:
    return te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


DEFINITIONS: list[tuple[Any, str]] = [
    (matmul, "C[i, j] = sum(k < 64) A[i, k] * B[k, j]   for i < n, j < n"),
    (lambda: te.compute((3,), lambda i: te.exp(D[i]) * 2, name="y"), "y[i] = exp(D[i]) * 2.0   for i < 3"),
    (
        lambda: te.compute((n,), lambda i: te.max(A[i, k], axis=k, where=k > i), name="y"),
        "y[i] = max(k < 64, where k > i) A[i, k]   for i < n",
    ),
    (lambda: te.compute((), lambda: te.sum(lambda k: D[k]), name="t"), "t = sum(k < n) D[k]"),
    (lambda: te.compute((2,), lambda i: te.sum(D[i + (r := te.reduce_axis((1, 4), "r"))], axis=r), name="y"),
     "y[i] = sum(1 <= r < 4) D[i + r]   for i < 2"),
    (lambda: te.compute((2,), lambda i: (D[i], P[i]), name=("u", "v"))[0], "u[i], v[i] = D[i], P[i]   for i < 2"),
    (
        lambda: te.scan((n,), lambda y, t: te.select(t == 0, 0.0, y[t - 1] * 0.5 + A[t, 0]), name="y"),
        "y[t] = select(t == 0, 0.0, y[t - 1] * 0.5 + A[t, 0])   for t < n in order",
    ),
    (
        lambda: te.scan((n,), lambda y, t: te.select(t == n - 1, D[t], y[t + 1]), reverse=True, name="y"),
        "y[t] = select(t == n - 1, D[t], y[t + 1])   for t < n downward",
    ),
    (
        lambda: te.scatter((5,), [i], P[i], D[i], where=F[i], name="out"),
        "out : float64[5] = 0.0; out[P[i]] += D[i]   for i < n, where F[i]",
    ),
    (
        lambda: te.scatter((n,), [i], P[i], D[i], op="max", init=D, name="out"),
        "out : float64[n] = D; out[P[i]] max= D[i]   for i < n",
    ),
    (lambda: te.extern(sorted, (n,), "float64", [D], name="e"), "e : float64[n] = sorted(D)"),
    (lambda: A, "A : float32[n, 64]"),
    (lambda: s, "s : float32[]"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "text"), DEFINITIONS, ids=[t for _, t in DEFINITIONS])
def test_definitions(make: Any, text: str) -> None:
    assert str(make()) == text


def test_custom_reducers_show_what_they_combine() -> None:
    best = te.reducer(lambda a, b: (te.maximum(a[0], b[0]), te.select(a[0] >= b[0], a[1], b[1])), (-math.inf, 0))
    value, _ = te.compute((n,), lambda i: best((A[i, k], k), axis=k), name=("value", "place"))
    assert str(value) == (
        "value[i], place[i] = best(k < 64) (A[i, k], k)   for i < n\n"
        "    with best((a0, a1), (b0, b1)) = (maximum(a0, b0), select(a0 >= b0, a1, b1)), identity (-inf, 0)"
    )


def test_programs_list_every_stage_once_under_unique_names() -> None:
    c = matmul()
    total = (c * 2 - c * 3).sum(0)
    assert program_text([total, c]).split("\n") == [
        "A : float32[n, 64]",
        "B : float32[64, n]",
        "C[i, j] = sum(k < 64) A[i, k] * B[k, j]   for i < n, j < n",
        "mul[i, j] = C[i, j] * 2.0   for i < n, j < n",
        "mul_1[i, j] = C[i, j] * 3.0   for i < n, j < n",
        "sub[i, j] = mul[i, j] - mul_1[i, j]   for i < n, j < n",
        "total[i] = sum(r < n) sub[r, i]   for i < n",
    ]
    assert program_text(c) == program_text([c])


def test_large_bodies_name_their_shared_parts() -> None:
    def body(i: Any) -> Any:
        value = D[i]
        for _ in range(8):
            value = value * value + 1.0
        return value

    first, *rest = str(te.compute((n,), body, name="y")).split("\n")
    assert first == "y[i] = t6 * t6 + 1.0   for i < n"
    assert rest[0] == "    with t0 = D[i] * D[i] + 1.0"
    assert len(rest) == 7


def is_balanced(text: str) -> bool:
    depth = 0
    for sign in re.findall(r"[()\[\]]", text):
        depth += 1 if sign in "([" else -1
        assert depth >= 0, text
    return depth == 0


def test_a_long_line_is_cut_where_operands_end() -> None:
    def steps(i: Any) -> Any:
        return sum((D.at(i * k, mode="wrap") * float(k) for k in range(2, 30)), start=D[i])

    def inside(i: Any) -> Any:
        value = D[i]
        for _ in range(50):
            value = te.sin(value * 0.5)
        return value

    def step(u: Any, t: Any, i: Any) -> Any:
        return te.select(t == 0, 0.0, sum((te.exp(u[t - 1, i] * k) - 0.3 * u[t - 1, i] for k in range(12)), start=D[i]))

    for tensor in (
        te.compute((n,), steps, name="y"), te.compute((n,), inside, name="y"), te.scan((9, n), step, name="y"),
        te.compute((n,), lambda i: te.select(inside(i) > 0, steps(i), 1.0), name="y"),
    ):  # fmt: skip
        shown, whole = str(tensor).split("\n")[0], program_text(tensor).split("\n")[1]
        assert len(whole) > 320 >= len(shown)
        begin, end = shown.split("…")
        assert whole.startswith(begin)
        assert whole.endswith(end)
        assert is_balanced(shown)
        assert begin.endswith(("(", " + ", " - ", " * ", ", "))
        assert end.startswith((")", " + ", " - ", " * ", ", "))
        assert end.endswith(", i < n" if tensor.ndim == 2 else "   for i < n")


def test_a_long_index_in_a_message_is_cut_where_operands_end() -> None:
    idx, i = te.placeholder((8,), "int32", name="a_long_name_of_places"), te.reduce_axis(8, "i")
    place = idx[i] * 3 + idx[7 - i] * (i - 4) // 2 - te.minimum(idx[i], idx[te.maximum(i - 1, 0)])
    assert brief(te.clip(place, 0, 7)) == "te.clip(a_long_name_of_places[i] * 3 + …, 0, 7)"
    assert brief(te.clip(idx[i], 0, 7)) == "te.clip(a_long_name_of_places[i], 0, 7)"


def test_a_long_formula_is_printed_by_its_first_parts() -> None:
    """A number drawn at random has fifty shared parts, of which nobody reads one."""
    key = te.placeholder((2,), "uint32", name="key")
    y = te.random.normal(key, (3,))
    shown, whole = str(y).split("\n"), program_text(y).split("\n")[1:]
    assert len(whole) > 40
    assert shown[1:5] == whole[1:5]
    assert shown[5] == f"    ... and {len(whole) - 5} more shared parts: te.display.program(...).text has them all"
    assert max(map(len, shown)) <= 320
    program = te.display.program(y)
    assert program.text.split("\n")[1:] == whole
    assert repr(program).split("\n")[1:] == shown


def test_what_an_error_shows_is_cut_where_one_sees_it() -> None:
    x = te.placeholder((4, 4), name="x")
    mask = te.compute((4, 4), lambda i, j: x[i, j] > 0.5, name="mask")
    with pytest.raises(TypeError, match=r"Tensor `mask : bool\[4, 4\]` is no index"):
        x[mask]
    steps = te.placeholder((7,), name="steps")
    with pytest.raises(TypeError, match=r"found `[^`]{50,56} \.\.\.`"):
        te.scan([(4, 7)], lambda u, t: sum(steps[k] * (t + k) for k in range(7)))


def test_listings_are_tidy_and_the_text_that_rebuilds_is_as_written() -> None:
    x = te.placeholder((64, 96), name="x")
    y = te.compute((64, 80), lambda i, j: sum(x[i, j + k + 2 - 1] for k in range(3)), name="y")
    assert str(y) == "y[i, j] = x[i, j + 1] + x[i, j + 2] + x[i, j + 3]   for i < 64, j < 80"
    assert str(y.op.bodies[0]).startswith("0.0 + x[i, j + 2 - 1] + ")
    assert "0+" not in y._repr_latex_()
    assert "j+3" in y._repr_latex_()
    z = te.compute((64, 96), lambda i, j: x.at(i, j + 1 - 4, mode="zero") + 0.0 - 0.0, name="z")
    assert str(z) == "z[i, j] = x.at(i, j - 3, mode='zero')   for i < 64, j < 96"
    u = te.compute((9,), lambda i: x[i + 3 - 3, 5 - 5 + i + 4 - 6 + 2], name="u")
    assert str(u) == "u[i] = x[i, i]   for i < 9"
    product = te.compute(
        (9,), lambda i: 1.0 * (1.0 - x[i, i]) * 1 + math.prod(x[i, k] for k in range(2)), name="product"
    )
    assert str(product) == "product[i] = 1.0 - x[i, i] + x[i, 0] * x[i, 1]   for i < 9"
    assert str(product.op.bodies[0]).startswith("1.0 * (1.0 - x[i, i]) * 1.0 + ")
    assert r"1 \cdot" not in product._repr_latex_()
    ones = te.compute((9,), lambda i: 1.0 * te.cast(1.0, "float32") + te.cast(i, "float32") * 1, name="ones")
    assert str(ones) == "ones[i] = 1.0 + cast(i, 'float32')   for i < 9"
    whole = te.compute((9,), lambda i: 0 - x[i, i] + (i - 0), name="whole")
    assert str(whole) == "whole[i] = 0.0 - x[i, i] + cast(i, 'float32')   for i < 9"
