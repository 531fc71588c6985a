"""From which sizes on the default schedule does more for a stage than plain loops: all of them, in one place.

A pattern has a price, such as a copy or a task for another thread, that few elements do not pay back. The figures were
measured; nothing but speed depends on them. With `LOWEST` every pattern takes whatever it can be applied to at all,
which is how property tests reach the patterns with programs of a few elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from tedsl.lang.dataclass import dataclass

__all__ = ["LOWEST", "Thresholds"]


@dataclass(frozen=True)
class Thresholds:
    """The least sizes, each of what its name says."""

    product: int = 1 << 12  # multiplications of a sum of products whose factors are packed
    product_lanes: int = 4  # columns of such a sum
    product_threads: int = 1 << 22  # multiplications
    product_terms: int = 2048  # of a sum that is cut into blocks, for each of which the factors stay in the cache
    mirrored_rows: int = 192  # of a symmetric product, of which a half is computed
    mirrored_terms: int = 2048  # bytes of the terms of an element of it
    window_lanes: int = 12  # pixels of a row, few filters over which share what they read
    strided_uses: int = 16  # of each element of a table that has every so many of such pixels side by side
    epilogue: int = 1  # elements of a product that is stored as what its reader makes of it
    table_rows: int = 16  # of a table that stays in the first cache, beside which columns are packed row by row
    table_threads: int = 1 << 15  # elements of a packed table
    turned: int = 1 << 14  # elements of a table that is turned in squares
    row_vectors: int = 2  # of a row that is reduced by lanes
    blocks: int = 1 << 17  # terms of an element that is cut into blocks
    phase_terms: int = 8  # products that a packed column goes into, in a sum that is taken apart by remainders
    growing: int = 16  # iterations of a loop up to which, or from which, a reduction goes
    chain: int = 1 << 9  # floats that are added up in a row: more of them lose digits
    block_extent: int = 16  # iterations of the loop that is cut
    position: int = 2  # elements of a row whose extreme is looked for in two passes
    nest_threads: int = 1 << 17  # scalar operations
    column_rows: int = 64  # rows of a reduction that are worth a few streams through memory
    shared: int = 40  # operations of an element that most iterations of a short loop share
    across: int = 16  # elements of a transposed row
    short_across: int = 2  # the same where rows are so short that many lie side by side in the cache
    pipeline: int = 1 << 19  # bytes of stages that are computed row by row together
    pipeline_strip: int = 32  # rows of which a task computes all stages
    pipeline_share: int = 8  # rows of a strip for each one that another strip computes too
    border_strips: int = 1  # bytes of a copy with a border, made where a window moves over it
    written_out: int = 1  # elements of a stage through which others are read by windows
    walks: int = 1 << 14  # bytes of the terms of each of several sums, which are made in one walk then
    slices: int = 1 << 20  # bytes that stages would bring from memory again
    slice_vectors: int = 16  # of the columns of a slice: fewer are no stream through memory
    cases: int = 8  # operations of an element that no case of a stage does which chooses by the same for a row
    pieces: int = 64  # elements of a stage whose loops are cut where it changes what it reads
    row_borders: int = 1 << 10  # elements of a stage whose rows have borders of their own
    shifted: int = 1  # elements of a stage whose last tiles or vectors are shifted inwards
    lookup_points: int = 64  # in a row of the result, whose rows of a table are looked up
    lookup_row: int = 8  # elements of such a row
    lookup_threads: int = 1 << 14  # points
    scatter: int = 1 << 15  # points
    scatter_lanes: int = 3  # elements of a row that is put last
    scatter_moved: int = 2  # points for each element, from which on putting another row last pays
    scatter_piece: int = 256  # points of an axis, computed a piece at a time
    scatter_own: int = 4  # vectors of a row that is made in the cache and then written
    scatter_rows: int = 64  # the same where they have rows of values
    scatter_blocks: int = 8  # iterations of the loop that is cut into blocks
    scatter_threads: int = 1 << 17  # points
    scatter_reuse: int = 32  # points for each element, from which on blocks have tables of their own
    scan_threads: int = 1 << 17  # elements
    step_threads: int = 5 << 17  # scalar operations of a step of a scan, all of which needs the step before
    wide_readers: int = 3  # kernels that read a stage made of several tensors
    step_kernels: int = 1 << 16  # scalar operations of a step that is a kernel of its own
    forgotten: int = 1 << 23  # bytes of the steps of scans that nobody needs at once
    segment: int = 1 << 14  # vector instructions of a segment of these steps, for what it takes to call its kernels
    step_run: int = 32  # bytes of a step in one piece, from which on that many are cut along time
    kernels: int = 24  # of a program that is cut: one kernel for fewer is called faster
    gpu_taps: int = 3  # reads of a tensor for an element of a stencil that is staged in shared memory
    gpu_reuse: int = 2  # times that an element of such a copy is read
    gpu_terms: int = 1 << 13  # terms of an element that is cut into blocks

    @property
    def kernels_beside_work(self) -> int:
        """How many are enough where calls are nothing beside what they compute."""
        return max(min(self.kernels, 2), -(-self.kernels // 2))

    @classmethod
    def chosen(cls, choices: Mapping[str, int]) -> Thresholds:
        """Those that are chosen by name, the rest as they are."""
        return cls(**{f.name: choices[f.name] for f in fields(cls) if f.name in choices})


# Kernels for each step take several times as long to compile; their own tests draw programs for them.
LOWEST = {**dict.fromkeys((f.name for f in fields(Thresholds)), 1), "chain": 8, "step_kernels": 1 << 16}
