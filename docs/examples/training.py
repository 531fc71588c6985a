# %%
import tempfile
from pathlib import Path

import numpy as np

import tedsl as te
from tedsl.ops import optim

x = np.linspace(-1, 1, 8, dtype="float32")
y = 3 * x + 1


def loss(p, x, y):
    return te.ops.mse_loss(p["slope"] * x + p["offset"], y)


# %% te.ops.optim.train_step te.ops.optim.FunctionStep te.ops.optim.FunctionStep.start te.ops.optim.Adam
step = optim.train_step(loss, optimizer=optim.Adam(0.1))
state = step.start({"slope": 0.0, "offset": 0.0})
for _ in range(200):
    value, state = step(state, x, y)
print({name: round(float(array), 2) for name, array in state.params.items()})

# %% te.ops.optim.FunctionStep.explain
step = optim.train_step(loss, optimizer=optim.SGD(0.1))
step(step.start({"slope": 0.0, "offset": 0.0}), x, y)
print(str(step.explain()).splitlines()[0])

# %% te.ops.optim.State te.ops.optim.State.copy
step = optim.train_step(loss, optimizer=optim.SGD(0.1))
value, state = step(step.start({"slope": 0.0, "offset": 0.0}), x, y)
best = state.copy()  # in arrays of its own
best.steps

# %% te.ops.optim.SGD te.ops.optim.TrainStep te.ops.optim.TrainStep.start
w, a, b = (
    te.placeholder((), name="w"),
    te.placeholder((8,), name="a"),
    te.placeholder((8,), name="b"),
)
compiled = optim.train_step(
    te.ops.mse_loss(w[()] * a, b), [w], [a, b], optim.SGD(0.1, momentum=0.9)
)
value, first = compiled(compiled.start([0.0]), x, y)
first.params


# %% te.ops.optim.Optimizer
class SignDescent:
    """Steps of one length along the signs of a running mean, as of Lion."""

    slots = ("mean",)

    def step(self, param, grad, slots, count):
        mean = 0.9 * slots[0] + 0.1 * grad
        return param - 0.01 * te.sign(mean), mean


step = optim.train_step(loss, optimizer=SignDescent())
state = step.start({"slope": 0.0, "offset": 0.0})
for _ in range(400):
    value, state = step(state, x, y)
print({name: round(float(array), 1) for name, array in state.params.items()})

# %% te.ops.optim.Adam.init te.ops.optim.Adam.update
adam = optim.Adam(0.1)  # of gradients that come from elsewhere
params = {"slope": np.zeros(2, "float32")}
kept = adam.init(params)
params, kept = adam.update(params, {"slope": np.float32([1, -2])}, kept)
params["slope"], int(kept["count"])

# %% te.ops.optim.Adam.slots te.ops.optim.Adam.step
p, g = te.placeholder((2,), name="p"), te.placeholder((2,), name="g")
adam, count, zero = optim.Adam(0.1), te.constant(1), te.zeros((2,))
new, mean, square = adam.step(p, g, [zero, zero], count)  # on tensors
adam.slots, te.evaluate(new, {p: np.float32([1, 1]), g: np.float32([1, -2])})

# %% te.ops.optim.SGD.init te.ops.optim.SGD.update
sgd = optim.SGD(0.1, momentum=0.9)
params = [np.ones(2, "float32")]
params, kept = sgd.update(params, [np.float32([1, -2])], sgd.init(params))
params[0]

# %% te.ops.optim.SGD.slots te.ops.optim.SGD.step
p, g = te.placeholder((2,), name="p"), te.placeholder((2,), name="g")
sgd, count = optim.SGD(0.1, momentum=0.9), te.constant(1)
new, velocity = sgd.step(p, g, [te.zeros((2,))], count)  # on tensors
sgd.slots, te.evaluate(new, {p: np.float32([1, 1]), g: np.float32([1, -2])})

# %% te.ops.optim.AdamW
optim.AdamW(0.01, weight_decay=0.1)

# %% te.ops.optim.sgd_step
optim.sgd_step(np.ones(2, "float32"), np.array([1, -1], "float32"), lr=0.1)

# %% te.ops.optim.momentum_step
optim.momentum_step(
    np.ones(2, "float32"), np.array([1, -1], "float32"), np.zeros(2, "float32"), lr=0.1
)

# %% te.ops.optim.adam_step
zeros = np.zeros(2, "float32")
new, *_ = optim.adam_step(
    zeros + 1, np.array([1, -2], "float32"), zeros, zeros, np.array(1, "int32"), lr=0.1
)
new

# %% te.ops.optim.clip_by_global_norm
g = te.placeholder((2,), name="g")
(clipped,) = optim.clip_by_global_norm([g], 1.0)
te.evaluate(clipped, {g: np.array([3, 4], "float32")})

# %% te.save te.load
path = Path(tempfile.mkdtemp()) / "line.npz"  # or .safetensors
te.save(path, {"slope": np.float32(3.0), "layers": [np.zeros(2), np.ones(3)]})
te.load(path)

# %% te.display.progress te.display.WatchedLoop te.display.WatchedLoop.show
step = optim.train_step(loss, optimizer=optim.SGD(0.1))
state = step.start({"slope": 0.0, "offset": 0.0})
for _ in (bar := te.display.progress(3)):
    value, state = step(state, x, y)
    bar.show(loss=value)
print(bar)
