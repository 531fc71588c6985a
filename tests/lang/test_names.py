"""Tensors are called like the variables that they are stored in; `name=` comes first, `.named()` gives a name later."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest

import tedsl as te
from autodiff.custom import rule_of
from tedsl.lang import variables
from tedsl.lang.printing import program_text
from tedsl.lang.structure import same_program, structural_key

x = te.placeholder((4, 3), name="x")
w = te.placeholder((3,), name="w")
v = te.placeholder((4,), name="v")
ids = te.placeholder((4,), "int32", name="ids")
GIVEN: dict[str, Any] = {"te": te, "np": np, "x": x, "w": w, "v": v, "ids": ids}

# What stands right of y = ...
EXPRESSIONS = [
    "te.compute((3,), lambda i: w[i] * 2)",
    "te.compute(lambda i: w[i] * te.sum(lambda k: x[k, i]))",
    "te.scan((3,), lambda s, t: te.select(t == 0, w[0], s[t - 1] + w[t]))",
    "te.scatter((3,), [r := te.reduce_axis(4)], (ids[r],), v[r])",
    "te.constant([1.0, 2.0])",
    "((x @ w - v) ** 2).sum()",
    "x @ w", "2 * w", "w + w", "-w", "w > 0", "abs(w)", "te.var('n') * w", "w ** 2", "w // 2", "x[1:]", "x[0]",
    "x.T", "x.sum()", "x.mean(0)", "x.var(axis=1)", "te.exp(w)", "w.exp()", "np.exp(w)", "np.sum(x, 0)",
    "w.astype('float64')",
    "te.cast(w, 'int32')", "te.where(w > 0, w, 0)", "te.select(w > 0, w, 0)", "te.maximum(w, 1)", "te.zeros((3,))",
    "te.full((3,), 2.0)", "te.arange(4)", "x.reshape(2, 6)", "te.concatenate([w, v])", "te.einsum('ij,j->i', x, w)",
    "te.sort(w)", "te.argsort(w)", "te.searchsorted(w, v)", "te.assume(ids, unique=True)", "te.cumsum(w)",
    "te.random.normal(te.random.key(0), (3,))", "te.ops.softmax(x, axis=-1)", "te.ops.gelu(w)",
    "te.ops.conv1d(x[None], x[None])",
    "te.ops.mse_loss(v, v)", "te.ops.cumsum(w, 0)",
]  # fmt: skip


def run(code: str) -> dict[str, Any]:
    """The variables after a few lines of somebody's module."""
    found = dict(GIVEN)
    exec(compile(code, "<a module>", "exec"), found)
    return found


