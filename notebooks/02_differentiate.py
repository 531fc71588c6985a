# %% [markdown]
# # Differentiate: adjoints, heads, overrides
#
# `te.differentiate(loss, inputs)` answers with tensors of the same language: they can be read, scheduled, compiled
# and differentiated again.

# %%
import matplotlib.pyplot as plt
import numpy as np

import tedsl as te

x = te.placeholder((6, 8), "float64", name="x")
w = te.placeholder((8, 4), "float64", name="w")
b = te.placeholder((4,), "float64", name="b")
hidden = te.compute((6, 4), lambda i, j: te.sum(lambda k: x[i, k] * w[k, j]), name="hidden")
active = te.compute((6, 4), lambda i, j: te.tanh(hidden[i, j] + b[j]), name="active")
loss = te.compute((), lambda: te.sum(lambda i, j: active[i, j] ** 2), name="loss")
loss

# %%
gradients = te.differentiate(loss, [x, w, b])
dx, dw, db = gradients
gradients

# %% [markdown]
# Every read of the program was turned around on its own: that of `w[k, j]` in `hidden` became a sum over `i`, with no
# Jacobian in between. The table is also there as data.

# %%
explanation = gradients.explain()
assert len(explanation.gathers) == len(explanation.reads)
assert explanation.scatters == []
print(explanation)

# %% [markdown]
# ## Compared with differences
#
# `te.gradcheck` moves every element of every input a little, and compares what the loss does with its adjoint. The
# plot shows the worst element of each input: left of the dashed line is within the tolerance.

# %% tags=["machine"]
report = te.gradcheck(loss, [x, w, b])
assert report.ok
report

# %%
te.display.plot.gradcheck_errors(report)
plt.show()

# %% [markdown]
# ## One kernel for all
#
# The loss and its gradients share the forward stages when they are built together.

# %%
rng = np.random.default_rng(0)
feeds = {x: rng.normal(size=(6, 8)), w: rng.normal(size=(8, 4)), b: rng.normal(size=4)}
kernel = te.build([x, w, b], [loss, dx, dw, db])
value, *found = kernel(*feeds.values())
a = np.tanh(feeds[x] @ feeds[w] + feeds[b])
slope = 2 * a * (1 - a**2)
np.testing.assert_allclose(value, (a**2).sum())
np.testing.assert_allclose(found[0], slope @ feeds[w].T)
np.testing.assert_allclose(found[1], feeds[x].T @ slope)
np.testing.assert_allclose(found[2], slope.sum(0))

# %% [markdown]
# ## Heads
#
# A head is the adjoint of an output, as later parts of a program would send it back. With a `head` of the shape of
# `active`, the answer is a vector times the Jacobian. Without one, for an output that is not a scalar, the answer is
# the Jacobian itself.

# %%
head = te.placeholder((6, 4), "float64", name="head")
pulled = te.differentiate(active, b, head=head)
jacobian = te.differentiate(active, b)
assert jacobian.shape == (6, 4, 4)
ones = np.ones((6, 4))
np.testing.assert_allclose(
    te.interpret(pulled, {**feeds, head: ones}),
    np.einsum("ij,ijk->k", ones, te.interpret(jacobian, feeds)),
)

# %% [markdown]
# Most of a Jacobian is zero: a row of `hidden` depends on the same row of `x` alone. That is why none is formed where
# only a product with it is wanted.

# %%
full = te.interpret(te.differentiate(hidden, x), feeds)
assert np.count_nonzero(full) == full.size // 6
te.display.plot.jacobian_sparsity(hidden, x, feeds)
plt.show()

# %% [markdown]
# `te.jvp` goes the other way, `te.hvp` is the Hessian times a vector. Forward and reverse derivatives are products
# with one linear map J: ⟨h, J v⟩ = ⟨Jᵀh, v⟩ for every head h and every tangent v.

# %%
v = te.placeholder((4,), "float64", name="v")
pushed = te.jvp(active, b, v)
feeds |= {head: rng.normal(size=(6, 4)), v: rng.normal(size=4)}
left = float(np.vdot(feeds[head], te.interpret(pushed, feeds)))
right = float(np.vdot(te.interpret(pulled, feeds), feeds[v]))
assert abs(left - right) < 1e-12
twice = te.hvp(loss, b, v)
step = 1e-6
ahead, behind = (te.interpret(db, {**feeds, b: feeds[b] + s * feeds[v]}) for s in (step, -step))
np.testing.assert_allclose(te.interpret(twice, feeds), (ahead - behind) / (2 * step), rtol=1e-6)

# %% [markdown]
# ## Overrides
#
# A rule of your own replaces that of a tensor. The derivative of rounding is zero. To train through it, use that of the
# identity (a straight-through estimator).

# %%
q = te.compute((6, 8), lambda i, j: te.round(x[i, j] * 4) / 4, name="q")
error = ((q @ w) ** 2).sum()
as_it_is = te.differentiate(error, [x])
assert not te.interpret(as_it_is[0], feeds).any()
straight = te.differentiate(error, [x], override={q: lambda q, inputs, head: [head]})
np.testing.assert_allclose(
    te.interpret(straight[0], feeds),
    2 * (np.round(feeds[x] * 4) / 4 @ feeds[w]) @ feeds[w].T,
    rtol=1e-10,
)
straight
