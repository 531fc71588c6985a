"""`te.testing.check_op`: wrong rules are found, right operators pass, and what is reported can be run."""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, strategies as st

import tedsl as te
from tedsl.testing.sources import Listing
from tests.testing.operators import RIGHT, Right, two_results
from tests.testing.planted import PLANTED, Planted, matmul

QUICK = {
    "off by a factor of 2", "one corner", "stride 2 only", "float32 only", "softmax, the diagonal only", "NaN at 0",
    "maximum, to every winner of a tie",
}  # fmt: skip
QUICK_RIGHT = {"relu", "maximum, row", "max over 1, False", "conv, drawn stride", "embedding", "two results", "counts"}


def param(item: Any, quick: set[str]) -> Any:
    return pytest.param(item, id=item.name, marks=() if item.name in quick else pytest.mark.long)


def check(item: Planted | Right, **options: Any) -> te.testing.CheckReport:
    return te.testing.check_op(item.op, *item.shapes, **{**item.options, **options})


def test_there_are_enough_of_both() -> None:
    assert len({p.name for p in PLANTED}) == len(PLANTED) >= 30
    assert len({r.name for r in RIGHT}) == len(RIGHT) >= 200
    assert {p.name for p in PLANTED} >= QUICK
    assert {r.name for r in RIGHT} >= QUICK_RIGHT


@pytest.mark.parametrize("planted", [param(p, QUICK) for p in PLANTED])
def test_a_wrong_rule_is_found(planted: Planted) -> None:
    report = check(planted, vjp=planted.vjp, checks=("gradient", "adjoint"), raise_exception=False)
    assert report.failure is not None
    assert "raised" not in report.failure.message
    assert report.examples <= 100
    # The same operator with its own derivative has no fault: it is the rule that was found.
    assert check(planted, checks=("gradient", "adjoint"), examples=5)


@pytest.mark.parametrize("right", [param(r, QUICK_RIGHT) for r in RIGHT])
def test_a_right_operator_passes(right: Right) -> None:
    report = check(right, examples=12, compiled=1)
    assert report.examples >= 1


@pytest.mark.parametrize("name", ["one corner", "stride 2 only"])
def test_the_snippet_fails_as_reported(name: str) -> None:
    """Alone, where functions and what they refer to can be written down; else where the functions are known."""
    (planted,) = (p for p in PLANTED if p.name == name)
    report = check(planted, vjp=planted.vjp, checks="adjoint", raise_exception=False)
    assert report.failure is not None
    remembers = name == "stride 2 only"  # its functions hold on to what they have seen
    names = {planted.op.__name__: planted.op, planted.vjp.__name__: planted.vjp} if remembers else {}
    assert ("# rule is conv_by_hand.<locals>.rule of" in report.failure.snippet) == remembers
    assert run_alone(report.failure.snippet, names) == report.failure.message


def run_alone(snippet: str, names: dict[str, Any]) -> str:
    """The message of the failure that a snippet shows."""
    with pytest.raises(te.testing.CheckError) as caught:
        exec(snippet, {**names})
    assert caught.value.report.failure is not None
    return caught.value.report.failure.message


FACTOR = np.float32(1.5)


def scaled(x: te.Tensor) -> te.Tensor:
    return x * float(FACTOR)


@te.testing.checked("n", vjp=lambda y, xs, head: head * y, checks="gradient")
def decorated(x: te.Tensor) -> te.Tensor:
    return te.exp(-x)


def of_an_operator() -> None:
    """An operator of this function, with a rule that refers to what is around it."""
    missing = -2.0

    @te.op
    def mine(x: te.Tensor, power: float = 1.0) -> te.Tensor:
        return scaled(x) ** power

    @mine.def_vjp
    def _(y: te.Tensor, xs: Any, head: te.Tensor) -> te.Tensor:
        return head * (y + missing)

    te.testing.check_op(mine, "n", power=st.just(2.0), checks="gradient")


