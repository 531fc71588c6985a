"""Adjoints of reads against NumPy's `add.at` on the indices themselves; gathers wherever the index is affine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tedsl as te
from autodiff.turning.answers import Contribution
from autodiff.turning.gather import adjoint_of_read, gather_expression
from tedsl.lang.compute import compute_tensors
from tedsl.lang.expr import Axis, Expr
from tedsl.lang.functions import as_expr, const
from tedsl.lang.tensor import Scan
from tedsl.lang.traverse import reads_of

Array = np.ndarray[Any, np.dtype[Any]]


class Site:
    """dS[index(z)] += g[z] over a box, as the code under test and as NumPy see it."""

    def __init__(
        self, extents: Sequence[int], index: Callable[..., Any], shape: Sequence[int], where: Any = None
    ) -> None:
        self.axes = tuple(Axis(f"z{d}", const(n, "int32")) for d, n in enumerate(extents))
        self.index, self.where, self.shape, self.extents = index, where, tuple(shape), tuple(extents)
        self.g = te.placeholder(self.extents, "float64", name="g")
        self.data: dict[Any, Array] = {self.g: np.random.default_rng(0).standard_normal(self.extents)}

    def rows(self) -> tuple[Expr, ...]:
        made = self.index(*self.axes)
        return tuple(as_expr(row) for row in (made if isinstance(made, tuple) else (made,)))

    def contribution(self) -> Contribution:
        conditions = () if self.where is None else (self.where(*self.axes),)
        shape = tuple(const(n, "int32") for n in self.shape)
        return adjoint_of_read(self.axes, self.rows(), self.g[self.axes], shape, conditions=conditions, name="dS")

    def expected(self) -> Array:
        """Every point on its own, by evaluating index and condition as tensors."""
        indices = [te.compute(self.extents, lambda *z, d=d: self._row(z, d)) for d in range(len(self.shape))]
        rows = [te.interpret(i, self.data) for i in indices]
        values = self.data[self.g]
        if self.where is not None:
            values = np.where(te.interpret(te.compute(self.extents, self.where), self.data), values, 0)
        result = np.zeros(self.shape)
        inside = np.ones(self.extents, bool)
        for r, n in zip(rows, self.shape, strict=True):
            inside &= (r >= 0) & (r < n)
        flat = np.zeros(inside.shape, int)
        for r, n in zip(rows, self.shape, strict=True):
            flat = flat * n + r
        np.add.at(result.reshape(-1), flat[inside], values[inside])
        return result

    def _row(self, z: Any, d: int) -> Any:
        made = self.index(*z)
        return te.cast((made if isinstance(made, tuple) else (made,))[d], "int32")

    def check(self) -> Contribution:
        found = self.contribution()
        expected = self.expected()
        got = np.zeros(self.shape) if found.tensor is None else te.interpret(found.tensor, self.data)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
        return found


def clamp(i: Any, n: int) -> Any:
    return te.minimum(te.maximum(i, 0), n - 1)


def reflect(i: Any, n: int) -> Any:
    return n - 1 - te.abs(n - 1 - i % (2 * (n - 1)))


# The affine index maps of section 1.5 of the Halide study, and those that programs here are full of.
PROBES: dict[str, Site] = {
    "identity": Site((5,), lambda x: x, (5,)),
    "reverse": Site((5,), lambda x: 4 - x, (5,)),
    "transpose": Site((3, 4), lambda x, y: (y, x), (4, 3)),
    "halved": Site((9,), lambda x: x // 2, (5,)),
    "broadcast": Site((3, 4), lambda x, y: x, (3,)),
    "convolution": Site((6, 3), lambda y, r: y + r, (8,)),
    "dilated": Site((6, 3), lambda y, r: y + 2 * r, (10,)),
    "strided": Site((6, 3), lambda y, r: 2 * y + r, (13,)),
    "strided and dilated": Site((6, 3), lambda y, r: 2 * y + 3 * r, (17,)),
    "2 x": Site((5,), lambda x: 2 * x, (10,)),
    "2 x + 1": Site((5,), lambda x: 2 * x + 1, (10,)),
    "x % 3": Site((8,), lambda x: x % 3, (3,)),
    "clamp": Site((8,), lambda x: clamp(x - 1, 4), (4,)),
    "clip": Site((8,), lambda x: te.clip(x - 1, 0, 3), (4,)),
    "x + y": Site((4, 5), lambda x, y: x + y, (8,)),
    "(x + y, y)": Site((4, 5), lambda x, y: (x + y, y), (8, 5)),
    "(x + y, x - y + 3)": Site((4, 4), lambda x, y: (x + y, x - y + 3), (7, 7)),
    "x + 4 y": Site((4, 5), lambda x, y: x + 4 * y, (20,)),
    "(x, x)": Site((4,), lambda x: (x, x), (4, 4)),
    "(x, x + 1)": Site((3,), lambda x: (x, x + 1), (4, 4)),
    "(x, 3 - x)": Site((4,), lambda x: (x, 3 - x), (4, 4)),
    "(x % 4, x // 4)": Site((12,), lambda x: (x % 4, x // 4), (4, 3)),
    "(x + r, x)": Site((4, 3), lambda x, r: (x + r, x), (6, 4)),
    "negative modulus": Site((8,), lambda x: 2 + x % -3, (3,)),
    "negative divisor": Site((8,), lambda x: 4 + x // -2, (5,)),
    "wrap": Site((6, 3), lambda x, r: (x + r) % 6, (6,)),
    "reflect": Site((9,), lambda x: reflect(x - 2, 5), (5,)),
    "reflected stencil": Site((6, 3), lambda x, r: reflect(x + r - 1, 6), (6,)),
    "scalar": Site((4,), lambda x: (), ()),
    "absolute": Site((9,), lambda x: te.abs(x - 4), (5,)),
    "select": Site((9,), lambda x: te.select(x < 4, x, 8 - x), (5,)),
    "padded": Site((7, 3), lambda x, r: x + r - 1, (7,), lambda x, r: (x + r >= 1) & (x + r < 8)),
    "masked off diagonal": Site((5, 5), lambda x, y: y, (5,), lambda x, y: te.logical_not(x == y)),
    "either end": Site((9, 2), lambda x, y: x, (9,), lambda x, y: (x < 2) | (x > 6)),
    "bool axis": Site((4, 3), lambda x, y: te.select(y == 1, x, 3 - x), (4,)),
    "flat window": Site((3, 3, 2, 2), lambda y, x, a, b: (y + a) * 4 + x + b, (16,)),
    "int64 flat": Site((3, 4), lambda x, y: te.cast(x, "int64") * 4 + y, (12,)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBES)
def test_affine_maps_are_gathers(name: str) -> None:
    assert PROBES[name].check().kind == "gather"


def test_no_point_is_zero() -> None:
    found = Site((4,), lambda x: x, (4,), lambda x: x > 9).check()
    assert (found.kind, found.tensor) == ("zero", None)


def with_index(extents: Sequence[int], high: int, index: Callable[..., Any], shape: Sequence[int]) -> Site:
    """A site whose index map also reads an integer tensor `idx` of shape extents[:1]."""
    idx = te.placeholder(extents[:1], "int32", name="idx")
    site = Site(extents, lambda *z: index(idx, *z), shape)
    site.data[idx] = np.random.default_rng(1).integers(0, high, extents[:1]).astype(np.int32)
    return site


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (lambda x, i: te.minimum(i * i, 1), "the index is not linear in its axes"),
        (lambda x, i: te.argmax(lambda k: x[k]) + i, "the index depends on data"),
        (lambda x, i: te.cast(te.abs(x[i]), "int32"), "the index depends on data"),
    ],
)
def test_explain_tells_why_a_read_stays_a_scatter(index: Any, reason: str) -> None:
    x = te.placeholder((10,), "float64", name="x")
    y = te.compute((4,), lambda i: x[index(x, i)], name="y")
    gradients = te.differentiate(y.sum(), [x])
    (read,) = gradients.scatters
    assert read.reason == reason
    assert gradients.explain().scatters == [read]
    assert len(gradients.gathers) == 1


def scattered(index: Any, shape: tuple[int, ...] = (20,)) -> tuple[str, ...]:
    """What `explain` says was tried of a read that stays a scatter."""
    x = te.placeholder((20,), "float64", name="x")
    y = te.compute(shape, lambda *z: x[index(*z)], name="y")
    grads = te.differentiate(y.sum(), [x])
    (read,) = grads.scatters
    assert all(f"y reads x[{read.index}]: {line}" in str(grads.explain()).splitlines() for line in read.tried)
    return read.tried


def test_explain_tells_what_was_tried_and_what_would_help() -> None:
    idx = te.placeholder((20,), "int32", name="idx")
    data, fact = scattered(lambda i: idx[i])
    assert data.startswith("`idx[z0]` holds what idx will hold")
    assert "permutation" in fact
    assert "sorted" in fact
    formulas, table = scattered(lambda i, j: i * j, (4, 5))
    assert formulas.startswith("`z0 * z1` is read as none of these: ")
    # 0 is the product of 8 pairs: 20 rows of 8.
    assert "160 entries for 20 points, as 8 of them reach one element" in table
    assert "by more than 4" in table
    n = te.var("n")
    x = te.placeholder((n,), "float64", name="x")
    grads = te.differentiate(te.compute((n,), lambda i: x[i * i % n]).sum(), [x])
    assert "where extents are numbers" in grads.scatters[0].tried[-1]
    assert all(not r.tried for r in grads.gathers)


def test_a_long_index_is_told_within_a_line() -> None:
    x, table = te.placeholder((8,), name="x"), te.placeholder((100,), name="table")

    def value(i: te.Axis) -> te.Expr:
        a = x[i] * 2
        for _ in range(7):
            a = a * te.sin(a)
        return table[te.cast(te.clip(a, 0, 99), "int32")]

    lines = str(te.differentiate(te.compute((8,), value, name="y").sum(), table).explain()).splitlines()
    assert len(lines) == 5
    assert "table[cast(clip(t6 * sin(t6), 0.0, 99.0), 'int32')]" in lines[2]
    assert "the index were a tensor of its own and known to be a permutation" in lines[4]


def test_an_index_out_of_bounds_in_a_gradient_names_the_read() -> None:
    x, y = te.placeholder((4, 5), name="x"), te.placeholder((4,), "int32", name="y")
    picked = te.compute((4,), lambda i: x[i, y[i]] * 2, name="picked")
    dx = te.differentiate(picked.sum(), x)
    feeds = {x: np.ones((4, 5), "f"), y: np.array([0, 1, 5, 2], "int32")}
    told = r"comes back from x\[i, y\[i\]\], read by compute 'picked' at .*; guard that read"
    for run in (te.evaluate, te.interpret):
        with pytest.raises(IndexError, match=told):
            run(dx, feeds)


def test_an_embedding_is_partly_inverted() -> None:
    found = with_index((6, 4), 9, lambda idx, b, d: (idx[b], d), (9, 4)).check()
    assert found.kind == "partial"
    assert found.reason == "the index depends on data"


def test_loops_that_the_open_row_does_not_need_are_summed_first() -> None:
    found = with_index((6, 4, 5), 9, lambda idx, b, d, k: (idx[b], 2 * d), (9, 8)).check()
    assert found.tensor is not None
    assert [t.name for t in found.tensor.op.inputs] == ["idx", "dS_sums"]


@pytest.mark.parametrize(
    ("row", "channels", "kind"),
    [
        (lambda i: i // 4, 5, "scatter"), (lambda i: i // 4 + i % 4, 5, "scatter"),
        (lambda i: i // 4, 1, "partial"), (lambda i: i + 1, 5, "partial"), (lambda i: 11 - i, 5, "partial"),
    ],
)  # fmt: skip
def test_points_that_send_short_rows_to_their_own_places_keep_their_order(row: Any, channels: int, kind: str) -> None:
    assert with_index((12, channels), 9, lambda idx, i, c: (c, idx[i], row(i)), (channels, 9, 13)).check().kind == kind


def test_quotients_that_the_open_row_does_not_need_are_inverted() -> None:
    assert with_index((12, 5, 4), 9, lambda idx, i, c, j: (c, idx[i], j // 2), (5, 9, 2)).check().kind == "partial"


def test_a_histogram_is_a_scatter() -> None:
    assert with_index((20,), 5, lambda idx, i: idx[i], (5,)).check().kind == "scatter"


def test_a_product_of_axes_is_a_scatter() -> None:
    assert Site((3, 4), lambda x, y: x * y, (7,)).check().kind == "scatter"


def test_a_data_dependent_condition_is_evaluated_at_the_solution() -> None:
    site = Site((6, 3), lambda y, r: 2 * y + r, (13,))
    mask = te.placeholder((6,), "int32", name="mask")
    site.data[mask] = np.array([0, 1, 1, 0, 1, 0], np.int32)
    site.where = lambda y, r: mask[y] > 0
    assert site.check().kind == "gather"


def test_a_choice_by_data_between_affine_indices_is_a_gather() -> None:
    site = Site((6,), lambda x: 0, (6,))
    mask = te.placeholder((6,), "int32", name="mask")
    site.data[mask] = np.array([0, 1, 1, 0, 1, 0], np.int32)
    site.index = lambda x: te.select(mask[x] > 0, 5 - x, 0)
    assert site.check().kind == "gather"


def test_what_is_read_at_the_index_is_read_at_the_element() -> None:
    """Y = sum of tanh(X[2 y + r]): at every solution X[2 y + r] is X[s], whatever the loops."""
    X = te.placeholder((13,), "float64", name="X")
    r = te.reduce_axis(4, name="r")
    Y = te.compute((5,), lambda y: te.sum(te.tanh(X[2 * y + r]), axis=r), name="Y")
    g = te.placeholder((5,), "float64", name="g")
    (dX,) = te.differentiate(Y, [X], head=g)
    reads = [r for r in reads_of(dX.op.expressions) if r.tensor is X]
    assert [r.indices for r in reads] == [dX.op.axes]


def test_values_of_a_sparse_adjoint_are_computed_where_they_are_sent_from() -> None:
    X = te.placeholder((30, 30), "float64", name="X")
    Y = te.compute((30,), lambda i: te.exp(X[i, i]) * 3.0, name="Y")
    g = te.placeholder((30,), "float64", name="g")
    (dX,) = te.differentiate(Y, [X], head=g)
    assert [t.name for t in dX.op.inputs] == ["dX_values"]
    assert te.work(dX).flops <= 4 * 60
    x, h = np.random.default_rng(0).standard_normal((30, 30)), np.arange(30.0)
    expected = np.diag(3 * np.exp(np.diag(x)) * h)
    np.testing.assert_allclose(te.interpret(dX, {X: x, g: h}), expected, rtol=1e-12)


def test_a_jacobian_has_no_loops() -> None:
    X = te.placeholder((7,), "float64", name="X")
    W = te.placeholder((3,), "float64", name="W")
    r = te.reduce_axis(3, name="r")
    Y = te.compute((5,), lambda y: te.sum(X[y + r] * W[r], axis=r), name="Y")
    (jacobian,) = te.differentiate(Y, [X])
    data = {X: np.arange(7.0), W: np.array([1.0, 2.0, 3.0])}
    expected = [[data[W][x - y] if 0 <= x - y < 3 else 0.0 for x in range(7)] for y in range(5)]
    np.testing.assert_allclose(te.interpret(jacobian, data), expected)
    assert te.work(jacobian).iterations == 35


def _steps() -> Scan:
    """A scan of steps that no probe reads."""
    made = te.scan((2,), lambda s, t: te.select(t == 0, 1.0, s[t - 1])).op
    assert isinstance(made, Scan)
    return made


STEPS = _steps()


@pytest.mark.parametrize("name", ["convolution", "strided", "clamp", "reflect", "wrap", "(x + y, x - y + 3)"])
def test_one_expression_is_the_same_sum(name: str) -> None:
    site = PROBES[name]
    elements = tuple(Axis(f"s{d}", const(n, "int32")) for d, n in enumerate(site.shape))
    body = gather_expression(site.axes, site.rows(), site.g[site.axes], elements, scan=STEPS, name="dS")
    assert body is not None
    (tensor,) = compute_tensors(elements, (body,), "dS")
    np.testing.assert_allclose(te.interpret(tensor, site.data), site.expected(), rtol=1e-12, atol=1e-12)


def test_one_expression_takes_points_in_order_where_the_index_is_data() -> None:
    site = with_index((20,), 5, lambda idx, i: idx[i], (5,))
    elements = (Axis("s", const(5, "int32")),)
    body = gather_expression(site.axes, site.rows(), site.g[site.axes], elements, scan=STEPS, name="dS")
    assert body is not None
    (tensor,) = compute_tensors(elements, (body,), "dS")
    np.testing.assert_allclose(te.interpret(tensor, site.data), site.expected(), rtol=1e-12, atol=1e-12)


n, m, p = te.var("n"), te.var("m"), te.var("p")

SYMBOLIC: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], Callable[..., Any]]] = {
    "flat": ((n * m,), (n, m), lambda i, j: (i * m + j,)),
    "flat, three": ((n * m * p,), (n, m, p), lambda i, j, k: ((i * m + j) * p + k,)),
    "flat, the first rows only": (((n + 2) * m,), (n, m), lambda i, j: (i * m + j,)),
    "flat, then more": ((n * m + 5,), (n, m), lambda i, j: (i * m + j,)),
    "ravel, the first rows only": ((n + 1, m), (n * m,), lambda k: (k // m, k % m)),
    "ravel": ((n, m), (n * m,), lambda k: (k // m, k % m)),
    "ravel, three": ((n, m, p), (n * m * p,), lambda k: (k // (m * p), (k // p) % m, k % p)),
    "ravel, last fixed": ((n, m, 4), (n * m * 4,), lambda k: (k // (m * 4), (k // 4) % m, k % 4)),
    "reshape": ((n, m), (m, n), lambda a, b: ((a * n + b) // m, (a * n + b) % m)),
    "roll": ((n,), (n,), lambda i: ((i + 1) % n,)),
    "roll back": ((n,), (n,), lambda i: ((i - 2) % n,)),
    "reverse": ((n,), (n,), lambda i: (n - 1 - i,)),
    "from 1": ((n,), (n - 1,), lambda i: (i + 1,)),
    "every other": ((n,), ((n + 1) // 2,), lambda i: (2 * i,)),
    "every other backwards": ((n,), ((n + 1) // 2,), lambda i: (n - 1 - 2 * i,)),
    "diagonal": ((n, n), (n,), lambda i: (i, i)),
    "convolution": ((n + 2,), (n, 3), lambda i, r: (i + r,)),
    "strided convolution": ((2 * n + 1,), (n, 3), lambda i, r: (2 * i + r,)),
    "edge": ((n,), (n + 2,), lambda i: (te.minimum(te.maximum(i - 1, 0), n - 1),)),
    "a maximum below 0": ((7,), (4,), lambda i: (i + te.maximum(m - 5, -3) + 3,)),
    "mirror": ((n,), (n + 2,), lambda i: (n - 1 - te.abs(n - 1 - (i - 1) % te.maximum(2 * (n - 1), 1)),)),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_extents(name: str) -> None:
    """The adjoint identity <g, A s> = <A' g, s> at several sizes, the smallest included."""
    source, shape, index = SYMBOLIC[name]
    S = te.placeholder(source, "float64", name="S")
    Y = te.compute(shape, lambda *z: S[index(*z)], name="Y")
    g = te.placeholder(Y.shape, "float64", name="g")
    gradients = te.differentiate(Y, [S], head=g)
    assert [r.kind for r in gradients.explain().reads] == ["gather"]
    rng = np.random.default_rng(0)
    for values in ((1, 1, 1), (3, 2, 4), (4, 5, 2), (2, 1, 3)):
        sizes = dict(zip((n, m, p), values, strict=True))
        s, h = (rng.standard_normal(extents_at(t, sizes)) for t in (S, g))
        forward = te.interpret(Y, {S: s}, sizes=sizes)
        backward = te.interpret(gradients[0], {S: s, g: h}, sizes=sizes)
        assert np.vdot(h, forward) == pytest.approx(np.vdot(backward, s), rel=1e-12, abs=1e-12)
        if name != "mirror":
            continue
        np.testing.assert_allclose(backward, mirror_adjoint(h, values[0]), rtol=1e-12)


