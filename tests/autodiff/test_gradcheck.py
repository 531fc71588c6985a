"""`te.gradcheck` of functions on arrays, and what it says of inputs that nothing depends on."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
import pytest

import tedsl as te
from autodiff import vjp
from autodiff.checking import probes
from tedsl.ops.transforms import checking

RNG = np.random.default_rng(3)


def wave(a: Any, b: Any) -> Any:
    return (te.sin(a) * b).sum()


@dataclasses.dataclass
class Line:
    slope: Any
    offset: Any


class TestFunctions:
    def test_arguments_are_a_tuple_or_a_list_of_arrays(self) -> None:
        a, b = RNG.normal(size=3).astype("float32"), RNG.normal(size=3)
        for given in ((a, b), [a, b]):
            report = te.gradcheck(wave, given)
            assert report.ok
            assert [(p.input, p.checked) for p in report.pairs] == [("a", 3), ("b", 3)]
            assert {v.dtype for v in report.values.values()} == {np.dtype("float64")}
        assert a.dtype == "float32"

    def test_an_array_may_stand_alone(self) -> None:
        assert te.gradcheck(te.tanh, RNG.normal(size=(2, 3))).pairs[0].checked == 6
        assert te.gradcheck(lambda x: x[0] * x[1], np.array([2.0, 3.0])).ok  # an element of a tensor is a scalar
        assert 6 <= abs(te.gradcheck(lambda x: x * x * x, 2.0).pairs[0].analytic) <= 18  # a head of 0.5 to 1.5

    def test_arguments_may_be_nests_numbers_and_other_values(self) -> None:
        def loss(params: Any, x: Any, index: Any, power: int, kind: str) -> Any:
            assert (power, kind) == (2, "mean")
            picked = te.compute(index.shape, lambda i: x[index[i]])
            return ((params["line"].slope * picked + params["line"].offset) ** power).mean() * params["scale"][1]

        params = {"line": Line(np.array(1.5), 0.5), "scale": [1.0, 2.0]}
        report = te.gradcheck(loss, (params, RNG.normal(size=4), np.array([0, 3, 3]), 2, "mean"))
        assert report.ok
        assert [p.input for p in report.pairs] == ["params_line_slope", "params_line_offset", "params_scale", "x"]

    def test_results_may_be_nests(self) -> None:
        report = te.gradcheck(lambda x: {"y": x * x, "n": 3, "top": te.argmax(x), "s": (x.sum(), None)}, np.ones(2))
        assert len(report.pairs) == 2

    def test_operators_and_functions_made_from_functions(self) -> None:
        cube = te.op(lambda x: x * x * x)
        assert te.gradcheck(cube, np.arange(3.0))
        assert te.gradcheck(te.jit(wave), (np.ones(2), np.ones(2)))
        assert te.gradcheck(te.grad(lambda x: (x * x * x).sum()), np.arange(3.0))
        cube.def_vjp(lambda y, xs, head: head * xs[0])
        with pytest.raises(te.GradientError, match="WRONG"):
            te.gradcheck(cube, np.arange(3.0) + 1)

    def test_tensors_of_pytorch_that_require_grad(self) -> None:
        torch = pytest.importorskip("torch")
        given = (torch.ones(3, dtype=torch.double, requires_grad=True), torch.ones(3))
        assert te.gradcheck(wave, given).ok

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (
                lambda: te.gradcheck(wave, np.ones(3)),
                "wave takes a and b; found 1 argument; .* a list is its arguments",
            ),
            (lambda: te.gradcheck(te.tanh, [1.0, 2.0]), "tanh takes x; found 2 arguments"),
            (
                lambda: te.gradcheck(wave, (np.ones(3), np.ones(3)), {}),
                "values= is for tensors.*give the arrays as inp",
            ),
            (lambda: te.gradcheck(lambda x: x + 1, np.arange(3)), "expected an array of floats.*found int64 x"),
            (lambda: te.gradcheck(lambda n: n, 3), "expected an array of floats.*found none"),
            (lambda: te.gradcheck(lambda x: 3.0, np.ones(2)), r"must return a tensor of floats, found float \(3.0\)"),
            (lambda: te.gradcheck(lambda x: np.ones(3), np.ones(2)), "must return a tensor of floats, found ndarray"),
            (lambda: te.gradcheck(lambda x: x, np.ones(2, complex)), "argument 'x': .*complex128"),
        ],
    )
    def test_bad_input(self, call: Any, message: str) -> None:
        with pytest.raises(TypeError, match=rf"gradcheck at {__file__}:\d+: .*{message}"):
            call()


class TestSingleFloats:
    """Tolerances that shrink with the derivatives: an absolute one of 0.02 took every rule for small ones as right."""

    PROGRAMS: ClassVar[dict[str, Any]] = {
        "a loss": lambda z: ((z - 1) ** 2).mean() * 1e-4,
        "a mean": lambda z: z.mean(),
        "a small sum": lambda z: (z * 1e-3).sum(),
        "a large sum": lambda z: (z * 1e3 + 1e4).sum(),
        "elements": lambda z: te.tanh(z),
    }

    @pytest.mark.parametrize("program", PROGRAMS)
    @pytest.mark.parametrize("factor", [-3.0, -1.0, 0.0, 0.98])
    def test_wrong_rules_are_found(self, program: str, factor: float) -> None:
        x = te.placeholder((4,), name="x")
        z = te.sin(x).named("z")
        loss = self.PROGRAMS[program](z)
        given = {x: np.linspace(0.2, 1.0, 4, dtype="float32")}
        assert te.gradcheck(loss, [x], given).ok
        wrong = te.gradcheck(
            loss, [x], given, override={z: lambda z, i, h: [factor * h * te.cos(x)]}, raise_exception=False
        )
        assert not wrong.ok

    @pytest.mark.parametrize("seed", range(3))
    def test_right_ones_are_not(self, seed: int) -> None:
        a, b = te.placeholder((4, 4), name="a"), te.placeholder((4, 4), name="b")
        for y in (
            te.tanh(a @ b).sum(), (a @ b).var(), (a + 100).std() + b.norm(), te.log(1 + te.exp(a @ b)).mean(),
            te.maximum(a @ b, 0).sum(), ((a * 1000) @ b).sum() ** 2, te.sin(10 * a).sum() + te.cos(5 * b).sum(),
            (a * 20).logsumexp(1).sum() + b.max(0).sum(), (a * b[0, 0] + 1e4).mean(), te.exp(8 * a).sum() + b.prod(),
        ):  # fmt: skip
            assert te.gradcheck(y, [a, b], seed=seed).ok


class TestNoDependence:
    def test_it_is_said(self) -> None:
        q, other = te.placeholder((2,), "float64", name="q"), te.placeholder((2,), "float64", name="q")
        x = te.placeholder((2,), "float64", name="x")
        loss = te.compute((), lambda: te.sum(lambda i: q[i] * x[i]), name="loss")
        report = te.gradcheck(loss, [other, x])
        assert report.ok
        assert len(report.notes) == 1
        said = (
            f"warning: loss does not depend on q, so that its gradient is 0; it reads another q, defined at {__file__}"
        )
        assert said in str(report)
        assert said in repr(report)
        assert "defined at" not in str(te.gradcheck(loss, te.placeholder((2,), "float64", name="z")))
        assert not te.gradcheck(loss, [q, x]).notes

    def test_several_outputs_may_depend_on_different_inputs(self) -> None:
        a, b = te.placeholder((2,), "float64", name="a"), te.placeholder((2,), "float64", name="b")
        assert not te.gradcheck([te.sin(a), te.cos(b)], [a, b]).notes

    def test_of_a_function(self) -> None:
        report = te.gradcheck(lambda x, unused: x.sum(), (np.ones(2), np.ones(3)))
        assert report.ok
        assert "does not depend on unused" in str(report)


def test_elements_are_moved_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a program with an axis more, those of several inputs in turn: a scan is walked once for all of them."""
    calls = []
    monkeypatch.setattr(probes, "interpret", lambda *args: calls.append(args) or te.interpret(*args))
    x, n = te.placeholder((6, 7), "float64", name="x"), te.var("n")
    y = te.placeholder((n,), "float64", name="y")
    h = te.scan((6, 7), lambda h, t, i: x[t, i] * y[i] + te.select(t > 0, te.sin(h[t - 1, i]), 0.0))
    report = te.gradcheck(h, [x, y], [np.linspace(0, 1, 42).reshape(6, 7), np.linspace(1, 2, 7)])
    assert [p.checked for p in report.pairs] == [42, 7]
    a = te.placeholder((), "float64", name="a")
    assert [p.checked for p in te.gradcheck(te.sin(a[()]) * x, [a, x]).pairs] == [1, 42]
    assert len(calls) == 2 * 2  # the value with its gradients, and what is moved


