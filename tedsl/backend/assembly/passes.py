"""What happens to Halide's LLVM assembly before it becomes machine code: every pass, in order."""

from __future__ import annotations

from collections.abc import Collection, Set

from tedsl.backend.assembly.alignment import realigned
from tedsl.backend.assembly.atomics import compared_once
from tedsl.backend.assembly.exponentials import scaled
from tedsl.backend.assembly.fences import fenced
from tedsl.backend.assembly.fma import fused
from tedsl.backend.assembly.gathers import gathered
from tedsl.backend.assembly.masked_stores import unmasked
from tedsl.backend.assembly.min_max import extremes
from tedsl.backend.assembly.nontemporal import streamed, tags_of
from tedsl.backend.assembly.prefetch import fetched_ahead
from tedsl.backend.assembly.reciprocals import multiplied

__all__ = ["rewritten"]


def rewritten(assembly: str, features: Set[str], streams: Collection[str] = ()) -> str:
    """The assembly with what is needed for right results, then with what is faster.

    `features` are the processor's instruction sets; `streams` are buffers that are large and only written.
    """
    safe = compared_once(fenced(unmasked(realigned(assembly)), features).split("\n"))
    lines = fused(extremes(scaled(gathered(safe), features), features))
    tags = tags_of(lines, streams)
    return "\n".join(multiplied(streamed(fetched_ahead(lines, tags), tags, features), features))
