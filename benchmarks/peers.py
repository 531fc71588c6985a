"""What a workload is compared with: PyTorch, `torch.compile`, `jax.jit`, and NumPy where it has a function for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.workload import Peer, Workload

__all__ = ["PEERS", "Call", "peers"]

PEERS = ("torch", "jax", "numpy", "compiled")  # the last is torch.compile, which takes many seconds for each workload
Call = Callable[[], Any]


def peers(workload: Workload, chosen: Sequence[str] = PEERS[:-1]) -> dict[str, Call]:
    """The computation by each of the chosen peers that is there, as calls without arguments."""
    makers: dict[str, Callable[[Workload], Call | None]] = {
        "torch": lambda w: _torch(w, w.torch_peer), "compiled": _compiled, "jax": _jax, "numpy": _numpy,
    }  # fmt: skip
    made = {name: makers[name](workload) for name in chosen}
    return {name: call for name, call in made.items() if call is not None}


def _torch(workload: Workload, peer: Peer | None) -> Call | None:
    if peer is None:
        return None
    import torch

    tensors = [torch.as_tensor(a) for a in workload.arrays]
    if not workload.step:
        return lambda: peer(*tensors)
    count, leaves = len(tensors) - workload.heads, workload.leaves
    given, heads = tensors[:count], tensors[count:] or None

    def step() -> Any:
        inputs = [a.detach().requires_grad_() if k in leaves else a for k, a in enumerate(given)]
        found = peer(*inputs)
        results = found if isinstance(found, tuple) else (found,)
        floats = [y for y in results if y.is_floating_point()]
        return (*(y.detach() for y in results), *torch.autograd.grad(floats, [inputs[k] for k in leaves], heads))

    return step


def _compiled(workload: Workload) -> Call | None:
    if workload.torch_peer is None:
        return None
    import torch

    torch._dynamo.reset()
    return _torch(workload, torch.compile(workload.torch_peer, dynamic=False))


def _jax(workload: Workload) -> Call | None:
    peer = workload.jax_peer
    if peer is None or importlib.util.find_spec("jax") is None:
        return None
    import jax
    import jax.numpy as jnp

    def step(*arrays: Any) -> Any:
        given, head = (arrays[:-1], arrays[-1]) if workload.has_head else (arrays, jnp.ones((), arrays[0].dtype))

        def of_leaves(*leaves: Any) -> Any:
            found = dict(zip(workload.leaves, leaves, strict=True))
            return peer(*(found.get(k, a) for k, a in enumerate(given)))

        result, back = jax.vjp(of_leaves, *(given[k] for k in workload.leaves))
        return (result, *back(head))

    wait: Callable[[Any], Any] = jax.block_until_ready
    compiled, arrays = jax.jit(step if workload.step else peer), [jnp.asarray(a) for a in workload.arrays]
    return lambda: wait(compiled(*arrays))


def _numpy(workload: Workload) -> Call | None:
    peer = workload.numpy_peer
    return None if peer is None or workload.step else lambda: peer(*workload.arrays)
