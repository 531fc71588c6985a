# %%
import torch

import tedsl as te

# %% te.from_fx
graph = torch.fx.symbolic_trace(lambda x: (x * 2).relu())
te.from_fx(graph, [torch.ones(3)])(torch.tensor([-1.0, 0.0, 1.0]))
