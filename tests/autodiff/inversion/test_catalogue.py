"""The catalogue against PyTorch and JAX in float64: values, gradients, second derivatives; and jvp against vjp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.autodiff.catalogue import CATALOGUE, Entry

RTOL = 1e-9


def close(found: Any, expected: Any) -> None:
    """Equal to 1e-9 of the largest element: sums are added in other orders."""
    expected = np.asarray(expected)
    assert np.shape(found) == expected.shape
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=RTOL, atol=RTOL * scale)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def torch_results(entry: Entry) -> tuple[list[Any], list[Any]]:
    """Outputs, and gradients of <outputs, heads>."""
    torch = pytest.importorskip("torch")
    case = entry.case
    assert entry.torch is not None
    arrays = [torch.tensor(a, requires_grad=t.dtype.is_float) for t, a in zip(case.inputs, case.arrays, strict=True)]
    arrays = [a if a.requires_grad else a.long() for a in arrays]
    outputs = as_tuple(entry.torch(*arrays))
    loss = sum((o * torch.tensor(case.feeds[h])).sum() for o, h in zip(outputs, case.heads, strict=True))
    gradients = torch.autograd.grad(loss, [a for a in arrays if a.requires_grad])
    return [o.detach().numpy() for o in outputs], [g.numpy() for g in gradients]


def jax_loss(entry: Entry) -> tuple[Any, list[int]]:
    """<outputs, heads> as a function of the inputs, and which of them are floats."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    case = entry.case
    assert entry.jax is not None
    oracle = entry.jax

    def loss(*arrays: Any) -> Any:
        outputs = as_tuple(oracle(*arrays))
        return sum((o * case.feeds[h]).sum() for o, h in zip(outputs, case.heads, strict=True)), outputs

    return loss, [k for k, t in enumerate(case.inputs) if t.dtype.is_float]


def jax_results(entry: Entry) -> tuple[list[Any], list[Any]]:
    loss, floats = jax_loss(entry)
    import jax

    (_, outputs), gradients = jax.jit(jax.value_and_grad(loss, floats, has_aux=True))(*entry.case.arrays)
    return list(map(np.asarray, outputs)), list(map(np.asarray, gradients))


def ours(entry: Entry, run: Any = te.interpret) -> tuple[list[Any], list[Any]]:
    case = entry.case
    found = run([*case.outputs, *case.gradients], case.feeds)
    return list(found[: len(case.outputs)]), list(found[len(case.outputs) :])


def compare(found: tuple[list[Any], list[Any]], expected: tuple[list[Any], list[Any]]) -> None:
    for have, want in zip([*found[0], *found[1]], [*expected[0], *expected[1]], strict=True):
        close(have, want)


def named(entries: list[Entry]) -> Any:
    return pytest.mark.parametrize("entry", entries, ids=lambda e: e.name)


@named([e for e in CATALOGUE if e.torch])
def test_against_torch(entry: Entry) -> None:
    compare(ours(entry), torch_results(entry))


@pytest.mark.share(2)
@named([e for e in CATALOGUE if e.jax and not e.grid])
def test_against_jax(entry: Entry) -> None:
    compare(ours(entry), jax_results(entry))


@pytest.mark.long
@named([e for e in CATALOGUE if e.jax and e.grid])
def test_the_grid_against_jax(entry: Entry) -> None:
    compare(ours(entry), jax_results(entry))


@pytest.mark.share(3)
@named([e for e in CATALOGUE if e.jax and e.smooth and not e.grid])
def test_second_derivatives_against_jax(entry: Entry) -> None:
    """The gradient of <gradient, v> for a random v."""
    loss, floats = jax_loss(entry)
    import jax

    case = entry.case
    vectors = [case.feeds[v] for v in case.directions]

    def along(*arrays: Any) -> Any:
        gradients = jax.grad(lambda *a: loss(*a)[0], floats)(*arrays)
        return sum((g * v).sum() for g, v in zip(gradients, vectors, strict=True))

    expected = jax.jit(jax.grad(along, floats))(*case.arrays)
    second = te.differentiate(list(case.gradients), case.sources, head=list(case.directions))
    for have, want in zip(te.interpret(list(second), case.feeds), expected, strict=True):
        close(have, np.asarray(want))


@named([e for e in CATALOGUE if not e.grid])
def test_jvp_and_vjp_are_adjoint(entry: Entry) -> None:
    adjoint_identity(entry)


@pytest.mark.long
@named([e for e in CATALOGUE if e.grid])
def test_jvp_and_vjp_are_adjoint_on_the_grid(entry: Entry) -> None:
    adjoint_identity(entry)


COMPILED = [e for e in CATALOGUE if not e.grid][::9]


@named(COMPILED)
def test_compiled(entry: Entry) -> None:
    """Every ninth line, compiled, beside the reference."""
    compare(ours(entry, te.evaluate), ours(entry))


def adjoint_identity(entry: Entry) -> None:
    """<head, J v> = <J' head, v>."""
    case = entry.case
    tangents = te.jvp(list(case.outputs), case.sources, list(case.directions))
    forward = te.interpret(list(tangents), case.feeds)
    backward = te.interpret(list(case.gradients), case.feeds)
    left = [np.sum(case.feeds[h] * t) for h, t in zip(case.heads, forward, strict=True)]
    right = [np.sum(case.feeds[v] * g) for v, g in zip(case.directions, backward, strict=True)]
    size = sum(np.sum(np.abs(case.feeds[h] * t)) for h, t in zip(case.heads, forward, strict=True))
    assert abs(sum(left) - sum(right)) <= 1e-12 * (1.0 + size)


@named([e for e in CATALOGUE if not e.grid])
def test_affine_indices_leave_no_scatter(entry: Entry) -> None:
    scatters = entry.case.gradients.explain().scatters
    assert not (entry.affine and scatters), str(entry.case.gradients.explain())
