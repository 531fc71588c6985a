# %% [markdown]
# # A custom operator in PyTorch and JAX
#
# One definition, called on NumPy arrays, on PyTorch tensors with autograd, and on JAX arrays under `grad`.

# %%
import numpy as np

import tedsl as te

# %% [markdown]
# A soft threshold with a learned slope for each channel. A framework makes several passes over the array; here it is
# one. Arguments that are arrays become tensors inside the function; all other arguments are static.


# %%
@te.op
def shrink(x, slope, threshold=0.5):
    """Pull values toward 0 by `threshold`; beyond, the slope of their channel."""
    return te.compute(
        x.shape,
        lambda n, c: te.select(
            te.abs(x[n, c]) > threshold,
            slope[c] * (x[n, c] - threshold * te.sign(x[n, c])),
            0.0,
        ),
        name="shrink",
    )


rng = np.random.default_rng(0)
values, slopes = rng.normal(size=(6, 3)).astype("float32"), np.array([1.0, 0.5, 2.0], "float32")
by_numpy = np.where(abs(values) > 0.5, slopes * (values - 0.5 * np.sign(values)), 0)
np.testing.assert_allclose(shrink(values, slopes), by_numpy, rtol=1e-6)

# %% [markdown]
# Called on tensors of the language, the operator becomes part of the program that it stands in.

# %%
x = te.placeholder((6, 3), "float64", name="x")
slope = te.placeholder((3,), "float64", name="slope")
shrink(x, slope)

# %% [markdown]
# ## Before anything depends on it
#
# `check_op` recognizes the kink at the threshold. Everywhere else it compares the gradient with finite differences, and
# the compiled result with the reference.

# %%
report = te.testing.check_op(shrink, "n c", "c", examples=30)
assert report.ok
report

# %% [markdown]
# ## PyTorch
#
# The gradient is registered: `backward` runs compiled kernels over the memory of the tensors.

# %%
import torch

tx = torch.tensor(values, requires_grad=True)
ts = torch.tensor(slopes, requires_grad=True)
out = shrink(tx, ts)
out.square().sum().backward()


def in_torch(x, slope):
    return torch.where(x.abs() > 0.5, slope * (x - 0.5 * x.sign()), 0.0)


ux, us = torch.tensor(values, requires_grad=True), torch.tensor(slopes, requires_grad=True)
in_torch(ux, us).square().sum().backward()
torch.testing.assert_close(out.detach(), in_torch(ux, us).detach())
torch.testing.assert_close(tx.grad, ux.grad)
torch.testing.assert_close(ts.grad, us.grad)

# %% [markdown]
# PyTorch's own checker agrees, in float64.

# %%
away = rng.normal(size=(4, 3))
away = torch.tensor(np.where(abs(abs(away) - 0.5) < 0.05, 1.0, away), requires_grad=True)
assert torch.autograd.gradcheck(
    shrink, (away, torch.tensor(slopes, dtype=torch.float64, requires_grad=True))
)

# %% [markdown]
# ## JAX
#
# The same operator under `jax.grad`.

# %%
import jax
import jax.numpy as jnp


def loss(x, slope):
    return (shrink(x, slope) ** 2).sum()


jx, js = jax.grad(loss, argnums=(0, 1))(jnp.asarray(values), jnp.asarray(slopes))
np.testing.assert_allclose(jx, ux.grad, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(js, us.grad, rtol=1e-5)

# %% [markdown]
# ## A rule of your own
#
# To train through a threshold, a gradient is needed inside it as well. `def_vjp` gives one. The definition stays as it
# is, and the checker says that the rule is not its derivative.


# %%
@te.op
def leaky(x, threshold=0.5):
    return te.compute(
        x.shape, lambda i: te.select(te.abs(x[i]) > threshold, x[i], 0.0), name="leaky"
    )


leaky.def_vjp(lambda output, inputs, head: [head])
through = torch.full((4,), 0.1, requires_grad=True)
leaky(through).sum().backward()
assert (through.grad == 1).all()
wrong = te.testing.check_op(leaky, "n", raise_exception=False)
assert wrong.failure.check == "gradient"
wrong.failure.gradients
