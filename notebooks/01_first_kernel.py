# %% [markdown]
# # A first kernel, and how it is scheduled
#
# A tensor is a function of its indices. What is computed is written once; how it runs is said apart from it, and can
# never change the result.

# %%
import inspect
import time

import numpy as np

import tedsl as te

n = te.var("n")
m = te.var("m")
image = te.placeholder((n, m), name="image")

# %% [markdown]
# Two stages blur an image, first along its columns and then along its rows. `at(..., mode="clamp")` says what lies
# beyond the border. A tensor shows its formula; below it, the program it belongs to.


# %%
def mean_of_three(a, b, c):
    return (a + b + c) / 3


rows = te.compute(
    (n, m),
    lambda i, j: mean_of_three(
        image.at(i - 1, j, mode="clamp"), image[i, j], image.at(i + 1, j, mode="clamp")
    ),
    name="rows",
)
blurred = te.compute(
    (n, m),
    lambda i, j: mean_of_three(
        rows.at(i, j - 1, mode="clamp"), rows[i, j], rows.at(i, j + 1, mode="clamp")
    ),
    name="blurred",
)
blurred

# %% [markdown]
# The definition is what NumPy would say with padding and slices. `te.interpret` is the reference: it evaluates by
# definition, slowly. `te.evaluate` compiles.

# %%
rng = np.random.default_rng(0)
picture = rng.random((480, 640), dtype="float32")


def in_numpy(x):
    padded = np.pad(x, ((1, 1), (0, 0)), mode="edge")
    x = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    padded = np.pad(x, ((0, 0), (1, 1)), mode="edge")
    return (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3


small = picture[:20, :30].copy()
np.testing.assert_allclose(te.interpret(blurred, {image: small}), in_numpy(small), rtol=1e-5)
np.testing.assert_allclose(te.evaluate(blurred, {image: picture}), in_numpy(picture), rtol=1e-5)

# %% [markdown]
# ## Before anything is said
#
# A schedule begins with the stages and the names of their loops. How they run is left to the default schedule.

# %%
schedule = te.Schedule(blurred)
schedule

# %% [markdown]
# ## The loops, by hand
#
# Tiles of 32 rows go to threads; inside a tile the first stage is computed as the second needs it, and both work on
# vectors of 8 columns. Each directive documents the rewriting it does.

# %%
stage = schedule[blurred]
i, j = stage.axes
outer, inner = stage.split(i, 32)
stage.vectorize(j, 8).parallel(outer)
schedule[rows].compute_at(stage, inner).vectorize("j", 8)
schedule

# %%
assert [str(loop) for loop in stage.loops] == ["io", "ii", "j", "jv"]
for directive in (stage.split, stage.vectorize):
    print(f"{directive.__name__:10} {inspect.getdoc(directive).splitlines()[0]}")

# %% [markdown]
# How high should a tile be, and where is the first stage computed? Choose one: each stop is a schedule of its own,
# made by the same function.


# %%
def tiled(height):
    schedule = te.Schedule(blurred)
    stage = schedule[blurred]
    outer, inner = stage.split("i", height)
    stage.vectorize("j", 8).parallel(outer)
    schedule[rows].compute_at(stage, outer if height < 16 else inner).vectorize("j", 8)
    return schedule


te.display.slider(tiled, [4, 8, 16, 32], name="height", begin=3)

# %% [markdown]
# In which order are the elements computed, and what is read for each? On a small image you can watch it, in Jupyter
# and on the documentation's site. All lanes of a vector are one step, and so are parallel iterations. Colors and
# numbers tell the order in a picture that does not move.

# %%
small_image = te.placeholder((8, 16))
smooth = te.compute(
    (8, 16), lambda i, j: sum(small_image.at(i + d, j, mode="clamp") for d in (-1, 0, 1)) / 3
)
order = te.Schedule(smooth)
order[smooth].tile("i", "j", 4, 8)
order[smooth].vectorize("ji").parallel("io")
te.display.trace(order)

# %% [markdown]
# A directive that makes no sense is refused at once, with the loops there are.

# %%
try:
    stage.vectorize("q")
except te.ScheduleError as error:
    refusal = str(error)
    print(refusal)
assert "io, ii, j, jv" in refusal

# %% [markdown]
# ## Compiled
#
# A kernel is compiled once and called on arrays of any extents. Both kernels give the same bits; how long each takes
# depends on the machine. The stored output leaves times out and keeps the ratios: run the notebook to see yours.

# %% tags=["machine"]
by_hand = te.build(image, blurred, schedule=schedule)
by_default = te.build(image, blurred)
np.testing.assert_array_equal(by_hand(picture), by_default(picture))


def milliseconds(call, repeats=20):
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


calls = {
    "NumPy": lambda: in_numpy(picture),
    "by hand": lambda: by_hand(picture),
    "default schedule": lambda: by_default(picture),
}
took = {name: milliseconds(call) for name, call in calls.items()}
for name, time_of_call in took.items():
    ratio = took["NumPy"] / time_of_call
    print(f"{name:16} {ratio:6.1f} times as fast as NumPy ({time_of_call:.2f} ms)")

# %% [markdown]
# What the compiler made of it: loops as they run, with what each has become.

# %%
by_hand

# %% [markdown]
# `te.work` counts operations and bytes from the definition, without running anything: two stages, each with two
# additions and a division per pixel.

# %%
work = te.work(blurred, sizes={n: 480, m: 640})
assert work.iterations == 2 * 480 * 640
assert work.flops == 3 * work.iterations
work
