"""Traces for placeholders whose extents are te.vars: one program for arrays of any size, compared with NumPy."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.mutation.outlines import ViewLine
from tests.mutation.symbolic_programs import SIZES, filled, m, n, write_program

V, M, F = (n,), (n, m), (n, 4)
ANY = [0, 1, 2, 3, 7, 100]


def function_of(source: str, count: int) -> Any:
    """`fn(x, y, z)` with these statements."""
    lines = "\n".join(f"    {line.strip()}" for line in source.split(";"))
    exec(f"def fn({', '.join('xyz'[:count])}):\n{lines}", scope := {"np": np, "te": te})
    return scope["fn"]


def run(function: Any, arrays: Sequence[Any]) -> tuple[list[Any], Exception | None]:
    """What NumPy returns, or raises."""
    try:
        with np.errstate(all="ignore"):
            found = function(*arrays)
    except Exception as error:
        return [], error
    return [] if found is None else list(found) if isinstance(found, tuple) else [found], None


def check(
    function: Any, shapes: Sequence[tuple[Any, ...]], sizes: Sequence[tuple[int, int]], dtypes: Sequence[str] = (),
    *, compiled: bool = True, note: str = "",
) -> None:  # fmt: skip
    """One trace agrees with NumPy at every size, on results and on what becomes of the arguments."""
    kinds = list(dtypes) or ["int64"] * len(shapes)
    inputs = [te.placeholder(s, k, name=f"a{p}") for p, (s, k) in enumerate(zip(shapes, kinds, strict=True))]
    pure = te.functionalize(function).trace(*inputs)
    wanted = [*pure.outputs, *pure.mutated.values()]
    kernel = te.build(list(pure.inputs), wanted) if compiled else None
    for pair in sizes:
        given = [filled(s, pair, p).astype(k) for p, (s, k) in enumerate(zip(shapes, kinds, strict=True))]
        own = [a.copy() for a in given]
        expected, error = run(function, own)
        feeds = {**dict(zip(inputs, given, strict=True)), **pure.captured}
        calls = [lambda feeds=feeds: te.interpret(wanted, feeds)]
        calls += [] if kernel is None else [lambda feeds=feeds: kernel(*feeds.values())]
        for call in calls:
            if error is None:
                every = [*expected, *(own[next(k for k, t in enumerate(inputs) if t is old)] for old in pure.mutated)]
                for one, other in zip(every, call(), strict=True):
                    text = f"{note} at n, m = {pair}\nexpected {one}\nfound {other}"
                    assert (np.shape(one), np.asarray(one).dtype) == (other.shape, other.dtype), text
                    np.testing.assert_allclose(other, one, rtol=1e-13, err_msg=text)
                for old, before, after in zip(inputs, given, own, strict=True):
                    assert any(old is t for t in pure.mutated) or np.array_equal(before, after), note
            elif isinstance(error, IndexError) and not all(t.shape and 0 in pair for t in wanted):
                with pytest.raises(IndexError):
                    call()


CUTS = ["1:", "::2", "::-1", "::-2", "1::2", "-3:", "-3:-1", ":-2", "2:5", "5:2", "5:2:-1", "-2:1:-1", ":-4:-1", "100:",
        "-1::-3", ":100", "-100:2", "2:-2:3", "-5:5", "5:-5", "0:0", ":0", "3:-8:-1", "-1:", "..."]  # fmt: skip


@pytest.mark.parametrize("cut", CUTS)
def test_slices(cut: str) -> None:
    function = function_of(f"x[{cut}] += 1; y = x[{cut}][1:]; y *= 3; return x[{cut}] * 2, y[::-1]", 1)
    check(function, [V], [(k, 0) for k in ANY], compiled=cut in ("1:", "-2:1:-1", "2:-2:3"))


PROGRAMS: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("x[1:] += 1; x[::2] *= 3", [V]),
    ("x[1:] += x[:-1]; x[:-1] -= x[1:]; x[:] = x[::-1]", [V]),
    ("x[1:-1, ::-1] += 1; x[::2, None] *= 2; x[..., 1:3] -= 1; x[None][:, 1:] += 4", [M]),
    ("x[0], x[-1] = x[-1].copy(), x[0].copy(); x[0, 1:] += 2; x[:, -1] = 7", [M]),
    ("y = x[::2][::2][1:][::-1]; y[...] = 5; y[:2] = 7; y = x[-3:][::-1]; y += 1; return y", [V]),
    ("return x[0], x[-1], x[3], x[1:4][2], x[::-1][1]", [V]),
    ("x[2] = 7; x[-4] += 1", [V]),
    (
        "k = x.shape[0]; x[k // 2:] += 1; x[:k // 2] *= 2; x[k - 3:] += 1; x[: k - 3] -= 5; x[k - 1] = 9; return x * k",
        [V],
    ),
    (
        "x.T[1:, ::2] *= 2; x.swapaxes(0, 1)[1:] += 1; np.moveaxis(x, 0, -1)[::2] *= 2; np.flip(x)[0:2] -= 1",
        [M],
    ),
    ("y = x.reshape(-1); y[::3] += 1; z = y.reshape(x.shape); z[1:] = 5; return z.sum()", [M]),
    (
        "y = x.reshape(x.shape[0], 2, 2); y[:, 0] += 1; y[:, :, 1] *= 2; z = x.reshape(-1, 2); z[1::2] = 3; return y",
        [F],
    ),
    ("y = x[:, 1:3]; y += y[:, ::-1]; return y.sum(0), y.sum(1), y.max(1), y.T.ravel()", [F]),
    ("x -= x.sum(0); x[1:] -= x.sum(1, keepdims=True)[:-1]; return x.mean(), x.any(), x.cumsum(0)", [M]),
    ("k = x > 0; x[k] += 1; x[~k] *= 2; x[y > 0] -= 1; x[y > 0, 1:] = 4; return x[k].sum(), x[y > 0].sum(0)", [M, V]),
    ("k = x[0] > 0; x[:, k] *= 2; x[1:, k] += 1; return x[:, k].sum(1)", [M]),
    ("x[y % 2] += 1; x[y % 2] = y; np.add.at(x, y % 2, 2); return x[y % 2]", [V, (3,)]),
    ("y = x.copy(); y[1:] = 0; z = x[::-1].copy().reshape(-1); return y, z, x.T.flatten(), x.T.reshape(-1)", [M]),
    ("y = np.zeros_like(x); y[1:] = x[:-1]; y[:1] += 1; z = np.where(x > 0, x, 0); z[::2] = -1; return y, z", [M]),
    ("y = np.concatenate([x[1:], x]); y[1:] += y[:-1]; return y, np.stack([x, x * 2])", [V]),
    ("for k in range(x.shape[1]): x[:, k] += k", [F]),
    ("for c in x.T: c += c.sum()", [F]),
    ("y = np.expand_dims(x, 1); y[:, 0] += 1; z = y.squeeze(1); z *= 2; return z, x[None].squeeze(0)", [M]),
    ("y = x.diagonal(1); return y * 2, x.diagonal().sum(), x.diagonal(-2)", [M]),
    ("np.add(x, 1, out=x); np.maximum(x[1:], 0, out=x[1:]); np.copyto(x[::2], 0); x[...] = x * 2; x[()] -= 1", [V]),
    ("x += y; y[1:] = x[:-1]; return x @ y", [V, V]),
    ("x[:] = y @ z", [(n, 3), M, (m, 3)]),
    ("y = x[0]; y += 1; z = y[::2]; z *= 3; return y.reshape(2, 2)", [F]),
    ("x //= 2; x[1:] %= 3; x |= 1; x[::2] ^= 7; x <<= 1; return x.sum()", [V]),
]


@pytest.mark.share(2)
@pytest.mark.parametrize(("source", "shapes"), PROGRAMS)
def test_programs(source: str, shapes: list[tuple[Any, ...]]) -> None:
    sizes = [(a, b) for a in (0, 1, 2, 7, 20) for b in ([0, 1, 5] if m in set(sum(shapes, ())) else [0])]
    check(function_of(source, len(shapes)), shapes, sizes, note=source)


def test_dtypes() -> None:
    check(
        function_of("x &= y; x[1:] |= y[:-1]; return ~x, x.any(), x.sum()", 2),
        [V, V],
        [(k, 0) for k in ANY],
        ["bool"] * 2,
    )
    smooth = "y = x[1:-1]; y += 0.25 * (x[:-2] - 2 * y + x[2:]); return y.mean()"
    for dtype in ("float32", "float64"):
        function = function_of(smooth, 1)
        x = te.placeholder(V, dtype, name="x")
        pure = te.functionalize(function).trace(x)
        kernel = te.build(x, [*pure.outputs, pure.mutated[x]])
        for k in (3, 4, 100):
            own = np.random.default_rng(k).random(k).astype(dtype)
            found = kernel(own)
            np.testing.assert_allclose(found[0], function(own), rtol=1e-5 if dtype == "float32" else 1e-13)
            np.testing.assert_allclose(found[1], own, rtol=1e-6 if dtype == "float32" else 1e-14)


def test_methods_of_torch() -> None:
    def program(x: Any) -> Any:
        x.add_(1).mul_(2)
        x[1:].relu_()
        x[::2].zero_()
        x[1::2].clamp_(min=3)
        x[-1:].fill_(9)
        return x.t().sum(0)

    torch = pytest.importorskip("torch")
    x = te.placeholder(M, "float64", name="x")
    pure = te.functionalize(program).trace(x)
    for shape in ((0, 2), (1, 3), (5, 4)):
        own = torch.arange(np.prod(shape)).reshape(shape).double() - 5
        found = te.interpret([pure.outputs[0], pure.mutated[x]], {x: own.numpy().copy()})
        np.testing.assert_array_equal(found[0], program(own))
        np.testing.assert_array_equal(found[1], own)


@pytest.mark.parametrize(
    ("source", "shape"),
    [
        ("x[1:] *= x[:-1] + 1; return (x * x).sum()", V),
        ("x[0] = x[-1] * 2; x[::2] += x[::-1][::2] * x[::2]; return (x * x).sum()", V),
        ("y = x.reshape(-1); y[1::3] *= y[::-1][1::3]; x.T[1:] += 1; return (x * x * x).sum()", M),
        ("k = x > 0; x[k] *= x[k]; x[-3:] *= 2; return x.sum()", V),
    ],
)
def test_gradients(source: str, shape: tuple[Any, ...]) -> None:
    function = function_of(source, 1)
    x = te.placeholder(shape, "float64", name="x")
    (dx,) = te.differentiate(te.functionalize(function).trace(x).outputs[0], [x])
    kernel = te.build(x, dx)
    for size in (1, 2, 5):
        value = np.random.default_rng(size).normal(size=[size if d is n else 4 for d in shape])
        steps = [np.eye(value.size)[k].reshape(value.shape) * 1e-6 for k in range(value.size)]
        want = [(function(value + s) - function(value - s)) / 2e-6 for s in steps]
        np.testing.assert_allclose(kernel(value).reshape(-1), want, rtol=1e-5, atol=1e-6)


def test_in_place_on_the_argument() -> None:
    x = te.placeholder(V, "float64", name="x")
    new = te.functionalize(function_of("x *= 2; x += 1", 1)).trace(x).mutated[x]
    kernel = te.build(x, new, alias={new: x})
    for k in ANY:
        array = np.arange(float(k))
        assert kernel(array) is array
        np.testing.assert_array_equal(array, np.arange(k) * 2 + 1)
    assert kernel.stats.copies == []


def test_may_alias() -> None:
    def program(x: Any, y: Any) -> Any:
        pairs = [(x[::2], x[1::2]), (x[:3], x[3:]), (x[1:], x[:-1]), (x, y), (x[0], x[1]), (x[:1], x[1:])]
        return [te.may_alias(a, b) for a, b in pairs]

    x, y = te.placeholder(M, name="x"), te.placeholder(M, name="y")
    found: list[Any] = []
    te.functionalize(lambda x, y: found.extend(program(x, y))).trace(x, y)
    assert found == [False, False, True, False, False, False]


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("len(x)", TypeError, r"length of an array of shape \(n, m\) .* x.shape\[0\] is an expression"),
        ("for row in x: row += 1", TypeError, "take the place of a loop over rows"),
        ("y = x.T.reshape(-1); y += 1", TypeError, r"may be that of two arrays: reshape at .*x\.copy\(\)\.reshape"),
        ("y = x[:, ::2].reshape(-1); x += 1; return y", TypeError, "depends on its extents"),
        ("x[2:][np.array([True, False])] = 1", IndexError, r"shape \(2,\) does not match \(te.maximum\(n - 2, 0\),\)"),
        ("x[1:] += x", ValueError, r"shapes do not broadcast: .* n in one and|te.maximum\(n - 1, 0\) in one"),
        ("x[:1] = x[1:2]", ValueError, r"equal whatever the variables are: x\[0\] = x\[1\] in place of"),
        ("x[::x.shape[0]] = 1", ValueError, "the step must be a number"),
        ("x[1.5:] = 1", TypeError, "a bound must be an integer or an expression of extents"),
        ("x[:, :, 0]", IndexError, "too many indices"),
        ("x[:2][5] = 1", IndexError, "index 5 is out of bounds for an axis of at most 2 places"),
        ("np.broadcast_to(x[None], (3, *x.shape))[0] = 1", ValueError, "the target is read-only"),
        ("np.diagonal(x)[:2] += 1", ValueError, "the target is read-only"),
        ("x.reshape(7, -1)", ValueError, "cannot be found"),
        ("x.squeeze(0)", ValueError, "not known to be 1"),
        ("np.zeros_like(x[0, :0] if False else np.ones(3) + x.sum())[x.shape[0] - 1] = 0", TypeError, "symbolic place"),
    ],
)
def test_refusals(source: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        te.functionalize(function_of(source, 1)).trace(te.placeholder(M, name="x"))


def test_traces_take_placeholders() -> None:
    x = te.placeholder(V, name="x")
    with pytest.raises(TypeError, match=r"argument 'x': expected a te\.placeholder, found mul"):
        te.functionalize(function_of("x += 1", 1)).trace(x * 2)


# Random programs


def check_several(seed: int, count: int, compiled: float = 0.1) -> Counter[str]:
    rng, became = random.Random(seed), Counter[str]()
    for _ in range(count):
        source, shapes = write_program(rng)
        exec(source, scope := {"np": np})
        function, sizes = scope["fn"], []
        for pair in SIZES:  # programs may need sizes that agree with those at which they were written
            _, error = run(function, [filled(s, pair, p) for p, s in enumerate(shapes)])
            sizes += [pair] if error is None else []
        try:
            check(function, shapes, sizes, compiled=rng.random() < compiled, note=source)
        except (TypeError, ValueError) as error:
            told = str(error)
            assert "may be that of two arrays" in told or "broadcast" in told or "target larger" in told, source
            became["refused"] += 1
            continue
        became["agreed"] += 1
    return became


def test_random_programs() -> None:
    assert check_several(0, 60)["agreed"] >= 55


def test_the_suite_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """With views that are taken to leave nothing out, some program writes more than it should."""
    moved = ViewLine.moved

    def edged(self: ViewLine, cut: Any) -> ViewLine:
        return replace(moved(self, cut), from_edge=True, to_edge=True)

    monkeypatch.setattr(ViewLine, "moved", edged)
    with pytest.raises((AssertionError, IndexError)):
        check_several(0, 60, compiled=0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_random_programs(seed: int) -> None:
    check_several(seed, 100)
