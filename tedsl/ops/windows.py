"""What convolutions and pools share: the order of the axes, and windows that slide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tedsl.lang.dataclass import dataclass
from tedsl.ops import language as te
from tedsl.ops.arguments import are_numbers, check_rank, one_of, per_axis, refuse

__all__ = ["ChannelLayout", "Windows", "layout_of", "windows_of"]

_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


@dataclass(frozen=True)
class ChannelLayout:
    """Where the channels stand: after the batch, or last."""

    name: str
    channels_last: bool

    def split(self, index: Sequence[Any]) -> tuple[Any, Any, tuple[Any, ...]]:
        """Batch, channel and place of an index (or a shape)."""
        if self.channels_last:
            return index[0], index[-1], tuple(index[1:-1])
        return index[0], index[1], tuple(index[2:])

    def join(self, batch: Any, channel: Any, place: Sequence[Any]) -> tuple[Any, ...]:
        return (batch, *place, channel) if self.channels_last else (batch, channel, *place)


def layout_of(x: te.Tensor, layout: str | None, rank: int, what: str) -> ChannelLayout:
    """The layout of `x`, checked; channels first when None."""
    names = _LAYOUTS[rank]
    chosen = names[0] if layout is None else one_of(layout, names, what, "layout")
    check_rank(x, rank + 2, what, "x", f"({', '.join(chosen)})")
    return ChannelLayout(chosen, chosen == names[1])


@dataclass(frozen=True)
class Windows:
    """Windows of `kernel` taps, `dilation` apart, that start every `stride` from -`before`."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    shape: tuple[Any, ...]  # how many of them
    sizes: tuple[Any, ...]  # of what they slide over
    after: tuple[int, ...]
    hangs: bool  # whether the last ones may reach beyond what lies -`before` and `after`

    def at(self, place: Sequence[Any], tap: Sequence[Any]) -> tuple[Any, ...]:
        """The index of one tap of one window."""
        return tuple(
            i * s + p * d - b if b else i * s + p * d
            for i, p, s, d, b in zip(place, tap, self.stride, self.dilation, self.before, strict=True)
        )

    def inside(self, index: Sequence[Any]) -> Any:
        """Whether an index lies in the tensor; None where every tap does."""
        conditions = [(i >= 0) & (i < n) for i, n, leaves in zip(index, self.sizes, self._leave, strict=True) if leaves]
        joined = None
        for condition in conditions:
            joined = condition if joined is None else joined & condition
        return joined

    @property
    def _leave(self) -> list[bool]:
        """Of each axis, whether some window leaves the tensor."""
        taps = [d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True)]
        margins = [bool(b or a or self.hangs) for b, a in zip(self.before, self.after, strict=True)]
        ends = zip(self.shape, self.stride, taps, self.sizes, self.before, margins, strict=True)
        return [bool(b) or (m - 1) * s + t >= n if are_numbers(n) else may for m, s, t, n, b, may in ends]


def windows_of(
    sizes: Sequence[Any], kernel: Sequence[Any], stride: Any, padding: Any, dilation: Any, what: str, ceil: bool = False
) -> Windows:
    """The windows that fit into `sizes` after padding; `ceil` counts one that starts inside and hangs over."""
    rank = len(sizes)
    strides, dilations = per_axis(stride, rank, what, "stride"), per_axis(dilation, rank, what, "dilation")
    before, after = _margins(kernel, strides, dilations, padding, what)
    counts = []
    for dim, (n, k, s, d, b, a) in enumerate(zip(sizes, kernel, strides, dilations, before, after, strict=True)):
        room = n + (b + a) - d * (k - 1) - 1
        if isinstance(room, int) and room < 0:
            raise refuse(
                what,
                f"the window of {d * (k - 1) + 1} ({k} taps, dilation {d}) does not fit into {n} + {b} + {a} elements "
                f"of spatial axis {dim}; expected a smaller kernel or more padding",
            )
        count = (room + s - 1) // s + 1 if ceil else room // s + 1
        if ceil:  # none starts in the margin after the last element
            last = (n + b - 1) // s + 1
            count = min(count, last) if isinstance(n, int) else te.minimum(count, last)
        counts.append(count)
    return Windows(tuple(kernel), strides, dilations, before, tuple(counts), tuple(sizes), after, ceil)


def _margins(
    kernel: Sequence[Any], strides: tuple[int, ...], dilations: tuple[int, ...], padding: Any, what: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padding before and after each axis, from a number, one per axis, "valid" or "same"."""
    rank = len(strides)
    if isinstance(padding, str):
        if one_of(padding, ("same", "valid"), what, "padding") == "valid":
            return (0,) * rank, (0,) * rank
        if any(s != 1 for s in strides):
            raise refuse(what, f"padding='same': expected a stride of 1, found {strides}")
        totals = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
        return tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    both = per_axis(padding, rank, what, "padding", least=0)
    return both, both
