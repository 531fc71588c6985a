# %% [markdown]
# # Scans: a recursive filter and a recurrent network
#
# `te.scan` fills a tensor step by step; each step reads earlier ones. Its adjoint is a scan that runs backward in
# time.

# %%
import matplotlib.pyplot as plt
import numpy as np

import tedsl as te

rng = np.random.default_rng(0)
T = 200

# %% [markdown]
# ## A filter of second order
#
# `y[t] = b x[t] + a1 y[t - 1] + a2 y[t - 2]`, with zeros before the start.

# %%
x = te.placeholder((T,), "float64", name="x")
a = te.placeholder((2,), "float64", name="a")
b = te.placeholder((), "float64", name="b")


def step(y, t):
    before = te.select(t >= 1, a[0] * y[t - 1], 0.0) + te.select(t >= 2, a[1] * y[t - 2], 0.0)
    return b[()] * x[t] + before


y = te.scan((T,), step, axis=0, dtype="float64", name="y")
y


# %%
def in_numpy(x, a, b):
    y = np.zeros(len(x) + 2)
    for t in range(len(x)):
        y[t + 2] = b * x[t] + a[0] * y[t + 1] + a[1] * y[t]
    return y[2:]


noise = rng.normal(size=T)
truth = np.array([1.6, -0.81]), np.array(0.2)
target = in_numpy(noise, *truth)
np.testing.assert_allclose(
    te.evaluate(y, {x: noise, a: truth[0], b: truth[1]}), target, rtol=1e-12
)

# %% [markdown]
# ## The filter, found from its output
#
# The gradient of the squared error leads from a wrong filter to the right one. Its adjoint runs from the last step to
# the first.

# %%
wanted = te.placeholder((T,), "float64", name="wanted")
loss = ((y - wanted) ** 2).mean()
gradients = te.differentiate(loss, [a, b])
gradients

# %%
assert "downward" in repr(te.display.program(gradients[0]))
small = {x: noise, a: truth[0] * 0.8, b: truth[1], wanted: target}
assert te.gradcheck(loss, [a, b], small).ok

# %% tags=["machine"]
kernel = te.build([x, a, b, wanted], [loss, *gradients])
guess = [np.array([0.5, 0.0]), np.array(1.0)]
momentum = [np.zeros(2), np.zeros(())]
variance = [np.zeros(2), np.zeros(())]
history = []
for k in range(400):
    value, *slopes = kernel(noise, *guess, target)
    history.append(float(value))
    for p in range(2):  # Adam
        momentum[p] = 0.9 * momentum[p] + 0.1 * slopes[p]
        variance[p] = 0.99 * variance[p] + 0.01 * slopes[p] ** 2
        corrected = momentum[p] / (1 - 0.9 ** (k + 1)), variance[p] / (1 - 0.99 ** (k + 1))
        rate = 0.02 * (1 - k / 400)
        guess[p] = guess[p] - rate * corrected[0] / (np.sqrt(corrected[1]) + 1e-9)

print("found", guess[0].round(3), guess[1].round(3), "for", *truth)
assert history[-1] < 1e-3 * history[0]
np.testing.assert_allclose(guess[0], truth[0], atol=0.02)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.semilogy(history)
left.set(xlabel="step", ylabel="loss")
right.plot(target[:80], label="wanted", linewidth=3)
right.plot(in_numpy(noise, *guess)[:80], "--", label="found")
right.set(xlabel="t", ylabel="y[t]")
right.legend(frameon=False)
plt.show()

# %% [markdown]
# ## A recurrent network
#
# The state is a vector, and a step reads all of the previous one: a reduction inside the scan. `h[0]` is the tanh of
# the first input.

# %%
LENGTH, WIDTH = 12, 6
u = te.placeholder((LENGTH, WIDTH), "float64", name="u")
W = te.placeholder((WIDTH, WIDTH), "float64", name="W")
k = te.reduce_axis(WIDTH, "k")
h = te.scan(
    (LENGTH, WIDTH),
    lambda h, t, i: te.select(
        t == 0, te.tanh(u[0, i]), te.tanh(u[t, i] + te.sum(W[i, k] * h[t - 1, k], axis=k))
    ),
    axis=0,
    dtype="float64",
    name="h",
)
h

# %%
inputs, matrix = rng.normal(size=(LENGTH, WIDTH)), rng.normal(size=(WIDTH, WIDTH)) / WIDTH
state = np.zeros(WIDTH)
states = []
for row in inputs:
    state = np.tanh(row + matrix @ state)
    states.append(state)
np.testing.assert_allclose(te.evaluate(h, {u: inputs, W: matrix}), states, rtol=1e-12)

# %% [markdown]
# Backpropagation through time is what `differentiate` gives; differences agree.

# %%
report = te.gradcheck(h, [u, W], {u: inputs, W: matrix})
assert report.ok
report
