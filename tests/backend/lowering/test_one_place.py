"""Chains of operations on elements at constant places, each link of which takes the one before more than once.

Halide 21 takes such a value for its own bounds and writes these out: 20 links would be minutes, or hours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tedsl as te

LINKS = 24
Link = Callable[[Any, Any], Any]

FLOATS: dict[str, Link] = {
    "maximum": te.maximum,
    "maximum of one before": lambda m, x: te.maximum(x, m),
    "minimum": te.minimum,
    "clip": lambda m, x: te.clip(x, m - 1, m),
    "relu": lambda m, x: te.relu(m - x),
    "sign": lambda m, x: te.sign(m - x),
    "hypot": te.hypot,
    "product": lambda m, x: m * m * 0.25 + x,
    "sigmoid": lambda m, x: m * te.sigmoid(m) + x,
    "choice": lambda m, x: te.select(m > x, m * 0.5, x - m),
}
INTEGERS: dict[str, Link] = {
    "maximum": te.maximum,
    "sign": lambda m, x: te.sign(m - x),
    "product": lambda m, x: m * m + x,
    "remainder": lambda m, x: m % (x * x + 3),
}
CASES = [
    *((name, "float32") for name in FLOATS),
    *((name, dtype) for name in ("maximum", "sign", "product", "hypot") for dtype in ("float64", "float16")),
    *((name, "int32") for name in INTEGERS),
    *((name, dtype) for name in ("sign", "product") for dtype in ("int64", "int16", "uint32", "uint8")),
]


def values_of(dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(LINKS).astype(dtype)
    return rng.integers(0, 5, LINKS).astype(dtype)


def chained(link: Link, terms: Sequence[Any]) -> Any:
    return functools.reduce(link, terms)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_chain_of_elements(name: str, dtype: str) -> None:
    link = (FLOATS if np.dtype(dtype).kind == "f" else INTEGERS)[name]
    k = te.placeholder((LINKS,), dtype, name="k")
    value = chained(link, [k[i] for i in range(LINKS)])
    out = te.compute((LINKS,), lambda i: k[i] - value)
    found, wanted = te.build([k], out)(values_of(dtype)), te.interpret(out, {k: values_of(dtype)})
    if name in ("sigmoid", "hypot"):
        np.testing.assert_allclose(found, wanted, rtol=2 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["maximum", "sign", "product"])
def test_gradients_of_a_chain(name: str) -> None:
    k = te.placeholder((LINKS,), "float64", name="k")
    value = chained(FLOATS[name], [k[i] for i in range(LINKS)])
    out = te.compute((LINKS,), lambda i: te.sin(k[i] - value))
    grad = te.differentiate(out.sum(), k)
    values = values_of("float64")
    np.testing.assert_allclose(te.build([k], grad)(values), te.interpret(grad, {k: values}), rtol=1e-9, atol=1e-12)


def of_numbers(link: Link) -> tuple[list[te.Tensor], te.Tensor]:
    numbers = [te.placeholder((), name=f"s{i}") for i in range(LINKS)]
    return numbers, chained(link, numbers)


def of_stages(link: Link) -> tuple[list[te.Tensor], te.Tensor]:
    k = te.placeholder((LINKS,), name="k")
    value = te.compute((), lambda: k[0])
    for i in range(1, LINKS):
        value = te.compute((), lambda i=i, before=value: link(before[()], k[i]))
    return [k], te.compute((LINKS,), lambda i: k[i] - value[()])


def of_slices(link: Link) -> tuple[list[te.Tensor], te.Tensor]:
    k = te.placeholder((LINKS,), name="k")
    return [k], k - chained(link, [k[i : i + 1] for i in range(LINKS)])


def of_one_number(link: Link) -> tuple[list[te.Tensor], te.Tensor]:
    k, s = te.placeholder((LINKS,), name="k"), te.placeholder((), name="s")
    return [k, s], k - chained(link, [s, *(s * i for i in range(1, LINKS))])


@pytest.mark.parametrize("name", ["maximum", "sign", "product"])
@pytest.mark.parametrize("spelled", [of_numbers, of_stages, of_slices, of_one_number])
def test_a_chain_of_stages(spelled: Callable[[Link], tuple[list[te.Tensor], te.Tensor]], name: str) -> None:
    inputs, out = spelled(FLOATS[name])
    rng = np.random.default_rng(0)
    values = [rng.standard_normal([int(n) for n in t.shape]).astype(t.dtype.name) for t in inputs]
    found = te.build(inputs, out)(*values)
    np.testing.assert_array_equal(found, te.interpret(out, dict(zip(inputs, values, strict=True))))


def test_no_instruction_comes_of_it() -> None:
    """What hides the size of a chain from Halide is gone in the code."""
    k = te.placeholder((9,), name="k")
    value = chained(te.maximum, [k[i] for i in range(9)])
    lines = te.build([k], te.compute((), lambda: value), target="x86-64-v3").source("asm").splitlines()
    names = [line.split()[0] for line in lines if line.startswith("\t")]
    assert not [n for n in names if n.startswith(("vpxor", "vmovd"))]
