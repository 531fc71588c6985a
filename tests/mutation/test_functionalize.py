"""te.functionalize: views, write-back, aliasing arguments, the pure form and its gradients, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te


def agree(function: Any, *arrays: Any) -> Any:
    """The function under NumPy and under functionalize: same results, same arguments afterwards."""
    own = [a.copy() for a in arrays]
    expected, found = function(*own), te.functionalize(function, interpreted=True)(*arrays)
    np.testing.assert_equal(found, expected)
    for one, other in zip(own, arrays, strict=True):
        np.testing.assert_array_equal(other, one)
    return found


def test_the_two_programs_of_the_seed() -> None:
    def slices(x: Any, y: Any) -> Any:
        y = y + 3
        y[:, 0] = x[:, 0]
        return y

    def relu(x: Any) -> Any:
        x.relu_()
        return x

    x, y = np.arange(-4.0, 5).reshape(3, 3), np.ones((3, 3))
    agree(slices, x, y)
    np.testing.assert_array_equal(y, 1)
    assert te.functionalize(relu, interpreted=True)(x) is x
    np.testing.assert_array_equal(x, np.maximum(np.arange(-4.0, 5).reshape(3, 3), 0))


def test_views_of_views_are_written_through() -> None:
    def program(x: Any) -> Any:
        part = x[1:, ::-2].T
        row = part[-1]
        row *= 2
        part.reshape(-1)[:] += 1  # a copy: x does not change
        x.reshape(2, -1)[1, 3:] = 0
        return row, part

    agree(program, np.arange(24.0).reshape(4, 6))


def test_values_read_before_a_write_stay() -> None:
    def program(x: Any) -> Any:
        old, first = x * 2, x[0]
        x += 1
        x[0] = 7
        return old, first, x[0]

    agree(program, np.arange(3.0))


def test_masks_and_index_arrays() -> None:
    def program(x: Any, y: Any) -> Any:
        m = x > 2
        x[m] += 10
        y[m] = x[m] * 2
        x[[0, 2, 0]] = np.array([1.0, 2.0, 3.0])  # the last value for 0 wins
        x[[1, 1]] += 5  # once
        np.add.at(y, [3, 3], 1)  # twice
        return x[[-1, 0]]

    agree(program, np.arange(5.0), np.zeros(5))


def test_ranges_are_places_as_lists_are() -> None:
    def program(x: Any, y: Any) -> Any:
        x[range(3), [2, 0, 1]] -= 1
        y[range(2, -1, -2)] = x[range(2), range(1, 3)]
        return x[range(1, 3)] * 2

    agree(program, np.arange(12.0).reshape(4, 3), np.zeros(4))


def test_masked_division_leaves_zeros_alone() -> None:
    def program(x: Any, y: Any) -> None:
        m = y != 0
        x[m] //= y[m]

    agree(program, np.array([7, 8, 9]), np.array([2, 0, -2]))


def test_rank_0_arrays_are_mutated_in_place() -> None:
    def program(x: Any) -> Any:
        x += 2
        x[...] *= 3
        return x

    x = np.array(1.0)
    assert te.functionalize(program, interpreted=True)(x) is x
    assert x == 9.0


@pytest.mark.parametrize(
    "cut", [lambda a: (a, a), lambda a: (a, a[1:]), lambda a: (a[:-2], a[2:]), lambda a: (a[::2], a[1::2], a[::-1])]
)
def test_arguments_that_share_memory(cut: Any) -> None:
    def program(x: Any, y: Any, *rest: Any) -> Any:
        y += 1
        x[:2] *= 3
        y[-1] = x[0]
        for z in rest:
            z[:3] -= y[0]
        return x + 0, y

    own, given = np.arange(8.0), np.arange(8.0)
    expected = program(*cut(own))
    found = te.functionalize(program, interpreted=True)(*cut(given))
    np.testing.assert_equal(found, expected)
    np.testing.assert_array_equal(given, own)
    assert np.shares_memory(found[1], given)
    assert not np.shares_memory(found[0], given)


def test_results_on_the_memory_of_arguments() -> None:
    x = np.arange(12.0).reshape(3, 4)
    f = te.functionalize(lambda x: {"same": x, "view": x[::-1, 1:].T, "new": x + 1, "n": 3}, interpreted=True)
    found = f(x)
    assert found["same"] is x
    assert found["n"] == 3
    np.testing.assert_array_equal(found["view"], x[::-1, 1:].T)
    found["view"][0, 0] = 99
    assert x[2, 1] == 99


def test_traced_once_per_shapes_overlaps_and_python_values() -> None:
    runs = []

    def program(x: Any, y: Any, k: Any = 1) -> None:
        runs.append(k)
        x += k * y

    f = te.functionalize(program, interpreted=True)
    a, b = np.zeros(3), np.ones(3)
    for k in (1, 1, 1.0, True, 2):
        f(a, b, k)
    assert [type(k) for k in runs] == [int, float, bool, int]
    f(a, a)
    f(np.zeros(4), np.ones(4))
    assert len(runs) == 6
    np.testing.assert_array_equal(a, 12.0)


def test_an_exception_leaves_arguments_alone() -> None:
    def program(x: Any, i: Any) -> None:
        x += 1
        x[i] = 0

    x = np.arange(3.0)
    with pytest.raises(IndexError):
        te.functionalize(program, interpreted=True)(x, np.array([5]))
    np.testing.assert_array_equal(x, np.arange(3.0))


def test_a_branch_does_not_break_an_alias() -> None:
    def program(x: Any, y: Any, first: bool) -> Any:
        chosen = x if first else y
        chosen += 1
        return x * 10 + y

    f = te.functionalize(program, interpreted=True)
    for first in (True, False):
        own, given = [np.zeros(2), np.ones(2)], [np.zeros(2), np.ones(2)]
        np.testing.assert_array_equal(f(*given, first), program(*own, first))
        np.testing.assert_array_equal(given, own)


def test_the_pure_form_is_checkpointed() -> None:
    """What was overwritten is computed again from values, which nobody can change."""

    def program(x: Any) -> Any:
        for _ in range(4):
            x *= x + 0.1
            x[1:] += x[:-1].copy()
        return (x * x).sum()

    x = te.placeholder((6,), "float64", name="x")
    pure = te.functionalize(program).trace(x)
    (grad,) = te.differentiate(pure.outputs[0], list(pure.inputs))
    kept = list(pure.mutated.values())
    a = np.linspace(0.1, 0.6, 6)
    want = te.build(list(pure.inputs), grad)(a)
    np.testing.assert_allclose(te.build(list(pure.inputs), grad, checkpoint=kept)(a), want, rtol=1e-12)


def test_captured_arrays_are_taken_by_value() -> None:
    weights = np.ones(3)
    f = te.functionalize(lambda x: x * weights, interpreted=True)
    np.testing.assert_array_equal(f(np.arange(3.0)), np.arange(3.0))
    weights[:] = 5
    np.testing.assert_array_equal(f(np.arange(3.0)), np.arange(3.0))


def test_a_global_array_that_is_changed_while_traced_is_refused() -> None:
    with pytest.raises(TypeError, match="the global array 'GLOBAL' is changed while the function is traced"):
        te.functionalize(fill_global, interpreted=True)(x := np.ones(3))
    GLOBAL[:] = 0
    np.testing.assert_array_equal(x, 1)


def test_a_traced_array_does_not_outlive_its_call() -> None:
    kept: list[Any] = []
    te.functionalize(lambda x: kept.append(x), interpreted=True)(np.ones(3))
    for use in (lambda y: y + kept[0], lambda y: kept[0].__setitem__(0, y[1]), lambda y: kept[0].__iadd__(1)):
        with pytest.raises(TypeError, match="outside of the call in which it was made"):
            te.functionalize(use, interpreted=True)(np.ones(3))


@pytest.mark.parametrize("torch", [False, True])
def test_nothing_is_written_back_where_a_later_stage_fails(torch: bool) -> None:
    """Compiled, after arrays were mutated: both keep what they held."""

    def program(x: Any, y: Any, i: Any) -> Any:
        x += 1
        y *= 2
        x[i] = y[i]
        return x.sum()

    arrays = [np.arange(3.0), np.ones(3), np.array([0, 9])]
    given = [pytest.importorskip("torch").from_numpy(a) for a in arrays] if torch else arrays
    f = te.functionalize(program)
    with pytest.raises(IndexError, match="is out of bounds: it is 9"):
        f(*given)
    np.testing.assert_array_equal(arrays[0], np.arange(3.0))
    np.testing.assert_array_equal(arrays[1], 1)
    arrays[2][1] = 1
    assert f(*given) == 7


def test_pure_form() -> None:
    def program(x: Any, y: Any) -> Any:
        y.T.reshape(-1)[0] = 5
        x[1:] = y[:, 0]
        return x.sum()

    x, y = te.placeholder((4,), name="x"), te.placeholder((3, 2), name="y")
    g = te.functionalize(program).trace(x, y)
    assert [t is e for t, e in zip(g.inputs, (x, y), strict=True)] == [True, True]
    assert list(g.mutated) == [x]
    ((what, why),) = g.copies
    assert "reshape" in why
    a, b = np.arange(4, dtype="float32"), np.arange(6, dtype="float32").reshape(3, 2)
    new, total = te.interpret([g.mutated[x], g.outputs[0]], {x: a, y: b})
    np.testing.assert_array_equal(new, [0, 0, 2, 4])
    assert total == 6


def test_gradients_use_the_values_before_they_were_overwritten() -> None:
    """e[i + 1] = e[i] * e[i] + d[i] in place: taichi's report 8802."""

    def program(e: Any, d: Any) -> Any:
        for i in range(3):
            e[i + 1] = e[i] * e[i] + d[i]
        return e[3]

    e, d = te.placeholder((4,), "float64", "e"), te.placeholder((3,), "float64", "d")
    g = te.functionalize(program).trace(e, d)
    de, dd = te.differentiate(g.outputs[0], [e, d])
    values = np.array([0.5, 1.0, 2.0, 3.0]), np.array([0.1, 0.2, 0.3])
    found = te.interpret([de, dd], dict(zip((e, d), values, strict=True)))
    s0 = 0.5
    s1 = s0 * s0 + 0.1
    s2 = s1 * s1 + 0.2
    np.testing.assert_allclose(found[0], [8 * s0 * s1 * s2, 0, 0, 0], rtol=1e-12)
    np.testing.assert_allclose(found[1], [4 * s1 * s2, 2 * s2, 1], rtol=1e-12)