def run_inside(code: str) -> dict[str, Any]:
    """The variables after the same lines in a function."""
    lines = "\n".join(f"    {line}" for line in code.splitlines())
    return run(f"def f():\n{lines}\n    return locals()\nfound = f()")["found"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("place", [run, run_inside])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_result_of_an_assignment_is_called_like_its_variable(expression: str, place: Any) -> None:
    found = place(f"y = {expression}")["y"]
    assert found.name == "y"
    assert re.search(r"^(\w+ : \S+, )?y\b", program_text(found), re.MULTILINE)


@pytest.mark.parametrize(
    "expression", [e for e in EXPRESSIONS if not any(c in e for c in ("key(", "constant", "zeros", "full", "arange"))]
)
def test_a_name_changes_nothing_of_a_program(expression: str) -> None:
    named, other = run(f"y = {expression}")["y"], run(f"y = [{expression}]")["y"][0]
    assert same_program(named, other)
    assert other.name != "y"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("y: object = te.exp(w)", {"y": "y"}),
        ("z = (y := te.exp(w)).name", {"y": "y"}),
        ("y = z = te.exp(w)", {"y": "y", "z": "y"}),
        ("y = x.T @ v; y += w", {"y": "y"}),
        ("y = te.exp(w)\nz = y", {"z": "y"}),
        ("a, b = te.compute((3,), lambda i: (w[i], w[i] + 1))", {"a": "a", "b": "b"}),
        ("a, _ = te.compute((3,), lambda i: (w[i], w[i] + 1))", {"a": "a", "_": "a_1"}),
        ("[a, b] = te.scan((3,), lambda p, q, t: (w[t], te.cast(t, 'float32')))", {"a": "a", "b": "b"}),
        ("pair = te.compute((3,), lambda i: (w[i], w[i] + 1))\na, b = pair", {"a": "pair_0", "b": "pair_1"}),
        ("low, high = te.split(v, 2)", {"low": "low", "high": "high"}),
        ("parts = te.split(v, 2)\na, b = parts", {"a": "parts_0", "b": "parts_1"}),
        ("best, where = te.topk(v, 2)", {"best": "best", "where": "where"}),
        ("mean, variance = te.ops.var_mean(v)", {"mean": "mean", "variance": "variance"}),
        ("for row in [te.exp(w)]: pass", {"row": "exp"}),
        ("a, b = te.compute((2,), lambda i: w[i]).reshape(2, 1)", {"a": "T_reshape_slice", "b": "T_reshape_slice"}),
        ("y = x.astype('float32')", {"y": "x"}),
        ("a, b = te.exp(w), te.compute((3,), lambda i: w[i])", {"a": "a", "b": "b"}),
        ("a, b, c = w + 1, te.exp(te.exp(w)), x.sum(axis=0)", {"a": "a", "b": "b", "c": "c"}),
        ("a, b, c, d = te.exp(w), x @ w, w, te.sort(w)", {"a": "a", "b": "b", "c": "w", "d": "d"}),
        ("a, (b, c) = te.exp(w), te.split(v, 2)", {"a": "a", "b": "b", "c": "c"}),
        ("a, b = te.exp(w) + 1, -(te.exp(w) * 2)", {"a": "a", "b": "b"}),
        ("a, b = c = te.exp(w), te.exp(v)", {"a": "exp", "b": "exp"}),
        ("a = te.exp(w), te.exp(v)\nb = a[0]", {"b": "exp"}),
        ("y = te.exp(w) if te.exp(w) is v else te.sqrt(w)", {"y": "y"}),
        ("held = [te.exp(w)]\ny = held[0]", {"y": "exp"}),
        ("held = [te.exp(w)]\ny = held[0].astype('float32')", {"y": "exp"}),
        ("total = sum([w, w, w])", {"total": "add"}),
        ("rows = list(x)\ny = rows[0]", {"y": "x_slice"}),
        ("_ = te.exp(w)", {"_": "exp"}),
        ("__ = te.compute((3,), lambda i: w[i])", {"__": "T"}),
        ("def blur(): return te.exp(w)\ny = blur()", {"y": "blur"}),
        ("def f():\n    return te.compute((3,), lambda i: w[i])\ny = f()", {"y": "f"}),
        ("def f():\n    return te.exp(w), te.sin(w)\ny, z = f()", {"y": "exp", "z": "sin"}),
        ("f = lambda: te.exp(w)\ny = f()", {"y": "exp"}),
        ("class C:\n    def __call__(self): return te.exp(w)\ny = C()()", {"y": "exp"}),
        ("def f():\n    out = te.exp(w)\n    return out\ny = f()", {"y": "out"}),
        ("y = te.compute((3,), lambda i: w[i], name='given')", {"y": "given"}),
        ("y = te.full((3,), 1.0, name='given')", {"y": "given"}),
        ("y = te.constant([1.0], name='given')", {"y": "given"}),
        ("y = te.exp(w).named('given')", {"y": "given"}),
        ("class Some:\n    y = te.exp(w)\ny = Some.y", {"y": "y"}),
        ("global y\ny = te.exp(w)", {"y": "y"}),
        ("σ = x.std()", {"σ": "σ"}),
        ("def f():\n    y = te.exp(w)\n    return lambda: y\ny = f()()", {"y": "y"}),
    ],
)
def test_what_takes_a_name_and_what_does_not(code: str, names: dict[str, str]) -> None:
    found = run(code)
    assert {name: found[name].name for name in names} == names


