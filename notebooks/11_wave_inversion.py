# %% [markdown]
# # A wave, and what it ran through
#
# A pulse travels along a line whose speed differs from place to place. From recordings at two places the speed is
# found: the adjoint of the simulation carries the error back through time.

# %%
import matplotlib.pyplot as plt
import numpy as np

import tedsl as te

STEPS, PLACES = 220, 80
RECORDERS = (6, 74)

# %% [markdown]
# ## The wave equation
#
# `u[t + 1] = 2 u[t] - u[t - 1] + c^2 (u[t][x - 1] - 2 u[t][x] + u[t][x + 1])`, with ends held at 0 and a source that
# moves one place.

# %%
speed = te.placeholder((PLACES,), "float64", name="speed")
source = te.placeholder((STEPS,), "float64", name="source")


def step(u, t, x):
    here = te.select(t >= 1, u[t - 1, x], 0.0)
    earlier = te.select(t >= 2, u[t - 2, x], 0.0)
    left = te.select((t >= 1) & (x >= 1), u[t - 1, x - 1], 0.0)
    right = te.select((t >= 1) & (x < PLACES - 1), u[t - 1, x + 1], 0.0)
    pushed = te.select(x == 2, source[t], 0.0)
    return 2 * here - earlier + speed[x] ** 2 * (left - 2 * here + right) + pushed


u = te.scan((STEPS, PLACES), step, axis=0, dtype="float64", name="u")
u

# %% [markdown]
# ## The truth
#
# A slow stretch in the middle reflects part of the pulse.

# %%
x = np.arange(PLACES)
true_speed = 0.7 - 0.25 * np.exp(-(((x - 42) / 7.0) ** 2))
pulse = np.exp(-(((np.arange(STEPS) - 18) / 6.0) ** 2))
simulate = te.build([speed, source], u)
field = simulate(true_speed, pulse)


def in_numpy(c, s):
    u = np.zeros((STEPS + 2, PLACES + 2))
    for t in range(STEPS):
        now = u[t + 1]
        u[t + 2, 1:-1] = 2 * now[1:-1] - u[t, 1:-1] + c**2 * (now[:-2] - 2 * now[1:-1] + now[2:])
        u[t + 2, 3] += s[t]
    return u[2:, 1:-1]


np.testing.assert_allclose(field, in_numpy(true_speed, pulse), atol=1e-10)

# %% [markdown]
# ## The misfit and its gradient
#
# The adjoint is a scan too, downwards in time: a wave that starts at the recorders and runs back.

# %%
recorded = te.placeholder((STEPS, len(RECORDERS)), "float64", name="recorded")
misfit = sum(
    te.compute((), lambda p=p, k=k: te.sum(lambda t: (u[t, p] - recorded[t, k]) ** 2), name=f"misfit_{k}")
    for k, p in enumerate(RECORDERS)
)
gradients = te.differentiate(misfit, [speed])
assert "downwards" in repr(te.display.program(gradients[0]))
gradients

# %%
kernel = te.build([speed, source, recorded], [misfit, gradients[0]])
heard = field[:, RECORDERS]
guess = np.full(PLACES, 0.7)
direction = np.random.default_rng(0).normal(size=PLACES)
_, slope = kernel(guess, pulse, heard)
ahead, behind = (float(kernel(guess + e * direction, pulse, heard)[0]) for e in (1e-6, -1e-6))
np.testing.assert_allclose(slope @ direction, (ahead - behind) / 2e-6, rtol=1e-5)

# %% [markdown]
# ## Descent
#
# The slope is smoothed a little, since no recording tells single places apart.

# %%
smoothing = np.exp(-(np.arange(-6, 7) ** 2) / 8.0)
smoothing /= smoothing.sum()
first, second = np.zeros(PLACES), 0.0
history = []
for k in range(400):
    value, slope = kernel(guess, pulse, heard)
    history.append(float(value))
    slope = np.convolve(slope, smoothing, mode="same")
    first = 0.9 * first + 0.1 * slope
    second = 0.95 * second + 0.05 * float(slope @ slope) / PLACES
    guess = np.clip(guess - 4e-3 * (1 - k / 400) * first / np.sqrt(second + 1e-12), 0.2, 0.9)

error = np.sqrt(np.mean((guess[10:70] - true_speed[10:70]) ** 2))
print(f"misfit {history[0]:.3f} -> {history[-1]:.2e}; speed within {error:.3f}")
assert history[-1] < 0.02 * history[0]
assert error < 0.4 * np.sqrt(np.mean((0.7 - true_speed[10:70]) ** 2))

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
left.imshow(field, aspect="auto", cmap="RdBu", vmin=-1.5, vmax=1.5)
left.set(xlabel="place", ylabel="step", title="the wave")
middle.plot(true_speed, label="truth", linewidth=3, alpha=0.4)
middle.plot(guess, label="found")
middle.axhline(0.7, color="#8a94a0", linewidth=0.8, linestyle="--", label="start")
middle.legend(frameon=False)
middle.set(xlabel="place", title="speed")
right.semilogy(history)
right.set(xlabel="step", title="misfit")
plt.show()
