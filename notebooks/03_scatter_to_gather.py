# %% [markdown]
# # From scatter to gather
#
# A stage that reads `x[f(z)]` sends back `dx[f(z)] += g(z)`. As it stands that is a scatter: iterations write to
# places that others write to as well, so they must run in order, or with atomics. If the index can be solved for `z`,
# every element of `dx` can instead collect what belongs to it: a gather, each element by itself.

# %%
import matplotlib.pyplot as plt
import numpy as np

import tedsl as te

rng = np.random.default_rng(0)


def by_brute_force(output, source, feeds, head):
    """The Jacobian of a linear program by columns, times the head."""
    columns = []
    for place in np.ndindex(source.shape):
        unit = np.zeros(source.shape)
        unit[place] = 1.0
        columns.append(np.vdot(head, te.interpret(output, {**feeds, source: unit})))
    return np.array(columns).reshape(source.shape)


def check(output, source, feeds=None):
    """The adjoint of `source`, compared with brute force; how its reads were turned around."""
    feeds = feeds or {}
    h = te.placeholder(output.shape, "float64", name="g")
    head = rng.normal(size=output.shape)
    gradients = te.differentiate([output], [source], head=[h])
    found = te.interpret(gradients[0], {**feeds, source: np.zeros(source.shape), h: head})
    np.testing.assert_allclose(found, by_brute_force(output, source, feeds, head), atol=1e-12)
    return gradients


# %% [markdown]
# ## A window that moves by two
#
# `y[i]` reads `x[2i + k]` for `k < 3`. Each arrow is one read.

# %%
x = te.placeholder((9,), "float64", name="x")
w = te.placeholder((3,), "float64", name="w")
y = te.compute((4,), lambda i: te.sum(lambda k: x[2 * i + k] * w[k]), name="y")
te.display.plot.index_map(
    [(i, 2 * i + k) for i in range(4) for k in range(3)], names=("y", "x")
)
plt.show()

# %% [markdown]
# Turned around, `s = 2i + k` has the solutions `k = s - 2i`. Even elements are read by two windows and odd ones by
# one, so the gather sums over at most two.

# %%
weights = {w: rng.normal(size=3)}
strided = check(y, x, weights)
assert [r.kind for r in strided.explain().reads if r.source is x] == ["gather"]
strided

# %% [markdown]
# What it costs is counted, not guessed: a few iterations per element of `x`. A dense Jacobian would have `4 * 9`
# entries, two thirds of them zero.

# %%
forward, backward = te.work(y), te.work(strided[0])
assert backward.iterations <= 2 * 9 + 4
print(f"forward {forward.iterations} iterations, backward {backward.iterations}")
te.display.plot.jacobian_sparsity(y, x, {**weights, x: np.zeros(9)})
plt.show()

# %% [markdown]
# ## Every kind of index
#
# Flattened, dilated, reversed, wrapped around, diagonal: each is solved by exact integer algebra, and each is
# compared with brute force here.

# %%
image = te.placeholder((4, 6), "float64", name="image")
k = te.reduce_axis(3, "k")
line = te.placeholder((12,), "float64", name="line")
square = te.placeholder((8, 8), "float64", name="square")
PROGRAMS = {
    "flatten": (te.compute((24,), lambda i: image[i // 6, i % 6]), image),
    "reshape": (image.reshape(8, 3), image),
    "dilated window": (te.compute((6,), lambda i: te.sum(line[i + 3 * k], axis=k)), line),
    "reversed": (te.compute((12,), lambda i: line[11 - i]), line),
    "wrapped around": (te.compute((12,), lambda i: line.at(i - 2, mode="wrap")), line),
    "reflected border": (te.compute((16,), lambda i: line.at(i - 2, mode="reflect")), line),
    "diagonals": (te.compute((4, 4), lambda i, j: square[i + j, i - j + 3]), square),
    "transposed": (image.T, image),
}
for name, (program, source) in PROGRAMS.items():
    explanation = check(program, source).explain()
    kinds = sorted({r.kind for r in explanation.reads})
    assert kinds == ["gather"], (name, kinds)
    print(f"{name:18} {explanation.reads[0].reason}")

# %% [markdown]
# The formula of the diagonals is worth a look: a solution exists only if a sum is even.

# %%
te.differentiate(
    [PROGRAMS["diagonals"][0]], [square], head=[te.placeholder((4, 4), "float64", name="g")]
)

# %% [markdown]
# ## What cannot be solved stays a scatter
#
# An index that is data has no inverse before the data is known. The adjoint is `te.scatter`, pure like everything else:
# its schedule keeps it ordered, so that two runs give the same bits. Below, the row is data and the column is not, so
# the read is turned around in part: a scatter along the rows, a gather along the columns.

# %%
rows = te.placeholder((5,), "int32", name="rows")
table = te.placeholder((7, 3), "float64", name="table")
picked = te.compute((5, 3), lambda i, j: table[rows[i], j], name="picked")
lookup = check(picked, table, {rows: np.array([2, 0, 2, 6, 2], np.int32)})
(read,) = lookup.explain().scatters
print(read.kind, "because", read.reason)
lookup

# %% [markdown]
# The adjoint of a scatter, in turn, is a gather: it reads where the scatter wrote.

# %%
r = te.reduce_axis(12, "r")
bins = te.placeholder((12,), "int32", name="bins")
histogram = te.scatter((4,), [r], (bins[r],), line[r], name="histogram")
counted = check(histogram, line, {bins: rng.integers(0, 4, 12).astype(np.int32)})
assert not counted.explain().scatters
counted
