# %% [markdown]
# # What the compiler did
#
# From the expression to machine code, one step after another, each of which can be looked at.

# %%
import numpy as np

import tedsl as te
from tedsl.lang.structure import same_program

n = te.var("n")
x = te.placeholder((n, 16), name="x")
w = te.placeholder((16,), name="w")
score = te.compute((n,), lambda i: te.tanh(te.sum(lambda k: x[i, k] * w[k]) + 1), name="score")

# %% [markdown]
# ## Expressions are shared nodes
#
# Equal expressions are one object, so that a pass visits each once. Printed, they are Python that builds them again.

# %%
i = te.reduce_axis(4, "i")
assert (i + 1) * 2 is (i + 1) * 2
assert str((i + 1) * 2) == "(i + 1) * 2"
print(x[i, 3] * w[i] + 1)

# %% [markdown]
# ## Stages
#
# A reduction inside an expression becomes a stage of its own: every body is then pointwise, one reduction, a scatter
# or a scan.

# %%
program = te.display.program(score)
assert "score_sum" in repr(program)
program

# %% [markdown]
# Two programs are the same when they compute the same in the same way, whatever their objects are called. That is how
# an operator is checked: its function is traced twice, and refused if the two programs differ.

# %%
again = te.compute((n,), lambda i: te.tanh(te.sum(lambda k: x[i, k] * w[k]) + 1), name="other")
other = te.compute((n,), lambda i: te.tanh(te.sum(lambda k: x[i, k] * w[k]) + 2), name="score")
assert same_program(score, again)
assert not same_program(score, other)

# %% [markdown]
# ## Adjoints
#
# The gradient is a program like any other, with the same four kinds of stages.

# %%
gradients = te.differentiate(score.sum(), [w])
te.display.program(gradients[0])

# %% [markdown]
# ## Loops
#
# Without a schedule the program gets one by pattern. These are the loops of the score and its gradient, in the order in
# which they run.

# %%
kernel = te.build([x, w], [score, gradients[0]])
kernel

# %% [markdown]
# ## Code
#
# Halide's intermediate form, and the machine's. A register named `ymm` is a vector of eight floats. Long lines are cut
# here.

# %% tags=["machine"]
statements = kernel.source("stmt").splitlines()
assembly = kernel.source("asm").splitlines()
start = next(k for k, line in enumerate(statements) if line.startswith("for "))
product = next(k for k, line in enumerate(assembly) if "vfmadd" in line)


def excerpt(title, lines, place):
    print(f"{title}, lines {place + 1} to {place + 6} of {len(lines)}:")
    print(*(line.expandtabs(8)[:92] for line in lines[place : place + 6]), "", sep="\n")


excerpt("statements", statements, start)
excerpt("assembly", assembly, product - 3)
assert any("produce" in line for line in statements)

# %% [markdown]
# ## Calls
#
# A kernel is called on any extents without compiling again. `stats` says what compiling took, and what the last call
# copied and allocated.

# %%
rng = np.random.default_rng(0)
weights = rng.random(16, dtype="float32")
before = kernel.stats.compile_ms
for rows in (1, 7, 1000):
    data = rng.random((rows, 16), dtype="float32")
    found, slope = kernel(data, weights)
    value = np.tanh(data @ weights + 1)
    np.testing.assert_allclose(found, value, rtol=1e-5)
    np.testing.assert_allclose(slope, (1 - value**2) @ data, rtol=1e-3, atol=1e-4)
assert kernel.stats.compile_ms == before
assert kernel.stats.copies == []

# %% [markdown]
# Arrays need not be contiguous: some columns, every second row and a reversed array are read where they lie. If the
# innermost stride is not one, the kernel is compiled once more, for all such arrays.

# %%
wide = rng.random((40, 32), dtype="float32")
for view in (wide[:, :16], wide[::2, 16:], wide[::-1, :16]):
    found, _ = kernel(view, weights)
    np.testing.assert_allclose(found, np.tanh(view @ weights + 1), rtol=1e-5)
    assert kernel.stats.copies == []

# %% [markdown]
# ## Bounds
#
# An index that leaves a tensor is reported when the kernel is built, where that can be proven, and else when it is
# called. Memory outside the tensor is never read.

# %%
try:
    te.build(w, te.compute((16,), lambda i: w[i + 1], name="beyond"))
except IndexError as error:
    beyond = str(error)
    print(beyond)
assert "16" in beyond

index = te.placeholder((4,), "int32", name="index")
picked = te.build([w, index], te.compute((4,), lambda i: w[index[i]], name="picked"))
np.testing.assert_array_equal(
    picked(weights, np.array([0, 3, 5, 15], np.int32)), weights[[0, 3, 5, 15]]
)
try:
    picked(weights, np.array([0, 3, 5, 16], np.int32))
except IndexError as error:
    outside = str(error)
    print(outside)
assert "picked" in outside
