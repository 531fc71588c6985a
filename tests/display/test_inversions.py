"""Pages of index inversions: the picture says where each point goes, the formulas are those of the answer."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import sympy
from sympy import Abs, And, Eq, Max, Min, Mod, Not, Or, Piecewise, ceiling, floor, symbols

import tedsl as te
from autodiff import IndexInversion, invert
from autodiff.symbolic.sample import sample_of
from tedsl.display.markup import MOST_BYTES
from tedsl.display.sympy_math import math_of
from tests.autodiff.inversion.test_invert import FIXED, SIZED
from tests.display.test_pages import text_of

c, h, i, j, k, r, w, x, y = symbols("c h i j k r w x y", integer=True)
a, m, n = symbols("a m n", integer=True)


@pytest.mark.parametrize("name", [*FIXED, *(f"{name} of sizes" for name in SIZED)])
def test_every_inversion_has_a_page(name: str) -> None:
    question, _ = FIXED[name] if name in FIXED else SIZED[name.removesuffix(" of sizes")]
    answer = invert(*question)
    page = answer._repr_html_()
    text_of(page)
    assert len(page.encode()) < MOST_BYTES
    assert "more parts do not fit" not in page


def cells(answer: IndexInversion) -> list[str]:
    return re.findall(r"<g class=\"te-cell[^>]*><title>([^<]*)</title>", answer._repr_html_())


def test_the_picture_says_where_each_point_goes() -> None:
    shown = cells(invert([2 * y + r - 1], {y: (0, 4), r: (0, 3)}, [9]))
    reached = {2 * y + r - 1 for y in range(4) for r in range(3)}
    points = [(y, r, 2 * y + r - 1) for y in range(4) for r in range(3)]
    expected = [f"y = {y}, r = {r}: {s}" if s >= 0 else f"y = {y}, r = {r}: reaches nothing" for y, r, s in points]
    assert shown == [*expected, *(f"s_0 = {s}" + ": not reached" * (s not in reached) for s in range(9))]


@pytest.mark.parametrize("rank", range(6))
def test_a_box_of_any_rank_is_laid_out_without_overlaps(rank: int) -> None:
    axes = symbols(f"a:{rank}", integer=True)
    answer = invert(list(axes), {s: (d, 2 + d % 2) for d, s in enumerate(axes)}, [rank + 2] * rank)
    places = re.findall(r"translate\((\d+),(\d+)\)", answer._repr_html_())
    sample = sample_of(answer, 200)
    assert sample is not None
    assert len(places) == len(set(places))
    assert {s: p for p, s in sample.reached.items()} == {p: p for p in sample.reached}
    assert len(sample.reached) == np.prod([2 + d % 2 for d in range(rank)])


def test_a_long_line_goes_on_in_the_next_row() -> None:
    rows = re.findall(r"translate\((\d+),(\d+)\)", invert([x], {x: (0, 64)}, [64])._repr_html_())
    assert len(rows) == len(set(rows)) == 128
    assert len({down for _, down in rows}) == 4


def crossed(page: str) -> list[str]:
    """The names and numbers beside the boxes of a picture that one of its lines goes through."""
    labels = re.findall(r'<text(?: class="te-sub")? x="([\d.]+)" y="([\d.]+)"([^>]*)>([^<]*)</text>', page)
    found = []
    for x, y, rest, text in labels:
        if y == "14" and "anchor" not in rest and "space" not in rest:  # within a cell
            continue
        width = 6.4 * len(text)
        left = float(x) - (width if '"end"' in rest else width / 2 if '"middle"' in rest else 0)
        found += [text for u, v in points_on_lines(page) if left < u < left + width and -9 < v - float(y) < 1]
    return found


def points_on_lines(page: str) -> list[tuple[float, float]]:
    found = []
    for path in re.findall(r'<path d="M([^"]*)"', page):
        begin, *curves = [np.array(part.split(), float).reshape(-1, 2) for part in path.split("C")]
        for curve in curves:
            p, q, r, s = *begin, *curve
            found += [
                (1 - t) ** 3 * p + 3 * (1 - t) ** 2 * t * q + 3 * (1 - t) * t**2 * r + t**3 * s
                for t in np.linspace(0, 1, 200)
            ]
            begin = curve[-1:]
    return [(float(u), float(v)) for u, v in found]


@pytest.mark.parametrize("name", [*FIXED, *(f"{name} of sizes" for name in SIZED)])
def test_lines_cross_no_label(name: str) -> None:
    question, _ = FIXED[name] if name in FIXED else SIZED[name.removesuffix(" of sizes")]
    assert crossed(invert(*question)._repr_html_()) == []


def test_a_crossed_label_is_found() -> None:
    line = '<path d="M0 20C0 20 40 0 40 0"/>'
    label = '<text class="te-sub" x="20.0" y="14.0" text-anchor="middle">7</text>'
    assert set(crossed(line + label)) == {"7"}
    assert crossed(line + label.replace("20.0", "60.0")) == []


def test_a_large_domain_is_cut_and_says_so() -> None:
    answer = invert([2 * y + r], {y: (0, 10**6), r: (0, 3)}, [2 * 10**6 + 2])
    page = answer._repr_html_()
    assert "the beginning of the domain" in page
    assert len(cells(answer)) == 8 * 3 + 17


def test_sizes_are_small_numbers_that_their_assumptions_allow() -> None:
    even = sympy.Symbol("b", integer=True, even=True, positive=True)
    answer = invert([x + a], {x: (0, n)}, [n + even])
    sample = sample_of(answer, 200)
    assert sample is not None
    assert sample.sizes[even] % 2 == 0
    assert f"at {', '.join(f'{s} = {v}' for s, v in sample.sizes.items())}" in answer._repr_html_()
    assert all(point[0] + sample.sizes[a] == s for point, (s,) in sample.reached.items())


def test_what_is_shown_beside_the_picture() -> None:
    page = invert([sympy.IndexedBase("rows")[k], j], {k: (0, 4), j: (0, 3)}, [5, 3])._repr_html_()
    assert "stays a scatter" in text_of(page)
    assert "the data is made up" in page
    assert "zero: no point reaches an element" in invert([x + 9], {x: (0, 3)}, [5])._repr_html_()
    assert "3 gathers" in invert([3 * y + r], {y: (0, 4), r: (0, 5)}, [14])._repr_html_()
    assert "def gather(values):" in text_of(invert([x], {x: (0, 3)}, [3])._repr_html_())


def test_the_formula_names_coordinates_and_elements_of_parts() -> None:
    text = text_of(invert([3 * y + r], {y: (0, 4), r: (0, 5)}, [14])._repr_html_()).replace("\u00a0", " ")
    assert "dS[3 · q0 + 1] += ∑[t0 < 2, 0 ≤ y < 4] g(y, r)   y = q0 − t0, r = 3 · t0 + 1, for q0 < 5" in text
    assert "dS[s0] += g(y, r)   y = ⌊s0 / 3⌋, r = 2, if s0 mod 3 = 2" in text


def test_conditions_are_ranges_and_those_of_the_domain_are_not_repeated() -> None:
    page = invert(
        [x + r - 1], {x: (0, 8), r: (0, 3)}, [8], [x + r - 1 >= 0, x + r - 1 < 8, x >= 0, x < 8]
    )._repr_html_()
    assert "s0 < 8, for x < 8, r < 3, 1 ≤ r + x < 9dS" in text_of(page).replace("\u00a0", " ")


FORMULAS: dict[str, Any] = {
    r"x+1-2\;y": x - 2 * y + 1,
    r"-x-y": -x - y,
    r"\left\lfloor \frac{x+1}{4} \right\rfloor": floor(x / 4 + sympy.Rational(1, 4)),
    r"\left\lceil \frac{x}{n} \right\rceil": ceiling(x / n),
    r"y+2\;\left( x\bmod 4 \right)": 2 * Mod(x, 4) + y,
    r"\left( x+y \right)\;\left( x-y \right)": (x + y) * (x - y),
    r"x^{2}": x**2,
    r"\operatorname{min}\left( x,\,y \right)": Min(x, y),
    r"\operatorname{max}\left( 0,\,x \right)": Max(x, 0),
    r"\left\lvert x \right\rvert": Abs(x),
    r"\begin{cases} x & x>1 \\ y & \text{otherwise} \end{cases}": Piecewise((x, x > 1), (y, True)),
    r"\left( x\bmod 2 \right)+1=y": Eq(Mod(x, 2) + 1, y),
    r"x>1\;\wedge \;y<2": And(x > 1, y < 2),
    r"x>1\;\wedge \;y<2\;\vee \;x=y": Or(And(x > 1, y < 2), Eq(x, y)),
    r"A\left[ x,\,y \right]": sympy.IndexedBase("A")[x, y],
}


@pytest.mark.parametrize("latex", FORMULAS)
def test_expressions_of_sympy_as_formulas(latex: str) -> None:
    made = math_of(FORMULAS[latex])
    assert made.latex() == latex
    text_of(f"<math>{made.mathml()}</math>")


def test_unknown_expressions_are_text() -> None:
    assert math_of(Not(sympy.Symbol("p"), evaluate=False)).latex() == r"\neg p"
    assert math_of(sympy.gamma(x)).latex() == r"\text{gamma(x)}"


def test_other_pages_do_not_import_sympy() -> None:
    code = "import sys, tedsl as te; te.compute((4,), lambda i: i * 2.0)._repr_html_(); print('sympy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr


def test_the_picture_writes_names_as_the_formula_does() -> None:
    alpha, word = sympy.Symbol("alpha", integer=True), sympy.Symbol("row_1", integer=True)
    page = invert([alpha, word], {alpha: (0, 3), word: (0, 2)}, [3, 2])._repr_html_()
    assert "α ↓   row_1 →" in page
    assert "s₀ ↓   s₁ →" in page


def test_names_are_escaped() -> None:
    hostile = sympy.Symbol("<img src=x>", integer=True)
    page = invert([hostile + n], {hostile: (0, 4)}, [4])._repr_html_()
    assert "<img" not in page
    assert te.display.html(invert([x], {x: (0, 3)}, [3])).startswith("<div")
