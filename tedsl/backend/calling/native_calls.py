"""Kernels as functions of other compilers' calling conventions, in machine code: no Python, no lock on the way.

A `CallSite` says where the addresses of arrays go in the block of words that a kernel takes (see `arguments.blocks`).
From it a small function in LLVM's assembly is written, which copies the block, fills in the addresses and calls the
kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from tedsl.backend.arguments.addresses import address_of
from tedsl.backend.arguments.blocks import HOST, contiguous_strides, lay_out
from tedsl.backend.arguments.layouts import LARGEST
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.compiling.forms import Numbers
from tedsl.backend.compiling.variant import Variant
from tedsl.backend.host.runtime import KernelError, failure
from tedsl.lang.dataclass import dataclass

__all__ = ["CallSite", "call_site"]


@dataclass(frozen=True, eq=False)
class CallSite:
    """A kernel for dense arrays of given shapes: its address, its block, and where in it addresses belong."""

    kernel: Kernel
    variant: Variant
    address: int
    words: tuple[int, ...]
    constants: dict[int, int]  # word -> the address of a constant, which is not among the inputs
    pointers: dict[int, int]  # word -> the word that it points to
    inputs: tuple[int, ...]  # word of the address of each input
    outputs: tuple[int, ...]  # and of each output, in the order of the kernel

    def error(self, code: int, context: int) -> Exception:
        """The error of a call that returned `code`."""
        found: KernelError = failure(self.variant.origin.program.name, code, context)
        return self.kernel.explained(found)


def call_site(kernel: Kernel, shapes: Sequence[tuple[int, ...]]) -> CallSite | None:
    """Where to call a kernel whose extents are numbers; None where a call is more than one call of code."""
    core, program = kernel.core.single, kernel.core.program
    inputs, count = (*kernel.inputs, *kernel.constants), len(kernel.inputs)
    tensors = (*inputs, *kernel.outputs)
    shapes = [*shapes[:count], *(array.shape for array in kernel.constants.values()), *shapes[count:]]
    sizes = [t.dtype.itemsize for t in tensors]
    for shape, size in zip(shapes, sizes, strict=True):
        for extent in shape:
            size *= extent
        if not 0 < size <= LARGEST:
            return None
    if core is None or program.facts.is_always_empty or program.target.backend != "host" or program.target.problem:
        return None
    modes = ("write",) * len(kernel.outputs)
    variant = core.forms.variant(core.forms.usual(modes))
    if variant.has_checks:  # one may be of finite numbers: then a call may need the form for any
        variant = core.forms.variant(core.forms.usual(modes, Numbers.ANY))
    address = variant.function.code.address
    if variant.sizes or address is None:
        return None
    order = [*range(len(inputs)), *(len(inputs) + p for p in variant.order)]
    layouts = [(shapes[p], contiguous_strides(shapes[p], tensors[p].dtype.itemsize)) for p in order]
    words, pointers, buffers = lay_out(variant.function, layouts, variant.scalars({}))
    places = {p: at + HOST for p, at in zip(order, buffers, strict=True)}
    hidden = zip(range(count, len(inputs)), kernel.constants.values(), strict=True)
    return CallSite(
        kernel, variant, address, tuple(words), {places[p]: address_of(array) for p, array in hidden}, pointers,
        tuple(places[p] for p in range(count)), tuple(places[p] for p in range(len(inputs), len(tensors))),
    )  # fmt: skip