def test_gradients_through_views_masks_and_indices() -> None:
    def program(x: Any, i: Any) -> Any:
        y = x * x
        y[1:] *= x[:-1]
        y[y > 1] *= 3
        y[i] = x[:3] * 2
        x.T[::2] += y[::2]
        return (x * x).sum()

    x, i = te.placeholder((6,), "float64", "x"), te.placeholder((3,), "int64", "i")
    g = te.functionalize(program).trace(x, i)
    (dx,) = te.differentiate(g.outputs[0], [x])

    def plain(v: Any) -> Any:
        return program(v.copy(), where)

    value, where = np.array([0.3, -1.2, 1.7, 0.9, -0.4, 2.1]), np.array([4, 2, 4])
    found = te.interpret(dx, {x: value, i: where})
    steps = np.eye(6) * 1e-6
    np.testing.assert_allclose(found, [(plain(value + s) - plain(value - s)) / 2e-6 for s in steps], rtol=1e-6)


def test_compiled() -> None:
    def program(x: Any, y: Any) -> Any:
        y[:, 0] = x[:, 1]
        x[1:] += x[:-1]
        return y

    x, y = np.arange(6, dtype="float32").reshape(3, 2), np.ones((3, 2), "float32")
    own_x, own_y = x.copy(), y.copy()
    program(own_x, own_y)
    assert te.functionalize(program)(x, y) is y
    np.testing.assert_array_equal(x, own_x)
    np.testing.assert_array_equal(y, own_y)


