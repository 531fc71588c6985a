# %%
import numpy as np

import tedsl as te

x = te.placeholder((4,), name="x")
y = te.exp(x) + 1
a = np.array([0, 1, 2, 3], "float32")

# %% te.build
kernel = te.build(x, y)
kernel(a)

# %% te.evaluate
te.evaluate(y, {x: a})  # builds, remembers the kernel, calls it

# %% te.interpret
te.interpret(
    y, {x: a}
)  # the definition itself, in NumPy: slow, and what kernels are compared with

# %% te.get_num_threads te.set_num_threads
before = te.get_num_threads()
te.set_num_threads(1)
print(te.get_num_threads())
te.set_num_threads(before)

# %% te.profile
kernel = te.build(x, y)
with te.profile() as p:
    kernel(a)
print([(row.kernel, row.calls) for row in p.rows()])

# %% te.free_memory
te.free_memory()  # what kernels keep for later calls
print("freed")

# %% te.free_device_memory
te.free_device_memory()  # the same on a GPU
print("freed")

# %% te.work te.Work
te.work(y)

# %% te.checked
order = te.placeholder((3,), "int32", name="order")
z = te.compute((3,), lambda i: x[te.assume(order, permutation=True)[i]])
with te.checked():
    try:
        te.evaluate(z, {x: a, order: np.array([0, 0, 1], "int32")})
    except ValueError as error:
        print(error)

# %% te.copy
te.copy(a) is a

# %% te.may_alias
te.may_alias(a[0::2], a[1::2]), te.may_alias(a[1:], a[:-1])


# %% te.functionalize
def shift(array):
    array[1:] += array[:-1]
    return array


te.functionalize(shift)(a.copy())

# %% te.AliasError
try:
    backward = te.compute((4,), lambda i: x[3 - i], name="backward")
    te.build(x, backward, alias={backward: x})
except te.AliasError as error:
    print(error)

# %% te.ScheduleError
s = te.Schedule(y)
try:
    s[y].vectorize("q")
except te.ScheduleError as error:
    print(error)