def of_parts() -> None:
    def apply(x: te.Tensor, f: Any, weights: Any) -> te.Tensor:
        return f(x) * weights["a"][0]

    op = functools.partial(apply, weights={"a": [2.0, float("inf")]})
    te.testing.check_op(op, "n", f=st.just(te.tanh), vjp=lambda y, xs, h: h, dtypes="bfloat16", checks="gradient")


@pytest.mark.parametrize("test", [decorated, of_an_operator, of_parts])
def test_a_snippet_stands_alone(test: Any) -> None:
    """Also for a decorated test, an operator with its rules, lambdas, partial functions and functions as arguments."""
    with pytest.raises(te.testing.CheckError) as caught:
        test()
    failure = caught.value.report.failure
    assert failure is not None
    assert run_alone(failure.snippet, {}) == failure.message


def test_what_has_no_text_is_pointed_at() -> None:
    held = object()

    def op(x: te.Tensor) -> te.Tensor:
        return x * (1.0 if held else 2.0)

    report = te.testing.check_op(op, "n", vjp=lambda y, xs, head: head * 2.0, raise_exception=False)
    assert report.failure is not None
    assert f"# op is {op.__qualname__} of {__file__}:" in report.failure.snippet
    assert run_alone(report.failure.snippet, {"op": op}) == report.failure.message


def test_numbers_that_are_no_numbers_are_written_down() -> None:
    arrays = {"x": np.array([np.nan, -np.inf, 0.5])}
    with pytest.raises(te.testing.CheckError) as caught:
        te.testing.check_case(scaled, arrays, vjp=lambda y, xs, head: head[:2], checks=("gradient",))
    failure = caught.value.report.failure
    assert failure is not None
    assert "np.array([ np.nan, -np.inf, 0.5], 'float64')" in failure.snippet
    said, at, here = failure.message.rpartition(", at ")
    assert here.startswith(f"{__file__}:")
    assert run_alone(failure.snippet, {}).rpartition(", at ")[0] == said


def evenly(output: te.Tensor, inputs: Any, head: te.Tensor) -> te.Tensor:
    wins = te.cast(inputs[0] == output[:, None], head.dtype)
    return wins * head[:, None] / wins.sum(1, keepdims=True)


def test_where_elements_tie_any_slope_will_do() -> None:
    """The library gives all to the first winner; a rule that shares is not wrong, one that gives each all of it is."""
    largest = next(p for p in PLANTED if p.name == "maximum, to all alike").op
    assert te.testing.check_op(largest, "n m", vjp=evenly, checks=("gradient", "adjoint", "second"), examples=50)


@pytest.mark.parametrize("checks", ["gradient", "adjoint"])
def test_heads_have_both_signs(checks: str) -> None:
    planted = next(p for p in PLANTED if p.name == "negative heads")
    assert not check(planted, vjp=planted.vjp, checks=checks, raise_exception=False)


def test_the_case_reported_is_small() -> None:
    wrong = next(p for p in PLANTED if p.name == "extents above 4")
    report = check(wrong, vjp=wrong.vjp, checks="adjoint", raise_exception=False)
    assert report.failure is not None
    assert {name: a.shape for name, a in report.failure.case.arrays.items()} == {"a": (5, 1), "b": (1, 1)}


def test_a_wrong_jvp_is_found() -> None:
    with pytest.raises(te.testing.CheckError, match="forward and reverse derivatives disagree"):
        te.testing.check_op(te.tanh, "n", jvp=lambda xs, dots: dots[0] * xs[0], examples=10, compiled=1)


def test_a_wrong_second_derivative_is_found() -> None:
    """The rule treats what it computed as a constant: right once, wrong when differentiated."""

    def rule(y: te.Tensor, xs: Any, head: te.Tensor) -> te.Tensor:
        slope = te.extern(lambda v: 1 - np.tanh(v) ** 2, xs[0].shape, xs[0].dtype, [xs[0]])
        return head * slope

    report = te.testing.check_op(te.tanh, "n", vjp=rule, dtypes="float64", raise_exception=False, examples=10)
    assert report.failure is not None
    assert report.failure.check == "second"


