"""`@te.op` on tensors and NumPy arrays: results, caching, rules of the author, and what it refuses."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import types
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.traverse import stages_of
from tedsl.ops import routines
from tedsl.ops.op import Op
from tedsl.ops.routines import Batched, Pullback, Pushforward
from tedsl.ops.saving import KeptPullback, Saving, kept_by, saving_of
from tests.bridges.operators import CATALOGUE_OPS

RNG = np.random.default_rng(0)


@te.op
def scaled(x: te.Tensor, factor: float = 2.0) -> te.Tensor:
    """x * factor."""
    return te.compute(x.shape, lambda i: x[i] * factor, name="y")


@te.op
def softmax(x: te.Tensor) -> te.Tensor:
    n, m = x.shape
    top = te.compute((n,), lambda i: te.max(lambda k: x[i, k]), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(lambda k: e[i, k]), name="total")
    return te.compute((n, m), lambda i, j: e[i, j] / total[i], name="y")


@te.op
def moments(x: te.Tensor) -> dict[str, Any]:
    mean = x.mean()
    return {"mean": mean, "both": (mean, (x * x).mean())}


def definition(op: Op, *arrays: Any, **static: Any) -> Any:
    return op.definition(op.signature.call(arrays, static).template)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype("float32")


def test_a_call_on_tensors_is_the_expression() -> None:
    x = te.placeholder((5,), name="x")
    y = scaled(scaled(x), factor=3)
    a = normal(5)
    np.testing.assert_array_equal(te.interpret(y, {x: a}), a * 2 * 3)


def test_a_call_on_arrays_gives_arrays_again_and_again() -> None:
    for n in (3, 4, 3):
        a = normal(n)
        for factor in (2.0, 3):
            result = scaled(a, factor)
            assert type(result) is np.ndarray
            np.testing.assert_array_equal(result, a * factor)
    assert len(scaled._definitions) == 2


def test_python_scalars_are_weak() -> None:
    for dtype in ("float16", "float32", "float64", "int64"):
        a = np.arange(4).astype(dtype)
        assert scaled(a, 3).dtype == dtype


def test_results_come_in_the_nest_that_the_function_returned() -> None:
    a = normal(6)
    found = moments(a)
    assert set(found) == {"mean", "both"}
    np.testing.assert_allclose(found["both"], [a.mean(), (a * a).mean()], rtol=1e-5, atol=1e-6)


def test_arrays_inside_tuples_lists_and_dicts() -> None:
    Pair = namedtuple("Pair", "first second")

    @te.op
    def total(many: Any, weights: Any = None) -> te.Tensor:
        return many["a"][0] + many["b"].first * weights[0] + many["b"].second * weights[1]

    a, b, c = normal(3), normal(3), normal(3)
    result = total({"a": [a], "b": Pair(b, c)}, weights=(2, 3))
    np.testing.assert_allclose(result, a + 2 * b + 3 * c, rtol=1e-6)


@pytest.mark.parametrize("mode", [None, "write", "add", "null"])
def test_out_and_mode(mode: str | None) -> None:
    a, buffer = normal(4), np.ones(4, "float32")
    returned = scaled(a, out=buffer, mode=mode)
    assert mode == "null" or returned is buffer
    np.testing.assert_allclose(buffer, {"add": 1 + 2 * a, "null": np.ones(4)}.get(str(mode), 2 * a), rtol=1e-6)


def test_out_of_several_results_has_their_nest() -> None:
    a = normal(5)
    out = {"mean": np.zeros((), "float32"), "both": (np.zeros((), "float32"), np.zeros((), "float32"))}

    @te.op
    def pair(x: te.Tensor) -> Any:
        return x + 1, x + 2

    first, second = np.empty(5, "float32"), np.empty(5, "float32")
    pair(a, out=(first, second))
    np.testing.assert_array_equal((first, second), (a + 1, a + 2))
    with pytest.raises(ValueError, match="out="):
        moments(a, out=out["both"])


def test_prepared_calls_tell_nests_apart() -> None:
    def weight(axes: Any) -> int:
        return 5 if axes[0] is True else len(axes)

    op = te.op(lambda p, axes=(0,): {k: v.sum(int(axes[0])) * weight(axes) for k, v in p.items()})
    a, b = normal(2, 3), normal(3, 2)
    for _ in range(2):
        for given in ({"a": a, "b": b}, {"b": a, "a": b}, {"a": a}, {"a": a.astype("float64")}):
            for axes in ((0,), (1,), (True,), [1, 1]):
                found = op(given, axes)
                assert list(found) == list(given)
                for k, v in given.items():
                    assert found[k].dtype == v.dtype
                    np.testing.assert_allclose(found[k], v.sum(int(axes[0])) * weight(axes), rtol=1e-6)
    out = {"a": np.zeros(3, "float32")}
    assert op({"a": a}, (0,), out=out)["a"] is out["a"]


def test_a_prepared_call_writes_into_out() -> None:
    a, buffer = normal(7), np.empty(7, "float32")
    for _ in range(3):
        assert scaled(a, out=buffer) is buffer
    np.testing.assert_array_equal(buffer, 2 * a)


def test_many_shapes_share_one_kernel() -> None:
    @te.op
    def double(x: te.Tensor) -> te.Tensor:
        return x + x

    for n in range(2, 12):
        a = normal(n)
        np.testing.assert_array_equal(double(a), a + a)
    kernels = {id(t.kernel) for t in definition(double, normal(2)).traces.values()}
    assert len(kernels) == 5


def floats(*shapes: tuple[int, ...]) -> Any:
    return tuple((shape, "float32") for shape in shapes)


def shapes_of(traced: Any) -> str:
    return " ".join(f"[{', '.join(map(str, t.extents))}]" for t in traced.inputs)


@pytest.mark.parametrize(
    ("rule", "shapes", "expected"),
    [
        (lambda a, b: a + b, lambda n: ((n,), (n,)), "[n0] [n0]"),
        (lambda x, w: x @ w, lambda n: ((n, 5), (5, 3)), "[n0, 5] [5, 3]"),
        (lambda x, w: x @ w, lambda n: ((n, n), (n, n + 1)), "[n0, n0] [n0, n1]"),
        (te.ops.mse_loss.function, lambda n: ((n, 4), (n, 4)), "[n0, 4] [n0, 4]"),
        (lambda x, y: x * y.sum(0), lambda n: ((n, 4), (2 * n, 4)), "[n0, 4] [n1, 4]"),
        (lambda x, w: te.grad(lambda x: (x @ w).sum())(x), lambda n: ((n, 4), (4,)), "[n0, 4] [4]"),
    ],
)
def test_extents_that_changed_become_symbols_and_equal_ones_share_one(rule: Any, shapes: Any, expected: str) -> None:
    one = definition(te.op(rule), *(normal(*shape) for shape in shapes(2)))
    made = dict.fromkeys(one.traced(floats(*shapes(n))) for n in (2, 3, 4, 5, 6, 7, 9))
    assert [shapes_of(traced) for traced in made][4:] == [expected]


@pytest.mark.parametrize("symbolic", [None, True])
def test_a_guess_of_equal_extents_is_made_again_where_a_call_breaks_it(
    symbolic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routines, "MOST_SHAPES", 1)
    product = te.op(lambda x, w: x @ w, symbolic=symbolic)
    one = definition(product, normal(4, 4), normal(4, 4))
    expected = ["[n0, n0] [n0, n0]", "[n0, n1] [n1, n1]", "[n0, n1] [n1, n2]"]
    found = []
    for n, k, m in [(4, 4, 4), (6, 6, 6), (3, 6, 6), (5, 7, 7), (3, 4, 5), (8, 8, 8), (2, 9, 8)]:
        traced = one.traced(floats((n, k), (k, m)))
        found += [shapes_of(traced)] if traced.is_symbolic else []
    assert list(dict.fromkeys(found)) == expected
    for n, k, m in [(6, 6, 6), (2, 9, 8)]:
        x, w = normal(n, k), normal(k, m)
        np.testing.assert_allclose(product(x, w), x @ w, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"3.*4|4.*3"):
        product(normal(2, 3), normal(4, 2))
    assert not one.traced(floats((1, 5), (5, 5))).is_symbolic or symbolic  # an axis of 1 may be broadcast


def test_derivatives_have_the_symbols_of_their_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routines, "MOST_SHAPES", 1)
    one = definition(te.op(lambda x, w, y: te.mean((x @ w - y) ** 2)), normal(2, 3), normal(3), normal(2))
    found = set()
    for n in (2, 3, 4):
        specs = floats((n, 3), (3,), (n,))
        saving = saving_of(one, "reductions", specs)
        kept = saving.kept(specs)
        results = saving.traced(specs).output_specs(specs)
        backward = saving.derived(KeptPullback, (0,), (0,), kept.results)
        made = backward.traced((*specs, *(results[p] for p in kept.results), ((), "float32")))
        found |= {shapes_of(saving.traced(specs)), shapes_of(made)}
    fixed = {"[2, 3] [3] [2]", "[2, 3] [3] [2] [2] []"}
    assert found == fixed | {s.replace("2", "n0") for s in fixed}


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int32", "float16", "float32", "float64"])
@pytest.mark.parametrize(
    "rule",
    [
        lambda x, i: x[i] / x.shape[0], lambda x, i: x[i] * (i / x.shape[0]), lambda x, i: x[i] + x.shape[0],
        lambda x, i: x[i] * (i % x.shape[0]), lambda x, i: te.sqrt(x.shape[0]) * x[i],
        lambda x, i: te.maximum(x[i], x.shape[0] // 2),
    ],
)  # fmt: skip
def test_dtypes_do_not_change_when_extents_become_symbols(rule: Any, dtype: str) -> None:
    @te.op
    def f(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda i: rule(x, i))

    results = [f(np.ones(n, dtype)) for n in range(1, 9)]
    assert len({r.dtype for r in results}) == 1
    if np.dtype(dtype).kind == "f":
        assert results[0].dtype == dtype


def test_an_op_that_needs_numbers_is_compiled_for_each_shape() -> None:
    @te.op
    def halves(x: te.Tensor) -> te.Tensor:
        return te.compute((x.shape[0] // 2,), lambda i: x[i]) if x.shape[0] > 5 else x + 0

    for n in range(2, 12):
        a = normal(n)
        np.testing.assert_array_equal(halves(a), a[: n // 2] if n > 5 else a)


def test_strides_empty_arrays_and_scalars() -> None:
    a = normal(8, 6)
    np.testing.assert_allclose(softmax(a[::-2, ::2]).sum(1), np.ones(4), rtol=1e-6)
    assert softmax(a[:0]).shape == (0, 6)
    assert te.op(lambda x: x * x)(np.full((), 3.0)).shape == ()


def test_a_returned_input_is_copied() -> None:
    @te.op
    def same(x: te.Tensor) -> Any:
        return x, x + 1, x

    a = normal(3)
    first, _, last = same(a)
    assert not any(np.shares_memory(p, q) for p, q in ((first, a), (last, a), (first, last)))
    np.testing.assert_array_equal(first, a)


def test_in_place_code_may_call_an_op() -> None:
    def code(x: Any) -> Any:
        y = scaled(x, 3)
        y += 1
        x[0] = 7
        return scaled(y)

    a = normal(3)
    before = a.copy()
    np.testing.assert_allclose(te.functionalize(code)(a), 2 * (3 * before + 1), rtol=1e-6)
    assert a[0] == 7


# --- derivatives ----------------------------------------------------------------------------------------------------


def test_what_a_forward_pass_keeps() -> None:
    a, head = normal(3, 5), normal(3, 5)
    specs = (((3, 5), "float32"),)
    one = definition(softmax, a)
    saving = one.derived(Saving, "reductions", False)
    kept = kept_by(saving, specs)
    assert kept is not None
    assert kept.names == ("y", "top", "total")
    results = saving.run([a])
    backward = saving.derived(KeptPullback, (0,), (0,), kept.results)
    (gradient,) = backward.run([a, *(results[p] for p in kept.results), head])
    (plain,) = one.derived(Pullback, (0,), (0,)).run([a, head])
    y = results[0]
    np.testing.assert_allclose(gradient, y * (head - (head * y).sum(1, keepdims=True)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(plain, gradient, rtol=1e-4, atol=1e-6)
    (traced,) = backward.traces.values()
    assert {"top", "total", "y"}.isdisjoint(op.name for op in stages_of(traced.outputs))


def test_kept_stages_are_computed_once_by_the_forward_pass() -> None:
    saving = definition(softmax, normal(3, 5)).derived(Saving, "reductions", False)
    names = [op.name for op in stages_of(saving.traced((((3, 5), "float32"),)).outputs)]
    assert len(names) == len(set(names))


def test_the_backward_pass_reads_what_is_kept_also_when_one_kernel_serves_all_shapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stages that are kept are others with symbols for extents: the sums of a recurrence, in this case."""
    monkeypatch.setattr(routines, "MOST_SHAPES", 1)
    case = next(c for c in CATALOGUE_OPS if str(c) == "gru")
    one = definition(case.op, *case.arrays)
    found = []
    for times in (1, 2):
        specs = tuple((tuple(n * times for n in a.shape), "float64") for a in case.arrays)
        forward = (saving := saving_of(one, "reductions", specs)).traced(specs)
        kept, results = saving.kept(specs), forward.output_specs(specs)
        backward = saving.derived(KeptPullback, (0,), (0,), kept.results)
        given = (*specs, *(results[p] for p in kept.results), results[0])
        assert [(t.ndim, str(t.dtype)) for t in backward.traced(given).inputs] == [(len(s), d) for s, d in given]
        found.append((len(results), forward.is_symbolic, backward.traced(given).is_symbolic))
    assert found == [(16, False, False), (17, True, True)]


