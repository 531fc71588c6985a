# %%
import matplotlib as mpl
import numpy as np

import tedsl as te

mpl.use("Agg")
x = te.placeholder((4,), "float64", name="x")
y = te.tanh(x)

# %% te.display.html te.display.Shown
len(te.display.html(y)) > 0

# %% te.display.latex
print(te.display.latex(y))

# %% te.display.program
te.display.program(y)

# %% te.display.graph
te.display.graph(te.differentiate(y.sum(), [x]))


# %% te.display.slider te.display.Slider
def split(factor):
    schedule = te.Schedule(y)
    schedule[y].split("i", factor)
    return schedule


te.display.slider(split, [2, 4], name="factor")

# %% te.display.trace te.display.ScheduleTrace
tiles = te.Schedule(y)
tiles[y].split("i", 2)
tiles[y].vectorize("ii")
te.display.trace(tiles)

# %% te.display.tuning te.display.WatchedTuning
a = te.placeholder((64, 64), name="a")
te.tune(a @ a, budget=2, progress=(search := te.display.tuning()))
print(len(search.seconds) > 1)

# %% te.display.WatchedTuning.plot
a = te.placeholder((64, 64), name="a")
te.tune(a @ a, budget=2, progress=(search := te.display.tuning()))
search.plot()

# %% te.display.plot.gradcheck_errors
te.display.plot.gradcheck_errors(te.gradcheck(y.sum(), x))

# %% te.display.plot.roofline
te.display.plot.roofline({"tanh": (y, 1e-6)}, peak_flops=1e11, bandwidth=1e10)

# %% te.display.plot.tuning_history
te.display.plot.tuning_history([0.003, 0.002, 0.0025])

# %% te.display.plot.benchmark_table
times = {"blur": {"tedsl": 0.001, "NumPy": 0.004}, "sum": {"tedsl": 0.003, "NumPy": 0.002}}
te.display.plot.benchmark_table(times)

# %% te.display.plot.jacobian_sparsity
te.display.plot.jacobian_sparsity(y, x, {x: np.ones(4)})

# %% te.display.plot.index_map
te.display.plot.index_map([(i, 2 * i + k) for i in range(3) for k in range(2)])

# %% te.display.WatchedLoop.plot
for k in (bar := te.display.progress(3)):
    bar.show(loss=1 / (k + 1))
print(bar.plot(yscale="log").get_yscale())
