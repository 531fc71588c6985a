"""What a page of the reference says before its first entry: what stands there, and which guide tells how to use it."""

from __future__ import annotations

from tedsl import ops

__all__ = ["FIRST", "GROUPS", "groups"]

FIRST = {
    "language": "What programs are made of. The guide is :doc:`/writing`.",
    "tensors": "Tensors, and the elements that functions of axes are made of, with their methods.",
    "functions": "Functions of single elements, which work on whole tensors, too, and reductions over axes. "
    "NumPy's functions take tensors as well: ``np.exp(x)`` is ``te.exp(x)``.",
    "arrays": "NumPy's functions of whole tensors. Each gives a tensor, which is computed when a program runs. "
    "The guide is :doc:`/writing`.",
    "derivatives": "Derivatives of tensors, and checks of them. The guide is :doc:`/differentiating`. "
    "Functions of arrays, such as ``te.grad``, are in :doc:`operators`.",
    "scheduling": "How a program runs: a schedule, what may be said of each stage, and a search for a faster one. "
    "The guide is :doc:`/scheduling`.",
    "running": "From tensors to a kernel and its results. The guide is :doc:`/writing`. "
    "What a kernel can do is in :doc:`kernels`.",
    "cost": "What a program has to do, counted from its definition.",
    "mutation": "Code that writes in place, and questions about memory. The guide is :doc:`/mutation`.",
    "operators": "Functions of arrays: operators of your own, and transformations of functions. "
    "The guides are :doc:`/operators` and :doc:`/differentiating`.",
    "errors": "What is raised beside Python's own errors.",
    "ops": "Operators written in the language. On arrays of NumPy, PyTorch and JAX they run, and these frameworks "
    "differentiate them. On tensors they are expressions, differentiated and scheduled with the rest of a program.",
    "ops.optim": "Optimizers, and training steps that are one program. The guide is :doc:`/differentiating`.",
    "random": "Random numbers from keys, the same that JAX draws.",
    "testing": "Checks of operators and their derivatives, in cases that are drawn. The guide is :doc:`/checking`.",
    "dask": "Operators over arrays that are larger than memory. The guide is :doc:`/dask`.",
    "display": "What notebooks show. The guide is :doc:`/showing`.",
    "display.plot": "Plots by matplotlib, one for each kind of result.",
    "autodiff": "Index maps and their inversion, without tensors. The guide is :doc:`/differentiating`.",
    "strategies": "Strategies for hypothesis that draw whole programs, and what belongs to them.",
}

# What operators are for -> the modules that define them.
GROUPS = {
    "Products and convolutions": ("linear", "convolution"),
    "Activations": ("activations",),
    "Normalization, softmax": ("normalization",),
    "Attention": ("attend",),
    "Pools": ("pooling",),
    "Recurrent layers": ("recurrent",),
    "Losses": ("losses",),
    "Lookups, sums at places": ("indexing",),
    "Resizing, padding, windows": ("resampling",),
    "Images": ("filters", "imaging", "sampling"),
    "Running sums, statistics": ("cumulative", "statistics"),
    "Simulation": ("physics",),
    "Random": ("random",),
}


def groups() -> dict[str, list[str]]:
    """What operators are for -> their names."""
    return {
        title: sorted(name for module in modules for name in ops._PUBLIC[f"tedsl.ops.{module}"])
        for title, modules in GROUPS.items()
    }