@pytest.mark.parametrize("save", ["inputs", "reductions", ["total"]])
def test_derivatives_do_not_depend_on_what_is_kept(save: Any) -> None:
    op = te.op(softmax.function, save=save)
    a = normal(2, 3)
    saving = definition(op, a).derived(Saving, op.author.save, False)
    kept = kept_by(saving, (((2, 3), "float32"),))
    assert (kept is None) == (save == "inputs")
    if save == ["total"]:
        assert kept is not None
        assert kept.names == ("y", "total")


def test_batched_and_forward_forms_agree_with_a_loop() -> None:
    a, t = normal(4, 2, 3), normal(4, 2, 3)
    one = definition(softmax, a[0])
    (each,) = one.derived(Batched, (True,)).run([a])
    np.testing.assert_allclose(each, [softmax(b) for b in a], rtol=1e-6)
    (dots,) = one.derived(Batched, (True,)).derived(Pushforward, (0,)).run([a, t])
    singles = [one.derived(Pushforward, (0,)).run([b, s])[0] for b, s in zip(a, t, strict=True)]
    np.testing.assert_allclose(dots, singles, rtol=1e-5, atol=1e-6)


def test_what_is_shared_by_a_batch_gets_the_sum_of_its_adjoints() -> None:
    @te.op
    def weighted(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        return te.compute((), lambda: te.sum(lambda i: te.sin(x[i]) * w[i]))

    x, w, head = normal(5, 3), normal(3), normal(5)
    batched = definition(weighted, x[0], w).derived(Batched, (True, False))
    dx, dw = batched.derived(Pullback, (0, 1), (0,)).run([x, w, head])
    np.testing.assert_allclose(dx, np.cos(x) * w * head[:, None], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dw, (np.sin(x) * head[:, None]).sum(0), rtol=1e-5, atol=1e-6)


def _program_of_every_kind(x: te.Tensor) -> Any:
    n = x.shape[0]
    run = te.scan((n,), lambda s, t: te.select(t == 0, x[0], s[t - 1] * 0.5 + x[t]), axis=0)
    i = te.reduce_axis(n, name="i")
    spread = te.scatter((3,), axes=[i], index=(te.cast(i, "int32") % 3,), value=x[i] * run[i], op="add")
    outside = te.extern(lambda v: np.sort(v), (n,), "float32", [x])
    return run, spread, outside, te.compute((n,), lambda j: te.cumsum(x)[j] * 2)


def test_every_kind_of_stage_is_batched() -> None:
    op = te.op(_program_of_every_kind)
    a = normal(3, 4)
    batched = definition(op, a[0]).derived(Batched, (True,)).run([a])
    for k, part in enumerate(batched):
        np.testing.assert_allclose(part, [op(b)[k] for b in a], rtol=1e-5, atol=1e-6)


@te.op
def straight(x: te.Tensor) -> te.Tensor:
    """Rounds; its reverse derivative is 1."""
    return te.compute(x.shape, lambda i: te.round(x[i]))


straight.def_vjp(lambda y, inputs, head: [head])


def test_def_vjp_holds_for_arrays_and_inside_other_programs() -> None:
    a, head = normal(4) * 3, normal(4)
    (gradient,) = definition(straight, a).derived(Pullback, (0,), (0,)).run([a, head])
    np.testing.assert_array_equal(gradient, head)
    x = te.placeholder((4,), name="x")
    loss = (straight(x * 2) * x).sum()
    found = te.interpret(te.differentiate(loss, x), {x: a})
    np.testing.assert_allclose(found, np.round(a * 2) + 2 * a, rtol=1e-6)
    (jacobian,) = te.differentiate(straight(x), [x])
    np.testing.assert_array_equal(te.interpret(jacobian, {x: a}), np.eye(4))


def test_a_rule_may_start_from_the_derivative_of_the_definition() -> None:
    @te.op
    def cube(x: te.Tensor) -> te.Tensor:
        return x * x * x

    @cube.def_vjp
    def clipped(y: te.Tensor, inputs: Any, head: te.Tensor) -> Any:
        (natural,) = te.differentiate(y, inputs, head)
        return [te.compute(natural.shape, lambda i: te.clip(natural[i], -1.0, 1.0))]

    a = np.array([0.1, 5.0, -3.0], "float32")
    x = te.placeholder((3,), name="x")
    natural = te.differentiate(cube(x).sum(), x)
    np.testing.assert_allclose(te.interpret(natural, {x: a}), [0.03, 1.0, 1.0], rtol=1e-6)
    second = te.differentiate(natural.sum(), x)
    np.testing.assert_allclose(te.interpret(second, {x: a}), [0.6, 0.0, 0.0], rtol=1e-6)


def test_with_only_def_vjp_the_forward_derivative_is_of_the_definition() -> None:
    x, t = te.placeholder((3,), name="x"), te.placeholder((3,), name="t")
    dot = te.jvp(straight(x), x, t)
    np.testing.assert_array_equal(te.interpret(dot, {x: normal(3), t: normal(3)}), np.zeros(3))


def test_def_jvp_gives_both_derivatives_and_reaches_over_a_python_function() -> None:
    @te.op
    def sine(x: te.Tensor) -> te.Tensor:
        return te.extern(np.sin, x.shape, x.dtype, [x])

    @sine.def_jvp
    def _(inputs: Any, tangents: Any) -> te.Tensor:
        return te.cos(inputs[0]) * tangents[0]

    a, v = normal(3), normal(3)
    one = definition(sine, a)
    np.testing.assert_allclose(one.derived(Pushforward, (0,)).run([a, v])[0], np.cos(a) * v, rtol=1e-6)
    np.testing.assert_allclose(one.derived(Pullback, (0,), (0,)).run([a, v])[0], np.cos(a) * v, rtol=1e-6)
    x, t = te.placeholder((3,), name="x"), te.placeholder((3,), name="t")
    composed = sine(x * 2) + x
    np.testing.assert_allclose(
        te.interpret(te.jvp(composed, x, t), {x: a, t: v}), (2 * np.cos(2 * a) + 1) * v, rtol=1e-5
    )


def test_rules_of_several_outputs() -> None:
    @te.op
    def both(x: te.Tensor, k: te.Tensor) -> Any:
        return te.compute(x.shape, lambda i: x[i] * 2), te.compute((), lambda: te.sum(lambda i: x[i]))

    both.def_vjp(lambda outputs, inputs, heads: [heads[0] * 10 + heads[1], None])
    a, h0, h1 = normal(3), normal(3), np.float32(2) * np.ones((), "float32")
    one = definition(both, a, np.arange(2))
    np.testing.assert_allclose(one.derived(Pullback, (0,), (0, 1)).run([a, np.arange(2), h0, h1])[0], h0 * 10 + 2)
    x, k = te.placeholder((3,), name="x"), te.placeholder((2,), "int64", name="k")
    y, s = both(x, k)
    gradient = te.differentiate((y * 3).sum() + s * 1, x)
    np.testing.assert_allclose(te.interpret(gradient, {x: a, k: np.arange(2)}), np.full(3, 31.0))


def test_schedules_of_the_author_hold_forward_and_backward() -> None:
    seen: list[Any] = []

    @te.op
    def cube(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda i, j: x[i, j] * x[i, j] * x[i, j], name="cube")

    @cube.schedule
    def _(s: Any, output: Any, grads: Any) -> None:
        seen.append(grads)
        stage = s[output if grads is None else grads[0]]
        stage.parallel(stage.axes[0])

    a, head = normal(4, 4), normal(4, 4)
    np.testing.assert_allclose(cube(a), a**3, rtol=1e-5, atol=1e-6)
    assert "parallel" in definition(cube, a).traced((((4, 4), "float32"),)).kernel.loop_nest()
    (gradient,) = definition(cube, a).derived(Pullback, (0,), (0,)).run([a, head])
    np.testing.assert_allclose(gradient, 3 * a**2 * head, rtol=1e-4, atol=1e-6)
    assert seen[0] is None
    assert seen[1] is not None


def test_a_schedule_may_speak_of_a_result_that_the_backward_program_does_not_compute() -> None:
    seen: list[int] = []

    @te.op
    def product(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(x.shape[1])
        return te.compute((x.shape[0], y.shape[1]), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="product")

    @product.schedule
    def _(s: Any, output: Any, grads: Any) -> None:
        for tensor in (output, *(grads or ())):
            s[tensor].parallel(s[tensor].axes[0])
            seen.append(tensor.ndim)

    a, b, head = normal(4, 3), normal(3, 5), normal(4, 5)
    np.testing.assert_allclose(product(a, b), a @ b, rtol=1e-5)
    da, db = definition(product, a, b).derived(Pullback, (0, 1), (0,)).run([a, b, head])
    np.testing.assert_allclose(da, head @ b.T, rtol=1e-5)
    np.testing.assert_allclose(db, a.T @ head, rtol=1e-5)
    assert len(seen) == 4


# --- the object -----------------------------------------------------------------------------------------------------


def test_name_docstring_signature_and_repr() -> None:
    assert (scaled.__name__, scaled.__doc__) == ("scaled", "x * factor.")
    assert str(scaled.signature).startswith("scaled(x")
    assert repr(scaled).startswith("<op scaled(x")
    import inspect

    assert list(inspect.signature(scaled).parameters) == ["x", "factor"]
    assert te.op(name="other")(scaled.function).name == "other"


def test_explain_tells_what_is_kept_once_and_apart() -> None:
    @te.op
    def twice(x):  # type: ignore[no-untyped-def]
        return te.tanh(te.exp(x).sum(axis=1)) * te.exp(x * 2).sum(axis=1)

    twice(normal(2, 3))
    (line,) = [line for line in str(twice.explain()).splitlines() if "backward pass reads" in line]
    names = line.partition("what is kept: ")[2].split(", ")
    assert {"exp_sum", "exp_sum_1"} <= set(names)
    assert [line.count(name) for name in names if name != "exp_sum"] == [1] * (len(names) - 1)


def test_explain_shows_what_is_kept_and_what_is_compiled() -> None:
    op = te.op(softmax.function, name="explained")
    assert "not called on arrays yet" in str(op.explain())
    op(normal(2, 3))
    text = str(op.explain())
    assert "forward: compiled in" in text
    assert "the backward pass reads: x, and what is kept: y, top, total" in text
    assert "gathers, 0 scatters" in text
    assert "pullback" not in text


def test_explain_tells_a_float_of_python_that_makes_float64_of_bytes() -> None:
    """A table of float32 was blamed, whose product came later."""

    @te.op
    def looked_up(lut: te.Tensor, image: te.Tensor) -> te.Tensor:
        rest = te.compute(image.shape, lambda i: 1.0 * (1 - image[i] % 2) * lut[te.cast(image[i], "int32")])
        return rest * 2

    looked_up(np.ones(256, "float32"), np.zeros(5, "uint8"))
    told = 'a float of Python meets image of uint8 there; te.cast(image, "float32") keeps it float32'
    assert told in str(looked_up.explain())


def test_explain_tells_where_a_float32_becomes_a_float64() -> None:
    @te.op
    def ramp(x: te.Tensor) -> te.Tensor:
        return (x * te.arange(x.shape[0])).sum()

    ramp(np.ones(5, "float32"))
    assert 'float32 meets arange of int32 there; te.cast(arange, "float32") keeps it float32' in str(ramp.explain())
    for narrow in (
        te.op(lambda x: x * te.cast(te.arange(x.shape[0]), "float32"), name="narrow"),
        te.op(lambda x: te.compute(x.shape, lambda i: x[i] * i), name="by_index"),
    ):
        narrow(np.ones(5, "float32"))
        narrow(np.ones(5, "float64"))
        assert "is float64, defined" not in str(narrow.explain())


def test_explain_tells_a_program_for_all_extents_once() -> None:
    op = te.op(softmax.function, name="explained")
    for n in range(3, 12):
        op(np.ones((n, 4), "float32"))
    assert str(op.explain()).count("for all extents") == 1


def test_explain_tells_why_there_is_a_kernel_for_each_shape() -> None:
    counted = te.op(lambda x: sum((x[k] for k in range(x.shape[0])), 0.0), name="counted")
    halves = te.op(lambda x: te.compute((x.shape[0] // 2,), lambda i: x[2 * i]), name="halves")
    for n in range(3, 7):
        counted(np.ones(n, "float32"))
    assert "a kernel for each shape" not in str(counted.explain())
    for n in range(3, 10):
        np.testing.assert_array_equal(counted(np.ones(n, "float32")), n)
        halves(np.ones(n, "float32"))
    with pytest.raises(TypeError) as error:
        te.op(counted.function, name="counted", symbolic=True)(np.ones(3, "float32"))
    told = [line for line in str(counted.explain()).splitlines() if "a kernel for each shape" in line]
    assert told == [f"  a kernel for each shape; with symbols for extents: TypeError: {error.value}"]
    assert "a kernel for each shape" not in str(halves.explain())


def test_explain_tells_why_a_derivative_has_a_kernel_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routines, "MOST_SHAPES", 1)

    @te.op
    def by_number(x: te.Tensor) -> te.Tensor:
        return x * (2.0 if isinstance(x.shape[0], int) else [1.0][x.shape[0]])

    gradient = te.grad(lambda x: by_number(x).sum())
    for n in (3, 4):
        gradient(np.ones(n))
    assert "a kernel for each shape; with symbols for extents: TypeError" in str(gradient.explain())


def test_explain_tells_each_derivative_once() -> None:
    op = te.op(softmax.function, name="explained")
    for rows in (2, 3):
        op(normal(rows, 3))
        definition(op, normal(rows, 3)).derived(Pullback, (0,), (0,)).run([normal(rows, 3), normal(rows, 3)])
    told = [line for line in str(op.explain()).splitlines() if "gradient by" in line]
    assert [line.partition("compiled in")[0] for line in told] == [
        f"  gradient by x, on (x : float32[{rows}, 3], head_0 : float32[{rows}, 3]): " for rows in (2, 3)
    ]


def test_pickling_goes_by_name() -> None:
    assert pickle.loads(pickle.dumps(scaled)) is scaled
    with pytest.raises(pickle.PicklingError, match="is not this op"):
        pickle.dumps(te.op(lambda x: x))


def test_copies_are_the_op_itself() -> None:
    op = te.op(lambda x: x)
    assert copy.copy(op) is op
    assert copy.deepcopy({"activation": op})["activation"] is op


def test_arrays_and_lists_stand_beside_tensors_as_constants() -> None:
    x, kernel = te.placeholder((1, 1, 5, 5), name="x"), np.arange(9, dtype="float32").reshape(1, 1, 3, 3)
    image = normal(1, 1, 5, 5)
    wanted = te.ops.conv2d(image, kernel)
    for given in (kernel, kernel.tolist()):
        np.testing.assert_array_equal(te.evaluate(te.ops.conv2d(x, given), {x: image}), wanted)
        np.testing.assert_array_equal(te.ops.conv2d(image, given), wanted)
    logits, target = te.placeholder((3, 4), name="logits"), [0, 3, 1]
    loss = te.ops.cross_entropy(logits, target)
    assert te.differentiate(loss, logits).dtype.name == "float32"
    weight = te.placeholder(kernel.shape, name="weight")  # an array may come first
    np.testing.assert_array_equal(te.evaluate(te.ops.conv2d(image, weight), {weight: kernel}), wanted)
    double = te.op(lambda a, b: a + b)(x, image.astype("float64"))
    assert double.dtype.name == "float64"


def test_a_definition_may_be_replaced_as_in_a_notebook() -> None:
    cell = types.ModuleType("cell")
    vars(cell)["te"] = te
    a = normal(3)
    for factor in (2, 3):
        exec(f"@te.op\ndef f(x):\n    return te.compute(x.shape, lambda i: x[i] * {factor})", vars(cell))
        np.testing.assert_array_equal(cell.f(a), a * factor)


def test_elements_returned_are_tensors_of_rank_0() -> None:
    """As of te.jit and te.grad; on arrays and on tensors."""
    first = te.op(lambda x: {"first": x[0], "rest": (x[1] + 1.0, x[1:])}, name="first")
    a = np.array([1.0, 2.0, 3.0])
    found = first(a)
    assert found["first"].shape == found["rest"][0].shape == ()
    np.testing.assert_array_equal([found["first"], found["rest"][0], *found["rest"][1]], [1, 3, 2, 3])
    x = te.placeholder((3,), "float64")
    np.testing.assert_array_equal(te.evaluate(first(x)["rest"][0] * 2.0, {x: a}), 6.0)
    np.testing.assert_array_equal(te.grad(te.op(lambda x: x[1] * x[2]))(a), [0, 3, 2])
    ruled = te.op(lambda x: x[1] * x[2])
    ruled.def_vjp(lambda y, xs, head: [te.full((3,), 7.0, "float64") * head])
    np.testing.assert_array_equal(te.grad(ruled)(a), [7, 7, 7])


# --- bad input ------------------------------------------------------------------------------------------------------

counter = iter(range(1000))


def _element_of_a_loop(x: te.Tensor) -> te.Expr:
    kept = []
    te.compute(x.shape, lambda i: kept.append(x[i]) or x[i])
    return kept[0]


@te.op
def _both(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    return te.round(x), x + 1


@_both.def_vjp
def _both_vjp(output: Any, inputs: Any, head: Any) -> Any:
    return [head]


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "names and what was given": (
        lambda: te.ops.unsharp_mask(normal(3), 2.0), ValueError,
        r"^op unsharp_mask\(x, sigma, amount(, \w+)*\) called on \(x : float32\[3\], sigma=2.0\): ",
    ),
    "wrong rank": (lambda: softmax(normal(2, 3, 4)), ValueError, r"op softmax\(x.*called on \(x : float32\[2, 3, 4\]"),
    "no array": (lambda: scaled(3.0), TypeError, "no argument is an array"),
    "missing": (lambda: scaled(), TypeError, r"op scaled\(x.*missing a required argument: 'x'"),
    "unknown": (lambda: scaled(normal(2), scale=3), TypeError, r"op scaled\(x.*there is no argument 'scale'"),
    "a near name": (lambda: scaled(normal(2), facto=3), TypeError, "no argument 'facto'; did you mean 'factor'"),
    "a list for an array": (
        lambda: te.op(lambda x, y: x * y.shape[0])(normal(2), [1.0, 2.0]), AttributeError,
        r"called on \(x : float32\[2\], y=\[1.0, 2.0\]\): 'list' object has no attribute 'shape'",
    ),
    "a list that is no array": (
        lambda: te.ops.relu([[1.0], [2.0, 3.0]]), ValueError, r"op relu\(x\): argument 'x': .*inhomogeneous",
    ),
    "arrays of others beside tensors": (
        lambda: te.op(lambda x, y: x + y)(te.placeholder((2,)), _Foreign()), TypeError, "give arrays of one framework",
    ),
    "unhashable": (lambda: scaled(normal(2), factor={1, 2}), TypeError, "neither an array nor hashable"),
    "an object": (lambda: te.op(lambda m, x: x)(_Model(2.0), normal(2)), TypeError, "known by its identity alone"),
    "a method": (lambda: _Model(2.0).scaled(normal(2)), TypeError, "make its class a dataclass, the fields of"),
    "complex": (lambda: scaled(np.ones(2, complex)), TypeError, "dtype complex128 is not supported"),
    "masked": (lambda: scaled(np.ma.array(normal(2))), TypeError, "masked array"),
    "out under tensors": (lambda: scaled(te.placeholder((2,)), out=normal(2)), TypeError, "out= and mode= are for"),
    "a value returned": (
        lambda: te.op(lambda x: 3.0, name="f")(normal(2)), TypeError,
        r"^op f\(x\) called on \(x : float32\[2\]\), at \S+test_op.py:\d+: it must return tensors, found float",
    ),
    "an element of a loop": (
        lambda: te.op(_element_of_a_loop)(normal(2)), TypeError, "must return tensors, found Read",
    ),
    "nothing returned": (lambda: te.op(lambda x: ())(normal(2)), TypeError, "returned no tensor"),
    "state": (
        lambda: te.op(lambda x: x * next(counter))(normal(2)), ValueError, "two traces of its function differ",
    ),
    "a captured placeholder": (
        lambda: te.op(lambda x: x + te.placeholder((2,), name="w"))(normal(2)), ValueError, "reads the placeholder 'w'",
    ),
    "assignment": (lambda: te.op(_assigning)(normal(2)), TypeError, "is a value and cannot be assigned to"),
    "a parameter named out": (lambda: te.op(lambda x, out: x), TypeError, "'out' has a meaning of its own"),
    "a function of NumPy": (lambda: te.op(np.tanh), TypeError, r"give a function of yours, lambda x: np.tanh\(x\)"),
    "a function of NumPy to te.jit": (lambda: te.jit(np.tanh), TypeError, r"of yours, lambda x: np.tanh\(x\)"),
    "what kernels have": (
        lambda: scaled.export("."), AttributeError, r"export', which kernels have: .* te.build\(x, f\(x\)\).export",
    ),
    "loops of a function": (
        lambda: te.jit(lambda x: x).loop_nest(), AttributeError, r"te.build\(x, f\(x\)\).loop_nest",
    ),
    "a rule of another shape": (
        lambda: te.grad(lambda x: _misshapen(x).sum())(normal(2)), ValueError,
        r"def_vjp must return an adjoint of the shape and dtype of x : float32\[2\], found .*float32\[4\]",
    ),
    "no function": (lambda: te.op(3), TypeError, "expected a function, found int"),
    "what to save": (lambda: te.op(save="all"), ValueError, "save must be"),
    "a rule": (lambda: te.op(lambda x: x).def_vjp(3), TypeError, "def_vjp expects a function"),
    "no tensor": (lambda: _annotated(normal(2), 3), TypeError, r"argument 'y': expected an array, found int \(3\)"),
    "a signature": (lambda: _annotated(), TypeError, r"op _annotated\(x, y\): missing"),
    "a rule of two": (
        lambda: te.op(lambda x: x, name="f").def_vjp(lambda y, xs: None), TypeError,
        r"op f\(x\): def_vjp expects a function of \(output, inputs, head\), found one of \(y, xs\)",
    ),
    "a schedule of one": (lambda: te.op(lambda x: x).schedule(lambda s: s), TypeError, r"\(schedule, output, grads\)"),
    "heads as one": (
        lambda: te.grad(lambda x: _both(x)[0].sum())(normal(2)), TypeError, r"there are 2 outputs, so .* head\[0\]",
    ),
    "adjoints": (lambda: _with_vjp(lambda y, xs, g: [g, g]), ValueError, "returned 2 adjoints for 1 inputs"),
    "an adjoint": (lambda: _with_vjp(lambda y, xs, g: [g.sum()]), ValueError, "adjoint of the shape and dtype of x"),
}  # fmt: skip


class _Model:
    def __init__(self, w: float) -> None:
        self.w = w

    @te.jit
    def scaled(self, x: te.Tensor) -> te.Tensor:
        return x * self.w


class _Foreign:
    """An array of some framework."""

    shape, dtype = (2,), np.dtype("float32")

    def __dlpack__(self) -> Any: ...


@te.op
def _misshapen(x: te.Tensor) -> te.Tensor:
    return x * 2


@_misshapen.def_vjp
def _(y: te.Tensor, inputs: list[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    return [te.concatenate([head, head])]


@te.op
def _annotated(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    return te.compute(y.shape, lambda i: x[i] + y[i])


def _assigning(x: Any) -> Any:
    x[0] = 1
    return x


def _with_vjp(rule: Any) -> None:
    op = te.op(lambda x: x * 2)
    op.def_vjp(rule)
    definition(op, normal(2)).derived(Pullback, (0,), (0,)).run([normal(2), normal(2)])


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_a_message(name: str) -> None:
    call, kind, message = BAD[name]
    options = {"save": "all"} if name == "what to save" else {}
    with pytest.raises(kind, match=message):
        te.op(lambda x: x, **options) if options else call()


@pytest.mark.parametrize("kind", ["jit", "op", "grad"])
def test_a_call_that_symbols_cannot_say_is_compiled_for_its_sizes(kind: str) -> None:
    """Of five elements or fewer the slices are empty, as of the first call: n - 5 is no extent there."""

    def lagged(x: te.Tensor) -> te.Tensor:
        return (x[5:] * x[:-5]).sum()

    f = {"jit": te.jit, "op": te.op, "grad": te.grad}[kind](lagged)
    for size in (9, 8, 7, 6, 10, 11, 4, 12, 1):
        a = np.arange(1.0, size + 1)
        full = np.concatenate([np.zeros(5), a, np.zeros(5)])
        want = full[: -10 or None] + full[10:] if kind == "grad" else (a[5:] * a[:-5]).sum()
        np.testing.assert_allclose(f(a), want)


@dataclasses.dataclass
class Plain:
    w: Any
    power: int = 2

    @te.op
    def applied(self, x: te.Tensor) -> te.Tensor:
        return self.w * x**self.power


Frozen = dataclasses.make_dataclass("Frozen", [("w", Any), ("power", int, 2)], frozen=True)
ByIdentity = dataclasses.make_dataclass("ByIdentity", [("w", Any), ("power", int, 2)], eq=False)


@te.op
def weighted(model: Any, x: te.Tensor) -> te.Tensor:
    inner = model["inner"] if isinstance(model, dict) else model
    return inner.w * x**inner.power


@pytest.mark.parametrize("kind", [Plain, Frozen, ByIdentity])
def test_a_dataclass_is_a_nest_of_its_fields(kind: Any) -> None:
    w, x = np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0])
    for model in (kind(w), {"inner": kind(w)}, kind(2.0), kind(w, power=3)):
        inner = model["inner"] if isinstance(model, dict) else model
        np.testing.assert_array_equal(weighted(model, x), inner.w * x**inner.power)
    model = kind(w)
    weighted(model, x)
    model.__dict__["w"] = 2 * w  # what it holds is looked at in each call
    np.testing.assert_array_equal(weighted(model, x), 2 * w * x**2)
    np.testing.assert_array_equal(te.grad(lambda w, x: weighted(kind(w), x).sum())(w, x), x**2)
    slope = te.grad(lambda m: weighted(m, x).sum())(kind(w, 2.0))
    assert isinstance(slope, kind)
    np.testing.assert_allclose(slope.w, x**2)
    assert isinstance(weighted(kind(te.placeholder((3,), name="w")), te.placeholder((3,), name="x")), te.Tensor)


def test_a_method_of_a_dataclass_is_an_operator() -> None:
    torch = pytest.importorskip("torch")
    w, x = np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0])
    np.testing.assert_array_equal(Plain(w).applied(x), w * x**2)
    t = torch.tensor(w, requires_grad=True)
    Plain(t).applied(torch.tensor(x)).sum().backward()
    np.testing.assert_array_equal(t.grad, x**2)
