# %% [markdown]
# # Scheduling the backward pass
#
# The weight gradient of a convolution is a contraction like the convolution itself, but its loops as written are the
# wrong way around for a machine. A schedule makes the difference between slow and fast; the result stays the same.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import tedsl as te

CHANNELS, FILTERS, SIZE = 32, 32, 48
x = te.placeholder((CHANNELS, SIZE + 2, SIZE + 2), name="x")
w = te.placeholder((FILTERS, CHANNELS, 3, 3), name="w")
conv = te.compute(
    (FILTERS, SIZE, SIZE),
    lambda f, i, j: te.sum(lambda c, p, q: x[c, i + p, j + q] * w[f, c, p, q]),
    name="conv",
)
head = te.placeholder(conv.shape, name="head")
gradients = te.differentiate([conv], [x, w], head=[head])
dx, dw = gradients
gradients

# %% [markdown]
# ## As written
#
# A directive on a stage takes its loops as the definition has them: each element of `dw` is a sum over the whole
# image, one product after another.

# %%
as_written = te.Schedule(dw)
a, b, c, d = as_written[dw].axes
as_written[dw].reorder(a, b, c, d)
as_written

# %% [markdown]
# ## By hand
#
# Filters go to threads. A sum of floats has an order, so it does not become vectors by itself: `rfactor` splits the sum
# over columns into 16 lanes that are added up at the end. That changes the order of the terms, so it has to be asked
# for.

# %%
by_hand = te.Schedule(dw)
stage = by_hand[dw]
print(
    "result over", [str(a) for a in stage.axes], "sum over", [str(r) for r in stage.reduce_axes]
)
rows, columns = stage.reduce_axes
outer, lanes = stage.split(columns, 16)
partial = stage.rfactor(lanes)
f, c, p, q, lane = partial.axes
partial.compute_at(stage, stage.axes[1])
inner = partial.reduce_axes
partial.reorder(c, *inner, p, q, lane).vectorize(lane).unroll(q).unroll(p)
partial.init.vectorize(str(lane))
stage.parallel(stage.axes[0])
by_hand

# %% [markdown]
# ## Measured
#
# Each kernel is checked against NumPy, then timed. The stored output leaves times out and keeps the ratios.

# %% tags=["machine"]
rng = np.random.default_rng(0)
image = rng.normal(size=x.shape).astype("float32")
slopes = rng.normal(size=conv.shape).astype("float32")
windows = np.lib.stride_tricks.sliding_window_view(image, (SIZE, SIZE), axis=(1, 2))
expected = np.einsum("fij,cpqij->fcpq", slopes.astype("float64"), windows.astype("float64"))


def seconds(kernel, *arrays):
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        kernel(*arrays)
        best = min(best, time.perf_counter() - start)
    return best


kernels = {
    "as written": te.build([x, head], dw, schedule=as_written),
    "by hand": te.build([x, head], dw, schedule=by_hand),
    "by pattern": te.build([x, head], dw),
}
took = {}
for name, kernel in kernels.items():
    np.testing.assert_allclose(kernel(image, slopes), expected, rtol=1e-4, atol=1e-2)
    took[name] = seconds(kernel, image, slopes)
    print(
        f"{name:10} {took['as written'] / took[name]:6.1f} times as fast"
        f" ({1e3 * took[name]:.2f} ms, {te.work(dw).flops / took[name] / 1e9:.1f} GFLOP/s)"
    )
assert took["by pattern"] < took["as written"] / 3
assert took["by hand"] < took["as written"]

# %% [markdown]
# ## Under the roof
#
# A machine does only so many operations a second and moves only so many bytes. A kernel stays below the lower of the
# two limits. Both limits are measured here: bytes by a copy, operations by the faster of two matrix products, NumPy's
# and the library's own.

# %%
square = rng.random((512, 512), dtype="float32")
long = np.zeros(1 << 24, "float32")
s, t = te.placeholder(square.shape, name="s"), te.placeholder(square.shape, name="t")
product = te.build([s, t], s @ t)
peak = 2 * 512**3 / min(seconds(np.matmul, square, square), seconds(product, square, square))
bandwidth = 2 * long.nbytes / seconds(lambda v: v.copy(), long)
points = {name: (dw, took[name]) for name in kernels}
te.display.plot.roofline(points, peak_flops=peak, bandwidth=bandwidth)
plt.show()

# %% [markdown]
# The gradient of the image is a contraction too, and the pattern finds it without help. Built together, forward and
# backward share what they read, and all three take no more than three times the operations of the forward pass alone.

# %%
both = te.build([x, w, head], [conv, dx, dw])
forward, over_image, over_weights = both(
    image, rng.normal(size=w.shape).astype("float32"), slopes
)
np.testing.assert_allclose(over_weights, expected, rtol=1e-4, atol=1e-2)
assert te.work([conv, dx, dw]).flops <= 3 * te.work(conv).flops
both
