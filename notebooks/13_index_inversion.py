# %% [markdown]
# # Index inversion by itself
#
# A loop that writes `S[f(z)] += g(z)` for every point z of a domain is a scatter. Asked from the other side, which
# points reach the element s, it is a gather: a sum over `f(z) = s` that every element does alone. `autodiff.invert`
# answers that question in integers, for index maps that need not belong to a program. The gradients of this library are
# made of its answers; here they are made one by one, and each is compared with enumeration. The pictures of the maps
# are shown in Jupyter and on the documentation's site.

# %%
import numpy as np
from sympy import IndexedBase, Max, Min, Mod, Ne, Piecewise, Symbol, floor, symbols

import tedsl as te
from autodiff import invert

c, h, i, j, k, r, w, x, y = symbols("c h i j k r w x y", integer=True)
m, n = symbols("m n", integer=True)

# %% [markdown]
# ## Shift
#
# `invert` takes the index, the ranges of its symbols as (begin, extent), and the shape of S. The answer is data: the
# point in sympy's expressions, the guards, the loops. `check` runs the map and the answer as loops and compares their
# pairs.

# %%
shift = invert([x + 3], {x: (0, 8)}, [12])
(gather,) = shift.gathers
(s,) = shift.elements
assert gather.solution == {x: s - 3}
print(shift, shift.check(), sep="\n\n")
shift

# %% [markdown]
# In the picture, each point has the color of the element that it reaches. No point reaches elements 0 to 2 and 11: the
# guard says where x must lie. A bound that follows from the shape of S is left out.
#
# ## Stride
#
# A window of four moves by two. The equation `s = 2y + r` has many solutions; all of them are one loop of two,
# because r has the parity of s. Nothing is searched for.

# %%
stride = invert([2 * y + r], {y: (0, 5), r: (0, 4)}, [12])
(gather,) = stride.gathers
assert [extent for _, extent in gather.loops.values()] == [2]
stride.check()
stride

# %% [markdown]
# With three taps, even elements are reached by two and odd ones by one. A common loop of two would waste a quarter of
# its turns, so the answer has two gathers: each for a part of the elements, together every point once.

# %%
taps = invert([2 * y + r], {y: (0, 5), r: (0, 3)}, [11])
assert [len(g.loops) for g in taps.gathers] == [1, 0]
taps.check()
taps

# %% [markdown]
# ## Dilation, and extents that are symbols
#
# All other symbols are parameters. `check` tries many of their values; the picture shows one.

# %%
dilation = invert([y + 3 * r], {y: (0, n), r: (0, 3)}, [n + 6])
report = dilation.check()
assert len({draw[n] for draw in report.draws}) > 5
print(report)
dilation

# %% [markdown]
# ## Flatten, and back
#
# Products of extents are understood: quotient and remainder are the solution, without a loop or a guard, for every n
# and m.

# %%
flatten = invert([m * i + j], {i: (0, n), j: (0, m)}, [n * m])
(gather,) = flatten.gathers
(s,) = flatten.elements
assert gather.solution == {i: floor(s / m), j: Mod(s, m)}
assert not gather.loops
assert not gather.guards
flatten.check()
flatten

# %%
unflatten = invert([floor(k / m), Mod(k, m)], {k: (0, n * m)}, [n, m])
unflatten.check()
unflatten

# %% [markdown]
# ## Transpose
#
# With two indices a transpose is trivial. In flat memory it is a permutation that looks like noise, until it is
# inverted.

# %%
transpose = invert([5 * Mod(k, 3) + floor(k / 3)], {k: (0, 15)}, [15])
(s,) = transpose.elements
assert transpose.gathers[0].solution == {k: 3 * Mod(s, 5) + floor(s / 5)}
transpose.check()
transpose

# %% [markdown]
# ## Wrap-around
#
# A row of 13 goes around a ring of 5. An element has two points or three, and each round is a gather.

