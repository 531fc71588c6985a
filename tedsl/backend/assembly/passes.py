"""What happens to Halide's LLVM assembly before it becomes machine code: every pass, in order.

A module is its lines. A `needed` pass mends what would be wrong, and looks afterwards whether a line is left that it
should have changed: then Halide or LLVM words it in a way that the pass does not know, and no code is made. A `faster`
pass leaves what it does not know as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Set
from dataclasses import field
from typing import Literal

from tedsl.backend.assembly.alignment import misaligned, realigned
from tedsl.backend.assembly.atomics import compared_once, compared_twice
from tedsl.backend.assembly.clamped_loads import loaded_under_masks
from tedsl.backend.assembly.exponentials import scaled
from tedsl.backend.assembly.fences import fenced, unfenced
from tedsl.backend.assembly.fma import fused
from tedsl.backend.assembly.gathers import gathered
from tedsl.backend.assembly.lane_choices import chosen_in_lanes
from tedsl.backend.assembly.masked_stores import masked_singly, unmasked
from tedsl.backend.assembly.min_max import extremes
from tedsl.backend.assembly.nontemporal import streamed, tags_of
from tedsl.backend.assembly.partial_sums import summed_side_by_side
from tedsl.backend.assembly.prefetch import fetched_ahead
from tedsl.backend.assembly.quotients import divided_as_doubles
from tedsl.backend.assembly.reciprocals import multiplied
from tedsl.backend.assembly.scatters import scattered
from tedsl.lang.dataclass import dataclass

__all__ = ["PASSES", "AssemblyError", "Pass", "PassContext", "fired", "rewritten"]

Lines = list[str]


class AssemblyError(RuntimeError):
    """The assembly has a form that a pass does not know which right results need."""


@dataclass(frozen=True)
class PassContext:
    """The processor's instruction sets, and the buffers that are large and only written."""

    features: Set[str] = frozenset()
    streams: Collection[str] = ()


@dataclass(frozen=True)
class Pass:
    """One rewriting of a module, where `when` holds; `left`: a line that a needed one should have changed."""

    name: str
    kind: Literal["needed", "faster"]
    rewrite: Callable[[Lines, PassContext], Lines]
    when: Callable[[PassContext], bool] = field(default=lambda around: True)
    left: Callable[[Lines], str | None] = field(default=lambda lines: None)


PASSES = (
    Pass("alignment", "needed", lambda lines, _: realigned(lines), left=misaligned),
    Pass("masked stores", "needed", lambda lines, _: unmasked(lines), left=masked_singly),
    Pass("fences", "needed", lambda lines, _: fenced(lines), lambda around: "avx512" in around.features, unfenced),
    Pass("atomics", "needed", lambda lines, _: compared_once(lines), left=compared_twice),
    Pass("gathers", "faster", lambda lines, around: gathered(lines, around.features)),
    Pass("scatters", "faster", lambda lines, _: scattered(lines), lambda around: "avx512" in around.features),
    Pass(
        "clamped loads", "faster", lambda lines, _: loaded_under_masks(lines), lambda around: "avx2" in around.features
    ),
    Pass(
        "quotients", "faster", lambda lines, around: divided_as_doubles(lines, around.features),
        lambda around: "avx2" in around.features,
    ),
    Pass("exponentials", "faster", lambda lines, around: scaled(lines, around.features)),
    Pass("extremes", "faster", lambda lines, around: extremes(lines, around.features)),
    Pass("lane choices", "faster", lambda lines, _: chosen_in_lanes(lines)),
    Pass(
        "partial sums", "faster", lambda lines, around: summed_side_by_side(lines, around.features),
        lambda around: {"avx2", "fma"} <= around.features,
    ),
    Pass("fused multiply-add", "faster", lambda lines, around: fused(lines, around.features)),
    Pass("prefetches", "faster", lambda lines, around: fetched_ahead(lines, tags_of(lines, around.streams))),
    Pass(
        "stores past the cache", "faster",
        lambda lines, around: streamed(lines, tags_of(lines, around.streams), around.features),
    ),
    Pass("reciprocals", "faster", lambda lines, around: multiplied(lines, around.features)),
)  # fmt: skip


def rewritten(assembly: str, around: PassContext) -> str:
    """The assembly with what is needed for right results, then with what is faster."""
    made = assembly.split("\n")
    for _, lines in _steps(made, around):
        made = lines
    return "\n".join(made)


def fired(assembly: str, around: PassContext) -> dict[str, int]:
    """How many lines each pass made or changed."""
    before, found = assembly.split("\n"), {}
    for each, lines in _steps(before, around):
        known = set(before)
        found[each.name] = sum(line not in known for line in lines)
        before = lines
    return found


def _steps(lines: Lines, around: PassContext) -> Iterator[tuple[Pass, Lines]]:
    for each in PASSES:
        if each.when(around):
            lines = each.rewrite(lines, around)
            line = each.left(lines)
            if line is not None:
                raise AssemblyError(
                    f"pass {each.name!r}: a line of LLVM's assembly has a form that is not known, so that no right "
                    f"code can be made of it: {line.strip():.200}; take the versions of halide and llvmlite that "
                    "pyproject.toml names, or set TEDSL_LOADER=jit"
                )
            yield each, lines