def test_a_step_of_a_scan_is_evaluated_on_few_points_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All points of a step are, those of its sums among them: fewer elements are moved where these are many."""
    w, x = te.placeholder((3, 3), "float64", name="w"), te.placeholder((2, 3), "float64", name="x")
    h = te.scan([(2, 3)], lambda h, t: te.tanh(w @ te.where(t == 0, 0.0, h[t - 1]) + x[t]))
    calls = []
    monkeypatch.setattr(probes, "interpret", lambda *args: calls.append(args) or te.interpret(*args))
    for limit, evaluations in ((9 * 9, 8), (9 * 17, 4), (1 << 20, 1)):  # nine points, four moves of an element
        calls.clear()
        monkeypatch.setattr(probes, "STEP_LIMIT", limit)
        assert [p.checked for p in te.gradcheck(h, [w, x]).pairs] == [9, 6]
        assert len(calls) == 1 + evaluations


@pytest.mark.parametrize(("limit", "evaluations"), [(2000, 2), (999, 4), (1 << 22, 1)])
def test_large_programs_are_moved_in_little_memory(
    limit: int, evaluations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen elements at once hold the tensors of a program sixty-five times."""
    calls = []
    monkeypatch.setattr(probes, "LIMIT", limit)
    monkeypatch.setattr(probes, "interpret", lambda *args: calls.append(args) or te.interpret(*args))
    n = te.var("n")
    x, y = te.placeholder((4,), "float64", name="x"), te.placeholder((n, 4), "float64", name="y")
    z = te.compute((n, 4), lambda i, j: x[j] * y[i, j])  # 200 numbers; four rows for each element, and one
    assert te.gradcheck(z, [x], {x: np.arange(4.0), y: np.ones((50, 4))}).pairs[0].checked == 4
    assert len(calls) == 1 + evaluations  # the value with the gradient, and what is moved