def read_only() -> Any:
    x = np.ones(3)
    x.flags.writeable = False
    return x


def branch(x: Any) -> None:
    if x[0] > 1:
        x += 1


def add_one(x: Any, *rest: Any) -> None:
    x += 1


GLOBAL = np.zeros(3)


def mutate_global(x: Any) -> None:
    global GLOBAL
    GLOBAL += x


def fill_global(x: Any) -> None:
    """Would happen once, when the function is traced."""
    x += GLOBAL
    GLOBAL[:] = 0.0
    GLOBAL.fill(3)


def fill_captured() -> Any:
    total = np.zeros(3)

    def program(x: Any) -> None:
        total[0] += 1
        x += total

    return program


def element_of_global(x: Any) -> None:
    GLOBAL[0] = x[0]


def replace(state: Any) -> None:
    state["m"] = state["m"] * 0.9


@pytest.mark.parametrize(
    ("function", "arrays", "error", "message"),
    [
        (branch, lambda: [np.ones(3)], TypeError, r"truth of a traced array is asked .*test_functionalize\.py:\d+"),
        (lambda x: f"{x[0]:.2f}", lambda: [np.ones(3)], TypeError, "the text of a traced array is asked for"),
        (lambda x: (v for v in x), lambda: [np.ones(3)], TypeError, "result is a generator, .* return a list"),
        (lambda x: {"a": map(abs, x)}, lambda: [np.ones(3)], TypeError, "result.* is a map"),
        (lambda x: int(x[0]), lambda: [np.ones(3)], TypeError, "the integer of a traced array"),
        (add_one, lambda: [read_only()], ValueError, "argument 'x' is mutated, but its array is read-only"),
        (add_one, lambda: [np.ones(3), None], None, ""),
        (add_one, lambda: [a := np.ones(4), a.view("f4")], te.AliasError, r"'x' \(float64\) and 'rest\[0\]' \(float32"),
        (add_one, lambda: [np.lib.stride_tricks.as_strided(np.ones(3), (2, 3), (0, 8))], te.AliasError, "share memory"),
        (mutate_global, lambda: [np.ones(3)], TypeError, "no argument of the traced function"),
        (element_of_global, lambda: [np.ones(3)], TypeError, r"the number of a traced array is asked for at .*py:\d+"),
        (fill_captured(), lambda: [np.ones(3)], TypeError, r"py:\d+: the captured array 'total' is changed"),
        (lambda x: np.lib.stride_tricks.as_strided(x, (2, 2), (8, 8)), lambda: [np.ones(3)], TypeError,
         r"the NumPy array, by np.as_strided, of a traced array is asked for at .*test_functionalize"),
        (lambda x: np.lib.stride_tricks.sliding_window_view(x, 2), lambda: [np.ones(3)], TypeError,
         r"np\.lib\.stride_tricks\.sliding.*not supported on traced arrays"),
        (lambda x: x.view("i4"), lambda: [np.ones(3)], TypeError, "cannot be seen as another dtype"),
        (lambda x: x.real, lambda: [np.ones(3)], AttributeError, r"no attribute 'real', asked for at .*views are"),
        (lambda x: x.flat[0], lambda: [np.ones(3)], AttributeError, "no attribute 'flat'"),
        (lambda x: x.__iadd__(0.5), lambda: [np.arange(3)], TypeError, "is float64, the target int64"),
        (lambda x: x[x > 0], lambda: [np.ones(3)], TypeError, "length depends on values"),
        (lambda x: x.__setitem__(x > 0, np.ones(2)), lambda: [np.ones(3)], TypeError, "one value per selected element"),
        (lambda x: x.__setitem__(5, 1), lambda: [np.ones(3)], IndexError, "out of bounds"),
        (lambda x: x.__setitem__(slice(2), [1.0, 2.0, 3.0]), lambda: [np.ones(3)], ValueError, "does not broadcast"),
        (lambda x: x.__iadd__(np.ones((2, 3))), lambda: [np.ones(3)], ValueError, "cannot make its target larger"),
        (lambda x: np.fft.fft(x), lambda: [np.ones(3)], TypeError, "np.fft.* not supported on traced arrays"),
        (add_one, lambda: [te.placeholder((3,))], te.AliasError, r"arguments are values, .*; write into a copy"),
        (lambda x: np.clip(x, 0, 0.5, out=x), lambda: [np.arange(3)], TypeError, "is float64, the target int64"),
        (lambda x: np.add(0.5, x, out=x), lambda: [np.arange(3)], TypeError, "is float64, the target int64"),
        (lambda x: np.clip(x, 0, 2, out=GLOBAL), lambda: [np.ones(3)], TypeError, "no argument of the traced function"),
        (lambda x: np.clip(x, 0, 2, where=True), lambda: [np.ones(3)], TypeError, r"np\.clip at .*argument 'where'"),
        (branch, list, TypeError, r"branch\(x.*missing a required argument: 'x'"),
        (add_one, lambda: [np.ones(3, complex)], TypeError, "argument 'x': dtype complex128 is not supported"),
        (add_one, lambda: [np.ones(3, ">f8")], TypeError, "argument 'x': expected the byte order of this machine"),
        (add_one, lambda: [np.ma.masked_less(np.ones(3), 2)], TypeError, "argument 'x': a mask would be lost"),
        (replace, lambda: [{"m": np.ones(3)}], TypeError, r"the entries of argument 'state', a dict, are replaced"),
        (lambda xs: xs.append(xs[0] * 2), lambda: [[np.ones(3)]], TypeError, "of argument 'xs', a list, are replaced"),
    ],
)  # fmt: skip
def test_refusals(function: Any, arrays: Any, error: Any, message: str) -> None:
    f = te.functionalize(function, interpreted=True)
    if error is None:
        f(*arrays())
        return
    with pytest.raises(error, match=message):
        f(*arrays())
    np.testing.assert_array_equal(GLOBAL, 0)


