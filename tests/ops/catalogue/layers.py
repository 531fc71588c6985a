"""Products, convolutions and pools beside torch.nn.functional."""

from __future__ import annotations

from typing import Any

from tedsl import ops
from tests.autodiff.catalogue.entry import Entry, both, distinct
from tests.ops.catalogue.line import entry, like_torch

__all__ = ["ENTRIES"]

F = {"x": distinct}


def image(n: int, channels: int = 4, extra: int = 1) -> tuple[int, ...]:
    return (2, channels, 4 * n + extra, 3 * n + extra)


def conv(label: str, w: Any, bias: bool = True, channels: int = 4, **options: Any) -> Entry:
    def shapes(n: int) -> Any:
        found = {"x": image(n, channels, 4), "w": w}
        return {**found, "b": (w[0],)} if bias else found

    return like_torch("conv2d", shapes, label, **options)


def transposed(label: str, w: Any, groups: int = 1, **options: Any) -> Entry:
    shapes = lambda n: {"x": (2, 4, 3 * n, 2 * n), "w": w, "b": (w[1] * groups,)}  # noqa: E731
    return like_torch("conv_transpose2d", shapes, label, groups=groups, **options)


def channels_last(name: str, rank: int, torch_name: str | None = None, fixed: Any = (), **options: Any) -> Entry:
    """An operator with the channels last beside the transposed result of the one with the channels first."""
    shape = lambda n: (2, *(4 * n + 2, 3 * n + 2, 5)[:rank], 4)  # noqa: E731
    weights = {"w": (3, 4, *(3,) * rank)} if name.startswith("conv") else {}
    layout = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[rank]

    def oracle(x: Any, *w: Any) -> Any:
        from torch.nn import functional

        return getattr(functional, torch_name or name)(x.movedim(-1, 1), *w, *fixed, **options).movedim(1, -1)

    return entry(
        f"{name} {layout}", lambda *a: getattr(ops, name)(*a, *fixed, layout=layout, **options),
        lambda n: {"x": shape(n), **weights}, oracle, smooth=False, feed=F,
    )  # fmt: skip


def padded(mode: str) -> Entry:
    def oracle(x: Any, w: Any) -> Any:
        from torch.nn import functional

        return functional.conv2d(functional.pad(x, (1, 1, 1, 1), mode=mode), w)

    return entry(
        f"conv2d {mode}", lambda x, w: ops.conv2d(x, w, padding=1, padding_mode=mode),
        lambda n: {"x": image(n, 2), "w": (3, 2, 3, 3)}, oracle,
    )  # fmt: skip


def depthwise(multiplier: int, **options: Any) -> Entry:
    def oracle(x: Any, w: Any) -> Any:
        from torch.nn import functional

        return functional.conv2d(x, w, groups=4, **options)

    return entry(
        f"depthwise_conv2d x{multiplier}", lambda x, w: ops.depthwise_conv2d(x, w, **options),
        lambda n: {"x": image(n), "w": (4 * multiplier, 1, 3, 3)}, oracle,
    )  # fmt: skip


def pool(name: str, label: str, kernel: Any, **options: Any) -> Entry:
    rank = int(name[-2])
    shapes = lambda n: {"x": (2, 3, *(4 * n + 3, 4 * n + 2, 2 * n + 5)[:rank])}  # noqa: E731

    def oracle(x: Any) -> Any:
        from torch.nn import functional

        return getattr(functional, name)(x, kernel, **options)

    return entry(
        f"{name} {label}", lambda x: getattr(ops, name)(x, kernel, **options), shapes, oracle, smooth=False, feed=F
    )


LINEAR = [
    like_torch("dense", lambda n: {"x": (2, 3 * n, 4), "w": (5, 4), "b": (5,)}, theirs="linear"),
    like_torch("bilinear", lambda n: {"x": (3 * n, 4), "y": (3 * n, 5), "w": (2, 4, 5), "b": (2,)}),
    entry("matmul", ops.matmul, lambda n: {"a": (2, 3 * n, 4), "b": (4, 2 * n)}, **both(lambda xp, a, b: a @ b)),
    entry("einsum", lambda *a: ops.einsum("bhqd,bhkd->bhqk", *a),
          lambda n: {"q": (2, 2, 2 * n, 3), "k": (2, 2, 3 * n, 3)}, **both(lambda xp, *a: xp.einsum("bhqd,bhkd->bhqk", *a))),
]  # fmt: skip