@pytest.mark.parametrize(
    "op", [matmul, te.tanh, lambda x: x * 2, lambda x: (x.sum(), te.zeros((2,), x.dtype)), two_results]
)
def test_a_right_rule_passes_every_check(op: Any) -> None:
    """Also where the second derivative does not lead through the output, or nothing leads to one."""

    def rule(output: te.Tensor, inputs: Any, head: te.Tensor) -> Any:
        outputs, heads = (output, head) if isinstance(output, tuple) else ([output], [head])
        return te.differentiate(list(outputs), list(inputs), head=list(heads))

    shapes = ("n k", "k m") if op is matmul else ("n",)
    assert te.testing.check_op(op, *shapes, vjp=rule, examples=6, compiled=1)


def test_the_rule_of_an_operator_is_checked() -> None:
    @te.op
    def scaled(x: te.Tensor, factor: float = 2.0) -> te.Tensor:
        return x * factor

    assert te.testing.check_op(scaled, "n", examples=5, compiled=1)
    scaled.def_vjp(lambda y, xs, head: head)
    with pytest.raises(te.testing.CheckError, match="adjoints and differences disagree"):
        te.testing.check_op(scaled, "n", examples=5, compiled=1)


def test_an_operator_that_keeps_state_is_found() -> None:
    calls = []

    def op(x: te.Tensor) -> te.Tensor:
        calls.append(x)
        return x * float(len(calls))

    with pytest.raises(te.testing.CheckError, match="two different programs"):
        te.testing.check_op(op, "n", examples=3)


def test_an_exception_is_reported_with_the_smallest_case() -> None:
    def op(x: te.Tensor) -> te.Tensor:
        if x.shape[0] > 2:
            raise ValueError("no more than two")
        return x + 1

    report = te.testing.check_op(op, "n", checks="gradient", raise_exception=False)
    assert report.failure is not None
    assert "raised ValueError: no more than two" in str(report)
    assert report.failure.case.arrays["x"].shape == (3,)


def test_cases_can_be_refused() -> None:
    def op(x: te.Tensor) -> te.Tensor:
        assume(x.shape[0] % 2 == 0)
        return x.reshape(-1, 2).sum(1)

    assert te.testing.check_op(op, "n", examples=5, checks="gradient")