def test_a_program_of_ones_own_evaluates_each() -> None:
    x = te.placeholder((3,), "float64", name="x")
    kernel = te.build(x, te.exp(x))
    seen = []

    def evaluate(tensors: Any, feeds: Any) -> Any:
        seen.append(tensors)
        return (kernel(feeds[x]),) if len(feeds) == 1 else te.interpret(list(tensors), feeds)

    assert te.gradcheck(te.exp(x), x, np.linspace(0, 1, 3), evaluate=evaluate).ok
    assert len(seen) == 2 + 4 * 3


def heat(steps: int, size: int) -> Any:
    def loss(x: Any) -> Any:
        def step(u: Any, t: Any, i: Any) -> Any:
            near = u.at(t - 1, i - 1, mode="clamp") + u.at(t - 1, i + 1, mode="clamp")
            return te.select(t == 0, x[i], 0.5 * u[t - 1, i] + 0.2 * near + 0.01 * x[i] ** 2)

        return (te.scan((steps, size), step)[-1] ** 2).sum()

    return loss


@pytest.mark.parametrize(
    ("loss", "x", "is_compiled"),
    [
        (heat(3000, 30), np.ones(30), True),  # many steps
        (heat(20, 30000), np.ones(30000), True),  # long ones
        (lambda x: (te.ops.conv2d(x, np.ones((8, 8, 7, 7))) ** 2).sum(), np.ones((1, 8, 40, 40)), True),
        (heat(20, 30), np.ones(30), False),
        (lambda x: te.tanh(x * x).sum(), np.ones((30, 30)), False),
    ],
)
def test_long_programs_are_compiled_unless_one_says_how_they_are_evaluated(
    loss: Any, x: Any, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, interpreted = [], []
    monkeypatch.setattr(checking, "compiled", lambda *args: compiled.append(args) or te.evaluate(*args))
    monkeypatch.setattr(probes, "interpret", lambda *args: interpreted.append(args) or te.interpret(*args))
    assert te.gradcheck(loss, x, elements=8).ok
    assert len(compiled) >= 20 if is_compiled else not compiled
    assert len(interpreted) <= is_compiled or not is_compiled  # the gradient is evaluated once
    compiled.clear()
    assert te.gradcheck(loss, x, elements=1, evaluate=te.interpret).pairs[0].checked == 1
    assert not compiled
    assert len(interpreted) >= 2


def test_programs_of_fewer_digits_are_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "compiled", None)
    x = te.placeholder((30,), "float32", name="x")
    assert te.gradcheck(heat(1000, 30)(x), x, elements=1).ok