def test_results_of_numpy_functions_go_into_arrays() -> None:
    def program(x: Any) -> Any:
        y = x[1:]
        np.add(y, 1, out=y)
        np.exp(-y, out=y)
        np.clip(x, 0.1, 2, out=x)
        return np.cumsum(x, axis=0, out=x)

    agree(program, np.linspace(-2, 2, 12).reshape(4, 3))


def test_functionalized_code_is_part_of_the_code_that_calls_it() -> None:
    @te.functionalize
    def push(x: Any, by: float) -> Any:
        """Adds to x."""
        x += by
        return x[1:]

    def program(x: Any) -> Any:
        tail = push(x, 2.0)
        tail *= 3
        return push(x[:2], 1.0)

    x = np.arange(4.0)
    np.testing.assert_array_equal(te.functionalize(program, interpreted=True)(x), [10])
    np.testing.assert_array_equal(x, [3, 10, 12, 15])
    assert repr(push) == "<functionalized push(x: 'Any', by: 'float') -> 'Any'>"
    assert push.__doc__ == "Adds to x."


def test_methods() -> None:
    class Scale:
        @te.functionalize
        def by(self, x: Any, factor: float = 2.0) -> None:
            x *= factor

    x = np.ones(3)
    Scale().by(x)
    Scale().by(x, factor=3.0)
    np.testing.assert_array_equal(x, [6, 6, 6])