# %%
wrap = invert([Mod(x + 2, 5)], {x: (0, 13)}, [5])
wrap.check()
wrap

# %% [markdown]
# ## Clamp
#
# Points that would leave the array pile up at its edges. Each edge is a sum of its own, and elements in between have
# one point each. An array of one element has both edges there, so that case is told apart.

# %%
clamp = invert([Min(Max(x - 2, 0), n - 1)], {x: (0, n + 4)}, [n])
clamp.check()
clamp

# %% [markdown]
# ## Skew
#
# `f(x + y, x - y)` reaches every other element, like the bishops of one color. That the sum of the indices must have
# the right parity is a condition that elimination over the rationals would not see; over the integers it comes out by
# itself.

# %%
skew = invert([x + y, x - y + 3], {x: (0, 4), y: (0, 4)}, [7, 7])
assert any(g.has(Mod) for g in skew.gathers[0].guards)
skew.check()
skew

# %% [markdown]
# ## Pixel shuffle
#
# Four channels become the four pixels of a block: floors and remainders of three axes in three indices.

# %%
shuffle = invert(
    [4 * c + 2 * Mod(h, 2) + Mod(w, 2), floor(h / 2), floor(w / 2)],
    {c: (0, 2), h: (0, 4), w: (0, 4)},
    [8, 2, 2],
)
assert not any(g.loops or g.guards for g in shuffle.gathers)
shuffle.check()
shuffle

# %% [markdown]
# ## A space-filling order
#
# Morton's curve takes the bits of k in turn for the row and the column, so that near places of the memory are near in
# the image. Its inverse puts the bits back.


# %%
def bit(e, position):
    return Mod(floor(e / 2**position), 2)


row = sum(2**b * bit(k, 2 * b + 1) for b in range(3))
column = sum(2**b * bit(k, 2 * b) for b in range(3))
morton = invert([row, column], {k: (0, 64)}, [8, 8])
assert not any(g.loops or g.guards for g in morton.gathers)
morton.check()
morton

# %% [markdown]
# ## Conditions
#
# A point may have to satisfy relations, joined by And, Or and Not; an index may choose by them. Lines that turn back
# at the end of each row, as a plow does:

# %%
plow = invert(
    [i, Piecewise((j, Ne(Mod(i, 2), 1)), (4 - j, True))],
    {i: (0, 4), j: (0, 5)},
    [4, 5],
    where=[i + j >= 2],
)
plow.check()
plow

# %% [markdown]
# ## What stays a scatter
#
# An index that is read from data has no inverse before the data is known. The answer says which dimension and why;
# along the others it still gathers.

# %%
rows = IndexedBase("rows")
lookup = invert([rows[k], j], {k: (0, n), j: (0, 3)}, [5, 3])
(row,) = lookup.opaque
assert row.dimension == 0
print(row)
lookup

# %% [markdown]
# ## The answer as a program
#
# `code` is what `check` runs: Python that can be read, kept or pasted. Here it is held against NumPy's own scatter.

# %%
space = {}
exec(stride.code(), space)
values = np.arange(20.0).reshape(5, 4)
expected = np.zeros(12)
np.add.at(expected, 2 * np.arange(5)[:, None] + np.arange(4), values)
np.testing.assert_array_equal(space["gather"](values), expected)
print(stride.code())

# %% [markdown]
# ## The same object in a gradient
#
# Every read of a program that became a gather carries its inversion, with axes and extents under the names of the
# program.

# %%
size = te.var("n")
image = te.placeholder((2 * size + 1,), "float64", name="image")
kernel = te.placeholder((3,), "float64", name="kernel")
smooth = te.compute(
    (size,), lambda i: te.sum(lambda p: image[2 * i + p] * kernel[p]), name="smooth"
)
gradients = te.differentiate((smooth * smooth).sum(), [image])
(found,) = [g.inversion for g in gradients.explain().gathers if g.source is image]
assert Symbol("p", integer=True) in found.domain
assert found.check().points
found
