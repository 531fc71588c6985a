"""The operators of `te.ops` as `benchmarks.operators` measures them: arguments of three sizes, and the same in PyTorch.

A line is the operator with the arguments that people give it. Sizes are small (a call counts), those of the tables of
`benchmarks/README.md`, and large (nothing stays in a cache).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks import operator_peers as peers
from benchmarks.sweep_drawing import Drawn
from benchmarks.workload import Array, Peer
from tedsl import ops

__all__ = ["LINES", "SIZES", "UNLISTED", "OperatorLine"]

SIZES = ("small", "middle", "large")
Shape = tuple[int, ...]
Shapes = tuple[Shape, Shape, Shape]  # of each size
Draw = Callable[[np.random.Generator, Shape], Array]

UNLISTED = {"optim": "a module: steps of training are no operators"}


@dataclass(frozen=True)
class OperatorLine:
    """An operator, its arguments by name, and functions of PyTorch's (or JAX's) that give the same.

    Arrays that are no normal numbers are `given` by how they are drawn; inputs that nobody asks a gradient for are
    `fixed`; `sized` are further arguments of each size.
    """

    name: str
    shapes: Mapping[str, Shapes]
    ours: Callable[..., Any]
    torch: Peer | None
    jax: Peer | None = None
    given: Mapping[str, Draw] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    sized: tuple[Mapping[str, Any], ...] = ({}, {}, {})

    @property
    def operator(self) -> str:
        """Its name in `te.ops`."""
        return self.name.split()[0]

    @property
    def has_gradient(self) -> bool:
        """Whether a gradient can be asked for."""
        program = self.program(0)
        return any(t.dtype.is_float and t not in program.fixed for t in program.inputs)

    def program(self, size: int) -> Drawn:
        """The operator on arguments of one of `SIZES`."""
        chance, inputs, given = np.random.default_rng(1), [], {}
        for name, shapes in self.shapes.items():
            array = self.given[name](chance, shapes[size]) if name in self.given else None
            inputs.append(te.placeholder(shapes[size], "float32" if array is None else array.dtype.name, name=name))
            if array is not None:
                given[inputs[-1]] = array
        more = self.sized[size]
        y = self.ours(*inputs, **more)
        text = ", ".join(" x ".join(map(str, t.shape)) or "number" for t in inputs)
        fixed = frozenset(t for t in inputs if t.name in self.fixed)
        theirs = [peer and partial(peer, **more) for peer in (self.torch, self.jax)]
        return Drawn(text, inputs, y, theirs[0], given, theirs[1], fixed)


def uniform(low: float, high: float) -> Draw:
    return lambda chance, shape: chance.uniform(low, high, shape).astype(np.float32)


def below(high: int) -> Draw:
    """Indices, as many kinds as there are: of 64 bits, which PyTorch wants."""
    return lambda chance, shape: chance.integers(0, high, shape)


def segments(chance: np.random.Generator, shape: Shape) -> Array:
    """Each of them has a member."""
    return chance.integers(0, 10 if shape[0] < 1000 else 1000, shape)


def whole(low: int, high: int) -> Draw:
    """Whole numbers as floats, of which sums are exact, so that ties are the same on all sides."""
    return lambda chance, shape: chance.integers(low, high, shape).astype(np.float32)


def beside_centers(chance: np.random.Generator, shape: Shape) -> Array:
    """Numbers of which none is the center of one of 64 bins, where the derivative has a jump."""
    found = chance.uniform(0.02, 0.98, shape).astype(np.float32)
    return np.where((found * 64 - 0.5) % 1 == 0, found + np.float32(1e-3), found)


def chosen(chance: np.random.Generator, shape: Shape) -> Array:
    return chance.random(shape) < 0.3


def seed(chance: np.random.Generator, shape: Shape) -> Array:
    return np.full(shape, 7, np.int32)


def like(name: str, label: str = "", more: Mapping[str, Any] | None = None, **rest: Any) -> OperatorLine:
    """An operator beside the function of torch.nn.functional (or torch) that has its name, or `theirs`; `more` are
    options of both.
    """
    there = rest.pop("theirs", None) or getattr(F, name, None) or getattr(torch, name)
    options = dict(more or {})
    return other(name, partial(getattr(ops, name), **options), partial(there, **options), label, **rest)


def other(name: str, ours: Callable[..., Any], theirs: Peer | None, label: str = "", **rest: Any) -> OperatorLine:
    """An operator whose arguments stand elsewhere in PyTorch; `rest` are fields of the line, then shapes."""
    fields = {key: rest.pop(key) for key in ("given", "fixed", "jax", "sized") if key in rest}
    return OperatorLine(f"{name} {label}".strip(), rest, ours, theirs, **fields)


ROWS: Shapes = (32, 100), (4096, 1024), (8192, 2048)
SIGNALS: Shapes = (2, 8, 100), (8, 64, 1000), (16, 128, 8000)
IMAGES: Shapes = (2, 16, 14, 14), (4, 64, 112, 112), (16, 64, 112, 112)
MAPS: Shapes = (2, 16, 14, 14), (4, 64, 56, 56), (8, 128, 56, 56)
VOLUMES: Shapes = (1, 4, 8, 10, 10), (2, 16, 16, 28, 28), (4, 32, 24, 48, 48)
PLANES: Shapes = (60, 80), (1024, 1024), (2160, 3840)
CHANNELS: Shapes = (16,), (64,), (64,)
ROW: Shapes = (100,), (1024,), (2048,)
NUMBER: Shapes = (), (), ()
WIDTHS = 100, 1024, 2048  # of ROWS

ELEMENTS = [
    *(like(name, x=ROWS) for name in (
        "celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
        "relu", "relu6", "selu", "sigmoid", "silu", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "glu",
    )),
    like("gelu", "tanh", more={"approximate": "tanh"}, x=ROWS),
    like("threshold", more={"threshold": 0.2, "value": -3.0}, x=ROWS),
    like("prelu", x=IMAGES, w=CHANNELS),
    other("masked_fill", lambda x, m: ops.masked_fill(x, m, 3.0), lambda x, m: x.masked_fill(m, 3.0), x=ROWS, mask=ROWS,
          given={"mask": chosen}),
]  # fmt: skip


def _jax_dropout(x: Any, key: Any) -> Any:
    import jax

    return jax.numpy.where(jax.random.bernoulli(jax.random.key(key), 0.7, x.shape), x / 0.7, 0.0)


def _jax_random(name: str) -> Peer:
    def peer(key: Any, shape: Any) -> Any:
        import jax

        return getattr(jax.random, name)(jax.random.key(key), shape)

    return peer


KEY: dict[str, Any] = {"given": {"seed": seed}, "seed": NUMBER}
SHAPES = tuple({"shape": shape} for shape in ROWS)
DRAWS = [  # JAX draws the same numbers, PyTorch others
    other("dropout", lambda x, key: ops.dropout(x, 0.3, key), None, x=ROWS, jax=_jax_dropout, **KEY),
    other("random_bits", lambda key, shape: ops.random_bits(shape, key), None, sized=SHAPES, jax=_jax_random("bits"), **KEY),
    other("uniform", lambda key, shape: ops.uniform(shape, key), None, sized=SHAPES, jax=_jax_random("uniform"), **KEY),
]  # fmt: skip

HEADS: Shapes = (1, 2, 16, 16), (4, 8, 256, 64), (2, 8, 1024, 64)
QKV: dict[str, Any] = {"q": HEADS, "k": HEADS, "v": HEADS}
PRODUCTS = [
    like("dense", theirs=F.linear, x=((16, 32), (512, 1024), (4096, 1024)), w=((24, 32), (1024, 1024), (1024, 1024)), b=((24,), (1024,), (1024,))),
    like("matmul", a=((24, 32), (1024, 1024), (2048, 2048)), b=((32, 16), (1024, 1024), (2048, 2048))),
    like("bilinear", x=((16, 8), (256, 64), (2048, 64)), y=((16, 8), (256, 64), (2048, 64)), w=((4, 8, 8), (64, 64, 64), (64, 64, 64))),
    other("einsum", partial(ops.einsum, "bhqd,bhkd->bhqk"), partial(torch.einsum, "bhqd,bhkd->bhqk"), q=HEADS, k=HEADS),
    like("attention", theirs=F.scaled_dot_product_attention, **QKV),
    other("attention", partial(ops.attention, causal=True), partial(F.scaled_dot_product_attention, is_causal=True), "causal", **QKV),
    like("streaming_attention", theirs=F.scaled_dot_product_attention, **QKV),
    other("covariance", ops.covariance, torch.cov, x=((8, 200), (256, 4096), (1024, 4096))),
]  # fmt: skip

PAD = {"padding": 1}
UP = {"stride": 2, "padding": 1}
CONVOLUTIONS = [
    like("conv1d", more=PAD, x=SIGNALS, w=((16, 8, 3), (64, 64, 3), (128, 128, 3))),
    like("conv2d", more=PAD, x=MAPS, w=((32, 16, 3, 3), (64, 64, 3, 3), (128, 128, 3, 3))),
    like("conv2d", "groups", more={**PAD, "groups": 4}, x=MAPS, w=((32, 4, 3, 3), (64, 16, 3, 3), (128, 32, 3, 3))),
    like("conv2d", "stride 2", more=UP, x=MAPS, w=((32, 16, 3, 3), (64, 64, 3, 3), (128, 128, 3, 3))),
    like("conv3d", more=PAD, x=VOLUMES, w=((8, 4, 3, 3, 3), (32, 16, 3, 3, 3), (32, 32, 3, 3, 3))),
    other("depthwise_conv2d", partial(ops.depthwise_conv2d, **PAD), lambda x, w: F.conv2d(x, w, groups=len(w), **PAD),
          x=IMAGES, w=((16, 1, 3, 3), (64, 1, 3, 3), (64, 1, 3, 3))),
    like("conv_transpose1d", more=UP, x=((2, 8, 50), (8, 64, 500), (16, 64, 4000)), w=((8, 8, 4), (64, 64, 4), (64, 64, 4))),
    like("conv_transpose2d", more=UP, x=((2, 16, 7, 7), (4, 64, 28, 28), (8, 128, 28, 28)),
         w=((16, 16, 4, 4), (64, 64, 4, 4), (128, 128, 4, 4))),
    like("conv_transpose3d", more=UP, x=((1, 4, 4, 5, 5), (2, 16, 8, 14, 14), (2, 32, 12, 24, 24)),
         w=((4, 4, 4, 4, 4), (16, 16, 4, 4, 4), (32, 32, 4, 4, 4))),
]  # fmt: skip

WINDOW = {"stride": 2, "padding": 1}
POOLS = [
    *(other(name, partial(getattr(ops, name), kernel=3, **WINDOW), partial(getattr(F, name), kernel_size=3, **WINDOW), x=x)
      for name, x in (("max_pool1d", SIGNALS), ("avg_pool1d", SIGNALS), ("max_pool2d", IMAGES), ("avg_pool2d", IMAGES))),
    *(other(name, partial(getattr(ops, name), kernel=2), partial(getattr(F, name), kernel_size=2), x=VOLUMES)
      for name in ("max_pool3d", "avg_pool3d")),
    *(other(name, partial(getattr(ops, name), size=7), partial(getattr(F, name), output_size=7), x=IMAGES)
      for name in ("adaptive_avg_pool2d", "adaptive_max_pool2d")),
    other("adaptive_avg_pool2d", partial(ops.adaptive_avg_pool2d, size=5), partial(F.adaptive_avg_pool2d, output_size=5), "uneven", x=IMAGES),
    other("global_avg_pool2d", ops.global_avg_pool2d, peers.channels_mean, x=IMAGES),
]  # fmt: skip

SCALED: dict[str, Any] = {"x": IMAGES, "w": CHANNELS, "b": CHANNELS}
STATES: dict[str, Any] = {"x": IMAGES, "mean": CHANNELS, "var": CHANNELS}
SPREAD = {"var": uniform(0.5, 2.0)}
OF_ROWS = tuple({"normalized_shape": (width,)} for width in WIDTHS)
NORMS = [
    *(other(name, partial(getattr(ops, name), axis=1), partial(getattr(torch, name), dim=1), x=ROWS)
      for name in ("softmax", "log_softmax", "logsumexp")),
    other("softmax", partial(ops.softmax, axis=1), partial(torch.softmax, dim=1), "channels", x=IMAGES),
    other("streaming_logsumexp", ops.streaming_logsumexp, partial(torch.logsumexp, dim=1), x=ROWS),
    *(other(name, partial(getattr(ops, name), axis=1), partial(torch.var_mean, dim=1), x=ROWS) for name in ("var_mean", "welford")),
    other("layer_norm", lambda x, w, b, normalized_shape: ops.layer_norm(x, normalized_shape, w, b),
          lambda x, w, b, normalized_shape: F.layer_norm(x, normalized_shape, w, b), sized=OF_ROWS, x=ROWS, w=ROW, b=ROW),
    other("rms_norm", lambda x, w, normalized_shape: ops.rms_norm(x, normalized_shape, w),
          lambda x, w, normalized_shape: F.rms_norm(x, normalized_shape, w), sized=OF_ROWS, x=ROWS, w=ROW),
    other("batch_norm", lambda x, w, b: ops.batch_norm(x, None, None, w, b, training=True),
          lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), "training", **SCALED),
    other("batch_norm", ops.batch_norm, F.batch_norm, "inference", **STATES, weight=CHANNELS, bias=CHANNELS, given=SPREAD, fixed=("mean", "var")),
    other("group_norm", lambda x, w, b: ops.group_norm(x, 4, w, b), lambda x, w, b: F.group_norm(x, 4, w, b), **SCALED),
    other("instance_norm", ops.instance_norm, lambda x, w, b: F.instance_norm(x, None, None, w, b), **SCALED),
    other("running_stats", ops.running_stats, peers.running_stats, **STATES),
    like("local_response_norm", more={"size": 5}, x=IMAGES),
    other("normalize", partial(ops.normalize, axis=1), partial(F.normalize, dim=1), x=ROWS),
]  # fmt: skip

PAIRS: dict[str, Any] = {"x": ROWS, "target": ROWS}
SHARES = {"target": uniform(0.01, 0.99)}
BOTH = {"x": uniform(0.01, 0.99), **SHARES}
CLASSES: dict[str, Any] = {"x": ROWS, "target": ((32,), (4096,), (8192,))}
LABELS = {"target": below(100)}
LOSSES = [
    *(like(name, fixed=("target",), **PAIRS) for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss")),
    like("binary_cross_entropy", given=BOTH, fixed=("target",), **PAIRS),
    like("binary_cross_entropy_with_logits", given=SHARES, fixed=("target",), **PAIRS),
    like("kl_div", given=SHARES, fixed=("target",), more={"reduction": "batchmean"}, **PAIRS),
    *(like(name, given=LABELS, **CLASSES) for name in ("nll_loss", "cross_entropy")),
    like("cosine_similarity", x=ROWS, y=ROWS),
]  # fmt: skip

UNITS = (24, 16, 4), (128, 128, 64), (256, 256, 64)  # hidden, inputs, batch


def recurrent(name: str, gates: int, theirs: Peer, steps: Shape = ()) -> OperatorLine:
    """A cell, or a layer of so many steps in each size."""
    hidden, inside, batch = zip(*UNITS, strict=True)
    lead: list[Shape] = [(s,) for s in steps] or [()] * 3
    state = tuple((b, h) for b, h in zip(batch, hidden, strict=True))
    shapes: dict[str, Any] = {"x": tuple((*s, b, i) for s, b, i in zip(lead, batch, inside, strict=True)), "h": state}
    shapes |= {"c": state} if gates == 4 else {}
    shapes |= {"w_ih": tuple((gates * h, i) for h, i in zip(hidden, inside, strict=True))}
    shapes |= {"w_hh": tuple((gates * h, h) for h in hidden)}
    shapes |= {b: tuple((gates * h,) for h in hidden) for b in ("b_ih", "b_hh")}
    ours = getattr(ops, name)
    states = (lambda *a: ours(*a)[0]) if name == "lstm" else ours
    weak = {w: uniform(-0.1, 0.1) for w in ("w_ih", "w_hh")}  # else small differences grow from step to step
    return other(name, states, theirs, given=weak, **shapes)


RECURRENT = [
    recurrent("rnn_cell", 1, torch.rnn_tanh_cell),
    recurrent("lstm_cell", 4, lambda x, h, c, *w: torch.lstm_cell(x, (h, c), *w)),
    recurrent("gru_cell", 3, torch.gru_cell),
    recurrent("rnn", 1, peers.sequence("rnn_tanh"), (10, 32, 64)),
    recurrent("lstm", 4, peers.sequence("lstm"), (10, 32, 64)),
    recurrent("gru", 3, peers.sequence("gru"), (10, 32, 64)),
]

NEAR_ONE = {"x": uniform(0.99, 1.01)}
CUMULATIVE = [
    *(other(name, partial(getattr(ops, name), axis=1), partial(getattr(torch, name), dim=1), x=ROWS, given=given)
      for name, given in (("cumsum", {}), ("cumprod", NEAR_ONE), ("cummax", {}), ("cummin", {}), ("logcumsumexp", {}))),
    *(other(name, partial(getattr(ops, name), axis=0), partial(getattr(torch, name), dim=0), "down", x=ROWS, given=given)
      for name, given in (("cumsum", {}), ("cumprod", NEAR_ONE), ("cummax", {}))),
]  # fmt: skip

TABLE: Shapes = (100, 16), (10000, 256), (50000, 256)
TAKEN: Shapes = (50,), (8192,), (65536,)
PARTS: Shapes = (50, 16), (8192, 256), (65536, 256)
AT = {"index": below(100)}
ON_ROWS: dict[str, Any] = {"x": ROWS, "index": ROWS, "src": ROWS}
SEGMENTS = tuple({"count": n} for n in (10, 1000, 1000))
LONG: Shapes = (100, 16), (100000, 32), (1000000, 32)
INDEXING = [
    like("embedding", given=AT, index=((4, 10), (64, 128), (512, 128)), weight=TABLE),
    other("gather", lambda x, i: ops.gather(x, 1, i), lambda x, i: x.gather(1, i), x=ROWS, index=ROWS, given=AT),
    other("index_select", lambda x, i: ops.index_select(x, 0, i), lambda x, i: x.index_select(0, i), x=TABLE, index=TAKEN, given=AT),
    other("index_add", lambda x, i, s: ops.index_add(x, 0, i, s), lambda x, i, s: x.index_add(0, i, s), x=TABLE, index=TAKEN, src=PARTS, given=AT),
    other("scatter_add", lambda x, i, s: ops.scatter_add(x, 1, i, s), lambda x, i, s: x.scatter_add(1, i, s), **ON_ROWS, given=AT),
    other("scatter_reduce", lambda x, i, s: ops.scatter_reduce(x, 1, i, s, "amax"), lambda x, i, s: x.scatter_reduce(1, i, s, "amax"), **ON_ROWS, given=AT),
    *(other(f.name, lambda x, i, count, f=f: f(x, i, count), peer, x=LONG, ids=((100,), (100000,), (1000000,)), sized=SEGMENTS, given={"ids": segments})
      for f, peer in ((ops.segment_sum, peers.segment_sum), (ops.segment_max, peers.segment_max))),
    other("one_hot", lambda i, classes: ops.one_hot(i, classes), peers.one_hot, index=((32,), (4096,), (8192,)), given={"index": below(100)},
          sized=tuple({"classes": width} for width in WIDTHS)),
    other("top1", partial(ops.top1, axis=1), lambda x: tuple(x.max(1)), x=ROWS),
]  # fmt: skip

FOLDED: Shapes = (2, 144, 196), (4, 576, 3136), (8, 1152, 3136)
SIDES = tuple({"output_size": (side, side), "kernel_size": 3, "padding": 1} for side in (14, 56, 56))
SAMPLED: Shapes = (1, 4, 20, 20), (4, 16, 64, 64), (4, 16, 256, 256)
GRID: Shapes = (1, 16, 16, 2), (4, 128, 128, 2), (4, 256, 256, 2)
PICTURES: Shapes = (1, 3, 32, 32), (1, 3, 512, 512), (1, 3, 2048, 2048)
FLOWS: Shapes = (1, 2, 32, 32), (1, 2, 512, 512), (1, 2, 2048, 2048)
GUIDES: Shapes = (1, 32, 32), (1, 512, 512), (1, 2048, 2048)
GUIDED = {"guide": uniform(0.01, 0.99)}
RESAMPLING = [
    *(like("interpolate", mode, more={"scale_factor": 2, "mode": mode}, x=MAPS) for mode in ("nearest", "bilinear", "bicubic")),
    other("interpolate", partial(ops.interpolate, size=(40, 40), mode="bilinear"), partial(F.interpolate, size=(40, 40), mode="bilinear"),
          "to a size", x=MAPS),
    *(other("pad", lambda x, mode=mode: ops.pad(x, (2, 1, 1, 2), mode), lambda x, mode=mode: F.pad(x, (2, 1, 1, 2), mode), mode, x=IMAGES)
      for mode in ("constant", "reflect")),
    like("pixel_shuffle", more={"upscale_factor": 2}, x=MAPS),
    like("pixel_unshuffle", more={"downscale_factor": 2}, x=MAPS),
    like("channel_shuffle", more={"groups": 4}, x=IMAGES),
    like("unfold", more={"kernel_size": 3, "padding": 1}, x=MAPS),
    other("fold", ops.fold, F.fold, x=FOLDED, sized=SIDES),
    like("grid_sample", theirs=partial(F.grid_sample, align_corners=False), given={"grid": uniform(-1.1, 1.1)}, x=SAMPLED, grid=GRID),
    other("warp", ops.warp, peers.warp, x=PICTURES, flow=FLOWS, given={"flow": uniform(-3.9, 3.9)}),
    other("bilateral_slice", ops.bilateral_slice, peers.bilateral_slice, grid=((1, 4, 4, 4, 4), (1, 12, 8, 16, 16), (1, 12, 8, 16, 16)), guide=GUIDES,
          given=GUIDED),
    other("bilateral_splat", lambda x, g: ops.bilateral_splat(x, g, 8, 8), lambda x, g: peers.bilateral_splat(x, g, 8, 8), x=PICTURES, guide=GUIDES,
          given=GUIDED),
]  # fmt: skip

LIGHT = {"x": uniform(0.02, 0.98)}
IMAGING = [
    other("gaussian_blur", lambda x: ops.gaussian_blur(x, 1.5), lambda x: peers.gaussian_blur(x, 1.5), x=PLANES),
    other("box_blur", lambda x: ops.box_blur(x, 2), lambda x: peers.box_blur(x, 2), x=PLANES),
    other("unsharp_mask", lambda x: ops.unsharp_mask(x, 1.5), lambda x: peers.unsharp_mask(x, 1.5), x=PLANES),
    other("sobel", ops.sobel, peers.sobel, x=PLANES),
    other("harris", ops.harris, peers.harris, x=PLANES),
    other("bilateral_filter", lambda x: ops.bilateral_filter(x, 1.5, 0.3, 2), lambda x: peers.bilateral_filter(x, 1.5, 0.3, 2), x=PLANES, given=LIGHT),
    other("demosaic", ops.demosaic, peers.demosaic, x=PLANES),
    other("local_laplacian", ops.local_laplacian, peers.local_laplacian, x=PLANES, given=LIGHT),
    other("histogram", lambda x: ops.histogram(x, 64), lambda x: torch.histc(x, 64, 0.0, 1.0), x=PLANES, given=LIGHT, fixed=("x",)),
    other("soft_histogram", lambda x: ops.soft_histogram(x, 64), lambda x: peers.soft_histogram(x, 64), x=PLANES, given={"x": beside_centers}),
    other("distance_field", ops.distance_field, peers.distance_field, x=PLANES, given={"x": whole(0, 60)}),
]  # fmt: skip

POINTS: Shapes = (32, 3), (1024, 3), (4096, 3)
MASSES: Shapes = (32,), (1024,), (4096,)
SOFT = {"softening": 0.1}
PHYSICS = [
    other("heat_step", ops.heat_step, peers.heat_step, u=PLANES),
    other("heat", partial(ops.heat, steps=10), partial(peers.heat, steps=10), u=PLANES),
    other("wave_step", ops.wave_step, peers.wave_step, u=PLANES, before=PLANES),
    other("shallow_water_step", ops.shallow_water_step, peers.shallow_water_step, h=PLANES, hu=PLANES, hv=PLANES, given={"h": uniform(1.0, 2.0)}),
    other("nbody_forces", partial(ops.nbody_forces, **SOFT), peers.forces, x=POINTS, m=MASSES, given={"m": uniform(0.5, 2.0)}),
    other("nbody_step", partial(ops.nbody_step, **SOFT), peers.nbody_step, x=POINTS, v=POINTS, m=MASSES, given={"m": uniform(0.5, 2.0)}),
]  # fmt: skip

LINES = [
    *ELEMENTS, *DRAWS, *PRODUCTS, *CONVOLUTIONS, *POOLS, *NORMS, *LOSSES, *RECURRENT, *CUMULATIVE, *INDEXING, *RESAMPLING,
    *IMAGING, *PHYSICS,
]  # fmt: skip
