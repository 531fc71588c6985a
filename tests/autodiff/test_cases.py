"""Stages that choose by where they are: their gradients are those of the choices, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from autodiff.rules.cases import cases_of
from tedsl.lang.tensor import Compute

CHANCE = np.random.default_rng(5)
H, W = 6, 12


def colors(a: te.Tensor) -> te.Tensor:
    """Channels made of all others."""

    def mixed(c: Any, y: Any, x: Any) -> Any:
        p, q, r = (a[k, y, x] for k in range(3))
        return te.select(c == 0, p * (q - r), te.select(c == 1, q * te.sin(r), r * p * q + a[c, y, x]))

    return te.compute((3, H, W), mixed)


def woven(a: te.Tensor) -> te.Tensor:
    """Columns of three kinds, of which there are not as many of each."""

    def kind(y: Any, x: Any) -> Any:
        p, q, r = (a.at(k, y, x // 3 + k, mode="clamp") for k in range(3))
        return te.select(x % 3 == 0, p * q, te.select(x % 3 == 1, te.sin(q) + r, r * r * p))

    return te.compute((H, 3 * W - 4), kind)


def both(a: te.Tensor) -> tuple[te.Tensor, ...]:
    """Two results, rows and channels chosen."""

    def kind(c: Any, y: Any, x: Any) -> Any:
        p, q = a[0, y // 2, x], a[1, y // 2, x]
        first = te.select(c < 1, te.select(y % 2 != 0, p * q, te.sin(p)), q * q)
        return first, te.select(c < 1, p * 2, q * p)

    return te.compute((2, 2 * H, W), kind)


def mosaic(a: te.Tensor) -> te.Tensor:
    """Sites of four kinds that begin at an odd one, and neighbors."""

    def kind(y: Any, x: Any) -> Any:
        Y, X = (y + 3) // 2, (x + 1) // 2
        p, q = a.at(0, Y, X, mode="clamp"), a.at(1, Y, X - 1, mode="clamp")
        r = a.at(2, Y - 1, X + 1, mode="clamp")
        even = te.select((x + 1) % 2 == 0, p * q, q * r)
        return te.select((y + 3) % 2 == 0, even, te.select((x + 1) % 2 == 0, te.sin(r) * q, r - p))

    return te.compute((2 * H, 2 * W), kind)


PROGRAMS: dict[str, tuple[Callable[[te.Tensor], Any], int]] = {
    "colors": (colors, 3), "woven": (woven, 3), "both": (both, 4), "mosaic": (mosaic, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name: str) -> None:
    program, count = PROGRAMS[name]
    a = te.placeholder((3, H, W), "float64", name="a")
    out = program(a)
    outputs = list(out) if isinstance(out, tuple) else [out]
    (op,) = {t.op for t in outputs}
    assert isinstance(op, Compute)
    assert len(cases_of(op)) == count
    loss = sum((t * te.constant(CHANCE.random([int(n) for n in t.shape]))).sum() for t in outputs)
    assert te.gradcheck(loss, a, {a: CHANCE.random((3, H, W))})


@pytest.mark.parametrize("name", PROGRAMS)
def test_jacobians(name: str) -> None:
    """With axes in front, compiled and by the reference."""
    a, head = te.placeholder((3, H, W), "float64", name="a"), None
    out = PROGRAMS[name][0](a)
    out = out[0] if isinstance(out, tuple) else out
    head = te.placeholder((2, *out.shape), "float64", name="head")
    gradient = te.differentiate(out, a, head=head)
    feeds = {t: CHANCE.random([int(n) for n in t.shape]) for t in (a, head)}
    found = te.build([a, head], gradient)(*feeds.values())
    np.testing.assert_allclose(found, te.interpret(gradient, feeds), rtol=1e-12)
    single = te.differentiate(out, a, head=(first := te.placeholder(out.shape, "float64", name="first")))
    for k in range(2):
        one = te.interpret(single, {a: feeds[a], first: feeds[head][k]})
        np.testing.assert_allclose(found[k], one, rtol=1e-12)


def test_no_branch_sends_zeros_for_the_others() -> None:
    """A channel's gradient is no sum over channels, and an interleaved column's none over what leads to it."""
    a = te.placeholder((3, H, W), "float64", name="a")
    for name in ("colors", "woven"):
        out = PROGRAMS[name][0](a)
        gradient = te.differentiate(out, a, head=te.placeholder(out.shape, "float64", name="head"))
        text = str(te.Schedule(gradient))
        assert "+=" not in text, text


def test_what_is_the_same_for_all_stays_one_stage() -> None:
    a = te.placeholder((3, H, W), "float64", name="a")
    shared = te.compute((3, H, W), lambda c, y, x: te.exp(te.sin(a[c, y, x])) * te.select(c == 0, a[0, y, x], 2.0))
    assert len(cases_of(shared.op)) == 1