CONVOLUTIONS = [
    like_torch("conv1d", lambda n: {"x": (2, 3, 7 * n + 4), "w": (4, 3, 5), "b": (4,)}, "s2 p2 d2", stride=2, padding=2, dilation=2),
    conv("", (3, 4, 3, 3)),
    conv("s2 p1", (3, 4, 3, 3), stride=2, padding=1),
    conv("s(2, 1) p(1, 2) d(1, 2)", (3, 4, 3, 2), bias=False, stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
    conv("same", (3, 4, 3, 4), padding="same", dilation=(1, 2)),
    conv("groups 2", (6, 2, 3, 3), groups=2, padding=1),
    *map(padded, ("reflect", "replicate", "circular")),
    like_torch("conv3d", lambda n: {"x": (1, 2, 2 * n + 2, 2 * n + 3, 4), "w": (3, 2, 3, 2, 3), "b": (3,)}, "s(1, 2, 1) p1", stride=(1, 2, 1), padding=1),
    channels_last("conv1d", 1, stride=2, padding=1),
    channels_last("conv2d", 2, stride=2, padding=1),
    channels_last("conv3d", 3, padding=1),
    depthwise(1, padding=1),
    depthwise(2, stride=2),
    like_torch("conv_transpose1d", lambda n: {"x": (2, 3, 5 * n), "w": (3, 4, 5), "b": (4,)}, "s3 p1", stride=3, padding=1),
    transposed("", (4, 3, 3, 3)),
    transposed("s2 p1 op1", (4, 3, 3, 3), stride=2, padding=1, output_padding=1),
    transposed("s2 d2", (4, 3, 3, 3), stride=2, dilation=2),
    transposed("s2 d3 groups 2", (4, 2, 3, 3), groups=2, stride=2, dilation=3),
    like_torch("conv_transpose3d", lambda n: {"x": (1, 2, 2 * n, n + 1, 2), "w": (2, 2, 3, 2, 2), "b": (2,)}, "s2", stride=2),
]  # fmt: skip

POOLS = [
    pool("max_pool1d", "k3 s2 p1", 3, stride=2, padding=1),
    pool("max_pool2d", "k2", 2),
    pool("max_pool2d", "k3 s2 p1", 3, stride=2, padding=1),
    pool("max_pool2d", "k3 s2 d2 ceil", 3, stride=2, dilation=2, ceil_mode=True),
    pool("max_pool3d", "k2", 2),
    pool("avg_pool1d", "k3 s2", 3, stride=2),
    pool("avg_pool2d", "k2", 2),
    pool("avg_pool2d", "k3 s2 p1", 3, stride=2, padding=1),
    pool("avg_pool2d", "k3 s2 p1, inside only", 3, stride=2, padding=1, count_include_pad=False),
    pool("avg_pool2d", "k(3, 2) s2 p1 ceil", (3, 2), stride=2, padding=1, ceil_mode=True),
    pool("avg_pool2d", "k2 divisor 3", 2, divisor_override=3),
    pool("avg_pool3d", "k2", 2),
    channels_last("max_pool2d", 2, fixed=(3,), stride=2),
    channels_last("avg_pool2d", 2, fixed=(3,), stride=2, padding=1),
    pool("adaptive_avg_pool2d", "(3, 5)", (3, 5)),
    pool("adaptive_avg_pool2d", "1", 1),
    pool("adaptive_max_pool2d", "(2, 4)", (2, 4)),
    entry("global_avg_pool2d", ops.global_avg_pool2d, lambda n: {"x": image(n)}, torch=lambda x: x.mean((2, 3))),
]  # fmt: skip

ENTRIES = [*LINEAR, *CONVOLUTIONS, *POOLS]
