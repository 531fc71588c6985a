"""What Halide is told of the strides of arrays: their numbers where they are known, nothing where they may be any."""

from __future__ import annotations

import math
from itertools import count

import halide as hl

from tedsl.analysis.sizes import known_shape
from tedsl.backend.arguments.blocks import contiguous_strides
from tedsl.backend.lowering.pipeline import Lowered

__all__ = ["fix_strides", "free_strides"]


def fix_strides(lowered: Lowered) -> None:
    """Tell Halide the strides of contiguous arrays: addresses are then computed by the compiler, as far as they can."""
    images = [(t, image, True) for t, image in lowered.inputs.items()]
    images += [(lowered.outputs[p], image, True) for p, image in lowered.previous.items()]
    for result in lowered.results:
        tensors = (lowered.outputs[p] for p in result.positions)
        # Further components lie where the first one does, and Halide minds being told so.
        images += zip(tensors, result.func.output_buffers(), (k == 0 for k in count()), strict=False)
    for tensor, image, is_free in images:
        shape = known_shape(tensor)
        assert shape is not None
        if image.dimensions() < len(shape):  # a row of all elements
            shape = (math.prod(shape),)
        for dim, (extent, step) in enumerate(zip(shape[::-1], contiguous_strides(shape, 1)[::-1], strict=True)):
            image.dim(dim).set_stride(step)
            if is_free:
                image.dim(dim).set_bounds(0, extent)


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
