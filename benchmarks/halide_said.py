"""The schedules of Halide's experts, said in this language: what a person may write here who knows theirs."""

from __future__ import annotations

from collections.abc import Callable

import tedsl as te
from benchmarks.halide_kit import lanes

__all__ = ["SAID"]


def _earlier(s: te.Schedule, out: te.Tensor) -> list[str]:
    """The stages before the result."""
    return [name for name in s.stages if name != s[out].name]


def blur(out: te.Tensor) -> te.Schedule:
    s = te.Schedule(out)
    strip, _ = s[out].split("y", 32)
    s[out].parallel(strip).vectorize("x", 16)
    for stage in _earlier(s, out):
        s[stage].compute_at(out, "x").store_at(out, strip).vectorize("x", 16)
    return s


def chain(out: te.Tensor) -> te.Schedule:
    s = te.Schedule(out)
    h, w = (int(str(n)) for n in out.shape)
    y, x, row, column = s[out].tile("y", "x", h // 4, w // 4)
    task = s[out].fuse(y, x)
    s[out].parallel(task).vectorize(column, lanes(out.dtype))
    for stage in _earlier(s, out):
        s[stage].compute_at(out, row).store_at(out, task).vectorize("x", lanes(out.dtype))
    return s


def harris(out: te.Tensor) -> te.Schedule:
    s = te.Schedule(out)
    strip, row = s[out].split("y", 32)
    s[out].parallel(strip).vectorize("x", lanes(out.dtype))
    for stage in _earlier(s, out):
        if stage in ("gray", "dx", "dy"):
            s[stage].compute_at(out, row).store_at(out, strip).vectorize("x", lanes(out.dtype))
        else:
            s[stage].compute_inline()
    s["dx"].compute_with("dy", "x")
    return s


def unsharp(out: te.Tensor) -> te.Schedule:
    s = te.Schedule(out)
    strip, row = s[out].split("y", 32)
    s[out].vectorize("x", lanes(out.dtype))
    s[out].parallel(strip).reorder(strip, row, "c", "x", "xv")
    for stage in _earlier(s, out):
        s[stage].compute_at(out, row).store_at(out, strip).vectorize("x", lanes(out.dtype))
    return s


SAID: dict[str, Callable[[te.Tensor], te.Schedule]] = {
    "blur of uint16": blur,
    "unsharp mask": unsharp,
    "Harris corners": harris,
    "chain of stencils of uint16": chain,
}
