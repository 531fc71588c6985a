"""Samples of volumes, beside PyTorch's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tedsl as te

RNG = np.random.default_rng(0)


def test_samples_of_a_volume_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    volume, places = RNG.standard_normal((2, 2, 3, 4, 5)), RNG.uniform(-1.3, 1.3, (2, 3, 2, 4, 3))
    for mode, padding, corners in itertools.product(
        ("bilinear", "nearest"), ("zeros", "border", "reflection"), (False, True)
    ):
        found = te.ops.grid_sample(volume, places, mode=mode, padding_mode=padding, align_corners=corners)
        expected = torch.nn.functional.grid_sample(
            torch.tensor(volume), torch.tensor(places), mode=mode, padding_mode=padding, align_corners=corners
        )
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_reflection_of_places_far_out(mode: str, corners: bool) -> None:
    torch = pytest.importorskip("torch")
    for shape in ((2, 2, 4, 5), (2, 2, 1, 2)):
        image, places = RNG.standard_normal(shape), RNG.uniform(-5.3, 5.3, (2, 6, 7, 2))
        found = te.ops.grid_sample(image, places, mode=mode, padding_mode="reflection", align_corners=corners)
        expected = torch.nn.functional.grid_sample(
            torch.tensor(image), torch.tensor(places), mode=mode, padding_mode="reflection", align_corners=corners
        )
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-9, atol=1e-12)


def test_gradients_of_reflected_samples() -> None:
    x, at = te.placeholder((1, 1, 3, 4), "float64", name="x"), te.placeholder((1, 2, 3, 2), "float64", name="at")
    for corners in (False, True):
        sampled = te.ops.grid_sample(x, at, padding_mode="reflection", align_corners=corners)
        te.gradcheck(sampled, [x, at], [RNG.standard_normal(x.shape), RNG.uniform(-2.9, 2.9, at.shape)])


def test_samples_of_a_volume_have_gradients_by_volume_and_place() -> None:
    x = te.placeholder((1, 2, 3, 2, 3), "float64", name="x")
    at = te.placeholder((1, 2, 1, 2, 3), "float64", name="at")
    te.gradcheck(te.ops.grid_sample(x, at), [x, at], [RNG.standard_normal(x.shape), RNG.uniform(-0.9, 0.9, at.shape)])


def test_what_is_no_volume_is_refused() -> None:
    x = te.placeholder((1, 2, 3, 2, 3), name="x")
    with pytest.raises(ValueError, match=r"grid: expected 5 dimensions \(n, i, j, k, 3\), found 4"):
        te.ops.grid_sample(x, te.placeholder((1, 2, 2, 2), name="at"))
    with pytest.raises(ValueError, match="column, row and depth"):
        te.ops.grid_sample(x, te.placeholder((1, 2, 2, 2, 2), name="at"))
    with pytest.raises(ValueError, match=r"x: expected 4 or 5 dimensions \(n, c, h, w\) or \(n, c, d, h, w\)"):
        te.ops.grid_sample(x[0, 0], te.placeholder((1, 2, 2, 2, 2), name="at"))