def test_placeholders_are_traced_not_arrays() -> None:
    x = np.ones(3)
    with pytest.raises(TypeError, match=r"argument 'x' is an array; f\.trace\(\.\.\.\) takes placeholders"):
        te.functionalize(add_one).trace(x)
    np.testing.assert_array_equal(x, 1)


def test_results_that_are_views_of_one_memory_share_it() -> None:
    def views(x: Any) -> Any:
        y = x.T * 2
        return y, y[1:, ::2], y[0], y.reshape(-1)

    x = np.arange(12.0).reshape(3, 4)
    whole, part, row, flat = agree(views, x)
    assert whole.flags.f_contiguous  # as NumPy lays out what it computes from x.T
    whole[...] = 7
    assert (part == 7).all()
    assert (row == 7).all()
    assert not (flat == 7).all()  # no view of y has that shape


def test_a_number_is_written_in_the_digits_of_the_array() -> None:
    def write(x: Any, n: Any) -> Any:
        x[0] = 0.1
        x[x > 5] = 0.3
        x[np.array([2, 3])] = 0.7
        x.fill(0.9) if x.ndim == 2 else None
        n[...] = 2**53 + 1
        n[1:] = -(2**53) - 1
        return x, n

    agree(write, np.arange(8.0), np.zeros(3, "int64"))
    agree(write, np.arange(8.0).reshape(4, 2), np.zeros(3, "int64"))


