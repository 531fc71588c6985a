"""Formulas: what LaTeX a definition becomes, and that its MathML says the same."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

import tedsl as te
from autodiff.strategies import Program, programs
from tedsl.display.formula import TooLong, formula_of
from tedsl.lang.scalar_text import Names

n = te.var("n")
A, B = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
v = te.placeholder((8,), name="v")
K = te.reduce_axis(8, "k")
MEAN = te.reducer(lambda a, b: (a + b) / 2, 0.0)


def made(f: Callable[..., Any], shape: Any = (8,)) -> te.Tensor:
    return te.compute(shape, f, name="C")  # type: ignore[no-any-return]


FORMULAS = [
    (lambda: made(lambda i, j: te.sum(lambda k: A[i, k] * B[k, j]), (8, 8)),
     r"C_{i,\,j} &= \sum_{k=0}^{7} A_{i,\,k}\;B_{k,\,j} && i<8,\,j<8"),
    (lambda: made(lambda i: te.max(lambda k, m: A[k, m] * v[i])),
     r"C_{i} &= \operatorname*{max}_{k<8,\,m<8} A_{k,\,m}\;v_{i} && i<8"),
    (lambda: made(lambda i: te.select(i > 2, v[i], 0.0)),
     r"C_{i} &= \begin{cases} v_{i} & \text{if }i>2 \\ 0 & \text{otherwise} \end{cases} && i<8"),
    (lambda: made(lambda i: v.at(i - 1, mode="zero")),
     r"C_{i} &= v\left[ i-1 \right]_{\text{zero}} && i<8"),
    (lambda: made(lambda i: te.select(i - 1 >= 0, v[i - 1], 1.0)),
     r"C_{i} &= \begin{cases} v\left[ i-1 \right] & \text{if }i-1\ge 0 \\ 1 & \text{otherwise} \end{cases} && i<8"),
    (lambda: made(lambda i: v.at(i + 2 * te.cast(v[i], "int32"), mode="zero") * 0 + v[i]), None),
    (lambda: made(lambda i: (v[i] + 1) * (v[i] - 2) / te.sqrt(v[i])),
     r"C_{i} &= \frac{\left( v_{i}+1 \right)\;\left( v_{i}-2 \right)}{\sqrt{v_{i}}} && i<8"),
    (lambda: made(lambda i: v[i] - (v[i] - te.exp(-v[i]))),
     r"C_{i} &= v_{i}-\left( v_{i}-e^{-v_{i}} \right) && i<8"),
    (lambda: made(lambda i: v[(i * 2) // 3] ** 2 + te.abs(v[i % 4])),
     r"C_{i} &= v\left[ \left\lfloor \frac{2\;i}{3} \right\rfloor \right]^{2}+"
     r"\left\lvert v\left[ i\bmod 4 \right] \right\rvert && i<8"),
    (lambda: made(lambda i: te.tanh(v[i]) * 1e-7 + te.maximum(v[i], 0.5)),
     r"C_{i} &= 10^{-7}\;\operatorname{tanh}\left( v_{i} \right)+"
     r"\operatorname{max}\left( v_{i},\,0.5 \right) && i<8"),
    (lambda: made(lambda i: v.at(i + -1, mode="clamp") + -v[i] + -2.5e9),
     r"C_{i} &= v\left[ i-1 \right]_{\text{clamp}}"
     r"-v_{i}-2.5\cdot 10^{9} && i<8"),
    (lambda: made(lambda i: v[i] ** 2 + (v[i] + 1) ** v[i]),
     r"C_{i} &= v_{i}^{2}+\left( v_{i}+1 \right)^{v_{i}} && i<8"),
    (lambda: made(lambda i: (v[i] > 0) & ((v[i] < 1) | (v[i] > 2)) | ~(v[i] < 3)),
     r"C_{i} &= v_{i}>0\wedge \left( v_{i}<1\vee v_{i}>2 \right)\vee \neg \left( v_{i}<3 \right) && i<8"),
    (lambda: made(lambda i: ((i << 2) | (i & 3)) ^ (i + 1) // 2),
     r"C_{i} &= \left( \left( i\ll 2 \right)\mathbin{|}\left( i\mathbin{\&}3 \right) \right)\oplus "
     r"\left\lfloor \frac{i+1}{2} \right\rfloor && i<8"),
    (lambda: made(lambda i: te.sum(v[i - K], axis=K, where=(i >= K) & (v[0] > 0) & (i - 3 <= K))),
     r"C_{i} &= \sum_{\substack{k<8 \\ i-3\le k\le i \\ v_{0}>0}} v\left[ i-k \right] && i<8"),
    (lambda: made(lambda i: MEAN(A[i, K], axis=K)),
     r"C_{i} &= \operatorname*{MEAN}_{k<8} A_{i,\,k} && i<8 \\" "\n"
     r"\text{MEAN}\left( a,\,b \right) &= \frac{a+b}{2} && \text{of nothing: }0"),
    (lambda: te.compute((8,), lambda i: v[i], name="50% $ of_x"),
     r"{\text{50}\%\text{ }\$\text{ of}\_\text{x}}_{i} &= v_{i} && i<8"),
    (lambda: te.compute((n,), lambda alpha: te.cast(alpha, "float32"), name="conv_out"),
     r"\mathrm{conv\_out}_{\alpha} &= \operatorname{\mathrm{float32}}\left( \alpha \right) && \alpha<n"),
]  # fmt: skip


@pytest.mark.parametrize(("tensor", "expected"), FORMULAS)
def test_latex(tensor: Callable[[], te.Tensor], expected: str | None) -> None:
    found = te.display.latex(tensor())
    assert found is not None
    if expected is not None:
        assert found == f"$\\displaystyle \\begin{{aligned}}\n{expected}\n\\end{{aligned}}$"


def test_a_scan_and_a_scatter() -> None:
    y = te.scan((8,), lambda y, t: te.select(t == 7, v[7], y[t + 1] / 2), axis=0, reverse=True, name="y")
    assert r"t<8,\,t\text{ downward}" in str(te.display.latex(y))
    r = te.reduce_axis(8, "r")
    h = te.scatter((3,), [r], (r % 3,), v[r], op="max", name="h")
    assert r"h\left[ r\bmod 3 \right] &\mathrel{\text{max=}} v_{r} && r<8" in str(te.display.latex(h))


def test_an_expression() -> None:
    i = te.reduce_axis(8, "i")
    assert te.display.latex(v[i] + 1) == r"$\displaystyle v_{i}+1$"
    assert (v[i] + 1)._repr_latex_() == r"$\displaystyle v_{i}+1$"


def test_shared_parts_of_a_long_formula_have_lines_of_their_own() -> None:
    def body(i: te.Axis) -> te.Expr:
        e = te.tanh(v[i] * 2 + 1)
        for k in range(6):
            e = e * e + k
        return e

    assert r"t_{0} &=" in str(te.display.latex(made(body)))


def test_a_sum_that_is_too_wide_goes_on_below() -> None:
    wide = made(lambda i: sum((-1) ** k * te.exp(v[(i + k) % 8]) * (k + 2) for k in range(9)))
    first, *others = str(te.display.latex(wide)).splitlines()[1:-1]
    assert first.startswith("C_{i} &= ")
    assert first.endswith(r" \\")
    assert len(others) >= 1
    assert all(re.match(r" &[+-] ", line) for line in others)
    assert "i<8" in others[-1]
    assert "i<8" not in first
    narrow = made(lambda i: te.exp(v[i]) + v[i] - 1)
    assert len(str(te.display.latex(narrow)).splitlines()) == 3
    for tensor in (wide, narrow):
        assert (
            tensor._repr_html_().count("<mtr>")
            == str(te.display.latex(tensor)).count("&&") + len(str(te.display.latex(tensor)).splitlines()) - 3
        )


def test_what_is_too_long_is_left_to_text() -> None:
    def body(i: te.Axis) -> te.Expr:
        return sum((v[(i + k) % 8] * k for k in range(60)), te.const(0.0))

    C = made(body)
    assert te.display.latex(C) is None
    assert C._repr_latex_() is None
    assert "<pre>C[i] =" in C._repr_html_()


@settings(max_examples=40)
@given(programs())
def test_the_mathml_of_any_program_is_well_formed(program: Program) -> None:
    for tensor in program.outputs:
        try:
            table = formula_of(tensor.op, Names())
        except TooLong:
            continue
        ElementTree.fromstring(table.mathml())
        latex = table.latex()
        assert latex.count("{") - latex.count(r"\{") == latex.count("}") - latex.count(r"\}")
        assert latex.count(r"\left") - latex.count(r"\leftarrow") == latex.count(r"\right")


def unset(page: str) -> str:
    """What is left of a page where styles and all tags but those of tables and plain text are taken away."""
    page = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", "", page)).replace("\xa0", " ")


X, W = te.placeholder((8, 9), name="X"), te.placeholder((9,), name="W")
P, Q = te.reduce_axis(3, "p"), te.reduce_axis(3, "q")


@pytest.mark.parametrize(
    ("shape", "body", "text"),
    [
        ((8,), lambda i: te.sum(lambda k: X[i, k] * W[k]), "C[i] = ∑[k = 0 .. 8] X[i, k] · W[k]   i < 8"),
        (
            (6, 7), lambda i, j: te.sum(X[i + P, j + Q] * W[P], axis=(P, Q), where=P + Q < 4),
            "C[i, j] = ∑[p < 3, q < 3, p + q < 4] X[i + p, j + q] · W[p]   i < 6, j < 7",
        ),
        ((9,), lambda i: te.exp(-W[i]) / (1 + W[i] ** 2), "C[i] = e^(−W[i]) / (1 + W[i]^2)   i < 9"),
        ((9,), lambda i: (W[i] + 1) / te.sqrt(W[i] - 1), "C[i] = (W[i] + 1) / √(W[i] − 1)   i < 9"),
        (
            (9,), lambda i: te.select(i > 2, W.at(i - 1, mode="clamp"), 0.5),
            "C[i] = { W[i − 1][clamp] if i > 2; 0.5 otherwise }   i < 9",
        ),
        ((9,), lambda i: te.abs(W[i // 2]) - 3 * W[i], "C[i] = |W[⌊i / 2⌋]| − 3 · W[i]   i < 9"),
    ],
)  # fmt: skip
def test_without_styles_and_mathml_a_formula_is_left_as_text(shape: Any, body: Any, text: str) -> None:
    """As on sites that show notebooks of people whom they do not know."""
    C = te.compute(shape, body, name="C")
    assert text in unset(C._repr_html_())


def test_without_styles_lines_stay_apart() -> None:
    total = te.scan((9,), lambda u, t: te.select(t == 0, W[0], u[t - 1] * 0.5), name="total")
    wide = te.compute((9,), lambda i: sum(te.exp(W[(i + k) % 9]) * (k + 2) for k in range(9)), name="wide")
    assert unset(total._repr_html_()).startswith(f"{total}total float32[9] scan")
    assert len(re.findall(r"^ [=+] ", unset(wide._repr_html_()), re.MULTILINE)) >= 1
    nest = unset(te.Schedule(X.T @ X[:, 0])._repr_html_())
    assert "for " in nest


def test_a_sum_within_brackets_goes_on_below_and_remarks_do_where_nothing_else_is_wide() -> None:
    def near(i: te.Axis, j: te.Axis, k: int) -> te.Expr:
        return te.select((i >= k) & (j >= k), X[i - k, j - k], 0.0)

    inner = te.compute(
        (8, 9),
        lambda i, j: W[j] ** 2 * (near(i, j, 1) - near(i, j, 2) + near(i, j, 3) + W[j]),
        name="what_neighbors_of_a_place_give",
    )
    lines = str(te.display.latex(inner)).splitlines()[1:-1]
    assert len(lines) >= 2
    assert lines[0].replace(r"\left(", "").count("(") == 1  # it closes in a later one
    assert all("&-" in line or "&+" in line for line in lines[1:-1])
    assert r"\text{for }i<8" in lines[-1]
    text = unset(inner._repr_html_())
    assert text.count("(") == text.count(")")
    total = te.compute((), lambda: te.sum(lambda i, j: X[i, j] * (near(i, j, 1) - near(i, j, 2) + near(i, j, 3))))
    assert len(str(te.display.latex(total)).splitlines()) >= 4