@te.testing.checked("n k", "k m", examples=5, checks=("gradient", "adjoint"))
def test_the_decorator_makes_a_test(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return matmul(a, b)


class TestOfAClass:
    factor = 2.0

    @te.testing.checked("n", power=st.integers(1, 2), examples=5, checks="gradient")
    def test_the_decorator_takes_methods(self, x: te.Tensor, power: int) -> te.Tensor:
        return x**power * self.factor


def test_the_decorated_test_fails_where_the_operator_is_wrong() -> None:
    @te.testing.checked("n", vjp=lambda y, xs, head: head, checks="gradient")
    def test(x: te.Tensor) -> te.Tensor:
        return x * 2

    with pytest.raises(te.testing.CheckError, match="test is wrong"):
        test()


def test_a_run_is_repeatable_and_silent() -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        reports = [str(check(PLANTED[0], vjp=PLANTED[0].vjp, checks="gradient", raise_exception=False)) for _ in "ab"]
    assert reports[0] == reports[1]
    assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: te.testing.check_op(te.tanh, "n", checks="speed"), ValueError, "no check 'speed'"),
        (lambda: te.testing.check_op(te.tanh, "n", dtypes="int32"), ValueError, "float types, found 'int32'"),
        (lambda: te.testing.check_op(te.tanh, "n", dtypes=()), ValueError, "name at least one"),
        (lambda: te.testing.check_op(te.tanh, "n", sizes={"m": 3}), ValueError, "names 'm'.*the extents are n"),
        (lambda: te.testing.check_op(te.tanh, "n", sizes={"n": (3, 2)}), ValueError, "smallest <= largest"),
        (lambda: te.testing.check_op(matmul, "n", "n", "n"), TypeError, r"matmul\(a: "),
        (lambda: te.testing.check_op(lambda *xs: xs[0]), TypeError, "wrap it in a function of named arguments"),
        (lambda: te.testing.array("n ..."), ValueError, "stands first"),
        (lambda: te.testing.array("n 2*"), ValueError, r"made of these by .*, as 2\*h; found '2\*'"),
        (lambda: te.testing.array("n/2"), ValueError, "an extent is a name, a number, or made of these"),
        (lambda: te.testing.array("f(n)"), ValueError, "an extent is a name, a number, or made of these"),
        (lambda: te.testing.array("n 1.5"), ValueError, "an extent is a name, a number, or made of these"),
        (
            lambda: te.testing.check_op(te.tanh, "n*m", sizes={"k": 3}),
            ValueError,
            "sizes= names 'k'.*the extents are m, n",
        ),
        (
            lambda: te.testing.check_op(te.tanh, "n-7", examples=1),
            ValueError,
            r"the extent n-7 is -\d at n = \d; bound its names",
        ),
        (lambda: te.testing.array("n", below=3), TypeError, "below= is for integers"),
        (lambda: te.testing.array("n", low=1.0, high=1.0), ValueError, "low < high"),
    ],
)
def test_bad_arguments_are_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_drawn_static_arguments_are_drawn() -> None:
    seen = set()

    def op(x: te.Tensor, power: int = 1) -> te.Tensor:
        seen.add(power)
        return x**power

    te.testing.check_op(op, "n", power=st.integers(1, 3), examples=20, checks="gradient")
    assert seen == {1, 2, 3}


def looked_up(image: te.Tensor, table: te.Tensor, mode: str = "linear") -> te.Tensor:
    assert mode == "linear"
    return te.compute(image.shape[:2], lambda i, j: te.sum(lambda k: image[i, j, k]) + table[0, 0, 0, 0])