def test_results_are_of_the_kind_of_the_arguments() -> None:
    jnp = pytest.importorskip("jax").numpy
    x = jnp.arange(4.0)
    f = te.functionalize(lambda x: (x * 2, x[1:], x, x.sum()), interpreted=True)
    found = f(x)
    assert all(type(a) is type(x) for a in found)
    assert found[2] is x
    for a, b in zip(found, (x * 2, x[1:], x, x.sum()), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="its array is read-only"):
        te.functionalize(add_one)(x)


class TestWithinPrograms:
    """On tensors it is a part of a program: arguments are values, and what it captures is a constant."""

    a = np.arange(1.0, 5)
    factors = np.array([1.0, 2.0, 3.0, 4.0])

    def running(self, x: Any, times: int = 2) -> Any:
        y = x.copy()
        for _ in range(times):
            y[1:] += 0.5 * y[:-1] * self.factors[1:]
        y[0] = 0
        return (y**2).sum(), {"y": y}

    def test_results_are_those_on_arrays(self) -> None:
        f = te.functionalize(self.running)
        for times in (0, 2):
            total, found = te.jit(lambda x, times=times: f(x * 1, times=times))(self.a)
            wanted, nest = self.running(self.a, times)
            np.testing.assert_allclose(total, wanted, rtol=1e-15)
            np.testing.assert_array_equal(found["y"], nest["y"])
        x = te.placeholder((4,), "float64", name="x")
        np.testing.assert_allclose(te.evaluate(f(x)[0], {x: self.a}), self.running(self.a)[0], rtol=1e-15)
        rows = te.vmap(lambda x: f(x)[0])(np.stack([self.a, 2 * self.a]))
        np.testing.assert_allclose(rows, [self.running(k * self.a)[0] for k in (1, 2)], rtol=1e-14)

    def test_derivatives(self) -> None:
        f = te.functionalize(self.running)
        gradient, aux = te.grad(f, has_aux=True)(self.a)
        step = 1e-6 * np.eye(4)
        ends = ([self.running(self.a + sign * h)[0] for h in step] for sign in (1, -1))
        np.testing.assert_allclose(gradient, [(b - c) / 2e-6 for b, c in zip(*ends, strict=True)], rtol=1e-7)
        np.testing.assert_array_equal(aux["y"], self.running(self.a)[1]["y"])

    def test_arrays_beside_tensors(self) -> None:
        f = te.functionalize(lambda x, w: np.where(x > w, x * w, w).sum())
        np.testing.assert_array_equal(te.grad(lambda x: f(x, self.a))(self.a[::-1].copy()), [1, 2, 0, 0])

    @pytest.mark.parametrize("within", [te.jit, te.grad, te.op], ids=["jit", "grad", "op"])
    def test_a_write_into_an_argument_is_refused(self, within: Any) -> None:
        def write(x: Any) -> Any:
            x[1:] += x[:-1]
            return (x**2).sum()

        with pytest.raises(te.AliasError, match=r"'x' is mutated, but within a program .* x = x.copy\(\)"):
            within(te.functionalize(write))(self.a)
