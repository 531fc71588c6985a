"""`te.ops.interpolate` by numbers that are no integers, and by means of areas, beside PyTorch."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tedsl as te

SIZES = {1: (11,), 2: (7, 10), 3: (4, 5, 6)}
MODES = {
    "nearest": (1, 2, 3), "area": (1, 2, 3), "linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)
}  # fmt: skip
CASES = [(mode, rank) for mode, ranks in MODES.items() for rank in ranks]


def beside_torch(x: Any, **options: Any) -> tuple[Any, Any]:
    """The result and its derivative, ours and PyTorch's."""
    torch = pytest.importorskip("torch")
    theirs = torch.tensor(x, requires_grad=True)
    result = torch.nn.functional.interpolate(theirs, **options)
    head = np.random.default_rng(1).normal(size=tuple(result.shape))
    (result * torch.tensor(head)).sum().backward()
    derivative = te.grad(lambda a: (te.ops.interpolate(a, **options) * head).sum())(x)
    y = te.jit(lambda a: te.ops.interpolate(a, **options))(x)
    return (y, derivative), (result.detach().numpy(), theirs.grad.numpy())


@pytest.mark.share(6)
@pytest.mark.parametrize("scale", [1.7, 0.6, 2.5, 1.25, 2.0])
@pytest.mark.parametrize(("mode", "rank"), CASES)
def test_by_a_number(mode: str, rank: int, scale: float) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, *SIZES[rank]))
    for found, expected in zip(*beside_torch(x, scale_factor=scale, mode=mode), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)  # places are float32 numbers there


def test_by_a_number_for_each_axis() -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 9, 8))
    for options in ({"mode": "bilinear"}, {"mode": "bilinear", "align_corners": True}, {"mode": "nearest"}):
        for found, expected in zip(*beside_torch(x, scale_factor=(1.5, 2), **options), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [0.29, 1.1, 0.7, 1 / 3, 3.3])
@pytest.mark.parametrize("n", [4, 10, 100])
def test_sizes_are_those_of_torch(n: int, scale: float) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.functional.interpolate(torch.ones(1, 1, n), scale_factor=scale)
    assert te.ops.interpolate(te.placeholder((1, 1, n)), scale_factor=scale).shape == tuple(theirs.shape)


@pytest.mark.parametrize(("mode", "rank"), [("area", 1), ("area", 2), ("area", 3)])
@pytest.mark.parametrize("size", [3, 5, 13])
def test_areas(mode: str, rank: int, size: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 1, *SIZES[rank]))
    for found, expected in zip(*beside_torch(x, size=(size,) * rank, mode=mode), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    last = te.ops.interpolate(
        np.moveaxis(x, 1, -1), size=(size,) * rank, mode=mode, layout=("NWC", "NHWC", "NDHWC")[rank - 1]
    )
    first = te.ops.interpolate(x, size=(size,) * rank, mode=mode)
    np.testing.assert_allclose(np.moveaxis(last, -1, 1), first, rtol=1e-12)


def test_one_kernel_for_areas_of_all_sizes() -> None:
    f = te.jit(lambda a: te.ops.interpolate(a, size=(3, 4), mode="area"), symbolic=True)
    for h, w in ((7, 9), (6, 8), (2, 5)):
        x = np.random.default_rng(h).normal(size=(1, 2, h, w))
        np.testing.assert_allclose(f(x), te.ops.interpolate(x, size=(3, 4), mode="area"), rtol=1e-12)


@pytest.mark.parametrize(
    ("shape", "options", "text"),
    [
        ((1, 1, 4), {"scale_factor": 0.2}, "scale_factor: nothing is left of 4 elements times 0.2"),
        ((1, 1, te.var("n")), {"scale_factor": 1.5}, "1.5 is no integer, for which sizes are numbers; found n"),
        ((1, 1, 4), {"scale_factor": -1.5}, "expected a positive number or 1 of them, found -1.5"),
        ((1, 1, 4), {"scale_factor": (1.5, 2)}, "expected a positive number or 1 of them, found (1.5, 2)"),
        ((1, 1, 4), {"scale_factor": float("inf")}, "expected a positive number"),
        ((1, 1, 4), {"size": 2, "mode": "area", "align_corners": True}, "expected False with mode='area', found True"),
    ],
)
def test_what_has_no_meaning(shape: tuple[Any, ...], options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        te.ops.interpolate(te.placeholder(shape), **options)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_means_of_what_is_scattered(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, src = ((rng.normal(size=s) * 9).astype(dtype) for s in ((4, 5), (6, 5)))
    index = rng.integers(0, 4, (6, 5))
    theirs = torch.tensor(x).scatter_reduce(0, torch.tensor(index), torch.tensor(src), "mean")
    found = te.ops.scatter_reduce(x, 0, index, src, "mean")
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found, theirs.numpy(), rtol=1e-6 if dtype == "float32" else 1e-12)


def test_gradients_of_means_of_what_is_scattered() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, src, index = rng.normal(size=(4, 5)), rng.normal(size=(6, 5)), rng.integers(0, 4, (6, 5))
    weight = rng.normal(size=(4, 5))
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, src)]
    result = theirs[0].scatter_reduce(0, torch.tensor(index), theirs[1], "mean")
    (result * torch.tensor(weight)).sum().backward()
    ours = te.grad(lambda a, b: (te.ops.scatter_reduce(a, 0, index, b, "mean") * weight).sum(), argnums=(0, 1))(x, src)
    for found, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(found, expected.grad.numpy(), rtol=1e-12)