@pytest.mark.parametrize("place", [run, run_inside])
def test_placeholders_axes_sizes_and_reducers_too(place: Any) -> None:
    found = place(
        "n, rows = te.var(), te.var('m')\n"
        "image, kernel = te.placeholder((n, 4)), te.placeholder((3, 3), 'float64')\n"
        "p, q = te.reduce_axis(3), te.reduce_axis((1, 3))\n"
        "given = te.placeholder((n,), name='other')\n"
        "held = [te.placeholder((3,)), te.reduce_axis(2), te.var()]\n"
        "largest = te.reducer(lambda a, b: te.maximum(a, b), 0.0)\n"
        "named = te.reducer(lambda a, b: a * b, 1.0, name='times')\n"
        "y = te.compute((3,), lambda i: largest(kernel[i, p], axis=p))\n"
        "z = te.compute((3,), lambda i: named(kernel[i, p], axis=p) + 1)"
    )
    names = {k: found[k].name for k in ("n", "rows", "image", "kernel", "p", "q", "given", "largest", "named")}
    assert names == {**{k: k for k in names}, "rows": "m", "given": "other", "named": "times"}
    assert [t.name for t in found["held"]] == ["x", "k", "n"]
    assert str(found["y"]).startswith("y[i] = largest(p < 3) kernel[i, p]   for i < 3\n    with largest(a, b) = ")
    assert "times(p < 3)" in program_text(found["z"])
    built = te.build([found["image"]], found["image"] * 2)
    np.testing.assert_array_equal(built(image=np.ones((2, 4), "float32")), np.full((2, 4), 2.0))


@pytest.mark.parametrize("make", [
    lambda: te.placeholder((3,), name=4), lambda: te.var(3), lambda: te.reduce_axis(3, name=("a",)),
    lambda: te.reducer(lambda a, b: a, 0.0, name=3),
])  # fmt: skip
def test_a_name_is_a_string(make: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a name, found (int|tuple)"):
        make()


def test_only_the_operation_that_is_returned_takes_the_name() -> None:
    loss = ((x @ w - v) ** 2).sum()
    assert [line.partition(" ")[0].partition("[")[0] for line in program_text(loss).splitlines()] == [
        "x", "w", "matmul", "v", "sub", "pow", "loss",
    ]  # fmt: skip
    probabilities = te.ops.softmax(x, axis=-1)
    assert program_text(probabilities).count("probabilities") == 1


def test_names_are_the_same_in_hot_loops() -> None:
    """Python rewrites instructions that ran often."""
    found = set()
    for _ in range(100):
        y = x @ w
        row = x[0]
        part = x[1:]
        under = x.T
        total = x.sum()
        made = te.compute((3,), lambda i: w[i])
        found.add((y.name, row.name, part.name, under.name, total.name, made.name))
    assert found == {("y", "row", "part", "under", "total", "made")}


def test_one_name_for_many_is_told_apart() -> None:
    x = te.placeholder((3,), name="x")
    given = x
    for _ in range(2):
        x = x * 2
    assert program_text(x) == (
        "x : float32[3]\n"
        "x_1[i] = x[i] * 2.0   for i < 3\n"
        "x_2[i] = x_1[i] * 2.0   for i < 3"
    )  # fmt: skip
    s = te.Schedule(x)
    assert s.stages == ["x_1", "x_2"]
    kernel = te.build([given], x, schedule=s)
    np.testing.assert_array_equal(kernel(x=np.ones(3, "float32")), np.full(3, 4.0))


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ["n", "i", "k", "out", "mode", "sizes", "abs", "float32", "main", "σ", "y_1", "int"])
def test_any_variable_is_a_good_name(name: str) -> None:
    """Names of sizes, loops, functions of Halide, types of C."""
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    found: dict[str, Any] = {"te": te, "a": a}
    exec(f"{name} = te.exp(a).sum() + a\nresult = {name}", found)
    y = found["result"]
    assert y.name == name
    slope = te.differentiate(y.sum(), a)
    data = np.arange(4, dtype="float32")
    for tensor in (y, slope):
        np.testing.assert_allclose(te.evaluate(tensor, {a: data}), te.interpret(tensor, {a: data}), rtol=1e-6)