def mirror_adjoint(h: Array, size: int) -> Array:
    result = np.zeros(size)
    np.add.at(result, np.pad(np.arange(size), 1, mode="reflect"), h)
    return result


def extents_at(tensor: Any, sizes: Any) -> tuple[int, ...]:
    ones = te.compute(tensor.shape, lambda *z: te.const(1.0), name="ones")
    return te.interpret(ones, {}, sizes=sizes).shape


def test_a_loop_that_is_empty_at_a_nominal_size_stays_a_loop() -> None:
    """Of a part that a clamp leaves: its width, 2 - n, is not known to be one, nor none."""
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((2, n), "float64", name="x")
    y = te.compute((n, m, m), lambda i, j, k: te.tanh(x[te.clip(i, 0, 1), te.clip(j, 0, n - 1)]))
    gradient = te.differentiate(y.sum(), x)
    values = np.array([[0.5], [0.25]])
    expected = np.array([[9.0], [0.0]]) / np.cosh(values) ** 2
    np.testing.assert_allclose(te.interpret(gradient, {x: values}, {m: 3}), expected)


@pytest.mark.parametrize("size", [5, te.var("n")], ids=["known", "symbolic"])
def test_indices_that_wrap(size: Any) -> None:
    """int32 arithmetic wraps in an index as in a value: a hash of the position."""
    a = te.placeholder((size,), name="a")
    hashed = te.compute((size,), lambda i: a[(i * 1000000007) % 5], name="hashed")
    chosen = te.compute((size,), lambda i: te.select((i * 1000000007) % 3 == 1, a[i], 7.0), name="chosen")
    weights = te.compute((size,), lambda i: te.cast(i + 1, "float32"))
    gradients = [te.differentiate((y * weights).sum(), a) for y in (hashed, chosen)]
    position = np.arange(5, dtype="int32") * np.int32(1000000007)
    values, w = np.arange(5, dtype="float32"), np.arange(1, 6, dtype="float32")
    expected = [
        values[position % 5], np.where(position % 3 == 1, values, 7), np.bincount(position % 5, w, 5),
        np.where(position % 3 == 1, w, 0),
    ]  # fmt: skip
    for run in (te.evaluate, te.interpret):
        for got, want in zip(run([hashed, chosen, *gradients], {a: values}), expected, strict=True):
            np.testing.assert_array_equal(got, want)


