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


print(te.display.slider(split, [2, 4], name="factor"))

# %% te.display.trace te.display.ScheduleTrace
tiles = te.Schedule(y)
tiles[y].split("i", 2)
tiles[y].vectorize("ii")
print(te.display.trace(tiles))

# %% te.display.tuning te.display.WatchedTuning
te.tune(y, budget=1, progress=(search := te.display.tuning()))
print(len(search.seconds) > 0)

# %% te.display.plot.gradcheck_errors
te.display.plot.gradcheck_errors(te.gradcheck(y.sum(), x)).get_xlabel()

# %% te.display.plot.roofline
te.display.plot.roofline({"tanh": (y, 1e-6)}, peak_flops=1e11, bandwidth=1e10).get_xlabel()

# %% te.display.plot.tuning_history
te.display.plot.tuning_history([0.003, 0.002, 0.0025]).get_ylabel()

# %% te.display.plot.benchmark_table
len(
    te.display.plot.benchmark_table({"tedsl": {"blur": 0.001}, "NumPy": {"blur": 0.004}}).tables
)

# %% te.display.plot.jacobian_sparsity
te.display.plot.jacobian_sparsity(y, x, {x: np.ones(4)}).get_xlabel()

# %% te.display.plot.index_map
len(te.display.plot.index_map([(0, 0), (1, 0), (1, 1)]).patches)
