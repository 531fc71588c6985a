"""Kernels as functions of other compilers' calling conventions, in machine code: no Python, no lock on the way.

A `CallSite` says where the addresses of arrays go in the block of words that a kernel takes (see `arguments.blocks`).
From it a small function in LLVM's assembly is written, which copies the block, fills in the addresses and calls the
kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tedsl.backend.arguments.addresses import address_of
from tedsl.backend.arguments.blocks import OneCall
from tedsl.backend.arguments.layouts import LARGEST
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.compiling.executable import CallMemory
from tedsl.backend.host.runtime import KernelError
from tedsl.lang.dataclass import dataclass

__all__ = ["CallSite", "call_site"]

MOST_WORDS = 1 << 14  # of a block, which lies on the stack


@dataclass(frozen=True, eq=False)
class CallSite:
    """A kernel for dense arrays of given shapes: its address, its block, and where in it addresses belong."""

    kernel: Kernel
    call: OneCall
    constants: dict[int, int]  # word -> the address of a constant, which is not among the inputs
    inputs: tuple[int, ...]  # word of the address of each input
    outputs: tuple[int, ...]  # and of each output, in the order of the kernel

    def error(self, code: int, context: int) -> Exception:
        """The error of a call that returned `code`."""
        found = self.call.error(code, context)
        return self.kernel.explained(found) if isinstance(found, KernelError) else found


def call_site(kernel: Kernel, shapes: Sequence[tuple[int, ...]]) -> CallSite | None:
    """Where to call a kernel whose extents are numbers; None where a call is more than calls of code."""
    program, count, constants = kernel.core.program, len(kernel.inputs), list(kernel.constants.values())
    if program.facts.is_always_empty or program.target.backend != "host" or program.target.problem or program.sizes:
        return None
    tensors = (*kernel.inputs, *kernel.outputs)
    sizes = [t.dtype.itemsize * math.prod(shape) for shape, t in zip(shapes, tensors, strict=True)]
    if not all(0 < size <= LARGEST for size in (*sizes, *(a.nbytes for a in constants))):
        return None
    arrays = [np.empty(shape, t.dtype.numpy) for shape, t in zip(shapes, tensors, strict=True)]  # no page is touched
    inputs, outputs = (*arrays[:count], *constants), arrays[count:]
    call = kernel.core.in_one(CallMemory(inputs, dict(enumerate(outputs)), {}))
    if call is None or len(call.words) > MOST_WORDS:
        return None
    middle = len(inputs)
    hidden = dict(zip(call.hosts[count:middle], map(address_of, constants), strict=True))
    return CallSite(kernel, call, hidden, call.hosts[:count], call.hosts[middle:])
