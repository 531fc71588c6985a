"""`te.build(opt=)`: how much work the default schedule is worth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tedsl as te

RANDOM = np.random.default_rng(3)


def product(n: int) -> tuple[list[te.Tensor], te.Tensor]:
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    return [a, b], te.compute((n, n), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j]), name="c")


def test_quick_code_is_shorter_and_right() -> None:
    inputs, c = product(512)
    quick, usual = (te.build(inputs, c, opt=opt, target="x86-64-v3") for opt in ("fast", "default"))
    assert len(quick.source("asm")) < 0.6 * len(usual.source("asm"))
    inputs, c = product(96)
    arrays = [RANDOM.integers(-3, 4, (96, 96)).astype("float32") for _ in inputs]
    np.testing.assert_array_equal(te.build(inputs, c, opt="fast")(*arrays), arrays[0] @ arrays[1])


def test_the_best_is_searched_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tedsl.backend.building.planners.BEST", 0.5)
    inputs, c = product(40)
    arrays = [RANDOM.integers(-3, 4, (40, 40)).astype("float32") for _ in inputs]
    for _ in range(2):
        np.testing.assert_array_equal(te.build(inputs, c, opt="best")(*arrays), arrays[0] @ arrays[1])
        monkeypatch.setattr("tedsl.backend.building.planners.SEARCH", "nothing.is.searched.again")
    assert list(tmp_path.rglob("tuned/*.json"))


def test_what_cannot_be_measured_gets_the_default_schedule() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    with pytest.warns(UserWarning, match="opt='best' finds a schedule by measuring: the extent 'n' is no number"):
        kernel = te.build([x], x * 2.0, opt="best")
    np.testing.assert_array_equal(kernel(np.ones(3, "float32")), [2, 2, 2])


def test_other_words_are_refused() -> None:
    inputs, c = product(4)
    with pytest.raises(ValueError, match="opt must be one of 'fast', 'default', 'best', found 'quick'"):
        te.build(inputs, c, opt="quick")
    with pytest.raises(ValueError, match="leave one of the two out"):
        te.build(inputs, c, opt="fast", schedule="tuned")


def test_evaluation_operators_and_functions_take_it() -> None:
    inputs, c = product(96)
    arrays = [RANDOM.integers(-3, 4, (96, 96)).astype("float32") for _ in inputs]
    want = arrays[0] @ arrays[1]
    np.testing.assert_array_equal(te.evaluate(c, dict(zip(inputs, arrays, strict=True)), opt="fast"), want)
    quick, usual = te.op(opt="fast")(lambda a, b: a @ b), te.op(lambda a, b: a @ b)
    np.testing.assert_array_equal(quick(*arrays), want)
    np.testing.assert_array_equal(te.grad(lambda a, b: quick(a, b).sum())(*arrays), te.grad(
        lambda a, b: usual(a, b).sum())(*arrays))  # fmt: skip
    for made in (te.jit(lambda a, b: a @ b, opt="fast"), te.jit(opt="fast")(lambda a, b: a @ b)):
        np.testing.assert_array_equal(made(*arrays), want)
        assert {t.worth.opt for d in made._definitions.values() for t in d.traces.values()} == {"fast"}


@pytest.mark.parametrize("ask", [
    lambda opt: te.evaluate(te.compute((2,), lambda i: i + 1), opt=opt),
    lambda opt: te.op(opt=opt),
    lambda opt: te.jit(lambda x: x, opt=opt),
])  # fmt: skip
def test_all_of_them_refuse_other_words(ask: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="opt must be one of 'fast', 'default', 'best', found 'quick'"):
        ask("quick")