@pytest.mark.parametrize("scale", [1e-3, 1e-8])
def test_a_small_loss_is_checked_as_closely_as_a_large_one(scale: float) -> None:
    """An adjoint twice too large is found where all of them lie below the tolerance for derivatives of about 1."""
    x = te.placeholder((5,), "float64", name="x")
    loss = (te.sin(x) * scale).sum()
    assert te.gradcheck(loss, x).ok
    wrong = te.gradcheck(loss, x, fdiff=lambda y, x, head: 2.0 * vjp(y, x, head), raise_exception=False)
    assert not wrong.ok


def test_small_derivatives_of_large_values_are_allowed_their_rounding() -> None:
    x = te.placeholder((5,), "float64", name="x")
    for loss in (((x + 1e6) - 1e6).sum() * 1e-9, (x - x).sum(), (1e5 + te.exp(x) * 1e-7).sum()):
        assert te.gradcheck(loss, x).ok
    kinked = te.gradcheck((te.abs(x) * 1e-9).sum(), x, {x: np.array([0.0, 0.5, -1.0, 2.0, 1e-9])})
    assert kinked.ok


def test_of_a_large_input_a_sample_is_moved_with_its_corners() -> None:
    moved = np.random.default_rng(0).normal(size=(200, 300))
    report = te.gradcheck(lambda u: u * 2.0, moved)
    (pair,) = report.pairs
    assert report.ok
    assert pair.elements == 60_000
    assert 64 <= pair.moved < 1000
    assert f"{pair.checked} of 60000" in str(report)
    small = te.gradcheck(lambda u: (te.sin(u) * u).sum(), moved[:20, :30], elements=50).pairs[0]
    assert (small.moved, small.elements) == (50, 600)
    for seed in range(20):  # a corner is not drawn a second time
        of_few = te.gradcheck(lambda a, b: (a * b).sum(), (moved[0, :75], moved[1, :75]), elements=20, seed=seed)
        assert [(pair.moved, pair.elements) for pair in of_few.pairs] == [(20, 75)] * 2
    assert te.gradcheck(lambda u: (te.sin(u) * u).sum(), moved[:8, :9], elements=math.inf).pairs[0].moved == 72
    u = te.placeholder((20, 30), "float64", name="u")
    same = te.compute((20, 30), lambda i, j: u[i, j] * 1.0)

    def wrong_at_the_end(out: te.Tensor, source: te.Tensor, head: te.Tensor) -> te.Tensor:
        return te.compute((20, 30), lambda i, j: te.select(i + j == 48, 7.0, head[i, j]))

    with pytest.raises(te.GradientError, match=r"WRONG +\[19, 29\]"):
        te.gradcheck(same, u, moved[:20, :30], elements=5, fdiff=wrong_at_the_end)
    for bad in (0, -1, "all"):
        with pytest.raises(ValueError, match="elements: expected how many elements of each input are moved"):
            te.gradcheck(lambda u: u.sum(), moved, elements=bad)
