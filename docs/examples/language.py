# %%
import numpy as np

import tedsl as te

a = np.array([[3, 1, 2], [4, 6, 5]], "float32")
x = te.placeholder((2, 3), name="x")

# %% te.placeholder
te.placeholder((2, 3), "float64", name="x")

# %% te.compute te.Tensor
y = te.compute((2, 3), lambda i, j: x[i, j] * 2 + i, name="y")
te.evaluate(y, {x: a})

# %% te.sum
te.evaluate(te.compute((2,), lambda i: te.sum(lambda j: x[i, j])), {x: a})

# %% te.prod
te.evaluate(te.compute((2,), lambda i: te.prod(lambda j: x[i, j])), {x: a})

# %% te.max
te.evaluate(te.compute((2,), lambda i: te.max(lambda j: x[i, j])), {x: a})

# %% te.min
te.evaluate(te.compute((2,), lambda i: te.min(lambda j: x[i, j])), {x: a})

# %% te.any
te.evaluate(te.compute((2,), lambda i: te.any(lambda j: x[i, j] > 3)), {x: a})

# %% te.all
te.evaluate(te.compute((2,), lambda i: te.all(lambda j: x[i, j] > 3)), {x: a})

# %% te.argmax
te.evaluate(te.compute((2,), lambda i: te.argmax(lambda j: x[i, j])), {x: a})

# %% te.argmin
te.evaluate(te.compute((2,), lambda i: te.argmin(lambda j: x[i, j])), {x: a})

# %% te.reduce_axis te.Axis
k = te.reduce_axis((1, 3), name="k")  # from 1 up to, not including, 3
te.evaluate(te.compute((2,), lambda i: te.sum(x[i, k], axis=k)), {x: a})

# %% te.reducer
longest = te.reducer(lambda p, q: te.maximum(p, q), 0.0)
k = te.reduce_axis(3)
te.evaluate(te.compute((2,), lambda i: longest(te.abs(x[i, k]), axis=k)), {x: a})

# %% te.scan
total = te.scan((2, 3), lambda s, t, j: te.select(t == 0, x[0, j], s[t - 1, j] + x[t, j]))
te.evaluate(total, {x: a})


def centered(row, mean, t):  # states of their own shapes, and a stage of the step
    before = te.where(t == 0, 0.0, row[t - 1]) + x[t]
    return before - before.sum() / 3, before.sum() / 3


row, mean = te.scan([(2, 3), (2,)], centered)
te.evaluate([row, mean], {x: a})

# %% te.scatter
r = te.reduce_axis(10, name="r")
te.evaluate(te.scatter((3,), [r], (r % 3,), te.const(1)), {})  # how often each remainder occurs

# %% te.constant
taps = te.constant(np.array([1, 2, 1], "float32"), name="taps")
te.evaluate(te.compute((2,), lambda i: te.sum(lambda j: x[i, j] * taps[j])), {x: a})

# %% te.var
n = te.var("n")
rows = te.placeholder((n, 3), name="rows")
kernel = te.build(rows, rows * 2)
kernel(a).shape, kernel(np.ones((7, 3), "float32")).shape  # compiled once

# %% te.extern
swapped = te.extern(lambda array: array[::-1].copy(), (2, 3), "float32", [x])
te.evaluate(swapped, {x: a})

# %% te.assume
order = te.placeholder((2,), "int32", name="order")
known = te.assume(order, permutation=True)
moved = te.compute((2, 3), lambda i, j: x[known[i], j])
te.differentiate(moved.sum(), [x]).explain().scatters  # none: the permutation is inverted

# %% te.index_map
power = te.index_map(lambda i: i * 5 % 31, inverse=lambda s: s * 25 % 31)
z = te.placeholder((31,), name="z")
te.differentiate(te.compute((31,), lambda i: z[power(i)]).sum(), [z]).explain().scatters

# %% te.Expr
i = te.reduce_axis(4, "i")
(i + 1) * 2

# %% te.Tensor.name te.Tensor.shape te.Tensor.ndim
y = x * 2
print(y.name, y.shape, y.ndim)

# %% te.Tensor.named
print((x * 2).named("double"))

# %% te.Tensor.at
te.evaluate(te.compute((2, 3), lambda i, j: x.at(i, j - 1, mode="reflect")), {x: a})
te.evaluate(x.at[0, ::2].set(7.0), {x: a})

# %% te.Tensor.as_scalar
mean = x.mean()
te.evaluate(te.compute((2, 3), lambda i, j: x[i, j] - mean.as_scalar()), {x: a})

# %% te.Tensor.T te.Tensor.transpose
te.evaluate(x.T, {x: a})

# %% te.Tensor.reshape
te.evaluate(x.reshape(3, 2), {x: a})

# %% te.Tensor.astype
te.evaluate(x.astype("int32"), {x: a})

# %% te.Tensor.sum
te.evaluate(x.sum(0), {x: a})

# %% te.Tensor.mean
te.evaluate(x.mean(1, keepdims=True), {x: a})

# %% te.Tensor.max
te.evaluate(x.max(1), {x: a})

# %% te.Tensor.min
te.evaluate(x.min(1), {x: a})

# %% te.Tensor.prod
te.evaluate(x.prod(1), {x: a})
