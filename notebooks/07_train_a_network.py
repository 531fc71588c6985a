# %% [markdown]
# # A network trained with tedsl alone
#
# A small convolutional network learns to tell three drawn shapes apart. Loss, gradients and the steps of Adam are one
# compiled kernel.

# %%
import matplotlib.pyplot as plt
import numpy as np

import tedsl as te
from tedsl import ops
from tedsl.ops import optim

SIDE, BATCH = 16, 32
NAMES = ("disc", "cross", "ring")

# %% [markdown]
# ## Pictures
#
# Drawn at random places and sizes, under noise.


# %%
def draw(random, kind):
    i, j = np.mgrid[:SIDE, :SIDE]
    y, x, r = *random.uniform(6, SIDE - 7, 2), random.uniform(3, 5)
    distance = np.hypot(i - y, j - x)
    if NAMES[kind] == "disc":
        shape = distance < r
    elif NAMES[kind] == "ring":
        shape = abs(distance - r) < 1
    else:
        shape = (np.minimum(abs(i - y), abs(j - x)) < 1) & (
            np.maximum(abs(i - y), abs(j - x)) < r
        )
    return shape + random.normal(0, 0.35, (SIDE, SIDE))


def pictures(random, count):
    labels = random.integers(0, 3, count).astype("int32")
    return np.stack([draw(random, k) for k in labels])[:, None].astype("float32"), labels


random = np.random.default_rng(0)
images, labels = pictures(random, 800)
unseen, answers = pictures(random, 300)
figure, places = plt.subplots(1, 6, figsize=(8, 1.6), layout="constrained")
for place, image, label in zip(places, images, labels):
    place.imshow(image[0], cmap="gray")
    place.set_title(NAMES[label], fontsize=9)
    place.axis("off")
plt.show()

# %% [markdown]
# ## The network
#
# A function of tensors, made of operators of the catalog.

# %%
SHAPES = {
    "w1": (8, 1, 3, 3),
    "b1": (8,),
    "w2": (16, 8, 3, 3),
    "b2": (16,),
    "w3": (3, 16),
    "b3": (3,),
}
weights = {name: te.placeholder(shape, name=name) for name, shape in SHAPES.items()}


def network(x, p):
    h = ops.max_pool2d(ops.relu(ops.conv2d(x, p["w1"], p["b1"], padding=1)), 2)
    h = ops.relu(ops.conv2d(h, p["w2"], p["b2"], padding=1))
    h = h.max(3).max(2)  # the strongest response, wherever it is
    return ops.dense(h, p["w3"], p["b3"])


x = te.placeholder((BATCH, 1, SIDE, SIDE), name="x")
y = te.placeholder((BATCH,), "int32", name="y")
loss = ops.cross_entropy(network(x, weights), y)
te.display.graph(loss)

# %% [markdown]
# ## The step
#
# Built once: forward, backward and the update of every weight.

# %% tags=["machine"]
step = optim.train_step(loss, list(weights.values()), [x, y], optim.Adam(0.01))
many = te.placeholder(unseen.shape, name="images")
predict = te.build([many, *weights.values()], network(many, weights).argmax(1))
start = [
    random.normal(0, np.sqrt(2 / np.prod(s[1:])), s) if len(s) > 1 else np.zeros(s)
    for s in SHAPES.values()
]
state = step.start(start)
losses = []
for epoch in range(10):
    order = random.permutation(len(labels))
    for first in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[first : first + BATCH]
        value, state = step(state, images[chosen], labels[chosen])
        losses.append(float(value))
    accuracy = float((predict(unseen, *state.params) == answers).mean())
    print(
        f"epoch {epoch + 1:2d}: loss {losses[-1]:.3f}, accuracy on unseen pictures {accuracy:.3f}"
    )
assert accuracy > 0.9

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
left.plot(losses, linewidth=0.8)
left.set(xlabel="step", ylabel="loss", yscale="log")
filters = np.asarray(state.params[0])[:, 0]
shown = right.imshow(
    np.pad(filters, ((0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    .transpose(1, 0, 2)
    .reshape(4, -1),
    cmap="RdBu",
)
right.set_title("filters of the first layer", fontsize=9)
right.axis("off")
figure.colorbar(shown, ax=right, shrink=0.5)
plt.show()

# %% [markdown]
# ## Is the gradient right?
#
# The same network on two pictures, in float64, against differences along a random direction of all weights.

# %%
wide = {name: te.placeholder(shape, "float64", name=name) for name, shape in SHAPES.items()}
px = te.placeholder((2, 1, SIDE, SIDE), "float64", name="x")
py = te.placeholder((2,), "int32", name="y")
small = ops.cross_entropy(network(px, wide), py)
kernel = te.build(
    [px, py, *wide.values()], [small, *te.differentiate(small, list(wide.values()))]
)
at = [np.asarray(p, "float64") for p in state.params]
direction = [random.normal(size=p.shape) for p in at]
pair = images[:2].astype("float64"), labels[:2]
_, *slopes = kernel(*pair, *at)
exact = sum(float(np.vdot(s, d)) for s, d in zip(slopes, direction))
ahead, behind = (
    float(kernel(*pair, *[p + e * d for p, d in zip(at, direction)])[0]) for e in (1e-6, -1e-6)
)
assert abs(exact - (ahead - behind) / 2e-6) < 1e-5 * max(1, abs(exact))
te.work(small)
