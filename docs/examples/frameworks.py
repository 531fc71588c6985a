# %%
import torch

import tedsl as te

# %% te.from_fx
graph = torch.fx.symbolic_trace(lambda x: (x * 2).relu())
te.from_fx(graph, [torch.ones(3)])(torch.tensor([-1.0, 0.0, 1.0]))


# %% FxFunction FxFunction.inputs FxFunction.outputs FxFunction.mutated FxFunction.copies
graph = torch.fx.symbolic_trace(lambda x: x.mul_(2).relu())
function = te.from_fx(graph, [torch.ones(3)])
print(function.inputs, function.outputs)
print(function.mutated, function.copies)


# %% Op.torch_op
@te.op
def halved(x):
    return te.compute(x.shape, lambda i: x[i] / 2)


halved.torch_op(torch.ones(3))  # registered, for graphs that should show it
