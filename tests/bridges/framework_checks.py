"""Checks of an operator by the checkers of PyTorch and JAX; NumPy's results are the values to be met.

The frameworks are looked for when a check runs: tests of one of them do without the other.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

import tedsl as te
from tests.bridges.operators import Case

__all__ = [
    "check_gradcheck",
    "check_gradgradcheck",
    "check_jax",
    "check_jax_twice",
    "check_opcheck",
    "check_te_gradcheck",
    "check_torch_compile",
    "check_torch_func",
]


def results(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def close(found: Any, expected: Any, rtol: float = 1e-9) -> None:
    for a, b in zip(results(found), results(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        scale = max(1.0, float(np.abs(b).max(initial=0.0)))
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale)


def tensors(case: Case) -> list[Any]:
    torch = import_module("torch")
    return [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in case.arrays]


def of_floats(case: Case, arrays: list[Any]) -> Callable[..., Any]:
    """The op as a function of its float arguments, giving its float results."""

    def function(*floats: Any) -> Any:
        full = list(arrays)
        for k, x in zip(case.floats, floats, strict=True):
            full[k] = x
        found = [r for r in results(case.op(*full)) if "float" in str(r.dtype)]
        return found[0] if len(found) == 1 else tuple(found)

    return function


def gradients(case: Case) -> list[Any]:
    """Of the sum of all float results, by te.differentiate and the reference."""
    inputs = [te.placeholder(a.shape, a.dtype, name=f"x{k}") for k, a in enumerate(case.arrays)]
    outputs = [t for t in results(case.op(*inputs)) if t.dtype.is_float]
    heads = [te.placeholder(t.shape, t.dtype) for t in outputs]
    asked = te.differentiate(outputs, [inputs[k] for k in case.floats], heads)
    feeds = {**dict(zip(inputs, case.arrays)), **{h: np.ones(h.shape, str(h.dtype)) for h in heads}}
    return list(te.interpret(list(asked), feeds))


def total(value: Any) -> Any:
    return sum(r.sum() for r in results(value))


def check_opcheck(case: Case) -> None:
    torch = import_module("torch")
    key_of = import_module("tedsl.bridges.torch.operators").key_of  # registers the operator
    call = case.op.signature.call(case.arrays, {})
    key = key_of(case.op.definition(call.template))
    torch.library.opcheck(torch.ops.tedsl.call.default, (key, tensors(case)))


def check_gradcheck(case: Case) -> None:
    torch = import_module("torch")
    given = tensors(case)
    function = of_floats(case, given)
    floats = [given[k] for k in case.floats]
    assert torch.autograd.gradcheck(function, floats, fast_mode=True, check_forward_ad=True)
    close([t.numpy() for t in torch.autograd.grad(total(function(*floats)), floats)], gradients(case))


def check_gradgradcheck(case: Case) -> None:
    torch = import_module("torch")
    given = tensors(case)
    if case.twice:
        assert torch.autograd.gradgradcheck(of_floats(case, given), [given[k] for k in case.floats], fast_mode=True)


def check_torch_func(case: Case) -> None:
    torch = import_module("torch")
    given = [t.detach() for t in tensors(case)]
    function = of_floats(case, given)
    floats = [given[k] for k in case.floats]
    numbers = tuple(range(len(floats)))
    by_reverse = torch.func.jacrev(lambda *x: results(function(*x))[0], argnums=numbers)(*floats)
    by_forward = torch.func.jacfwd(lambda *x: results(function(*x))[0], argnums=numbers)(*floats)
    close(by_reverse, by_forward)
    stacked = [torch.stack([x, x + 0.01]) for x in floats]
    each = torch.func.vmap(torch.func.grad(lambda *x: total(function(*x)), argnums=numbers))(*stacked)
    close([g[0] for g in each], gradients(case))


def check_torch_compile(case: Case) -> None:
    torch = import_module("torch")
    given = tensors(case)
    floats = [given[k] for k in case.floats]
    torch._dynamo.reset()
    compiled = torch.compile(lambda *x: total(case.op(*x)), fullgraph=True, backend="aot_eager")
    asked = torch.autograd.grad(compiled(*given), floats)
    integers = [r for r in results(case.op(*given)) if not r.is_floating_point()]
    assert all(not r.requires_grad for r in integers)
    close([g.numpy() for g in asked], gradients(case))


def check_jax(case: Case) -> None:
    jax = import_module("jax")
    arrays = [jax.numpy.asarray(a) for a in case.arrays]
    close(case.op(*arrays), case.op(*case.arrays))
    close(jax.jit(case.op)(*arrays), case.op(*case.arrays))
    function = of_floats(case, arrays)
    floats = [arrays[k] for k in case.floats]
    numbers = tuple(range(len(floats)))
    reverse = jax.grad(lambda *x: total(function(*x)), argnums=numbers)
    close(reverse(*floats), gradients(case))
    close(jax.jit(reverse)(*floats), gradients(case))
    ones = tuple(jax.numpy.ones_like(x) for x in floats)
    _, dots = jax.jvp(function, tuple(floats), ones)
    expected = sum(float(g.sum()) for g in gradients(case))
    np.testing.assert_allclose(float(total(dots)), expected, rtol=1e-8, atol=1e-8)
    stacked = [jax.numpy.stack([x, x + 0.01]) for x in floats]
    close([g[0] for g in jax.vmap(reverse)(*stacked)], gradients(case))
    close(jax.grad(jax.checkpoint(lambda *x: total(function(*x))), argnums=numbers)(*floats), gradients(case))


def check_jax_twice(case: Case) -> None:
    jax = import_module("jax")
    arrays = [jax.numpy.asarray(a) for a in case.arrays]
    function = of_floats(case, arrays)
    floats = tuple(arrays[k] for k in case.floats)
    if case.twice:
        by_reverse, by_forward = (
            jax.jvp(jax.grad(lambda *x: total(function(*x)) ** 2), floats, floats)[1],
            jax.grad(lambda *x: jax.jvp(lambda *y: total(function(*y)) ** 2, x, floats)[1])(*floats),
        )
        other = jax.grad(lambda x, *rest: total(jax.jvp(lambda *y: total(function(*y)) ** 2, (x, *rest), floats)[1]))
        close(by_forward, other(*floats))
        close(by_reverse, by_forward, rtol=1e-8)


def check_te_gradcheck(case: Case) -> None:
    inputs = [te.placeholder(a.shape, a.dtype, name=f"x{k}") for k, a in enumerate(case.arrays)]
    outputs = [t for t in results(case.op(*inputs)) if t.dtype.is_float]
    te.gradcheck(outputs, [inputs[k] for k in case.floats], dict(zip(inputs, case.arrays, strict=True)))