MODES: dict[str, Callable[[Any, int], Any]] = {
    "clamp": clamp,
    "reflect": lambda i, n: (n - 1) - abs((n - 1) - i % (2 * n - 2)),
    "wrap": lambda i, n: i % n,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("turn", [1, -1])
def test_borders_of_windows_are_folded_after_the_rest(mode: str, step: int, turn: int) -> None:
    def index(i: Any, j: Any, p: Any, q: Any, f: Any, k: Any) -> Any:
        down, right = i * step + p * 2 - 3, j + turn * q - (1 if turn > 0 else -1)
        return MODES[mode](down, 9), k, MODES[mode](right, 6)

    found = Site((4, 6, 5, 3, 8, 2), index, (9, 2, 6)).check()
    assert found.kind == "gather"
    assert found.tensor is not None
    assert any("_wide" in name for name in te.Schedule(found.tensor).stages)


def test_an_equation_that_holds_a_loop_ties_no_element() -> None:
    """At one step alone a maximum of a window: which elements it reads depends on the loop over that step."""
    n = 4
    x = te.placeholder((n,), "float64", name="x")

    def step(a: Any, t: Any) -> Any:
        ahead = te.max(lambda k: a[k] * x[k], where=lambda k: (k > t) & (k - t < 3))
        return te.select((t == 0) | (t > t), te.tanh(ahead), 0.2 * x[t])

    y = te.scan((n,), step, axis=0, reverse=True)
    assert te.gradcheck(y, [x], [np.random.default_rng(0).standard_normal(n)], atol=1e-6, rtol=1e-5).ok


@pytest.mark.parametrize("mode", ["clamp", "zero", "wrap", "reflect"])
def test_reads_are_told_as_they_were_written(mode: str) -> None:
    x, n = te.placeholder((8, 6), name="x"), te.var("n")
    table = te.placeholder((n,), name="table")
    y = te.compute((8, 6), lambda i, j: x.at(i - 1, j + 2, mode=mode) * table.at(i + 1, mode=mode), name="y")
    reads = [r.read for r in te.differentiate(y.sum(), [x, table]).explain().reads]
    assert f"x.at(i - 1, j + 2, mode='{mode}')" in reads
    assert f"table.at(i + 1, mode='{mode}')" in reads
    u = te.scan((5, 6), lambda u, t, i: te.select(t == 0, x[0, i], u.at(t - 1, i - 1, mode=mode)), name="u")
    assert f"u.at(t - 1, i - 1, mode='{mode}')" in [r.read for r in te.differentiate(u.sum(), [x]).explain().reads]


def test_tensors_of_one_name_are_told_apart_as_in_schedules() -> None:
    x, w = te.placeholder((8, 8), name="x"), te.placeholder((8, 8), name="w")
    y = (x * w) * te.exp(x * w) - (x - w) * (x * 2.0)
    loss = (y * y).sum()
    gradients = te.differentiate(loss, [x, w])
    rows = [line.split() for line in str(gradients.explain()).splitlines()[1:]]
    stages = te.Schedule([loss, *gradients]).stages
    computed = {row[0] for row in rows} | {row[1].partition("[")[0] for row in rows} - {"x", "w"}
    assert {"mul", "mul_1", "mul_2", "sub"} <= computed <= set(stages)
    assert {row[1] for row in rows if row[0] == "mul_2"} == {"mul[i,", "exp[i,"}
    page = gradients.explain()._repr_html_()
    assert "mul_2" in page
    assert "mul_3[i, j]" in page


def test_lists_of_places_are_told_apart() -> None:
    u, places = te.placeholder((6, 5), name="u"), te.placeholder((), name="places")
    seen = u[[1, 2, 4]][:, [0, 3]] * places
    text = str(te.differentiate((seen**2).sum(), u).explain())
    assert "`u_places[i]` is of u_places, a list of 3 places whose values stay data: no algebra" in text
    assert "`u_take_places[j]` is of u_take_places, a list of 2 places whose values stay data: no algebra" in text
