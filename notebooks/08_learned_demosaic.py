# %% [markdown]
# # A demosaic, learned by gradients
#
# A camera's sensor sees one color at each pixel: of every 2 x 2, one red, two green, one blue. The other two colors
# are filled in from the neighbors. Here the filters that do it are fitted by gradient descent: one 5 x 5 filter for
# each place in the 2 x 2 pattern and each color, written as one expression.

# %%
import matplotlib.pyplot as plt
import numpy as np

import tedsl as te

SIZE, TAPS = 64, 5
REACH = TAPS // 2

# %% [markdown]
# ## Pictures and what the sensor makes of them
#
# The pictures are drawn: soft edges at random angles, with stripes over them. The sensor keeps one color of each pixel.

# %%
rng = np.random.default_rng(3)


def picture():
    """Smooth shades, edges at any angle, stripes."""
    i, j = np.mgrid[:SIZE, :SIZE] / SIZE
    colors = np.zeros((3, SIZE, SIZE))
    for _ in range(7):
        angle, place = rng.uniform(0, np.pi), rng.uniform(-0.5, 1)
        side = 1 / (
            1 + np.exp(-rng.uniform(40, 200) * (np.cos(angle) * i + np.sin(angle) * j - place))
        )
        colors = colors * (1 - side) + rng.uniform(0, 1, (3, 1, 1)) * side
    stripes = 0.5 + 0.5 * np.sin(rng.uniform(20, 60) * (i + rng.uniform(-1, 1) * j))
    return np.clip(0.8 * colors + 0.2 * stripes, 0, 1).astype("float32")


def sensed(colors):
    """One color of each pixel: red and green in even rows, green and blue in odd ones."""
    i, j = np.mgrid[:SIZE, :SIZE]
    return np.take_along_axis(colors, ((i % 2) + (j % 2))[None], 0)[0]


# %% [markdown]
# ## The pipeline
#
# `filters[i % 2, j % 2, c]` is the filter for the place of a pixel in the pattern. Borders are mirrored.

# %%
mosaic = te.placeholder((SIZE, SIZE), name="mosaic")
filters = te.placeholder((2, 2, 3, TAPS, TAPS), name="filters")
truth = te.placeholder((3, SIZE, SIZE), name="truth")
p, q = te.reduce_axis(TAPS, "p"), te.reduce_axis(TAPS, "q")
full = te.compute(
    (3, SIZE, SIZE),
    lambda c, i, j: te.sum(
        mosaic.at(i + p - REACH, j + q - REACH, mode="reflect")
        * filters[i % 2, j % 2, c, p, q],
        axis=(p, q),
    ),
    name="full",
)
loss = te.compute(
    (),
    lambda: te.sum(lambda c, i, j: (full[c, i, j] - truth[c, i, j]) ** 2) / (3 * SIZE**2),
    name="loss",
)
full

# %% [markdown]
# The gradient of the filters gathers over all pixels of one place in the pattern: the `% 2` was solved, so that no
# pixel is visited in vain.

# %%
gradients = te.differentiate(loss, [filters])
assert not gradients.explain().scatters
assert te.work(gradients[0]).masked < 0.1 * te.work(gradients[0]).iterations
gradients

# %% [markdown]
# ## The start: nearest neighbors
#
# Each missing color is taken from the mean of the nearest pixels that saw it.

# %%
start = np.zeros((2, 2, 3, TAPS, TAPS), "float32")
for a in range(2):
    for b in range(2):
        for c in range(3):
            near = [
                (abs(u) + abs(v), u, v)
                for u in (-1, 0, 1)
                for v in (-1, 0, 1)
                if (a + u) % 2 + (b + v) % 2 == c
            ]
            nearest = [(u, v) for d, u, v in near if d == min(near)[0]]
            for u, v in nearest:
                start[a, b, c, u + REACH, v + REACH] = 1 / len(nearest)

# %% [markdown]
# ## Fit
#
# Adam, written out in NumPy, takes 600 steps over twelve pictures. One more picture is kept for the test. The error is
# told in decibels (PSNR): more is better.

# %%
kernel = te.build([mosaic, filters, truth], [loss, full, gradients[0]])
training = [picture() for _ in range(12)]
test = picture()
before, seen, _ = kernel(sensed(test), start, test)

found = start.copy()
first, second = np.zeros_like(found), np.zeros_like(found)
history = []
for k in range(600):
    shown = training[k % len(training)]
    value, _, slope = kernel(sensed(shown), found, shown)
    history.append(float(value))
    first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
    rate = 3e-3 * (1 - k / 600)
    found -= (
        rate * (first / (1 - 0.9 ** (k + 1))) / (np.sqrt(second / (1 - 0.99 ** (k + 1))) + 1e-8)
    )

after, restored, _ = kernel(sensed(test), found, test)
ratio = 10 * np.log10(before / after)
print(
    f"on a picture not seen before: {-10 * np.log10(before):.1f} dB before, "
    f"{-10 * np.log10(after):.1f} dB after"
)
assert ratio > 1.5

# %% [markdown]
# ## Before and after
#
# The test picture: as the sensor sees it, as filled in before and after training, and as it was drawn.

# %%
figure, places = plt.subplots(1, 5, figsize=(11, 2.6), layout="constrained")
images = {
    "sensor": np.broadcast_to(sensed(test), (3, SIZE, SIZE)),
    "nearest neighbors": seen,
    "learned": restored,
    "truth": test,
}
for place, (title, image) in zip(places, images.items()):
    place.imshow(np.clip(image, 0, 1).transpose(1, 2, 0))
    place.set_title(title, fontsize=9)
    place.axis("off")
places[-1].semilogy(np.reshape(history, (-1, len(training))).mean(1))
places[-1].set_title("loss, mean of a round", fontsize=9)
places[-1].set_xlabel("round of twelve pictures", fontsize=9)
plt.show()

# %% [markdown]
# What was learned: green at a red pixel is mostly the mean of its four green neighbors, with small negative taps
# around them.

# %%
figure, places = plt.subplots(1, 3, figsize=(7, 2.2), layout="constrained")
for c, place in enumerate(places):
    image = place.imshow(found[0, 0, c], cmap="RdBu", vmin=-0.3, vmax=0.3)
    place.set_title(f"{('red', 'green', 'blue')[c]} at a red pixel", fontsize=9)
    place.axis("off")
figure.colorbar(image, ax=places, label="weight")
plt.show()
assert found[0, 0, 1].min() < -0.02
