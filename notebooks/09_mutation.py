# %% [markdown]
# # Mutation, at the edges only
#
# Inside a program tensors are values. Users write into memory all the same: gradients are accumulated, buffers
# reused, code updates its arguments in place. Each of these has one place at the edge of a program, and a proof or a
# copy behind it.

# %%
import numpy as np

import tedsl as te

rng = np.random.default_rng(0)

# %% [markdown]
# ## Accumulate into an output
#
# Frameworks add gradients into a buffer that is already there. The definition stays pure; the call says what happens
# to its result: `write`, `add`, or `null` for an output that is not wanted.

# %%
x = te.placeholder((64, 32), name="x")
w = te.placeholder((32, 16), name="w")
loss = (te.tanh(x @ w) ** 2).sum()
dx, dw = te.differentiate(loss, [x, w])
kernel = te.build([x, w], [dx, dw])

arrays = rng.random((64, 32), dtype="float32"), rng.random((32, 16), dtype="float32")
once = kernel(*arrays)
total = [np.ones_like(a) for a in once]
kernel(*arrays, out=total, mode="add")
for buffer, gradient in zip(total, once, strict=True):
    np.testing.assert_allclose(buffer, 1 + gradient, rtol=1e-5)

names = [t.name for t in kernel.outputs]
only_w = np.zeros_like(once[1])
kernel(*arrays, out={names[1]: only_w}, mode={names[0]: "null"})
np.testing.assert_array_equal(only_w, once[1])

# %% [markdown]
# ## An output on the memory of an input
#
# `alias=` writes an output over an input. It is proven that every element is read before it is written; where that
# does not hold, the build says so.

# %%
old = te.placeholder((100,), name="old")
step = te.placeholder((100,), name="step")
new = te.compute((100,), lambda i: old[i] - 0.5 * step[i], name="new")
update = te.build([old, step], new, alias={new: old})
weights, moves = rng.random(100, dtype="float32"), rng.random(100, dtype="float32")
expected = weights - 0.5 * moves
result = update(weights, moves)
assert result is weights
np.testing.assert_allclose(weights, expected, rtol=1e-6)

# %% [markdown]
# A kernel called with an `out=` that overlaps an input computes what it would on memory of its own; the copy that
# this takes is counted.

# %%
mirrored = te.build(old, te.compute((100,), lambda i: old[99 - i], name="mirrored"))
memory = rng.random(100, dtype="float32")
expected = memory[::-1].copy()
mirrored(memory, out=memory)
np.testing.assert_array_equal(memory, expected)
print(mirrored.stats.copies or f"{mirrored.stats.temporaries} temporaries")

# %% [markdown]
# ## Do two arrays share memory?
#
# The question is decided exactly: interleaved slices do not meet, though their ranges of bytes do.

# %%
base = np.arange(12.0)
assert te.may_alias(base, base[3:])
assert not te.may_alias(base[::2], base[1::2])
assert te.may_alias(base[::3], base[::2])
assert not te.may_alias(te.copy(base), base)

# %% [markdown]
# ## Code that mutates, made pure
#
# `te.functionalize` traces in-place code. What was mutated comes back as an extra output and is written back into the
# arguments after the kernel ran. Here `y` is a new value before it is written to, so nobody's argument changes.


# %%
def slices(x, y):
    y = y + 3
    y[:, 0] = x[:, 0]
    return y


a, b = np.arange(12.0).reshape(3, 4), np.zeros((3, 4))
found = te.functionalize(slices)(a, b)
np.testing.assert_array_equal(found, slices(a, b))
assert not b.any()

# %% [markdown]
# An argument that is mutated is updated, and one that is returned comes back as the caller's own object.


# %%
def relu(x):
    x.relu_()
    return x


values = np.array([-1.0, 2.0, -3.0])
assert te.functionalize(relu)(values) is values
np.testing.assert_array_equal(values, [0, 2, 0])

# %% [markdown]
# The pure form is an ordinary program: `mutated` says what each input becomes, `copies` what had to be copied and
# why. It can be differentiated.


# %%
def smooth(x, rate):
    x[1:-1] += rate * (x[:-2] - 2 * x[1:-1] + x[2:])
    return (x * x).sum()


signal = te.placeholder((8,), "float64", name="signal")
rate = te.placeholder((), "float64", name="rate")
pure = te.functionalize(smooth).trace(signal, rate)
(energy,) = pure.outputs
print(pure.mutated[signal])
report = te.gradcheck(energy, [signal, rate])
assert report.ok
te.display.program(energy)

# %% [markdown]
# ## Arguments that overlap
#
# `f(a, a[1:])` gives what the code itself would give, and nothing is silently wrong.


# %%
def shifted(x, y):
    x += 1
    y *= 2


plain, traced = np.arange(5.0), np.arange(5.0)
shifted(plain[:-1], plain[1:])
te.functionalize(shifted)(traced[:-1], traced[1:])
np.testing.assert_array_equal(traced, plain)
plain