def test_names_reach_schedules_gradients_and_kernels() -> None:
    hidden = te.tanh(x @ w)
    loss = (hidden * hidden).sum()
    s = te.Schedule(loss)
    assert s.stages[-1] == "loss"
    s["hidden"].compute_root()
    assert "hidden" in str(s)
    slope = te.differentiate(loss, hidden)
    assert slope.name.startswith("dhidden")
    assert "loss" in repr(te.build([x, w], loss))
    with pytest.raises(ValueError, match="compute 'wrong' at"):
        wrong = te.compute((3,), lambda i: i + te.reduce_axis(3))  # noqa: F841


def test_variables_name_the_stages_that_an_operator_saves() -> None:
    @te.op(save=["hidden"])
    def layer(x: Any) -> Any:
        hidden = te.tanh(x)
        return te.exp(hidden)

    a = np.linspace(0, 1, 4, dtype="float32")
    np.testing.assert_allclose(layer(a), np.exp(np.tanh(a)), rtol=1e-6)
    y = layer(v)
    assert y.name == "layer"  # what a function returns is called like the function


def test_a_place_of_code_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    stored_names = variables.stored_names
    monkeypatch.setattr(variables, "stored_names", lambda code, at: read.append(at) or stored_names(code, at))
    for _ in range(3):
        y = te.exp(w)
    assert y.name == "y"
    assert len(read) == 1


def test_what_is_known_of_code_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variables, "_known", {})
    monkeypatch.setattr(variables, "MOST_KNOWN", 8)
    for _ in range(20):
        assert run("y = te.exp(w)")["y"].name == "y"
        assert len(variables._known) <= 8


def test_code_of_many_variables() -> None:
    """Their numbers take several instructions to say."""
    code = "\n".join(f"v{k} = {k}" for k in range(300))
    for place in (run, run_inside):
        assert place(f"{code}\ny = te.exp(w)")["y"].name == "y"


def test_instructions_that_nobody_knows_tell_nothing() -> None:
    def frame() -> Any:
        y = sys._getframe()
        return [y][0]

    code = frame().f_code
    assert {variables.stored_names(code, at) for at in range(0, len(code.co_code), 2)} == {None, "frame", "y"}
    assert variables.stored_names(code, len(code.co_code)) is None


# named


RESULTS = {
    "whole": lambda: x @ w,
    "compute": lambda: te.compute((3,), lambda i: w[i] * 2, name="before"),
    "reduction": lambda: x.sum(0),
    "scan": lambda: te.cumsum(w),
    "scatter": lambda: te.scatter((3,), [r := te.reduce_axis(4)], (ids[r] % 3,), v[r]),
    "sort": lambda: te.sort(w),
    "argsort": lambda: te.argsort(w),
    "constant": lambda: te.constant([1.0, 2.0]),
    "extern": lambda: te.extern(np.cos, (3,), "float32", [w]),
    "softmax": lambda: te.ops.softmax(x, axis=-1),
    "adjoint": lambda: te.differentiate((x @ w).sum(), x),
    "one of several adjoints": lambda: te.differentiate(((x @ w - v) ** 2).sum(), [x, w])[1],
}


@pytest.mark.parametrize("kind", RESULTS)
def test_a_named_tensor_is_equal(kind: str) -> None:
    tensor = RESULTS[kind]()
    before = tensor.name
    named = tensor.named("after")
    assert (named.name, tensor.name) == ("after", before)
    assert (named.shape, named.dtype, named.op.where) == (tensor.shape, tensor.dtype, tensor.op.where)
    assert same_program(named, tensor)
    assert "after" in program_text(named)
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype("float32") for t in (x, w, v)} | {ids: np.arange(4, dtype="int32")}
    for run_it in (te.evaluate, te.interpret):
        np.testing.assert_array_equal(run_it(named, feeds), run_it(tensor, feeds))


def test_a_named_stage_is_scheduled_and_differentiated_under_its_name() -> None:
    hidden = [te.tanh(x @ w).named("hidden")]
    loss = (hidden[0] * hidden[0]).sum()
    te.Schedule(loss)["hidden"].compute_root()
    by_name, by_tensor = te.differentiate(loss, [w, hidden[0]])
    assert by_tensor.name.startswith("dhidden")
    plain = te.tanh(x @ w)
    other = te.differentiate((plain * plain).sum(), w)
    assert structural_key(by_name) == structural_key(other)


