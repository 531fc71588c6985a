"""Index inversion on the maps that programs are made of: right by enumeration, and no dearer than it must be."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product

import pytest

from autodiff.integers import budget
from autodiff.integers.budget import STEPS
from autodiff.integers.conditions import Choice, NonNegative, Not, Opaque, OpaqueIndex, Zero
from autodiff.integers.linear import Greatest, Least, Linear, floordiv, linear, mod, symbol
from autodiff.inversion import invert as inverting, parts, refine
from autodiff.inversion.domains import Inversion, Variable
from autodiff.inversion.invert import invert
from tests.autodiff.inversion.enumeration import Count, IndexMap, checked, forward_pairs

a, b, c, f, r, x, y, n = map(symbol, "abcfrxyn")


def index_map(
    boxes: dict[str, Linear | int], rows: list[Linear | int], shape: list[int], *conditions: Linear, **sizes: int
) -> IndexMap:
    variables = tuple(Variable(name, extent) for name, extent in boxes.items())
    return IndexMap(variables, tuple(map(linear, rows)), tuple(shape), tuple(map(NonNegative, conditions)), sizes)


def clamp(e: Linear, low: int, high: int) -> Linear:
    return symbol(Least(symbol(Greatest(e, linear(low))), linear(high)))


def reflect(e: Linear, extent: int) -> Linear:
    m = mod(e, 2 * (extent - 1))
    return symbol(Least(m, 2 * (extent - 1) - m))


def minus(e: Linear, most: int) -> Linear:
    """most - e >= 0."""
    return most - e


@pytest.mark.parametrize(("stride", "dilation", "taps"), list(product((1, 2, 3), (1, 2, 3), range(1, 6))))
def test_convolution_runs_as_often_as_forward(stride: int, dilation: int, taps: int) -> None:
    """Masked iterations lie at the border only: at most dilation * (taps - 1) elements at either end."""
    size = 30
    extent = stride * (size - 1) + dilation * (taps - 1) + 1
    count = checked(index_map({"f": 2, "y": size, "r": taps}, [stride * y + dilation * r], [extent]))
    assert count.useful == 2 * size * taps
    border = 2 * 2 * taps * dilation * (taps - 1)
    assert count.run - count.useful <= border


@pytest.mark.parametrize(("stride", "taps"), list(product((1, 2, 3), (3, 5))))
def test_padded_convolution(stride: int, taps: int) -> None:
    size, pad = 24, taps // 2
    i = stride * y + r - pad
    out = (size + 2 * pad - taps) // stride + 1
    count = checked(index_map({"f": 2, "y": out, "r": taps}, [i], [size], i, minus(i, size - 1)))
    assert count.masked <= 0.1
    count = checked(index_map({"y": out, "r": taps}, [r], [taps], i, minus(i, size - 1)))
    assert count.run == out * taps


def test_stride_two_sums_half_the_taps() -> None:
    even, odd = index_map({"y": 20, "f": 4, "r": 5}, [2 * y + r], [43]).invert().gathers
    assert [str(w) for _, w in even.loops] == ["3", "4"]
    assert [str(w) for _, w in odd.loops] == ["2", "4"]


def test_stride_one_keeps_the_kernel_axis() -> None:
    (g,) = index_map({"x": 8, "r": 3}, [x + r], [10]).invert().gathers
    assert str(g) == "sum t0 in [0, 3)\nz = (q0 - t0, t0)\nif q0 - t0 >= 0\nif -q0 + t0 + 7 >= 0"


EXACT = {
    "identity": index_map({"x": 9}, [x], [9]),
    "reverse": index_map({"x": 9}, [8 - x], [9]),
    "transpose": index_map({"x": 4, "y": 5}, [y, x], [5, 4]),
    "broadcast": index_map({"x": 4, "y": 5}, [x], [4]),
    "everything to one element": index_map({"x": 4, "y": 5}, [linear(0)], [1]),
    "down by two": index_map({"x": 10}, [floordiv(x, 2)], [5]),
    "upsample nearest": index_map({"x": 10, "y": 12}, [floordiv(x, 2), floordiv(y, 3)], [5, 4]),
    "flatten": index_map({"a": 120}, [floordiv(a, 30), mod(floordiv(a, 5), 6), mod(a, 5)], [4, 6, 5]),
    "unflatten": index_map({"a": 4, "b": 6, "c": 5}, [30 * a + 5 * b + c], [120]),
    "reshape (6, 4) to (8, 3)": index_map({"a": 8, "b": 3}, [floordiv(3 * a + b, 4), mod(3 * a + b, 4)], [6, 4]),
    "x + 4 y": index_map({"x": 4, "y": 4}, [x + 4 * y], [16]),
    "x + 4 y + 16 a": index_map({"x": 4, "y": 4, "a": 4}, [x + 4 * y + 16 * a], [64]),
    "x % 4, x // 4": index_map({"x": 16}, [mod(x, 4), floordiv(x, 4)], [4, 4]),
    "x % 4": index_map({"x": 16}, [mod(x, 4)], [4]),
    "wrap around": index_map({"x": 12, "r": 3}, [mod(x + r, 12)], [12]),
    "wrap backwards": index_map({"x": 12, "r": 3}, [mod(x - r, 12)], [12]),
    "wrap far": index_map({"x": 40}, [mod(x - 12, 5)], [5]),
    "reflect far": index_map({"x": 40}, [reflect(x - 12, 5)], [5]),
    "slice with a loop": index_map({"x": 10, "c": 4}, [3 * x + 50], [100]),
    "concatenated part": index_map({"x": 30, "c": 4}, [x - 10], [20], x - 10),
    "pool 2": index_map({"x": 7, "y": 7, "a": 2, "b": 2}, [2 * x + a, 2 * y + b], [14, 14]),
    "depth to space": index_map(
        {"x": 8, "y": 8, "c": 2}, [4 * c + 2 * mod(x, 2) + mod(y, 2), floordiv(x, 2), floordiv(y, 2)], [8, 4, 4]
    ),
    "diagonal with a loop": index_map({"x": 9, "c": 4}, [x, x], [9, 9]),
    "strided with a loop": index_map({"x": 9, "c": 4}, [2 * x + 1], [20]),
}


@pytest.mark.parametrize("name", EXACT)
def test_no_iteration_is_masked(name: str) -> None:
    count = checked(EXACT[name])
    assert count.run == count.useful


# Iterations run for each useful one; what is above 1 is the border, or a test of a single element without a loop.
BOUNDED = {
    "(x, x)": (index_map({"x": 4}, [x, x], [4, 4]), 4.0),
    "(x, x + 1)": (index_map({"x": 3}, [x, x + 1], [4, 4]), 16 / 3),
    "(x, 3 - x)": (index_map({"x": 4}, [x, 3 - x], [4, 4]), 4.0),
    "(x + r, x)": (index_map({"x": 10, "r": 3}, [x + r, x], [12, 10]), 4.0),
    "(x + y, x - y)": (index_map({"x": 4, "y": 4}, [x + y, x - y + 3], [7, 7]), 49 / 16),
    "x + y": (index_map({"x": 10, "y": 10}, [x + y], [19]), 1.9),
    "2 x + 1": (index_map({"x": 10}, [2 * x + 1], [20]), 2.0),
    "clamp": (index_map({"x": 32}, [clamp(x - 1, 0, 29)], [30]), 3 * 30 / 32),
    "clamped convolution": (index_map({"x": 30, "r": 3}, [clamp(x + r - 1, 0, 29)], [30]), 1.1),
    "clamped convolution, 2-D": (
        index_map({"x": 12, "y": 12, "a": 3, "b": 3}, [clamp(x + a - 1, 0, 11), clamp(y + b - 1, 0, 11)], [12, 12]),
        1.2,
    ),
    "reflected convolution": (index_map({"x": 30, "r": 5}, [reflect(x + r - 2, 30)], [30]), 1.1),
    "reflected convolution, 2-D": (
        index_map({"x": 12, "y": 12, "a": 3, "b": 3}, [reflect(x + a - 1, 12), reflect(y + b - 1, 12)], [12, 12]), 1.2,
    ),
    "transposed convolution": (
        IndexMap(
            (Variable("y", 60), Variable("r", 4)), (floordiv(y + 1 - r, 2),), (30,), (Zero(mod(y + 1 - r, 2)),), {}
        ), 1.1,
    ),
    "overlapping pool": (index_map({"x": 14, "y": 14, "a": 3, "b": 3}, [2 * x + a, 2 * y + b], [29, 29]), 1.1),
    "band": (index_map({"x": 30, "y": 30}, [y], [30], x - y + 2, y - x + 2), 1.1),
    "grouped convolution": (
        index_map({"f": 8, "c": 4, "y": 20, "r": 3}, [4 * floordiv(f, 4) + c, y + r], [8, 22]), 1.1,
    ),
    "im2col, flat": (index_map({"y": 6, "x": 6, "a": 3, "b": 3}, [(y + a) * 8 + x + b], [64]), 1.4),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDED)
def test_masked_iterations_are_bounded(name: str) -> None:
    m, most = BOUNDED[name]
    count = checked(m)
    assert count.useful == sum(forward_pairs(m).values())
    assert count.run <= most * count.useful


def test_a_select_in_the_index() -> None:
    inside = NonNegative(x - 2)
    checked(index_map({"x": 6}, [symbol(Choice(inside, x - 2, linear(0)))], [4]))


def test_an_inequality_as_condition_stays_a_guard() -> None:
    m = IndexMap((Variable("x", 9), Variable("y", 9)), (y,), (9,), (Not(Zero(x - y)),), {})
    assert checked(m) == Count(81, 72)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_symbolic_extents(size: int) -> None:
    cases = [
        index_map({"x": n, "r": 3}, [x + r], [0], n=size),
        index_map({"x": n, "r": 3}, [2 * x + r], [0], n=size),
        index_map({"x": n}, [n - 1 - x], [0], n=size),
        index_map({"x": n + 2}, [symbol(Least(symbol(Greatest(x - 1, linear(0))), n - 1))], [0], n=size),
        index_map({"x": n, "y": n}, [x, x], [0, 0], n=size),
    ]
    shapes = [(n + 2,), (2 * n + 1,), (n,), (n,), (n, n)]
    for m, shape in zip(cases, shapes, strict=True):
        checked(IndexMap(m.variables, m.rows, shape, m.conditions, m.sizes))


def test_symbolic_widths_are_constant_where_one_extent_is() -> None:
    (g,) = invert([Variable("x", n), Variable("r", 3)], [x + r], [n + 2]).gathers
    assert [w for _, w in g.loops] == [linear(3)]


def test_an_empty_domain_is_zero() -> None:
    assert invert([Variable("x", 4)], [x], [4], [NonNegative(x - 9)]) == Inversion(())
    assert invert([Variable("x", 4)], [2 * x], [4], [Zero(2 * x - 1)]) == Inversion(())
    assert invert([Variable("x", 0)], [x], [4]) == Inversion(())


def test_an_index_out_of_the_target_contributes_nothing() -> None:
    assert invert([Variable("x", 4)], [x + 10], [4]) == Inversion(())


def test_an_opaque_row_stays_a_scatter() -> None:
    answer = invert([Variable("b", 8), Variable("d", 5)], [symbol(OpaqueIndex("idx[b]")), symbol("d")], [100, 5])
    assert answer.opaque == (0,)
    assert answer.reason == "the index depends on data"
    (g,) = answer.gathers
    assert str(g) == "sum t0 in [0, 8)\nz = (t0, q0)".replace("q0", "q1")


def test_an_opaque_condition_is_handed_back() -> None:
    (g,) = invert([Variable("x", 4)], [x], [4], [Opaque("mask[x] > 0")]).gathers
    assert g.guards == (Opaque("mask[x] > 0"),)


def test_big_coefficients_do_not_overflow() -> None:
    big = 10**30
    (g,) = invert([Variable("x", 4), Variable("y", 3)], [big * x + y], [4 * big]).gathers
    assert g.loops == ()
    assert str(g.solution[0]) == f"(q0 // {big})"


def hard(steps: int) -> Inversion:
    """Two rows over eight variables, asked anew."""
    inverting._answers.clear()
    parts._known.clear()
    names = "abcdefgh"
    variables = [Variable(v, 9) for v in names]
    rows = [sum(((3 * i + 2 * j + 1) * symbol(v) for i, v in enumerate(names)), linear(j)) for j in range(2)]
    return invert(variables, rows, [500, 500], steps=steps)


def test_the_steps_are_bounded() -> None:
    answer = hard(2000)
    assert answer.opaque == (0, 1)
    assert answer.reason == "the inversion takes more than 2,000 steps"
    assert hard(STEPS).opaque == ()


def test_what_the_clock_ended_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(budget, "LAST_RESORT", -1.0)
        assert hard(STEPS).reason == "the inversion took more than -1 s"
        assert not len(inverting._answers)
        assert not len(parts._known)
    assert hard(STEPS).opaque == ()


def test_an_answer_does_not_depend_on_what_was_asked_before() -> None:
    """A part has its steps for itself, whether or not the parts beside it are known already."""
    variables = [Variable(v, 9) for v in "xyzuvw"]
    rows = [3 * x + 5 * y + 2 * symbol("z"), 3 * symbol("u") + 7 * symbol("v") + 2 * symbol("w")]
    few = next(n for n in range(100, 100_000, 100) if not invert(variables[:3], rows[:1], [80], steps=n).opaque)
    inverting._answers.clear()
    parts._known.clear()
    cold = invert(variables, rows, [80, 100], steps=few)
    inverting._answers.clear()
    assert invert(variables, rows, [80, 100], steps=few) == cold


def test_answers_are_kept_by_structure() -> None:
    inverting._answers.clear()
    first = invert([Variable("x", 8), Variable("r", 3)], [x + r], [10])
    again = invert([Variable("u", 8), Variable("v", 3)], [symbol("u") + symbol("v")], [10])
    assert len(inverting._answers) == 1
    assert first == again


PROGRAM = """
from tests.autodiff.inversion.test_inversion import BOUNDED, EXACT
print(EXACT["depth to space"].invert(), BOUNDED["im2col, flat"][0].invert())
"""


def test_the_answer_is_the_same_in_each_process() -> None:
    """Nothing may depend on the order of a set of strings."""
    texts = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        texts.add(run.stdout)
    assert len(texts) == 1
    assert texts != {""}


def test_classes_that_keep_their_quotients_are_not_split_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotients of a residue class may be new ones. Here every split leaves the grid as it was."""
    splits = []
    monkeypatch.setattr(refine, "_phases", lambda part: splits.append(part) or [part.grid])
    checked(index_map({"f": 2, "y": 9, "r": 3}, [2 * y + r], [19]))
    assert len(splits) == refine.MAX_SPLITS
