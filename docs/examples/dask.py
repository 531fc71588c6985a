# %%
import dask.array as da

import tedsl as te

x = da.ones((200, 300), chunks=(50, 100), dtype="float32")

# %% te.dask.map
y = te.dask.map(te.ops.gaussian_blur, x, sigma=1.5)  # lazy, block by block; halos are found
y.compute().shape

# %% te.dask.vjp
y, pull = te.dask.vjp(te.ops.gaussian_blur, x, sigma=1.5)
pull(y).compute().shape