def test_names_of_tensors_with_derivatives_of_their_author() -> None:
    @te.op
    def straight(a: Any) -> Any:
        return te.round(a)

    straight.def_vjp(lambda output, inputs, head: [head * 3])
    y = straight(w).named("y")
    assert rule_of(y) is not None
    feeds = {w: np.array([0.2, 1.7, 2.5], "float32")}
    np.testing.assert_array_equal(te.evaluate(te.differentiate(y.sum(), w), feeds), np.full(3, 3.0))


def state() -> Any:
    """What the body of a scan is given."""
    seen = []
    te.scan((3,), lambda s, t: (seen.append(s), w[t])[1])
    return seen[0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: x, ValueError, r"x\.named\('new'\) at .*test_names.py:\d+: a placeholder keeps the name by which"),
        (lambda: te.compute((3,), lambda i: (w[i], w[i])), ValueError, r"one of 2 .*\('T_0', 'T_1'\).* give name="),
        (lambda: te.scan((3,), lambda p, q, t: (w[t], w[t])), ValueError, "one of 2 outputs"),
        (lambda: te.extern(np.cos, (3,), "float32", [w], pure=False), ValueError, "would run twice; give the name in"),
        (state, ValueError, "stands for the result"),
    ],
)  # fmt: skip
def test_what_cannot_be_named_is_told(make: Any, error: type[Exception], message: str) -> None:
    made = make()
    with pytest.raises(error, match=message):
        (made[0] if isinstance(made, tuple) else made).named("new")


def test_a_name_is_text() -> None:
    with pytest.raises(TypeError, match=r"mul\.named: expected a name, found int \(3\), at .*test_names.py"):
        (w * 2).named(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("transform", [te.differentiate, lambda y, t: te.jvp(y, t, [w for _ in t])])
def test_a_program_that_reads_the_tensor_before_it_was_named_is_told_so(transform: Any) -> None:
    hidden = te.tanh(w)
    loss = (hidden * hidden).sum()
    with pytest.raises(ValueError, match=r"found late : float32\[3\], of which it reads the equal hidden : float32"):
        transform(loss, [hidden.named("late")])
    transform(loss, [hidden])
    late = hidden.named("late")
    with pytest.raises(ValueError, match="reads the equal late"):
        transform((late * late).sum(), [hidden])


def test_externs_have_names_for_their_outputs() -> None:
    two = te.extern(lambda a: (a, a), [(3,), (3,)], ["float32"] * 2, [w], name=("first", "second"))
    assert [t.name for t in two] == ["first", "second"]
    alone = te.extern(np.cos, (3,), "float32", [w])
    assert alone.name == "cos"  # the function has a name
    with pytest.raises(ValueError, match="2 names for 1 outputs"):
        te.extern(np.cos, (3,), "float32", [w], name=("a", "b"))


def test_states_of_a_scan_are_called_like_the_parameters_of_its_step() -> None:
    x = te.placeholder((5, 4), name="x")
    back = te.placeholder((5,), "int32", name="back")

    def step(high: Any, low: Any, t: Any, i: Any) -> Any:
        return te.select(t == 0, x[0, i], low[t - 1, i]), te.select(t == 0, 0.0, high[t - back[t], i])

    pair = list(te.scan((5, 4), step))
    assert [t.name for t in pair] == ["high", "low"]
    assert "high[t, i], low[t, i] = " in str(te.Schedule(pair))
    with pytest.raises(IndexError, match=r"index `t - back\[t\]` of dimension 0 of high : .* at t = 1, i = 0"):
        te.evaluate(pair, {x: np.ones((5, 4), "float32"), back: np.zeros(5, "int32")})
    with pytest.raises(ValueError, match=r"index of low : .*expected at most 2 indices, found 3"):
        te.scan((5, 4), lambda high, low, t, i: (x[t, i], low[t - 1, i, 0]))
