"""What people who know NumPy and PyTorch write first: what it gives, or what is said instead."""

from __future__ import annotations

import copy
import math
import re
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.compiling.samples import inputs_of
from tedsl.backend.host.units import parse_bytes
from tedsl.lang import names

CHANCE = np.random.default_rng(4)
A = CHANCE.standard_normal((4, 3))
WEIGHTS = [0.1, 0.2, 0.7]
x = te.placeholder((4, 3), name="x")


@pytest.mark.parametrize(
    "function",
    [
        lambda m, a: m.where(a > 0.5, 1.0, 0.0),
        lambda m, a: m.where(a > 0.5, 1 / 3, 0) * 1,
        lambda m, a: m.where(a > 0.5, m.pi if m is np else np.pi, np.nan),
    ],
)
def test_choices_between_numbers_are_floats(function: Callable[..., Any]) -> None:
    found = te.jit(lambda a: function(te, a))(A)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, function(np, A).astype(np.float32))


@pytest.mark.parametrize(
    "function",
    [
        lambda m, a: m.matmul(a, WEIGHTS),
        lambda m, a: m.dot(a, WEIGHTS),
        lambda m, a: m.outer(WEIGHTS, a),
        lambda m, a: m.kron(WEIGHTS, a),
        lambda m, a: m.inner(a, WEIGHTS),
        lambda m, a: m.cross(a, WEIGHTS),
        lambda m, a: m.einsum("ij,j->i", a, WEIGHTS),
        lambda m, a: m.tensordot(a, WEIGHTS, 1),
        lambda m, a: m.convolve(a[0], WEIGHTS),
        lambda m, a: m.interp(a, WEIGHTS, [0.3, 0.1, 0.9]),
        lambda m, a: m.polyval(WEIGHTS, a),
        lambda m, a: m.trapezoid(a, WEIGHTS, axis=1),
        lambda m, a: m.average(a, axis=1, weights=WEIGHTS),
        lambda m, a: m.concatenate([a[0], [0.1]]),
        lambda m, a: m.stack([a[0, 0], 0.1]),
        lambda m, a: m.hstack([a[0], WEIGHTS]),
        lambda m, a: m.searchsorted(WEIGHTS, a),
    ],
)
def test_numbers_in_lists_have_all_their_digits_beside_float64(function: Callable[..., Any]) -> None:
    found, want = te.jit(lambda a: function(te, a))(A), function(np, A)
    if want.dtype == np.float64:
        assert found.dtype == np.float64
    np.testing.assert_allclose(found, want, rtol=1e-14, atol=1e-15)


def test_int_is_a_dtype_of_64_bits_as_in_numpy() -> None:
    assert te.jit(lambda a: a.astype(int))(np.array([3e9]))[0] == 3_000_000_000
    assert te.jit(lambda a: a.sum(dtype=int))(np.full(3, 10**9, np.int32)) == 3 * 10**9


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8", "bool"])
@pytest.mark.parametrize("bounds", [{"min": 1}, {"max": 1}, {"low": 0}, {"high": 0}, {"min": 0, "max": 1}, {}])
def test_values_are_clipped_on_one_side(dtype: str, bounds: dict[str, int]) -> None:
    a = (10 * A).astype("int8").astype(dtype)
    low = bounds.get("min", bounds.get("low"))
    high = bounds.get("max", bounds.get("high"))
    want = a if low is None else np.maximum(a, np.asarray(low, dtype))
    want = want if high is None else np.minimum(want, np.asarray(high, dtype))
    np.testing.assert_array_equal(te.jit(lambda a: te.clip(a, **bounds))(a), want)


def test_one_bound_leaves_the_dtype() -> None:
    a = np.arange(5) - 2
    assert te.jit(lambda x: x + te.clip(a, 0))(a).dtype == a.dtype
    assert te.clip(3, 1).dtype == "int32"
    state = te.scan((5,), lambda s, t: te.select(t == 0, 0.5, te.clip(s[t - 1], max=0.25)))
    np.testing.assert_array_equal(te.evaluate(state), [0.5, 0.25, 0.25, 0.25, 0.25])


def test_quotient_and_remainder() -> None:
    for found, want in zip(te.jit(lambda a: divmod(a, 0.3))(A), np.divmod(A, 0.3), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)