IMAGE, TABLE = np.ones((4, 5, 3), "float32"), np.ones((3, 3, 3, 3))
HERE = rf"check_op at {__file__}:\d+: "
MISUSE: dict[str, tuple[Any, str]] = {
    "arrays": (
        lambda: te.testing.check_op(looked_up, IMAGE, TABLE),
        r"argument 'image' is an array \(ndarray\); describe it: '4 5 3', or with names, as 'n m', for extents "
        r"that vary, or te.testing.array\('4 5 3', 'float32'\)",
    ),
    "one array": (lambda: te.testing.check_op(looked_up, "h w 3", TABLE), "argument 'table' is an array .*'3 3 3 3'"),
    "a scalar array": (lambda: te.testing.check_op(te.tanh, np.ones(())), r"te.testing.array\('', 'float64'\)"),
    "a tensor": (
        lambda: te.testing.check_op(te.tanh, te.placeholder((2, te.var("n")))), r"is a tensor \(Tensor\).*: '2 n', or",
    ),
    "arrays in a list": (
        lambda: te.testing.check_op(te.stack, [TABLE[0], TABLE[1]]),
        r"argument '\w+' has arrays in it \(list\).*wrap .* in a function with a parameter for each array",
    ),
    "tuples": (
        lambda: te.testing.check_op(lambda image, table: image + table, (4, 5, 3), (3, 3, 3, 3)),
        r"no argument of <lambda> is described as an array: image=\(4, 5, 3\), table=\(3, 3, 3, 3\); "
        r"give the shape of one as text: '4 5 3'",
    ),
    "a number": (lambda: te.testing.check_op(te.tanh, 3.0), "x=3.0; give the shape of one as text: 'n m'"),
    "one tuple": (
        lambda: te.testing.check_op(looked_up, "h w 3", (3, 3, 3, 3)),
        r"argument 'table' of looked_up is annotated as a tensor, found \(3, 3, 3, 3\); give its shape as text: "
        r"'3 3 3 3'",
    ),
    "one description": (
        lambda: te.testing.check_op(looked_up, "h w 3"),
        r"looked_up takes image and table; found 1 description; describe table as well \('...' for an array of any ",
    ),
    "descriptions in a list": (
        lambda: te.testing.check_op(looked_up, ["h w 3", "3 3 3 3"]),
        r"found the list \['h w 3', '3 3 3 3'\]; write check_op\(looked_up, 'h w 3', '3 3 3 3'\)",
    ),
    "by name": (lambda: te.testing.check_op(looked_up, table="3 3 3 3"), "image and table.*describe image as well"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_told_before_anything_is_drawn(name: str) -> None:
    call, message = MISUSE[name]
    with pytest.raises(TypeError, match=HERE + ".*" + message):
        call()


def test_arrays_may_be_static_and_shapes_tuples() -> None:
    """What `just` holds is given as it is; without any description, every argument is an array of any shape."""
    assert te.testing.check_op(lambda x, w: x * te.constant(w), "3", st.just(np.arange(3.0)), examples=3, compiled=1)
    assert te.testing.array((4, "n", 3), "int32").shape == (4, "n", 3)
    assert te.testing.check_op(lambda x, y: x + y, examples=3, compiled=1)


def test_extents_that_follow_from_others() -> None:
    seen: set[tuple[tuple[int, ...], ...]] = set()

    def joined(x: te.Tensor, skip: te.Tensor, w: te.Tensor, ids: te.Tensor) -> te.Tensor:
        seen.add((x.shape, skip.shape, w.shape, ids.shape))
        wide = te.compute((x.shape[0], 2 * x.shape[1]), lambda c, i: x[c, i // 2])
        both = te.concatenate([wide, skip], 0)
        return te.compute((w.shape[0], ids.shape[0]), lambda o, i: te.sum(lambda c: w[o, c] * both[c, ids[i]]))

    ids = te.testing.array("(n+1)//2", "int32", below="2*n")
    assert te.testing.check_op(joined, "c n", "s 2*n", "o c+s", ids, sizes={"c": (1, 3)}, examples=20)
    assert len(seen) > 4
    for (c, n), (s, wide), (_, channels), (m,) in seen:
        assert (wide, channels, m) == (2 * n, c + s, (n + 1) // 2)
        assert c <= 3


def test_a_wrong_rule_is_found_at_extents_that_follow_from_others() -> None:
    def half(x: te.Tensor) -> te.Tensor:
        return te.compute((x.shape[0] // 2,), lambda i: x[2 * i] * x[2 * i + 1])

    def wrong(output: te.Tensor, inputs: Any, head: te.Tensor) -> Any:
        (x,) = inputs
        return te.compute(x.shape, lambda i: x[i] * head[i // 2])

    with pytest.raises(AssertionError, match="gradient"):
        te.testing.check_op(half, "2*n", vjp=wrong, examples=10)
    assert te.testing.check_op(half, "2*n", examples=10)


def test_a_tuple_that_may_have_meant_a_shape_is_named() -> None:
    """Options are tuples as well, so that only the operator can say."""

    def op(image: Any, table: Any) -> Any:
        return image * table.sum()

    report = te.testing.check_op(op, "h w", (3, 3), raise_exception=False)
    assert report.failure is not None
    assert "raised AttributeError: 'tuple' object has no attribute 'sum'" in report.failure.message
    assert "table=(3, 3) is given as it is; where it is the shape of an array, give '3 3'" in report.failure.message


def test_notes_of_an_exception_are_reported() -> None:
    op = te.op(lambda x, w: x * w.sum())
    report = te.testing.check_op(op, "n", [1.0, 2.0], raise_exception=False)
    assert report.failure is not None
    assert "argument 'w' is a list and so a static value; give np.asarray(w)" in report.failure.message


def test_a_snippet_has_the_source_of_functions_whose_own_names_a_script_has_too() -> None:
    """A name within a function was taken for that of its module, and its source left out."""
    script = "\n".join((
        "import tedsl as te",
        "image = lut = w = n = 1.0",
        "SCALE = 3.0",
        "@te.op",
        "def scaled(lut):",
        "    n = lut.shape[0]",
        "    def value(i):",
        "        w = lut[i % n]",
        "        return SCALE * w",
        "    return te.compute(lut.shape, value)",
    ))  # fmt: skip
    linecache.cache["scripted.py"] = (len(script), None, script.splitlines(keepends=True), "scripted.py")
    scope: dict[str, Any] = {"__name__": "scripted"}
    exec(compile(script, "scripted.py", "exec"), scope)
    listing = Listing({"lut": np.zeros(3)})
    assert listing.tell(scope["scaled"], "op") == "scaled"
    text = "\n".join(listing.lines())
    assert "SCALE = 3.0" in text
    assert "def scaled(lut):" in text
    assert "image" not in text


def test_a_single_wrong_element_of_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """`te.gradcheck` moves a sample of large inputs; the verdict on an operator rests on all elements."""
    monkeypatch.setattr("autodiff.checking.differences.PATIENCE", 1)

    @te.op
    def same(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda i: x[i] * 2.0)

    @same.def_vjp
    def _(y: te.Tensor, inputs: Any, head: te.Tensor) -> Any:
        return [te.compute((500,), lambda i: te.select(i == 400, 5.0, 2.0) * head[i])]

    report = te.testing.check_op(same, "500", checks="gradient", examples=3, raise_exception=False)
    assert not report.ok
    assert "disagree" in str(report)


def test_what_fails_at_the_smallest_extents_says_how_to_ask_for_larger_ones() -> None:
    def second(x: te.Tensor, y: te.Tensor) -> te.Tensor:
        inner = (x.shape[0] - 2, x.shape[1])
        return te.compute(inner, lambda i, j: x[i, j] - 2 * x[i + 1, j] + x[i + 2, j] * y[0])

    with pytest.raises(te.testing.CheckError, match=r'm and n are 1 here; .*: sizes=\{"m": \(3, 9\), "n": \(3, 9\)\}'):
        te.testing.check_op(second, "n m", "m")
    told = te.testing.check_op(second, "n m", "m", sizes={"m": (1, 4)}, raise_exception=False)
    assert 'n is 1 here; if that is too small, say so: sizes={"n": (3, 9)}' in str(told)
    te.testing.check_op(second, "n m", "m", sizes={"n": (3, 9)}, examples=5)


def test_an_operator_that_stops_a_gradient_is_checked_without_differences() -> None:
    def rounded(x: te.Tensor) -> te.Tensor:
        y = x * x
        return y + te.stop_gradient(te.round(y) - y)

    report = te.testing.check_op(rounded, "n", examples=20)
    assert report.counts["gradient"] == report.counts["second"] == 0
    assert report.counts["adjoint"] > 0
    assert "differences see through te.stop_gradient" in str(report)
    assert "see through" not in str(te.testing.check_op(lambda x: x * x, "n", examples=5))


def test_the_arrays_of_a_case_may_stand_in_the_order_of_the_parameters() -> None:
    """They were an error of `dict`."""

    def weighted(a: te.Tensor, power: int, b: te.Tensor) -> te.Tensor:
        return a**power * b

    a, b = np.array([1.0, 2.0]), np.array([0.5, 3.0])
    for arrays in ((a, b), [a, b], {"a": a, "b": b}):
        assert te.testing.check_case(weighted, arrays, static={"power": 2}).ok
    assert te.testing.check_case(lambda x, y=2.0: x * y, (a,)).ok
    with pytest.raises(ValueError, match=r"check_case at .*: arrays: weighted takes a, b; found 3 arrays"):
        te.testing.check_case(weighted, (a, b, a), static={"power": 2})
    with pytest.raises(TypeError, match=r"expected a sequence or a dict of arrays for a, b, found ndarray"):
        te.testing.check_case(weighted, a, static={"power": 2})  # type: ignore[arg-type]
