"""What the applications of Halide are said with: an application, its images, short forms of Halide's words."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tedsl as te
from tedsl.backend.host.processors import HOST_VARIABLE
from tedsl.backend.host.targets import machine_of, parse_target

__all__ = ["GRAY", "App", "extent", "func", "host", "image", "lanes", "largest_difference", "words"]

GRAY = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class App:
    """`data` of a size; `expert` makes Halide's function of its arrays, `ours` the result; `origin` of Halide's.

    `sized`: whether the expert is told height and width as numbers. `off`: the share of integers that may differ by
    `by`, where they are floats cut off that were rounded otherwise. `gradient_of`: what integers become where gradients
    are measured.
    """

    name: str
    data: Callable[[int, int], np.ndarray | tuple[np.ndarray, ...]]
    expert: Callable[..., Any]
    ours: Callable[..., te.Tensor]
    size: tuple[int, int] = (2560, 1536)
    small: tuple[int, int] = (70, 128)
    origin: tuple[int, ...] = ()
    differentiable: bool = True
    off: float = 0.0
    by: int = 0
    sized: bool = False
    gradient_of: str = ""

    def arrays(self, size: tuple[int, int]) -> list[np.ndarray]:
        """What it is called with."""
        made = self.data(*size)
        return list(made) if isinstance(made, tuple) else [made]

    def program(self, arrays: Sequence[np.ndarray]) -> tuple[list[te.Tensor], te.Tensor]:
        """Its inputs and its result."""
        given = [te.placeholder(a.shape, a.dtype.name, name=f"image_{k}") for k, a in enumerate(arrays)]
        return given, self.ours(*given)

    def differs(self, found: np.ndarray, want: np.ndarray, tolerance: float) -> bool:
        """Whether a result is another one than Halide's."""
        if found.dtype.kind == "f":
            return largest_difference(found, want) > tolerance
        wide = np.abs(found.astype("int64") - want.astype("int64"))
        return bool(np.mean(wide > 0) > self.off or wide.max() > self.by)


def largest_difference(found: np.ndarray, want: np.ndarray) -> float:
    """The largest difference of two results, relative to the largest element."""
    a, b = found.astype("float64"), want.astype("float64")
    return float(np.abs(a - b).max() / max(1e-30, np.abs(b).max()))


def image(channels: int) -> Callable[[int, int], np.ndarray]:
    """Floats from 0.1 to 1.1, of so many channels, or of one without an axis for it."""
    shape = (channels,) if channels else ()
    return lambda h, w: np.random.default_rng(0).random((*shape, h, w), dtype=np.float32) + np.float32(0.1)


def words(most: int) -> Callable[[int, int], np.ndarray]:
    """Integers of 16 bits below `most`."""
    return lambda h, w: np.random.default_rng(0).integers(0, most, (h, w), "uint16")


def host(hl: Any) -> Any:
    """Halide's target for the processor here, or for the one that TEDSL_HOST takes it for."""
    if not os.environ.get(HOST_VARIABLE):
        return hl.get_host_target()
    ours = {"no_bounds_query", "no_runtime", "user_context"}
    return hl.Target("-".join(word for word in parse_target("host").text.split("-") if word not in ours))


def lanes(dtype: Any) -> int:
    """In a vector of the processor here: what `natural_vector_size` says."""
    return machine_of(parse_target("host")).vector_bytes // np.dtype(str(dtype)).itemsize


def func(hl: Any, name: str, args: Sequence[Any], value: Any) -> Any:
    """A function of Halide."""
    made = hl.Func(name)
    made[tuple(args)] = value
    return made


def extent(t: te.Tensor, axis: int) -> int:
    """A known extent as a number."""
    return int(str(t.shape[axis]))