class Foreign:
    """An array of another library."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        return A


LOSS = te.sum(x).named("loss")


def view() -> Any:
    """The stage of a schedule."""
    return te.Schedule(x + 1)["add"]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (lambda: f"{x:.3f}", "x : float32[4, 3] has no number that '.3f' would format"),
        (lambda: te.placeholder(4, 3), "dtype 3 is a number (several extents stand together: the shape (.., 3))"),  # type: ignore[arg-type]
        (lambda: te.zeros(3, 4), "dtype 4 is a number (several extents stand together"),
        (lambda: te.where(x > 0), "how many places there are would depend on data; te.where(cond, a, b) chooses"),
        (lambda: te.save({"b": A}, "q.npz"), "expected the path first, te.save(path, values), found dict"),  # type: ignore[arg-type]
        (lambda: te.compute((4,), lambda i: x[i, 0] + Foreign()), "expected a scalar expression or a tensor of tedsl"),
        (lambda: te.build(x, x + 1, schedules=None), "found schedules=; did you mean schedule=?"),  # type: ignore[call-arg]
        (lambda: te.build(x, x + 1, jit=True), "found jit=; it has inputs, outputs, schedule, target, alias"),  # type: ignore[call-arg]
        (lambda: te.evaluate(x + 1, x=A), "found x=; feeds are a dict, by tensors or names"),  # type: ignore[call-overload]
        (lambda: te.select([x > 0], [x], 0.0), "te.select(c1, a, te.select(c2, b, d))"),
        (lambda: te.select([x > 0], [x], default=0), "found default=; several conditions are nested: te.select("),  # type: ignore[call-overload]
        (lambda: x.at(0, 1, value=2), "x.at at "),  # type: ignore[call-arg]
        (lambda: x.at[0].set(values=2), "x.at[...].set at "),  # type: ignore[call-arg]
        (lambda: x.at[0].set(), "expected x.at[...].set(value), found no value"),  # type: ignore[call-arg]
        (lambda: x.std(dims=0), "x.std at "),  # type: ignore[call-arg]
        (lambda: x.std(0, True, 1), "expected x.std(axis=None, keepdims=False, *, ddof=0, where=None), found 3"),
        (lambda: view().tile("i0", 8), "expected s[stage].tile(i, j, i_factor, j_factor, tail=None), found no"),
        (lambda: view()["i0"].parallel(), "loops are named in directives: s['add'].parallel('i0')"),
        (lambda: te.jit(lambda a: np.array([a[0, 0], a[0, 1]]))(A), "te.stack([a, b, ...]) makes a tensor of such"),
        (lambda: te.build(x, x + 1)({"x": A}), "give a dict of arrays by name as kern(**arrays)"),
        (lambda: te.scan((9,), lambda t, s: s[t - 1]), "'Axis' object is not subscriptable, at "),
        (lambda: te.scan((9,), lambda t, s: s[t - 1]), "one scalar has no elements; in te.scan the states come first"),
        (lambda: te.compute((4,), lambda i: x[i, 0][0]), "'Read' object is not subscriptable, at "),
        (lambda: te.compute((4,), lambda i: x[i, 0], dtype="int8"), "the dtype is that of the elements: te.cast"),  # type: ignore[call-overload]
        (lambda: te.sum(lambda k: x[k, 0], k=3), "te.sum at "),  # type: ignore[call-overload]
        (lambda: te.jit(lambda a: a, static_argnums=1), "found static_argnums=; it has opt=, symbolic="),  # type: ignore[call-overload]
        (lambda: te.build(x + 1), "found no outputs"),  # type: ignore[call-overload]
        (lambda: te.Tensor([1, 2]), "tensors are made by te.placeholder, te.compute and the like"),  # type: ignore[arg-type]
        (lambda: te.Schedule(x + 1, x), "expected te.Schedule(outputs), found 2 arguments"),  # type: ignore[call-arg]
        (lambda: te.testing.array("n", lo=1), "found lo=; did you mean low=?"),  # type: ignore[call-arg]
        (lambda: te.testing.check_op(3, "n"), "expected a function of tensors, found int (3)"),  # type: ignore[arg-type]
        (lambda: te.display.plot.gradcheck_errors(3), "expected the report of te.gradcheck"),  # type: ignore[arg-type]
        (lambda: np.zeros((te.var("n"), 3)), "te.zeros, te.ones and te.arange take one"),  # type: ignore[call-overload]
        (lambda: te.compute((4,), lambda i: x[int(x[i, 0]), 0]), "as an index it is te.cast(x, 'int32')"),
        (lambda: te.differentiate(LOSS, x, override={LOSS: lambda h: [h]}), "must be a function of three, (loss"),
        (lambda: te.differentiate(LOSS, x, override={LOSS: ([x], lambda h: [h])}), "(loss, [x], head), found (h)"),
        (
            lambda: te.differentiate(LOSS, x, override={"y": lambda t, i, h: [h]}),
            "override maps tensors to fn or (deps, fn), by the tensor itself; found the key 'y'",
        ),
        (
            lambda: te.ops.optim.train_step(LOSS, [x], optimizer=te.ops.optim.Adam(), lr=0.1),
            "te.ops.optim.train_step at ",
        ),
        (
            lambda: te.ops.optim.train_step(LOSS, [x], lr=0.1),
            "learning rates are of the optimizer, as optim.Adam(lr=0.1)",
        ),
        (lambda: te.take(x, [1], out=A), "te.take at "),  # type: ignore[call-arg]
        (lambda: te.differentiate(LOSS, x, fdiff=lambda h: h), "(output, input, head), found (h)"),
        (lambda: te.build(x, x + 1)(np.full((4, 3), None)), "found object; give numbers, np.asarray(x, 'float32')"),
        (lambda: te.build(x, x + 1)(A + 1j), "found complex128; give its parts apart, x.real and x.imag"),
        (lambda: te.reduce_axis(0, 8), "a range is one pair: te.reduce_axis((0, 8))"),  # type: ignore[arg-type]
        (lambda: te.topk(x, 2, dim=1), "te.topk at "),  # type: ignore[call-arg]
        (lambda: te.topk(x, 2, dim=1), "found dim=, expected axis="),  # type: ignore[call-arg]
        (lambda: te.clip(x, a_min=0), "found a_min=, expected min="),  # type: ignore[call-overload]
        (lambda: te.roll(x, shifts=1), "found shifts=, expected shift="),  # type: ignore[call-arg]
        (lambda: te.where(condition=x > 0, a=x), "found condition=, expected cond="),  # type: ignore[call-arg]
        (lambda: te.transpose(x, dims=(1, 0)), "found dims=, expected axes="),  # type: ignore[call-arg]
        (lambda: te.linspace(0, 1, steps=5), "found steps=, expected num="),  # type: ignore[call-arg]
        (lambda: te.random.normal(te.random.key(0), size=3), "te.random.normal at "),  # type: ignore[call-arg]
        (lambda: te.random.normal(te.random.key(0), size=3), "found size=, expected shape="),  # type: ignore[call-arg]
        (lambda: x.reshape(shape=(12,)), "expected x.reshape(*shape), found shape="),
        (lambda: te.placeholder((3,), "img"), "; a name is given as name='img'"),
        (lambda: te.build(x, x + 1)(None), "expected an array of float32 of shape (4, 3), found NoneType (None)"),
        (lambda: te.build(x, x + 1)(range(3)), "; convert it with np.asarray(x, dtype='float32')"),
        (lambda: te.grad(lambda a, b=1.0: (a * b).sum(), argnums=9)(A), "argnums has 9, but it has 2 positional"),
        (lambda: te.work(x, sizes={3: 3}), "for n = te.var('n') it is sizes={n: 3} or"),
        (
            lambda: te.compute((4,), lambda i: sum(x[k, 0] for k in range(i))),
            "a sum over range(i) is te.sum(lambda k: ..., where=lambda k: k < i)",
        ),
        (lambda: te.ops.optim.Adam("0.1"), "found '0.1'"),
        (lambda: te.jit(lambda a: np.ones(3))(A), "te.constant(array) is one, of values that no argument changes"),
        (lambda: te.save("q.npz", np.ones(2, complex)), "the value is complex128; save its parts, x.real and x.imag"),
        (lambda: np.digitize(x, [1, 2]), 'it is te.searchsorted(bins, x, "right")'),  # type: ignore[call-overload]
    ],
)
def test_what_cannot_be_meant_is_told(written: Callable[[], Any], text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        written()


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (lambda: view().vectorized("i0"), "no directive 'vectorized': it is vectorize(...)"),
        (lambda: te.rand, "random numbers are in te.random, by keys"),
        (lambda: te.Var, "it is te.var"),
        (lambda: te.pi, "it is math.pi"),
        (lambda: te.newaxis, "it is None: x[:, None]"),
        (lambda: te.lax, "lax.scan is te.scan"),
        (lambda: x.chunk(2), "write te.split(x, parts, axis)"),
        (lambda: x[0, 0].exp(), "a scalar expression has no attribute 'exp'; it is te.exp(x[i])"),
        (lambda: x[0, 0].absolute(), "; it is te.abs"),
        (lambda: x[0, 0].abs(), "; it is te.abs(x[i])"),
        (lambda: x[0, 0].clip(0, 1), "; it is te.clip(x[i])"),
        (lambda: x[0, 0].sigmoid(), "; it is te.sigmoid(x[i])"),
        (lambda: te.no_grad(), "derivatives end at te.stop_gradient(x)"),
        (lambda: x.detach(), "write te.stop_gradient(x)"),
        (lambda: te.Schedule(LOSS).loss, "a schedule has no attribute 'loss'; the stage is s['loss']"),
        (lambda: te.Schedule(x + 1).parallel("i0"), "directives are of one stage: s['add'].parallel(...)"),
        (lambda: te.Schedule(x + 1).print_loop_nest(), "print(s) shows its loops"),
        (lambda: x.nbytes, "kern.stats tells that of a kernel"),
        (lambda: x.requires_grad_(), "derivatives are te.differentiate"),
        (lambda: x[0, 0].shape, "a scalar expression has no attribute 'shape'; it is one number, of no axes"),
    ],
)
def test_names_of_others_say_what_is_here(written: Callable[[], Any], text: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(text)):
        written()


def test_an_alias_that_cannot_be_proven_names_donation() -> None:
    w, y, rate = te.placeholder((12, 3), name="w"), te.placeholder((12, 3), name="y"), te.placeholder((), name="rate")
    loss = ((w - y) ** 2).mean() + 0.01 * (w**2).sum()
    new = w - rate * te.differentiate(loss, w)
    with pytest.raises(te.AliasError, match=r"give donate=\[w\] in place of alias="):
        te.build([w, y, rate], [loss, new], alias={new: w})
    te.build([w, y, rate], [loss, new], donate=[w])


@pytest.mark.parametrize(
    "written",
    [lambda a, b: a + b, lambda a, b: a @ b, lambda a, b: te.stack([a, b]), lambda a, b: te.select(a > 0, a, b)],
)
def test_two_sizes_of_one_name_are_told(written: Callable[[Any, Any], Any]) -> None:
    a, b = (te.placeholder((te.var("n"),), name=name) for name in "ab")
    with pytest.raises(ValueError, match=r"these are two sizes called n: each te.var makes a new one"):
        written(a, b)


def test_a_rule_that_forgets_to_return_is_told() -> None:
    y = te.sin(x).named("y")
    for rule in (lambda t, deps, head: None, ([x], lambda t, deps, head: None)):
        with pytest.raises(TypeError, match=r"override of 'y' returned None, at .*one adjoint for each of x, \[None\]"):
            te.differentiate(y.sum(), x, override={y: rule})


def test_schedules_are_copied() -> None:
    y = (x + 1).named("y")
    z = te.compute((4, 3), lambda i, j: y[i, j] * 2, name="z")
    s = te.Schedule(z)
    s[y].compute_at(z, "i")
    for other in (copy.copy(s), copy.deepcopy(s)):
        assert str(other) == str(s)
        other[z].vectorize("j")
        assert str(other) != str(s)


def test_printed_loops_and_statements_name_an_axis_alike() -> None:
    j = te.compute((3,), lambda i: te.exp(-i / 6), name="j")
    s = te.Schedule((x * j).named("y"))
    assert "  y[i, j] = x[i, j] * j[j]   for i < 4, j < 3\n" in str(s)
    s["y"].parallel("i")
    assert "for i < 4, parallel:\n  for j < 3:\n    y[i, j] = x[i, j] * j[j]" in str(s)
    number = te.placeholder((), name="j")
    assert "  y[i, j_1] = x[i, j_1] * j   for" in str(te.Schedule((x * number).named("y")))


@pytest.mark.parametrize(
    ("written", "error", "text"),
    [
        (
            lambda: te.compute((4, 3), lambda i, j=0: x[i, j]),
            ValueError,
            "takes 1 axis (i), the shape has 2 dimensions; j",
        ),
        (lambda: te.take(x, [9], mode="clamp"), ValueError, "mode must be one of raise, clip, wrap; found 'clamp'"),
        (
            lambda: te.ops.cross_entropy(x, x[:, 0]),
            ValueError,
            "expected integers, the classes (target.astype('int32'))",
        ),
        (lambda: te.ops.optim.Adam(lr=-1), ValueError, "lr: expected a number of 0 or more, found -1"),
        (lambda: te.jit(lambda a, i: a[i])(A, np.array([0, -1])), IndexError, "of Python count from the end, data"),
        (
            lambda: view().parallel("i").parallel("i"),
            te.ScheduleError,
            "is parallel already, and a loop is one thing",
        ),
    ],
)
def test_what_has_no_meaning_is_told(written: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        written()


def test_sizes_below_nothing_name_the_least() -> None:
    u = te.placeholder((te.var("n"),), name="u")
    kern = te.build(u, u[1:-1])
    assert kern(A[:2, 0].astype("float32")).shape == (0,)
    with pytest.raises(
        ValueError, match=r"extent `n - 2` is -1 with n = 1; an extent cannot be negative: it needs n >= 2"
    ):
        kern(A[:1, 0].astype("float32"))


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64"])
@pytest.mark.parametrize("function", [np.positive, np.fabs, np.signbit, np.atleast_1d, np.atleast_2d, np.atleast_3d])
@pytest.mark.parametrize("ndim", [0, 1, 2])
def test_small_functions_of_numpy(function: Callable[..., Any], dtype: str, ndim: int) -> None:
    a = np.asarray(3 * A[(0,) * (2 - ndim)], dtype)
    found, want = te.jit(lambda a: function(a))(a), function(a)
    np.testing.assert_array_equal(found, want)
    assert (found.dtype, found.shape) == (want.dtype, want.shape)


def test_round_is_that_of_numpy() -> None:
    np.testing.assert_array_equal(te.jit(lambda a: round(a))(A), np.round(A))
    np.testing.assert_allclose(te.jit(lambda a: round(a, 1))(A), np.round(A, 1), rtol=1e-15)
    assert te.jit(lambda a: np.empty_like(a))(A).shape == A.shape


def test_places_are_the_users_own_below_plots_and_frameworks() -> None:
    plt, jax = pytest.importorskip("matplotlib.pyplot"), pytest.importorskip("jax")
    for written in (lambda: plt.plot(x), lambda: plt.imshow(x), lambda: jax.numpy.asarray(x)):
        with pytest.raises(TypeError, match=r"test_guesses\.py:\d+"):
            written()
    plt.close("all")


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("places", [5, -9, np.array(7), [-9, -1, 0, 5, 7], np.array([[0, 9], [7, 2]], "uint64")])
def test_places_outside_are_taken_as_by_numpy(places: Any, axis: int | None, mode: str) -> None:
    whole = np.asarray(places).astype(np.int64)  # NumPy 2.0 takes no unsigned ones
    want = np.take(A, whole, axis, mode=mode)  # type: ignore[call-overload]
    for function in (lambda a: te.take(a, places, axis, mode), lambda a: np.take(a, places, axis, mode=mode)):
        np.testing.assert_array_equal(te.jit(function)(A), want)
    np.testing.assert_array_equal(te.jit(lambda a, i: a.take(i, axis, mode=mode))(A, np.asarray(places)), want)


def test_places_outside_of_a_size_that_is_not_known() -> None:
    u = te.placeholder((te.var("n"),), name="u")
    values = np.arange(5, dtype="float32")
    np.testing.assert_array_equal(te.evaluate(te.take(u, [-1, 7], mode="wrap"), {u: values}), [4, 2])
    np.testing.assert_array_equal(te.evaluate(te.take(u, [-1, 7], mode="clip"), {u: values}), [0, 4])


def test_what_the_hint_for_stopped_gradients_says_works() -> None:
    stopped = te.op(lambda x: x)
    stopped.def_vjp(lambda y, inputs, head: [None])
    np.testing.assert_array_equal(te.grad(lambda a: (stopped(a) * a).sum())(A), A)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
@pytest.mark.parametrize(
    "loss", ["binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss", "l1_loss", "smooth_l1_loss"]
)
def test_losses_have_the_dtype_of_the_predictions(loss: str, dtype: str) -> None:
    labels, predicted = np.array([0, 1, 1], dtype), np.array([0.2, 0.3, 0.9], "float32")
    found = getattr(te.ops, loss)(predicted, labels)
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found, getattr(te.ops, loss)(predicted, labels.astype("float32")))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_one_are_those_of_a_batch_of_one(reduction: str) -> None:
    logits, label = A[0].astype("float32"), np.asarray(2)
    shares = np.array([0.1, 0.2, 0.7], "float32")
    for target in (label, shares):
        found = te.ops.cross_entropy(logits, target, reduction=reduction)
        assert found.shape == ()
        np.testing.assert_array_equal(found, te.ops.cross_entropy(logits[None], target[None], reduction="sum"))
    np.testing.assert_array_equal(te.ops.nll_loss(logits, label, reduction=reduction), -logits[2])


def test_units_of_memory_as_people_write_them() -> None:
    for text in ("0.02MiB", "20.48 KiB", "20971 B"):
        assert abs(parse_bytes(text) - 20971) <= 1
    with pytest.raises(ValueError, match="found '2iB'"):
        parse_bytes("2iB")


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
def test_torchscript_is_refused_by_its_name() -> None:
    torch = pytest.importorskip("torch")
    doubled = te.op(lambda x: 2 * x)
    with pytest.raises(TypeError, match=r"TorchScript \(torch.jit.trace\) is not supported; torch.export and torch.c"):
        torch.jit.trace(lambda x: doubled(x), torch.ones(3))


def test_printed_vectors_say_how_far_apart_their_lanes_lie() -> None:
    n = te.var("n")
    z = te.placeholder((40, n + 1, 3), name="z")
    y = (z + 1).named("y")
    apart = te.Schedule(y)
    apart[y].reorder("j", "k", "i").vectorize("i", 8)
    assert "vectorized, lanes (n + 1) * 3 elements apart, each stored alone:" in str(apart)
    together = te.Schedule(y)
    together[y].vectorize("k")
    assert "apart" not in str(together)


def test_pointers_to_names_of_others_can_be_followed() -> None:
    """Each te.name that is told of exists, and each expression can be evaluated."""
    told = "; ".join([*names.OF_MODULES.values(), *names.OF_TENSORS.values()])
    for written in set(re.findall(r"\bte\.[a-zA-Z_0-9.]*[a-zA-Z_0-9]", told)):
        found: Any = te
        for part in written.split(".")[1:]:
            found = getattr(found, part)
    v, k = te.placeholder((5, 5)), te.placeholder((5, 5), "int32")
    known = dict.fromkeys("abpwxyz", v) | {"te": te, "np": np, "math": math, "n": 5, "value": 2.0, "base": 10.0, "c": 1}
    known |= {"start": 0, "length": 2, "axis": 1, "shape": (5, 5), "places": [0], "values": v[0], "bounds": v[0]}
    integers = {**known, "x": k, "y": k}
    tried = 0
    for name, expression in names.WRITTEN.items():
        try:
            code = compile(expression, name, "eval")
        except SyntaxError:  # words
            continue
        if " and " in expression:
            continue
        scope = integers if re.search(r"[&|^~]|<<|>>", expression) else known
        if name in ("geomspace", "logspace"):
            scope = {**known, "a": 1.0, "b": 2.0}
        eval(code, scope)
        tried += 1
    assert tried > 60


@pytest.mark.parametrize(("method", "name"), names.OF_METHODS)
def test_methods_of_functions_of_numpy_are_what_is_told(method: str, name: str) -> None:
    x, y, p = (te.placeholder((n,), "float64", name=letter) for n, letter in ((3, "x"), (4, "y"), (2, "values")))
    scope = {"te": te, "x": x, "y": y, "axis": 0, "places": [2, 0], "values": p}
    made = eval(names.OF_METHODS[method, name], scope)
    feeds = {"x": np.array([0.5, 2.0, -1.25]), "y": np.array([2.0, 0.5, 3.0, 2.0]), "values": np.array([3.0, -2.0])}
    if name == "power":
        feeds["x"] = abs(feeds["x"])
    found = te.evaluate(made, {t.name: feeds[t.name] for t in inputs_of([made]) if t.name in feeds})
    function = getattr(getattr(np, name), method)
    if method == "at":
        want = feeds["x"].copy()
        function(want, [2, 0], feeds["values"])
    else:
        want = function(feeds["x"], feeds["y"]) if method == "outer" else function(feeds["x"])
    np.testing.assert_allclose(found, want, rtol=1e-12)


def test_a_tensor_of_pytorch_is_no_tensor_to_index_at_an_axis() -> None:
    torch = pytest.importorskip("torch")
    table = torch.ones(4, 4)
    told = r"\(got Axis\), at .*test_guesses.py.*make that one of tedsl first, as a = te.constant\(array\)"
    for read in (
        lambda: te.compute((4,), lambda j: table[j, j]),
        lambda: te.compute((4,), lambda j: te.sum(lambda k: table[j][k])),
        lambda: te.scan((4,), lambda s, t: te.select(t == 0, 0.0, s[t - 1] + table[t, 0])),
    ):
        with pytest.raises(IndexError, match=told):
            read()
    c = te.constant(table)
    np.testing.assert_array_equal(te.evaluate(te.compute((4,), lambda j: c[j, j])), np.ones(4))


def test_a_missing_key_is_told_with_the_function_that_asked_for_it() -> None:
    def loss(p: Any, x: Any) -> Any:
        return (x @ p["w"]).sum()

    params, data = {"v": np.ones(4)}, np.ones((2, 4))
    told = r"loss.* called on \(p_v : float64\[4\], x : float64\[2, 4\]\): there is no key 'w'$"
    for run in (te.op(loss), te.jit(loss), te.grad(loss), te.jit(lambda p, x: te.grad(loss)(p, x))):
        with pytest.raises(KeyError) as error:
            run(params, data)
        assert re.search(told if run.__name__ != "<lambda>" else "there is no key 'w'$", str(error.value))


def test_names_differ_by_underscores_only() -> None:
    for name, own in {
        "log_sigmoid": "ops.logsigmoid",
        "hard_swish": "ops.hardswish",
        "arg_max": "argmax",
    }.items():
        with pytest.raises(AttributeError, match=f"it is te.{own}$"):
            getattr(te, name)


def test_more_names_of_numpy_and_pytorch_are_taken() -> None:
    B = A.astype("float32")
    for largest in (True, False):
        values, places = te.topk(x, 2, axis=1, largest=largest)
        rows = np.sort(B, 1)[:, ::-1][:, :2] if largest else np.sort(B, 1)[:, :2]
        np.testing.assert_array_equal(te.interpret(values, {x: B}), rows)
        np.testing.assert_array_equal(np.take_along_axis(B, te.interpret(places, {x: B}), 1), rows)
    np.testing.assert_array_equal(te.interpret(np.sort(x, kind="stable"), {x: B}), np.sort(B))
    np.testing.assert_array_equal(te.interpret(np.argsort(x, stable=True), {x: B}), np.argsort(B, stable=True))
    at, ends = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, np.nan]), {"left": 5.0, "right": 7.0}
    found = te.interp(te.constant(at), [0.0, 1.0], [1.0, 2.0], **ends)
    np.testing.assert_allclose(te.interpret(found, {}), np.interp(at, [0.0, 1.0], [1.0, 2.0], **ends))
    first, second = te.grad(lambda a, b: (a * b).sum(), argnums=[0, 1])(A, A + 1)
    np.testing.assert_array_equal([first, second], [A + 1, A])
    wide = te.placeholder((2,), "float64")
    assert te.linspace(0, wide[1], 5).dtype is te.linspace(wide[0], wide.sum(), 5).dtype is wide.dtype
    assert te.linspace(0, 1, 5).dtype == te.linspace(0, te.var("n"), 5).dtype == "float32"


def test_a_symbol_has_one_name() -> None:
    for written in ("n m", "n, m"):
        with pytest.raises(ValueError, match=r"one symbol each, .*te.var\('m'\)"):
            te.var(written)


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_numbers_are_true_where_they_are_not_zero(name: str) -> None:
    a, b = np.array([0.0, -0.0, 1.0, np.nan, 0.3, -2.0], "float32"), np.array([1, 0, 0, 2, 0, -1])
    u, v = te.placeholder((6,), name="u"), te.placeholder((6,), "int64", name="v")
    found, want = getattr(te, name)(u, v), getattr(np, name)(a, b)
    np.testing.assert_array_equal(te.interpret(found, {u: a, v: b}), want)
    np.testing.assert_array_equal(te.evaluate(found, {u: a, v: b}), want)
    np.testing.assert_array_equal(te.evaluate(te.logical_not(u), {u: a}), np.logical_not(a))


def test_sizes_may_be_arguments_of_operators() -> None:
    n = te.var("n")
    v = te.placeholder((n,), name="v")
    ramp = te.op(lambda x, m: te.compute((m,), lambda i: x[i] * i))
    np.testing.assert_array_equal(te.evaluate(ramp(v, n - 1), {v: np.ones(5, "float32")}), [0, 1, 2, 3])
    np.testing.assert_array_equal(te.evaluate(ramp(v, n), {v: np.ones(3, "float32")}), [0, 1, 2])
    image = te.placeholder((1, 1, 4, 4), name="image")
    with pytest.raises(ValueError, match=r"a size of te\.var is known when a kernel is called, give arrays"):
        te.ops.unfold(image, (n, n))


def test_more_steps_than_there_are_cannot_be_kept() -> None:
    with pytest.raises(ValueError, match="keep: expected 1 or more, of 1 steps, found 2"):
        te.scan((1,), lambda u, t: te.select(t == 0, 1.0, u[t - 1]), keep=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: te.exp(x, dtype="float64"),
            r"te\.exp at .*test_guesses.py:\d+: found dtype=; x\.astype\(dtype\) converts",
        ),
        (lambda: te.sqrt(x, out=x), r"te\.sqrt at .*: found out=; .*kernel\(x, out=array\)"),
        (lambda: te.sin(x, where=x > 0), r"te\.sin at .*: found where=; te\.where\(cond, a, b\) chooses"),
        (lambda: te.maximum(x), r"te\.maximum at .*: expected te\.maximum\(a, b\), found no b"),
        (lambda: te.atan2(x), r"te\.atan2 at .*: expected te\.atan2\(y, x\), found no x"),
        (lambda: te.cast(x), r"te\.cast at .*: expected te\.cast\(x, dtype\), found no dtype"),
        (lambda: te.round(x, 1, 2), r"te\.round at .*: expected te\.round\(x, decimals=0\), found 3 arguments"),
        (lambda: x.exp(eps=3), r"x\.exp at .*: found eps=; it takes none"),
    ],
)
def test_elementary_functions_say_how_they_are_called(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("name", ["sum", "prod"])
def test_sums_and_products_are_made_in_the_dtype_that_is_asked_for(name: str) -> None:
    total = getattr(te, name)
    pixels = te.placeholder((4, 3), "uint8", name="pixels")
    values = np.arange(200, 212, dtype="uint8").reshape(4, 3)
    expected = getattr(np, name)(values, axis=1, dtype="float64")
    whole = total(pixels, 1, dtype="float64")
    written = te.compute((4,), lambda i: total(lambda k: pixels[i, k], dtype="float64"))
    for found in (whole, written):
        assert found.dtype == "float64"
        np.testing.assert_array_equal(te.evaluate(found, {pixels: values}), expected)


FUNCTIONS = [name for name in te.__all__ if isinstance(getattr(te, name), types.FunctionType)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_say_how_they_are_called(name: str) -> None:
    with pytest.raises(TypeError, match=rf"te\.{name} at .*test_guesses"):
        getattr(te, name)(no_such_argument=1)


def test_a_check_of_given_gradients_says_what_is_checked() -> None:
    with pytest.raises(TypeError, match=r"found gradients=; it checks the adjoints that te.differentiate"):
        te.gradcheck(x.sum(), x, gradients=x)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("create_schedule", r"it is te.Schedule\(outputs\)"),
        ("comm_reducer", "it is te.reducer"),
        ("linalg", "te.scan over rows, as docs/linear_algebra.md does"),
        ("solve", "te.scan over rows, as docs/linear_algebra.md does"),
        ("ctc_loss", "a recurrence over frames: te.scan"),
    ],
)
def test_names_of_others_without_a_like_here_say_how_it_is_written(name: str, words: str) -> None:
    for module in (te, te.ops):
        with pytest.raises(AttributeError, match=words):
            getattr(module, name)


@pytest.mark.parametrize("buffer", [memoryview(np.ones(3)), memoryview(b"123"), bytearray(b"123")])
def test_buffers_are_no_arrays_of_functions(buffer: Any) -> None:
    for function in (te.jit(lambda a: a + 1), te.op(lambda a: a + 1)):
        with pytest.raises(TypeError, match=r"is a buffer, and no array; pass np.asarray\(x\)"):
            function(buffer)


def test_a_sum_is_not_computed_inline_but_at_its_reader() -> None:
    y = x.sum(1).named("y")
    s = te.Schedule(y + 1)
    with pytest.raises(te.ScheduleError, match=r"y is a reduction; .*; s\['y'\].compute_at\(s\[reader\], loop\)"):
        s[y].compute_inline()


def test_slopes_at_borders_are_as_the_docs_say() -> None:
    points = np.array([-1.0, 0.0, 0.5, 1.0, 2.0])
    np.testing.assert_array_equal(te.grad(lambda v: v.clip(0, 1).sum())(points), [0, 1, 1, 1, 0])
    np.testing.assert_array_equal(te.grad(lambda v: te.minimum(v, 0.5).sum())(points), [1, 1, 0.5, 0, 0])
    np.testing.assert_array_equal(te.grad(lambda v: v.min())(np.array([2.0, 1.0, 1.0])), [0, 1, 0])


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
def test_reductions_of_one_element_are_that_element(name: str) -> None:
    one = te.placeholder((), name="one")
    assert te.evaluate(getattr(te, name)(one), {one: np.float32(3)}) == 3
    assert te.compute((2,), lambda i: te.sum(one, axis=te.reduce_axis(4))).shape == (2,)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (lambda k: A[k], "at these places are te.constant(A)[k], those of np.eye(c) te.ops.one_hot(k, c); leave"),
        (lambda k: np.asarray(A[k, 0]) + np.ones(3), "are te.constant(A)[k], those"),
        (lambda k: [1.0, 2.0][k], "elements of a list are te.constant([...])[k], and a loop of so many rounds is a te"),
        (lambda k: list(range(k)), "rounds is a te.scan of as many as there may be, whose steps from k on keep what"),
    ],
)
@pytest.mark.parametrize("shape", [(), (3,)])
def test_places_in_arrays_that_are_no_tensors(written: Callable[[Any], Any], text: str, shape: Any) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        te.jit(written)(np.zeros(shape, "int64"))


def test_what_the_hint_for_places_and_rounds_says_works() -> None:
    found = te.jit(lambda k: te.constant(A)[k].sum() + te.constant([1.0, 2.0])[k])(np.array(1))
    assert found == A[1].sum() + 2
    rounds = lambda n: te.scan((6,), lambda u, t: te.select(t == 0, 1.0, te.select(t > n, u[t - 1], u[t - 1] * 2)))[5]  # noqa: E731
    assert te.jit(rounds)(np.array(3)) == 8
