# %%
import numpy as np

import tedsl as te

x = te.placeholder((3,), "float64", name="x")
a = np.array([0.5, 1.0, 2.0])
loss = (x * x * x).sum()

# %% te.differentiate
dx = te.differentiate(loss, x)
te.evaluate(dx, {x: a})

# %% te.Tensor.explain
te.differentiate(loss, x).explain()

# %% te.jvp
te.evaluate(
    te.jvp(loss, x, te.constant(np.array([1.0, 0.0, 0.0]))), {x: a}
)  # the slope along the first element
te.jvp(
    lambda x: te.exp(x), (a,), (np.ones(3),)
)  # of a function of arrays: its result, and the derivative of that

# %% te.hvp
te.evaluate(te.hvp(loss, x, te.constant(np.ones(3))), {x: a})
te.hvp(lambda x: (x**3).sum(), a, np.ones(3))  # of a function of arrays

# %% te.gradcheck
te.gradcheck(loss, x)

# %% te.grad
te.grad(lambda x: (x**3).sum())(a)

# %% te.value_and_grad
te.value_and_grad(lambda params: (params["w"] * params["b"]).sum())({"w": a, "b": np.ones(3)})

# %% te.jacobian
te.jacobian(lambda x: x * x)(a)

# %% te.hessian
te.hessian(lambda x: (x**3).sum())(a)

# %% te.vmap
te.vmap(lambda row: row / row.sum())(np.array([[1.0, 3.0], [2.0, 2.0]]))

# %% te.jit
te.jit(lambda x, y: te.tanh(x) @ y)(a, a)


# %% te.op
@te.op
def swish(x, beta=1.0):
    return te.compute(x.shape, lambda i: x[i] * te.sigmoid(beta * x[i]))


swish(a, beta=2.0)

# %% te.GradientError
try:
    te.differentiate(te.extern(np.sin, (3,), "float64", [x]), x)
except te.GradientError as error:
    print(error)
