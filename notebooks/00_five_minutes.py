# %% [markdown]
# # tedsl in five minutes
#
# Write a computation with indices. Get a compiled kernel, its gradient, and an operator for NumPy, PyTorch and JAX.

# %%
import matplotlib.pyplot as plt
import numpy as np

import tedsl as te

# %% [markdown]
# ## Compute
#
# A tensor is a function of its indices. This one is the strength of the edges in an image: how much a pixel differs
# from the next ones, below and to the right. `mode="clamp"` says what lies beyond the border: the last pixel again.

# %%
image = te.placeholder((96, 96), name="image")


def slope(i, j, down, right):
    return image.at(i + down, j + right, mode="clamp") - image[i, j]


edges = te.compute(
    (96, 96),
    lambda i, j: te.sqrt(slope(i, j, 1, 0) ** 2 + slope(i, j, 0, 1) ** 2 + 1e-3),
    name="edges",
)
edges

# %% [markdown]
# Nothing has run yet. `te.build` compiles; the kernel is a function of arrays.

# %%
y, x = np.mgrid[-1:1:96j, -1:1:96j].astype("float32")
picture = ((x**2 + y**2 < 0.5) * 1.0 + (abs(x - 0.3) + abs(y) < 0.4) * 0.7).astype("float32")

find_edges = te.build(image, edges)
found = find_edges(picture)

_, places = plt.subplots(1, 2, figsize=(6, 3))
for place, (title, shown) in zip(places, {"image": picture, "edges": found}.items()):
    place.imshow(shown, cmap="gray")
    place.set_title(title)
    place.axis("off")
plt.show()

# %% [markdown]
# ## Differentiate
#
# `te.differentiate` answers with tensors of the same language. You can read them, build them, differentiate them again.
# Reads at `i + 1` turn into reads at `i - 1`: each pixel of the gradient is a sum of its own, and threads do not meet.

# %%
total = edges.sum()
gradient = te.differentiate(total, [image])
gradient

# %% [markdown]
# A gradient is good for something: remove noise. We look for an image near a noisy one that has few edges, by walking
# downhill. One kernel computes the loss and the gradient.

# %%
noisy_image = te.placeholder((96, 96), name="noisy")
loss = ((image - noisy_image) ** 2).sum() + 0.3 * total
step = te.build([image, noisy_image], [loss, te.differentiate(loss, image)])

rng = np.random.default_rng(0)
noisy = picture + 0.2 * rng.normal(size=picture.shape).astype("float32")
clean, losses = noisy.copy(), []
for _ in range(150):
    value, down = step(clean, noisy)
    losses.append(float(value))
    clean -= 0.02 * down
assert losses[-1] < 0.7 * losses[0]

_, places = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
places[0].imshow(noisy, cmap="gray")
places[0].set_title("noisy")
places[1].imshow(clean, cmap="gray")
places[1].set_title("after 150 steps")
for place in places[:2]:
    place.axis("off")
places[2].plot(losses)
places[2].set(title="loss", xlabel="step")
plt.show()

# %% [markdown]
# ## Schedule
#
# How the kernel runs is written apart from what it computes, and cannot change the result. Without a schedule tedsl
# picks one by pattern. By hand it reads like this:

# %%
schedule = te.Schedule(edges)
i, j = schedule[edges].axes
schedule[edges].vectorize(j, 8).parallel(i)
schedule

# %%
by_hand = te.build(image, edges, schedule=schedule)
np.testing.assert_array_equal(by_hand(picture), found)

# %% [markdown]
# ## Use it everywhere
#
# `@te.op` makes an operator of a function. It takes arrays of NumPy, PyTorch and JAX, and PyTorch and JAX can
# differentiate it.


# %%
@te.op
def blend(a, b, amount=0.5):
    return te.compute(a.shape, lambda i: a[i] * (1 - amount) + b[i] * amount)


blend(np.zeros(4, "float32"), np.ones(4, "float32"), amount=0.25)

# %% [markdown]
# ## Trust it
#
# `te.testing.check_op` draws shapes, dtypes and values, and tries to find a case in which the kernel or the gradient is
# wrong.

# %%
report = te.testing.check_op(blend, "n", "n", examples=10)
assert report
report

# %% [markdown]
# Where to go on: [kernels and schedules](01_first_kernel.ipynb), [derivatives](02_differentiate.ipynb),
# [how reads are turned around](03_scatter_to_gather.ipynb), [operators for training](05_custom_operator.ipynb).
