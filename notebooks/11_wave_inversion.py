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
# pushes at one place.

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
        u[t + 2, 1:-1] = (
            2 * now[1:-1] - u[t, 1:-1] + c**2 * (now[:-2] - 2 * now[1:-1] + now[2:])
        )
        u[t + 2, 3] += s[t]
    return u[2:, 1:-1]


np.testing.assert_allclose(field, in_numpy(true_speed, pulse), atol=1e-10)

# %% [markdown]
# ## The misfit and its gradient
#
# The adjoint is a scan too, backward in time: a wave that starts at the recorders and runs back.

# %%
recorded = te.placeholder((STEPS, len(RECORDERS)), "float64", name="recorded")
misfit = sum(
    te.compute(
        (),
        lambda p=p, k=k: te.sum(lambda t: (u[t, p] - recorded[t, k]) ** 2),
        name=f"misfit_{k}",
    )
    for k, p in enumerate(RECORDERS)
)
gradients = te.differentiate(misfit, [speed])
assert "downward" in repr(te.display.program(gradients[0]))
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
middle.plot(true_speed, label="truth", linewidth=3)
middle.plot(guess, "--", label="found")
middle.axhline(0.7, color="#5a6572", linewidth=0.8, linestyle=":", label="start")
middle.legend(frameon=False)
middle.set(xlabel="place", title="speed")
right.semilogy(history)
right.set(xlabel="step", title="misfit")
plt.show()

# %% [markdown]
# ## Ten thousand steps in a plane
#
# Twenty shots, one after another at places along a line, each of 500 steps, are recorded along a second line. All steps
# of the field are 164 MB, with its adjoint 490. `memory=` cuts the program along time: of each segment only the last
# two steps are kept, the others are computed again for the gradient.

# %% tags=["machine"]
SHOTS, EACH, SIDE = 20, 500, 64
SHOT_ROW, HEARD_ROW = 6, SIDE - 7
many = SHOTS * EACH

squared = te.placeholder((SIDE, SIDE), name="squared")  # the speed, squared
# the share of the motion that is lost in a step
lost = te.placeholder((SIDE, SIDE), name="lost")
fired = te.placeholder((many, SIDE), name="fired")
heard_there = te.placeholder((many, SIDE), name="heard_there")


def shake(u, t, x, y):
    def at(back, a, b):
        return te.select(
            (t >= back) & (a >= 0) & (a < SIDE) & (b >= 0) & (b < SIDE), u[t - back, a, b], 0.0
        )

    here = at(1, x, y)
    spread = at(1, x - 1, y) + at(1, x + 1, y) + at(1, x, y - 1) + at(1, x, y + 1) - 4 * here
    pushed = te.select(x == SHOT_ROW, fired[t, y], 0.0)
    return here + (1 - lost[x, y]) * (here - at(2, x, y)) + squared[x, y] * spread + pushed


motion = te.scan((many, SIDE, SIDE), shake, name="motion")
recording = te.compute((many, SIDE), lambda t, y: motion[t, HEARD_ROW, y])
difference = te.compute(
    (), lambda: te.sum(lambda t, y: (recording[t, y] - heard_there[t, y]) ** 2)
)
(slope,) = te.differentiate(difference, [squared])

record = te.build([squared, lost, fired], recording, memory="32MB")
compare = te.build([squared, lost, fired, heard_there], [difference, slope], memory="64MB")
print(compare.program)
assert compare.program.peak_bytes <= 64 * 2**20

# %% [markdown]
# The truth has a slow and a fast place. The edges swallow what reaches them.

# %%
x, y = np.mgrid[:SIDE, :SIDE]
from_edge = np.minimum(np.minimum(x, SIDE - 1 - x), np.minimum(y, SIDE - 1 - y))
absorbing = (0.006 + 0.12 * np.clip(1 - from_edge / 8, 0, 1) ** 2).astype("f4")
slow = 0.10 * np.exp(-((x - 34) ** 2 + (y - 24) ** 2) / 60)
fast = 0.06 * np.exp(-((x - 28) ** 2 + (y - 44) ** 2) / 40)
true_squared = (0.25 - slow + fast).astype("f4")

moment = (np.arange(EACH) - 30) / 10
shots = np.zeros((many, SIDE), "f4")
for k, place in enumerate(np.linspace(2, SIDE - 3, SHOTS).round().astype(int)):
    shots[k * EACH : (k + 1) * EACH, place] = (1 - 2 * moment**2) * np.exp(-(moment**2))
recorded_there = record(true_squared, absorbing, shots)

# %% tags=["machine"]
found = np.full((SIDE, SIDE), 0.25, "f4")
first, second, misfits = np.zeros((SIDE, SIDE)), 0.0, []
blur = np.exp(-(np.arange(-4, 5) ** 2) / 4.0)
blur /= blur.sum()
for k in range(30):
    value, down = compare(found, absorbing, shots, recorded_there)
    misfits.append(float(value))
    down = np.apply_along_axis(np.convolve, 0, down * (from_edge > 7), blur, mode="same")
    down = np.apply_along_axis(np.convolve, 1, down, blur, mode="same")
    first = 0.8 * first + 0.2 * down
    second = 0.95 * second + 0.05 * np.mean(down**2)
    found = np.clip(
        found - 4e-3 * first / np.sqrt(second / (1 - 0.95 ** (k + 1))), 0.08, 0.36
    ).astype("f4")

inside = (slice(8, -8),) * 2
before, after = (
    float(np.sqrt(np.mean((a - true_squared)[inside] ** 2))) for a in (np.float32(0.25), found)
)
print(
    f"misfit {misfits[0]:.0f} -> {misfits[-1]:.1f}; "
    f"squared speed off by {before:.4f} -> {after:.4f}"
)
assert misfits[-1] < 0.02 * misfits[0]
assert after < 0.4 * before

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
for panel, values, title in ((left, true_squared, "truth"), (middle, found, "found")):
    image = panel.imshow(values, cmap="viridis", vmin=0.14, vmax=0.32)
    panel.set(title=title, xticks=[], yticks=[])
    panel.axhline(SHOT_ROW, color="white", linewidth=0.8, linestyle=":")
    panel.axhline(HEARD_ROW, color="white", linewidth=0.8, linestyle=":")
figure.colorbar(image, ax=[left, middle], label="squared speed")
right.semilogy(misfits)
right.set(xlabel="iteration", title="misfit")
plt.show()
