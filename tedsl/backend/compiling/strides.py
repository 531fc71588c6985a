"""What Halide is told of the strides of arrays: their numbers where they are known, nothing where they may be any."""

from __future__ import annotations

from itertools import count
from typing import Any

import halide as hl

from tedsl.analysis.sizes import known_shape
from tedsl.backend.arguments.layouts import row_length, strides_of
from tedsl.backend.lowering.pipeline import Lowered
from tedsl.lang.extents import number
from tedsl.lang.tensor import Tensor

__all__ = ["fix_last_strides", "fix_strides", "free_strides"]


def fix_strides(lowered: Lowered) -> None:
    """Tell Halide the strides of compact arrays: addresses are then computed by the compiler, as far as they can."""
    for tensor, image, is_free in _images(lowered):
        shape, steps = known_shape(tensor), strides_of(tensor)
        assert shape is not None
        if image.dimensions() < len(shape):  # a row of all that lies in it
            shape, steps = (row_length(tensor),), (1,)
        for dim, (extent, step) in enumerate(zip(shape[::-1], steps[::-1], strict=True)):
            image.dim(dim).set_stride(step)
            if is_free:
                image.dim(dim).set_bounds(0, extent)


def fix_last_strides(lowered: Lowered) -> None:
    """Of dense arrays the axis before those of one element, such as the one channel of a filter, is the last one."""
    for tensor, image, _ in _images(lowered):
        extents = [number(n) for n in tensor.extents][::-1]
        last = next((k for k, n in enumerate(extents) if n != 1), 0)
        if last and (extents[last] or 0) > 1 and image.dimensions() == len(extents):
            image.dim(last).set_stride(1)


def _images(lowered: Lowered) -> list[tuple[Tensor, Any, bool]]:
    """Every tensor outside, what Halide knows its array by, and whether Halide may be told its bounds."""
    images = [(t, image, True) for t, image in lowered.inputs.items()]
    images += [(lowered.outputs[p], image, True) for p, image in lowered.previous.items()]
    for result in lowered.results:
        tensors = (lowered.outputs[p] for p in result.positions)
        # Further components lie where the first one does, and Halide minds being told so.
        images += zip(tensors, result.func.output_buffers(), (k == 0 for k in count()), strict=False)
    return images


def free_strides(lowered: Lowered) -> None:
    """Halide takes the innermost stride for 1 unless told otherwise."""
    anything = hl.Expr()
    for image in (*lowered.inputs.values(), *lowered.previous.values()):
        if image.dimensions():
            image.dim(0).set_stride(anything)
    for result in lowered.results:
        for buffer in result.func.output_buffers():
            if buffer.dimensions():
                buffer.dim(0).set_stride(anything)
